"""Cancellation, progress and the life of a stream, over every transport."""

from typing import Any

import pytest
import trio
from wire_http import HttpExchange, HttpWire, headers_of, post
from wire_kit import (
    PROGRESS,
    Ended,
    Frame,
    LineExchange,
    LineWire,
    MemoryWire,
    Open,
    WireClient,
    WireExchange,
    call,
    cancelled,
    end_of,
    exactly,
    text_of,
    tools_changed,
)


async def until_cancelled(client: WireClient, count: int) -> None:
    """Wait until so many calls of `slow` have been cancelled; soon is what the tests ask for."""
    with trio.fail_after(1):
        while int(await client.read("test://cancelled")) != count:
            await trio.sleep(0.002)


async def heard_nothing_more(client: WireClient, exchange: WireExchange) -> None:
    """Nothing has come for a request that was cancelled, although there was time for it."""
    for _ in range(3):
        await client.call("echo", text="a round trip")
    if isinstance(exchange, LineExchange):
        assert not exchange.frames
    elif not isinstance(exchange, HttpExchange):  # whose connection is closed
        with pytest.raises(Ended):
            await exchange.next()


async def test_a_cancelled_call_ends_at_once_and_is_not_answered(connect: Open) -> None:
    """W03, W08, W18: the handler is cancelled, and whatever else is open goes on."""
    async with connect() as client:
        before = int(await client.read("test://cancelled"))
        other = await client.start(call(2, "slow", seconds=0.1))
        slow = await client.start(call(1, "slow", seconds=60))
        await client.call("echo", text="x")
        await slow.cancel()
        await until_cancelled(client, before + 1)
        await heard_nothing_more(client, slow)
        assert text_of(await other.next()) == "slept 0.1 s"


async def test_a_call_is_cancelled_in_the_breath_that_makes_it(connect_by_lines: Open) -> None:
    """W18: both in one write, many times; some may not even have begun."""
    async with connect_by_lines() as client:
        assert isinstance(client, LineWire)
        calls = [call(number, "slow", seconds=60) for number in range(50)]
        exchanges = [client.expect(message) for message in calls]
        await client.send(*(m for c in calls for m in (c, cancelled(c["id"]))))
        await client.call("echo", text="x")
        # The ids are free again, and nothing is being served but the request that asks.
        answers = [await client.ask(call(number, "echo", text="y")) for number in range(50)]
        assert [answer["id"] for answer in answers] == list(range(50))
        assert not any(exchange.frames for exchange in exchanges)


async def test_what_waits_to_be_written_is_not_written_any_more(connect_by_lines: Open) -> None:
    """W08, S-80: answers and events that wait behind others when the cancellation is read."""
    async with connect_by_lines() as client:
        assert isinstance(client, LineWire)
        streams = [await client.listen(f"s{n}", resourceSubscriptions=["x:a"]) for n in range(20)]
        await client.call("echo", text="x")
        client.stop_reading()
        big = await client.start(call("big", "big", bytes=1_000_000))
        await trio.sleep(0.02)
        publish = await client.start(call("publish", "publish", uri="x:a"))
        calls = [await client.start(call(number, "echo", text="y")) for number in range(20)]
        await trio.sleep(0.02)  # they are done, and all that is left is to write it
        await client.send(*(cancelled(exchange.id) for exchange in (*streams, *calls)))
        await trio.sleep(0.02)
        client.go_on_reading()
        assert len(text_of(await big.next())) == 1_000_000
        assert text_of(await publish.next()) == "published 1"
        for exchange in (*streams, *calls):
            await heard_nothing_more(client, exchange)


async def test_what_a_thread_returns_too_late_is_dropped(connect: Open) -> None:
    """W18: the request has ended long before its thread."""
    async with connect("more") as client:
        blocked = await client.start(call(1, "block", seconds=0.1))
        await client.call("echo", text="x")
        await blocked.cancel()
        assert await client.call("block", seconds=0.15) == "blocked"
        await heard_nothing_more(client, blocked)


