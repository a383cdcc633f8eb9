"""Serving over real sockets: requests, clients that leave or stall, and stopping.

On Hypercorn and natively; what only Hypercorn has is at the end.
"""

import contextlib
import gc
import json
import os
import socket
import struct
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from http_kit import (
    LISTEN,
    FakeHandler,
    Peer,
    Running,
    connections_alive,
    message,
    note,
    post,
    rare_collections,
    running,
    until,
)
from hypercorn.config import Config

from mcp_trio.http.asgi import asgi_app
from mcp_trio.http.hypercorn import serve_hypercorn
from mcp_trio.transports.abc import EndGracefully

pytestmark = pytest.mark.usefixtures("host")
on_hypercorn = pytest.mark.parametrize("host", ["hypercorn"], indirect=True)

RESET = struct.pack("ii", 1, 0)


def slow(seconds: float = 60) -> bytes:
    return post("tools/call", name="slow", arguments={"seconds": seconds})


def big(size: int) -> bytes:
    return post("tools/call", name="echo", arguments={"bytes": size})


async def gone(server: Running) -> None:
    """Wait until the one request that is being served has been cancelled."""
    await until(lambda: server.handler.cancelled, 1)


# Requests


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with running() as server, server.connect() as peer:
        for request_id in range(3):
            response = await peer.request(post("tools/list", request_id))
            assert (response.status, response.json()["id"]) == (200, request_id)
        await peer.listen(7)
        server.handler.streams[0].close()
        assert (await peer.event())["id"] == 7
        assert await peer.read_chunk() == b""
        assert (await peer.request(post("tools/list", 8))).json()["id"] == 8


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running() as server, server.connect() as peer:
        await peer.stream.send_all(b"".join(post("tools/list", number) for number in range(20)))
        assert [(await peer.response()).json()["id"] for _ in range(20)] == list(range(20))


async def test_requests_behind_a_stream_are_answered_after_it() -> None:
    async with running() as server, server.connect() as peer:
        await peer.listen(1)
        await peer.stream.send_all(post("tools/list", 2))
        await trio.sleep(0.05)
        await peer.stream.send_all(post("tools/list", 3))
        server.handler.streams[0].close()
        assert (await peer.event())["id"] == 1
        assert await peer.read_chunk() == b""
        assert [(await peer.response()).json()["id"] for _ in range(2)] == [2, 3]


