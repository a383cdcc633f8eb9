"""What a hub counts: every listener's part of every publication, once."""

import contextlib
import random

import attrs
import pytest
import trio
import trio.testing

from mcp_trio.subscriptions.events import Event, ExtensionEvent, ResourceUpdated, Resync
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.mailbox import Overflow
from mcp_trio.subscriptions.source import CloseReason, SourceHandle, SubscriptionContext

URIS = ("a://one", "a://two", "a://two/below")
NEWS = {"example": ["news"]}


async def listen(hub: Hub) -> SourceHandle:
    wanted = SubscriptionFilter(
        tools_list_changed=True, resource_subscriptions=URIS[:2], extensions=NEWS
    )
    return await hub.open(wanted, SubscriptionContext(1))


def news(number: int) -> ExtensionEvent:
    return ExtensionEvent("example/news", {"n": number}, selector=NEWS)


async def test_a_listener_is_busy_until_it_asks_again(autojump_clock: object) -> None:
    """What waits, for how long, and for whom: the ones to look at when deliveries stall."""
    hub = Hub()
    slow, idle = await listen(hub), await listen(hub)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(idle.receive)
        await trio.testing.wait_all_tasks_blocked()
        assert (hub.statistics().subscriptions, hub.statistics().busy) == (2, 1)
        hub.publish(ResourceUpdated(URIS[0]))
    await trio.sleep(7)
    now = hub.statistics()
    assert (now.busy, now.queued, now.oldest_queued_age) == (2, 1, 7.0)
    assert (now.published, now.matched, now.delivered, now.buffered) == (1, 2, 1, 1)
    await slow.receive()
    assert hub.statistics().oldest_queued_age == 0.0
    hub.close()
    assert hub.statistics().closing == 2


async def test_what_waits_for_a_listener_that_leaves_is_abandoned() -> None:
    """It is not lost without a trace, and counts once."""
    hub = Hub()
    handle = await listen(hub)
    hub.publish(ResourceUpdated(URIS[0]))
    hub.publish(ResourceUpdated(URIS[1]))
    await handle.aclose(CloseReason("disconnected"))
    await handle.aclose(CloseReason("disconnected"))
    assert (hub.statistics().abandoned, hub.statistics().queued) == (2, 0)


async def test_what_nobody_is_told_counts_as_published() -> None:
    """And a publication that is refused does not."""
    hub = Hub()
    hub.publish(ResourceUpdated("a://nobody"))
    with pytest.raises(ValueError, match="selector"):
        hub.publish(ExtensionEvent("example/news", {}))
    assert (hub.statistics().published, hub.statistics().matched) == (1, 0)


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_newest", "close"])
@pytest.mark.parametrize("seed", range(5))
async def test_every_part_is_accounted_for(
    overflow: Overflow, seed: int, autojump_clock: object
) -> None:
    """Whatever is published to whomever, the counts are those of the reports, and add up."""
    chance = random.Random(seed)  # noqa: S311
    hub = Hub(overflow=overflow, max_data_events=2, sub_resources=True, max_sub_resources=1)
    handles = [await listen(hub) for _ in range(5)]
    reports = []
    for number in range(60):
        kinds: list[Event] = [
            ResourceUpdated(chance.choice(URIS)),
            Resync("gap"),
            news(number),
        ]
        reports.append(hub.publish(chance.choice(kinds)))
        handle = chance.choice(handles)
        with trio.CancelScope() as scope, contextlib.suppress(trio.EndOfChannel):
            scope.deadline = trio.current_time() + 0.001
            await handle.receive()
        if chance.random() < 0.1:
            handles.remove(handle)
            await handle.aclose(CloseReason("cancelled"))
            handles.append(await listen(hub))
    now = hub.statistics()
    total = attrs.asdict(sum(reports[1:], reports[0]))
    total["overflowed"] = total.pop("closed")
    counted = attrs.asdict(now)
    assert {name: counted[name] for name in total} == total
    assert now.published == len(reports)
    lost = now.dropped if overflow == "drop_newest" else 0
    assert now.matched == now.delivered + now.buffered + now.coalesced + now.overflowed + lost
