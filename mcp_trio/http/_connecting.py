"""The connections of a client to its one server: made, limited, written to, and closed."""

import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import trio

from mcp_trio.http import _connect, _pool, _proxy, _target, _wire

__all__ = ["Connecting"]

C = TypeVar("C", bound=_wire.HttpConnection | None)


class Connecting:
    """All that a client has to do with sockets.

    Args:
        target: the server.
        ssl_context: for TLS.
        proxy: on the way to it.
        timeout: seconds for a connection to be made.
        max_connections: how many requests may have one at a time; see `slots`.

    Attributes:
        idle: those that wait for another request.
        slots: one is taken by each plain request, from before it is sent until it is over.
            Streams take none: they stay, and would leave the requests nothing.
        connected: how many have been made.
        requests: how many requests have been written.
    """

    def __init__(
        self,
        target: _target.Target,
        ssl_context: ssl.SSLContext | None,
        *,
        proxy: _proxy.Proxy | None,
        timeout: float,
        max_connections: int,
    ) -> None:
        self.idle = _pool.IdlePool()
        self.slots = trio.Semaphore(max_connections, max_value=max_connections)
        self.connected = 0
        self.requests = 0
        self.closed = False
        self._target = target
        self._ssl_context = ssl_context
        self._proxy = proxy
        self._timeout = timeout
        self._under_way: set[trio.CancelScope] = set()

    def close(self) -> None:
        """Close what is idle, and cancel what is not open yet."""
        self.closed = True
        self.idle.close()
        for scope in self._under_way:
            scope.cancel()

    async def unless_closed(self, work: Callable[[], Awaitable[C]]) -> C:
        """Do what leads to a connection, until `close` is called.

        Raises:
            trio.ClosedResourceError: it was called.
        """
        if not self.closed:
            with trio.CancelScope() as scope:
                self._under_way.add(scope)
                try:
                    connection = await work()
                finally:
                    self._under_way.discard(scope)
                if not scope.cancel_called:
                    return connection
                if connection is not None:
                    connection.close()
        raise trio.ClosedResourceError("the transport was closed")

    async def take_slot(self) -> None:  # noqa: ASYNC910 - one that is free is taken at once
        """Wait until one more request may be made."""
        try:
            self.slots.acquire_nowait()
        except trio.WouldBlock:
            await self.slots.acquire()

    async def send(
        self, path: str, headers: list[tuple[str, str]], body: bytes, *, reuse: bool
    ) -> _wire.HttpConnection:
        """Write a request: on an idle connection, where one may be used, or on a fresh one."""
        where = path
        if self._proxy is not None and not self._target.secure:
            where, headers = self._target.origin + path, [*headers, *self._proxy.headers]
        idle = self.idle.take() if reuse else None
        if idle is not None:
            try:
                await self._write(idle, headers, where, body)
                return idle
            except trio.BrokenResourceError:
                # Not all of it was handed to the system, so the server cannot have acted on it.
                idle.close()
        fresh = await _connect.connect(
            self._target, self._ssl_context, timeout=self._timeout, proxy=self._proxy
        )
        self.connected += 1
        # If this fails, the server may have answered before it had read everything, say with
        # status 413. That answer is worth more than the broken pipe; reading finds either.
        with suppress(trio.BrokenResourceError):
            await self._write(fresh, headers, where, body)
        return fresh

    async def _write(
        self,
        connection: _wire.HttpConnection,
        headers: list[tuple[str, str]],
        where: str,
        body: bytes,
    ) -> None:
        self.requests += 1
        try:
            await connection.send(headers, where, body)
        except trio.BrokenResourceError:
            raise
        except BaseException:
            connection.close()
            raise
