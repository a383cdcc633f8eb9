"""What a watch has been through."""

import attrs

__all__ = ["WatchStatistics"]


@attrs.frozen(kw_only=True)
class WatchStatistics:
    """A watch at one moment; counts are since it was entered.

    What is said of streams is said of all that carry the watch, which are several if it has too
    many URIs for one, or shares them with others.

    Attributes:
        open: whether every stream is open.
        since: the moment of `trio.current_time` from which on that has been so.
        uptime: seconds for which all streams have been open without a break; 0 while one is not.
        streams: how many streams there are.
        losses: how many streams have ended that were not ended here.
        reopened: how many were opened again after that.
        silences: how many of the losses were given up since nothing was heard.
        last_cause: of the last loss or failed attempt, in words; None if there was none.
        failures: how many attempts in a row have failed, or led to streams that did not last.
        next_attempt: the moment of `trio.current_time` of the next attempt, while one is waited
            for.
        events: how many changes `receive` has returned.
        resyncs: how many `Resync` it has returned.
        snapshots: how many snapshots it has returned.
        waiting: how many things wait to be received.
        coalesced: how many changes were already waiting when they came again.
        dropped: how many events that carry data were given up, as too many waited.
    """

    open: bool
    since: float
    uptime: float
    streams: int
    losses: int
    reopened: int
    silences: int
    last_cause: str | None
    failures: int
    next_attempt: float | None
    events: int
    resyncs: int
    snapshots: int
    waiting: int
    coalesced: int
    dropped: int
