"""`serve_http` itself: where it listens, its limits, its health path and its log."""

import contextlib
import itertools
import logging
import os
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import http_kit
import pytest
import trio
from http_kit import LISTEN, FakeHandler, Peer, note, post, running, until

from mcp_trio.http import _heads as heads
from mcp_trio.http._heads import PIECES_PER_YIELD
from mcp_trio.http._site import ConnectionLimits, Site
from mcp_trio.http.listener import serve_http
from mcp_trio.http.monitor import HttpMonitor, HttpStatistics

CERTIFICATES = Path(__file__).parent / "certificates"
GET = b"GET %s HTTP/1.1\r\nhost: elsewhere\r\n\r\n"


@pytest.fixture(autouse=True)
def _natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_kit, "host", "native")


# Where it listens


async def test_it_reports_what_it_has_bound() -> None:
    async with running() as server:
        assert server.urls == [f"http://127.0.0.1:{server.port}"]


async def test_a_name_can_stand_for_several_addresses() -> None:
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(serve_http, FakeHandler(), None, 0)
        assert {url.rpartition(":")[0] for url in urls} == {"http://0.0.0.0", "http://[::]"}
        for url in urls:
            host = "127.0.0.1" if "0.0.0.0" in url else "::1"  # noqa: S104
            stream = await trio.open_tcp_stream(host, int(url.rpartition(":")[2]))
            async with stream:
                assert (await Peer(stream).request(post("tools/list"))).status == 200
        nursery.cancel_scope.cancel()


async def test_a_unix_socket_replaces_a_dead_one_and_goes_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, unix_socket=path)
        assert await nursery.start(serve, FakeHandler()) == [f"http://unix:{path}"]
        async with await trio.open_unix_socket(path) as stream:
            assert (await Peer(stream).request(post("tools/list"))).status == 200
        with pytest.raises(OSError, match="in use"):
            await serve_http(FakeHandler(), unix_socket=path)
        assert path.exists()
        nursery.cancel_scope.cancel()
    assert not path.exists()


async def test_a_unix_socket_that_a_successor_has_taken_stays(tmp_path: Path) -> None:
    """Who drains listens no more, but its path is there until it ends."""
    path = tmp_path / "socket"
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        old = partial(serve_http, unix_socket=path, shutdown_trigger=stop.wait)
        await nursery.start(old, FakeHandler())
        async with await trio.open_unix_socket(path) as stream:
            call = post("tools/call", name="slow", arguments={"seconds": 0.3})
            await stream.send_all(call)
            await trio.sleep(0.05)
            stop.set()
            await trio.sleep(0.05)
            await nursery.start(partial(serve_http, unix_socket=path), FakeHandler())
            assert (await Peer(stream).response()).status == 200
            assert await Peer(stream).eof() == b""
        await trio.sleep(0.1)
        async with await trio.open_unix_socket(path) as stream:
            assert (await Peer(stream).request(post("tools/list"))).status == 200
        nursery.cancel_scope.cancel()
    assert not path.exists()


async def test_a_server_too_busy_to_answer_keeps_its_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(str(path))
        busy.listen(0)
        with contextlib.suppress(BlockingIOError):
            for _ in range(10):
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(path))
        with pytest.raises(OSError, match="in use"):
            await serve_http(FakeHandler(), unix_socket=path)
        assert path.exists()


async def test_a_file_in_the_way_of_a_unix_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        await serve_http(FakeHandler(), unix_socket=path)
    assert path.read_text() == "mine"


async def test_sockets_and_listeners_can_be_given() -> None:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with running(listeners=[bound, *listeners]) as server:
        assert len(server.urls) == 2
        for url in server.urls:
            async with await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])) as own:
                assert (await Peer(own).request(post("tools/list"))).status == 200
    assert bound.fileno() == -1


