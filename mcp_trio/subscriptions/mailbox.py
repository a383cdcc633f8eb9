"""What waits for one listener: keys in first-queued order, each with its event.

Core events are level triggers, so the same key twice is one entry, and how many entries there
can be follows from the listener's filter. Only two things need a bound of their own: events
that carry data, and updates of sub-resources. The second is exceeded without a loss: the
sub-resources of one subscribed URI collapse into an update of that URI.

No I/O and no waiting here; the hub adds those.
"""

import enum
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Literal

from mcp_trio.subscriptions.events import Event, EventsDropped, ResourceUpdated

__all__ = ["Entry", "Mailbox", "Outcome", "Overflow"]

Entry = tuple[Event, float]
"""An event and when it was published; one tuple, shared by all listeners it waits for."""

Overflow = Literal["drop_oldest", "drop_newest", "close"]
"""What happens to a listener for which too many events that carry data wait."""


class Outcome(enum.Enum):
    """What became of an event in one mailbox."""

    QUEUED = enum.auto()
    COALESCED = enum.auto()
    DROPPED_OLDEST = enum.auto()
    DROPPED_NEWEST = enum.auto()
    OVERFLOW = enum.auto()


class _SubResources:
    """Which of the waiting keys stand there for which subscribed URI."""

    __slots__ = ("base_of", "collapsed")

    def __init__(self) -> None:
        self.base_of: dict[Hashable, str] = {}
        self.collapsed: set[str] = set()

    def without(self, key: Hashable, event: Event) -> "_SubResources | None":
        """What is left when an event has been taken out."""
        if self.base_of.pop(key, None) is None and isinstance(event, ResourceUpdated):
            self.collapsed.discard(event.uri)
        return self if self.base_of or self.collapsed else None


class Mailbox:
    """The events that wait for one listener.

    Most mailboxes hold nothing, or one event, most of the time; so the first entry has a place
    of its own, and the rest is made when it is needed.
    """

    __slots__ = (
        "_data",
        "_head",
        "_head_key",
        "_subs",
        "_tail",
        "_undeclared",
        "coalesced",
        "dropped",
    )

    def __init__(self) -> None:
        self._head_key: Hashable | None = None
        self._head: Entry | None = None
        self._tail: OrderedDict[Hashable, Entry] | None = None
        self._data: deque[int] | None = None
        self._subs: _SubResources | None = None
        self._undeclared = 0
        self.coalesced = 0
        self.dropped = 0

    def __len__(self) -> int:
        if self._head_key is None:
            return 0
        return 1 if self._tail is None else 1 + len(self._tail)

    @property
    def oldest(self) -> float | None:
        """When the first waiting event was published; None if nothing waits."""
        return None if self._head is None else self._head[1]

    def put(self, key: Hashable, entry: Entry) -> bool:
        """Add a level trigger; False if its key already waits, which is as good."""
        if self._head_key is None:
            self._head_key, self._head = key, entry
            return True
        tail = self._tail
        if key == self._head_key or (tail is not None and key in tail):
            self.coalesced += 1
            return False
        if tail is None:
            tail = self._tail = OrderedDict()
        tail[key] = entry
        return True

    def put_state(self, key: Hashable, entry: Entry) -> bool:
        """Add a state; False if it took the place of an older one, and its age."""
        if self.put(key, entry):
            return True
        if self._head is not None and key == self._head_key:
            self._head = (entry[0], self._head[1])
        elif self._tail is not None:
            self._tail[key] = (entry[0], self._tail[key][1])
        return False

    def put_data(self, key: int, entry: Entry, limit: int, overflow: Overflow) -> Outcome:
        """Add an event that carries data, of which no more than `limit` wait.

        Args:
            key: a number that no other waiting event has.
            entry: the event.
            limit: at least 1.
            overflow: what to do beyond it.
        """
        data = self._data
        if data is None:
            data = self._data = deque()
        outcome = Outcome.QUEUED
        if len(data) >= limit:
            if overflow == "close":
                return Outcome.OVERFLOW
            self.dropped += 1
            self._undeclared += 1
            if overflow == "drop_newest":
                return Outcome.DROPPED_NEWEST
            self._remove(data.popleft())
            outcome = Outcome.DROPPED_OLDEST
        data.append(key)
        self.put(key, entry)
        return outcome

    def put_sub_resource(self, key: Hashable, entry: Entry, base: str, limit: int) -> bool:
        """Add an update of a resource below a subscribed URI, of which no more than `limit` wait.

        Beyond the limit the updates below `base` collapse into one of `base` itself, in the
        place of the first. False if nothing was added to what waits.
        """
        subs = self._subs
        if subs is None:
            subs = self._subs = _SubResources()
        if base in subs.collapsed:
            self.coalesced += 1
            return False
        if key in subs.base_of:
            self.coalesced += 1
            return False
        if len(subs.base_of) < limit:
            subs.base_of[key] = base
            return self.put(key, entry)
        subs.collapsed.add(base)
        collapsed = ResourceUpdated(base)
        below = {queued for queued, its_base in subs.base_of.items() if its_base == base}
        if not below:
            return self.put(collapsed.key, (collapsed, entry[1]))
        self._replace(below, collapsed)
        for queued in below:
            del subs.base_of[queued]
        self.coalesced += 1
        return False

    def take(self) -> Event:
        """Remove and return the first event; a loss is told before it.

        Raises:
            IndexError: nothing waits.
        """
        if self._undeclared:
            lost, self._undeclared = self._undeclared, 0
            return EventsDropped(lost)
        if self._head is None:
            raise IndexError("nothing waits")
        key, (event, _) = self._head_key, self._head
        self._advance()
        if self._data is not None and type(key) is int:
            self._data.popleft()
            self._data = self._data or None
        if self._subs is not None:
            self._subs = self._subs.without(key, event)
        return event

    def discard(self, key: Hashable) -> bool:
        """Remove a level trigger; whether it was waiting."""
        if key == self._head_key:
            entry = self._head
        else:
            entry = None if self._tail is None else self._tail.get(key)
        if entry is None:
            return False
        self._remove(key)
        if self._subs is not None:
            self._subs = self._subs.without(key, entry[0])
        return True

    def clear(self) -> None:
        """Forget everything that waits."""
        self._head_key = self._head = self._tail = self._data = self._subs = None
        self._undeclared = 0

    def _advance(self) -> None:
        if self._tail is None:
            self._head_key = self._head = None
            return
        self._head_key, self._head = self._tail.popitem(last=False)
        self._tail = self._tail or None

    def _remove(self, key: Hashable) -> None:
        if key == self._head_key:
            self._advance()
        elif self._tail is not None:
            del self._tail[key]
            self._tail = self._tail or None

    def _replace(self, keys: set[Hashable], event: ResourceUpdated) -> None:
        """Let one event stand for several, in the place of the first; it may be one of them."""
        queue = OrderedDict(self._tail or {})
        queue[self._head_key] = self._head  # type: ignore[assignment]
        queue.move_to_end(self._head_key, last=False)
        replaced: OrderedDict[Hashable, Entry] = OrderedDict()
        for key, entry in queue.items():
            if key == event.key or key in keys:
                replaced.setdefault(event.key, (event, entry[1]))
            else:
                replaced[key] = entry
        self._head_key, self._head = replaced.popitem(last=False)
        self._tail = replaced or None
