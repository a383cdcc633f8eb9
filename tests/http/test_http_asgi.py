"""The ASGI adapter in a host made of two lists, in virtual time."""

import gc
import json
import math
import tracemalloc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from http_kit import LISTEN, FakeHandler, headers_for, message, note

from mcp_trio.http.asgi import asgi_app
from mcp_trio.protocol import jsonrpc
from mcp_trio.transports.abc import Exchange

Message = dict[str, Any]


class Host:
    """One request in a host.

    Attributes:
        sent: what the application has sent.
        waiting: whether the application waits in `receive`.
        gate: while it is set to an event, sending waits for it.
    """

    def __init__(self, body: Any = None, *, path: str = "/mcp", **changes: Any) -> None:
        self.put, self.get = trio.open_memory_channel[Message](100)
        self.sent: list[Message] = []
        self.waiting = 0
        self.gate: trio.Event | None = None
        self.done = trio.Event()
        self.scope: Message = {"type": "http", "method": "POST", "path": path, "root_path": ""}
        self.scope.update(changes)
        if body is not None:
            self.scope["headers"] = headers_for(body)
            data = json.dumps(body).encode()
            self.put.send_nowait({"type": "http.request", "body": data[:9], "more_body": True})
            self.put.send_nowait({"type": "http.request", "body": b"", "more_body": True})
            self.put.send_nowait({"type": "http.request", "body": data[9:]})

    async def receive(self) -> Message:
        self.waiting += 1
        try:
            return await self.get.receive()
        finally:
            self.waiting -= 1

    async def send(self, message: Any) -> None:
        if self.gate is not None:
            await self.gate.wait()
        self.sent.append(dict(message))
        if message["type"] == "http.response.body" and not message["more_body"]:
            # As Hypercorn does: the last piece is followed by a disconnect.
            self.put.send_nowait({"type": "http.disconnect"})
            await trio.lowlevel.checkpoint()

    def leave(self) -> None:
        self.put.send_nowait({"type": "http.disconnect"})

    async def run(self, app: Any) -> None:
        await app(self.scope, self.receive, self.send)
        self.done.set()

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def pieces(self) -> list[bytes]:
        return [one["body"] for one in self.sent[1:]]


