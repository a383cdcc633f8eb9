"""What the tests of a server or a client need; made for pytest-trio.

* `open_memory_client` connects a client to a server in the same program.
* `open_scripted_peer` gives a client a server that does what the test says, right or wrong.
* `open_raw_client` speaks to a server in raw messages, right or wrong.
* `memory_pipe` is a pipe without an operating system, for deterministic tests.

Beside them, `testing.buses` has a bus in memory, for several hubs in one program, and
`testing.bus_contract` what a bus of your own has to hold.

All of them work in virtual time: with pytest-trio's ``autojump_clock`` no test has to wait.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

import trio

from mcp_trio import codec
from mcp_trio.protocol import jsonrpc, lines, meta, methods, versions
from mcp_trio.transports import abc
from mcp_trio.transports._memory_pipe import (
    PIPE_CAPACITY,
    MemoryPipeReceiveStream,
    MemoryPipeSendStream,
    memory_pipe,
)
from mcp_trio.transports._service import open_services
from mcp_trio.transports.client_lines import LineTransport
from mcp_trio.transports.lines import serve_lines
from mcp_trio.transports.memory import open_memory_transport

if TYPE_CHECKING:
    from mcp_trio.client.client import Client
    from mcp_trio.client.options import ClientOptions

__all__ = [
    "MemoryPipeReceiveStream",
    "MemoryPipeSendStream",
    "RawClient",
    "ScriptedPeer",
    "Wire",
    "memory_pipe",
    "open_memory_client",
    "open_raw_client",
    "open_scripted_peer",
    "request",
]


@asynccontextmanager
async def open_memory_client(
    server: abc.Handler,
    *,
    principal: abc.Principal | None = None,
    **options: "Unpack[ClientOptions]",
) -> AsyncIterator["Client"]:
    """Connect a client to a server in the same program.

    Messages pass through bytes in both directions, and nothing is buffered in between. Leaving
    the block cancels what the server still does for this client, and waits until it has ended.

    Args:
        server: the server.
        principal: who the server is told is asking.
        options: what `client.ClientOptions` describes: who the client is, and who answers the
            server's questions.

    Example:
        ::

            async def test_echo() -> None:
                async with open_memory_client(server) as client:
                    result = await client.call_tool("echo", {"text": "hello"})
                    assert not result.is_error
    """
    from mcp_trio.client.client import Client  # a server's test needs none

    async with open_memory_transport(server, principal=principal) as transport:
        yield Client(transport, **options)


def request(
    request_id: jsonrpc.RequestId, method: str, params: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A request as a plain object, with the `_meta` that this revision asks for.

    Example:
        ``request(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})``
    """
    params = dict(params or {})
    params.setdefault("_meta", meta.build_meta(version=versions.LATEST, client_capabilities={}))
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


class Wire:
    """One end of a connection, at which messages are read and written by hand.

    It reads only when it is asked to: a test that does not call `receive` is a peer that has
    stopped reading.
    """

    def __init__(
        self, receive_stream: trio.abc.ReceiveStream, send_stream: trio.abc.SendStream
    ) -> None:
        self._receive_stream = receive_stream
        self._send_stream = send_stream
        self._decoder = lines.LineDecoder(2**30)
        self._waiting: list[bytes | lines.OversizedLine] = []
        self._ended = False

    async def send(self, *messages: Mapping[str, Any] | bytes) -> None:
        """Write messages at once, one after the other; bytes are written as they are."""
        data = b"".join(
            bytes(message) if isinstance(message, bytes) else codec.encode_json(message) + b"\n"
            for message in messages
        )
        await self._send_stream.send_all(data)

    async def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises:
            trio.EndOfChannel: the peer has ended its stream.
            trio.BrokenResourceError: the connection has broken.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._waiting:
            if self._ended:
                raise trio.EndOfChannel
            data = await self._receive_stream.receive_some()
            self._ended = not data
            self._waiting = self._decoder.feed(bytes(data)) if data else self._decoder.eof()
        await trio.lowlevel.cancel_shielded_checkpoint()
        line = self._waiting.pop(0)
        if isinstance(line, lines.OversizedLine):
            raise AssertionError("unreachable: there is no such line in a test")
        message = codec.decode_json(line)
        if not isinstance(message, dict):
            raise AssertionError(f"not an object: {line!r}")
        return message

    async def receive_all(self) -> list[dict[str, Any]]:
        """Return what comes until the peer ends its stream."""
        received = []
        with contextlib.suppress(trio.EndOfChannel):
            while True:
                received.append(await self.receive())
        await trio.lowlevel.checkpoint()
        return received

    async def end(self) -> None:
        """End our stream: the peer reads what was sent and then the end."""
        await self._send_stream.aclose()

    async def aclose(self) -> None:
        """End our stream and read nothing more: the peer's writes fail."""
        with trio.move_on_after(1, shield=True):
            await trio.aclose_forcefully(self._receive_stream)
            await trio.aclose_forcefully(self._send_stream)
        await trio.lowlevel.checkpoint()


class RawClient(Wire):
    """A client made by hand, at the wire of `serve_lines`.

    Attributes:
        ended: set when the server has ended the connection.
        drain: set it, and the server ends the connection gracefully.
    """

    def __init__(
        self, receive_stream: trio.abc.ReceiveStream, send_stream: trio.abc.SendStream
    ) -> None:
        super().__init__(receive_stream, send_stream)
        self.ended = trio.Event()
        self.drain = trio.Event()


