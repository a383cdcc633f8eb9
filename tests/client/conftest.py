"""A server that does what a test says, over lines and over HTTP, with one set of words."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol

import attrs
import pytest
import trio

from mcp_trio.client.client import Client
from mcp_trio.http.client import HttpTransport
from mcp_trio.testing import ScriptedPeer, open_scripted_peer

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
Message = Mapping[str, Any]


class Peer(Protocol):
    """What a script can do."""

    async def expect(self, method: str) -> dict[str, Any]:
        """The client's next request."""

    async def send(self, to: Message, *messages: Message) -> None:
        """Send messages to where the answer to a request goes."""

    async def cut(self) -> None:
        """End the connection, or all of them."""

    async def cancelled(self, request: Message) -> None:
        """Wait until the client has cancelled a request, as its transport does it."""


def ack(listen: Message, accepted: Message | None = None) -> Message:
    notifications = listen["params"]["notifications"] if accepted is None else accepted
    return tagged(
        listen, "notifications/subscriptions/acknowledged", {"notifications": notifications}
    )


def tagged(listen: Message, method: str, params: Message | None = None) -> Message:
    tag = {"_meta": {SUBSCRIPTION_ID: listen["id"]}}
    body = {**(params or {})}
    body["_meta"] = {**tag["_meta"], **body.get("_meta", {})}
    return {"jsonrpc": "2.0", "method": method, "params": body}


def result(request: Message, body: Message | None = None) -> Message:
    return {
        "jsonrpc": "2.0",
        "id": request["id"],
        "result": {"resultType": "complete"} if body is None else body,
    }


def done(listen: Message, end: object = None) -> Message:
    tag: dict[str, Any] = {SUBSCRIPTION_ID: listen["id"]}
    if end is not None:
        tag["org.mcp-trio/end"] = end
    return result(listen, {"resultType": "complete", "_meta": tag})


def error(request: Message, code: int, message: str = "refused") -> Message:
    return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}}


def withdrawn(listen: Message, **params: Any) -> Message:
    return {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": listen["id"], **params},
    }


class LinePeer:
    """Writes lines; its transport is `testing`'s own."""

    def __init__(self, peer: ScriptedPeer) -> None:
        self._peer = peer

    async def expect(self, method: str) -> dict[str, Any]:
        return await self._peer.expect(method)

    async def send(self, to: Message, *messages: Message) -> None:
        await self._peer.send(*messages)

    async def cut(self) -> None:
        await self._peer.cut()

    async def cancelled(self, request: Message) -> None:
        message = await self._peer.expect("notifications/cancelled")
        assert message["params"]["requestId"] == request["id"]


@attrs.define(eq=False)
class _Post:
    stream: trio.SocketStream
    gone: trio.Event = attrs.field(factory=trio.Event)


class HttpPeer:
    """Answers every POST with an event stream."""

    def __init__(self) -> None:
        self._put, self._take = trio.open_memory_channel[dict[str, Any]](100)
        self._posts: dict[object, _Post] = {}

    async def serve(self, stream: trio.SocketStream) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some()
        head, _, body = data.partition(b"\r\n\r\n")
        [length] = [
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        ]
        while len(body) < length:
            body += await stream.receive_some()
        message = json.loads(body)
        post = self._posts[message["id"]] = _Post(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: hi\n\n")
        await self._put.send(message)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            assert not await stream.receive_some(), "a second request on a stream's connection"
        post.gone.set()

    async def expect(self, method: str) -> dict[str, Any]:
        message = await self._take.receive()
        assert message["method"] == method
        return message

    async def send(self, to: Message, *messages: Message) -> None:
        events = [b"data: " + json.dumps(message).encode() + b"\n\n" for message in messages]
        await self._posts[to["id"]].stream.send_all(b"".join(events))

    async def cut(self) -> None:
        for post in self._posts.values():
            await post.stream.aclose()

    async def cancelled(self, request: Message) -> None:
        await self._posts[request["id"]].gone.wait()


Script = Callable[[Peer], Awaitable[None]]
Play = Callable[[Script], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def play_lines(script: Script) -> AsyncIterator[Client]:
    with trio.fail_after(10):
        async with open_scripted_peer() as peer, trio.open_nursery() as nursery:
            nursery.start_soon(script, LinePeer(peer))
            yield Client(peer.transport)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def play_http(script: Script) -> AsyncIterator[Client]:
    peer = HttpPeer()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            listeners: Any = await nursery.start(
                partial(trio.serve_tcp, peer.serve, 0, host="127.0.0.1")
            )
            port = listeners[0].socket.getsockname()[1]
            nursery.start_soon(script, peer)
            transport = HttpTransport(f"http://127.0.0.1:{port}/mcp")
            yield Client(transport)
            assert transport.statistics().open == 0
            transport.close()
            nursery.cancel_scope.cancel()


@pytest.fixture(params=[play_lines, play_http], ids=["lines", "http"])
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a script as the server of a client, over each transport in turn."""
    chosen: Play = request.param
    return chosen


class Words:
    """The messages a script can send; tests cannot import from here."""

    ack = staticmethod(ack)
    tagged = staticmethod(tagged)
    result = staticmethod(result)
    done = staticmethod(done)
    error = staticmethod(error)
    withdrawn = staticmethod(withdrawn)


@pytest.fixture
def say() -> Words:
    return Words()
