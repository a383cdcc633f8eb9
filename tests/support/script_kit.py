"""One way to play a server for a client, whatever carries the messages.

A test gives a script: what the server reads and says, in order. `play_…` runs it as the server
of a client, over memory, lines, a process on stdio, or HTTP.
"""

import abc
import contextlib
import json
import os
import signal
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, Unpack

import attrs
import trio
from wire_kit import ACKNOWLEDGED, PATIENCE, SUBSCRIPTION_ID, Frame, cancelled

from mcp_trio import Client, open_http_client, open_stdio_client
from mcp_trio.client import ClientOptions
from mcp_trio.http.client import HttpTransport
from mcp_trio.protocol import jsonrpc
from mcp_trio.testing import ScriptedPeer, Wire, open_scripted_peer
from mcp_trio.transports.abc import Exchange, Transport
from mcp_trio.transports.memory import open_memory_transport

PUPPET = [sys.executable, "-I", "-S", str(Path(__file__).with_name("puppet.py"))]


def ack(request: Frame, granted: Any = None) -> Frame:
    """The acknowledgement of a subscription: in full, or as it is given."""
    wanted = request["params"]["notifications"] if granted is None else granted
    return tagged(request, ACKNOWLEDGED, {"notifications": wanted})


def tagged(request: Frame, method: str, params: Frame | None = None) -> Frame:
    """A notification on a subscription, which a `_meta` of its own is added to."""
    body = dict(params or {})
    body["_meta"] = {SUBSCRIPTION_ID: request["id"], **body.get("_meta", {})}
    return {"jsonrpc": "2.0", "method": method, "params": body}


def answer(request: Frame, body: Any) -> Frame:
    """A result, exactly as it is given."""
    return {"jsonrpc": "2.0", "id": request["id"], "result": body}


def result(request: Frame, **members: Any) -> Frame:
    """A result; `resultType` is added, unless it is given."""
    return answer(request, {"resultType": "complete", **members})


def done(request: Frame, end: object = None) -> Frame:
    """The result that ends a subscription, with what is said of the end."""
    tag: Frame = {SUBSCRIPTION_ID: request["id"]}
    if end is not None:
        tag["org.mcp-trio/end"] = end
    return result(request, _meta=tag)


def withdrawn(request: Frame, **more: Any) -> Frame:
    """The notification with which a server tears a subscription down."""
    frame = cancelled(request["id"])
    frame["params"] |= more
    return frame


def error(request: Frame, code: int, message: str = "refused") -> Frame:
    """An error response."""
    return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}}


class Stage(abc.ABC):
    """What a script can do."""

    transport: ClassVar[str]

    @abc.abstractmethod
    async def expect(self, method: str) -> Frame:
        """The client's next request, which must be of this method."""

    @abc.abstractmethod
    async def send(self, to: Frame, *messages: Frame) -> None:
        """Send messages to where the answer to a request goes."""

    @abc.abstractmethod
    async def until_cancelled(self, request: Frame) -> None:
        """Wait until the client has cancelled a request, in the way of its transport."""


class CutStage(Stage):
    """A stage whose curtain can fall: what carries the messages can end or break."""

    @abc.abstractmethod
    async def cut(self, request: Frame) -> None:
        """End what carries the answer to a request."""

    @abc.abstractmethod
    async def crash(self, request: Frame) -> None:
        """Break it, as if the server had been killed."""


Script = Callable[[Any], Awaitable[None]]


class Play(Protocol):
    """Runs a script as the server of a client."""

    def __call__(
        self, script: Script, **options: Unpack[ClientOptions]
    ) -> AbstractAsyncContextManager[Client]:
        """The options are the client's."""