async def test_a_body_may_be_chunked_and_ask_to_continue() -> None:
    """W85."""
    body = json.dumps(message("tools/list")).encode()
    head = post("tools/list").partition(b"content-length")[0]
    async with running() as server, server.connect() as peer:
        await peer.stream.send_all(head + b"transfer-encoding: chunked\r\n\r\n")
        for byte in body[:20]:
            await peer.stream.send_all(b"1\r\n%c\r\n" % byte)
        await peer.stream.send_all(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body) - 20, body[20:]))
        assert (await peer.response()).status == 200
        expect = b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(body)
        await peer.stream.send_all(head + expect)
        assert (await peer.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        assert (await peer.request(body)).status == 200


async def test_a_body_over_the_limit_is_refused_and_the_refusal_arrives() -> None:
    """W85: although the client is still sending."""
    async with running(max_body=200_000) as server:
        for data in (post("tools/list", padding=3_000_000), _chunked(3_000_000)):
            async with server.connect() as peer, trio.open_nursery() as nursery:

                async def send(peer: Peer = peer, data: bytes = data) -> None:
                    with contextlib.suppress(trio.BrokenResourceError):
                        await peer.stream.send_all(data)

                nursery.start_soon(send)
                assert (await peer.response()).status == 413
                await peer.eof()


def _chunked(size: int) -> bytes:
    head = post("tools/list").partition(b"content-length")[0]
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    return head + b"transfer-encoding: chunked\r\n\r\n" + chunk * (size // 0x4000)


async def test_a_slow_body_is_cut() -> None:
    """W85."""
    async with running(body_timeout=0.2) as server, server.connect() as peer:
        await peer.stream.send_all(post("tools/list")[:-5])
        assert (await peer.response()).status == 408
        await peer.eof()


async def test_a_slow_head_and_a_silent_connection_are_cut() -> None:
    config = Config()
    config.keep_alive_timeout = 0.2
    async with running(config=config) as server:
        async with server.connect() as peer:
            assert await peer.eof() == b""
        async with server.connect() as peer:
            await peer.stream.send_all(b"POST /mcp HT")
            assert await peer.eof() == b""
        async with server.connect() as peer:
            await peer.listen()
            await trio.sleep(0.4)
            server.handler.publish()
            assert await peer.event()


async def test_a_head_over_the_limit_is_refused() -> None:
    async with running() as server, server.connect() as peer:
        await peer.stream.send_all(b"GET / HTTP/1.1\r\nx: " + b"x" * 70_000)
        assert (await peer.response()).status == 431


async def test_head_gets_no_body() -> None:
    async with running() as server, server.connect() as peer:
        await peer.stream.send_all(b"HEAD /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n")
        response = await peer.head()
        assert (response.status, response.headers["allow"]) == (405, "POST")
        assert (await peer.request(post("tools/list"))).status == 200


async def test_http_1_0_gets_its_answer_and_a_closed_connection() -> None:
    async with running() as server, server.connect() as peer:
        await peer.stream.send_all(post("tools/list").replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (await peer.response()).status == 200
        assert await peer.eof() == b""


async def test_a_connection_that_the_client_wants_closed_is_closed_at_once() -> None:
    async with running() as server, server.connect() as peer:
        data = post("tools/list").replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
        assert (await peer.request(data)).status == 200
        with trio.fail_after(0.5):
            assert await peer.eof() == b""


# Leaving


def fin(sock: Any) -> None:
    sock.close()


def rst(sock: Any) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


def half(sock: Any) -> None:
    sock.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("how", [fin, rst, half])
@pytest.mark.parametrize(
    "behind", [b"", b"\r\n", b"x" * 70_000, post("tools/list"), b"GET / HTTP/1.1\r\n"]
)
@pytest.mark.parametrize("opening", ["listen", "slow"])
async def test_a_client_that_leaves_is_noticed(
    how: Callable[[Any], None], behind: bytes, opening: str
) -> None:
    """W03: a quiet stream, however it ends and whatever has followed the request."""
    async with running() as server, server.connect() as peer:
        if opening == "listen":
            await peer.listen()
        else:
            await peer.stream.send_all(slow())
        if behind:
            await peer.stream.send_all(behind)
        await trio.sleep(0.05)
        how(peer.stream.socket)
        await gone(server)


async def test_who_sends_too_much_behind_a_stream_is_cut() -> None:
    async with running() as server, server.connect() as peer:
        await peer.listen()
        with contextlib.suppress(trio.BrokenResourceError):
            await peer.stream.send_all(b"x" * 5_000_000)
        await gone(server)


async def test_an_upgrade_is_none() -> None:
    """The request is served, and its stream still ends with its client."""
    upgrade = b"\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    async with running() as server:
        async with server.connect() as peer:
            data = post("tools/list").replace(b"\r\n\r\n", upgrade, 1)
            assert (await peer.request(data)).status == 200
            assert (await peer.request(post("tools/list"))).status == 200
        async with server.connect() as peer:
            await peer.stream.send_all(slow().replace(b"\r\n\r\n", upgrade, 1))
            await trio.sleep(0.05)
            peer.stream.socket.close()
            await gone(server)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost/mcp", 200),
        (b"HTTP://127.0.0.1:8000/mcp?a=http://evil/", 200),
        (b"http://localhost", 404),
        (b"http://localhost?a=/mcp", 404),
        (b"http://evil/mcp", 421),
        (b"http://localhost@evil/mcp", 421),
        (b"http:///mcp", 404),
    ],
)
async def test_a_target_may_be_absolute_and_then_outweighs_the_host(
    target: bytes, status: int
) -> None:
    """RFC 9112, 3.2.2; W53: the host that is checked is the one that is asked for."""
    async with running() as server, server.connect() as peer:
        data = post("tools/list").replace(b" /mcp ", b" %s " % target, 1)
        assert (await peer.request(data)).status == status
        data = data.replace(b"HTTP/1.1", b"HTTP/1.0", 1).replace(b"host: localhost\r\n", b"", 1)
        assert (await peer.request(data)).status == status


async def test_a_write_that_fails_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the kernel say so before a read does."""
    async with running() as server, server.connect() as peer:
        await peer.listen()

        def fail(fd: int, data: bytes) -> int:
            raise BrokenPipeError

        monkeypatch.setattr(os, "write", fail)
        server.handler.publish()
        await gone(server)
        monkeypatch.undo()


# Stalling


async def stall(server: Running, peer: Peer) -> None:
    """Fill what the kernel holds for a client that does not read."""
    frame = note("notifications/x", padding="x" * 60_000)
    for _ in range(100):
        server.handler.publish(frame)
        await trio.sleep(0.001)
        if len(server.handler.streams) == 0:
            return


async def test_a_reader_that_stops_is_cut_after_the_deadline() -> None:
    """W20, W31: and nobody else notices."""
    async with running(send_deadline=0.3) as server, server.connect(4096) as stalled:
        await stalled.listen()
        await stall(server, stalled)
        async with server.connect() as other:
            await other.listen()
            await gone(server)
            await server.handler.opened(1)
            server.handler.publish()
            assert await other.event()


async def test_a_stalled_reader_that_leaves_is_noticed_at_once() -> None:
    """A write that waits is given up when its client goes."""
    async with running(send_deadline=60) as server, server.connect(4096) as stalled:
        await stalled.listen()
        await stall(server, stalled)
        stalled.stream.socket.shutdown(socket.SHUT_WR)
        await gone(server)


async def test_a_reader_that_stops_for_a_while_gets_everything() -> None:
    """W20: no frame is lost or cut in two."""
    async with running() as server, server.connect(4096) as peer:
        await peer.listen()
        for number in range(100):
            server.handler.publish(note("n", number=number, padding="x" * 20_000))
        await trio.sleep(0.2)
        for number in range(100):
            event = await peer.event()
            assert event["params"]["number"] == number
            assert len(event["params"]["padding"]) == 20_000


async def test_a_slow_reader_of_a_large_answer_is_not_cut() -> None:
    """The deadline is for each 64 KiB, not for the whole."""
    async with running(send_deadline=0.5) as server, server.connect(4096) as peer:
        await peer.stream.send_all(big(3_000_000))
        response = await peer.head()
        left = int(response.headers["content-length"])
        while left:
            await trio.sleep(0.02)
            await peer.read_exactly(min(left, 60_000))
            left -= min(left, 60_000)
    assert not server.handler.cancelled


async def test_a_handler_that_sends_without_end_starves_nobody() -> None:
    async with running() as server, server.connect() as peer, server.connect() as other:
        endless = post("tools/call", name="progress", arguments={"count": 10**9})
        await peer.stream.send_all(endless)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.eof)
            with trio.fail_after(2):
                assert (await other.request(post("tools/list"))).status == 200
            nursery.cancel_scope.cancel()


async def test_a_handler_that_sends_without_end_ends_with_its_client() -> None:
    """Although no write to a client that has gone fails."""
    async with running() as server:
        async with server.connect() as peer:
            await peer.stream.send_all(
                post("tools/call", name="progress", arguments={"count": 10**9})
            )
            await peer.head()
        await gone(server)


# Stopping


async def test_stopping_ends_each_stream_with_its_result() -> None:
    """W32, S-81, S-86."""
    async with running() as server, server.connect() as one, server.connect() as two:
        await one.listen(1)
        await two.listen("two")
        begun = trio.current_time()
        server.stop.set()
        assert (await one.event())["id"] == 1
        assert (await two.event())["id"] == "two"
        assert await one.read_chunk() == b""
        assert await one.eof() == b""
        assert trio.current_time() - begun < 1


async def test_cancelling_ends_each_stream_with_its_result() -> None:
    """W32: the application is cancelled, and its clients still hear the end."""
    async with running() as server, server.connect() as peer:
        await peer.listen()
        server.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(2):
            assert (await peer.event())["id"] == 1
            assert await peer.read_chunk() == b""
            assert await peer.eof() == b""


async def test_stopping_lets_requests_finish_and_closes_idle_connections() -> None:
    async with running() as server, server.connect() as busy, server.connect() as idle:
        await idle.request(post("tools/list"))
        await busy.stream.send_all(slow(0.3))
        await trio.sleep(0.05)
        server.stop.set()
        assert await idle.eof() == b""
        with pytest.raises(OSError, match="refused"):
            async with server.connect():
                pass
        assert (await busy.response()).status == 200
        assert await busy.eof() == b""


async def test_a_drain_refuses_new_subscriptions() -> None:
    async with running() as server, server.connect() as peer:
        server.handler.draining = True
        response = await peer.request(post(LISTEN, notifications={}))
        assert (response.status, response.headers["retry-after"]) == (503, "3")


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_stopping_is_bounded_whatever_clients_do(how: str) -> None:
    """W31: a slow call, and a reader that has stopped."""
    async with (
        running(drain_grace=0.3) as server,
        server.connect(4096) as stalled,
        server.connect() as busy,
    ):
        await stalled.listen()
        await stall(server, stalled)
        await busy.stream.send_all(slow())
        await trio.sleep(0.05)
        begun = trio.current_time()
        if how == "stop":
            server.stop.set()
        else:
            server.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await until(lambda: server.handler.cancelled == 2, 3)
        assert trio.current_time() - begun < 1.5


async def test_a_stream_that_cannot_be_ended_does_not_stop_the_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(reason: str, *, retry_after: float | None = None) -> None:
        raise RuntimeError("no")

    async with running(drain_grace=0.3) as server, server.connect() as peer:
        await peer.listen()
        server.handler.exchanges[0].end_gracefully = broken
        server.stop.set()
        await until(lambda: server.handler.cancelled == 1, 3)
    assert "could not be ended" in caplog.text


async def test_the_ends_of_streams_are_staggered() -> None:
    """P-12: evenly, and so that there is time left; for the rest clients are told to wait."""
    async with (
        running(drain_grace=0.8, drain_stagger=6.0) as server,
        server.connect() as one,
        server.connect() as two,
        server.connect() as three,
    ):
        for peer in (one, two, three):
            await peer.listen()
        begun, told, at = trio.current_time(), [], []

        def noting(end: EndGracefully) -> EndGracefully:
            def note(reason: str, *, retry_after: float | None = None) -> None:
                told.append(retry_after)
                at.append(trio.current_time() - begun)
                end(reason, retry_after=retry_after)

            return note

        for exchange in server.handler.exchanges:
            assert exchange.end_gracefully is not None
            exchange.end_gracefully = noting(exchange.end_gracefully)
        server.stop.set()
        for peer in (one, two, three):
            assert (await peer.event())["id"] == 1
        assert at == pytest.approx([0.0, 0.2, 0.4], abs=0.1)
        assert told == [None, pytest.approx(1.8, abs=0.01), pytest.approx(3.6, abs=0.01)]


async def test_a_stop_does_not_wait_for_turns_that_nobody_takes() -> None:
    async with running(drain_grace=20.0, drain_stagger=10.0) as server:
        async with server.connect() as one, server.connect() as two:
            await one.listen()
            await two.listen()
            server.stop.set()
            assert (await one.event())["id"] == 1
        begun = trio.current_time()
    assert trio.current_time() - begun < 2


async def test_a_subscription_that_is_opened_while_the_server_stops_ends_at_once() -> None:
    """S-81: its request was on the way; it is acknowledged and gets its result."""
    data = post(LISTEN, notifications={})
    async with running() as server, server.connect() as peer:
        await peer.stream.send_all(data[:-2])
        await trio.sleep(0.05)
        server.stop.set()
        await trio.sleep(0.05)
        await peer.stream.send_all(data[-2:])
        assert (await peer.head()).status == 200
        await peer.event()
        assert (await peer.event())["id"] == 1
        assert await peer.read_chunk() == b""


async def test_one_handler_on_two_hosts_one_of_which_stops() -> None:
    """Only its streams end. The other goes on, and so can the first, again."""
    handler = FakeHandler()
    async with running(handler) as stays, stays.connect() as staying:
        await staying.listen("stays")
        for _ in range(2):
            async with running(handler) as stops, stops.connect() as stopping:
                await stopping.listen("stops")
                stops.stop.set()
                assert (await stopping.event())["id"] == "stops"
                await until(lambda: len(handler.streams) == 1)
        handler.publish()
        assert (await staying.event())["method"] == "notifications/tools/list_changed"


# What it is given


@on_hypercorn
async def test_it_reports_what_it_has_bound() -> None:
    config = Config()
    async with running(config=config) as server:
        assert server.urls == [f"http://127.0.0.1:{server.port}"]
        assert config.backlog == Config.backlog, "the caller's configuration is left alone"


@on_hypercorn
async def test_an_address_in_use_is_one_exception() -> None:
    """W62."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = Config()
        config.bind = [f"127.0.0.1:{taken.getsockname()[1]}"]
        with pytest.raises(OSError, match="in use"):
            await serve_hypercorn(FakeHandler(), config)


@on_hypercorn
async def test_a_failing_trigger_is_one_exception() -> None:
    """W62."""

    async def fail() -> None:
        raise KeyError("trigger")

    config = Config()
    config.bind = ["127.0.0.1:0"]
    with pytest.raises(KeyError, match="trigger"):
        await serve_hypercorn(FakeHandler(), config, shutdown_trigger=fail)


@on_hypercorn
async def test_quic_is_refused() -> None:
    config = Config()
    config.quic_bind = ["127.0.0.1:0"]
    with pytest.raises(ValueError, match="QUIC"):
        await serve_hypercorn(FakeHandler(), config)


async def test_garbage_collection_is_set_for_the_time_of_serving() -> None:
    before = gc.get_threshold()
    async with running(gc_thresholds=(20000, 20, 100)):
        assert gc.get_threshold() == (20000, 20, 100)
    assert gc.get_threshold() == before


@on_hypercorn
async def test_an_application_around_the_endpoint_is_served_with_its_lifespan() -> None:
    handler = FakeHandler()
    inner = asgi_app(handler, path="/deep/mcp")
    seen: list[str] = []

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":

            async def watched() -> Any:
                got = await receive()
                seen.append(got["type"])
                return got

            await inner(scope, watched, send)
        else:
            await inner(scope, receive, send)

    async with running(handler, app=outer) as server, server.connect() as peer:
        assert seen == ["lifespan.startup"]
        assert (await peer.request(post("tools/list"))).status == 404
        data = post("tools/list").replace(b"/mcp", b"/deep/mcp", 1)
        assert (await peer.request(data)).status == 200
    assert seen == ["lifespan.startup", "lifespan.shutdown"]


@on_hypercorn
async def test_an_application_that_never_listens_for_its_body_is_harmless() -> None:
    """What the client sends fills no queue for ever, and an early answer ends the connection."""

    async def early(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        head = {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"0")],
        }
        await send(head)
        await trio.sleep(0.05)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async with running(app=early) as server, server.connect() as peer:
        with contextlib.suppress(trio.BrokenResourceError):
            await peer.stream.send_all(post("tools/list", padding=3_000_000))
        assert b"200" in await peer.eof()


