"""One stream that is kept open: opened, read, and opened again when it has ended.

This is the one place where it is decided whether and when that happens. A transport that starts
its server anew makes the opening wait; it opens nothing by itself.
"""

import logging
import math
from collections.abc import Hashable
from typing import Final, Literal, Protocol

import attrs
import trio

from mcp_trio import errors
from mcp_trio._backoff import Delays
from mcp_trio.client.subscription import SubscriptionEnd
from mcp_trio.client.watch import failures
from mcp_trio.client.watch.policy import Opener, Policy, Stream
from mcp_trio.subscriptions.events import Event
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.transports import abc

__all__ = ["Keeper", "Leg"]

logger = logging.getLogger("mcp_trio.client")

_LAST_LOOK: Final = 0.05
_Reason = Literal["refused", "revoked", "nothing-granted", "gave-up"]


class Keeper(Protocol):
    """Who has the legs, and is told what becomes of them. Nothing here waits."""

    @property
    def known(self) -> bool:
        """Whether the peer has ever acknowledged a stream."""

    @property
    def transport_ended(self) -> bool:
        """Whether nothing can be opened any more."""

    def opened(self, leg: "Leg", before: SubscriptionFilter) -> None:
        """A stream has been acknowledged; `before` is what the last one of this leg granted."""

    def received(self, leg: "Leg", event: Event) -> None:
        """An event has come."""

    def lost(self, leg: "Leg", was_open: bool, *, silent: bool = False) -> None:
        """The stream has ended, or an attempt has failed; `Leg.cause` says why."""

    def divided(self, leg: "Leg") -> bool:
        """The filter is too large for the peer; whether others have taken over."""

    def failed(self, leg: "Leg", problem: Exception) -> None:
        """The leg has ended for good."""


@attrs.frozen
class _Loss:
    """How a stream ended, or why there was none; `end` if there should not be another."""

    cause: str
    retry_after: float = 0.0
    error: Exception | None = None
    end: errors.WatchEnded | None = None
    silent: bool = False


