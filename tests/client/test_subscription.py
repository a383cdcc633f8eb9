"""Subscriptions of a client, against scripted servers over lines and over HTTP."""

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import script_kit as say
import trio
import trio.testing
from script_kit import Play

from mcp_trio import errors
from mcp_trio.client.client import Client
from mcp_trio.client.subscription import Subscription, SubscriptionEnd
from mcp_trio.protocol import jsonrpc
from mcp_trio.subscriptions.events import (
    Event,
    EventsDropped,
    ExtensionEvent,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.testing import open_scripted_peer
from mcp_trio.transports import abc

TOOLS = SubscriptionFilter(tools_list_changed=True)
WIDE = SubscriptionFilter(
    tools_list_changed=True, prompts_list_changed=True, resource_subscriptions=("note://a",)
)
CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
LISTEN = "subscriptions/listen"


async def drain(changes: Subscription) -> list[Event]:
    return [change async for change in changes]


# Opening


async def test_returns_once_acknowledged(play: Play) -> None:
    """C-01: the acknowledged filter and what was declined can be read at once."""
    acknowledged = trio.Event()

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        assert listen["params"]["notifications"] == WIDE.to_wire()
        assert listen["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        await trio.sleep(0.05)
        acknowledged.set()
        await peer.send(listen, say.ack(listen, {"toolsListChanged": True, "futureThing": True}))
        await peer.until_cancelled(listen)

    async with play(script) as client, client.listen(WIDE) as changes:
        assert acknowledged.is_set()
        assert changes.id == "listen-1"
        assert changes.requested == WIDE
        assert changes.acknowledged == TOOLS
        assert changes.declined == SubscriptionFilter(
            prompts_list_changed=True, resource_subscriptions=("note://a",)
        )
        assert changes.end is None
        assert repr(changes) == "<Subscription listen-1 open>"


async def test_several_at_once(play: Play) -> None:
    """C-02, C-20: each has its own id and hears only what is its own."""

    async def script(peer: Any) -> None:
        first = await peer.expect(LISTEN)
        await peer.send(first, say.ack(first))
        second = await peer.expect(LISTEN)
        await peer.send(second, say.ack(second))
        await peer.send(second, say.tagged(second, UPDATED, {"uri": "note://a"}))
        # Of another subscription, of none, of an id that only looks the same.
        await peer.send(first, say.tagged({"id": "listen-99"}, CHANGED))
        await peer.send(first, {"jsonrpc": "2.0", "method": CHANGED})
        await peer.send(first, say.tagged({"id": 1}, CHANGED))
        await peer.send(first, say.tagged(first, CHANGED), say.done(first))
        await peer.send(second, say.done(second))

    async with (
        play(script) as client,
        client.listen(TOOLS) as tools,
        client.listen(WIDE) as wide,
    ):
        assert (tools.id, wide.id) == ("listen-1", "listen-2")
        assert await drain(tools) == [ToolsListChanged()]
        assert await drain(wide) == [ResourceUpdated("note://a")]
        assert tools.statistics().events == 1


async def test_early_validation() -> None:
    """C-09: before anything is sent, and before the block is entered."""
    client = Client(say.Nowhere())
    with pytest.raises(TypeError):
        SubscriptionFilter(resource_subscriptions="note://a")
    with pytest.raises(TypeError, match="SubscriptionFilter, got dict"):
        client.listen({"toolsListChanged": True})  # type: ignore[arg-type]
    for empty in (SubscriptionFilter(), SubscriptionFilter(resource_subscriptions=())):
        with pytest.raises(ValueError, match="asks for nothing"):
            client.listen(empty)
    for timeout in (0, -1, math.nan):
        with pytest.raises(ValueError, match="ack_timeout"):
            client.listen(TOOLS, ack_timeout=timeout)


async def test_transport_that_cannot_listen() -> None:
    """C-08: a clear error, and nothing is written."""

    class OneAnswer(say.Nowhere):
        can_listen = False

    with pytest.raises(errors.ListenNotSupported):
        Client(OneAnswer()).listen(TOOLS)


async def test_acknowledgement_that_does_not_come(play: Play) -> None:
    """C-03, W16 (a): the wait is bounded, and ends with a cancellation on the wire."""
    cancelled = trio.Event()

    async def script(peer: Any) -> None:
        await peer.until_cancelled(await peer.expect(LISTEN))
        cancelled.set()

    async with play(script) as client:
        with pytest.raises(errors.AcknowledgementTimeout, match=r"within 0\.05 s") as caught:
            async with client.listen(TOOLS, ack_timeout=0.05):
                pytest.fail("not acknowledged")
        assert isinstance(caught.value, trio.TooSlowError)
        await cancelled.wait()


async def test_open_subscription_has_no_timeout(play: Play) -> None:
    """C-03, W15: an event long after the time an acknowledgement may take."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        await trio.sleep(0.3)
        await peer.send(listen, say.tagged(listen, CHANGED))

    async with play(script) as client, client.listen(TOOLS, ack_timeout=0.2) as changes:
        assert await changes.receive() == ToolsListChanged()


@pytest.mark.parametrize("first", ["done", "withdrawn"])
async def test_ended_before_it_began(play: Play, first: str) -> None:
    """C-04, W16 (b): opened, and already over."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        if first == "done":
            await peer.send(listen, say.done(listen, {"reason": "nothing-granted"}))
        else:
            await peer.send(listen, say.withdrawn(listen))
        await peer.send(listen, say.ack(listen), say.tagged(listen, CHANGED))

    async with play(script) as client, client.listen(TOOLS) as changes:
        assert changes.end is not None
        assert changes.end.how == ("graceful" if first == "done" else "cancelled")
        assert changes.acknowledged == SubscriptionFilter()
        assert changes.declined == TOOLS
        assert await drain(changes) == []


async def test_refused(play: Play) -> None:
    """C-04, W16 (c): the server's own error."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.error(listen, -32601, "no such method"))

    async with play(script) as client:
        with pytest.raises(errors.MethodNotFound, match="no such method"):
            async with client.listen(TOOLS):
                pytest.fail("refused")


async def test_lost_before_it_was_acknowledged(play: Play) -> None:
    """C-04, W16 (d), W62: one exception that names the cause, not a group."""

    async def script(peer: Any) -> None:
        await peer.cut(await peer.expect(LISTEN))

    async with play(script) as client:
        with pytest.raises(errors.SubscriptionLost, match="listen-1 was lost: ") as caught:
            async with client.listen(TOOLS):
                pytest.fail("lost")
        assert isinstance(caught.value.__cause__, errors.ConnectionLost)


async def test_acknowledgement_of_another_subscription(play: Play) -> None:
    """W16 (e): keep waiting. So for events that come before the acknowledgement."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack({**listen, "id": "listen-7"}, {"promptsListChanged": True}))
        await peer.send(listen, say.tagged(listen, CHANGED))
        await trio.sleep(0.05)
        await peer.send(listen, say.ack(listen), say.tagged(listen, CHANGED), say.done(listen))

    async with play(script) as client, client.listen(TOOLS) as changes:
        assert changes.acknowledged == TOOLS
        assert await drain(changes) == [ToolsListChanged()]


@pytest.mark.parametrize(
    ("accepted", "text"),
    [
        ({"promptsListChanged": True}, "not asked for.*promptsListChanged"),
        ({"toolsListChanged": True, "resourceSubscriptions": ["note://b"]}, "not asked for"),
        ({"taskIds": ["t"]}, "not asked for"),
        ({"toolsListChanged": "yes"}, "malformed"),
        ({"resourceSubscriptions": [1]}, "malformed"),
        ([], "malformed"),
    ],
)
async def test_acknowledgement_that_is_wrong(play: Play, accepted: Any, text: str) -> None:
    """C-04, C-05: wider than the request, or not a filter: refused, and cancelled."""
    cancelled = trio.Event()

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen, accepted))
        await peer.until_cancelled(listen)
        cancelled.set()

    async with play(script) as client:
        with pytest.raises(errors.RemoteProtocolError, match=text):
            async with client.listen(TOOLS):
                pytest.fail("refused")
        await cancelled.wait()