async def test_an_address_in_use_is_one_exception() -> None:
    """W62."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await serve_http(FakeHandler(), port=taken.getsockname()[1])


async def test_a_failing_trigger_is_one_exception() -> None:
    """W62."""

    async def fail() -> None:
        raise KeyError("trigger")

    with pytest.raises(KeyError, match="trigger"):
        await serve_http(FakeHandler(), port=0, shutdown_trigger=fail)


@pytest.mark.parametrize(
    "options",
    [
        {"path": "mcp"},
        {"health_path": "health"},
        {"keepalive": 0},
        {"max_connections": 0},
        {"send_deadline": -1},
        {"allowed_hosts": ["a b"]},
    ],
)
async def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        await serve_http(FakeHandler(), port=0, **options)


async def test_one_that_ends_the_program_does() -> None:
    class Ending(FakeHandler):
        async def handle(self, request: Any, exchange: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.RaisesGroup(KeyboardInterrupt):
        async with running(Ending()) as server, server.connect() as peer:
            await peer.stream.send_all(post("tools/list"))
            await trio.sleep_forever()


# Paths


async def test_paths() -> None:
    async with running(path="/deep/mcp/") as server, server.connect() as peer:
        for target, status in (
            (b"/deep/mcp", 200),
            (b"/deep/mcp/", 200),
            (b"/deep/%6dcp?x=/", 200),
            (b"http://localhost/deep/mcp", 200),
            (b"http://localhost", 404),
            (b"/mcp", 404),
            (b"/", 404),
            (b"*", 404),
            (b"/deep/mcp", 200),
        ):
            data = post("tools/list").replace(b"/mcp", target, 1)
            assert (await peer.request(data)).status == status, target


async def test_the_health_path_answers_whoever_asks() -> None:
    async with running(health_path="/health") as server, server.connect() as peer:
        response = await peer.request(GET % b"/health")
        assert (response.status, response.body) == (200, b"ok\n")
        await peer.stream.send_all(GET.replace(b"GET", b"HEAD") % b"/health")
        assert (await peer.head()).headers["content-length"] == "3"
        response = await peer.request(GET.replace(b"GET", b"DELETE") % b"/health")
        assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")


async def test_several_endpoints_on_one_listener() -> None:
    """Each has a handler of its own, and the streams of all end."""
    one, two = FakeHandler(), FakeHandler()
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, port=0, shutdown_trigger=stop.wait, health_path="/health")
        (url,) = await nursery.start(serve, {"/one": one, "/two/": two})
        stream = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
        async with stream:
            peer = Peer(stream)
            for path, status in ((b"/one", 200), (b"/two", 200), (b"/mcp", 404), (b"/", 404)):
                data = post("tools/list").replace(b"/mcp", path, 1)
                assert (await peer.request(data)).status == status
            assert (await peer.request(GET % b"/health")).status == 200
            await stream.send_all(post(LISTEN, notifications={}).replace(b"/mcp", b"/two", 1))
            assert (await peer.head()).status == 200
            await peer.event()
            assert (len(one.streams), len(two.streams)) == (0, 1)
            stop.set()
            assert (await peer.event())["id"] == 1


async def test_a_monitor_counts() -> None:
    monitor = HttpMonitor()
    assert monitor.statistics() == HttpStatistics(0, 0, 0, 0, 0, {}, 0)
    async with running(monitor=monitor, max_connections=2) as server:
        async with server.connect() as peer, server.connect() as other:
            await peer.request(post("tools/list"))
            await peer.request(post("tools/list").replace(b"/mcp", b"/no", 1))
            await other.listen()
            now = monitor.statistics()
            assert (now.connections, now.streams, now.accepted, now.refused) == (2, 1, 2, 0)
            assert now.responses == {2: 2, 4: 1}
            server.handler.publish()
            await other.event()
            assert monitor.statistics().bytes_written > now.bytes_written > 200
            async with server.connect() as third:
                assert (await third.response()).status == 503
                await third.eof()
            assert monitor.statistics().refused == 1
        await until(lambda: not monitor.statistics().connections)
        written = monitor.statistics().bytes_written
        assert written > now.bytes_written
    assert monitor.statistics() == HttpStatistics(0, 0, 2, 1, 0, {2: 2, 4: 1, 5: 1}, written)


async def test_a_monitor_counts_those_cut_for_not_reading() -> None:
    """W31."""
    monitor = HttpMonitor()
    async with running(monitor=monitor, send_deadline=0.1) as server:
        async with server.connect(receive_buffer=4096) as peer:
            await peer.listen()
            frame = note("notifications/x", padding="x" * 100_000)
            for _ in range(100):
                server.handler.publish(frame)
            await until(lambda: monitor.statistics().cut)
        async with server.connect() as peer:
            await peer.listen()
        await until(lambda: not monitor.statistics().connections)
        assert monitor.statistics().cut == 1


# Limits


async def test_connections_over_the_limit_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_trio.http._connection.MAX_REFUSED", 1)
    async with running(max_connections=1) as server, server.connect() as first:
        await first.listen()
        async with server.connect() as second, server.connect() as third:
            response = await second.response()
            assert (response.status, response.headers["retry-after"]) == (503, "1")
            assert await third.eof() == b""
            assert await second.eof() == b""
        server.handler.publish()
        assert await first.event()
        await first.stream.aclose()
        await until(lambda: server.handler.cancelled)
        await trio.sleep(0.05)
        async with server.connect() as fourth:
            assert (await fourth.request(post("tools/list"))).status == 200


@pytest.mark.parametrize(
    ("files", "connections"), [(1024, 924), (64, 32), (10**6, 20_000), (-1, 20_000)]
)
def test_connections_leave_files_for_others(
    monkeypatch: pytest.MonkeyPatch, files: int, connections: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (files, files))
    assert ConnectionLimits().max_connections == connections


@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_head_over_the_limit_is_refused(pieces: int) -> None:
    data = b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 3000 + b"\r\n\r\n"
    async with running(max_head=2000) as server, server.connect() as peer:
        step = len(data) // pieces + 1
        for start in range(0, len(data), step):
            with contextlib.suppress(trio.BrokenResourceError):
                await peer.stream.send_all(data[start : start + step])
            await trio.sleep(0.01)
        assert (await peer.response()).status == 431
        assert await peer.eof() == b""


async def test_a_slow_head_is_cut_though_the_connection_may_be_idle_for_long() -> None:
    async with running(head_timeout=0.1, idle_timeout=60) as server, server.connect() as peer:
        await trio.sleep(0.2)
        assert (await peer.request(b"\r\n\r\n" + post("tools/list"))).status == 200
        await peer.stream.send_all(b"POST /mcp HT")
        assert await peer.eof() == b""


async def test_all_bodies_together_have_a_limit() -> None:
    """So that many clients cannot do what one must not: those over it are told to come again."""
    part, rest = post("tools/list", padding=300_000)[:-1], post("tools/list", padding=300_000)[-1:]
    async with running(max_arriving=500_000) as server, server.connect() as one:
        await one.stream.send_all(part)
        await trio.sleep(0.05)
        async with server.connect() as two:
            with contextlib.suppress(trio.BrokenResourceError):
                await two.stream.send_all(part)
            response = await two.response()
            assert (response.status, response.headers["retry-after"]) == (503, "1")
        assert (await one.request(rest)).status == 200
        async with server.connect() as three:
            assert (await three.request(part + rest)).status == 200


async def test_the_kernel_looks_after_clients_that_vanish() -> None:
    async with running() as server, server.connect() as peer:
        await peer.listen()
        sock = server.handler.exchanges[0]._response._connection._socket  # type: ignore[attr-defined]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000


# Stopping


async def test_requests_behind_a_stream_that_a_drain_ends_are_answered_or_refused() -> None:
    """The first is answered with `Connection: close`: what is behind it can be sent again."""
    async with running() as server, server.connect() as peer:
        await peer.listen(1)
        await peer.stream.send_all(post("tools/list", 2) + post("tools/list", 3))
        await trio.sleep(0.05)
        server.stop.set()
        assert (await peer.event())["id"] == 1
        assert await peer.read_chunk() == b""
        response = await peer.response()
        assert response.json()["id"] == 2
        assert response.headers["connection"] == "close"
        assert await peer.eof() == b""


async def test_requests_behind_a_call_that_a_drain_waits_for_can_be_sent_again() -> None:
    slow = post("tools/call", 1, name="slow", arguments={"seconds": 0.2})
    async with running() as server, server.connect() as peer:
        await peer.stream.send_all(slow + post("tools/list", 2))
        await trio.sleep(0.05)
        server.stop.set()
        response = await peer.response()
        assert (response.json()["id"], response.headers["connection"]) == (1, "close")
        assert await peer.eof() == b""


@pytest.mark.parametrize("read", [20, -20])
async def test_a_request_half_read_as_a_drain_begins_is_answered(read: int) -> None:
    """Its other half is on the way, and that to answer is not to wait."""
    data = post("tools/list", 5)
    async with running() as server, server.connect() as peer, server.connect() as slow:
        await peer.stream.send_all(data[:read])
        await slow.stream.send_all(data[:20])
        await trio.sleep(0.05)
        begun = trio.current_time()
        server.stop.set()
        await trio.sleep(0.05)
        response = await peer.request(data[read:])
        assert (response.json()["id"], response.headers["connection"]) == (5, "close")
        assert await slow.eof() == b""
        assert trio.current_time() - begun < 1.5


async def test_a_request_over_tls_that_comes_as_a_drain_begins_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trusted = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    async with running(ssl_context=context) as server:
        plain = await trio.open_tcp_stream("127.0.0.1", server.port)
        stream = trio.SSLStream(plain, trusted, server_hostname="localhost", https_compatible=True)
        peer = Peer(stream)
        await peer.request(post("tools/list"))
        close_idle = Site.close_idle
        outgoing: list[bytes] = []

        def send_and_close(site: Site) -> None:
            os.write(plain.socket.fileno(), outgoing[0])
            close_idle(site)

        async def keep(data: bytes) -> None:
            outgoing.append(data)
            await trio.lowlevel.checkpoint()

        with monkeypatch.context() as patch:
            patch.setattr(plain, "send_all", keep)
            await stream.send_all(post("tools/list", 5))
        monkeypatch.setattr(Site, "close_idle", send_and_close)
        server.stop.set()
        response = await peer.response()
        assert (response.json()["id"], response.headers["connection"]) == (5, "close")
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("complete", [True, False])
async def test_a_request_that_comes_as_a_drain_begins_is_answered(
    monkeypatch: pytest.MonkeyPatch, complete: bool
) -> None:
    """A client cannot know whether a request was served that is met by a reset."""
    async with running() as server, server.connect() as peer, server.connect() as idle:
        await peer.request(post("tools/list"))
        await idle.request(post("tools/list"))
        close_idle = Site.close_idle

        def send_and_close(site: Site) -> None:
            data = post("tools/list", 5)
            os.write(peer.stream.socket.fileno(), data if complete else data[:20])
            close_idle(site)

        monkeypatch.setattr(Site, "close_idle", send_and_close)
        begun = trio.current_time()
        server.stop.set()
        if complete:
            response = await peer.response()
            assert (response.json()["id"], response.headers["connection"]) == (5, "close")
        assert await peer.eof() == b""
        assert await idle.eof() == b""
        assert trio.current_time() - begun < 1.5


# Reading


async def test_a_bad_chunk_is_refused_wherever_it_comes() -> None:
    head = post("tools/list").partition(b"content-length")[0]
    head += b"transfer-encoding: chunked\r\n\r\n"
    async with running() as server:
        for body in (b"zz\r\n", b"1\r\nx\r\nzz\r\n"):
            for pause in (False, True):
                async with server.connect() as peer:
                    await peer.stream.send_all(head)
                    if pause:
                        await trio.sleep(0.02)
                    await peer.stream.send_all(body)
                    assert (await peer.response()).status == 400
                    assert await peer.eof() == b""


async def test_a_body_with_a_length_and_chunks_is_the_last_thing_read() -> None:
    """RFC 9112, 6.1: a proxy may have seen another end of it."""
    head, _, body = post("tools/list").partition(b"\r\n\r\n")
    data = b"%s\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    async with running() as server, server.connect() as peer:
        response = await peer.request(data % (head, len(body), body) + post("tools/list", 2))
        assert (response.json()["id"], response.headers["connection"]) == (1, "close")
        assert await peer.eof() == b""


@pytest.mark.parametrize("path", [b"/mcp", b"/elsewhere"])
async def test_thousands_of_chunks_in_one_packet_delay_nobody(path: bytes) -> None:
    """As many as fit into one read take h11 a tenth of a second."""
    head = post("tools/list").partition(b"content-length")[0].replace(b"/mcp", path)
    turns = [0]
    served = 0

    async def count() -> None:
        nonlocal served
        while True:
            await trio.lowlevel.checkpoint()
            turns.append(served)

    read_next = heads._next

    def counted(parser: Any) -> Any:
        nonlocal served
        served += 1
        return read_next(parser)

    async with running() as server, server.connect() as peer, trio.open_nursery() as nursery:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(heads, "_next", counted)
            nursery.start_soon(count)
            body = b"1\r\n \r\n" * 5000 + b"0\r\n\r\n"
            await peer.stream.send_all(head + b"transfer-encoding: chunked\r\n\r\n" + body)
            response = await peer.response()
        nursery.cancel_scope.cancel()
    turns.append(served)
    assert response.status == (400 if path == b"/mcp" else 404)
    assert max(b - a for a, b in itertools.pairwise(turns)) < 4 * PIECES_PER_YIELD


async def test_a_client_that_leaves_within_its_body_is_gone() -> None:
    async with running() as server:
        for data in (post("tools/list")[:-5], post("tools/list")[:50]):
            async with server.connect() as peer:
                await peer.stream.send_all(data)
                await trio.sleep(0.02)
        async with server.connect() as peer:
            await peer.stream.send_all(post("tools/list")[:-5])
            await trio.sleep(0.02)
            assert (await peer.request(post("tools/list")[-5:])).status == 200


async def test_http_1_0_gets_a_stream_that_ends_with_the_connection() -> None:
    async with running() as server, server.connect() as peer:
        await peer.stream.send_all(
            post(LISTEN, notifications={}).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        )
        head = await peer.head()
        assert "transfer-encoding" not in head.headers
        assert (await peer.read_until(b"\n\n")).startswith(b"data: {")
        server.handler.streams[0].close()
        assert b'"result"' in await peer.eof()


# Keeping streams open


async def test_a_quiet_stream_gets_comments_over_plain_sockets_and_tls() -> None:
    """W13."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    async with running(keepalive=0.05, ssl_context=context) as server, server.connect() as tcp:
        assert server.urls[0].startswith("https://")
        client = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
        assert isinstance(tcp.stream, trio.SocketStream)
        peer = Peer(trio.SSLStream(tcp.stream, client, server_hostname="localhost"))
        await _hears_comments(peer, server.handler)
    async with running(keepalive=0.05) as server, server.connect() as peer:
        await _hears_comments(peer, server.handler)


