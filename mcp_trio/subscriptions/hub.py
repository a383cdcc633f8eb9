"""The hub: publish here, and every listener whose filter matches hears of it.

Publishing never waits and never loses a core event. What a listener has not fetched yet is kept
as keys, each once, so a slow listener costs a bounded amount of memory and nobody's time.

Source: specification, basic/patterns/subscriptions.
"""

import itertools
import logging
import math
import threading
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import ClassVar, Final, get_args

import attrs
import trio

from mcp_trio import errors
from mcp_trio.subscriptions import frames, uris
from mcp_trio.subscriptions.events import (
    CoreEvent,
    Event,
    ExtensionEvent,
    Kind,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import ALL_KINDS, SubscriptionFilter, narrow_by_capabilities
from mcp_trio.subscriptions.index import Index
from mcp_trio.subscriptions.mailbox import Entry, Mailbox, Outcome, Overflow
from mcp_trio.subscriptions.source import (
    CloseReason,
    End,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)

__all__ = ["Hub", "HubStatistics", "ListenerStatistics", "PublishReport"]

log = logging.getLogger(__name__)


@attrs.frozen
class PublishReport:
    """What one publication did.

    Attributes:
        matched: listeners that the event is for.
        delivered: of these, how many were waiting and take it at once.
        buffered: how many were busy; it waits for them.
        coalesced: how many had the same news waiting already.
        dropped: events that carry data and were lost, one for each listener too far behind.
            With ``drop_oldest`` such a listener counts as buffered as well.
        closed: listeners that were too far behind and are ended for it (``close``).
    """

    matched: int = 0
    delivered: int = 0
    buffered: int = 0
    coalesced: int = 0
    dropped: int = 0
    closed: int = 0


_NOBODY: Final = PublishReport()


@attrs.frozen
class ListenerStatistics:
    """One listener; what it listens to, and for whom, is left out on purpose.

    Attributes:
        queued: events that wait for it.
        oldest_queued_age: how long the first of them has waited, in seconds; 0.0 if none does.
        last_pull_age: seconds since it last asked for an event, which is when the event before
            had been written; None if it has not asked yet.
        coalesced: news it did not need to be told twice, so far.
        dropped: events that carry data it has lost, so far.
        waiting: whether it waits for the next event, idle.
        closing: whether it is being ended, and only drains.
    """

    queued: int
    oldest_queued_age: float
    last_pull_age: float | None
    coalesced: int
    dropped: int
    waiting: bool
    closing: bool


@attrs.frozen
class HubStatistics:
    """A hub at one moment.

    Attributes:
        subscriptions: open listeners, with those being ended.
        closing: listeners that are being ended and only drain.
        queued: events that wait, over all listeners.
        oldest_queued_age: how long the first of them has waited, in seconds; 0.0 if none does.
        published: publications so far.
        coalesced: so far, over all listeners.
        dropped: events that carry data and were lost so far, over all listeners.
        overflowed: listeners ended so far because they were too far behind.
        listeners: each listener, if asked for.
    """

    subscriptions: int
    closing: int
    queued: int
    oldest_queued_age: float
    published: int
    coalesced: int
    dropped: int
    overflowed: int
    listeners: tuple[ListenerStatistics, ...] = ()


class _Listener(Mailbox, SourceHandle):
    """A mailbox with somebody behind it."""

    __slots__ = ("_accepted", "_closed", "_end", "_hub", "_pulling", "_task", "last_pull")

    ends_itself: ClassVar[bool] = True

    def __init__(self, hub: "Hub", accepted: SubscriptionFilter) -> None:
        super().__init__()
        self._hub = hub
        self._accepted = accepted
        self._end: End | None = None
        self._task: trio.lowlevel.Task | None = None
        self._pulling = False
        self._closed = False
        self.last_pull: float | None = None

    @property
    def accepted(self) -> SubscriptionFilter:
        return self._accepted

    @property
    def end(self) -> End | None:
        return self._end

    @property
    def waiting(self) -> bool:
        return self._task is not None

    def wake(self) -> bool:
        """Resume the task that waits in `receive`; whether one did.

        It finds its event in the mailbox. A writer that can take a frame without waiting could
        be tried here first, while nothing else is queued.
        """
        task = self._task
        if task is None:
            return False
        self._task = None
        trio.lowlevel.reschedule(task)
        return True

    async def receive(self) -> Event:
        if self._pulling:
            raise trio.BusyResourceError("another task waits for the next event already")
        self._pulling = True
        try:
            self.last_pull = trio.current_time()
            if self._head is not None or self._end is not None or self._closed:
                await trio.lowlevel.checkpoint()
            else:
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort)
        finally:
            self._pulling = False
        if self._head is None:
            raise trio.EndOfChannel
        return self.take()

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def complete(self, end: End) -> bool:
        if self._end is None and not self._closed:
            self._end = end
            self._hub._retire(self)  # noqa: SLF001
            self.wake()
        return True

    async def aclose(self, reason: CloseReason) -> None:
        if not self._closed:
            self._closed = True
            self._hub._forget(self)  # noqa: SLF001
            self.clear()
            self.wake()
        await trio.lowlevel.checkpoint()

    def statistics(self, now: float) -> ListenerStatistics:
        return ListenerStatistics(
            queued=len(self),
            oldest_queued_age=0.0 if self.oldest is None else now - self.oldest,
            last_pull_age=None if self.last_pull is None else now - self.last_pull,
            coalesced=self.coalesced,
            dropped=self.dropped,
            waiting=self.waiting,
            closing=self._end is not None,
        )