async def test_second_acknowledgement_is_ignored(play: Play) -> None:
    """C-06."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        await peer.send(listen, say.ack(listen, {}), say.tagged(listen, CHANGED), say.done(listen))

    async with play(script) as client, client.listen(TOOLS) as changes:
        assert await drain(changes) == [ToolsListChanged()]
        assert changes.acknowledged == TOOLS
        assert changes.statistics().ignored <= 1


# Events


async def test_only_what_was_granted(play: Play) -> None:
    """C-21, C-22, W36: other types are dropped; resources below those granted are not."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(
            listen,
            say.ack(listen, {"toolsListChanged": True, "resourceSubscriptions": ["note://a"]}),
        )
        for method in (
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/tasks",
            CHANGED,
        ):
            await peer.send(listen, say.tagged(listen, method, {"taskId": "t"}))
        await peer.send(listen, say.tagged(listen, UPDATED, {"uri": "note://a/b"}))
        await peer.send(listen, say.done(listen))

    async with play(script) as client, client.listen(WIDE) as changes:
        assert await drain(changes) == [ToolsListChanged(), ResourceUpdated("note://a/b")]
        assert changes.statistics().ignored == 3


async def test_every_core_event(play: Play) -> None:
    wanted = SubscriptionFilter(True, True, True, ("note://a",))

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        for kind in ("resources", "prompts", "tools"):
            await peer.send(listen, say.tagged(listen, f"notifications/{kind}/list_changed"))
        await peer.send(listen, say.tagged(listen, UPDATED, {"uri": "note://a"}), say.done(listen))

    async with play(script) as client, client.listen(wanted) as changes:
        assert await drain(changes) == [
            ResourcesListChanged(),
            PromptsListChanged(),
            ToolsListChanged(),
            ResourceUpdated("note://a"),
        ]


