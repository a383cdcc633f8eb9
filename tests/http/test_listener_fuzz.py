"""Raw request bytes, spoilt in every way: the native listener answers well or closes, and goes on.

Each example meets a server of its own with a stream open beside it. What comes back is read by
h11, as strictly as a client would.
"""

import contextlib
from typing import Any

import h11
import http_kit
import pytest
import trio
from http_kit import LISTEN, Running, message, post, running
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_trio import codec

BODY = codec.encode_json(message("tools/list"))
HEAD = post("tools/list").partition(b"content-length")[0]
CHUNKS = b"3\r\n%s\r\n%x;a=b\r\n%s\r\n0\r\nx: y\r\n\r\n" % (BODY[:3], len(BODY) - 3, BODY[3:])
GET = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n"

VALID = [
    post("tools/list"),
    post("tools/list", "an id", padding=3000),
    post("tools/call", name="progress", arguments={"count": 3}),
    post("tools/call", name="echo", arguments={"bytes": 100_000}),
    post("tools/call", name="boom"),
    post(LISTEN, notifications={}),
    HEAD + b"transfer-encoding: chunked\r\n\r\n" + CHUNKS,
    HEAD + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY,
    HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY,
    post("tools/list").replace(b" /mcp ", b" http://localhost/mcp ", 1),
    post("tools/list").replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    post(LISTEN, notifications={}).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    GET,
    GET.replace(b"GET", b"OPTIONS"),
    GET.replace(b"GET", b"DELETE"),
    GET.replace(b"/mcp", b"/health"),
]
TOKENS = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b":",
    b"\r\n\r\n",
    b"\r\n ",
    b"\xff",
    b"0",
    b"-1",
    b"9" * 5000,
    b"0\r\n\r\n",
    b"ffffffffffffffffff\r\n",
    b"HTTP/1.0",
    b"HTTP/9.9",
    b"CONNECT ",
    b"host: b\r\n",
    b"\r\ncontent-length: 5",
    b"\r\ntransfer-encoding: chunked",
    b"\r\ntransfer-encoding: gzip, chunked",
    b"\r\nexpect: 100-continue",
    b"\r\nconnection: upgrade\r\nupgrade: websocket",
    b"\r\nx: " + b"y" * 40_000,
    b"x: y\r\n" * 300,
]


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A valid request, with some places of it changed."""
    data = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(0, 4))):
        # Most of what matters is in the head.
        start = draw(st.integers(0, min(len(data), draw(st.sampled_from([40, 400, 10_000])))))
        length = draw(st.integers(0, 12))
        change = draw(st.sampled_from(["insert", "replace", "drop", "repeat", "cut", "flip"]))
        if change in ("insert", "replace"):
            new = draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=6)))
            data[start : start + (length if change == "replace" else 0)] = new
        elif change == "drop":
            del data[start : start + length]
        elif change == "repeat":
            data[start:start] = data[start : start + length * 4]
        elif change == "cut":
            del data[start:]
        elif start < len(data):
            data[start] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


MESSAGES = st.lists(st.one_of(spoilt(), st.sampled_from(VALID), st.binary(max_size=80)), max_size=4)
CUTS = st.lists(st.tuples(st.integers(1, 600), st.booleans()), max_size=12)


@given(messages=MESSAGES, cuts=CUTS, leave=st.sampled_from(["half", "close", "reset", "wait"]))
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_whatever_is_sent_is_answered_well_or_closed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    messages: list[bytes],
    cuts: list[tuple[int, bool]],
    leave: str,
) -> None:
    """W63: and a stream beside it goes on, others are served, no bug shows in the log."""
    monkeypatch.setattr(http_kit, "host", "native")
    trio.run(_meet, b"".join(messages), cuts, leave)
    assert "a connection failed" not in caplog.text


async def _meet(data: bytes, cuts: list[tuple[int, bool]], leave: str) -> None:
    # Short where they are waited for; a machine that is busy must not meet them otherwise.
    limits: dict[str, Any] = dict.fromkeys(
        ("head_timeout", "idle_timeout", "body_timeout"), 0.3 if leave == "wait" else 10
    )
    async with (
        running(health_path="/health", drain_grace=0.2, **limits) as server,
        server.connect() as bystander,
    ):
        await bystander.listen()
        with trio.fail_after(10):
            await _be_hostile(server, data, cuts, leave)
        server.handler.publish()
        assert (await bystander.event())["method"] == "notifications/tools/list_changed"
        for attempt in range(3):
            try:
                async with server.connect() as late:
                    assert (await late.request(post("tools/list"))).status == 200
                break
            except EOFError:
                assert leave == "wait" and attempt < 2  # noqa: PT018


async def _be_hostile(
    server: Running, data: bytes, cuts: list[tuple[int, bool]], leave: str
) -> None:
    async with server.connect() as hostile:
        received = b""

        async def read() -> None:
            nonlocal received
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for piece in hostile.stream:
                    received += bytes(piece)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            with contextlib.suppress(trio.BrokenResourceError):
                for cut, pause in cuts:
                    await hostile.stream.send_all(data[:cut])
                    data = data[cut:]
                    if pause:
                        await trio.sleep(0.001)
                await hostile.stream.send_all(data)
            await trio.sleep(0.005)
            if leave == "wait":
                # For the limits on time, which end everything but a stream.
                while len(server.handler.streams) == 1 and nursery.child_tasks:
                    await trio.sleep(0.005)
            if leave in ("wait", "half"):
                with contextlib.suppress(OSError):
                    hostile.stream.socket.shutdown(trio.socket.SHUT_WR)
            else:
                if leave == "reset":
                    hostile.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, RESET)
                await hostile.stream.aclose()
        _check(received)


RESET = b"\1\0\0\0\0\0\0\0"


def _check(received: bytes) -> None:
    """What has come back is responses, one after the other, and only the last may be cut short."""
    while received:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(received)
        client.receive_data(b"")
        body, head = b"", None
        while True:
            try:
                event = client.next_event()
            except h11.RemoteProtocolError as problem:
                # A stream, or what is left of an answer, whose client has gone.
                if "closed connection" in str(problem):
                    return
                raise
            if isinstance(event, h11.Response):
                head = event
                assert head.status_code in {200, 202} | {*range(400, 432)} | {501, 503, 505}
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                assert isinstance(event, h11.InformationalResponse), received
        assert head is not None
        headers = dict(head.headers)
        if headers.get(b"content-type") == b"application/json":
            assert codec.decode_json(body)["jsonrpc"] == "2.0"
        received = client.trailing_data[0]
        if headers.get(b"connection") == b"close":
            assert not received
