"""A client behind a proxy, which its options or the environment name."""

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trustme
from client_peer import DONE, Peer, ask, connected, serving

from mcp_trio import errors
from mcp_trio.http._proxy import choose_proxy
from mcp_trio.http._target import parse_url
from mcp_trio.http.client import HttpTransport

AUTHORITY = trustme.CA()


def contexts(*, mutual: bool = False) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server at 127.0.0.1, and of a client that trusts it."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(server)
    if mutual:
        AUTHORITY.configure_trust(server)
        server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context()
    AUTHORITY.configure_trust(client)
    return server, client


class Proxy:
    """Relays what is tunnelled, and answers the rest itself.

    Attributes:
        heads: of the requests that came.
        answer: to CONNECT.
        port: where it is.
    """

    def __init__(self) -> None:
        self.heads: list[tuple[str, dict[str, str]]] = []
        self.answer = b"HTTP/1.1 200 Connection established\r\n\r\n"
        self.port = 0

    async def handle(self, stream: trio.SocketStream) -> None:
        peer = Peer(stream)
        with contextlib.suppress(EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                first, lines = await peer.read_head()
                headers = dict(lines)
                self.heads.append((first, headers))
                if not first.startswith("CONNECT "):
                    await peer.read_exactly(int(headers["content-length"]))
                    await peer.json(DONE)
                    continue
                await peer.send(self.answer)
                if b" 200 " not in self.answer:
                    return
                await self._relay(stream, int(first.split()[1].rpartition(":")[2]))

    async def _relay(self, client: trio.SocketStream, port: int) -> None:
        server = await trio.open_tcp_stream("127.0.0.1", port)

        async def pass_on(source: trio.SocketStream, sink: trio.SocketStream) -> None:
            async for data in source:
                await sink.send_all(data)
            scope.cancel()

        async with server, trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            nursery.start_soon(pass_on, client, server)
            nursery.start_soon(pass_on, server, client)


@asynccontextmanager
async def proxying() -> AsyncIterator[Proxy]:
    proxy = Proxy()
    async with trio.open_nursery() as nursery:
        serve: Any = partial(trio.serve_tcp, proxy.handle, 0, host="127.0.0.1")
        [listener] = await nursery.start(serve)
        proxy.port = listener.socket.getsockname()[1]
        yield proxy
        nursery.cancel_scope.cancel()


async def answer_all(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.json(DONE)


async def test_plain_requests_go_to_the_proxy() -> None:
    """They name the server in full, and say who asks; the connection is used again."""
    async with proxying() as proxy:
        url = f"http://me:p%40ss@127.0.0.1:{proxy.port}"
        transport = HttpTransport("http://server.test/mcp?a=1", proxy=url, headers={"X-A": "1"})
        with contextlib.closing(transport):
            for _ in range(2):
                await ask(transport)
            assert transport.statistics().connected == 1
    for first, headers in proxy.heads:
        assert first == "POST http://server.test/mcp?a=1 HTTP/1.1"
        assert headers["host"] == "server.test"
        assert headers["proxy-authorization"] == "Basic bWU6cEBzcw=="
        assert headers["x-a"] == "1"
    assert len(proxy.heads) == 2


async def test_tls_goes_through_a_tunnel() -> None:
    """The proxy sees where to, and what is meant for it; nothing of the request."""
    server_context, client_context = contexts()
    heads = []

    async def script(peer: Peer) -> None:
        while True:
            heads.append((await peer.request())[:2])
            await peer.json(DONE)

    async with proxying() as proxy, serving(script, server_context) as server:
        transport = HttpTransport(
            server.url,
            proxy=f"http://me:pass@127.0.0.1:{proxy.port}",
            ssl_context=client_context,
            headers={"Authorization": "Bearer secret"},
        )
        with contextlib.closing(transport):
            for _ in range(2):
                await ask(transport)
            async with transport.open_exchange("l", "subscriptions/listen", {}):
                assert transport.statistics().connected == 2
    where = server.url.removeprefix("https://").removesuffix("/mcp")
    expected = {"host": where, "proxy-authorization": "Basic bWU6cGFzcw=="}
    assert proxy.heads == [(f"CONNECT {where} HTTP/1.1", expected)] * 2
    first, headers = heads[0]
    assert first == "POST /mcp HTTP/1.1"
    assert headers["authorization"] == "Bearer secret"
    assert "proxy-authorization" not in headers


@pytest.mark.parametrize(
    ("answer", "text", "status"),
    [
        (b"HTTP/1.1 407 Auth\r\ncontent-length: 0\r\n\r\n", "407 Proxy Authentication", 407),
        (b"HTTP/1.1 302 No\r\nlocation: http://evil/\r\n\r\n", "302 Found", 302),
        (b"HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 503 No\r\n\r\n", "503 Service", 503),
        (b"SSH-2.0-x\r\n\r\n", "opens no tunnel", None),
        (b"HTTP/1.1 200 OK\r\nx: " + b"x" * 70_000, "opens no tunnel", None),
        (b"", "opens no tunnel", None),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "spoke before", None),
    ],
)
async def test_tunnels_that_are_not_opened(answer: bytes, text: str, status: int | None) -> None:
    """W62: one exception, which says who refused and why, and keeps the password to itself."""
    async with proxying() as proxy:
        proxy.answer = answer
        url = f"http://me:hidden@127.0.0.1:{proxy.port}"
        transport = HttpTransport("https://server.test/", proxy=url)
        with pytest.raises(errors.ConnectionLost, match=text) as caught:
            await ask(transport)
        assert f"the proxy 127.0.0.1:{proxy.port}" in str(caught.value)
        assert "https://server.test/" in str(caught.value)
        assert "hidden" not in str(caught.value)
        assert "hidden" not in repr(transport)
        if status is not None:
            assert isinstance(caught.value.__cause__, errors.HttpStatusError)
            assert caught.value.__cause__.status == status
        assert transport.statistics().connected == 0


async def test_proxy_that_is_not_there() -> None:
    """W62: what could not be reached is the proxy."""
    async with proxying() as proxy:
        port = proxy.port
    transport = HttpTransport("http://server.test/", proxy=f"127.0.0.1:{port}")
    with pytest.raises(errors.ConnectionLost, match=f"proxy 127.0.0.1:{port} for http://server"):
        await ask(transport)


async def test_proxy_that_says_nothing() -> None:
    """Connecting, tunnel included, has its timeout."""
    async with serving(Peer.gone) as silent:
        where = silent.url.removesuffix("/mcp")
        transport = HttpTransport("https://server.test/", proxy=where, connect_timeout=0.05)
        with pytest.raises(errors.ConnectionLost, match=r"through the proxy .* no answer within"):
            await ask(transport)


HTTP = "http://h.example:8000/"
HTTPS = "https://h.example/"


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, HTTP, None),
        ({"http_proxy": "http://p:1"}, HTTP, ("p", 1)),
        ({"HTTP_PROXY": "http://p:1"}, HTTP, ("p", 1)),
        ({"http_proxy": "http://p:1"}, HTTPS, None),
        ({"https_proxy": "http://p:1"}, HTTPS, ("p", 1)),
        ({"HTTPS_PROXY": "p:1"}, HTTPS, ("p", 1)),
        ({"http_proxy": "p"}, HTTP, ("p", 80)),
        ({"http_proxy": ""}, HTTP, None),
        ({"http_proxy": "http://[::1]:3128"}, HTTP, ("::1", 3128)),
        ({"http_proxy": "p:1", "no_proxy": "other,h.example"}, HTTP, None),
        ({"http_proxy": "p:1", "NO_PROXY": ".example"}, HTTP, None),
        ({"http_proxy": "p:1", "no_proxy": "*"}, HTTP, None),
        ({"http_proxy": "p:1", "no_proxy": "h.example:8000"}, HTTP, None),
        ({"http_proxy": "p:1", "no_proxy": "h.example:80"}, HTTP, ("p", 1)),
        ({"http_proxy": "p:1", "no_proxy": "xample"}, HTTP, ("p", 1)),
        ({"http_proxy": "p:1"}, "http://127.0.0.1:5/", ("p", 1)),
        ({"http_proxy": "p:1"}, "http://localhost/", ("p", 1)),
        ({"http_proxy": "p:1", "no_proxy": "localhost,127.0.0.1"}, "http://localhost/", None),
        ({"http_proxy": "p:1", "no_proxy": "[::1]"}, "http://[::1]:5/", None),
        ({"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, HTTP, None),
    ],
)
def test_what_the_environment_says(
    environment: dict[str, str], url: str, proxy: tuple[str, int] | None, monkeypatch: Any
) -> None:
    """In either case of letters; this machine is no exception by itself; no header makes one."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    chosen = choose_proxy(True, parse_url(url))
    assert (chosen and (chosen.host, chosen.port)) == proxy
    assert choose_proxy(None, parse_url(url)) is None


async def test_environment_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked unless `proxy` says otherwise."""
    async with proxying() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with connected(answer_all) as (transport, server):
            await ask(transport)
            assert (server.connections, len(proxy.heads)) == (0, 1)
        async with connected(answer_all, proxy=None) as (transport, server):
            await ask(transport)
            assert (server.connections, len(proxy.heads)) == (1, 1)