async def test_updates_without_any_uri_granted_are_dropped(play: Play) -> None:
    """C-22."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen, {"toolsListChanged": True}))
        await peer.send(listen, say.tagged(listen, UPDATED, {"uri": "note://a"}), say.done(listen))

    async with play(script) as client, client.listen(WIDE) as changes:
        assert await drain(changes) == []


async def test_extension_events_and_their_loss(play: Play) -> None:
    """C-24, C-26: method and params as they came; a gap is told before what follows it."""
    wanted = SubscriptionFilter(extensions={"org.example/rows": ["a"]})

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        for number, mark in ((1, {}), (5, {"org.mcp-trio/dropped": 3}), (6, {"x": True})):
            await peer.send(
                listen, say.tagged(listen, "notifications/rows", {"n": number, "_meta": mark})
            )
        await peer.send(listen, say.done(listen))

    async with play(script) as client, client.listen(wanted) as changes:
        events = await drain(changes)
        assert events[1] == EventsDropped(3)
        numbers = [event.params["n"] for event in events if isinstance(event, ExtensionEvent)]
        assert numbers == [1, 5, 6]


async def test_loss_before_the_end(play: Play) -> None:
    """C-24, S-66: a gap at the very end is told too, before the end."""
    wanted = SubscriptionFilter(extensions={"org.example/rows": ["a"]})

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        done = say.done(listen, {"reason": "overflow"})
        done["result"]["_meta"]["org.mcp-trio/dropped"] = 4
        await peer.send(listen, say.ack(listen))
        await peer.send(listen, say.tagged(listen, "notifications/rows"), done)

    async with play(script) as client, client.listen(wanted) as changes:
        assert (await drain(changes))[1:] == [EventsDropped(4)]
        assert changes.end == SubscriptionEnd("graceful", "overflow")


async def test_cancelled_receive_loses_no_event(play: Play) -> None:
    """C-23: whatever it was doing when it was cancelled."""
    uris = [f"note://{number}" for number in range(40)]

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        for uri in uris:
            await peer.send(listen, say.tagged(listen, UPDATED, {"uri": uri}))
            await trio.sleep(0.001)
        await peer.send(listen, say.done(listen))

    wanted = SubscriptionFilter(resource_subscriptions=uris)
    async with play(script) as client, client.listen(wanted) as changes:
        received: list[Event] = []
        with pytest.raises(trio.EndOfChannel):
            while True:
                with trio.CancelScope() as scope:
                    scope.cancel()
                    received.append(await changes.receive())
                with trio.move_on_after(0.0005):
                    received.append(await changes.receive())
        assert received == [ResourceUpdated(uri) for uri in uris]


async def test_event_stays_while_a_hook_is_cancelled(play: Play) -> None:
    """C-28: a cache forgets before anybody hears of the change; the event waits for that."""
    seen: list[Event] = []
    delay = 60.0

    async def before(event: Event) -> None:
        await trio.sleep(delay)
        seen.append(event)

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        await peer.send(listen, say.tagged(listen, CHANGED), say.done(listen))

    async with play(script) as client, client.listen(TOOLS, before_event=before) as changes:
        with trio.move_on_after(0.02) as scope:
            await changes.receive()
        assert scope.cancelled_caught
        assert seen == []
        delay = 0.0
        assert await changes.receive() == ToolsListChanged()
        assert seen == [ToolsListChanged()]
        assert await drain(changes) == []


async def test_two_receivers(play: Play) -> None:
    """Two tasks that receive at once would share the events by chance."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        await peer.until_cancelled(listen)

    async with (
        play(script) as client,
        client.listen(TOOLS) as changes,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(changes.receive)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError, match="listen-1"):
            await changes.receive()
        nursery.cancel_scope.cancel()


