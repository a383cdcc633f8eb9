"""The inbox of one exchange: what is kept while nobody reads."""

from collections.abc import Callable, Hashable
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.transports.inbox import Inbox, InboxStatistics

RESPONSE = jsonrpc.ResultReply(1, {})


def updated(uri: object, serial: int = 0) -> jsonrpc.Notification:
    params = {"uri": uri, "serial": serial}
    return jsonrpc.Notification("notifications/resources/updated", params)


def drained(inbox: Inbox) -> list[Any]:
    """All that waits, without a running loop."""
    messages = []
    while inbox.statistics().waiting:
        messages.append(trio.run(inbox.receive))
    return messages


@pytest.mark.parametrize(
    "method",
    [
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    ],
)
def test_the_same_change_waits_once(method: str) -> None:
    """W20, C-23: the same news twice is one message, with the content that came last."""
    inbox = Inbox(coalescing=True)
    for serial in range(1000):
        inbox.put(jsonrpc.Notification(method, {"serial": serial}))
    assert inbox.statistics() == InboxStatistics(waiting=1, coalesced=999, dropped=0)
    assert drained(inbox) == [jsonrpc.Notification(method, {"serial": 999})]


def test_what_precedes_the_acknowledgement_swallows_nothing() -> None:
    """S-02, C-20: a change too early does not count, so a later one must not join it there."""
    inbox = Inbox(coalescing=True)
    acknowledged = jsonrpc.Notification("notifications/subscriptions/acknowledged", {})
    tools = jsonrpc.Notification("notifications/tools/list_changed", {})
    for early_or_late in (updated("a"), tools, acknowledged, updated("a"), tools, tools):
        inbox.put(early_or_late)
    assert drained(inbox)[2:] == [acknowledged, updated("a"), tools]


def test_the_report_of_a_gap_is_not_coalesced_away() -> None:
    """C-24, S-66: that events were lost is said in a change, and must be read."""
    inbox = Inbox(coalescing=True)
    params = {"_meta": {"org.mcp-trio/dropped": 3}}
    tools = jsonrpc.Notification("notifications/tools/list_changed", {})
    gap = jsonrpc.Notification("notifications/tools/list_changed", params)
    for each in (tools, tools, gap, tools, gap):
        inbox.put(each)
    assert drained(inbox) == [tools, gap, gap]


def test_changes_keep_the_order_in_which_they_were_first_queued() -> None:
    """S-61 as the client sees it: coalesced in place."""
    inbox = Inbox(coalescing=True)
    for serial, uri in enumerate("abcab"):
        inbox.put(updated(uri, serial))
    task = jsonrpc.Notification("notifications/tasks", {"taskId": "t", "status": "working"})
    inbox.put(task)
    inbox.put(jsonrpc.Notification("notifications/tasks", {"taskId": "t", "status": "completed"}))
    messages = drained(inbox)
    assert [message.params.get("uri") for message in messages] == ["a", "b", "c", None]
    assert [message.params.get("serial") for message in messages[:3]] == [3, 4, 2]
    assert messages[3].params["status"] == "completed"


def test_the_first_acknowledgement_counts() -> None:
    """C-06: a second one does not take its place while it waits."""
    inbox = Inbox(coalescing=True)
    for text in ("first", "second"):
        inbox.put(jsonrpc.Notification("notifications/subscriptions/acknowledged", {"t": text}))
    assert [message.params["t"] for message in drained(inbox)] == ["first"]


def test_what_is_not_known_to_be_the_same_is_kept_apart() -> None:
    """C-26: events of an extension, and malformed ones, are not merged."""
    inbox = Inbox(coalescing=True)
    for _ in range(3):
        inbox.put(jsonrpc.Notification("x/happened", {}))
        inbox.put(updated(5))
    assert inbox.statistics().waiting == 6


