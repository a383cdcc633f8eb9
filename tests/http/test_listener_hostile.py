"""Many hostile clients of the native listener at once: a stream beside them must not notice."""

import contextlib
import errno
import gc
import os
import resource
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import http_kit
import pytest
import trio
from http_kit import Peer, Running, note, post, running, until

from mcp_trio.http._connections import MAX_RECEIVE, MAX_WAITING
from mcp_trio.http.monitor import HttpMonitor

MIB = 2**20
SOON = 5.0
"""Seconds in which a bystander hears what is published, however busy the others are.

It takes milliseconds; the rest is for machines that have other things to do.
"""


@pytest.fixture(autouse=True)
def _natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_kit, "host", "native")


@contextmanager
def allocated() -> Iterator[Callable[[], int]]:
    """How many bytes more this process has than at the beginning of the block."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@asynccontextmanager
async def besieged(
    server: Running, count: int, attack: Callable[[Peer], Awaitable[object]]
) -> AsyncIterator[None]:
    """Have so many clients do the same to the server, beside a block."""

    async def hostile() -> None:
        with contextlib.suppress(OSError, trio.BrokenResourceError, EOFError):
            async with server.connect() as peer:
                await attack(peer)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(hostile)
        await trio.sleep(0.05)
        yield
        nursery.cancel_scope.cancel()


async def unharmed(server: Running, bystander: Peer) -> None:
    """Look whether an open stream hears at once, and a new client is served."""
    with trio.fail_after(SOON):
        server.handler.publish(note("n", hello="bystander"))
        while (await bystander.event())["params"].get("hello") != "bystander":
            pass
    async with server.connect() as peer:
        with trio.fail_after(SOON):
            assert (await peer.request(post("tools/list"))).status == 200


async def drip(peer: Peer, data: bytes) -> None:
    """Send a byte now and then, whatever is answered."""
    for byte in data:
        await peer.stream.send_all(bytes([byte]))
        await trio.sleep(0.05)


async def slow_head(peer: Peer) -> None:
    await drip(peer, post("tools/list"))


async def slow_blank_lines(peer: Peer) -> None:
    await drip(peer, b"\r\n" * 1000)


async def slow_body(peer: Peer) -> None:
    head, _, body = post("tools/list", padding=1000).partition(b"\r\n\r\n")
    await peer.stream.send_all(head + b"\r\n\r\n")
    await drip(peer, body)


async def slow_chunks(peer: Peer) -> None:
    head = post("tools/list").partition(b"content-length")[0]
    await peer.stream.send_all(head + b"transfer-encoding: chunked\r\n\r\n")
    await drip(peer, b"1\r\n \r\n" * 1000)


async def half_open(peer: Peer) -> None:
    """Send half a request, and that this is all; then stay."""
    await peer.stream.send_all(post("tools/list")[:-5])
    await peer.stream.send_eof()
    await trio.sleep_forever()


async def silence(peer: Peer) -> None:
    await peer.eof()


async def tls_hello(peer: Peer) -> None:
    await peer.stream.send_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 60)
    await peer.eof()


@pytest.mark.parametrize(
    "attack",
    [slow_head, slow_blank_lines, slow_body, slow_chunks, half_open, silence, tls_hello],
    ids=lambda attack: attack.__name__,
)
async def test_those_who_take_their_time_are_cut_and_delay_nobody(
    attack: Callable[[Peer], Awaitable[object]],
) -> None:
    """W85: limits on time are for the whole, so that a byte now and then prolongs nothing."""
    monitor = HttpMonitor()
    limits: dict[str, Any] = dict.fromkeys(("head_timeout", "idle_timeout", "body_timeout"), 1.0)
    async with (
        running(monitor=monitor, **limits) as server,
        server.connect() as bystander,
    ):
        await bystander.listen()
        async with besieged(server, 100, attack):
            await unharmed(server, bystander)
            # The answer to who is still sending waits a second for the client to see it.
            await until(lambda: monitor.statistics().connections == 1)
            await unharmed(server, bystander)
        assert monitor.statistics().accepted > 100
        assert not server.handler.requests


async def test_requests_without_end_from_many_delay_nobody() -> None:
    async def ask(peer: Peer) -> None:
        requests = post("tools/list") * 50
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.eof)
            while True:
                await peer.stream.send_all(requests)

    async with running() as server, server.connect() as bystander:
        await bystander.listen()
        async with besieged(server, 20, ask):
            for _ in range(3):
                await unharmed(server, bystander)


async def test_answers_that_nobody_reads_hold_no_memory() -> None:
    """Who sends requests and reads no answers is read from for a while, and then cut."""
    monitor = HttpMonitor()

    async def ask(peer: Peer) -> None:
        requests = post("tools/call", name="echo", arguments={"bytes": 200_000}) * 10
        with contextlib.suppress(trio.BrokenResourceError):
            while True:
                await peer.stream.send_all(requests)
        await trio.sleep_forever()

    async with running(monitor=monitor) as server, server.connect() as bystander:
        await bystander.listen()
        with allocated() as more:
            async with besieged(server, 20, ask):
                for _ in range(5):
                    await unharmed(server, bystander)
                    # Each: one answer, in a few copies, and what may wait behind its request.
                    assert more() < 20 * (3 * 200_000 + MAX_WAITING + MAX_RECEIVE) + MIB
                await until(lambda: monitor.statistics().connections == 1)
                await unharmed(server, bystander)


async def test_connections_up_to_the_limit_and_above_it() -> None:
    """Those who were there first are served on; when they leave there is room again."""
    monitor = HttpMonitor()
    async with (
        running(monitor=monitor, max_connections=52) as server,
        server.connect() as bystander,
        server.connect() as known,
    ):
        await bystander.listen()
        await known.request(post("tools/list"))
        async with besieged(server, 50, silence):
            await until(lambda: monitor.statistics().connections == 52)
            for _ in range(3):
                async with besieged(server, 200, silence):
                    server.handler.publish()
                    with trio.fail_after(SOON):
                        assert await bystander.event()
                        assert (await known.request(post("tools/list"))).status == 200
            await until(lambda: monitor.statistics().connections == 52)
            assert monitor.statistics().refused == 600
        await until(lambda: monitor.statistics().connections == 2)
        await unharmed(server, bystander)


async def test_a_process_without_descriptors_left_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who cannot be accepted waits; nobody who is there is touched."""
    async with (
        running(max_connections=1000) as server,
        server.connect() as bystander,
        contextlib.AsyncExitStack() as stack,
    ):
        await bystander.listen()
        clients = [stack.enter_context(trio.socket.socket()) for _ in range(20)]
        await trio.sleep(0.05)
        with few_descriptors():
            for client in clients:
                await client.connect(("127.0.0.1", server.port))
            await until(lambda: "retrying" in caplog.text)
            server.handler.publish()
            assert await bystander.event()
        for client in clients:
            client.close()
        await unharmed(server, bystander)
    assert os.strerror(errno.EMFILE) in caplog.text


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Let this process open five files more, and no others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    spare = [os.dup(0) for _ in range(highest + 1 - len(os.listdir("/proc/self/fd")))]  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 6, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in spare:
            os.close(each)


async def test_readers_that_stop_hold_no_more_than_is_queued_for_them() -> None:
    """W20, W31: what a stalled client is sent waits with its handler, not in the listener."""
    monitor = HttpMonitor()
    frame = note("notifications/x", padding="x" * 60_000)
    async with (
        running(monitor=monitor, send_deadline=0.7) as server,
        server.connect() as bystander,
        contextlib.AsyncExitStack() as stack,
    ):
        await bystander.listen()
        stalled = [await stack.enter_async_context(server.connect(4096)) for _ in range(30)]
        for peer in stalled:
            await peer.listen()
        exchanges = server.handler.exchanges[1:]
        with allocated() as more:
            for _ in range(300):
                for exchange in exchanges:
                    exchange.send_nowait(frame)
                await trio.lowlevel.checkpoint()
            # At most the rest of one frame for each: what does not fit is the publisher's.
            assert more() < 30 * 2 * len(frame) + MIB
        await unharmed(server, bystander)
        await until(lambda: monitor.statistics().cut == 30)
        await until(lambda: len(server.handler.streams) == 1)
        await unharmed(server, bystander)