class Hub(SubscriptionSource):
    """A subscription source that hands on what is published to it.

    One hub serves any number of connections of one `trio.run`. It can be made, and published
    to, before that starts; until somebody listens, publishing does nothing.

    Args:
        kinds: the kinds of core event that will be published here. The server advertises, and
            acknowledges, no others.
        max_data_events: how many events that carry data (`ExtensionEvent` without `coalesce`)
            may wait for one listener. Core events need no limit, theirs follows from the filter.
        overflow: what happens beyond that: ``"drop_oldest"`` or ``"drop_newest"`` lose an event
            and tell the client with the next one; ``"close"`` ends the subscription, after what
            is queued, with the reason ``"overflow"``.
        sub_resources: whether an update below a URI, by path segments, counts for a
            subscription to that URI: for no URI, for all, or for those for which the function
            returns True. It is called during `publish`; if it raises, the answer is no.
        max_sub_resources: how many updates of sub-resources may wait for one listener; beyond
            it, those of one subscribed URI collapse into an update of that URI.
        on_interest: called with a URI and True when its first listener has come, and with
            False when its last one has gone, so that watching can start and stop. It must not
            block; an exception is logged.

    Raises:
        ValueError: a limit or a policy that there is not.
    """

    emits_sub_resources = True

    def __init__(
        self,
        *,
        kinds: Collection[Kind] = ALL_KINDS,
        max_data_events: int = 100,
        overflow: Overflow = "drop_oldest",
        sub_resources: bool | Callable[[str], bool] = False,
        max_sub_resources: int = 256,
        on_interest: Callable[[str, bool], object] | None = None,
    ) -> None:
        if not ALL_KINDS.issuperset(kinds) or isinstance(kinds, str):
            raise ValueError(f"kinds are some of {sorted(ALL_KINDS)}")
        if max_data_events < 1:
            raise ValueError("max_data_events must be at least 1")
        if max_sub_resources < 0:
            raise ValueError("max_sub_resources must not be negative")
        if overflow not in get_args(Overflow):
            raise ValueError(f"overflow is one of {get_args(Overflow)}")
        self.kinds = frozenset(kinds)
        self._max_data_events = max_data_events
        self._overflow: Overflow = overflow
        self._sub_resources = sub_resources
        self._max_sub_resources = max_sub_resources
        self._on_interest = on_interest
        self._listeners: dict[_Listener, None] = {}
        self._index: Index[_Listener] = Index()
        self._data_keys = itertools.count()
        self._draining = False
        self._all_closed: trio.Event | None = None
        self._thread: int | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._published = self._coalesced = self._dropped = self._overflowed = 0

    # Publishing

    def publish(self, event: Event, *, include_sub_resources: bool = False) -> PublishReport:
        """Tell every listener that the event is for. Never waits, whatever the listeners do.

        Callable from any task, and from synchronous code, in the thread of the hub's
        `trio.run`; from other threads use `publish_from_thread`.

        Args:
            event: what has changed.
            include_sub_resources: whether an update counts for subscriptions to every URI that
                its own lies below, by path segments, whatever the hub's `sub_resources` says.

        Returns:
            What became of it.

        Raises:
            RuntimeError: called from another thread.
            TypeError: not an event that can be published.
            ValueError: an extension's event without a selector, or with a method or data that
                cannot be sent. Nobody has been told.
        """
        if self._listeners and threading.get_ident() != self._thread:
            raise RuntimeError("use publish_from_thread: this is not the thread of the hub's run")
        match event:
            case ResourceUpdated():
                report = self._publish_update(event, include_sub_resources)
            case ToolsListChanged() | PromptsListChanged() | ResourcesListChanged():
                report = self._put(self._index.of_kind(type(event)), event)
            case ExtensionEvent():
                report = self._publish_extension(event)
            case Resync():
                report = self._publish_resync()
            case _:
                raise TypeError(f"not an event to publish: {event!r}")
        self._published += 1
        return report

    def publish_from_thread(
        self, event: Event, *, include_sub_resources: bool = False
    ) -> PublishReport:
        """`publish` from a thread that is not Trio's; blocks until it is done.

        Before anybody has ever listened, and after the hub's `trio.run` is over, it does
        nothing.

        Raises:
            RuntimeError: called from a Trio task, which it would block for ever.
            TypeError, ValueError: as `publish`.
        """
        if self._token is None:
            return _NOBODY
        try:
            return trio.from_thread.run_sync(
                lambda: self.publish(event, include_sub_resources=include_sub_resources),
                trio_token=self._token,
            )
        except trio.RunFinishedError:
            return _NOBODY

    def _put(self, listeners: Collection[_Listener], event: CoreEvent) -> PublishReport:
        if not listeners:
            return _NOBODY
        key, entry = event.key, (event, trio.current_time())
        delivered = buffered = coalesced = 0
        for listener in listeners:
            if not listener.put(key, entry):
                coalesced += 1
            elif listener.wake():
                delivered += 1
            else:
                buffered += 1
        self._coalesced += coalesced
        return PublishReport(delivered + buffered + coalesced, delivered, buffered, coalesced)

    def _publish_update(self, event: ResourceUpdated, everywhere: bool) -> PublishReport:
        index = self._index
        listeners = index.of_uri(event.uri)
        report = self._put(listeners, event)
        if not index.has_uris or (self._sub_resources is False and not everywhere):
            return report
        above = [
            (base, found)
            for base in uris.ancestors(event.uri)
            if (found := index.of_uri(base)) and (everywhere or self._declared(base))
        ]
        return _sum(report, self._put_below(above, set(listeners), event)) if above else report

    def _put_below(
        self,
        above: list[tuple[str, Collection[_Listener]]],
        told: set[_Listener],
        event: ResourceUpdated,
    ) -> PublishReport:
        """Tell those who subscribed above; each once, for the nearest of its URIs."""
        key, entry = event.key, (event, trio.current_time())
        delivered = buffered = coalesced = 0
        for base, listeners in above:
            for listener in listeners:
                if listener in told:
                    continue
                told.add(listener)
                if not listener.put_sub_resource(key, entry, base, self._max_sub_resources):
                    coalesced += 1
                elif listener.wake():
                    delivered += 1
                else:
                    buffered += 1
        self._coalesced += coalesced
        return PublishReport(delivered + buffered + coalesced, delivered, buffered, coalesced)

    def _declared(self, base: str) -> bool:
        if isinstance(self._sub_resources, bool):
            return self._sub_resources
        try:
            return bool(self._sub_resources(base))
        except Exception:
            log.exception("sub_resources failed; the update does not count for the URI above")
            return False

    def _publish_extension(self, event: ExtensionEvent) -> PublishReport:
        if not event.selector:
            raise ValueError("an extension's event needs a selector: for whom is it?")
        frames.event_template(event)  # whoever publishes what cannot be sent shall hear of it
        listeners = list(self._selected(event))
        if not listeners:
            return _NOBODY
        entry = (event, trio.current_time())
        counts = dict.fromkeys(Outcome, 0)
        delivered = 0
        key = event.key
        for listener in listeners:
            outcome = self._put_extension(listener, key, entry)
            if outcome is Outcome.OVERFLOW:
                listener.complete(End("overflow"))
            delivered += outcome is Outcome.QUEUED and listener.wake()
            counts[outcome] += 1
        dropped = counts[Outcome.DROPPED_OLDEST] + counts[Outcome.DROPPED_NEWEST]
        self._dropped += dropped
        self._coalesced += counts[Outcome.COALESCED]
        self._overflowed += counts[Outcome.OVERFLOW]
        return PublishReport(
            matched=len(listeners),
            delivered=delivered,
            buffered=counts[Outcome.QUEUED] - delivered + counts[Outcome.DROPPED_OLDEST],
            coalesced=counts[Outcome.COALESCED],
            dropped=dropped,
            closed=counts[Outcome.OVERFLOW],
        )

    def _put_extension(self, listener: _Listener, key: Hashable, entry: Entry) -> Outcome:
        if key is not None:
            return Outcome.QUEUED if listener.put_state(key, entry) else Outcome.COALESCED
        own_key = next(self._data_keys)
        return listener.put_data(own_key, entry, self._max_data_events, self._overflow)

    def _selected(self, event: ExtensionEvent) -> Iterator[_Listener]:
        for listener, others in self._index.of_selector(event.selector):
            if not others or listener.accepted.topics().issuperset(others):
                yield listener

    def _publish_resync(self) -> PublishReport:
        """Mark every core key of everybody: the way to say that something may have been missed."""
        if not self._listeners:
            return _NOBODY
        shared: dict[CoreEvent, CoreEvent] = {}  # so that each is encoded once
        total = _NOBODY
        for listener in self._listeners:
            if listener.end is None:
                for cue in listener.accepted.cues():
                    total = _sum(total, self._put((listener,), shared.setdefault(cue, cue)))
        return total

    # Listeners

    async def open(self, wanted: SubscriptionFilter, context: SubscriptionContext) -> SourceHandle:
        """Register a listener.

        Cancelling leaves nothing behind.

        Raises:
            errors.ServerBusy: the hub is shutting down.
        """
        await trio.lowlevel.checkpoint()
        # From here on there is no checkpoint: the caller gets the handle or nothing was done.
        if self._draining:
            raise errors.ServerBusy("shutting down")
        if not self._listeners:
            self._token = trio.lowlevel.current_trio_token()
            self._thread = threading.get_ident()
        elif self._token is not trio.lowlevel.current_trio_token():
            raise RuntimeError("this hub serves another trio.run")
        fields = {"taskIds", *wanted.extensions}
        listener = _Listener(self, narrow_by_capabilities(wanted, self.kinds, fields))
        self._listeners[listener] = None
        self._tell(self._index.add(listener, listener.accepted), wanted=True)
        return listener

    def close(self, reason: str = "complete", *, retry_after: float | None = None) -> None:
        """End every open subscription gracefully: what is queued is written, then its result.

        Returns at once. Publications from now on pass these listeners by; new ones may open.

        Args:
            reason: what the clients are told.
            retry_after: after how many seconds they may try again, if that is known.
        """
        end = End(reason, retry_after)
        for listener in list(self._listeners):
            listener.complete(end)

    async def drain(self, deadline: float = math.inf, *, retry_after: float | None = None) -> None:
        """`close` with the reason ``"shutdown"``, for good, and wait until all are closed.

        Args:
            deadline: when to stop waiting, as a moment of `trio.current_time` in seconds.
            retry_after: after how many seconds the clients may try again, if that is known.

        Cancelling stops the waiting; the hub stays shut.
        """
        self._draining = True
        self.close("shutdown", retry_after=retry_after)
        await trio.lowlevel.checkpoint()
        if self._listeners:
            if self._all_closed is None:
                self._all_closed = trio.Event()
            with trio.CancelScope(deadline=deadline):
                await self._all_closed.wait()

    def statistics(self, *, per_listener: bool = False) -> HubStatistics:
        """Counts and ages of this moment; with `per_listener` also for each listener."""
        now = trio.current_time() if self._listeners else 0.0
        oldest = min((at for li in self._listeners if (at := li.oldest) is not None), default=now)
        return HubStatistics(
            subscriptions=len(self._listeners),
            closing=sum(listener.end is not None for listener in self._listeners),
            queued=sum(map(len, self._listeners)),
            oldest_queued_age=now - oldest,
            published=self._published,
            coalesced=self._coalesced,
            dropped=self._dropped,
            overflowed=self._overflowed,
            listeners=tuple(listener.statistics(now) for listener in self._listeners)
            if per_listener
            else (),
        )

    def _retire(self, listener: _Listener) -> None:
        """Publish nothing more to a listener; it drains."""
        self._tell(self._index.discard(listener, listener.accepted), wanted=False)

    def _forget(self, listener: _Listener) -> None:
        if listener.end is None:
            self._retire(listener)
        self._listeners.pop(listener, None)
        if not self._listeners and self._all_closed is not None:
            self._all_closed.set()

    def _tell(self, changed: list[str], *, wanted: bool) -> None:
        """Report URIs that gained their first listener, or lost their last."""
        if self._on_interest is None:
            return
        for uri in changed:
            try:
                self._on_interest(uri, wanted)
            except Exception:
                log.exception("on_interest failed")


def _sum(one: PublishReport, other: PublishReport) -> PublishReport:
    return PublishReport(*map(sum, zip(attrs.astuple(one), attrs.astuple(other), strict=True)))