@asynccontextmanager
async def open_raw_client(
    handler: abc.Handler, *, capacity: int = PIPE_CAPACITY, **options: Any
) -> AsyncIterator[RawClient]:
    """Serve a connection on which the test writes raw messages.

    Args:
        handler: the server.
        capacity: bytes that fit into the connection in each direction.
        options: for `transports.lines.serve_lines`.

    Example:
        ::

            async with open_raw_client(server) as wire:
                await wire.send(request(1, "tools/list"), {"jsonrpc": "1.0"})
                assert (await wire.receive())["error"]["code"] == -32600
                assert (await wire.receive())["id"] == 1
    """
    send_to_server, server_receives = memory_pipe(capacity)
    server_sends, receive_from_server = memory_pipe(capacity)
    client = RawClient(receive_from_server, send_to_server)

    async def serve() -> None:
        await serve_lines(handler, server_receives, server_sends, drain=client.drain, **options)
        client.ended.set()
        await server_sends.aclose()
        await server_receives.aclose()

    async with open_services() as services:
        services.start_soon(serve)
        yield client


class ScriptedPeer(Wire):
    """A server that does exactly what a test says; see `open_scripted_peer`.

    Late, twice, never, to the wrong request, or half a message: all is possible, and nothing
    happens by itself. What the client sends waits until `receive` is called.

    Attributes:
        transport: how a client reaches it.
    """

    def __init__(
        self,
        transport: LineTransport,
        receive_stream: MemoryPipeReceiveStream,
        send_stream: MemoryPipeSendStream,
    ) -> None:
        super().__init__(receive_stream, send_stream)
        self.transport = transport
        self._pipes = (receive_stream, send_stream)

    async def expect(self, method: str) -> dict[str, Any]:
        """Return the next message of the client, which must be of this method."""
        message = await self.receive()
        if message.get("method") != method:
            raise AssertionError(f"expected {method}, got {message}")
        return message

    async def answer(self, to: Mapping[str, Any], result: Mapping[str, Any] | None = None) -> None:
        """Answer a request with a result; `resultType` is added where it is missing."""
        body = {"resultType": "complete", **(result or {})}
        await self.send({"jsonrpc": "2.0", "id": to["id"], "result": body})

    async def refuse(
        self, to: Mapping[str, Any], code: int, message: str = "refused", data: Any = None
    ) -> None:
        """Answer a request with an error."""
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        await self.send({"jsonrpc": "2.0", "id": to["id"], "error": error})

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        of: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a notification; one `of` a subscription carries its id."""
        body = dict(params or {})
        if of is not None:
            body["_meta"] = {meta.META_SUBSCRIPTION_ID: of["id"]} | body.get("_meta", {})
        await self.send({"jsonrpc": "2.0", "method": method, "params": body})

    async def acknowledge(
        self, listen: Mapping[str, Any], accepted: Mapping[str, Any] | None = None
    ) -> None:
        """Acknowledge a `subscriptions/listen`: all that it asks for, or what is given."""
        notifications = listen["params"]["notifications"] if accepted is None else accepted
        await self.notify(methods.ACKNOWLEDGED, {"notifications": notifications}, of=listen)

    async def complete(
        self, listen: Mapping[str, Any], *, end: Mapping[str, Any] | None = None
    ) -> None:
        """End a subscription gracefully, for instance with ``end={"reason": "shutdown"}``."""
        tag: dict[str, Any] = {meta.META_SUBSCRIPTION_ID: listen["id"]}
        if end is not None:
            tag[meta.META_END] = dict(end)
        await self.answer(listen, {"_meta": tag})

    async def tear_down(self, listen: Mapping[str, Any]) -> None:
        """Send the server's `notifications/cancelled` for a subscription."""
        await self.notify(methods.CANCELLED, {"requestId": listen["id"]})

    async def cut(self, *, broken: bool = False) -> None:
        """End the connection both ways.

        Args:
            broken: as if a cable had been cut; what was sent and not yet read is lost.
        """
        if broken:
            for pipe in self._pipes:
                pipe.break_pipe()
        await self.aclose()


@asynccontextmanager
async def open_scripted_peer(*, capacity: int = PIPE_CAPACITY) -> AsyncIterator[ScriptedPeer]:
    """Connect a client to a server that a test plays by hand.

    Args:
        capacity: bytes that fit into the connection in each direction. With few, a peer that
            does not `receive` soon blocks the client's writes.

    Example:
        ::

            async def play(peer: ScriptedPeer) -> None:
                listen = await peer.expect("subscriptions/listen")
                await trio.sleep(5)  # a slow server
                await peer.acknowledge(listen)
                await peer.cut()

            async def test_a_lost_subscription_raises(autojump_clock) -> None:
                async with open_scripted_peer() as peer, trio.open_nursery() as nursery:
                    nursery.start_soon(play, peer)
                    async with Client(peer.transport).listen(wanted) as changes:
                        with pytest.raises(SubscriptionLost):
                            await changes.receive()
    """
    send_to_peer, peer_receives = memory_pipe(capacity)
    peer_sends, receive_from_peer = memory_pipe(capacity)
    async with open_services() as services:
        transport = LineTransport(receive_from_peer, send_to_peer)
        transport.start(services)
        peer = ScriptedPeer(transport, peer_receives, peer_sends)
        try:
            yield peer
        finally:
            transport.close()
