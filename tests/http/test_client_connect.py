"""How a client gets to a server, and what it says when it does not."""

import contextlib
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from client_peer import ask

from mcp_trio import errors, types
from mcp_trio.client.connect import open_http_client, open_stdio_client
from mcp_trio.http import _target
from mcp_trio.http.client import HttpTransport
from mcp_trio.protocol import jsonrpc
from mcp_trio.subscriptions.filter import SubscriptionFilter

CERTIFICATES = Path(__file__).parent / "certificates"
TOOLS = SubscriptionFilter(tools_list_changed=True)


def refused_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


# URLs and headers


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("http://example.com", "example.com", 80, "/", "example.com"),
        ("http://Example.com:8000/mcp", "example.com", 8000, "/mcp", "example.com:8000"),
        (
            "https://example.com:443/a?b=c&d=%20e",
            "example.com",
            443,
            "/a?b=c&d=%20e",
            "example.com",
        ),
        ("https://example.com:80/", "example.com", 80, "/", "example.com:80"),
        ("http://[::1]:8000/mcp#top", "::1", 8000, "/mcp", "[::1]:8000"),
        ("http://bücher.example/ü?q=ü", "xn--bcher-kva.example", 80, "/%C3%BC?q=%C3%BC", None),
        ("HTTP://h/a%2Fb/;x=[1]", "h", 80, "/a%2Fb/;x=%5B1%5D", "h"),
    ],
)
def test_urls(url: str, host: str, port: int, path: str, authority: str | None) -> None:
    """Path and query are kept; what cannot be sent as it is gets encoded."""
    target = _target.parse_url(url)
    assert (target.host, target.port, target.path) == (host, port, path)
    assert target.authority == (authority or host)


def test_urls_in_messages_show_no_query() -> None:
    assert str(_target.parse_url("https://h:8443/mcp?key=secret")) == "https://h:8443/mcp"
    assert repr(HttpTransport("http://h/?k=s")) == "<HttpTransport http://h/>"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ftp://h/", "not an http or https URL"),
        ("localhost:8000/mcp", "not an http or https URL"),
        ("http:///mcp", "without a host"),
        ("http://user:secret@h/", "use a header"),
        ("http://h:99999/", "[Pp]ort"),
        ("http://h/a b", "spaces"),
        ("http://h/\r\nX: y", "control characters"),
        ("http://" + "ü" * 70 + "/", "not a host name"),
    ],
)
def test_urls_that_are_refused(url: str, text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        HttpTransport(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (("Accept", "*/*"), "protocol's own"),
        (("content-length", "1"), "protocol's own"),
        (("Mcp-Param-X", "1"), "protocol's own"),
        (("X Y", "1"), "not a header name"),
        (("X", "secret\n"), "of the header X"),
        (("X", " secret"), "of the header X"),
        (("X", "sécret\u2028"), "of the header X"),
    ],
)
def test_headers_that_are_refused(header: tuple[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        HttpTransport("http://h/", headers=[header])
    assert "secret" not in str(caught.value)


def test_other_options_that_are_refused() -> None:
    with pytest.raises(ValueError, match="connect_timeout"):
        HttpTransport("http://h/", connect_timeout=0)
    with pytest.raises(ValueError, match="max_message"):
        HttpTransport("http://h/", max_message=0)


# Connecting


async def test_connection_refused() -> None:
    """W62: one exception that names the cause, for a request and for a subscription."""
    url = f"http://127.0.0.1:{refused_port()}/mcp"
    async with open_http_client(url) as client:
        with pytest.raises(errors.ConnectionLost, match="Connection refused") as caught:
            await client.list_tools()
        assert url in str(caught.value)
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        with pytest.raises(errors.ConnectionLost, match="Connection refused"):
            async with client.listen(TOOLS):
                pytest.fail("nobody is there")


async def test_refused_on_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """W62: several attempts failed, and still it is one exception with one cause."""

    class Resolver(trio.abc.HostnameResolver):
        async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
            tcp = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*tcp, ("127.0.0.1", port)), (*tcp, ("127.0.0.2", port))]

        async def getnameinfo(self, *_: Any) -> Any:
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(Resolver())
    async with open_http_client(f"http://two.example:{refused_port()}/") as client:
        with pytest.raises(errors.ConnectionLost, match="refused") as caught:
            await client.list_tools()
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


async def test_refused_under_a_deadline() -> None:
    """W62: also while an outer scope is about to fire."""
    async with open_http_client(f"http://127.0.0.1:{refused_port()}/") as client:
        with trio.move_on_after(0.2), pytest.raises(errors.ConnectionLost):
            await client.list_tools()


async def test_host_that_does_not_exist() -> None:
    class Resolver(trio.abc.HostnameResolver):
        async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        async def getnameinfo(self, *_: Any) -> Any:
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(Resolver())
    async with open_http_client("http://nowhere.example/") as client:
        with pytest.raises(errors.ConnectionLost, match="Name or service not known"):
            await client.list_tools()


