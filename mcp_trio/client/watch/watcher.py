"""What the consumer of a watch holds: a channel of changes that goes on."""

from typing import TYPE_CHECKING

import attrs
import trio

from mcp_trio import errors
from mcp_trio.client.watch.backlog import Backlog, Change, task_of
from mcp_trio.client.watch.filters import names_of, union
from mcp_trio.client.watch.snapshot import Snapshot
from mcp_trio.client.watch.statistics import WatchStatistics
from mcp_trio.subscriptions.events import Event, EventsDropped, ExtensionEvent, Resync
from mcp_trio.subscriptions.filter import SubscriptionFilter

if TYPE_CHECKING:
    from mcp_trio.client.watch.supervisor import Supervisor

__all__ = ["Watcher", "check_filter"]


class Watcher(trio.abc.ReceiveChannel[Change]):
    """One logical stream of changes, over any number of losses; `Client.watch` opens it.

    Iterate over it, or call `receive`. Beside the changes it yields a `Resync` after every gap:
    anything that it covers may have changed then, so read again what you have read before. With
    ``snapshot=True`` a `Snapshot` follows that says what it is now.

    It reads on while nobody receives, and keeps each change once: memory is bounded by the
    filter. It ends when its block is left, or with `errors.WatchEnded`; never in silence.

    Attributes:
        requested: the filter that is asked for.
        is_started: whether streams have been opened for it, with which it ends.
    """

    def __init__(
        self, supervisor: "Supervisor", wanted: SubscriptionFilter, *, snapshot: bool
    ) -> None:
        self.requested: SubscriptionFilter = wanted
        self.is_started: bool = False
        self._supervisor = supervisor
        self._snapshot = snapshot
        self._interest = wanted
        self._admitted = False
        self._backlog = Backlog()
        self._to_fetch = SubscriptionFilter()
        self._fetching = trio.CancelScope()
        self._error: errors.WatchEnded | None = None
        self._closed = False
        self._receivers = trio.lowlevel.ParkingLot()
        self._events = self._resyncs = self._snapshots = 0

    def __repr__(self) -> str:
        if self._closed or self._error is not None:
            state = "closed" if self._closed else "ended"
        else:
            state = "open" if self._supervisor.is_open else "reopening"
        return f"<Watcher {state}>"

    @property
    def acknowledged(self) -> SubscriptionFilter:
        """What of it the server has granted, as of the last acknowledgement."""
        return self.requested.intersection(self._supervisor.acknowledged)

    @property
    def declined(self) -> SubscriptionFilter:
        """What is asked for and not granted."""
        return self.requested.difference(self.acknowledged)

    def statistics(self) -> WatchStatistics:
        """What it has been through, and how it stands."""
        return WatchStatistics(
            **self._supervisor.history(),
            events=self._events,
            resyncs=self._resyncs,
            snapshots=self._snapshots,
            waiting=len(self._backlog),
            coalesced=self._backlog.coalesced,
            dropped=self._backlog.dropped,
        )

    async def wait_open(self) -> None:
        """Wait until there is a stream: at once, unless it is just being opened again.

        Cancelling stops the waiting only.

        Raises:
            errors.WatchEnded: there will be none.
            trio.ClosedResourceError: it was closed here.
        """
        await trio.lowlevel.checkpoint()
        self.raise_if_over()
        while not self._supervisor.is_open:
            await self._supervisor.news()
            self.raise_if_over()

    async def receive(self) -> Change:
        """Wait for the next change, `Resync` or snapshot. Cancelling loses none.

        Any number of tasks may receive; each thing goes to one of them.

        Raises:
            errors.WatchEnded: it will not go on, and what had come before has been received.
            trio.ClosedResourceError: it was closed here.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        waited = False
        while True:
            if self._closed:
                self.raise_if_over()
            change = self._backlog.take()
            if change is not None:
                break
            self.raise_if_over()
            await self._receivers.park()
            waited = True
        if not waited:
            await trio.lowlevel.cancel_shielded_checkpoint()
        if isinstance(change, Snapshot):
            self._to_fetch = SubscriptionFilter()
            self._snapshots += 1
        elif isinstance(change, Resync):
            self._resyncs += 1
        else:
            self._events += 1
        return change

    async def update(self, wanted: SubscriptionFilter) -> None:
        """Ask for something else from now on, without a gap.

        A stream with the new filter is opened and acknowledged before the old one is left;
        parts of a large filter that stay the same keep their streams. If there is no stream just
        now, its return is waited for first. With ``snapshot=True`` a snapshot of what has been
        added follows. What already waits to be received is not touched. Updates run one after
        the other. Cancelling leaves the old filter in force.

        Args:
            wanted: the filter.

        Raises:
            TypeError: it is no `SubscriptionFilter`.
            ValueError: it asks for nothing, or for what cannot be asked for on one stream
                together with what others ask for who share it.
            errors.McpError: the new stream could not be opened, for whatever reason; the old
                filter remains in force. It is tried once.
            errors.WatchEnded: the watch has ended.
            trio.ClosedResourceError: it was closed here.
        """
        check_filter(wanted)
        await self._supervisor.update(self, wanted)

    async def aclose(self) -> None:
        """Close it from this side; leaving its block does so by itself. Twice is fine.

        Whoever waits in `receive` gets `trio.ClosedResourceError`.
        """
        self._supervisor.leave(self)
        await trio.lowlevel.checkpoint()

    # What follows is for the supervisor.

    def raise_if_over(self) -> None:
        """Raise what there is to raise.

        Raises:
            errors.WatchEnded: it has ended.
            trio.ClosedResourceError: it was closed.
        """
        if self._closed:
            raise trio.ClosedResourceError("the watch was closed")
        if self._error is not None:
            error = self._error
            raise errors.WatchEnded(str(error), reason=error.reason) from error.__cause__

    def raise_cause_if_refused(self) -> None:
        """Before it is open, whoever opens it is better served with the cause itself."""
        error = self._error
        if error is not None and error.reason == "refused" and error.__cause__ is not None:
            raise error.__cause__

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was closed."""
        return self._closed or self._error is not None

    def admit(self) -> None:
        """Its streams are open: the consumer's block is entered."""
        self._admitted = True
        self._fetch_afresh(self.acknowledged)

    def concerns(self, event: Event) -> bool:
        """Whether an event is, by its name, among what this consumer asks for."""
        interest = self._interest
        if isinstance(event, ExtensionEvent):
            task = task_of(event)
            return bool(interest.extensions) or (
                bool(interest.task_ids) if task is None else task in interest.task_ids
            )
        if isinstance(event, EventsDropped):
            return bool(interest.extensions or interest.task_ids)
        return interest.matches(event, sub_resources=True)

    @property
    def has_resources(self) -> bool:
        """Whether an update of any resource may be about one below those asked for."""
        return bool(self._interest.resource_subscriptions)

    def put(self, event: Event) -> None:
        """An event has come."""
        if not self._backlog.put(event, trio.current_time(), self._interest):
            reason = "more different changes waited than are kept"
            self._backlog.collapse(Resync(reason), self._interest)
            self._fetch_afresh(self.acknowledged)
        self._wake()

    def gap(
        self, part: SubscriptionFilter, reason: str, lost: SubscriptionFilter | None = None
    ) -> None:
        """Changes may have been missed.

        Args:
            part: of what.
            reason: why.
            lost: what was granted before and is not any more.
        """
        part = part.intersection(self._interest)
        if not part or self.is_over:
            return
        narrowed = () if lost is None else names_of(lost.intersection(self.requested))
        self._backlog.mark(part, Resync(reason, narrowed), self._interest)
        self._backlog.forget_narrowed(self.acknowledged)
        self._fetch_afresh(part.intersection(self.acknowledged))
        self._wake()

    def expect(self, wanted: SubscriptionFilter) -> None:
        """Another filter is about to be in force: take what comes of either."""
        old = self.requested
        both = union((_named(old), _named(wanted)))
        self._interest = attrs.evolve(both, extensions={**old.extensions, **wanted.extensions})

    def change(self, wanted: SubscriptionFilter) -> None:
        """The filter is in force; or it is the old one, and the other will not be."""
        before = self.acknowledged
        self.requested = self._interest = wanted
        added = self.acknowledged.difference(before)
        if self._snapshot and _core(added):
            self._backlog.mark(added, None, wanted)
            self._fetch_afresh(added)

    def fail(self, error: errors.WatchEnded) -> None:
        """It has ended."""
        self._error = self._error or error
        self._stop_fetching()
        self._wake()

    def close(self) -> None:
        """It was closed here."""
        self._closed = True
        self._stop_fetching()
        self._backlog.clear()
        self._wake()

    def _wake(self) -> None:
        self._receivers.unpark_all()

    def _stop_fetching(self) -> None:
        self._fetching.cancel()
        self._backlog.fetching = False

    def _fetch_afresh(self, part: SubscriptionFilter) -> None:
        """Take a snapshot of this, and of what an unfinished or unread one was about."""
        if not self._snapshot or not self._admitted or self.is_over:
            return
        self._to_fetch = union((self._to_fetch, _core(part))).intersection(self.acknowledged)
        self._stop_fetching()
        if self._to_fetch:
            self._backlog.fetching = True
            self._fetching = trio.CancelScope()
            self._supervisor.start_soon(self._fetch, self._fetching, self._to_fetch)

    async def _fetch(self, scope: trio.CancelScope, part: SubscriptionFilter) -> None:
        with scope:
            snapshot = await self._supervisor.fetch(part, self._backlog.cover)
            if scope is self._fetching:
                self._backlog.put_snapshot(snapshot)
                self._wake()


def check_filter(wanted: object) -> None:
    """Refuse what cannot be watched.

    Raises:
        TypeError: it is no filter.
        ValueError: it asks for nothing.
    """
    if not isinstance(wanted, SubscriptionFilter):
        raise TypeError(f"expected a SubscriptionFilter, got {type(wanted).__name__}")
    if not wanted:
        raise ValueError("the filter asks for nothing")


def _named(wanted: SubscriptionFilter) -> SubscriptionFilter:
    return attrs.evolve(wanted, extensions={})


def _core(wanted: SubscriptionFilter) -> SubscriptionFilter:
    """What of it can be read."""
    return attrs.evolve(wanted, extensions={}, task_ids=())
