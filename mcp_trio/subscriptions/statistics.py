"""What a hub says about itself: after a publication, and when asked.

There are no URIs, ids or names in it, so that it can go to any log.
"""

from typing import Final

import attrs

__all__ = ["NOBODY", "HubStatistics", "ListenerStatistics", "PublishReport"]


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