async def test_nobody_answers(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Connecting has a timeout of its own."""

    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(trio, "open_tcp_stream", hang)
    async with open_http_client("http://h/", connect_timeout=3) as client:
        with pytest.raises(errors.ConnectionLost, match="no answer within 3 s"):
            await client.list_tools()
        assert trio.current_time() >= 3
        with trio.move_on_after(1) as scope:
            await client.list_tools()
        assert scope.cancelled_caught


async def test_ipv6() -> None:
    seen: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        seen.append(await stream.receive_some())
        body = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, handle, 0, host="::1")
        try:
            listeners: Any = await nursery.start(serve)
        except OSError:
            pytest.skip("no IPv6 here")
        port = listeners[0].socket.getsockname()[1]
        async with open_http_client(f"http://[::1]:{port}/mcp") as client:
            with trio.fail_after(5):
                await client.list_tools()
        assert b"Host: [::1]:%d\r\n" % port in seen[0]
        nursery.cancel_scope.cancel()


# TLS


def server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    return context


async def serve_tools(stream: trio.SSLStream[trio.SocketStream]) -> None:
    try:
        while await stream.receive_some():
            body = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
    except trio.BrokenResourceError:
        pass


async def start_tls_server(nursery: trio.Nursery) -> int:
    serve = partial(
        trio.serve_ssl_over_tcp,
        serve_tools,
        0,
        server_context(),
        host="127.0.0.1",
        https_compatible=True,
    )
    listeners: Any = await nursery.start(serve)
    port: int = listeners[0].transport_listener.socket.getsockname()[1]
    return port


async def test_tls_with_a_given_context() -> None:
    trusting = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            port = await start_tls_server(nursery)
            transport = HttpTransport(f"https://127.0.0.1:{port}/", ssl_context=trusting)
            with contextlib.closing(transport):
                for _ in range(2):
                    assert isinstance((await ask(transport))[0], jsonrpc.ResultReply)
                assert transport.statistics().connected == 1
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("host", "trusted", "text"),
    [
        ("127.0.0.1", False, "certificate is not accepted: "),
        ("localhost", False, "certificate is not accepted: "),
        ("127.0.0.2", True, "certificate is not accepted: .*127.0.0.2"),
    ],
)
async def test_bad_certificates(host: str, trusted: bool, text: str) -> None:
    """W62: an unknown authority, a wrong host: said in one exception."""
    context = (
        ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem")) if trusted else None
    )
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            address = host.replace("localhost", "127.0.0.1")
            serve = partial(trio.serve_ssl_over_tcp, serve_tools, 0, server_context(), host=address)
            listeners: Any = await nursery.start(serve)
            port = listeners[0].transport_listener.socket.getsockname()[1]
            async with open_http_client(f"https://{host}:{port}/", ssl_context=context) as client:
                with pytest.raises(errors.ConnectionLost, match=text) as caught:
                    await client.list_tools()
                assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
            nursery.cancel_scope.cancel()


async def test_tls_where_there_is_none() -> None:
    async def handle(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            listeners: Any = await nursery.start(
                partial(trio.serve_tcp, handle, 0, host="127.0.0.1")
            )
            port = listeners[0].socket.getsockname()[1]
            async with open_http_client(f"https://127.0.0.1:{port}/") as client:
                with pytest.raises(errors.ConnectionLost, match=r"TLS with https://.* failed: "):
                    await client.list_tools()
            nursery.cancel_scope.cancel()


async def test_handshake_that_never_ends() -> None:
    """The timeout of connecting covers it; cancelling leaves no socket behind."""
    gone = trio.Event()

    async def handle(stream: trio.SocketStream) -> None:
        while await stream.receive_some():
            pass
        gone.set()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            listeners: Any = await nursery.start(
                partial(trio.serve_tcp, handle, 0, host="127.0.0.1")
            )
            port = listeners[0].socket.getsockname()[1]
            async with open_http_client(
                f"https://127.0.0.1:{port}/", connect_timeout=0.1
            ) as client:
                with pytest.raises(errors.ConnectionLost, match=r"no answer within 0\.1 s"):
                    await client.list_tools()
            await gone.wait()
            nursery.cancel_scope.cancel()


# The helpers


async def test_open_http_client_closes_what_it_opened() -> None:
    gone = trio.Event()

    async def handle(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        body = b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        assert not await stream.receive_some()
        gone.set()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            listeners: Any = await nursery.start(
                partial(trio.serve_tcp, handle, 0, host="127.0.0.1")
            )
            port = listeners[0].socket.getsockname()[1]
            url = f"http://127.0.0.1:{port}/"
            async with open_http_client(url, client_info=types.Implementation("me", "1")) as client:
                await client.list_tools()
            await gone.wait()
            with pytest.raises(trio.ClosedResourceError):
                await client.list_tools()
            nursery.cancel_scope.cancel()


async def test_open_stdio_client_without_a_program() -> None:
    """W62, W87: a missing program is one exception that names it."""
    with pytest.raises(errors.ConnectionLost, match="no-such-program"):
        async with open_stdio_client(["/no-such-program"]):
            pytest.fail("there is no such program")


async def test_open_stdio_client_whose_program_fails() -> None:
    """W87: what it said on standard error is in the exception."""
    with trio.fail_after(10):
        async with open_stdio_client(["sh", "-c", "echo out of cheese >&2; exit 3"]) as client:
            with pytest.raises(errors.ConnectionLost, match="out of cheese"):
                await client.list_tools()