async def _hears_comments(peer: Peer, handler: FakeHandler) -> None:
    await peer.listen()
    for _ in range(3):
        assert await peer.event() is None
    handler.publish()
    assert await peer.event()
    assert await peer.event() is None


async def test_a_comment_that_cannot_be_written_hides_no_disconnect() -> None:
    async with running(keepalive=0.02) as server, server.connect(4096) as peer:
        await peer.listen()
        for _ in range(100):
            server.handler.publish(note("n", padding="x" * 60_000))
            await trio.sleep(0.001)
        await trio.sleep(0.1)
        peer.stream.socket.close()
        await until(lambda: server.handler.cancelled, 1)


# Writing at once


async def test_a_stream_can_be_written_to_without_waiting() -> None:
    """Whole frames in order, whoever writes them, until the kernel has no more room."""
    async with running() as server, server.connect(4096) as peer:
        await peer.listen()
        [exchange] = server.handler.exchanges
        sent = 0
        while exchange.send_nowait(note("n", number=sent, padding="x" * 5000)):
            sent += 1
        assert sent > 1
        assert not exchange.send_nowait(note("n", number=-1))
        server.handler.publish(note("n", number=sent, padding=""))
        await trio.sleep(0.01)
        numbers = [(await peer.event())["params"]["number"] for _ in range(sent + 1)]
        assert numbers == list(range(sent + 1))
        assert exchange.send_nowait(note("n", number=-2))
        assert (await peer.event())["params"]["number"] == -2


