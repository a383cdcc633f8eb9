"""The hub: matching, delivery, bounds, endings, threads."""

import logging
import threading
import time
from typing import Any, get_args

import pytest
import trio
import trio.testing

from mcp_trio import codec, errors
from mcp_trio.subscriptions.events import (
    Event,
    EventsDropped,
    ExtensionEvent,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.mailbox import Overflow
from mcp_trio.subscriptions.source import CloseReason, End, SourceHandle, SubscriptionContext
from mcp_trio.subscriptions.statistics import NOBODY, PublishReport

COMPLETE = CloseReason("complete")


async def listen(hub: Hub, *uris: str, **fields: Any) -> SourceHandle:
    wanted = SubscriptionFilter(resource_subscriptions=uris, **fields)
    return await hub.open(wanted, SubscriptionContext(1))


async def take(handle: SourceHandle) -> list[Event]:
    """What waits for a listener, without waiting for more."""
    found: list[Event] = []
    while True:
        with trio.move_on_after(0):
            await trio.testing.wait_all_tasks_blocked()
        event: Event | None = None
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_when_idle, scope)
                event = await handle.receive()
                nursery.cancel_scope.cancel()
        if event is None:
            return found
        found.append(event)


async def cancel_when_idle(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_only_who_asked_hears_of_it() -> None:
    """S-05, W36, and the first scenario of the catalogue."""
    hub = Hub()
    tools = await listen(hub, tools_list_changed=True)
    prompts = await listen(hub, prompts_list_changed=True)
    resources = await listen(hub, resources_list_changed=True)
    note = await listen(hub, "note://a")
    everything = await listen(
        hub,
        "note://a",
        tools_list_changed=True,
        prompts_list_changed=True,
        resources_list_changed=True,
    )
    events: list[Event] = [
        ToolsListChanged(),
        PromptsListChanged(),
        ResourcesListChanged(),
        ResourceUpdated("note://a"),
    ]
    for event in events:
        assert hub.publish(event) == PublishReport(matched=2, buffered=2)
    assert hub.publish(ResourceUpdated("note://A")) == NOBODY
    assert hub.publish(ResourceUpdated("note://a/b")) == NOBODY
    for handle, event in zip((tools, prompts, resources, note), events, strict=True):
        assert await take(handle) == [event]
    assert await take(everything) == events


async def test_first_queued_order_coalesced_in_place() -> None:
    """S-61, and the report of S-62."""
    hub = Hub()
    handle = await listen(hub, "n://a", "n://b", tools_list_changed=True)
    a, b, tools = ResourceUpdated("n://a"), ResourceUpdated("n://b"), ToolsListChanged()
    for event in (b, tools, a):
        assert hub.publish(event) == PublishReport(1, buffered=1)
    for event in (a, b, tools, b):
        assert hub.publish(event) == PublishReport(1, coalesced=1)
    assert hub.statistics().queued == 3
    assert hub.statistics().coalesced == 4
    assert await take(handle) == [b, tools, a]
    assert hub.publish(b) == PublishReport(1, buffered=1)


async def test_a_waiting_pull_is_woken_once(nursery: trio.Nursery) -> None:
    """S-62: delivered to who waits; a burst from one task is one event for it."""
    hub = Hub()
    handle = await listen(hub, "n://a", tools_list_changed=True)
    got: list[Event] = []

    async def pull() -> None:
        got.append(await handle.receive())

    nursery.start_soon(pull)
    await trio.testing.wait_all_tasks_blocked()
    assert hub.statistics(per_listener=True).listeners[0].waiting
    assert hub.publish(ToolsListChanged()) == PublishReport(1, delivered=1)
    assert hub.publish(ToolsListChanged()) == PublishReport(1, coalesced=1)
    assert hub.publish(ResourceUpdated("n://a")) == PublishReport(1, buffered=1)
    await trio.testing.wait_all_tasks_blocked()
    assert got == [ToolsListChanged()]
    assert await take(handle) == [ResourceUpdated("n://a")]


async def test_publishing_to_nobody() -> None:
    """W65: before anybody listens, after everybody has gone, outside of Trio's run."""
    hub = Hub()
    assert hub.publish(ToolsListChanged()) == NOBODY
    handle = await listen(hub, tools_list_changed=True)
    await handle.aclose(COMPLETE)
    assert hub.publish(ToolsListChanged()) == NOBODY
    assert hub.publish(Resync()) == NOBODY
    assert hub.publish(ExtensionEvent("x", {}, {"x": 1})) == NOBODY
    assert hub.statistics().published == 4


def test_publishing_without_a_run() -> None:
    hub = Hub()
    assert hub.publish(ToolsListChanged()) == NOBODY
    assert hub.publish_from_thread(ToolsListChanged()) == NOBODY
    assert hub.statistics().published == 1


@pytest.mark.parametrize("wrong", [None, "tools", EventsDropped(1), ToolsListChanged])
async def test_what_is_no_event_reaches_nobody(wrong: Any) -> None:
    hub = Hub()
    handle = await listen(hub, tools_list_changed=True)
    with pytest.raises(TypeError, match="not an event to publish"):
        hub.publish(wrong)
    assert await take(handle) == []
    assert hub.statistics().published == 0


@pytest.mark.parametrize(
    "options",
    [
        {"max_data_events": 0},
        {"max_sub_resources": -1},
        {"overflow": "coalesce"},
        {"kinds": ["task"]},
        {"kinds": "tools"},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    """S-60."""
    with pytest.raises(ValueError, match=next(iter(options)).split("_")[0]):
        Hub(**options)


async def test_kinds_narrow_what_is_accepted() -> None:
    """S-03, W35: what will never be published is not acknowledged."""
    hub = Hub(kinds=["tools", "updated"])
    handle = await listen(
        hub,
        "n://a",
        tools_list_changed=True,
        prompts_list_changed=True,
        task_ids=("t",),
        extensions={"x": [1]},
    )
    assert handle.accepted == SubscriptionFilter(
        tools_list_changed=True,
        resource_subscriptions=("n://a",),
        task_ids=("t",),
        extensions={"x": [1]},
    )
    assert hub.kinds == {"tools", "updated"}
    assert hub.publish(PromptsListChanged()) == NOBODY


async def test_the_index_stays_right() -> None:
    """Catalogue 2: through open, close and completion, among 30 unrelated listeners."""
    hub = Hub()
    others = [await listen(hub, *(f"o://{n}/{m}" for m in range(200))) for n in range(30)]
    event = ResourceUpdated("n://a")
    first, second, third = [await listen(hub, "n://a", f"n://{n}") for n in range(3)]
    assert hub.publish(event).matched == 3
    await second.aclose(COMPLETE)
    assert hub.publish(event).matched == 2
    assert first.complete(End())
    assert hub.publish(event).matched == 1
    await third.aclose(COMPLETE)
    assert hub.publish(event).matched == 0
    fourth = await listen(hub, "n://a")
    assert hub.publish(event).matched == 1
    for handle in (*others, first, fourth):
        await handle.aclose(COMPLETE)
    index = hub._index
    assert not index.has_uris
    assert not any(index._kinds.values())
    assert not index._topics
    assert hub.statistics().subscriptions == 0


async def test_publishing_touches_only_who_matches() -> None:
    """One of 10,000 costs about what one of 100 does: found, not looked for."""

    async def cost(listeners: int) -> float:
        hub = Hub()
        handles = [await listen(hub, f"n://{n}") for n in range(listeners)]
        times = []
        for _ in range(30):
            started = time.perf_counter()
            for _ in range(50):
                hub.publish(ResourceUpdated("n://7"))
            times.append(time.perf_counter() - started)
        for handle in handles:
            await handle.aclose(COMPLETE)
        return min(times)

    few = await cost(100)
    many = await cost(10_000)
    assert many < 5 * few  # the benchmark asks for 1.5; a scan would be a hundred


# Pulling and closing


async def test_pulling_after_the_end_says_closed(nursery: trio.Nursery) -> None:
    """S-27: the pull that waits, the one after, and the one after that."""
    for end in ("aclose", "complete"):
        hub = Hub()
        handle = await listen(hub, tools_list_changed=True)
        ended = trio.Event()

        async def pull(handle: SourceHandle = handle, ended: trio.Event = ended) -> None:
            with pytest.raises(trio.EndOfChannel):
                await handle.receive()
            ended.set()

        nursery.start_soon(pull)
        await trio.testing.wait_all_tasks_blocked()
        if end == "aclose":
            await handle.aclose(COMPLETE)
        else:
            handle.complete(End("shutdown"))
        await ended.wait()
        for _ in range(2):
            with pytest.raises(trio.EndOfChannel):
                await handle.receive()


async def test_a_second_pull_at_the_same_time_is_an_error(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-26: whether the first waits for an event or is about to get one."""
    hub = Hub()
    handle = await listen(hub, tools_list_changed=True)
    nursery.start_soon(handle.receive)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(trio.BusyResourceError):
        await handle.receive()
    hub.publish(ToolsListChanged())
    with pytest.raises(trio.BusyResourceError):
        await handle.receive()
    await trio.testing.wait_all_tasks_blocked()
    hub.publish(ToolsListChanged())
    refused = []

    async def second_pull() -> None:
        with pytest.raises(trio.BusyResourceError) as caught:
            await handle.receive()
        refused.append(caught.value)

    monkeypatch.setattr(trio.lowlevel, "checkpoint_if_cancelled", second_pull)
    assert await handle.receive() == ToolsListChanged()
    assert len(refused) == 1


async def test_a_cancelled_pull_loses_nothing(nursery: trio.Nursery) -> None:
    """Cancelled while it waits, and in the moment between its event and its turn."""
    hub = Hub()
    handle = await listen(hub, tools_list_changed=True)
    with trio.CancelScope() as scope:
        scope.cancel()
        await handle.receive()
    assert scope.cancelled_caught
    hub.publish(ToolsListChanged())
    with trio.CancelScope() as scope:
        scope.cancel()
        await handle.receive()
    assert scope.cancelled_caught
    assert await take(handle) == [ToolsListChanged()]


async def test_closing_twice_closes_once() -> None:
    hub = Hub()
    handle = await listen(hub, "n://a")
    hub.publish(ResourceUpdated("n://a"))
    await handle.aclose(COMPLETE)
    await handle.aclose(COMPLETE)
    assert handle.complete(End("late"))
    assert handle.end is None
    assert hub.statistics().subscriptions == 0
    assert hub.statistics().queued == 0


async def test_close_ends_everybody_after_what_is_queued() -> None:
    """S-81: queued events drain, later ones pass by, new listeners may open."""
    hub = Hub()
    handle = await listen(hub, "n://a", tools_list_changed=True)
    hub.publish(ToolsListChanged())
    hub.close("revoked", retry_after=3.0)
    hub.close("shutdown")
    newcomer = await listen(hub, tools_list_changed=True)
    assert hub.publish(ToolsListChanged()) == PublishReport(1, buffered=1)
    assert hub.publish(Resync()) == PublishReport(1, coalesced=1)
    statistics = hub.statistics(per_listener=True)
    assert (statistics.subscriptions, statistics.closing, statistics.queued) == (2, 1, 2)
    assert [listener.closing for listener in statistics.listeners] == [True, False]
    assert await handle.receive() == ToolsListChanged()
    with pytest.raises(trio.EndOfChannel):
        await handle.receive()
    assert handle.end == End("revoked", 3.0)
    assert await take(newcomer) == [ToolsListChanged()]
    assert newcomer.end is None


async def test_drain_waits_for_the_last_one(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """S-86, P-12: until all have closed, and no longer; nobody new in the meantime or after it."""
    hub = Hub()
    first, second = [await listen(hub, tools_list_changed=True) for _ in range(2)]
    hub.publish(ToolsListChanged())
    drained: list[float] = []

    async def drain(deadline: float) -> None:
        await hub.drain(deadline, retry_after=1.0)
        drained.append(trio.current_time())

    start = trio.current_time()
    nursery.start_soon(drain, start + 2)
    nursery.start_soon(drain, start + 20)
    await trio.sleep(1)
    with pytest.raises(errors.ServerBusy):
        await listen(hub, tools_list_changed=True)
    assert first.end == End("shutdown", 1.0)
    await first.aclose(COMPLETE)
    await trio.sleep(4)
    assert drained == [start + 2]
    await second.aclose(COMPLETE)
    await trio.testing.wait_all_tasks_blocked()
    assert drained == [start + 2, start + 5]
    await hub.drain(trio.current_time() + 100)
    assert trio.current_time() == start + 5
    with pytest.raises(errors.ServerBusy):
        await listen(hub, tools_list_changed=True)


def test_a_drain_is_for_one_run() -> None:
    """A hub that is made once serves the next run again, as tests and reloads want it."""
    hub = Hub()

    async def main() -> None:
        handle = await listen(hub, tools_list_changed=True)
        await handle.aclose(COMPLETE)
        await hub.drain()
        with pytest.raises(errors.ServerBusy):
            await listen(hub, tools_list_changed=True)

    trio.run(main)
    trio.run(main)


async def test_open_is_all_or_nothing_under_cancellation() -> None:
    """S-28: a cancelled open leaves nothing in the hub."""
    hub = Hub()
    with trio.CancelScope() as scope:
        scope.cancel()
        await listen(hub, tools_list_changed=True)
    assert scope.cancelled_caught
    assert hub.statistics().subscriptions == 0


async def test_ages(autojump_clock: trio.testing.MockClock) -> None:
    """S-64: how long the first event waits, even if it was said again since; the last pull."""
    hub = Hub()
    assert hub.statistics(per_listener=True).listeners == ()
    handle = await listen(hub, "n://a", tools_list_changed=True, task_ids=("t",))
    only = hub.statistics(per_listener=True).listeners[0]
    assert (only.queued, only.oldest_queued_age, only.last_pull_age) == (0, 0.0, None)
    hub.publish(ToolsListChanged())
    await trio.sleep(2)
    hub.publish(ToolsListChanged())
    await trio.sleep(3)
    hub.publish(ResourceUpdated("n://a"))
    state = ExtensionEvent("n/state", {}, {"taskIds": "t"}, coalesce=True)
    hub.publish(state)
    assert hub.statistics().oldest_queued_age == 5
    await handle.receive()
    await trio.sleep(7)
    hub.publish(state)
    only = hub.statistics(per_listener=True).listeners[0]
    assert (only.queued, only.oldest_queued_age, only.last_pull_age) == (2, 7, 7)
    assert only.coalesced == 2
    assert await take(handle) == [ResourceUpdated("n://a"), state]
    assert hub.statistics().oldest_queued_age == 0


# Events that carry data


def data(number: int, **selector: Any) -> ExtensionEvent:
    return ExtensionEvent("notifications/x", {"n": number}, selector or {"x": 1})


@pytest.mark.parametrize("overflow", get_args(Overflow))
async def test_overflow_of_events_that_carry_data(overflow: Overflow) -> None:
    """S-60, S-62, S-66: the bound holds, the loss is reported, told, or ends the stream."""
    hub = Hub(max_data_events=2, overflow=overflow)
    handle = await listen(hub, tools_list_changed=True, extensions={"x": [1, 2]})
    idle = await listen(hub, extensions={"x": 9})
    assert hub.publish(data(1)) == PublishReport(1, buffered=1)
    assert hub.publish(data(2, x=2)) == PublishReport(1, buffered=1)
    assert hub.publish(ToolsListChanged()) == PublishReport(1, buffered=1)
    report = hub.publish(data(3))
    match overflow:
        case "drop_oldest":
            assert report == PublishReport(1, buffered=1, dropped=1)
            expected: list[Event] = [EventsDropped(1), data(2, x=2), ToolsListChanged(), data(3)]
        case "drop_newest":
            assert report == PublishReport(1, dropped=1)
            expected = [EventsDropped(1), data(1), data(2, x=2), ToolsListChanged()]
        case "close":
            assert report == PublishReport(1, closed=1)
            assert hub.publish(ToolsListChanged()) == NOBODY
            expected = [data(1), data(2, x=2), ToolsListChanged()]
    for event in expected:
        assert await handle.receive() == event
    statistics = hub.statistics()
    if overflow == "close":
        with pytest.raises(trio.EndOfChannel):
            await handle.receive()
        assert handle.end == End("overflow")
        assert (statistics.dropped, statistics.overflowed) == (0, 1)
    else:
        assert (statistics.dropped, statistics.overflowed) == (1, 0)
        assert statistics == hub.statistics()
        assert hub.publish(data(4)) == PublishReport(1, buffered=1)
        assert await take(handle) == [data(4)]
    assert idle.end is None


async def test_a_state_is_never_dropped() -> None:
    """A bound that follows from the filter is no limit: the newest state of each task."""
    hub = Hub(max_data_events=1, overflow="close")
    tasks = [f"t{n}" for n in range(50)]
    handle = await listen(hub, task_ids=tasks)
    for round_ in range(3):
        for task in tasks:
            event = ExtensionEvent("n/t", {"round": round_}, {"taskIds": task}, coalesce=True)
            assert hub.publish(event).matched == 1
    assert [event.params["round"] for event in await take(handle)] == [2] * 50  # type: ignore[union-attr]


async def test_selectors() -> None:
    """X-06: the hub knows nothing of an extension; a selector must be covered whole."""
    hub = Hub()
    both = await listen(hub, extensions={"x": [1, 2], "y": True})
    one = await listen(hub, extensions={"x": [1, "1"]})
    assert hub.publish(data(1, x=1)).matched == 2
    assert hub.publish(data(2, x=1, y=True)).matched == 1
    assert hub.publish(data(3, x="1")).matched == 1
    assert hub.publish(data(4, x=1.0)).matched == 0
    assert hub.publish(data(5, y=1)).matched == 0
    assert await take(both) == [data(1, x=1), data(2, x=1, y=True)]
    assert await take(one) == [data(1, x=1), data(3, x="1")]


async def test_bad_extension_events_are_the_publishers_problem() -> None:
    """W59, S-65: whoever publishes what cannot be sent hears of it, and no stream does."""
    hub = Hub()
    handle = await listen(hub, extensions={"x": 1})
    with pytest.raises(ValueError, match="selector"):
        hub.publish(ExtensionEvent("notifications/x", {}, {}))
    with pytest.raises(codec.EncodeError):
        hub.publish(ExtensionEvent("notifications/x", {"n": float("nan")}, {"x": 1}))
    with pytest.raises(ValueError, match="progress"):
        hub.publish(ExtensionEvent("notifications/progress", {}, {"x": 1}))
    assert await take(handle) == []


# Sub-resources


async def test_sub_resources_are_opt_in() -> None:
    """By publication, by hub, or by URI; the update carries the sub-resource's own URI."""
    event = ResourceUpdated("dir://d/a/b")
    for hub, include, matched in [
        (Hub(), False, 0),
        (Hub(), True, 1),
        (Hub(sub_resources=True), False, 1),
        (Hub(sub_resources=lambda uri: uri == "dir://d"), False, 1),
        (Hub(sub_resources=lambda uri: uri == "dir://x"), False, 0),
        (Hub(sub_resources=lambda uri: uri == "dir://x"), True, 1),
    ]:
        handle = await listen(hub, "dir://d")
        assert hub.publish(event, include_sub_resources=include).matched == matched
        assert await take(handle) == [event] * matched
        await handle.aclose(COMPLETE)


async def test_sub_resources_by_segments_and_only_once() -> None:
    hub = Hub(sub_resources=True)
    near = await listen(hub, "dir://d", "dir://d/a/", "dir://d/a")
    exact = await listen(hub, "dir://d/a/b", "dir://d")
    beside = await listen(hub, "dir://d/aa", "dir://dd")
    event = ResourceUpdated("dir://d/a/b")
    assert hub.publish(event) == PublishReport(2, buffered=2)
    assert hub.publish(event) == PublishReport(2, coalesced=2)
    assert await take(near) == [event]
    assert await take(exact) == [event]
    assert await take(beside) == []
    assert hub.publish(ResourceUpdated("dir://x")) == NOBODY


async def test_too_many_sub_resources_collapse_into_what_was_subscribed() -> None:
    """S-66: beyond their bound nothing is lost, it is only said more broadly."""
    hub = Hub(sub_resources=True, max_sub_resources=3)
    handle = await listen(hub, "dir://d", "dir://e", tools_list_changed=True)
    hub.publish(ResourceUpdated("dir://e/1"))
    hub.publish(ResourceUpdated("dir://d/1"))
    hub.publish(ToolsListChanged())
    hub.publish(ResourceUpdated("dir://d/2"))
    assert hub.publish(ResourceUpdated("dir://d/3")) == PublishReport(1, coalesced=1)
    for n in range(1000):
        assert hub.publish(ResourceUpdated(f"dir://d/{n}")) == PublishReport(1, coalesced=1)
    assert hub.publish(ResourceUpdated("dir://d")) == PublishReport(1, coalesced=1)
    assert await take(handle) == [
        ResourceUpdated("dir://e/1"),
        ResourceUpdated("dir://d"),
        ToolsListChanged(),
    ]
    assert hub.publish(ResourceUpdated("dir://d/1")) == PublishReport(1, buffered=1)
    assert await take(handle) == [ResourceUpdated("dir://d/1")]


async def test_a_declaration_that_raises_counts_as_no(caplog: pytest.LogCaptureFixture) -> None:
    """Publishing never fails because of it."""

    def broken(uri: str) -> bool:
        raise RuntimeError("broken")

    hub = Hub(sub_resources=broken)
    handle = await listen(hub, "dir://d", "dir://d/a")
    assert hub.publish(ResourceUpdated("dir://d/a")) == PublishReport(1, buffered=1)
    assert await take(handle) == [ResourceUpdated("dir://d/a")]
    assert "RuntimeError: broken" in caplog.text


async def test_resync_marks_everything() -> None:
    """What a bus needs after a gap: each core key of each listener, once."""
    hub = Hub()
    few = await listen(hub, "n://a", "n://b", tools_list_changed=True, extensions={"x": 1})
    more = await listen(hub, "n://b", prompts_list_changed=True, resources_list_changed=True)
    hub.publish(ResourceUpdated("n://b"))
    report = hub.publish(Resync("gap"))
    assert report == PublishReport(matched=6, buffered=4, coalesced=2)
    first = await take(few)
    assert first == [ResourceUpdated("n://b"), ToolsListChanged(), ResourceUpdated("n://a")]
    assert await take(more) == [
        ResourceUpdated("n://b"),
        PromptsListChanged(),
        ResourcesListChanged(),
    ]


# Interest


async def test_first_and_last_interest_in_a_uri(caplog: pytest.LogCaptureFixture) -> None:
    """W66: watching starts with the first listener and stops with the last, each once."""
    told: list[tuple[str, bool]] = []

    def interest(uri: str, wanted: bool) -> None:
        told.append((uri, wanted))
        raise RuntimeError("nobody else's problem")

    hub = Hub(on_interest=interest)
    with caplog.at_level(logging.ERROR):
        first = await listen(hub, "n://a", "n://b")
        second = await listen(hub, "n://a", "n://c")
        assert told == [("n://a", True), ("n://b", True), ("n://c", True)]
        told.clear()
        first.complete(End())
        await first.aclose(COMPLETE)
        assert told == [("n://b", False)]
        await second.aclose(CloseReason("disconnected"))
        assert told == [("n://b", False), ("n://a", False), ("n://c", False)]
    assert len(caplog.records) == 6


# Threads


async def test_publishing_from_a_thread() -> None:
    """S-63, W65."""
    hub = Hub()
    handle = await listen(hub, "d://d", tools_list_changed=True)

    def in_thread() -> list[PublishReport]:
        with pytest.raises(RuntimeError, match="publish_from_thread"):
            hub.publish(ToolsListChanged())
        with pytest.raises(TypeError):
            hub.publish_from_thread("tools")  # type: ignore[arg-type]
        return [
            hub.publish_from_thread(ToolsListChanged()),
            hub.publish_from_thread(ResourceUpdated("d://d/a"), include_sub_resources=True),
        ]

    reports = await trio.to_thread.run_sync(in_thread)
    assert reports == [PublishReport(1, buffered=1)] * 2
    assert await take(handle) == [ToolsListChanged(), ResourceUpdated("d://d/a")]
    with pytest.raises(RuntimeError, match="from a thread"):
        hub.publish_from_thread(ToolsListChanged())


def test_publishing_from_a_thread_after_the_run() -> None:
    hub = Hub()

    async def main() -> None:
        await (await listen(hub, tools_list_changed=True)).aclose(COMPLETE)

    trio.run(main)
    assert hub.publish_from_thread(ToolsListChanged()) == NOBODY
    trio.run(main)  # a hub may be used by one run after another
    assert hub.statistics().subscriptions == 0


async def test_one_hub_serves_one_run_at_a_time() -> None:
    hub = Hub()
    await listen(hub, tools_list_changed=True)
    failures: list[BaseException] = []

    def other_run() -> None:
        try:
            trio.run(listen, hub, "n://a")
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=other_run)
    thread.start()
    await trio.to_thread.run_sync(thread.join)
    assert "another trio.run" in str(failures[0])
    assert hub.statistics().subscriptions == 1


# Many


async def test_a_waiting_listener_takes_a_sub_resource_at_once(nursery: trio.Nursery) -> None:
    hub = Hub(sub_resources=True)
    handle = await listen(hub, "d://d")
    got: list[Event] = []

    @nursery.start_soon
    async def pull() -> None:
        got.append(await handle.receive())

    await trio.testing.wait_all_tasks_blocked()
    event = ResourceUpdated("d://d/a")
    assert hub.publish(event) == PublishReport(1, delivered=1)
    await trio.testing.wait_all_tasks_blocked()
    assert got == [event]


async def test_a_listener_that_never_reads_costs_a_bounded_amount() -> None:
    """W20: 20,000 changes wait as a handful of keys, and another listener hears each one."""
    hub = Hub(sub_resources=True, max_sub_resources=10, max_data_events=10)
    wanted = {"tools_list_changed": True, "extensions": {"x": 1}}
    await listen(hub, "n://a", "n://b", **wanted)
    reader = await listen(hub, "n://a", "n://b", **wanted)
    for number in range(5_000):
        hub.publish(ToolsListChanged())
        hub.publish(ResourceUpdated("n://a"))
        hub.publish(ResourceUpdated(f"n://b/{number}"))
        hub.publish(data(number))
        for expected in ToolsListChanged, ResourceUpdated, ResourceUpdated, ExtensionEvent:
            assert type(await reader.receive()) is expected
    stalled, reading = hub.statistics(per_listener=True).listeners
    # The tools, n://a, n://b for all that lies below it, and ten events with data.
    assert stalled.queued == 1 + 1 + 1 + 10
    assert reading.queued == 0
    assert reading.dropped == 0


async def test_listeners_that_come_and_go_leave_nothing() -> None:
    """W19: a thousand of them on shared and on own URIs, leaving in another order."""
    hub = Hub()
    handles = [
        await listen(hub, "n://shared", f"n://{n}", f"n://{n % 7}/", tools_list_changed=True)
        for n in range(1_000)
    ]
    assert hub.publish(ResourceUpdated("n://shared")).matched == 1_000
    for handle in handles[::2] + handles[1::2][::-1]:
        await handle.aclose(COMPLETE)
    index = hub._index
    assert not index._uris._one
    assert not index._uris._many
    assert not any(index._kinds.values())
    assert hub.publish(ResourceUpdated("n://shared")) == NOBODY
