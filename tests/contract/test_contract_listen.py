"""Subscriptions, over every transport: what is granted, what is heard, and how it ends."""

import json
from typing import Any

import pytest
import trio
from wire_http import HttpExchange
from wire_kit import (
    ACKNOWLEDGED,
    SUBSCRIPTION_ID,
    LineWire,
    Open,
    acknowledgement,
    call,
    cancelled,
    end_of,
    exactly,
    listen,
    text_of,
    tools_changed,
    updated,
)

from mcp_trio.protocol import meta
from mcp_trio.testing import request
from mcp_trio.transports.abc import Principal


async def test_a_subscription_holds_up_nothing(connect: Open) -> None:
    """W01: requests are answered beside it, and its cancellation is seen."""
    async with connect() as client:
        stream = await client.listen(1, toolsListChanged=True)
        assert "result" in await client.ask(request(2, "tools/list"))
        await stream.cancel()
        assert "result" in await client.ask(request(3, "tools/list"))
        await client.until_subscriptions(0, within=1)


async def test_a_subscription_and_all_about_it_in_one_write(connect_by_lines: Open) -> None:
    """W01, W18: listen, request, cancellation, request, before anything has been answered."""
    async with connect_by_lines() as client:
        assert isinstance(client, LineWire)
        messages = [request(2, "tools/list"), request(3, "tools/list")]
        two, three = (client.expect(message) for message in messages)
        stream = client.expect(listen(1, toolsListChanged=True))
        await client.send(listen(1, toolsListChanged=True), messages[0], cancelled(1), messages[1])
        assert (await two.next())["id"] == 2
        assert (await three.next())["id"] == 3
        assert await client.subscriptions() == 0
        # It was cancelled before or after it was acknowledged; nothing else can have come.
        assert list(stream.frames) in ([], [acknowledgement(1, toolsListChanged=True)])


async def test_the_acknowledgement_is_first_whatever_is_published(connect: Open) -> None:
    """W02, S-02, S-06: many openings while changes come all the time, and none is lost."""
    async with connect() as client:
        opened = trio.Event()

        async def publish() -> None:
            while not opened.is_set():
                await client.call("publish", uri="x:a")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            streams = []
            for number in range(30):
                streams.append(await client.start(listen(number, resourceSubscriptions=["x:a"])))
            for number, stream in enumerate(streams):
                granted = acknowledgement(number, resourceSubscriptions=["x:a"])
                assert await stream.next() == granted
            opened.set()
        await client.call("publish", uri="x:a")
        for number, stream in enumerate(streams):
            assert await stream.next() == updated(number, "x:a")


async def test_a_change_while_the_acknowledgement_waits_follows_it(connect_by_lines: Open) -> None:
    """W02, S-06: the channel is full when the subscription opens and when something changes."""
    async with connect_by_lines() as client:
        assert isinstance(client, LineWire)
        await client.call("echo", text="a process has started")
        client.stop_reading()
        big = await client.start(call("big", "big", bytes=1_000_000))
        stream = await client.start(listen(1, resourceSubscriptions=["x:a"]))
        publishes = []
        for number in range(5):
            # Nothing can be seen from here, but one of these will be after the registration.
            await trio.sleep(0.01)
            publishes.append(await client.start(call(f"p{number}", "publish", uri="x:a")))
        await trio.sleep(0.01)
        client.go_on_reading()
        assert len(text_of(await big.next())) == 1_000_000
        for publish in publishes:
            assert text_of(await publish.next()) == "published 1"
        assert await stream.next() == acknowledgement(1, resourceSubscriptions=["x:a"])
        assert await stream.next() == updated(1, "x:a")


async def test_a_change_before_the_acknowledgement_is_read(connect_twice: Open) -> None:
    """W02, S-06: published by another client before this one has read anything."""
    async with connect_twice() as client, client.another() as other:
        stream = await client.start(listen(1, resourceSubscriptions=["x:a"]))
        await other.until_subscriptions(1)
        await other.call("publish", uri="x:a")
        assert await stream.next() == acknowledgement(1, resourceSubscriptions=["x:a"])
        assert await stream.next() == updated(1, "x:a")


