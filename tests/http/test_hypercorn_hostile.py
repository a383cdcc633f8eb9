"""Connections that end plain Hypercorn, or might: none may end the server, or touch a bystander.

Each input meets a server of its own with a stream open beside it, once as served by default, once
with the upgrades allowed that Hypercorn knows, and once natively.
"""

import base64
import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import h2.config
import h2.connection
import hpack
import pytest
import trio
from http_kit import FakeHandler, Peer, post, running
from hypercorn.config import Config

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
UPGRADE = (
    b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
)
SETTINGS = base64.urlsafe_b64encode(struct.pack(">HL", 3, 100)).rstrip(b"=")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame."""
    return struct.pack(">L", len(payload))[1:] + struct.pack(">BBL", kind, flags, stream) + payload


def h2_start() -> bytes:
    return PREFACE + frame(4, 0, 0)


def h2_request(*headers: tuple[bytes, bytes], stream: int = 1, end: bool = True) -> bytes:
    """A request over HTTP/2, encoded without a look at what the headers are."""
    block = hpack.Encoder().encode(headers)
    return frame(1, 0x5 if end else 0x4, stream, block)


def h2_get(**changes: bytes) -> bytes:
    fields = {"method": b"GET", "scheme": b"http", "path": b"/mcp", "authority": b"localhost"}
    fields.update(changes)
    return h2_request(*((b":" + name.encode(), value) for name, value in fields.items()))


def ws_frame(payload: bytes) -> bytes:
    return struct.pack(">BB", 0x81, 0x80 | len(payload)) + b"\0\0\0\0" + payload


INPUTS: dict[str, bytes | list[bytes]] = {
    # WebSocket
    "websocket upgrade and a byte": UPGRADE + b"\r\nx",
    "websocket upgrade and a frame": [UPGRADE + b"\r\n", ws_frame(b"hello")],
    "websocket: bad extensions": UPGRADE + b"sec-websocket-extensions: ;;=,\r\n\r\n",
    "websocket: extensions not ASCII": UPGRADE + b"sec-websocket-extensions: \xff\r\n\r\n",
    "websocket: protocol not ASCII": UPGRADE + b"sec-websocket-protocol: \xff\xfe\r\n\r\n",
    "websocket: no key": UPGRADE.replace(b"sec-websocket-key", b"x-key") + b"\r\n",
    "websocket: bad key": UPGRADE.replace(b"dGhl", b"\xff\xff") + b"\r\n",
    "websocket: frame after refusal": [UPGRADE + b"\r\n", ws_frame(b"late"), ws_frame(b"later")],
    "websocket: frame with the upgrade": UPGRADE + b"\r\n" + ws_frame(b"early"),
    "websocket: POST": UPGRADE.replace(b"GET", b"POST") + b"content-length: 0\r\n\r\n",
    # HTTP/2
    "h2c prior knowledge": h2_start() + h2_get(),
    "h2c preface alone": PREFACE,
    "h2c upgrade": b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n"
    b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: "
    + SETTINGS
    + b"\r\n\r\n"
    + h2_start(),
    "h2c upgrade, bad settings": b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n"
    b"upgrade: h2c\r\nhttp2-settings: \xff\xff!\r\n\r\n" + h2_start(),
    "h2: path not ASCII": h2_start() + h2_get(path=b"/\xff\xfe"),
    "h2: method not ASCII": h2_start() + h2_get(method=b"G\xffT"),
    "h2: CONNECT without path": h2_start()
    + h2_request((b":method", b"CONNECT"), (b":authority", b"localhost")),
    "h2: data after an early answer": [
        h2_start()
        + h2_request(
            *(
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", b"/x"),
                (b":authority", b"localhost"),
            ),
            end=False,
        ),
        b"",
        b"",
        frame(0, 1, 1, b"late") + frame(0, 1, 1, b"later"),
    ],
    "h2: 1,100 priorities": h2_start()
    + b"".join(frame(2, 0, 2 * n + 1, b"\0\0\0\0\x10") for n in range(1100)),
    "h2: reset of what is not": h2_start() + frame(3, 0, 99, b"\0\0\0\0"),
    "h2: 150 streams": h2_start()
    + b"".join(
        h2_request(
            (b":method", b"GET"),
            (b":scheme", b"http"),
            (b":path", b"/mcp"),
            (b":authority", b"l"),
            stream=2 * n + 1,
        )
        for n in range(150)
    ),
    "h2: garbage after the preface": PREFACE + b"\xff" * 500,
    "h2: HTTP/2.0 in a request": b"GET /mcp HTTP/2.0\r\nhost: localhost\r\n\r\n",
    # HTTP/1.1
    "garbage": bytes(range(256)) * 8,
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 600,
    "empty lines": b"\r\n" * 200,
    "host not ASCII": b"GET /mcp HTTP/1.1\r\nhost: \xff\xfe\r\n\r\n",
    "two hosts": b"GET /mcp HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    "no host": b"GET /mcp HTTP/1.1\r\n\r\n",
    "path not ASCII": b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "path of percents": b"GET /%ff%00%zz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "absolute target": b"GET http://localhost/mcp HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\nx",
    "an odd method": b"M-SEARCH * HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a header not ASCII": b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: \xff\r\n\r\n",
    "two lengths": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n"
    b"content-length: 2\r\n\r\nxx",
    "length and chunks": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n"
    b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    "a negative length": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
    "10 GB and nothing": post("tools/list").partition(b"content-length")[0]
    + b"content-length: 10000000000\r\n\r\n",
    "a length of 5,000 digits": post("tools/list").partition(b"content-length")[0]
    + b"content-length: "
    + b"9" * 5000
    + b"\r\n\r\n",
    "a chunk of 5,000 digits": post("tools/list").partition(b"content-length")[0]
    + b"transfer-encoding: chunked\r\n\r\n"
    + b"9" * 5000
    + b"\r\n",
    "a bad chunk": post("tools/list").partition(b"content-length")[0]
    + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    "an odd coding": post("tools/list").partition(b"content-length")[0]
    + b"transfer-encoding: gzip\r\n\r\nxx",
    "a body cut short": post("tools/list")[:-3],
    "2,000 headers": b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 2000 + b"\r\n",
    "a head without end": b"GET /mcp HTTP/1.1\r\nx: " + b"x" * 40_000,
    "expect and nothing": post("tools/list").partition(b"content-length")[0]
    + b"expect: 100-continue\r\ncontent-length: 5\r\n\r\n",
    "requests and a refusal": post("tools/list") * 3 + b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize(
    ("host", "options"),
    [("hypercorn", {}), ("hypercorn", {"upgrades": True}), ("native", {})],
    ids=["default", "upgrades", "native"],
    indirect=["host"],
)
@pytest.mark.parametrize("name", INPUTS)
async def test_a_hostile_connection_ends_nothing_but_itself(
    name: str, host: str, options: dict[str, Any]
) -> None:
    pieces = INPUTS[name]
    config = Config()
    config.errorlog = None
    async with running(config=config, **options) as server, server.connect() as bystander:
        await bystander.listen()
        async with server.connect() as hostile:
            for piece in pieces if isinstance(pieces, list) else [pieces]:
                with contextlib.suppress(trio.BrokenResourceError):
                    await hostile.stream.send_all(piece)
                await trio.sleep(0.01)
            with trio.move_on_after(0.05):
                await hostile.eof()
        await trio.sleep(0.01)
        await _all_is_well(server, bystander)


async def _all_is_well(server: Any, bystander: Peer) -> None:
    server.handler.publish()
    assert (await bystander.event())["method"] == "notifications/tools/list_changed"
    async with server.connect() as late:
        assert (await late.request(post("tools/list"))).status == 200


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("name", ["h2c prior knowledge", "h2: HTTP/2.0 in a request"])
async def test_http_2_is_refused(name: str) -> None:
    data = INPUTS[name]
    assert isinstance(data, bytes)
    async with running() as server, server.connect() as peer:
        assert (await peer.request(data)).status == 505


async def test_http_2_is_served_where_it_is_asked_for() -> None:
    async with running(upgrades=True) as server, server.connect() as peer:
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        body = post("tools/list").partition(b"\r\n\r\n")[2]
        head = post("tools/list").partition(b"\r\n\r\n")[0].split(b"\r\n")[2:-1]
        fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/mcp")]
        fields += [(b":authority", b"localhost"), (b"host", b"localhost")]
        fields += [tuple(line.split(b": ", 1)) for line in head]  # type: ignore[misc]
        client.send_headers(1, fields)
        client.send_data(1, body, end_stream=True)
        await peer.stream.send_all(client.data_to_send())
        seen: list[str] = []
        while "StreamEnded" not in seen:
            data = await peer.stream.receive_some()
            seen += [type(event).__name__ for event in client.receive_data(bytes(data))]
        assert "DataReceived" in seen


async def test_a_host_that_is_not_ascii_where_names_are_configured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = Config()
    config.server_names = ["localhost"]
    async with running(config=config) as server, server.connect() as bystander:
        await bystander.listen()
        async with server.connect() as hostile:
            await hostile.stream.send_all(b"GET /mcp HTTP/1.1\r\nhost: \xff\r\n\r\n")
            await hostile.eof()
        await _all_is_well(server, bystander)
    assert "a connection failed" in caplog.text


async def test_an_application_that_fails_ends_its_own_connection() -> None:
    """W63: in every way that an application can."""

    def raises(problem: BaseException) -> Callable[..., Any]:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            raise problem

        return app

    async def too_much(scope: Any, receive: Any, send: Any) -> None:
        head = {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"0")],
        }
        await send(head)
        await send({"type": "http.response.body", "body": b"too much"})

    async def nonsense(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.nonsense"})

    async def bad_header(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"\n", b"\n")]})

    apps = [raises(ValueError("one")), raises(ExceptionGroup("two", [KeyError("two")]))]
    apps += [too_much, nonsense, bad_header]
    current: Iterator[Any] = iter(apps)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await next(current)(scope, receive, send)

    config = Config()
    config.errorlog = None
    async with running(config=config, app=app) as server:
        for _ in apps:
            async with server.connect() as peer:
                await peer.stream.send_all(post("tools/list"))
                await peer.eof()


async def test_one_that_ends_the_program_does() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            raise KeyboardInterrupt

    with pytest.RaisesGroup(KeyboardInterrupt):
        async with running(app=app) as server, server.connect() as peer:
            await peer.stream.send_all(post("tools/list"))
            await trio.sleep_forever()


@pytest.mark.usefixtures("host")
async def test_connections_that_are_gone_before_they_are_served() -> None:
    async with running() as server:
        for _ in range(50):
            with socket.socket() as sock:
                sock.connect(("127.0.0.1", server.port))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        async with server.connect() as peer:
            assert (await peer.request(post("tools/list"))).status == 200


@pytest.mark.usefixtures("host")
async def test_a_flood_of_silent_connections_delays_nobody() -> None:
    async with running(FakeHandler()) as server, contextlib.AsyncExitStack() as stack:
        for _ in range(200):
            await stack.enter_async_context(server.connect())
        async with server.connect() as peer:
            with trio.fail_after(1):
                assert (await peer.request(post("tools/list"))).status == 200