@pytest.mark.parametrize("what", ["call", "subscription"])
@pytest.mark.parametrize("how", ["end", "reset", "half"])
async def test_a_client_that_leaves(connect_by_http: Any, how: str, what: str) -> None:
    """W03: a quiet stream or call, however its connection ends; nothing is ever written to it."""
    async with connect_by_http() as client:
        before = int(await client.read("test://cancelled"))
        if what == "call":
            exchange = await client.start(call(1, "slow", seconds=60))
            await client.call("echo", text="x")
        else:
            exchange = await client.listen(1, toolsListChanged=True)
        if how == "end":
            await exchange.cancel()
        elif how == "reset":
            exchange.reset()
        else:
            await exchange.stream.send_eof()
        if what == "call":
            await until_cancelled(client, before + 1)
        else:
            await client.until_subscriptions(0, within=1)


async def test_cancelling_what_is_not_there(connect_by_lines: Open) -> None:
    """W57: an id that was answered, never used, or is none; malformed ones too."""
    async with connect_by_lines() as client:
        assert isinstance(client, LineWire)
        stream = await client.listen(1, toolsListChanged=True)
        await client.ask(call(2, "echo", text="x"))
        others: list[Any] = [2, 3, None, 1.0, True, {}, []]
        await client.send(*(cancelled(other) for other in others))
        broken: list[Frame] = [{"params": {}}, {"params": []}, {"params": {"requestId": "1"}}, {}]
        for more in broken:
            await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", **more})
        await client.call("touch_tools")
        assert await stream.next() == tools_changed(1)


async def test_one_client_cannot_cancel_for_another(connect_twice: Open) -> None:
    """W88: the same id, and no effect; over HTTP the notification is accepted and ignored."""
    async with connect_twice() as client, client.another() as other:
        before = int(await client.read("test://cancelled"))
        slow = await client.start(call(1, "slow", seconds=0.2))
        stream = await client.listen(2, toolsListChanged=True)
        for request_id in (1, 2):
            if isinstance(other, LineWire):
                await other.send(cancelled(request_id))
            elif isinstance(other, HttpWire):
                for headers in ({}, {"mcp_method": None}):  # with and without it
                    accepted = await other.start(cancelled(request_id), **headers)
                    assert await accepted.head() == 202
                    await accepted.over()
            else:
                exchange = await other.start(call(request_id, "slow", seconds=60))
                await trio.testing.wait_all_tasks_blocked()
                await exchange.cancel()
        await other.call("touch_tools")
        assert await stream.next() == tools_changed(2)
        assert text_of(await slow.next()) == "slept 0.2 s"
        ours = 2 if isinstance(other, MemoryWire) else 0
        assert int(await client.read("test://cancelled")) == before + ours


async def test_nothing_is_left_of_many_subscriptions(connect: Open) -> None:
    """W19: opened and left by the hundred; counts and tasks are what they were."""
    async with connect() as client:
        await client.call("echo", text="x")
        before = trio.lowlevel.current_statistics().tasks_living
        for _ in range(10):
            streams = [await client.listen(number, toolsListChanged=True) for number in range(30)]
            assert await client.subscriptions() == 30
            for stream in streams:
                if isinstance(stream, HttpExchange) and stream.id % 2:
                    stream.reset()
                else:
                    await stream.cancel()
            await client.until_subscriptions(0)
        if client.server is not None:
            assert client.server.statistics().hub.subscriptions == 0  # type: ignore[union-attr]
            with trio.fail_after(5):
                while trio.lowlevel.current_statistics().tasks_living > before:
                    await trio.sleep(0.005)


# Progress


def with_token(message: Frame, token: object) -> Frame:
    """The request, with a progress token."""
    message["params"]["_meta"]["progressToken"] = token
    return message


def progress_of(frames: list[Frame], token: object) -> list[float]:
    """The values that were reported, all with this token."""
    for frame in frames:
        assert frame["method"] == PROGRESS
        assert exactly(frame["params"]["progressToken"]) == exactly(token)
    return [frame["params"]["progress"] for frame in frames]


@pytest.mark.parametrize("token", [0, "", "a", "0", 2**53, -1])
async def test_the_token_of_the_request_is_used(connect: Open, token: object) -> None:
    """W05, W81: as it was, with its type."""
    async with connect("more") as client:
        exchange = await client.start(with_token(call(1, "count", to=3), token))
        *reports, response = await exchange.rest()
        assert progress_of(reports, token) == [1, 2, 3]
        assert text_of(response) == "counted"