class Nowhere(Transport):
    """For what has to be refused before anything is sent."""

    kind = "memory"

    def open_exchange(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("nothing is to be sent")

    def __repr__(self) -> str:
        return "nowhere"


# Memory


@attrs.define(eq=False)
class _Part:
    frames: trio.MemorySendChannel[Frame]
    cancelled: trio.Event = attrs.field(factory=trio.Event)


class MemoryStage(Stage):
    """A handler; what it sends waits until the client takes it."""

    transport = "memory"
    supported_versions: tuple[str, ...] = ("2026-07-28",)

    def __init__(self) -> None:
        self._put, self._take = trio.open_memory_channel[Frame](100)
        self._parts: dict[Any, _Part] = {}

    def mirrored(self, request: jsonrpc.Request) -> dict[str, object]:
        return {}

    def knows(self, method: str) -> bool:
        """Whatever a script expects."""
        return True

    def notify(self, notification: jsonrpc.Notification) -> None:
        """Nothing is done about it."""

    async def handle(self, request: jsonrpc.Request, exchange: Exchange) -> jsonrpc.Reply:
        """Read lines of the script until one of them is the response."""
        send, receive = trio.open_memory_channel[Frame](0)
        part = self._parts[request.id] = _Part(send)
        frame = {"id": request.id, "method": request.method, "params": request.params}
        self._put.send_nowait(frame)
        try:
            with receive:
                async for message in receive:
                    data = json.dumps(message).encode()
                    if "id" in message and "method" not in message:
                        return jsonrpc.Reply(data)
                    await exchange.send(data)
        except trio.Cancelled:
            part.cancelled.set()
            raise
        raise AssertionError("unreachable: nobody closes it")

    async def expect(self, method: str) -> Frame:
        frame = await self._take.receive()
        assert frame["method"] == method
        return frame

    async def send(self, to: Frame, *messages: Frame) -> None:
        for message in messages:
            await self._parts[to["id"]].frames.send(message)

    async def until_cancelled(self, request: Frame) -> None:
        await self._parts[request["id"]].cancelled.wait()


@asynccontextmanager
async def play_memory(script: Script, **options: Unpack[ClientOptions]) -> AsyncIterator[Client]:
    """The script is a handler in this process."""
    stage = MemoryStage()
    with trio.fail_after(PATIENCE):
        async with (
            open_memory_transport(stage) as transport,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(script, stage)
            yield Client(transport, **options)
            nursery.cancel_scope.cancel()


# Lines


class LineStage(CutStage):
    """A channel of lines."""

    transport = "lines"

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def expect(self, method: str) -> Frame:
        frame = await self.wire.receive()
        assert frame["method"] == method, frame
        return frame

    async def send(self, to: Frame, *messages: Frame) -> None:
        await self.wire.send(*messages)

    async def noise(self, data: bytes) -> None:
        """Write what is no message."""
        await self.wire.send(data)

    async def until_cancelled(self, request: Frame) -> None:
        assert await self.wire.receive() == cancelled(request["id"])

    async def cut(self, request: Frame) -> None:
        await self.wire.aclose()

    async def crash(self, request: Frame) -> None:
        assert isinstance(self.wire, ScriptedPeer)
        await self.wire.cut(broken=True)


@asynccontextmanager
async def play_lines(script: Script, **options: Unpack[ClientOptions]) -> AsyncIterator[Client]:
    """The script is at the other end of a pipe in memory."""
    with trio.fail_after(PATIENCE):
        async with open_scripted_peer() as peer, trio.open_nursery() as nursery:
            nursery.start_soon(script, LineStage(peer))
            yield Client(peer.transport, **options)
            nursery.cancel_scope.cancel()


class StdioStage(LineStage):
    """A process, which does what it is told through a socket."""

    transport = "stdio"

    def __init__(self, wire: Wire, pid: int) -> None:
        super().__init__(wire)
        self.pid = pid

    async def crash(self, request: Frame) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def play_stdio(script: Script, **options: Unpack[ClientOptions]) -> AsyncIterator[Client]:
    """The script is a process of the client's own."""
    with tempfile.TemporaryDirectory() as folder, trio.fail_after(PATIENCE):
        path = f"{folder}/socket"
        with trio.socket.socket(trio.socket.AF_UNIX) as listener:
            await listener.bind(path)
            listener.listen(1)
            async with open_stdio_client([*PUPPET, path], **options) as client:
                connection, _ = await listener.accept()
                stream = trio.SocketStream(connection)
                pid = b""
                while not pid.endswith(b"\n"):
                    pid += await stream.receive_some(1)
                async with stream, trio.open_nursery() as nursery:
                    nursery.start_soon(script, StdioStage(Wire(stream, stream), int(pid)))
                    yield client
                    nursery.cancel_scope.cancel()


# HTTP


@attrs.define(eq=False)
class _Post:
    stream: trio.SocketStream
    gone: trio.Event = attrs.field(factory=trio.Event)


class HttpStage(CutStage):
    """Answers every POST with a stream."""

    transport = "http"

    def __init__(self) -> None:
        self._put, self._take = trio.open_memory_channel[Frame](100)
        self._posts: dict[Any, _Post] = {}

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection."""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            data = await stream.receive_some()
            if not data:
                return  # a connection that was not needed after all
            while b"\r\n\r\n" not in data:
                data += await stream.receive_some()
            head, _, body = data.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while len(body) < length:
                body += await stream.receive_some()
            message = json.loads(body)
            post = self._posts[message["id"]] = _Post(stream)
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: hello\r\n\r\n"
            )
            self._put.send_nowait(message)
            try:
                assert not await stream.receive_some(), "a request behind that of a stream"
            finally:
                post.gone.set()

    async def expect(self, method: str) -> Frame:
        frame = await self._take.receive()
        assert frame["method"] == method
        return frame

    async def send(self, to: Frame, *messages: Frame) -> None:
        events = [b"data: " + json.dumps(message).encode() + b"\r\n\r\n" for message in messages]
        await self._posts[to["id"]].stream.send_all(b"".join(events))

    async def until_cancelled(self, request: Frame) -> None:
        await self._posts[request["id"]].gone.wait()

    async def cut(self, request: Frame) -> None:
        await self._posts[request["id"]].stream.aclose()

    async def crash(self, request: Frame) -> None:
        stream = self._posts[request["id"]].stream
        linger = struct.pack("ii", 1, 0)
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, linger)
        await stream.aclose()


@asynccontextmanager
async def play_http(script: Script, **options: Unpack[ClientOptions]) -> AsyncIterator[Client]:
    """The script is a server behind an address."""
    stage = HttpStage()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_tcp, stage.serve, 0, host="127.0.0.1")
            [listener] = await nursery.start(serve)
            url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
            nursery.start_soon(script, stage)
            async with open_http_client(url, **options) as client:
                yield client
                assert isinstance(client.transport, HttpTransport)
                assert client.transport.statistics().open == 0
            nursery.cancel_scope.cancel()


PLAYS: dict[str, Play] = {
    "memory": play_memory,
    "lines": play_lines,
    "stdio": play_stdio,
    "http": play_http,
}
