"""The listeners of a hub: each a mailbox and the task that empties it."""

import logging
from collections.abc import Callable
from typing import ClassVar

import trio

from mcp_trio.subscriptions.events import Event
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.index import Index
from mcp_trio.subscriptions.mailbox import Mailbox
from mcp_trio.subscriptions.source import CloseReason, End, SourceHandle
from mcp_trio.subscriptions.statistics import ListenerStatistics

__all__ = ["Listener", "Registry"]

logger = logging.getLogger("mcp_trio.subscriptions")


class Listener(Mailbox, SourceHandle):
    """A mailbox with somebody behind it."""

    __slots__ = (
        "_accepted",
        "_closed",
        "_end",
        "_pulling",
        "_registry",
        "_task",
        "_write",
        "last_pull",
    )

    ends_itself: ClassVar[bool] = True

    def __init__(self, registry: "Registry", accepted: SubscriptionFilter) -> None:
        super().__init__()
        self._registry = registry
        self._accepted = accepted
        self._end: End | None = None
        self._task: trio.lowlevel.Task | None = None
        self._write: Callable[[Event, float], bool] = _not_yet
        self._pulling = False
        self._closed = False
        self.last_pull: float | None = None

    @property
    def accepted(self) -> SubscriptionFilter:
        """What it listens to."""
        return self._accepted

    @property
    def end(self) -> End | None:
        """Why it ends, once it does."""
        return self._end

    @property
    def waiting(self) -> bool:
        """Whether its task waits for the next event."""
        return self._task is not None

    def write_through(self, write: Callable[[Event, float], bool]) -> None:
        """See `SourceHandle.write_through`."""
        self._write = write

    def offer(self, event: Event, now: float) -> bool:
        """Write an event in the publisher's own turn, which is now; whether that could be done.

        Only while the task waits in `receive`: then what was written before is through, nothing
        is queued, and neither an end nor a cancel has come. (Trio takes a task out of its wait
        in the moment in which its scope is cancelled.)
        """
        return self._task is not None and self._write(event, now)

    def wake(self) -> bool:
        """Resume the task that waits in `receive`; whether one did.

        It finds its event in the mailbox.
        """
        task = self._task
        if task is None:
            return False
        self._task = None
        trio.lowlevel.reschedule(task)
        return True

    async def receive(self) -> Event:  # noqa: ASYNC910 (whoever writes the event yields)
        """See `SourceHandle.receive`. A second call at the same time is an error.

        What is queued comes without giving other tasks a turn: that would take as long as to
        write it, and is for the writer to do.
        """
        if self._pulling:
            raise trio.BusyResourceError("another task waits for the next event already")
        self._pulling = True
        try:
            self.last_pull = trio.current_time()
            if self._head is not None or self._end is not None or self._closed:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort)
        finally:
            self._pulling = False
        if self._head is None:
            raise trio.EndOfChannel
        taken = self._registry.taken
        if taken is not None and not self._undeclared:  # a loss is told first
            taken(trio.current_time() - self._head[1])
        return self.take()

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def complete(self, end: End) -> bool:
        """End after what is queued; the first reason stands."""
        if self._end is None and not self._closed:
            self._end = end
            self._registry.retire(self)
            self.wake()
        return True

    async def aclose(self, reason: CloseReason) -> None:
        """Forget everything; a `receive` that waits ends. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._registry.abandoned += len(self)
            self._registry.forget(self)
            self.clear()
            self.wake()
        await trio.lowlevel.checkpoint()

    def statistics(self, now: float) -> ListenerStatistics:
        """Its part of the hub's statistics."""
        return ListenerStatistics(
            queued=len(self),
            oldest_queued_age=0.0 if self.oldest is None else now - self.oldest,
            last_pull_age=None if self.last_pull is None else now - self.last_pull,
            coalesced=self.coalesced,
            dropped=self.dropped,
            waiting=self.waiting,
            closing=self._end is not None,
        )


def _not_yet(_: Event, __: float) -> bool:
    return False


class Registry:
    """The open listeners, and the index of those that still take something in.

    Args:
        on_interest: called with a URI and True when its first listener has come, with False
            when its last one has gone.

    Attributes:
        listeners: those that are open.
        index: those of them that still take something in.
        abandoned: how many events waited for listeners when these were closed.
        taken: called with the age of each event that a listener takes out of its mailbox.
    """

    __slots__ = ("_all_closed", "_on_interest", "abandoned", "index", "listeners", "taken")

    def __init__(self, on_interest: Callable[[str, bool], object] | None) -> None:
        self.listeners: dict[Listener, None] = {}
        self.abandoned = 0
        self.taken: Callable[[float], object] | None = None
        self.index: Index[Listener] = Index()
        self._on_interest = on_interest
        self._all_closed = trio.Event()

    def add(self, accepted: SubscriptionFilter) -> "Listener":
        """Register a new listener."""
        listener = Listener(self, accepted)
        self.listeners[listener] = None
        self._tell(self.index.add(listener, accepted), wanted=True)
        return listener

    def retire(self, listener: "Listener") -> None:
        """Publish nothing more to a listener; it drains."""
        self._tell(self.index.discard(listener, listener.accepted), wanted=False)

    def forget(self, listener: "Listener") -> None:
        """A listener is closed."""
        if listener.end is None:
            self.retire(listener)
        self.listeners.pop(listener, None)
        if not self.listeners:
            self._all_closed.set()
            self._all_closed = trio.Event()

    async def wait_all_closed(self) -> None:
        """Wait until no listener is left. Cancelling stops the waiting."""
        if self.listeners:
            await self._all_closed.wait()
        else:
            await trio.lowlevel.checkpoint()

    def _tell(self, changed: list[str], *, wanted: bool) -> None:
        if self._on_interest is None:
            return
        for uri in changed:
            try:
                self._on_interest(uri, wanted)
            except Exception:
                logger.exception("on_interest failed")