# Endings


@pytest.mark.parametrize(
    ("said", "end"),
    [
        (None, SubscriptionEnd("graceful")),
        ({"reason": "shutdown"}, SubscriptionEnd("graceful", "shutdown")),
        (
            {"reason": "overflow", "retryAfterMs": 1500},
            SubscriptionEnd("graceful", "overflow", 1.5),
        ),
        ({"reason": 5, "retryAfterMs": True}, SubscriptionEnd("graceful")),
        ({"reason": "x", "retryAfterMs": -1}, SubscriptionEnd("graceful", "x")),
        ({"reason": "x", "retryAfterMs": 1e300}, SubscriptionEnd("graceful", "x")),
        ({"reason": "x", "retryAfterMs": 10**400}, SubscriptionEnd("graceful", "x")),
        ("shutdown", SubscriptionEnd("graceful")),
    ],
)
async def test_graceful_end(play: Play, said: object, end: SubscriptionEnd) -> None:
    """C-25: after the events that came before it; and it stays that way."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        await peer.send(listen, say.tagged(listen, CHANGED), say.done(listen, said))

    async with play(script) as client, client.listen(TOOLS) as changes:
        assert await drain(changes) == [ToolsListChanged()]
        assert changes.end == end
        with pytest.raises(trio.EndOfChannel):
            await changes.receive()
    assert changes.end == end


@pytest.mark.parametrize("order", ["done", "cancel", "done cancel", "cancel done"])
async def test_every_farewell(play: Play, order: str) -> None:
    """W33: the result, a cancellation, both in either order."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        words = {"done": say.done(listen), "cancel": say.withdrawn(listen, reason="maintenance")}
        await peer.send(listen, say.ack(listen))
        await peer.send(listen, *(words[word] for word in order.split()))
        await peer.send(listen, say.tagged(listen, CHANGED))

    async with play(script) as client, client.listen(TOOLS) as changes:
        assert await drain(changes) == []
        if order.startswith("done"):
            assert changes.end == SubscriptionEnd("graceful")
        else:
            assert changes.end == SubscriptionEnd("cancelled", "maintenance")


