"""The outbox of a bridge: bounded, in order, and no core event is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.subscriptions.bus_messages import BusEvent, decode_message
from mcp_trio.subscriptions.events import (
    Event,
    EventsDropped,
    ExtensionEvent,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.outbox import Batch, Outbox


def contents(batch: Batch) -> list[Event]:
    return [item.event for item in decode_message(batch.encode("me", 1)).events]


def data(n: int) -> ExtensionEvent:
    return ExtensionEvent("x/data", {"n": n}, {"taskIds": "t"})


def state(n: int, task: str = "t") -> ExtensionEvent:
    return ExtensionEvent("x/state", {"n": n}, {"taskIds": task}, coalesce=True)


def updated(n: int) -> ResourceUpdated:
    return ResourceUpdated(f"file:///{n:04}")


def filled(*events: Event, limit: int = 10_000, max_event: int = 1000) -> Outbox:
    outbox = Outbox(limit=limit, max_event=max_event)
    for event in events:
        outbox.put(event)
    return outbox


def test_keys_coalesce() -> None:
    """The same key twice is one thing; data counts each time, a state only its newest."""
    outbox = filled(
        ToolsListChanged(), updated(1), updated(1), ToolsListChanged(), data(1), data(1),
        state(1), state(2), state(3, "u"),
    )  # fmt: skip
    assert len(outbox) == 6
    batch = outbox.take(10_000)
    assert contents(batch) == [
        ToolsListChanged(), updated(1), state(2), state(3, "u"), data(1), data(1),
    ]  # fmt: skip
    assert len(outbox) == 0
    assert outbox.size == 0


def test_the_wider_update_stays() -> None:
    """With sub-resources or without: whoever hears of the first hears of both."""
    for wide_first in (True, False):
        outbox = Outbox(limit=1000, max_event=1000)
        outbox.put(updated(1), wide_first)
        outbox.put(updated(1), not wide_first)
        events = decode_message(outbox.take(1000).encode("me", 1)).events
        assert events == (BusEvent(updated(1), True),)


def test_too_much_collapses() -> None:
    """Beyond the bound "anything may have changed" is enough, and nothing adds to it."""
    outbox = filled(*map(updated, range(100)), limit=1000)
    assert len(outbox) == 1
    assert outbox.size == 0
    assert outbox.collapsed == 1
    batch = outbox.take(1000)
    assert batch.anything
    assert not contents(batch)
    assert len(outbox) == 0


def test_one_that_is_too_long_collapses() -> None:
    """A URI that fits into no message."""
    outbox = filled(ResourceUpdated("x" * 2000), max_event=1000)
    assert outbox.take(1000).anything


def test_resync_is_anything() -> None:
    """Whoever says it on the hub says it to all processes."""
    assert filled(updated(1), Resync("database")).take(1000) == Batch(anything=True)


def test_too_much_data_drops_the_oldest() -> None:
    """And counts it; core events are not touched by that."""
    outbox = filled(updated(1), *map(data, range(100)), limit=1000)
    sent = contents(outbox.take(10_000))
    assert sent[0] == updated(1)
    assert sent[1:] == [data(n) for n in range(100 - len(sent) + 1, 100)]
    assert outbox.dropped == 100 - len(sent) + 1


def test_data_that_is_too_long_is_dropped() -> None:
    """It fits into no message."""
    outbox = filled(ExtensionEvent("x", {"x": "x" * 2000}, {"a": 1}), max_event=1000)
    assert len(outbox) == 0
    assert outbox.dropped == 1


def test_what_fits_is_taken_in_order() -> None:
    """A message is full; the rest comes with the next."""
    events: list[Event] = [*map(updated, range(50)), data(1)]
    outbox = filled(*events)
    taken: list[Event] = []
    while outbox:
        part = contents(outbox.take(200))
        assert part
        taken += part
    assert taken == events
    assert outbox.size == 0


def test_put_back() -> None:
    """Core events and states are sent again, data is not; newer states stay newer."""
    outbox = filled(updated(1), data(1), state(1), state(1, "u"))
    batch = outbox.take(1000)
    outbox.put(updated(2))
    outbox.put(state(2))
    outbox.put(data(2))
    outbox.put_back(batch)
    assert outbox.dropped == 1
    assert set(map(repr, contents(outbox.take(1000)))) == set(
        map(repr, [updated(1), updated(2), state(2), state(1, "u"), data(2)])
    )


def test_put_back_anything() -> None:
    """It stands for the events of the meantime as well."""
    outbox = filled(Resync())
    batch = outbox.take(1000)
    outbox.put(updated(1))
    outbox.put_back(batch)
    assert outbox.take(1000) == Batch(anything=True)


def test_put_back_may_collapse() -> None:
    """There is room for the newer ones only."""
    outbox = filled(*map(updated, range(20)), limit=1000)
    batch = outbox.take(10_000)
    for n in range(20, 40):
        outbox.put(updated(n))
    outbox.put_back(batch)
    assert outbox.take(10_000) == Batch(anything=True)


def test_not_for_a_bus() -> None:
    """A cue of a single listener's."""
    with pytest.raises(TypeError):
        filled(EventsDropped(1))


@given(
    st.lists(
        st.one_of(
            st.integers(0, 9).map(lambda n: ("put", n)),
            st.tuples(st.just("take"), st.integers(60, 400)),
            st.tuples(st.just("fail"), st.integers(60, 400)),
        ),
        max_size=60,
    ),
    st.integers(100, 400),
)
def test_no_change_is_lost(steps: list[tuple[str, int]], limit: int) -> None:
    """Whatever was put in is taken out, at or after its last put, or anything is."""
    outbox = Outbox(limit=limit, max_event=100)
    owed: set[Event] = set()

    def settle(batch: Batch) -> None:
        owed.difference_update(list(owed) if batch.anything else contents(batch))

    for what, number in steps:
        if what == "put":
            outbox.put(updated(number))
            owed.add(updated(number))
        elif what == "take":
            settle(outbox.take(number))
        else:
            outbox.put_back(outbox.take(number))
        assert outbox.size <= limit
    while outbox:
        settle(outbox.take(400))
    assert not owed