async def test_ended_by_the_server(connect: Open) -> None:
    """W32, W33, S-81, S-82, S-83: from inside a handler; each result is the last of its stream.

    What follows on a channel of lines is `notifications/cancelled`, elsewhere the end of the
    stream: `rest` looks. The server goes on, and so may its clients.
    """
    async with connect() as client:
        streams = [await client.listen(number, toolsListChanged=True) for number in range(3)]
        await client.call("touch_tools")
        assert await client.call("hang_up") == "ended 3 subscriptions"
        for number, stream in enumerate(streams):
            *before, result = await stream.rest()
            assert before == [tools_changed(number)]
            assert end_of(result) == (number, "complete")
        assert await client.subscriptions() == 0
        stream = await client.listen(0, toolsListChanged=True)
        await client.call("touch_tools")
        assert await stream.next() == tools_changed(0)


async def test_nothing_granted(connect: Open) -> None:
    """W34, S-40, S-47: an empty acknowledgement, the result, and the end."""
    async with connect("narrow") as client:
        wanted: dict[str, Any] = {"promptsListChanged": True, "resourceSubscriptions": ["x:a"]}
        for number, filter_ in enumerate(({}, wanted, {"toolsListChanged": False})):
            stream = await client.start(listen(number, **filter_))
            granted, result = await stream.rest()
            assert granted == acknowledgement(number)
            assert end_of(result) == (number, "nothing-granted")
        assert await client.subscriptions() == 0
        stream = await client.start(listen(9, toolsListChanged=True, **wanted))
        assert await stream.next() == acknowledgement(9, toolsListChanged=True)


async def test_nobody_can_subscribe(connect: Open) -> None:
    """W35, S-09: nothing is advertised, and the method is unknown."""
    async with connect("deaf") as client:
        response = await client.ask(request(1, "server/discover"))
        assert response["result"]["capabilities"] == {"logging": {}, "tools": {}}
        exchange = await client.start(listen(2, toolsListChanged=True))
        [response] = await exchange.rest()
        assert response["error"]["code"] == -32601
        if isinstance(exchange, HttpExchange):
            assert exchange.status == 404


@pytest.mark.parametrize("kind", ["everything", "narrow"])
async def test_what_is_advertised_is_what_is_granted(connect: Open, kind: str) -> None:
    """W35: `server/discover` and the acknowledgement say the same."""
    async with connect(kind) as client:
        response = await client.ask(request(1, "server/discover"))
        offered = response["result"]["capabilities"]
        stream = await client.start(
            listen(
                2,
                toolsListChanged=True,
                promptsListChanged=True,
                resourcesListChanged=True,
                resourceSubscriptions=["x:a"],
            )
        )
        granted = (await stream.next())["params"]["notifications"]
        assert granted.get("toolsListChanged", False) == offered["tools"]["listChanged"]
        for what in ("prompts", "resources"):
            said = offered.get(what, {}).get("listChanged", False)
            # What there is none of yet is not advertised, and can still appear.
            assert granted.get(f"{what}ListChanged", False) >= said
        subscribe = offered.get("resources", {}).get("subscribe", False)
        assert ("resourceSubscriptions" in granted) == subscribe


async def test_more_subscriptions_than_there_may_be(connect: Open) -> None:
    """W34, S-41: an error before any acknowledgement, and a slot that is given back serves."""
    async with connect("strict") as client:
        streams = [await client.listen(number, toolsListChanged=True) for number in range(2)]
        exchange = await client.start(listen(2, toolsListChanged=True))
        [refusal] = await exchange.rest()
        assert refusal["error"]["code"] == -32603
        if isinstance(exchange, HttpExchange):
            assert exchange.status == 503
            assert int(exchange.headers["retry-after"]) >= 1
        await streams[0].cancel()
        await client.until_subscriptions(1)
        await client.listen(2, toolsListChanged=True)


async def test_only_what_was_asked_for(connect: Open) -> None:
    """W36, S-05: other types, `false` and foreign URIs are never heard; each change once."""
    async with connect() as client:
        streams = {
            "tools": await client.listen("tools", toolsListChanged=True),
            "prompts": await client.listen("prompts", promptsListChanged=True),
            "uri": await client.listen("uri", resourceSubscriptions=["x:a", "x:c"]),
        }
        asked = {"toolsListChanged": False, "resourceSubscriptions": ["x:b"]}
        other = streams["other"] = await client.start(listen("other", **asked))
        assert await other.next() == acknowledgement("other", resourceSubscriptions=["x:b"])
        await client.call("touch_tools")
        assert await streams["tools"].next() == tools_changed("tools")
        for uri in ("x:a", "x:A", "x:", "x:a/", "x:aa", "x:d"):
            await client.call("publish", uri=uri)
        assert await streams["uri"].next() == updated("uri", "x:a")
        # What comes next is what is published next: nothing else was on its way.
        await client.call("publish", uri="x:c")
        assert await streams["uri"].next() == updated("uri", "x:c")
        await client.call("publish", uri="x:b")
        assert await other.next() == updated("other", "x:b")
        await client.call("hang_up")
        for name, stream in streams.items():
            [result] = await stream.rest()
            assert end_of(result) == (name, "complete")