@on_hypercorn
async def test_an_application_that_ignores_a_disconnect_hears_it_again() -> None:
    heard: list[str] = []

    async def deaf(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        while heard.count("http.disconnect") < 3:
            heard.append((await receive())["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    async with running(app=deaf) as server:
        async with server.connect() as peer:
            await peer.stream.send_all(post("tools/list"))
            await trio.sleep(0.05)
        await until(lambda: len(heard) >= 5, 1)


async def test_the_stream_of_a_hardened_connection_keeps_nothing_large() -> None:
    """S-23: twenty requests of 100 kB leave no large piece behind."""
    async with running() as server, contextlib.AsyncExitStack() as stack:
        tracemalloc.start()
        try:
            for _ in range(20):
                peer = await stack.enter_async_context(server.connect())
                await peer.stream.send_all(post(LISTEN, notifications={}, padding=100_000))
                await peer.head()
                await peer.event()
            gc.collect()
            traces = tracemalloc.take_snapshot().traces
        finally:
            tracemalloc.stop()
        assert len(server.handler.streams) == 20
        assert not [trace.size for trace in traces if trace.size > 20_000]


@pytest.mark.parametrize("how", [fin, rst])
@pytest.mark.parametrize("stalled", [False, True], ids=["quiet", "stalled"])
async def test_a_connection_that_has_ended_needs_no_garbage_collection(
    how: Callable[[Any], None], stalled: bool
) -> None:
    """W19: with rare collections, what waits for one would be a leak by another name."""
    async with running() as server:
        with rare_collections():
            for _ in range(3):
                ended = server.handler.cancelled
                async with server.connect(4096) as peer:
                    await peer.listen()
                    if stalled:
                        await stall(server, peer)
                    how(peer.stream.socket)
                await until(partial(_more_cancelled, server, ended))
            await until(lambda: not connections_alive(), 1)


def _more_cancelled(server: Running, before: int) -> bool:
    return server.handler.cancelled > before