@pytest.mark.parametrize(
    "url",
    [
        "socks5://p:1",
        "https://me:hidden@p:1",
        "http://",
        "http://me:hidden@p:x",
        "http://me:hidden@p:70000",
        "http://[hidden",
        "http://ü:1",
    ],
)
def test_proxies_that_cannot_be_used(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^proxy") as caught:
        HttpTransport("http://h/", proxy=url)
    assert "hidden" not in str(caught.value)
    monkeypatch.setenv("http_proxy", url)
    with pytest.raises(ValueError, match=r"^http_proxy in the environment"):
        HttpTransport("http://h/")


# Certificates of clients


async def test_client_certificate() -> None:
    """What is loaded into the context is shown to the server."""
    server_context, client_context = contexts(mutual=True)
    AUTHORITY.issue_cert("me@example.com").configure_cert(client_context)
    seen = []

    async def script(peer: Peer) -> None:
        await peer.request()
        stream: Any = peer.stream
        seen.append(stream.getpeercert())
        await peer.json(DONE)

    async with serving(script, server_context) as server:
        transport = HttpTransport(server.url, ssl_context=client_context)
        with contextlib.closing(transport):
            await ask(transport)
    assert seen[0]["subjectAltName"] == (("email", "me@example.com"),)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (ssl.TLSVersion.TLSv1_2, "TLS with https://127.0.0.1:.* failed: .*HANDSHAKE_FAILURE"),
        (ssl.TLSVersion.TLSv1_3, "broke before the response: .*CERTIFICATE_REQUIRED"),
    ],
)
async def test_client_certificate_that_is_missing(version: ssl.TLSVersion, text: str) -> None:
    """W62: the exception quotes the server, in whichever step that has found out."""
    server_context, client_context = contexts(mutual=True)
    client_context.maximum_version = version

    def serve() -> None:
        # Not by Trio's stream, which closes the connection without a word.
        connection, _ = listener.accept()
        tls = server_context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        with tls:
            with contextlib.suppress(ssl.SSLError):
                tls.do_handshake()
            while socket.socket.recv(tls, 1000):
                pass  # closed with something unread, the alert would be lost

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        transport = HttpTransport(url, ssl_context=client_context)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, serve)
            with (
                trio.fail_after(10),
                contextlib.closing(transport),
                pytest.raises(errors.ConnectionLost, match=text),
            ):
                await ask(transport)