async def test_what_is_left_of_such_a_write_is_given_up_with_its_client() -> None:
    async with running() as server, server.connect(4096) as peer:
        await peer.listen()
        [exchange] = server.handler.exchanges
        while exchange.send_nowait(note("n", padding="x" * 50_000)):
            pass
        peer.stream.socket.close()
        await until(lambda: server.handler.cancelled, 1)
        assert not exchange.send_nowait(note("n"))


async def test_a_write_at_once_that_fails_ends_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as server, server.connect() as peer:
        await peer.listen()

        def fail(fd: int, data: bytes) -> int:
            raise BrokenPipeError

        monkeypatch.setattr(os, "write", fail)
        assert not server.handler.exchanges[0].send_nowait(note("n"))
        await until(lambda: server.handler.cancelled, 1)
        monkeypatch.undo()


# The log


async def test_the_access_log_names_no_query(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "mcp_trio.http.access"):
        async with running(access_log=True) as server, server.connect() as peer:
            await peer.request(post("tools/list").replace(b"/mcp", b"/mcp?token=secret", 1))
            await peer.request(GET % b"/nothing")
            await peer.stream.send_all(b"nonsense\r\n\r\n")
            await peer.eof()
        async with running() as server, server.connect() as peer:
            await peer.request(post("tools/list"))
    said = [record.getMessage().partition(") ")[2] for record in caplog.records]
    said = [text for text in said if text]
    assert said == ["POST /mcp 200", "GET /nothing 404", "- - 400"]


async def test_a_bug_in_a_connection_ends_it_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a bug")

    async with running() as server, server.connect() as peer, server.connect() as watched:
        with monkeypatch.context() as patched:
            patched.setattr("mcp_trio.http._connection.read_plain", fail)
            await peer.stream.send_all(post("tools/list"))
            assert await peer.eof() == b""
        with monkeypatch.context() as patched:
            patched.setattr("mcp_trio.http._connection.Response.wait_gone", fail)
            await watched.stream.send_all(
                post("tools/call", name="slow", arguments={"seconds": 60})
            )
            assert await watched.eof() == b""
        async with server.connect() as other:
            assert (await other.request(post("tools/list"))).status == 200
    assert caplog.text.count("a connection failed: RuntimeError('a bug')") == 2
