"""The streams of one watch, or of several that share them, and who is told what.

Each stream is a `Leg`. A group of legs carries one filter together. When the filter changes, the
group of the new one is opened beside the old, and takes its place once all of it is acknowledged.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVarTuple, Unpack

import attrs
import trio

from mcp_trio import errors
from mcp_trio._backoff import Delays
from mcp_trio._causes import one_cause
from mcp_trio.client.watch import failures
from mcp_trio.client.watch.filters import halve, shard, union
from mcp_trio.client.watch.leg import Leg
from mcp_trio.client.watch.policy import Opener, Policy
from mcp_trio.client.watch.snapshot import Reads, Snapshot, fetch_snapshot
from mcp_trio.client.watch.watcher import Watcher
from mcp_trio.subscriptions.events import CoreEvent, Event, ResourceUpdated
from mcp_trio.subscriptions.filter import SubscriptionFilter

__all__ = ["Supervisor", "open_supervisor"]

logger = logging.getLogger("mcp_trio.client")

NARROW_AFTER: Final = 5.0
"""Seconds for which the streams still carry what a consumer who has left had asked for."""

_FAILURES: Final = (errors.McpError, trio.ClosedResourceError)

Ts = TypeVarTuple("Ts")


@attrs.define(eq=False)
class _Group:
    """The legs that carry one filter; all of them, or none."""

    wanted: SubscriptionFilter = attrs.field(factory=SubscriptionFilter)
    legs: list[Leg] = attrs.field(factory=list)
    failure: Exception | None = None

    @property
    def is_open(self) -> bool:
        return bool(self.legs) and all(leg.is_open for leg in self.legs)

    def cancel(self) -> None:
        for leg in self.legs:
            leg.scope.cancel()
        self.legs.clear()


class Supervisor:
    """Keeps the streams of one or more watchers open; `open_supervisor` makes one.

    Attributes:
        known: whether the peer has ever acknowledged a stream.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        opener: Opener,
        client: Reads,
        policy: Policy,
        transport_ended: Callable[[], bool],
    ) -> None:
        self.known = False
        self._nursery = nursery
        self._opener = opener
        self._client = client
        self._policy = policy
        self._transport_ended = transport_ended
        self._watchers: dict[Watcher, None] = {}
        self._group = _Group()
        self._pending: _Group | None = None
        self._retiring: list[Leg] = []
        self._changing = trio.Lock()
        self._narrowing = False
        self._limit = policy.max_uris_per_stream
        self._news = trio.lowlevel.ParkingLot()
        self._since = trio.current_time()
        self._was_open = False
        self._losses = self._reopened = self._silences = 0
        self._last_cause: str | None = None

    # What watchers ask

    @property
    def is_open(self) -> bool:
        """Whether every stream is open."""
        return self._group.is_open

    @property
    def acknowledged(self) -> SubscriptionFilter:
        """What is granted, as of the last acknowledgements."""
        return union(leg.acknowledged for leg in self._group.legs)

    def history(self) -> dict[str, Any]:
        """The part of `WatchStatistics` that is about the streams."""
        legs, is_open = self._group.legs, self.is_open
        return {
            "open": is_open,
            "since": self._since,
            "uptime": trio.current_time() - self._since if is_open else 0.0,
            "streams": len(legs),
            "losses": self._losses,
            "reopened": self._reopened,
            "silences": self._silences,
            "last_cause": self._last_cause,
            "failures": max((leg.failures for leg in legs), default=0),
            "next_attempt": min(
                (leg.next_attempt for leg in legs if leg.next_attempt is not None), default=None
            ),
        }

    async def news(self) -> None:
        """Wait until something about the streams has changed."""
        await self._news.park()

    def start_soon(self, async_fn: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts) -> None:
        """Run something until the block ends."""
        self._nursery.start_soon(async_fn, *args)

    async def fetch(
        self, part: SubscriptionFilter, cover: Callable[[Hashable], object]
    ) -> Snapshot:
        """Take a snapshot."""
        return await fetch_snapshot(self._client, part, cover, self._policy.read_timeout)

    # Watchers come, change and go

    @asynccontextmanager
    async def join(self, wanted: SubscriptionFilter, *, snapshot: bool) -> AsyncGenerator[Watcher]:
        """A watcher, once what it wants is acknowledged.

        Raises:
            errors.McpError: on entering, why it will not be; see `Client.watch`.
        """
        watcher = Watcher(self, wanted, snapshot=snapshot)
        self._watchers[watcher] = None  # from here on it misses nothing
        try:
            async with self._changing:
                await self._admit(watcher)
            watcher.admit()
            yield watcher
        finally:
            self.leave(watcher)

    async def update(self, watcher: Watcher, wanted: SubscriptionFilter) -> None:
        """Give a watcher another filter; see `Watcher.update`."""
        async with self._changing:
            watcher.raise_if_over()
            while not self.is_open:
                await self._news.park()
                watcher.raise_if_over()
            target = self._target({watcher: wanted})
            old = watcher.requested
            watcher.expect(wanted)
            try:
                if not (
                    target.issubset(self._group.wanted) and self._group.wanted.issubset(target)
                ):
                    await self._change_to(target)
                watcher.raise_if_over()
            except BaseException:
                watcher.change(old)
                raise
            watcher.change(wanted)

    def leave(self, watcher: Watcher) -> None:
        """A watcher is done."""
        watcher.close()
        if self._watchers.pop(watcher, self) is self:
            return
        if not self._watchers:
            self._stop()
        elif not self._narrowing:
            self._narrowing = True
            self.start_soon(self._narrow)

    async def _admit(self, watcher: Watcher) -> None:
        """Get what a watcher wants acknowledged, or raise why it will not be."""
        delays, alone = Delays(self._policy.backoff), False
        while True:
            if not self._group.legs:
                await self._start(watcher)
                return
            if not self.is_open:
                await self._news.park()
                continue
            if watcher.requested.issubset(self._group.wanted):
                watcher.is_started = True
                await trio.lowlevel.checkpoint()
                return
            # Others who wait for their turn are served by the same stream, unless that fails.
            waiting = (other for other in self._watchers if other is not watcher)
            without = {other: None for other in waiting if alone and not other.is_started}
            try:
                await self._change_to(self._target(without))
                watcher.is_started = True
                return
            except _FAILURES as problem:
                final = failures.is_final(problem, known=True) or self.transport_ended
                if final and alone:
                    raise
                alone = alone or final
                pause = 0.0 if final else delays.next(at_least=failures.retry_after(problem))
            await trio.sleep(pause)

    async def _start(self, watcher: Watcher) -> None:  # noqa: ASYNC910 - not open yet
        """Open the first streams, trying until that has worked or is hopeless."""
        self._group = _Group(watcher.requested)
        watcher.is_started = True
        self._open(self._group, shard(watcher.requested, self._limit))
        try:
            while not self.is_open:
                await self._news.park()
                watcher.raise_cause_if_refused()
                watcher.raise_if_over()
        except BaseException:
            self._stop()
            raise

    def _target(self, instead: Mapping[Watcher, SubscriptionFilter | None]) -> SubscriptionFilter:
        """What all watchers want, with what is wanted already in its old order."""
        there = (watcher for watcher in self._watchers if not watcher.is_over)
        each = (instead.get(watcher, watcher.requested) for watcher in there)
        wanted = union(one for one in each if one is not None)
        return union((self._group.wanted.intersection(wanted), wanted))

    # Streams

    async def _change_to(self, target: SubscriptionFilter) -> None:
        """Let other streams carry another filter. If that fails, all is as it was.

        Raises:
            errors.McpError: one of them could not be opened.
        """
        old = self._group
        parts = shard(target, self._limit)
        covered = [leg.wanted for leg in old.legs if leg.wanted in parts]
        fresh = self._pending = _Group(target)
        try:
            await trio.lowlevel.checkpoint()
            self._open(fresh, [part for part in parts if part not in covered], strict=True)
            while not all(leg.is_open for leg in fresh.legs):
                await self._news.park()
                if fresh.failure is not None:
                    raise fresh.failure
                if self._group is not old:
                    raise errors.ConnectionLost("the streams that were there have ended")
        except BaseException:
            fresh.cancel()
            raise
        finally:
            self._pending = None
        # Nothing waits from here on.
        before = self.acknowledged
        retired: list[Leg] = []
        for leg in old.legs:
            stays = any(leg.wanted.issubset(part) for part in covered)
            (fresh.legs if stays else retired).append(leg)
        for leg in fresh.legs:
            leg.strict = False
        self._group = fresh
        for leg in retired:
            self._retire(leg)
        less = before.intersection(target).difference(self.acknowledged)
        for watcher in self._watchers:
            watcher.gap(less, "less is granted since the filter has changed", less)
        self._tell_news()

    def _open(
        self, group: _Group, parts: Iterable[SubscriptionFilter], *, strict: bool = False
    ) -> None:
        for part in parts:
            leg = Leg(part, self, self._opener, self._policy, strict=strict)
            group.legs.append(leg)
            self.start_soon(leg.run)

    def _retire(self, leg: Leg) -> None:
        """Another leg has taken its place. What is on its way is still wanted."""
        leg.retiring = True
        if leg.is_open:
            self._retiring.append(leg)
            self.start_soon(self._end_overlap, leg)
            if len(self._retiring) > self._policy.max_streams:
                self._retiring.pop(0).scope.cancel()
            return
        leg.scope.cancel()
        if leg.gap is not None:
            self._tell_gap(leg, leg.gap)

    async def _end_overlap(self, leg: Leg) -> None:
        await trio.sleep(self._policy.overlap)
        leg.scope.cancel()
        if leg in self._retiring:  # otherwise too many were
            self._retiring.remove(leg)

    async def _narrow(self) -> None:
        """Stop asking for what only those wanted who have left."""
        await trio.sleep(NARROW_AFTER)
        self._narrowing = False
        async with self._changing:
            if not self.is_open or not self._watchers:
                return  # what nobody asks for any more is no harm
            target = self._target({})
            if self._group.wanted.issubset(target):
                return
            try:
                await self._change_to(target)
            except _FAILURES as problem:
                logger.info("watch: the filter could not be narrowed: %s", problem)

    def _stop(self) -> None:
        self._group.cancel()
        self._group = _Group()
        for leg in self._retiring:
            leg.scope.cancel()
        self._tell_news()

    # What legs tell

    @property
    def transport_ended(self) -> bool:
        """Whether nothing can be opened any more."""
        return self._transport_ended()

    def opened(self, leg: Leg, before: SubscriptionFilter) -> None:
        """A stream has been acknowledged."""
        self.known = True
        if leg.gap is not None:
            self._reopened += 1
            self._tell_gap(leg, leg.gap, before.difference(leg.acknowledged))
        self._tell_news()

    def received(self, leg: Leg, event: Event) -> None:
        """An event has come."""
        if isinstance(event, CoreEvent):
            if leg.retiring and event.key in leg.seen:
                return
            if not leg.retiring:
                for old in self._retiring:
                    if old.wanted.matches(event):
                        old.seen.add(event.key)
        self._deliver(event)

    def lost(self, leg: Leg, was_open: bool, *, silent: bool = False) -> None:
        """A stream has ended, or an attempt has failed."""
        self._last_cause = leg.cause
        if was_open:
            self._losses += 1
            self._silences += silent
            if leg.retiring:
                self._tell_gap(leg, leg.cause or "")
        self._tell_news()

    def divided(self, leg: Leg) -> bool:
        """Let two legs carry what is too much for one, if that is possible."""
        group = self._group if leg in self._group.legs else self._pending
        halves = halve(leg.wanted)
        if group is None or len(halves) < 2 or len(group.legs) >= self._policy.max_streams:
            return False
        first = halves[0]
        size = max(len(first.resource_subscriptions), len(first.task_ids))
        self._limit = min(self._limit, size)
        group.legs.remove(leg)
        self._open(group, halves, strict=leg.strict)
        for half in group.legs[-2:]:
            half.acknowledged = leg.acknowledged.intersection(half.wanted)
            half.gap = leg.gap
        return True

    def failed(self, leg: Leg, problem: Exception) -> None:
        """A leg has ended for good."""
        if self._pending is not None and leg in self._pending.legs:
            self._pending.failure = problem
            self._tell_news()
        elif leg in self._group.legs and isinstance(problem, errors.WatchEnded):
            logger.warning("%s", problem)
            for watcher in self._watchers:
                if watcher.is_started:
                    watcher.fail(problem)
            self._stop()

    def _tell_gap(self, leg: Leg, reason: str, lost: SubscriptionFilter | None = None) -> None:
        if len(self._group.legs) > 1:
            reason = f"one of {len(self._group.legs)} streams: {reason}"
        for watcher in self._watchers:
            watcher.gap(leg.wanted, reason, lost)

    def _deliver(self, event: Event) -> None:
        takers = [watcher for watcher in self._watchers if watcher.concerns(event)]
        if not takers and isinstance(event, ResourceUpdated):
            # Below which resource that one is only the server knows.
            takers = [watcher for watcher in self._watchers if watcher.has_resources]
        for watcher in takers:
            watcher.put(event)

    def _tell_news(self) -> None:
        if self.is_open is not self._was_open:
            self._was_open = self.is_open
            self._since = trio.current_time()
        self._news.unpark_all()


@asynccontextmanager
async def open_supervisor(
    opener: Opener,
    client: Reads,
    policy: Policy,
    *,
    transport_ended: Callable[[], bool] = lambda: False,
) -> AsyncGenerator[Supervisor]:
    """Keep streams open for watchers, in tasks of this block.

    Args:
        opener: opens one stream.
        client: takes the snapshots.
        policy: for how long to try, and so on.
        transport_ended: says whether no stream can be opened any more.
    """
    with one_cause(1):
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            supervisor = Supervisor(nursery, opener, client, policy, transport_ended)
            try:
                yield supervisor
            finally:
                nursery.cancel_scope.cancel()