async def test_without_a_token_there_is_no_progress(connect: Open) -> None:
    """W81: also beside a request that has one; `ask` sees what else comes."""
    async with connect("more") as client:
        one = await client.start(with_token(call(1, "linger", wait=True), "t"))
        await one.next()
        assert text_of(await client.ask(call(2, "count", to=3))) == "counted"


async def test_progress_of_several_requests(connect: Open) -> None:
    """W81: each with a token of its own, all at once."""
    async with connect("more") as client:
        exchanges = [
            await client.start(with_token(call(number, "count", to=20), f"t{number}"))
            for number in range(10)
        ]
        for number, exchange in enumerate(exchanges):
            *reports, response = await exchange.rest()
            assert progress_of(reports, f"t{number}") == list(range(1, 21))
            assert response["id"] == number


async def test_progress_only_grows_and_stops_with_the_answer(connect: Open) -> None:
    """W82: what would go back, repeat, or come too late, is dropped."""
    async with connect("more") as client:
        exchange = await client.start(with_token(call(1, "count", to=5, back=True), "t"))
        *reports, _ = await exchange.rest()
        assert progress_of(reports, "t") == [1, 2, 3, 4, 5]

        exchange = await client.start(with_token(call(2, "linger"), "u"))
        *reports, _ = await exchange.rest()
        values = progress_of(reports, "u")
        assert values == list(range(1, len(values) + 1))
        await trio.sleep(0.06)  # the background task would still have something to report
        if isinstance(exchange, LineExchange):
            assert not exchange.frames


async def test_no_progress_after_a_cancellation(connect: Open) -> None:
    """W08, W82: not from a task that knows nothing of it either."""
    async with connect("more") as client:
        exchange = await client.start(with_token(call(1, "linger", wait=True), "t"))
        await exchange.next()
        await exchange.cancel()
        await client.call("echo", text="the cancellation has been read")
        if isinstance(exchange, LineExchange):
            exchange.frames.clear()
            await trio.sleep(0.06)
        await heard_nothing_more(client, exchange)


# The life of a stream


async def test_no_timeout_ends_a_quiet_stream(connect_by_http: Any) -> None:
    """W15: not one of those that bound heads, bodies and idle connections."""
    config = {"keep_alive_timeout": 0.1, "read_timeout": 1, "shutdown_timeout": 0.1}
    async with connect_by_http(config=config, body_timeout=0.1, send_deadline=0.1) as client:
        stream = await client.listen(1, toolsListChanged=True)
        await trio.sleep(0.4)
        await client.call("touch_tools")
        assert await stream.next() == tools_changed(1)


async def test_a_quiet_stream_gets_comments(connect_by_http: Any) -> None:
    """W13: for as long as it is quiet, and events and result come whole between them."""
    async with connect_by_http(keepalive=0.02) as client:
        stream = await client.listen(1, toolsListChanged=True)
        for _ in range(3):
            await stream.comment()
            await stream.comment()
            await client.call("touch_tools")
            assert await stream.next() == tools_changed(1)
        await client.call("hang_up")
        [result] = await stream.rest()
        assert end_of(result) == (1, "complete")


async def test_the_head_and_the_acknowledgement_come_at_once(connect_by_http: Any) -> None:
    """W14, W54: with headers that keep what is between from holding the stream back."""
    async with connect_by_http() as client:
        stream = await client.listen(1, toolsListChanged=True)
        assert stream.status == 200
        headers = stream.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["x-accel-buffering"] == "no"
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers.keys().isdisjoint({"content-encoding", "content-length", "mcp-session-id"})


async def test_what_follows_a_subscription_does_not_hide_its_end(connect_by_http: Any) -> None:
    """W03: another request, or an empty line, behind it on the connection."""
    async with connect_by_http() as client:
        for more in (b"\r\n", post(b"{}", headers_of(call(2, "echo", text="x")))):
            stream = await client.listen(1, toolsListChanged=True)
            await stream.stream.send_all(more)
            await client.call("touch_tools")
            assert await stream.next() == tools_changed(1)
            await stream.cancel()
            await client.until_subscriptions(0, within=1)