async def test_loss(play: Play) -> None:
    """W17, W33 (e): the end of the connection is no graceful end, and says so at once."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen), say.tagged(listen, CHANGED))
        await trio.sleep(0.02)
        await peer.cut(listen)

    async with play(script) as client, client.listen(TOOLS) as changes:
        assert await changes.receive() == ToolsListChanged()
        with trio.fail_after(1), pytest.raises(errors.SubscriptionLost) as caught:
            await changes.receive()
        cause = caught.value.__cause__
        assert isinstance(cause, errors.ConnectionLost)
        assert str(cause) in str(caught.value)
        assert isinstance(caught.value, trio.BrokenResourceError)
        assert changes.end is not None
        assert (changes.end.how, changes.end.reason) == ("lost", str(cause))
        with pytest.raises(errors.SubscriptionLost) as again:
            await changes.receive()
        assert again.value.__cause__ is cause


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"jsonrpc": "2.0", "method": UPDATED, "params": {}}, "without the URI"),
        ({"result": {"resultType": "zzz"}}, "unknown resultType 'zzz'"),
        ({"result": {"resultType": "input_required"}}, "asks for input"),
        ({"error": {"code": -32603, "message": "the source failed"}}, "the source failed"),
    ],
)
async def test_what_a_server_must_not_do(play: Play, wrong: Mapping[str, Any], text: str) -> None:
    """C-27, W84: an open subscription that goes wrong is lost, with the cause chained."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        if "method" in wrong:
            await peer.send(listen, say.tagged(listen, wrong["method"]))
        else:
            await peer.send(listen, {"jsonrpc": "2.0", "id": listen["id"], **wrong})

    async with play(script) as client, client.listen(WIDE) as changes:
        with pytest.raises(errors.SubscriptionLost, match=text) as caught:
            await changes.receive()
        cause = caught.value.__cause__
        assert isinstance(cause, errors.RemoteProtocolError | errors.InternalError)


async def test_result_without_a_type_is_complete(play: Play) -> None:
    """W84: as servers of older revisions send it."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen), say.answer(listen, {"_meta": "odd"}))

    async with play(script) as client, client.listen(TOOLS) as changes:
        assert await drain(changes) == []
        assert changes.end == SubscriptionEnd("graceful")


async def test_leaving_the_block_cancels(play: Play) -> None:
    """C-40, C-25: on the wire as the transport does it; here without a sound."""
    cancelled = trio.Event()

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen), say.tagged(listen, CHANGED))
        await peer.until_cancelled(listen)
        cancelled.set()

    async with play(script) as client:
        async with client.listen(TOOLS) as changes:
            pass
        await cancelled.wait()
        assert changes.end == SubscriptionEnd("local")
        with pytest.raises(trio.ClosedResourceError, match="listen-1 was closed"):
            await changes.receive()


async def test_closing_early(play: Play) -> None:
    """C-25, C-40: what waits is discarded; closing again is fine; a receiver is told."""
    cancelled = trio.Event()

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        await peer.until_cancelled(listen)
        cancelled.set()

    async def receive(changes: Subscription) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await changes.receive()

    async with play(script) as client, client.listen(TOOLS) as changes:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive, changes)
            await trio.testing.wait_all_tasks_blocked()
            await changes.aclose()
        await cancelled.wait()  # the block need not be left for that
        await changes.aclose()
        assert changes.end == SubscriptionEnd("local")
        await receive(changes)


async def test_closing_within_a_hook(play: Play) -> None:
    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen), say.tagged(listen, CHANGED))

    async def before(_: Event) -> None:
        await changes.aclose()

    async with play(script) as client, client.listen(TOOLS, before_event=before) as changes:
        with pytest.raises(trio.ClosedResourceError):
            await changes.receive()


async def test_cancelled_while_it_opens(play: Play) -> None:
    """C-41, W43, W62: cancelled on the wire; what comes late disturbs nobody."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.until_cancelled(listen)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await peer.send(listen, say.ack(listen), say.tagged(listen, CHANGED), say.done(listen))
        tools = await peer.expect("tools/list")
        await peer.send(tools, say.answer(tools, {"tools": []}))

    async with play(script) as client:
        with trio.move_on_after(0.05) as scope:
            async with client.listen(TOOLS):
                pytest.fail("not acknowledged")
        assert scope.cancelled_caught
        assert list((await client.list_tools()).tools) == []


