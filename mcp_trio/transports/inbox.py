"""What has arrived for one exchange and waits to be read: bounded, whoever is slow.

A connection that carries many exchanges has one reader, which must not wait for any of them. So
it puts each message into the inbox of its exchange, and the inbox is where memory is bounded.

For a subscription, a change that is already waiting is not kept twice: all that counts is that it
is read after the last one arrived. For other requests the oldest notification gives way. The
response is always kept.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

import attrs
import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, meta, methods

__all__ = ["MAX_WAITING", "Inbox", "InboxStatistics"]

MAX_WAITING: Final = 1024
"""How many notifications may wait: different changes of a subscription, or those of a request."""

_BY_METHOD: Final = frozenset(
    {
        methods.TOOLS_LIST_CHANGED,
        methods.PROMPTS_LIST_CHANGED,
        methods.RESOURCES_LIST_CHANGED,
    }
)
_BY_PARAM: Final = {methods.RESOURCE_UPDATED: "uri", "notifications/tasks": "taskId"}
_KEEP_FIRST: Final = frozenset({methods.ACKNOWLEDGED, methods.CANCELLED})


@attrs.frozen
class InboxStatistics:
    """A snapshot of one inbox.

    Attributes:
        waiting: messages that have not been read yet.
        coalesced: changes that were already waiting when they arrived again.
        dropped: notifications that were given up because nobody read them.
    """

    waiting: int
    coalesced: int
    dropped: int


class Inbox(trio.abc.ReceiveChannel[jsonrpc.Message]):
    """The receiving end of one exchange, filled by a reader that never waits.

    Args:
        coalescing: the exchange is a subscription.
        max_waiting: how many notifications may wait. A subscription fails beyond that, because
            it would otherwise have a gap that nobody sees; other requests lose the oldest.
    """

    def __init__(self, *, coalescing: bool, max_waiting: int = MAX_WAITING) -> None:
        self._coalescing = coalescing
        self._max_waiting = max_waiting
        self._waiting: OrderedDict[Hashable, jsonrpc.Message] = OrderedDict()
        self._serial = 0
        self._acknowledged = False
        self._ended = False
        self._closed = False
        self._error: errors.McpError | None = None
        self._readers = trio.lowlevel.ParkingLot()
        self.on_close: Callable[[], None] | None = None
        """Called by `aclose`: the reader gives the exchange up before it leaves its block."""
        self._coalesced = 0
        self._dropped = 0

    def statistics(self) -> InboxStatistics:
        """How full it is, and what it had to do about that."""
        return InboxStatistics(len(self._waiting), self._coalesced, self._dropped)

    def put(self, notification: jsonrpc.Notification) -> None:
        """Take a notification. What comes after the end is ignored."""
        if self._ended:
            return
        key = self._key(notification)
        if key in self._waiting:
            self._coalesced += 1
            if notification.method not in _KEEP_FIRST:
                self._waiting[key] = notification
            return
        if len(self._waiting) >= self._max_waiting:
            if self._coalescing:
                self._overflow()
                return
            self._waiting.popitem(last=False)
            self._dropped += 1
        self._waiting[key] = notification
        self._readers.unpark()

    def finish(self, response: jsonrpc.ResultReply | jsonrpc.ErrorReply) -> None:
        """Take the response; nothing follows it."""
        if not self._ended:
            self._waiting[_RESPONSE] = response
            self._end(None)

    def fail(self, error: errors.McpError) -> None:
        """Nothing more will come; readers get `error` after what is already waiting."""
        if not self._ended:
            self._end(error)

    @property
    def ended(self) -> bool:
        """Whether the response is here or will never come."""
        return self._ended

    async def receive(self) -> jsonrpc.Message:
        """Return the next message of the exchange.

        Cancelling loses nothing.

        Raises:
            trio.EndOfChannel: the response has been read.
            trio.ClosedResourceError: this end has been closed.
            errors.ConnectionLost: the transport has failed.
            errors.SubscriptionLost: more different changes waited than are kept.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        waited = False
        while not (self._waiting or self._ended):
            await self._readers.park()
            waited = True
        if self._closed:
            raise trio.ClosedResourceError
        if not self._waiting:
            raise self._error or trio.EndOfChannel
        _, message = self._waiting.popitem(last=False)
        if not waited:
            await trio.lowlevel.cancel_shielded_checkpoint()
        return message

    def close(self) -> None:
        """Forget everything that waits."""
        self._waiting.clear()
        self._closed = True
        self._end(None)

    async def aclose(self) -> None:
        """Give the exchange up: forget everything that waits, and have it cancelled."""
        self.close()
        if self.on_close is not None:
            self.on_close()
        await trio.lowlevel.checkpoint()

    def _end(self, error: errors.McpError | None) -> None:
        self._ended = True
        self._error = error
        self._readers.unpark_all()

    def _overflow(self) -> None:
        self._dropped += len(self._waiting) + 1
        self._waiting.clear()
        self._end(
            errors.SubscriptionLost(
                f"more than {self._max_waiting} different changes arrived and were not read"
            )
        )

    def _key(self, notification: jsonrpc.Notification) -> Hashable:
        method = notification.method
        if self._coalescing and not _tells_a_gap(notification):
            if method in _KEEP_FIRST:
                self._acknowledged |= method == methods.ACKNOWLEDGED
                return method
            # What precedes the acknowledgement does not count, so nothing may join it there.
            if method in _BY_METHOD:
                return (self._acknowledged, method)
            name = _BY_PARAM.get(method)
            subject = notification.params.get(name) if name else None
            if isinstance(subject, str):
                return (self._acknowledged, method, subject)
        # Nothing is known that would make two of these the same news.
        self._serial += 1
        return self._serial


def _tells_a_gap(notification: jsonrpc.Notification) -> bool:
    """Whether it says that events before it were lost: that would go with it."""
    raw = notification.params.get("_meta")
    return isinstance(raw, dict) and meta.META_DROPPED in raw


_RESPONSE: Final = object()
