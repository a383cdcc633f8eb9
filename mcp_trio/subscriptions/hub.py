"""The hub: publish here, and every listener whose filter matches hears of it.

Publishing never waits and never loses a core event. What a listener has not fetched yet is kept
as keys, each once, so a slow listener costs a bounded amount of memory and nobody's time.

Source: specification, basic/patterns/subscriptions.
"""

import contextlib
import itertools
import logging
import math
import threading
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import get_args

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
from mcp_trio.subscriptions.listener import Listener, Registry
from mcp_trio.subscriptions.mailbox import Entry, Outcome, Overflow
from mcp_trio.subscriptions.observer import HubObserver
from mcp_trio.subscriptions.source import (
    End,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)
from mcp_trio.subscriptions.statistics import NOBODY, HubStatistics, PublishReport, Totals

__all__ = ["Hub", "HubStatistics", "PublishReport"]

logger = logging.getLogger("mcp_trio.subscriptions")


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
        self._registry = Registry(on_interest)
        self._index = self._registry.index
        self._listeners = self._registry.listeners
        self._data_keys = itertools.count()
        self._drained_in: trio.lowlevel.TrioToken | None = None
        self._thread: int | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._forward: Callable[[Event, bool], object] | None = None
        self._totals = Totals()
        self._observer: HubObserver | None = None

    # Publishing

    def publish(self, event: Event, *, include_sub_resources: bool = False) -> PublishReport:
        """Tell every listener that the event is for. Never waits, whatever the listeners do.

        If a bridge to a bus is open (`bridge.open_bridge`), the listeners of the other processes
        hear of it, too, a little later.

        Callable from any task, and from synchronous code, in the thread of the hub's
        `trio.run`; from other threads use `publish_from_thread`.

        Args:
            event: what has changed.
            include_sub_resources: whether an update counts for subscriptions to every URI that
                its own lies below, by path segments, whatever the hub's `sub_resources` says.

        Returns:
            What became of it, in this process.

        Raises:
            RuntimeError: called from another thread.
            TypeError: not an event that can be published.
            ValueError: an extension's event without a selector, or with a method or data that
                cannot be sent. Nobody has been told.
        """
        report = self.publish_here(event, include_sub_resources=include_sub_resources)
        if self._forward is not None:
            self._forward(event, include_sub_resources)
        return report

    def publish_here(self, event: Event, *, include_sub_resources: bool = False) -> PublishReport:
        """`publish` for the listeners of this process alone; no bus hears of it.

        For what comes from a bus, or from something else that tells every process by itself.

        Raises:
            RuntimeError, TypeError, ValueError: as `publish`.
        """
        in_use = self._listeners or self._forward is not None
        if in_use and threading.get_ident() != self._thread:
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
        self._totals.add(report)
        if self._observer is not None:
            self._observer.published(event, report)
        return report

    def publish_from_thread(
        self, event: Event, *, include_sub_resources: bool = False
    ) -> PublishReport:
        """`publish` from a thread that is not Trio's; blocks until it is done.

        Before anybody has ever listened or a bridge was opened, and after the hub's `trio.run`
        is over, it does nothing.

        Raises:
            RuntimeError: called from a Trio task, which it would block for ever.
            TypeError, ValueError: as `publish`.
        """
        if self._token is None:
            return NOBODY
        try:
            return trio.from_thread.run_sync(
                lambda: self.publish(event, include_sub_resources=include_sub_resources),
                trio_token=self._token,
            )
        except trio.RunFinishedError:
            return NOBODY

    @contextlib.contextmanager
    def forward_to(self, forward: Callable[[Event, bool], object]) -> Iterator[None]:
        """Call a function with everything that is published in the block; for bridges.

        It gets the event, after the listeners of this process, and whether sub-resources are
        included. It must neither block nor raise.

        Raises:
            RuntimeError: there is such a block already, or the hub serves another `trio.run`.
        """
        token = trio.lowlevel.current_trio_token()
        if self._forward is not None:
            raise RuntimeError("this hub has a bridge already")
        if self._listeners and self._token is not token:
            raise RuntimeError("this hub serves another trio.run")
        self._token, self._thread = token, threading.get_ident()
        self._forward = forward
        try:
            yield
        finally:
            self._forward = None

    def _put(self, listeners: Collection[Listener], event: CoreEvent) -> PublishReport:
        if not listeners:
            return NOBODY
        now = trio.current_time()  # read once: for a thousand listeners it would take a while
        key, entry = event.key, (event, now)
        delivered = buffered = coalesced = 0
        for listener in tuple(listeners):  # who writes may do anything, also end a listener
            if listener.offer(event, now):
                delivered += 1
            elif not listener.put(key, entry):
                coalesced += 1
            elif listener.wake():
                delivered += 1
            else:
                buffered += 1
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
        return report + self._put_below(above, set(listeners), event) if above else report

    def _put_below(
        self,
        above: list[tuple[str, Collection[Listener]]],
        told: set[Listener],
        event: ResourceUpdated,
    ) -> PublishReport:
        """Tell those who subscribed above; each once, for the nearest of its URIs."""
        now = trio.current_time()
        key, entry = event.key, (event, now)
        delivered = buffered = coalesced = 0
        for base, listeners in above:
            for listener in tuple(listeners):
                if listener in told:
                    continue
                told.add(listener)
                if listener.offer(event, now):
                    delivered += 1
                elif not listener.put_sub_resource(key, entry, base, self._max_sub_resources):
                    coalesced += 1
                elif listener.wake():
                    delivered += 1
                else:
                    buffered += 1
        return PublishReport(delivered + buffered + coalesced, delivered, buffered, coalesced)

    def _declared(self, base: str) -> bool:
        if isinstance(self._sub_resources, bool):
            return self._sub_resources
        try:
            return bool(self._sub_resources(base))
        except Exception:
            logger.exception("sub_resources failed; the update does not count for the URI above")
            return False

    def _publish_extension(self, event: ExtensionEvent) -> PublishReport:
        if not event.selector:
            raise ValueError("an extension's event needs a selector: for whom is it?")
        frames.event_template(event)  # whoever publishes what cannot be sent shall hear of it
        listeners = list(self._selected(event))
        if not listeners:
            return NOBODY
        now = trio.current_time()
        entry = (event, now)
        counts = dict.fromkeys(Outcome, 0)
        delivered = woken = 0
        key = event.key
        for listener in listeners:
            if listener.offer(event, now):
                delivered += 1
                continue
            outcome = self._put_extension(listener, key, entry)
            if outcome is Outcome.OVERFLOW:
                listener.complete(End("overflow"))
            woken += outcome is Outcome.QUEUED and listener.wake()
            counts[outcome] += 1
        dropped = counts[Outcome.DROPPED_OLDEST] + counts[Outcome.DROPPED_NEWEST]
        return PublishReport(
            matched=len(listeners),
            delivered=delivered + woken,
            buffered=counts[Outcome.QUEUED] - woken + counts[Outcome.DROPPED_OLDEST],
            coalesced=counts[Outcome.COALESCED],
            dropped=dropped,
            closed=counts[Outcome.OVERFLOW],
        )

    def _put_extension(self, listener: Listener, key: Hashable, entry: Entry) -> Outcome:
        if key is not None:
            return Outcome.QUEUED if listener.put_state(key, entry) else Outcome.COALESCED
        own_key = next(self._data_keys)
        return listener.put_data(own_key, entry, self._max_data_events, self._overflow)

    def _selected(self, event: ExtensionEvent) -> Iterator[Listener]:
        for listener, others in self._index.of_selector(event.selector):
            if not others or listener.accepted.topics().issuperset(others):
                yield listener

    def _publish_resync(self) -> PublishReport:
        """Mark every core key of everybody: the way to say that something may have been missed."""
        if not self._listeners:
            return NOBODY
        shared: dict[CoreEvent, CoreEvent] = {}  # so that each is encoded once
        total = NOBODY
        for listener in self._listeners:
            if listener.end is None:
                for cue in listener.accepted.cues():
                    total += self._put((listener,), shared.setdefault(cue, cue))
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
        token = trio.lowlevel.current_trio_token()
        if self._drained_in is token:
            raise errors.ServerBusy("shutting down")
        if not self._listeners and self._forward is None:
            self._token, self._thread = token, threading.get_ident()
        elif self._token is not token:
            raise RuntimeError("this hub serves another trio.run")
        fields = {"taskIds", *wanted.extensions}
        return self._registry.add(narrow_by_capabilities(wanted, self.kinds, fields))

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
        """`close` with the reason ``"shutdown"``, and wait until all are closed.

        From now on, for the rest of this `trio.run`, opening raises `errors.ServerBusy`.

        Args:
            deadline: when to stop waiting, as a moment of `trio.current_time` in seconds.
            retry_after: after how many seconds the clients may try again, if that is known.

        Cancelling stops the waiting; the hub stays shut.
        """
        self._drained_in = trio.lowlevel.current_trio_token()
        self.close("shutdown", retry_after=retry_after)
        with trio.CancelScope(deadline=deadline):
            await self._registry.wait_all_closed()
        await trio.lowlevel.checkpoint_if_cancelled()

    def observe(self, observer: HubObserver | None) -> None:
        """Tell somebody of all publications from now on, in place of who was told before.

        Args:
            observer: who is told; None for nobody.
        """
        self._observer = observer
        self._registry.taken = None if observer is None else observer.taken

    def statistics(self, *, per_listener: bool = False) -> HubStatistics:
        """Counts and ages of this moment; with `per_listener` also for each listener.

        It looks at every listener; a thousand take about half a millisecond.
        """
        now = oldest = trio.current_time() if self._listeners else 0.0
        busy = closing = queued = 0
        for listener in self._listeners:
            busy += not listener.waiting
            closing += listener.end is not None
            if (at := listener.oldest) is not None:
                queued += len(listener)
                oldest = min(oldest, at)
        return HubStatistics(
            subscriptions=len(self._listeners),
            busy=busy,
            closing=closing,
            queued=queued,
            oldest_queued_age=now - oldest,
            **attrs.asdict(self._totals),
            abandoned=self._registry.abandoned,
            listeners=tuple(listener.statistics(now) for listener in self._listeners)
            if per_listener
            else (),
        )