async def test_in_nurseries_and_under_deadlines(play: Play) -> None:
    """W61: many at once, each in a task of its own, some cut short."""

    async def script(peer: Any) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                listen = await peer.expect(LISTEN)
                nursery.start_soon(peer.send, listen, say.ack(listen), say.tagged(listen, CHANGED))

    async def follow(client: Client, seconds: float) -> None:
        with trio.move_on_after(seconds):
            async with client.listen(TOOLS) as changes:
                async for _ in changes:
                    heard.append(changes.id)

    heard: list[str] = []
    async with play(script) as client:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(follow, client, 0.1 + number * 0.01)
        assert sorted(heard) == sorted(f"listen-{number}" for number in range(1, 11))


async def test_slow_consumer_delays_nobody(play: Play) -> None:
    """W41: a subscription that nobody reads does not hold up an answer."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood, peer, listen)
            tools = await peer.expect("tools/list")
            await peer.send(tools, say.answer(tools, {"tools": []}))

    async def flood(peer: Any, listen: Any) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            for _ in range(1000):
                await peer.send(listen, say.tagged(listen, CHANGED))

    async with play(script) as client, client.listen(TOOLS) as changes:
        with trio.fail_after(5):
            await client.list_tools()
        assert await changes.receive() == ToolsListChanged()


async def test_flood_of_different_changes() -> None:
    """W40: bounded; what cannot be kept is a loss that is seen, and the rest goes on."""
    async with open_scripted_peer() as peer, trio.open_nursery() as nursery:
        client = Client(peer.transport)

        @nursery.start_soon
        async def script() -> None:
            listen = await peer.expect(LISTEN)
            await peer.acknowledge(listen)
            for number in range(3000):
                await peer.notify(UPDATED, {"uri": f"note://a/{number}"}, of=listen)
            await peer.expect("notifications/cancelled")
            await peer.answer(await peer.expect("tools/list"), {"tools": []})

        async with client.listen(WIDE) as changes:
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(errors.SubscriptionLost, match="not read"):
                await drain(changes)
            assert changes.end is not None
            assert changes.end.how == "lost"
            with trio.fail_after(5):
                await client.list_tools()


class Channel(trio.abc.ReceiveChannel[jsonrpc.Message]):
    """A channel of a transport that misbehaves after the acknowledgement."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.acknowledged = False

    async def receive(self) -> jsonrpc.Message:
        await trio.lowlevel.checkpoint()
        if self.acknowledged:
            raise self.failure
        self.acknowledged = True
        params = {
            "notifications": {"toolsListChanged": True},
            "_meta": {"io.modelcontextprotocol/subscriptionId": "listen-1"},
        }
        return jsonrpc.Notification("notifications/subscriptions/acknowledged", params)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    "failure", [trio.EndOfChannel(), trio.ClosedResourceError("the transport was closed")]
)
async def test_transport_that_stops(failure: Exception) -> None:
    """W17 (e): whatever the transport does, a consumer does not wait for ever."""

    class Transport(abc.Transport):
        kind = "memory"

        @asynccontextmanager
        async def open_exchange(self, *_: object, **__: object) -> AsyncIterator[Channel]:
            yield Channel(failure)

    client = Client(Transport())
    async with client.listen(TOOLS) as changes:
        with pytest.raises(errors.SubscriptionLost, match=r"the (stream|transport)"):
            await changes.receive()
    with pytest.raises(errors.ConnectionLost, match="tools/list"):
        await client.list_tools()
