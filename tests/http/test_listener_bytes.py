"""Raw bytes for the native listener: it reads what h11 reads, and nothing breaks it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import h11
import http_kit
import pytest
import trio
from http_kit import LISTEN, Peer, post, running
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_trio.http._heads import read_plain
from mcp_trio.http._lazily import MAX_TURNS, run_lazily
from mcp_trio.protocol.headers import Headers

NAMES = st.sampled_from(
    [b"Host", b"host", b"content-length", b"Connection", b"expect", b"x", b"Transfer-Encoding"]
)
VALUES = st.one_of(
    st.sampled_from([b"localhost", b"0", b"3", b" 3 ", b"\t", b"", b"close", b"chunked", b"3, 3"]),
    st.binary(max_size=8),
)
LINES = st.builds(
    lambda name, sep, value, end: name + sep + value + end,
    st.one_of(NAMES, st.binary(max_size=5)),
    st.sampled_from([b":", b": ", b" :", b":\t ", b""]),
    VALUES,
    st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n "]),
)
STARTS = st.one_of(
    st.sampled_from(
        [
            b"POST /mcp HTTP/1.1\r\nhost: a\r\n",
            b"POST /mcp HTTP/1.1\r\n",
            b"GET / HTTP/1.1\r\nHost: b \r\n",
            b"POST /mcp HTTP/1.0\r\n",
            b"POST  /mcp HTTP/1.1\r\n",
            b"PUT /\xff HTTP/1.1\r\n",
        ]
    ),
    st.binary(max_size=30),
)
REQUESTS = st.builds(
    lambda start, lines, body: start + b"".join(lines) + b"\r\n" + body,
    STARTS,
    st.lists(LINES, max_size=4),
    st.binary(max_size=6),
)


async def _never() -> bytes:
    raise AssertionError("nothing is to be read")


@given(REQUESTS)
@settings(max_examples=400)
def test_what_is_read_without_h11_is_what_h11_would_read(data: bytes) -> None:
    """Whatever the plain reader takes, h11 takes, and makes the same of it."""
    plain = read_plain(data, 16384, _never)
    if plain is None:
        return
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(data)
    head = parser.next_event()
    assert isinstance(head, h11.Request)
    assert (plain.method, plain.target) == (head.method.decode(), head.target.decode())
    expected = Headers(head.headers)
    assert dict(plain.headers) == dict(expected)
    assert all(plain.headers.get_all(name) == expected.get_all(name) for name in expected)
    assert (plain.keep_alive, plain.is_1_0) == (True, False)
    body = b""
    while isinstance(event := parser.next_event(), h11.Data):
        body += event.data
    if plain.whole is None:
        assert event is h11.NEED_DATA
        assert plain.leftover() == body
    else:
        assert isinstance(event, h11.EndOfMessage)
        assert plain.whole == body
        assert plain.leftover() == parser.trailing_data[0]


def test_the_requests_of_clients_are_plain() -> None:
    for data in (post("tools/list"), post(LISTEN, notifications={}, padding=100_000)):
        request = read_plain(data, 16384, _never)
        assert request is not None
        assert request.whole == data.partition(b"\r\n\r\n")[2]
        assert read_plain(data, 100, _never) is None


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_requests_are_the_same_however_they_are_cut(
    monkeypatch: pytest.MonkeyPatch, cuts: list[int]
) -> None:
    monkeypatch.setattr(http_kit, "host", "native")
    data = b"".join(post("tools/list", number) for number in range(4))

    async def main() -> None:
        async with running() as server, server.connect() as peer:
            rest = data
            for cut in cuts:
                await peer.stream.send_all(rest[:cut])
                await trio.lowlevel.checkpoint()
                rest = rest[cut:]
            await peer.stream.send_all(rest)
            await _answers(peer)

    trio.run(main)


async def _answers(peer: Peer) -> None:
    assert [(await peer.response()).json()["id"] for _ in range(4)] == [0, 1, 2, 3]


# Running lazily


async def _observe(coroutine: Any) -> tuple[Any, int]:
    calls: list[None] = []
    result = await run_lazily(coroutine, lambda: calls.append(None))
    return result, len(calls)


@pytest.mark.parametrize(
    ("work", "waits"),
    [
        (trio.lowlevel.cancel_shielded_checkpoint, 0),
        (trio.lowlevel.checkpoint, 0),
        (partial(trio.sleep, 0.001), 1),
        (partial(trio.to_thread.run_sync, int), 1),
    ],
)
async def test_only_waiting_counts(work: Callable[[], Any], waits: int) -> None:
    async def run() -> str:
        await work()
        await work()
        return "done"

    assert await _observe(run()) == ("done", waits)


async def test_many_turns_count() -> None:
    async def run() -> None:
        for _ in range(MAX_TURNS + 5):
            await trio.lowlevel.checkpoint()

    assert await _observe(run()) == (None, 1)


async def test_exceptions_and_cancellation_pass_through() -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await _observe(fail())
    seen: list[str] = []

    async def wait() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            seen.append("cancelled")
            raise

    with trio.move_on_after(0.01) as scope:
        await _observe(wait())
    assert scope.cancelled_caught
    assert seen == ["cancelled"]


def test_what_is_thrown_in_reaches_the_coroutine() -> None:
    async def catch() -> str:
        try:
            await trio.lowlevel.cancel_shielded_checkpoint()
        except ValueError:
            return "caught"
        return "not"

    lazily = run_lazily(catch(), lambda: None)
    lazily.send(None)
    with pytest.raises(StopIteration) as stop:
        lazily.throw(ValueError())
    assert stop.value.value == "caught"