@asynccontextmanager
async def listening(app: Any, handler: FakeHandler, host: Host) -> AsyncIterator[trio.Nursery]:
    """Run the application on a listen, up to its acknowledgement."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.run, app)
        await handler.opened(1)
        await trio.testing.wait_all_tasks_blocked()
        yield nursery


def listen() -> Host:
    return Host(message(LISTEN, notifications={}))


async def test_a_call_is_answered_and_its_watcher_gone() -> None:
    host = Host(message("tools/list"))
    with trio.fail_after(1):
        await host.run(asgi_app(FakeHandler()))
    assert host.status == 200
    assert json.loads(b"".join(host.pieces))["id"] == 1
    assert not host.waiting


@pytest.mark.parametrize(
    ("path", "root_path", "found"),
    [
        ("/mcp", "", True),
        ("/mcp/", "", True),
        ("/", "", False),
        ("/mcpx", "", False),
        ("/sub/mcp", "/sub", True),
        ("/sub/mcp", "", False),
    ],
)
async def test_one_path_is_served_below_the_mount_point(
    path: str, root_path: str, found: bool
) -> None:
    host = Host(message("tools/list"), path=path, root_path=root_path)
    await host.run(asgi_app(FakeHandler()))
    assert host.status == (200 if found else 404)


async def test_the_root_can_be_the_endpoint() -> None:
    host = Host(message("tools/list"), path="/")
    await host.run(asgi_app(FakeHandler(), path="/"))
    assert host.status == 200


async def test_a_refusal_needs_no_watcher() -> None:
    host = Host(message("nope/x"))
    await host.run(asgi_app(FakeHandler()))
    assert host.status == 404


async def test_options_reach_the_endpoint() -> None:
    host = Host(message("tools/list"))
    await host.run(asgi_app(FakeHandler(), allowed_hosts=["mcp.example.com"]))
    assert host.status == 421


async def test_a_client_that_leaves_while_it_sends_gets_no_answer() -> None:
    host = Host(message("tools/list"))
    host.get.receive_nowait()
    host.get.receive_nowait()
    host.get.receive_nowait()
    host.leave()
    await host.run(asgi_app(FakeHandler()))
    assert not host.sent


async def test_a_quiet_stream_gets_comments(autojump_clock: trio.testing.MockClock) -> None:
    """W13: one after 15 s without a write, and none sooner."""
    handler, host = FakeHandler(), listen()
    async with listening(asgi_app(handler), handler, host):
        await trio.sleep(14)
        assert len(host.pieces) == 1
        await trio.sleep(2)
        assert host.pieces[1:] == [b":\n\n"]
        await trio.sleep(10)
        handler.publish()
        await trio.sleep(10)
        assert len(host.pieces) == 3
        await trio.sleep(6)
        assert host.pieces[3:] == [b":\n\n"]
        host.leave()


async def test_the_interval_can_be_set(autojump_clock: trio.testing.MockClock) -> None:
    handler, host = FakeHandler(), listen()
    async with listening(asgi_app(handler, keepalive=2), handler, host):
        await trio.sleep(7)
        assert host.pieces[1:] == [b":\n\n"] * 3
        host.leave()


@pytest.mark.parametrize("keepalive", [0, -1, float("nan")])
def test_the_interval_is_positive(keepalive: float) -> None:
    with pytest.raises(ValueError, match="keepalive"):
        asgi_app(FakeHandler(), keepalive=keepalive)


async def test_comments_can_be_switched_off(autojump_clock: trio.testing.MockClock) -> None:
    handler, host = FakeHandler(), listen()
    async with listening(asgi_app(handler, keepalive=math.inf), handler, host):
        await trio.sleep(1000)
        assert len(host.pieces) == 1
        host.leave()


async def test_a_slow_call_gets_no_comments(autojump_clock: trio.testing.MockClock) -> None:
    host = Host(message("tools/call", name="slow", arguments={"seconds": 100}))
    await host.run(asgi_app(FakeHandler()))
    assert [one["type"] for one in host.sent] == ["http.response.start", "http.response.body"]


async def test_a_stream_that_is_blocked_gets_no_comments(
    autojump_clock: trio.testing.MockClock,
) -> None:
    handler, host = FakeHandler(), listen()
    async with listening(asgi_app(handler), handler, host):
        host.gate = trio.Event()
        handler.publish()
        await trio.sleep(100)
        host.gate.set()
        await trio.sleep(1)
        assert len(host.pieces) == 2
        host.leave()


@pytest.mark.parametrize("name", [LISTEN, "slow"])
async def test_a_disconnect_cancels_the_request(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    """W03, W04: without a word from anybody else."""
    handler = FakeHandler()
    slow = message("tools/call", name="slow", arguments={"seconds": 1000})
    host = listen() if name == LISTEN else Host(slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.run, asgi_app(handler))
        await trio.sleep(1)
        host.put.send_nowait({"type": "http.request", "body": b"late"})
        host.leave()
    assert handler.cancelled == 1
    assert trio.current_time() < 5
    assert all(one.get("more_body", True) for one in host.sent)


async def test_the_watcher_has_stopped_before_the_last_piece() -> None:
    """The last piece itself makes the host report a disconnect, which must cancel nobody."""
    handler, host = FakeHandler(), listen()

    async with listening(asgi_app(handler), handler, host):
        assert host.waiting == 1
        handler.streams[0].close()
    assert host.done.is_set()
    assert not handler.cancelled
    assert json.loads(host.pieces[-1][6:])["result"]
    assert not host.waiting


async def test_a_disconnect_in_the_moment_of_the_end_changes_nothing() -> None:
    handler, host = FakeHandler(), listen()
    async with listening(asgi_app(handler), handler, host):
        handler.streams[0].close()
        host.leave()
    assert host.done.is_set()


async def test_a_host_that_shuts_down_lets_a_subscription_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """W32, S-81: cancelled without a disconnect, it still sends its result."""
    handler, host = FakeHandler(), listen()
    async with listening(asgi_app(handler), handler, host) as nursery:
        nursery.cancel_scope.cancel()
    assert json.loads(host.pieces[-1][6:])["result"]
    assert not host.sent[-1]["more_body"]
    assert not handler.cancelled
    assert trio.current_time() < 0.5


async def test_a_subscription_that_cannot_end_in_time_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """W31: the farewell has a deadline."""
    handler, host = FakeHandler(), listen()
    async with listening(asgi_app(handler), handler, host) as nursery:
        host.gate = trio.Event()
        handler.publish()
        await trio.testing.wait_all_tasks_blocked()
        begun = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - begun == pytest.approx(1)
    assert handler.cancelled == 1


async def test_a_host_that_shuts_down_cancels_the_rest_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    handler = FakeHandler()
    handler.graceful = False
    slow = Host(message("tools/call", name="slow", arguments={"seconds": 1000}))
    async with listening(asgi_app(handler), handler, listen()) as nursery:
        nursery.start_soon(slow.run, asgi_app(handler))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert handler.cancelled == 2
    assert trio.current_time() < 0.5


async def test_a_host_that_fails_in_receive_ends_the_request() -> None:
    handler, host = FakeHandler(), listen()

    class HostError(Exception):
        pass

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def fail() -> Message:
            if host.sent:
                raise HostError
            got: Message = await receive()
            return got

        await asgi_app(handler)(scope, fail, send)

    with pytest.RaisesGroup(HostError):
        await host.run(app)
    assert handler.cancelled <= 1


async def test_progress_from_many_tasks_keeps_its_frames_whole() -> None:
    class Busy(FakeHandler):
        async def handle(self, request: jsonrpc.Request, exchange: Exchange) -> jsonrpc.Reply:
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(exchange.send, note("n", number=number))
            return jsonrpc.result_reply(request.id, {})

    host = Host(message("tools/list"))
    await host.run(asgi_app(Busy()))
    assert len(host.pieces) == 11
    assert [one["type"] for one in host.sent].count("http.response.start") == 1


async def test_lifespan_is_answered() -> None:
    host = Host(type="lifespan")
    host.put.send_nowait({"type": "lifespan.startup"})
    host.put.send_nowait({"type": "lifespan.shutdown"})
    await host.run(asgi_app(FakeHandler()))
    assert [one["type"] for one in host.sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


async def test_a_websocket_is_refused() -> None:
    host = Host(type="websocket")
    host.put.send_nowait({"type": "websocket.connect"})
    await host.run(asgi_app(FakeHandler()))
    assert [one["type"] for one in host.sent] == ["websocket.close"]


async def test_other_scopes_are_unknown() -> None:
    with pytest.raises(NotImplementedError):
        await Host(type="other").run(asgi_app(FakeHandler()))


async def test_a_stream_keeps_nothing_of_its_request() -> None:
    """S-23: neither the body, nor the params, nor the headers."""

    class Tracked(dict[str, Any]):
        pass

    kept: list[weakref.ref[Tracked]] = []

    class Tracking(FakeHandler):
        async def handle(self, request: jsonrpc.Request, exchange: Exchange) -> jsonrpc.Reply:
            request.params = Tracked(request.params)
            kept.append(weakref.ref(request.params))
            return await super().handle(request, exchange)

    handler = Tracking()
    host = Host(message(LISTEN, notifications={}, padding="p" * 100_000))
    host.scope["headers"].append((b"x-padding", b"h" * 9_000))
    tracemalloc.start()
    try:
        async with listening(asgi_app(handler), handler, host):
            gc.collect()
            large = [trace for trace in tracemalloc.take_snapshot().traces if trace.size > 8_000]
            host.leave()
    finally:
        tracemalloc.stop()
    assert not large
    assert kept[0]() is None
    assert [name for name, _ in host.scope["headers"]] == [b"host"]