async def test_without_a_subscription_nothing_is_heard(connect_by_lines: Open) -> None:
    """W36: on a channel that could carry it; `leave` finds what comes astray."""
    async with connect_by_lines() as client:
        await client.call("touch_tools")
        await client.call("publish", uri="note://a")
        await client.call("echo", text="x")


BAD_FILTERS: list[Any] = [
    {},
    {"notifications": None},
    {"notifications": []},
    {"notifications": "all"},
    {"notifications": {"toolsListChanged": "yes"}},
    {"notifications": {"promptsListChanged": 1}},
    {"notifications": {"resourcesListChanged": None}},
    {"notifications": {"resourceSubscriptions": "note://a"}},
    {"notifications": {"resourceSubscriptions": {"note://a": True}}},
    {"notifications": {"resourceSubscriptions": [1]}},
    {"notifications": {"resourceSubscriptions": ["not a uri"]}},
    {"notifications": {"resourceSubscriptions": [f"x:{n}" for n in range(1001)]}},
    {"notifications": {"resourceSubscriptions": ["x:a"] * 100_000}},
]


@pytest.mark.parametrize("params", BAD_FILTERS, ids=range(len(BAD_FILTERS)))
async def test_bad_filters(connect: Open, params: dict[str, Any]) -> None:
    """W37, S-01, S-10, S-41: an error at once, no stream, and no slot that stays taken."""
    async with connect() as client:
        exchange = await client.start(request(1, "subscriptions/listen", params))
        [response] = await exchange.rest()
        assert response["error"]["code"] == -32602
        assert await client.subscriptions() == 0
        if isinstance(exchange, HttpExchange):
            assert exchange.status == 400
            assert exchange.headers["content-type"] == "application/json"


async def test_filters_that_are_read_with_goodwill(connect: Open) -> None:
    """W37, S-42, S-43: unknown fields, duplicates, `false` and empty lists."""
    async with connect() as client:
        asked = {
            "futureThing": {"a": [1]},
            "toolsListChanged": True,
            "promptsListChanged": False,
            "resourceSubscriptions": ["x:b", "x:a", "x:b"],
        }
        stream = await client.start(listen(1, **asked))
        granted = {"toolsListChanged": True, "resourceSubscriptions": ["x:b", "x:a"]}
        assert exactly(await stream.next()) == exactly(acknowledgement(1, **granted))
        stream = await client.start(listen(2, toolsListChanged=True, resourceSubscriptions=[]))
        assert await stream.next() == acknowledgement(2, toolsListChanged=True)
        many = [f"x:{number}" for number in range(1000)]
        assert await client.listen(3, resourceSubscriptions=many)


URIS = [
    "HTTP://EXAMPLE.com:80",
    "http://example.com:80/",
    "http://example.com/a/../b",
    "note://A",
    "file:///a%20b",
    "file:///a%2fb",
    "x:é",
    "x:e\u0301",
    "x:\u2028🎉",
    "x:a b",
    "x:?",
    "x:#",
]


async def test_a_uri_is_the_string_that_it_is(connect: Open) -> None:
    """W38: never normalised: not in the acknowledgement, not in an update, not to compare."""
    async with connect() as client:
        stream = await client.listen(1, resourceSubscriptions=URIS)
        for near in ("http://example.com:80", "note://a", "file:///a b", "x:É", "x:", "x:a%20b"):
            await client.call("publish", uri=near)
        for uri in URIS:
            await client.call("publish", uri=uri)
            assert exactly(await stream.next()) == exactly(updated(1, uri))


async def test_progress_is_no_part_of_a_subscription(connect: Open) -> None:
    """W39, S-11: it travels with its own request and carries no subscription id."""
    async with connect("more") as client:
        stream = await client.listen(1, toolsListChanged=True)
        message = call(2, "count", to=3)
        message["params"]["_meta"]["progressToken"] = 1
        *reports, response = await (await client.start(message)).rest()
        assert [report["params"]["progress"] for report in reports] == [1, 2, 3]
        assert SUBSCRIPTION_ID not in json.dumps([reports, response])
        await client.call("hang_up")
        [result] = await stream.rest()
        assert end_of(result) == (1, "complete")


