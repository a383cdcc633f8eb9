"""A server in the same program, reached without a process or a socket.

Messages are encoded and parsed on both sides as everywhere else, so what works here works over a
wire. Nothing is buffered: the server's `send` returns when the client has taken the message.
"""

import logging
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.transports import abc
from mcp_trio.transports._service import Services, open_services
from mcp_trio.transports.lifespan import running

__all__ = ["MemoryTransport", "open_memory_transport"]

logger = logging.getLogger("mcp_trio.transports")

LEAVE_DEADLINE: Final = 10.0
"""Seconds that a request which was given up gets to end before nobody waits for it any more.

More than a subscription's source has for closing (`subscriptions.stream.CLOSE_GRACE`).
"""


@asynccontextmanager
async def open_memory_transport(
    handler: abc.Handler, *, principal: abc.Principal | None = None
) -> AsyncIterator["MemoryTransport"]:
    """Connect to a handler in this program, and hold its lifespan open.

    The requests are served by tasks that belong to this block. Leaving it, however that
    happens, cancels those that are still being served and waits until they have ended.

    Args:
        handler: the server.
        principal: who the server is told is asking.
    """
    async with running(handler), open_services() as services:
        transport = MemoryTransport(handler, services, principal)
        try:
            yield transport
        finally:
            transport.closed = True


class MemoryTransport(abc.Transport):
    """Calls a handler directly. One transport is one connection, with its own request ids.

    `open_memory_transport` makes one. Its exchanges may be left in any order, from any task.

    Attributes:
        closed: whether the block it lived in has been left.
    """

    kind = "memory"

    def __init__(
        self, handler: abc.Handler, services: Services, principal: abc.Principal | None
    ) -> None:
        self.closed = False
        self.server = handler if isinstance(handler, Hashable) else None
        self._handler = handler
        self._services = services
        self._principal = principal
        self._open: set[jsonrpc.RequestId] = set()

    @property
    def ended(self) -> bool:
        """Whether the block it lived in has been left."""
        return self.closed

    @asynccontextmanager
    async def open_exchange(
        self,
        request_id: jsonrpc.RequestId,
        method: str,
        params: dict[str, Any],
        *,
        mirrored: Mapping[str, object] = abc.NOTHING_MIRRORED,
    ) -> AsyncIterator[trio.abc.ReceiveChannel[jsonrpc.Message]]:
        """Have a request served; see `Transport.open_exchange`.

        Leaving the block cancels the server's task and waits for it to end.

        Raises:
            errors.LocalProtocolError: the id is already in use.
            errors.ConnectionLost: the transport's own block has been left.
        """
        request = jsonrpc.parse_client_message(jsonrpc.encode_request(request_id, method, params))
        if not isinstance(request, jsonrpc.Request):
            raise AssertionError("unreachable: an id makes it a request")
        if request_id in self._open:
            raise errors.LocalProtocolError(f"request id {request_id!r} is already in flight")
        if self.closed:
            raise errors.ConnectionLost(_CLOSED)
        self._open.add(request_id)
        send_channel, receive_channel = trio.open_memory_channel[bytes](0)
        exchange = _MemoryExchange(self, self._principal, send_channel)
        try:
            self._services.start_soon(self._serve, request, exchange)
            del params, request
            with _Messages(receive_channel, exchange.scope.cancel) as messages:
                yield messages
        finally:
            exchange.scope.cancel()
            with trio.move_on_after(LEAVE_DEADLINE, shield=True):
                await exchange.ended.wait()
            self._open.discard(request_id)

    async def _serve(self, request: jsonrpc.Request, exchange: "_MemoryExchange") -> None:
        try:
            with exchange.frames as frames, exchange.scope:
                try:
                    reply = await abc.call_handler(self._handler, request, exchange)
                finally:
                    exchange.over = True
                try:
                    await frames.send(reply.frame)
                except trio.BrokenResourceError:
                    await trio.lowlevel.checkpoint()  # the client has left
        finally:
            exchange.ended.set()


_CLOSED: Final = "the block of this connection has been left"


def _read(frame: bytes) -> jsonrpc.Message | None:
    """What the server has sent; None for a request, which it must not send nor anybody answer."""
    try:
        return jsonrpc.parse_server_message(frame)
    except errors.RemoteProtocolError:
        if not jsonrpc.is_request(frame):
            raise
        logger.warning("the server has sent a request; it is dropped")
        return None


class _MemoryExchange(abc.Exchange):
    kind = "memory"

    def __init__(
        self,
        connection: Hashable,
        principal: abc.Principal | None,
        frames: trio.MemorySendChannel[bytes],
    ) -> None:
        self.connection = connection
        self.principal = principal
        self.frames = frames
        self.scope = trio.CancelScope()
        self.over = False
        self.ended = trio.Event()

    async def send(self, frame: bytes) -> None:
        if self.over:
            await trio.lowlevel.checkpoint()  # too late, and no harm in it
        else:
            await self.frames.send(frame)

    def send_nowait(self, frame: bytes, now: float | None = None) -> bool:
        if self.over:
            return False
        try:
            self.frames.send_nowait(frame)
        except (trio.WouldBlock, trio.BrokenResourceError):
            return False
        return True


class _Messages(trio.abc.ReceiveChannel[jsonrpc.Message]):
    """Parses what the server sends. The channel below knows when it has ended."""

    def __init__(
        self, frames: trio.MemoryReceiveChannel[bytes], cancel: Callable[[], None]
    ) -> None:
        self._frames = frames
        self._cancel = cancel
        self._answered = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._frames.close()

    async def receive(self) -> jsonrpc.Message:
        try:
            message = _read(await self._frames.receive())
            while message is None:
                message = _read(await self._frames.receive())
        except trio.EndOfChannel:
            if self._answered:
                raise
            raise errors.ConnectionLost(_CLOSED) from None
        self._answered = not isinstance(message, jsonrpc.Notification)
        return message

    async def aclose(self) -> None:
        """Give the exchange up: the server's task is cancelled."""
        self._cancel()
        await self._frames.aclose()
