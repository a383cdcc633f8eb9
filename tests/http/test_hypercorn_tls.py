"""Serving over TLS, on Hypercorn and natively; and Hypercorn on other kinds of address."""

import os
import signal
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from http_kit import (
    FakeHandler,
    Peer,
    Running,
    connections_alive,
    note,
    post,
    rare_collections,
    running,
    until,
)
from hypercorn.config import Config

from mcp_trio.http.hypercorn import serve_hypercorn

CERTIFICATES = Path(__file__).parent / "certificates"


def secure() -> Config:
    config = Config()
    config.certfile = config.keyfile = str(CERTIFICATES / "server.pem")
    return config


@asynccontextmanager
async def connect(
    server: Running, *, alpn: list[str] | None = None, receive_buffer: int | None = None
) -> AsyncIterator[Peer]:
    context = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
    if alpn:
        context.set_alpn_protocols(alpn)
    async with server.connect(receive_buffer) as tcp:
        assert isinstance(tcp.stream, trio.SocketStream)
        stream = trio.SSLStream(
            tcp.stream, context, server_hostname="localhost", https_compatible=True
        )
        await stream.do_handshake()
        yield Peer(stream)


@pytest.mark.usefixtures("host")
async def test_requests_streams_and_the_end() -> None:
    async with running(config=secure()) as server:
        assert server.urls == [f"https://127.0.0.1:{server.port}"]
        async with connect(server) as peer:
            assert (await peer.request(post("tools/list"))).status == 200
            await peer.listen(2)
            for number in range(20):
                server.handler.publish(note("n", number=number))
                assert (await peer.event())["params"]["number"] == number
            server.stop.set()
            assert (await peer.event())["id"] == 2
            assert await peer.read_chunk() == b""
            assert await peer.eof() == b""


async def test_http_2_is_not_offered_unless_it_is_asked_for() -> None:
    for upgrades, chosen in ((False, "http/1.1"), (True, "h2")):
        async with (
            running(config=secure(), upgrades=upgrades) as server,
            connect(server, alpn=["h2", "http/1.1"]) as peer,
        ):
            assert isinstance(peer.stream, trio.SSLStream)
            assert peer.stream.selected_alpn_protocol() == chosen


@pytest.mark.usefixtures("host")
async def test_a_client_that_leaves_is_noticed() -> None:
    """W03."""
    async with running(config=secure()) as server:
        async with connect(server) as peer:
            await peer.listen()
        await until(lambda: server.handler.cancelled, 1)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("stalled", [False, True], ids=["quiet", "stalled"])
@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
async def test_a_connection_that_has_ended_needs_no_garbage_collection(
    reset: bool, stalled: bool
) -> None:
    """W19."""
    async with running(config=secure()) as server:
        with rare_collections():
            async with connect(server, receive_buffer=4096) as peer:
                await peer.listen()
                if stalled:
                    for _ in range(100):
                        server.handler.publish(note("n", padding="x" * 60_000))
                    await trio.sleep(0.05)
                assert isinstance(peer.stream, trio.SSLStream)
                sock = peer.stream.transport_stream.socket
                if reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
            await until(lambda: server.handler.cancelled)
            await until(lambda: not connections_alive(), 2)


@pytest.mark.usefixtures("host")
async def test_what_is_no_tls_ends_itself_alone() -> None:
    config = secure()
    config.ssl_handshake_timeout = 0.1
    async with running(config=config) as server, connect(server) as bystander:
        await bystander.listen()
        for data in (post("tools/list"), b"\x16\x03\x01\x00\x05abcde", b"", b"PRI * HTTP/2.0\r\n"):
            async with server.connect() as hostile:
                await hostile.stream.send_all(data)
                await hostile.eof()
        async with connect(server, alpn=["h2"]) as late:
            await late.stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            assert (await late.response()).status == 505
        server.handler.publish()
        assert await bystander.event()


@pytest.mark.usefixtures("host")
async def test_stopping_is_bounded_over_tls_too() -> None:
    """W31."""
    async with (
        running(config=secure(), drain_grace=0.3) as server,
        connect(server, receive_buffer=4096) as stalled,
    ):
        await stalled.listen()
        for _ in range(200):
            server.handler.publish(note("n", padding="x" * 60_000))
        await trio.sleep(0.1)
        begun = trio.current_time()
        server.stop.set()
        await until(lambda: server.handler.cancelled, 3)
        assert trio.current_time() - begun < 1.5


async def test_a_certificate_that_is_not_there_is_one_exception() -> None:
    """W62."""
    config = secure()
    config.certfile = str(CERTIFICATES / "nowhere.pem")
    config.bind = ["127.0.0.1:0"]
    with pytest.raises(FileNotFoundError):
        await serve_hypercorn(FakeHandler(), config)


async def test_a_unix_socket_is_served(tmp_path: Path) -> None:
    config = Config()
    config.bind = [f"unix:{tmp_path / 'socket'}"]
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(serve_hypercorn, FakeHandler(), config)
        assert urls == [f"http://unix:{tmp_path / 'socket'}"]
        async with await trio.open_unix_socket(tmp_path / "socket") as stream:
            assert (await Peer(stream).request(post("tools/list"))).status == 200
        nursery.cancel_scope.cancel()


async def test_several_addresses_are_served() -> None:
    config = Config()
    config.bind = ["127.0.0.1:0", "[::1]:0"]
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(serve_hypercorn, FakeHandler(), config)
        for url, host in zip(urls, ("127.0.0.1", "::1"), strict=True):
            stream = await trio.open_tcp_stream(host, int(url.rpartition(":")[2]))
            async with stream:
                assert (await Peer(stream).request(post("tools/list"))).status == 200
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("host")
async def test_signals_are_obeyed_where_that_is_asked_for() -> None:
    async with (
        running(handle_signals=True, drain_grace=10) as server,
        server.connect() as peer,
        server.connect() as busy,
    ):
        await peer.listen()
        await busy.stream.send_all(post("tools/call", name="slow", arguments={"seconds": 60}))
        await trio.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await peer.event())["id"] == 1
        os.kill(os.getpid(), signal.SIGINT)
        await until(lambda: server.handler.cancelled == 1, 1)
        await busy.eof()
