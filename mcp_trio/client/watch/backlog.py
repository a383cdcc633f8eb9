"""What waits for the consumer of a watch, in the order in which it is told.

Before a gap's `Resync` come the changes that were received before the gap; behind it the
snapshot, if there is to be one; behind that the changes since. There is one `Resync` at most, for
however many gaps, and each change once: so the whole is bounded by the filter, however slow the
consumer and however bad the connection.

No I/O and no waiting here.
"""

import itertools
from collections.abc import Hashable
from typing import Final, Literal

import attrs

from mcp_trio.client.watch.filters import names_of
from mcp_trio.client.watch.snapshot import Snapshot
from mcp_trio.subscriptions import uris
from mcp_trio.subscriptions.events import (
    CoreEvent,
    Event,
    EventsDropped,
    ExtensionEvent,
    ResourceUpdated,
    Resync,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.mailbox import Mailbox

__all__ = ["MAX_UNLISTED", "Backlog", "Change", "task_of"]

Change = Event | Snapshot
"""What a watch yields."""

MAX_UNLISTED: Final = 1024
"""How many events that the filter does not name one by one may wait: updates of sub-resources,
and events of extensions, each."""

_TASKS: Final = "notifications/tasks"


class Backlog:
    """The changes, the `Resync` and the snapshot that wait for one consumer.

    Attributes:
        fetching: whether a snapshot is being taken, so that what follows it has to wait.
    """

    def __init__(self) -> None:
        self.fetching = False
        self._before = Mailbox()
        self._resync: Resync | None = None
        self._snapshot: Snapshot | None = None
        self._after = Mailbox()
        self._serials = itertools.count()
        self._coalesced = 0
        self._dropped = 0

    def __len__(self) -> int:
        cues = (self._resync is not None) + (self._snapshot is not None)
        return len(self._before) + len(self._after) + cues

    @property
    def coalesced(self) -> int:
        """How many changes were already waiting when they came again."""
        return self._coalesced + self._before.coalesced + self._after.coalesced

    @property
    def dropped(self) -> int:
        """How many events that carry data were given up."""
        return self._dropped + self._before.dropped + self._after.dropped

    def put(self, event: Event, now: float, wanted: SubscriptionFilter) -> bool:
        """Add an event; False if more wait now than should, and `collapse` is due.

        Args:
            event: the event.
            now: when it came.
            wanted: what the consumer asked for.
        """
        box = self._after if self._is_cued() else self._before
        self._put(box, event, now, wanted)
        known = 3 + len(wanted.resource_subscriptions) + len(wanted.task_ids)
        return len(box) <= known + 3 * MAX_UNLISTED

    def mark(
        self, part: SubscriptionFilter, resync: Resync | None, wanted: SubscriptionFilter
    ) -> None:
        """From here on something is told by a `Resync`, by a snapshot, or by both.

        Args:
            part: what that is about. Changes of it that wait behind an older cue are dropped:
                what is told now covers them.
            resync: what to tell; it takes the place of one that has not been told yet.
            wanted: what the consumer asked for.
        """
        others = [event for event in self._empty("_after") if not _is_covered(event, part)]
        # Nothing is put before a `Resync` that waits: else it could wait for ever.
        box = self._before if self._resync is None else self._after
        for event in others:
            self._put(box, event, 0.0, wanted)
        self._snapshot = None
        self._tell(resync)

    def collapse(self, resync: Resync, wanted: SubscriptionFilter) -> None:
        """Let a `Resync` stand for all changes that wait; events that carry data are kept."""
        for event in [*self._empty("_before"), *self._empty("_after")]:
            if _carries_data(event):
                self._put(self._before, event, 0.0, wanted)
        self._snapshot = None
        self._tell(resync)

    def forget_narrowed(self, granted: SubscriptionFilter) -> None:
        """What is granted again need not be told as narrowed."""
        if self._resync is not None and self._resync.narrowed:
            again = frozenset(names_of(granted))
            narrowed = tuple(name for name in self._resync.narrowed if name not in again)
            self._resync = attrs.evolve(self._resync, narrowed=narrowed)

    def cover(self, key: Hashable) -> None:
        """What is being fetched from now on says more than a change that came before."""
        self._after.discard(key)

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """The snapshot is complete."""
        self._snapshot = snapshot
        self.fetching = False

    def take(self) -> Change | None:
        """The next thing to tell; None if there is nothing yet."""
        if len(self._before):
            return self._before.take()
        if self._resync is not None:
            resync, self._resync = self._resync, None
            return resync
        if self.fetching:
            return None
        if self._snapshot is not None:
            snapshot, self._snapshot = self._snapshot, None
            return snapshot
        self._before, self._after = self._after, self._before
        return self._before.take() if len(self._before) else None

    def clear(self) -> None:
        """Forget everything."""
        self._before.clear()
        self._after.clear()
        self._resync = self._snapshot = None
        self.fetching = False

    def _is_cued(self) -> bool:
        return self.fetching or self._resync is not None or self._snapshot is not None

    def _tell(self, resync: Resync | None) -> None:
        if resync is not None and self._resync is not None:
            both = dict.fromkeys((*self._resync.narrowed, *resync.narrowed))
            resync = attrs.evolve(resync, narrowed=tuple(both))
        self._resync = resync or self._resync

    def _empty(self, name: Literal["_before", "_after"]) -> list[Event]:
        box: Mailbox = getattr(self, name)
        setattr(self, name, Mailbox())
        self._coalesced += box.coalesced
        self._dropped += box.dropped
        events = []
        while len(box):
            events.append(box.take())
        return events

    def _put(self, box: Mailbox, event: Event, now: float, wanted: SubscriptionFilter) -> None:
        entry = (event, now)
        if isinstance(event, ExtensionEvent) and (task := task_of(event)) is not None:
            box.put_state((event.method, task), entry)
        elif _carries_data(event):
            box.put_data(next(self._serials), entry, MAX_UNLISTED, "drop_oldest")
        elif isinstance(event, ResourceUpdated) and not wanted.covers(event.uri):
            base = next(filter(wanted.covers, uris.ancestors(event.uri)), None)
            if base is None:
                box.put(event.key, entry)  # below which of them it is only the server knows
            else:
                box.put_sub_resource(event.key, entry, base, MAX_UNLISTED)
        elif isinstance(event, CoreEvent):
            box.put(event.key, entry)


def task_of(event: ExtensionEvent) -> str | None:
    """The task whose state an event is, if it is one."""
    task = event.params.get("taskId") if event.method == _TASKS else None
    return task if isinstance(task, str) else None


def _carries_data(event: Event) -> bool:
    return isinstance(event, ExtensionEvent | EventsDropped)


def _is_covered(event: Event, part: SubscriptionFilter) -> bool:
    return not _carries_data(event) and part.matches(event, sub_resources=True)
