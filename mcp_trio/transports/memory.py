"""A server in the same program, reached without a process or a socket.

Messages are encoded and parsed on both sides as everywhere else, so what works here works over a
wire. Nothing is buffered: the server's `send` returns when the client has taken the message.
"""

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Any, Self

import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.transports import abc
from mcp_trio.transports._service import open_services

__all__ = ["MemoryTransport"]


class MemoryTransport(abc.Transport):
    """Calls a handler directly. One transport is one connection, with its own request ids.

    The transport has no life of its own: each request is served by a task that belongs to the
    block which made the request.
    """

    kind = "memory"

    def __init__(self, handler: abc.Handler, *, principal: abc.Principal | None = None) -> None:
        self._handler = handler
        self._principal = principal
        self._open: set[jsonrpc.RequestId] = set()

    @asynccontextmanager
    async def open_exchange(
        self, request_id: jsonrpc.RequestId, method: str, params: dict[str, Any]
    ) -> AsyncIterator[trio.abc.ReceiveChannel[jsonrpc.Message]]:
        """Have a request served; see `Transport.open_exchange`.

        Leaving the block cancels the server's task and waits for it to end.

        Raises:
            errors.LocalProtocolError: the id is already in use.
        """
        request = jsonrpc.parse_client_message(jsonrpc.encode_request(request_id, method, params))
        if not isinstance(request, jsonrpc.Request):
            raise AssertionError("unreachable: an id makes it a request")
        if request_id in self._open:
            raise errors.LocalProtocolError(f"request id {request_id!r} is already in flight")
        self._open.add(request_id)
        try:
            send_channel, receive_channel = trio.open_memory_channel[bytes](0)
            exchange = _MemoryExchange(self, self._principal, send_channel)
            async with open_services() as services:
                services.start_soon(self._serve, request, exchange)
                del params, request
                with _Messages(receive_channel, services.cancel) as messages:
                    yield messages
        finally:
            self._open.discard(request_id)

    async def _serve(self, request: jsonrpc.Request, exchange: "_MemoryExchange") -> None:
        with exchange.frames as frames:
            try:
                reply = await abc.call_handler(self._handler, request, exchange)
            finally:
                exchange.over = True
            try:
                await frames.send(reply.frame)
            except trio.BrokenResourceError:
                await trio.lowlevel.checkpoint()  # the client has left


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
        self.over = False

    async def send(self, frame: bytes) -> None:
        if self.over:
            await trio.lowlevel.checkpoint()  # too late, and no harm in it
        else:
            await self.frames.send(frame)

    def send_nowait(self, frame: bytes) -> bool:
        if self.over:
            return False
        try:
            self.frames.send_nowait(frame)
        except (trio.WouldBlock, trio.BrokenResourceError):
            return False
        return True


class _Messages(trio.abc.ReceiveChannel[jsonrpc.Message]):
    """Parses what the server sends. The channel below already knows when it has ended."""

    def __init__(
        self, frames: trio.MemoryReceiveChannel[bytes], cancel: Callable[[], None]
    ) -> None:
        self._frames = frames
        self._cancel = cancel

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._frames.close()

    async def receive(self) -> jsonrpc.Message:
        return jsonrpc.parse_server_message(await self._frames.receive())

    async def aclose(self) -> None:
        """Give the exchange up: the server's task is cancelled."""
        self._cancel()
        await self._frames.aclose()