async def test_whoever_publishes_everybody_hears_it(connect_twice: Open) -> None:
    """W65: from a call of another client, from a thread, before anybody listens and after."""
    async with connect_twice("more") as client, client.another() as other:
        await other.call("publish", uri="x:a")
        await other.call("publish_from_thread", uri="x:a")
        streams = [
            await each.listen(number, resourceSubscriptions=["x:a"])
            for number, each in enumerate((client, client, other))
        ]
        for publish in ("publish", "publish_from_thread"):
            await other.call(publish, uri="x:a")
            for number, stream in enumerate(streams):
                assert await stream.next() == updated(number, "x:a")
        for stream in streams:
            await stream.cancel()
        await client.until_subscriptions(0)
        await other.call("publish", uri="x:a")


async def test_a_thread_publishes_in_a_process_of_its_own(connect_by_stdio: Open) -> None:
    """W65."""
    async with connect_by_stdio("more") as client:
        await client.call("publish_from_thread", uri="x:a")
        stream = await client.listen(1, resourceSubscriptions=["x:a"])
        await client.call("publish_from_thread", uri="x:a")
        assert await stream.next() == updated(1, "x:a")


@pytest.mark.parametrize("leaving", ["cancel", "reset"])
async def test_first_and_last_interest_in_a_uri(connect: Open, leaving: str) -> None:
    """W66: two subscriptions to one URI begin it once; the end of both ends it once."""
    async with connect("strict") as client:
        begun = len(json.loads(await client.call("heard_of")))
        one = await client.listen(1, resourceSubscriptions=["x:a"])
        two = await client.listen(2, resourceSubscriptions=["x:a", "x:b"])
        await one.cancel()
        await client.until_subscriptions(1)
        if leaving == "reset" and isinstance(two, HttpExchange):
            two.reset()
        else:
            await two.cancel()
        await client.until_subscriptions(0)
        heard = json.loads(await client.call("heard_of"))[begun:]
        assert heard[:2] == [["x:a", True], ["x:b", True]]
        assert sorted(heard[2:]) == [["x:a", False], ["x:b", False]]


async def test_a_uri_that_is_not_for_the_caller(connect: Open) -> None:
    """W68, S-40, S-45: left out like one never asked for, and never heard of."""
    async with connect("strict") as client:
        wanted = ["secret:a", "x:b", "secret:c"]
        stream = await client.start(listen(1, resourceSubscriptions=wanted))
        assert await stream.next() == acknowledgement(1, resourceSubscriptions=["x:b"])
        for uri in wanted:
            await client.call("publish", uri=uri)
        assert await stream.next() == updated(1, "x:b")
        await client.call("publish", uri="x:b")
        assert await stream.next() == updated(1, "x:b")
        stream = await client.start(listen(2, resourceSubscriptions=["secret:a"]))
        granted, result = await stream.rest()
        assert granted == acknowledgement(2)
        assert end_of(result) == (2, "nothing-granted")


@pytest.mark.parametrize("connect_twice", ["memory", "lines"], indirect=True)
async def test_a_subscription_ends_with_the_credentials(connect_twice: Open) -> None:
    """W68: with its result, and the reason in it. HTTP has no principals yet."""
    principal = Principal("somebody", expires_at=trio.current_time() + 0.1)
    async with connect_twice(principal=principal) as client:
        stream = await client.listen(1, toolsListChanged=True)
        [result] = await stream.rest()
        assert end_of(result) == (1, "expired")
        assert trio.current_time() >= principal.expires_at


async def test_task_ids_need_the_extension(connect: Open) -> None:
    """W55, S-46: the error names what the client would have to declare."""
    async with connect() as client:
        exchange = await client.start(listen(1, taskIds=["t"]))
        [response] = await exchange.rest()
        assert response["error"]["code"] == -32021
        required = response["error"]["data"]["requiredCapabilities"]
        assert required == {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        if isinstance(exchange, HttpExchange):
            assert exchange.status == 400


async def test_opened_and_closed(connect: Open) -> None:
    """W42: in the way of each transport, and the server's count is zero again."""
    async with connect() as client:
        for number in range(20):
            stream = await client.listen(number, toolsListChanged=True)
            await stream.cancel()
        await client.until_subscriptions(0, within=1)


def test_the_words_of_this_suite() -> None:
    """What the tests say by hand is what the package says."""
    assert acknowledgement(1)["method"] == ACKNOWLEDGED
    assert meta.META_SUBSCRIPTION_ID == SUBSCRIPTION_ID