async def test_a_flood_of_different_changes_fails_the_subscription() -> None:
    """W40: it costs the subscription and not the memory."""
    inbox = Inbox(coalescing=True)
    for number in range(1024):
        inbox.put(updated(str(number)))
    assert inbox.statistics().waiting == 1024
    before = inbox.ended
    inbox.put(updated("one more"))
    assert (before, inbox.ended) == (False, True)
    inbox.put(updated("and another"))
    inbox.finish(RESPONSE)
    assert inbox.statistics() == InboxStatistics(waiting=0, coalesced=0, dropped=1025)
    for _ in range(2):
        with pytest.raises(errors.SubscriptionLost, match="1024 different changes"):
            await inbox.receive()


async def test_a_request_loses_its_oldest_notifications_but_never_its_response() -> None:
    """Bounded, and what was dropped is counted."""
    inbox = Inbox(coalescing=False, max_waiting=3)
    for serial in range(5):
        inbox.put(updated("same", serial))
    inbox.finish(RESPONSE)
    inbox.put(updated("late"))
    assert inbox.statistics() == InboxStatistics(waiting=4, coalesced=0, dropped=2)
    serials = [await inbox.receive() for _ in range(3)]
    assert [getattr(message, "params", {})["serial"] for message in serials] == [2, 3, 4]
    assert await inbox.receive() is RESPONSE
    for _ in range(2):
        with pytest.raises(trio.EndOfChannel):
            await inbox.receive()


async def test_a_failure_comes_after_what_is_waiting() -> None:
    """C-25: what arrived before the loss is still read."""
    inbox = Inbox(coalescing=True)
    inbox.put(updated("a"))
    inbox.fail(errors.ConnectionLost("gone"))
    inbox.fail(errors.ConnectionLost("again"))
    await inbox.receive()
    with pytest.raises(errors.ConnectionLost, match="gone"):
        await inbox.receive()


async def test_readers_wake_up_for_whatever_happens(autojump_clock: MockClock) -> None:
    """W17: nobody is left waiting."""
    endings: list[tuple[Callable[[Inbox], None], type[Exception]]] = [
        (lambda inbox: inbox.finish(RESPONSE), trio.EndOfChannel),
        (lambda inbox: inbox.fail(errors.ConnectionLost("x")), errors.ConnectionLost),
        (lambda inbox: inbox.close(), trio.ClosedResourceError),
    ]
    for ending, expected in endings:
        inbox = Inbox(coalescing=True)
        outcomes: list[object] = []

        async def read(inbox: Inbox, outcomes: list[object]) -> None:
            try:
                outcomes.append(await inbox.receive())
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as e:
                outcomes.append(type(e))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(read, inbox, outcomes)
            await trio.testing.wait_all_tasks_blocked()
            inbox.put(updated("a"))
            await trio.testing.wait_all_tasks_blocked()
            assert outcomes == [updated("a")]
            ending(inbox)
        remaining = [outcome for outcome in outcomes if outcome is expected]
        assert len(remaining) >= 1
        assert len(outcomes) == 3


async def test_cancelling_a_reader_loses_nothing(autojump_clock: MockClock) -> None:
    """C-23: an event is delivered or it waits, never neither."""
    inbox = Inbox(coalescing=True)
    with trio.move_on_after(1):
        await inbox.receive()
    inbox.put(updated("a"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await inbox.receive()
    assert await inbox.receive() == updated("a")
    await inbox.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await inbox.receive()


Step = tuple[str, int]


@given(st.lists(st.tuples(st.sampled_from(["put", "take"]), st.integers(0, 5)), max_size=60))
def test_whoever_has_caught_up_has_seen_the_last_of_everything(steps: list[Step]) -> None:
    """S-61, P-01: for each key, something at or after its last arrival has been read."""
    inbox = Inbox(coalescing=True, max_waiting=6)
    last: dict[Hashable, int] = {}
    read: dict[Hashable, int] = {}

    def take() -> None:
        if inbox.statistics().waiting:
            message = trio.run(inbox.receive)
            assert isinstance(message, jsonrpc.Notification)
            assert message.params["serial"] > read.get(message.params["uri"], -1)
            read[message.params["uri"]] = message.params["serial"]

    for serial, (what, number) in enumerate(steps):
        if what == "put":
            inbox.put(updated(str(number), serial))
            last[str(number)] = serial
            assert inbox.statistics().waiting <= 6
        else:
            take()
    while inbox.statistics().waiting:
        take()
    assert read == last
