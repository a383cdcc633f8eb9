"""What a hub says about itself: after a publication, and when asked.

There are no URIs, ids or names in it, so that it can go to any log.
"""

from typing import Final

import attrs

__all__ = ["NOBODY", "HubStatistics", "ListenerStatistics", "PublishReport", "Totals"]


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

    def __add__(self, other: "PublishReport") -> "PublishReport":
        """Both together."""
        return PublishReport(*map(sum, zip(attrs.astuple(self), attrs.astuple(other), strict=True)))


NOBODY: Final = PublishReport()
"""Nobody was listening."""


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
    """A hub at one moment; counts are since it was made.

    A listener's part of a publication is one of `matched`, and of exactly one of the others:
    ``matched == delivered + buffered + coalesced + overflowed``, and with ``drop_newest`` also
    `dropped`.

    Attributes:
        subscriptions: open listeners, with those being ended.
        busy: listeners to which something is being written, or whose turn it is. Such as stay
            so have a client that does not read.
        closing: listeners that are being ended and only drain.
        queued: events that wait, over all listeners.
        oldest_queued_age: how long the first of them has waited, in seconds; 0.0 if none does.
        published: publications.
        matched: what they were to reach: for each publication, the listeners it was for.
        delivered: of these, how many were idle and took it at once.
        buffered: how many were busy, so that it waited for them.
        coalesced: how many had the same news waiting already.
        dropped: events that carry data and were lost because too many waited.
        overflowed: listeners ended because too many waited.
        abandoned: events that waited for a listener which was closed before it took them.
        listeners: each listener, if asked for.
    """

    subscriptions: int
    busy: int
    closing: int
    queued: int
    oldest_queued_age: float
    published: int
    matched: int
    delivered: int
    buffered: int
    coalesced: int
    dropped: int
    overflowed: int
    abandoned: int
    listeners: tuple[ListenerStatistics, ...] = ()


@attrs.define
class Totals:
    """What a hub's publications have done so far."""

    published: int = 0
    matched: int = 0
    delivered: int = 0
    buffered: int = 0
    coalesced: int = 0
    dropped: int = 0
    overflowed: int = 0

    def add(self, report: PublishReport) -> None:
        """One more publication; this is done once for it, whoever listens."""
        self.published += 1
        if report is not NOBODY:
            self.matched += report.matched
            self.delivered += report.delivered
            self.buffered += report.buffered
            self.coalesced += report.coalesced
            self.dropped += report.dropped
            self.overflowed += report.closed
