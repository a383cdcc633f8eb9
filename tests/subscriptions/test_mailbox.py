"""A mailbox against a model that is too simple to be wrong."""

from collections.abc import Hashable
from typing import get_args

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcp_trio.subscriptions.events import (
    Event,
    EventsDropped,
    ExtensionEvent,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_trio.subscriptions.mailbox import Mailbox, Outcome, Overflow

BASES = ("n://a", "n://b")
CORE: list[Event] = [ToolsListChanged(), *map(ResourceUpdated, BASES)]


class MailboxAgainstModel(RuleBasedStateMachine):
    """The model is one list of [event, when, base it stands below], searched from the front."""

    @initialize(
        limit=st.integers(1, 3),
        subs=st.integers(0, 3),
        overflow=st.sampled_from(get_args(Overflow)),
    )
    def start(self, limit: int, subs: int, overflow: Overflow) -> None:
        self.limit, self.subs, self.overflow = limit, subs, overflow
        self.box = Mailbox()
        self.model: list[tuple[Event, float, str | None]] = []
        self.collapsed: set[str] = set()
        self.lost = self.lost_ever = self.coalesced = 0
        self.clock = 0.0
        self.next_key = 0

    def find(self, key: Hashable) -> int | None:
        for at, (event, _, _) in enumerate(self.model):
            if getattr(event, "key", None) == key is not None:
                return at
        return None

    @rule(event=st.sampled_from(CORE))
    def put(self, event: Event) -> None:
        self.clock += 1
        key = getattr(event, "key")  # noqa: B009
        new = self.find(key) is None
        if new:
            self.model.append((event, self.clock, None))
        self.coalesced += not new
        assert self.box.put(key, (event, self.clock)) is new

    @rule(value=st.integers())
    def put_state(self, value: int) -> None:
        self.clock += 1
        event = ExtensionEvent("n/state", {"value": value}, {"taskIds": "t"}, coalesce=True)
        at = self.find(event.key)
        if at is None:
            self.model.append((event, self.clock, None))
        else:
            self.model[at] = (event, self.model[at][1], None)
            self.coalesced += 1
        assert self.box.put_state(event.key, (event, self.clock)) is (at is None)

    @rule(value=st.integers())
    def put_data(self, value: int) -> None:
        self.clock += 1
        event = ExtensionEvent("n/data", {"value": value}, {"x": 1})
        self.next_key += 1
        outcome = self.box.put_data(self.next_key, (event, self.clock), self.limit, self.overflow)
        waiting = [
            at
            for at, (other, _, _) in enumerate(self.model)
            if isinstance(other, ExtensionEvent) and not other.coalesce
        ]
        if len(waiting) < self.limit:
            assert outcome is Outcome.QUEUED
            self.model.append((event, self.clock, None))
            return
        if self.overflow == "close":
            assert outcome is Outcome.OVERFLOW
            return
        self.lost += 1
        self.lost_ever += 1
        if self.overflow == "drop_newest":
            assert outcome is Outcome.DROPPED_NEWEST
            return
        assert outcome is Outcome.DROPPED_OLDEST
        del self.model[waiting[0]]
        self.model.append((event, self.clock, None))

    @rule(base=st.sampled_from(BASES), name=st.sampled_from("wxyz"))
    def put_sub_resource(self, base: str, name: str) -> None:
        self.clock += 1
        event = ResourceUpdated(f"{base}/{name}")
        new = self.box.put_sub_resource(event.key, (event, self.clock), base, self.subs)
        if base in self.collapsed or self.find(event.key) is not None:
            self.coalesced += 1
            assert not new
            return
        if sum(below is not None for _, _, below in self.model) < self.subs:
            self.model.append((event, self.clock, base))
            assert new
            return
        self.collapsed.add(base)
        whole = ResourceUpdated(base)
        replaced = [
            at for at, (other, _, below) in enumerate(self.model) if below == base or other == whole
        ]
        assert new is (not replaced)
        if not replaced:
            self.model.append((whole, self.clock, None))
            return
        self.coalesced += 1
        first = replaced[0]
        self.model[first] = (whole, self.model[first][1], None)
        self.model = [item for at, item in enumerate(self.model) if at not in replaced[1:]]

    @precondition(lambda self: self.model)
    @rule()
    def take(self) -> None:
        if self.lost:
            assert self.box.take() == EventsDropped(self.lost)
            self.lost = 0
        event, _, below = self.model.pop(0)
        assert self.box.take() == event
        if below is None and isinstance(event, ResourceUpdated):
            self.collapsed.discard(event.uri)

    @precondition(lambda self: not self.model)
    @rule()
    def nothing_to_take(self) -> None:
        with pytest.raises(IndexError):
            self.box.take()

    @rule()
    def clear(self) -> None:
        self.box.clear()
        self.model.clear()
        self.collapsed.clear()
        self.lost = 0

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "box"):
            return
        assert len(self.box) == len(self.model)
        assert self.box.oldest == (self.model[0][1] if self.model else None)
        assert self.box.coalesced == self.coalesced
        assert self.box.dropped == self.lost_ever
        # The bound: what the filter allows, one state, and the two limits.
        assert len(self.box) <= len(CORE) + 1 + self.limit + self.subs

    @invariant()
    def an_empty_mailbox_keeps_nothing(self) -> None:
        if hasattr(self, "box") and not self.model:
            slots = {name: getattr(self.box, name) for name in ("_head_key", "_head", "_tail")}
            assert set(slots.values()) == {None}
            assert self.box._data is None
            assert self.box._subs is None


TestMailbox = MailboxAgainstModel.TestCase


def test_draining_a_long_queue_is_linear() -> None:
    """S-44 in spirit: a thousand keys are no reason to look at a million."""
    box = Mailbox()
    events = [ResourceUpdated(f"n://{n}") for n in range(20_000)]
    for event in events:
        box.put(event.key, (event, 0.0))
    assert [box.take() for _ in events] == events
    assert len(box) == 0
