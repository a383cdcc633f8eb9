"""Clients that do not read, many requests at once, and what all of that costs."""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from wire_http import HttpWire
from wire_kit import (
    ACKNOWLEDGED,
    Frame,
    LineWire,
    Open,
    StdioWire,
    WireClient,
    WireExchange,
    call,
    listen,
    text_of,
    tools_changed,
    updated,
)

from mcp_trio import ResourceUpdated

MIB = 2**20


def stop_reading(client: WireClient) -> None:
    """Leave everything where it is; without lines a client does so until `next` is called."""
    if isinstance(client, LineWire):
        client.stop_reading()


def go_on_reading(client: WireClient) -> None:
    """Read again."""
    if isinstance(client, LineWire):
        client.go_on_reading()


def resident(client: StdioWire) -> int:
    """How many bytes of memory the server process has."""
    for line in Path(f"/proc/{client.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("unreachable: every process has memory")


@contextmanager
def allocated() -> Iterator[Callable[[], int]]:
    """How many bytes more this process has than at the beginning of the block."""
    gc.collect()
    tracemalloc.start()
    try:

        def grown() -> int:
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        yield grown
    finally:
        tracemalloc.stop()


@pytest.fixture
def connect_slowly(connect_twice: Open, request: pytest.FixtureRequest) -> Open:
    """Where systems in between hold little for a client that does not read."""

    def connect(**options: Any) -> AbstractAsyncContextManager[WireClient]:
        if "http" in request.node.callspec.id:
            options["receive_buffer"] = 4096
        return connect_twice(**options)

    return connect


async def read_until(stream: WireExchange, uri: str) -> list[str]:
    """The URIs of the updates that come up to one of them."""
    uris: list[str] = []
    while not uris or uris[-1] != uri:
        frame = await stream.next()
        uris.append(frame["params"]["uri"])
    return uris


async def test_a_reader_that_stops(connect_slowly: Open) -> None:
    """W20, S-61, S-63, S-65: it delays no publisher, and no other client.

    It costs no more than its filter, and when it reads again it gets all it has missed, once.
    """
    rounds, count = 40, 100
    async with connect_slowly() as other, other.another() as client:
        assert other.server is not None
        assert other.server.hub is not None
        publish = other.server.hub.publish
        names = [f"x:{number}/{'a' * 8000}" for number in range(count)]
        stalled = await client.listen(1, resourceSubscriptions=[*names, "x:end"])
        witness = await other.listen(2, resourceSubscriptions=["x:tick"])
        stop_reading(client)
        with allocated() as grown:
            for _ in range(rounds):
                for uri in names:
                    publish(ResourceUpdated(f"{uri}"))
                publish(ResourceUpdated("x:tick"))
                assert await witness.next() == updated(2, "x:tick")
            # What waits, and its encoded form; what was published is 32 MB.
            assert grown() < 4 * count * 8000
            report = other.server.hub.statistics()
            assert report.queued == count
            assert report.dropped == 0
        go_on_reading(client)
        publish(ResourceUpdated("x:end"))
        *uris, _ = await read_until(stalled, "x:end")
        # First what was on its way when it stopped, and then each of them once.
        assert sorted(uris[-count:]) == sorted(names)
        assert len(uris) < rounds * count
        publish(ResourceUpdated("x:end"))
        assert await read_until(stalled, "x:end") == ["x:end"]


async def test_a_reader_that_stops_in_front_of_a_process(connect_by_stdio: Open) -> None:
    """W20, W21, S-65: requests are still served while none of their answers is read."""
    rounds, count = 300, 50
    async with connect_by_stdio(keep=False) as client:
        assert isinstance(client, StdioWire)
        base = f"x:{'a' * 8000}/"
        names = [f"{base}{number}" for number in range(count)]
        stream = await client.listen(1, resourceSubscriptions=[*names, "x:end"])
        for number in range(3):  # what a process takes once
            await client.call("publish", uri=f"y{base}{number}", count=count)
        cancelled = int(await client.read("test://cancelled"))
        before = resident(client)
        client.stop_reading()
        calls = [
            await client.start(call(f"p{number}", "publish", uri=base, count=count))
            for number in range(rounds)
        ]
        slow = await client.start(call("slow", "slow", seconds=60))
        await slow.cancel()
        # The requests alone are 2.4 MB, and what they publish is 120 MB.
        assert resident(client) - before < 12 * MIB
        client.go_on_reading()
        for exchange in calls:
            assert text_of(await exchange.next()) == f"published {count}"
        assert int(await client.read("test://cancelled")) == cancelled + 1
        await client.call("publish", uri="x:end")
        *uris, _ = await read_until(stream, "x:end")
        assert sorted(uris[-count:]) == sorted(names)
        assert len(uris) < rounds * count


async def test_a_stream_that_stalls_lets_others_of_its_client_go_on(connect_by_http: Any) -> None:
    """W20, W41: over HTTP each has a connection of its own, so it stalls alone."""
    async with connect_by_http(receive_buffer=4096) as client:
        uri = f"x:{'a' * 8000}"
        await client.listen(1, resourceSubscriptions=[f"{uri}{n}" for n in range(50)])
        fine = await client.listen(2, resourceSubscriptions=["x:b"])
        for number in range(100):
            await client.call("publish", uri=uri, count=50)
            await client.call("publish", uri="x:b")
            assert await fine.next() == updated(2, "x:b"), number


async def test_a_stalled_reader_that_leaves(connect_slowly: Open) -> None:
    """W03, W20: it is noticed although a write to it is stuck."""
    async with connect_slowly() as other, other.another() as client:
        assert other.server is not None
        assert other.server.hub is not None
        names = [f"x:{number}/{'a' * 8000}" for number in range(100)]
        stalled = await client.listen(1, resourceSubscriptions=names)
        stop_reading(client)
        for _ in range(10):
            for uri in names:
                other.server.hub.publish(ResourceUpdated(uri))
            await other.call("echo", text="x")
        assert other.server.hub.statistics().queued
        await stalled.cancel()
        await other.until_subscriptions(0, within=1)
        go_on_reading(client)
        assert other.server.hub.statistics().queued == 0


async def test_a_reader_that_is_too_slow_is_cut(connect_by_http: Any) -> None:
    """W20, W31: one that takes nothing for longer than the deadline; one that is slow is not."""
    async with connect_by_http(receive_buffer=4096, send_deadline=0.3) as client:
        assert client.server.hub is not None
        names = [f"x:{number}/{'a' * 8000}" for number in range(100)]
        await client.listen(1, resourceSubscriptions=names)
        slow = await client.listen(2, resourceSubscriptions=[*names, "x:end"])
        for _ in range(10):
            for uri in names:
                client.server.hub.publish(ResourceUpdated(uri))
            await trio.lowlevel.checkpoint()
        begun = trio.current_time()
        for _ in range(len(names) // 5):
            for _ in range(5):
                await slow.next()
            await trio.sleep(0.03)
        assert trio.current_time() - begun > 0.3
        assert await client.subscriptions() == 1
        client.server.hub.publish(ResourceUpdated("x:end"))
        assert (await read_until(slow, "x:end"))[-1] == "x:end"


# Many at once


async def test_answers_that_nobody_reads_until_all_is_asked(connect: Open) -> None:
    """W21: two hundred calls of 64 KiB, and requests that report progress, all answered once."""
    async with connect("more") as client:
        await client.call("echo", text="x")
        stop_reading(client)
        exchanges = []
        for number in range(200):
            exchanges.append(await client.start(call(number, "big", bytes=65536)))
        for number in range(200, 250):
            message = call(number, "count", to=10)
            message["params"]["_meta"]["progressToken"] = number
            exchanges.append(await client.start(message))
        go_on_reading(client)
        for number, exchange in enumerate(exchanges):
            *reports, response = await exchange.rest()
            assert response["id"] == number
            assert len(reports) == (0 if number < 200 else 10)
            assert len(text_of(response)) == (65536 if number < 200 else len("counted"))


async def test_everything_at_once(connect: Open) -> None:
    """W01, W18, W21: subscriptions, calls, cancellations and changes, for a while, side by side."""
    async with connect() as client:
        stream = await client.listen("all", toolsListChanged=True)
        before = int(await client.read("test://cancelled"))

        async def live(number: int) -> None:
            for turn in range(5):
                own = await client.listen(f"s{number}-{turn}", resourceSubscriptions=["x:a"])
                slow = await client.start(call(f"c{number}-{turn}", "slow", seconds=60))
                await client.call("publish", uri="x:a")
                assert await own.next() == updated(f"s{number}-{turn}", "x:a")
                await slow.cancel()
                await own.cancel()

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(live, number)
        await client.until_subscriptions(1)
        with trio.fail_after(5):
            while int(await client.read("test://cancelled")) != before + 50:
                await trio.sleep(0.005)
        await client.call("touch_tools")
        assert await stream.next() == tools_changed("all")


# What a subscription keeps


def padded(number: int) -> Frame:
    """A `subscriptions/listen` of 100 kB, which asks for next to nothing."""
    message = listen(number, toolsListChanged=True)
    message["params"]["padding"] = [f"{number}-{n}-" + "x" * 1000 for n in range(50)]
    message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] = {
        "name": "c",
        "version": "1",
        "description": "x" * 25_000,
    }
    message["params"]["_meta"]["padding"] = "y" * 25_000
    return message


def plain(number: int) -> Frame:
    """The same without the 100 kB."""
    return listen(number, toolsListChanged=True)


async def open_many(
    client: WireClient, numbers: range, message: Callable[[int], Frame]
) -> list[WireExchange]:
    """Open subscriptions, one after the other."""
    # Over HTTP the headers are a part of the request too.
    headers = {"x_padding": "z" * 20_000} if message is padded else {}
    streams: list[WireExchange] = []
    for number in numbers:
        if isinstance(client, HttpWire):
            stream: WireExchange = await client.start(message(number), **headers)
        else:
            stream = await client.start(message(number))
        assert (await stream.next())["method"] == ACKNOWLEDGED
        streams.append(stream)
    return streams


async def test_a_subscription_keeps_nothing_of_its_request(connect_twice: Open) -> None:
    """S-23: not the body, not the headers, not what the client says of itself.

    One of 100 kB costs what any other does: in the server, and wherever else in this process.
    """
    assert 100_000 < len(json.dumps(padded(0))) < 120_000
    async with connect_twice() as client:
        streams = await open_many(client, range(10), padded)
        with allocated() as grown:
            streams += await open_many(client, range(10, 60), plain)
            price = grown()
            streams += await open_many(client, range(60, 110), padded)
            await client.call("touch_tools")
            for number, stream in enumerate(streams):
                assert await stream.next() == tools_changed(number)
            assert grown() < 2 * price + 50 * 2_000


async def test_a_process_keeps_nothing_of_a_request(connect_by_stdio: Open) -> None:
    """S-23: seen from outside, by the memory that the process has."""
    async with connect_by_stdio(keep=False) as client:
        assert isinstance(client, StdioWire)
        streams = await open_many(client, range(20), padded)
        before = resident(client)
        streams += await open_many(client, range(20, 120), padded)
        await client.call("touch_tools")
        for number, stream in enumerate(streams):
            assert await stream.next() == tools_changed(number)
        assert resident(client) - before < 4 * MIB  # of 10 MB


async def test_a_line_without_an_end_is_not_kept(connect_by_stdio: Open) -> None:
    """W23: 64 MB of it, and the process stays as it is."""
    async with connect_by_stdio(keep=False) as client:
        assert isinstance(client, StdioWire)
        await client.call("echo", text="x" * 3 * MIB)
        before = resident(client)
        for _ in range(64):
            await client.send(b"x" * MIB)
        assert resident(client) - before < 12 * MIB
        await client.send(b"\n")
        assert (await client.next_error())["error"]["code"] == -32700


async def test_refusals_that_nobody_reads_are_bounded(connect_by_stdio: Open) -> None:
    """W20, W29: a client that sends nonsense without end and reads none of the answers waits."""
    async with connect_by_stdio(keep=False) as client:
        assert isinstance(client, StdioWire)
        await client.call("echo", text="x")
        before = resident(client)
        client.stop_reading()
        nonsense = b"x" * 50 + b"\n"
        sent = 0
        with trio.move_on_after(1):
            while sent < 400_000:
                await client._wire.send(nonsense * 1000)
                sent += 1000
        assert sent < 400_000
        assert resident(client) - before < 12 * MIB
        client.process.kill()