class Leg:
    """A part of a filter, and the stream that carries it.

    Attributes:
        wanted: what it asks for.
        acknowledged: what the last acknowledgement granted.
        is_open: whether there is a stream now.
        strict: whether a failure to open it ends the leg, instead of being waited for.
        retiring: whether another has taken its place: if its stream ends, so does the leg.
        cause: why the last stream ended or the last attempt failed; None if nothing has.
        gap: why changes may have been missed since the last acknowledgement; None if none can.
        error: the failure that `cause` tells of, if it was one.
        next_attempt: when it will be tried again, while that is waited for.
        seen: keys of changes that the successors of a retiring leg have brought.
        scope: cancels it.
    """

    def __init__(
        self,
        wanted: SubscriptionFilter,
        keeper: Keeper,
        opener: Opener,
        policy: Policy,
        *,
        strict: bool = False,
    ) -> None:
        self.wanted = wanted
        self.acknowledged = SubscriptionFilter()
        self.is_open = False
        self.strict = strict
        self.retiring = False
        self.cause: str | None = None
        self.gap: str | None = None
        self.error: Exception | None = None
        self.next_attempt: float | None = None
        self.seen: set[Hashable] = set()
        self.scope = trio.CancelScope()
        self._keeper = keeper
        self._opener = opener
        self._policy = policy
        self._delays = Delays(policy.backoff)

    @property
    def failures(self) -> int:
        """How many attempts in a row have failed, or led to streams that did not last."""
        return self._delays.failures if not self.is_open else 0

    async def run(self) -> None:
        """Keep the stream open until the scope is cancelled, or that is hopeless."""
        with self.scope:
            problem = await self._keep_open()
            if problem is not None:
                self._keeper.failed(self, problem)

    async def _keep_open(self) -> Exception | None:
        """What has put an end to it; None if others have taken its place."""
        down_since = trio.current_time()
        while True:
            # While a stream is open, `_open_once` lets patience be without a limit.
            with trio.CancelScope(deadline=self._limit(down_since)) as patience:
                loss, opened_at = await self._open_once(patience)
                now = trio.current_time()
                uptime = 0.0 if opened_at is None else now - opened_at
                if uptime >= self._policy.backoff.min_uptime:
                    down_since = now
                patience.deadline = self._limit(down_since)
                if loss is None or self.retiring:
                    return None
                if self.strict and opened_at is None:
                    return loss.error or loss.end or errors.SubscriptionLost(loss.cause)
                if loss.end is not None:
                    return loss.end
                delay = self._delays.next(uptime=uptime, at_least=loss.retry_after)
                logger.info("watch: %s; the next attempt is in %.1f s", loss.cause, delay)
                self.next_attempt = now + delay
                await trio.sleep(delay)
                self.next_attempt = None
            if patience.cancelled_caught:
                return self._give_up()

    def _limit(self, down_since: float) -> float:
        return down_since + self._policy.give_up_after

    async def _open_once(self, patience: trio.CancelScope) -> tuple[_Loss | None, float | None]:
        """Open a stream and read it to its end: how that came, and when it was opened.

        Nothing is lost if the filter was too large, and others have taken over.
        """
        opened_at: float | None = None
        try:
            async with self._opener(self.wanted) as stream:
                if stream.end is None:
                    opened_at = trio.current_time()
                    patience.deadline = math.inf
                    self._note_open(stream)
                    loss = await self._read(stream)
                else:
                    loss = _ending_of(stream.end, nothing=False)
        except (errors.McpError, trio.ClosedResourceError) as problem:
            if failures.is_too_large(problem) and self._keeper.divided(self):
                return None, None  # noqa: ASYNC910 - others open
            loss = self._judge(problem)
        self._note_loss(loss)
        return loss, opened_at  # noqa: ASYNC910 - opening yields

    def _judge(self, problem: Exception) -> _Loss:
        """What follows from a failure to open a stream."""
        cause = f"{type(problem).__name__}: {problem}"
        end = None
        keeper = self._keeper
        if failures.is_final(problem, known=keeper.known) or keeper.transport_ended:
            end = _ended(cause, "refused", problem)
        return _Loss(cause, failures.retry_after(problem), problem, end)

    async def _read(self, stream: Stream) -> _Loss:
        """Pass on what comes until nothing comes any more."""
        try:
            while True:
                event = await self._receive(stream)
                if event is None:
                    return _Loss("nothing was heard for much longer than before", silent=True)
                self._keeper.received(self, event)
        except trio.EndOfChannel:
            return _ending_of(stream.end, nothing=not stream.acknowledged)  # noqa: ASYNC910
        except errors.SubscriptionLost as lost:
            return _Loss(str(lost), failures.retry_after(lost), lost)  # noqa: ASYNC910

    async def _receive(self, stream: Stream) -> Event | None:
        """The next event; None if the peer has been silent for too long."""
        heartbeat = stream.heartbeat
        if heartbeat is None:
            return await stream.receive()
        while True:
            silent_at, now = self._silent_at(heartbeat), trio.current_time()
            # Something may have come that a busy program has not had the time to read.
            with trio.CancelScope(deadline=max(silent_at, now + _LAST_LOOK)):
                return await stream.receive()
            if silent_at <= now and self._silent_at(heartbeat) <= now:
                return None

    def _silent_at(self, heartbeat: abc.Heartbeat) -> float:
        """When it is too long ago that anything was heard, or when to look again."""
        interval, policy = heartbeat.comment_interval, self._policy
        if interval is None:
            # It may get to know one while it waits.
            return trio.current_time() + policy.min_silence
        allowed = max(policy.silence_factor * interval, policy.min_silence)
        return heartbeat.last_heard + allowed

    def _note_open(self, stream: Stream) -> None:
        before, self.acknowledged = self.acknowledged, stream.acknowledged
        self.is_open = True
        self._keeper.opened(self, before)
        self.gap = None

    def _note_loss(self, loss: _Loss) -> None:
        self.cause, self.error = loss.cause, loss.error
        was_open, self.is_open = self.is_open, False
        if was_open:
            self.gap = loss.cause
        self._keeper.lost(self, was_open, silent=loss.silent)

    def _give_up(self) -> errors.WatchEnded:
        waited = f"there was no lasting stream for {self._policy.give_up_after:g} s"
        return _ended(f"{waited}; the last cause: {self.cause}", "gave-up", self.error)


def _ending_of(end: SubscriptionEnd | None, *, nothing: bool) -> _Loss:
    """What follows from an ending that the server has chosen.

    Args:
        end: the ending.
        nothing: whether the server had granted nothing at all.
    """
    how = "ended" if end is None or end.how == "graceful" else "tore down"
    reason = end.reason if end is not None else None
    cause = f"the server {how} the subscription" + (f": {reason}" if reason else "")
    final: _Reason | None = None
    if end is not None and end.how == "graceful":
        if reason == "revoked":
            final = "revoked"
        elif nothing or reason == "nothing-granted":
            final = "nothing-granted"
    return _Loss(
        cause,
        failures.bounded(end.retry_after if end is not None else None),
        end=_ended(cause, final, None) if final is not None else None,
    )


def _ended(text: str, reason: _Reason, cause: Exception | None) -> errors.WatchEnded:
    ended = errors.WatchEnded(f"the watch has ended: {text}", reason=reason)
    ended.__cause__ = cause
    return ended
