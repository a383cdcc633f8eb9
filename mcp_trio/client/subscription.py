"""One open subscription, seen from the client.

Source: specification, basic/patterns/subscriptions; basic/patterns/cancellation.
"""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import attrs
import trio

from mcp_trio import errors
from mcp_trio.client import requests
from mcp_trio.client.observers import Observers
from mcp_trio.protocol import exchange, jsonrpc, meta, methods
from mcp_trio.subscriptions.events import (
    CORE_EVENTS,
    Event,
    EventsDropped,
    ExtensionEvent,
    ResourceUpdated,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter, parse_filter
from mcp_trio.transports import abc

__all__ = [
    "EventHook",
    "Subscription",
    "SubscriptionEnd",
    "SubscriptionStatistics",
    "open_subscription",
]

logger = logging.getLogger("mcp_trio.client")

_NO_LIMIT: Final = 2**31

EventHook = Callable[[Event], Awaitable[object]]
"""Awaited with each event before `Subscription.receive` returns it."""


@attrs.frozen
class SubscriptionEnd:
    """How a subscription ended, and why, as far as it was said.

    Attributes:
        how: ``"graceful"``: the server sent its result. ``"cancelled"``: the server only said,
            by `notifications/cancelled`, that it tears the subscription down. ``"local"``: it
            was closed here. ``"lost"``: none of these; changes may have been missed.
        reason: for ``"graceful"`` the server's own word, if it gave one that we know to read:
            ``shutdown``, ``overflow``, ``expired``, ``revoked``, ``complete``,
            ``nothing-granted``. For ``"cancelled"`` and ``"lost"`` a text for people.
        retry_after: seconds after which the server would like to be asked again, if it said.
    """

    how: Literal["graceful", "cancelled", "local", "lost"]
    reason: str | None = None
    retry_after: float | None = None


@attrs.frozen
class SubscriptionStatistics:
    """What a subscription has seen.

    Attributes:
        events: how many events `receive` has returned.
        ignored: how many messages were passed over: late, of another subscription, or not
            covered by what was granted.
    """

    events: int
    ignored: int


class Subscription(trio.abc.ReceiveChannel[Event]):
    """A stream of changes that has been acknowledged; `Client.listen` opens it.

    Iterate over it, or call `receive`. It ends when the server ends it, by its result or by a
    cancellation; if it ends in any other way, `errors.SubscriptionLost` is raised instead. There
    is no timeout: a quiet subscription is a healthy one.

    Attributes:
        id: the id of the request that opened it, unique in its client.
        requested: the filter that was asked for.
        acknowledged: what of it the server granted.
        end: how it ended; None until `receive` has come to the end, or it was closed here.
    """

    def __init__(
        self,
        subscription_id: str,
        requested: SubscriptionFilter,
        messages: trio.abc.ReceiveChannel[jsonrpc.Message],
        *,
        before_event: EventHook | None = None,
        observers: Observers | None = None,
    ) -> None:
        self.id: str = subscription_id
        self.requested: SubscriptionFilter = requested
        self.acknowledged: SubscriptionFilter = SubscriptionFilter()
        self.end: SubscriptionEnd | None = None
        self._life = exchange.ClientExchange(subscription_id, methods.LISTEN)
        self._messages = messages
        self._before_event = before_event
        self._observers = Observers() if observers is None else observers
        self._waiting: deque[Event] = deque()
        self._loss: BaseException | None = None
        self._receiving = False
        self._closed = False
        self._events = 0
        self._ignored = 0

    def __repr__(self) -> str:
        state = "open" if self.end is None else self.end.how
        return f"<Subscription {self.id} {state}>"

    @property
    def declined(self) -> SubscriptionFilter:
        """What was asked for and not granted."""
        return self.requested.difference(self.acknowledged)

    @property
    def heartbeat(self) -> abc.Heartbeat | None:
        """By what the server's silence can be noticed: over HTTP, if it sends comments."""
        return self._messages if isinstance(self._messages, abc.Heartbeat) else None

    def statistics(self) -> SubscriptionStatistics:
        """What it has seen so far."""
        return SubscriptionStatistics(events=self._events, ignored=self._ignored)

    async def receive(self) -> Event:
        """Wait for the next event.

        Cancelling loses none: an event that this call would have returned is returned by the
        next. Where events that carry data were lost on the way, `EventsDropped` says so before
        the event, or the graceful end, that follows the gap.

        Raises:
            trio.EndOfChannel: the server has ended the subscription; `end` says why.
            errors.SubscriptionLost: it ended in any other way; ``__cause__`` has the cause.
            trio.ClosedResourceError: it was closed here.
            trio.BusyResourceError: another task is receiving.
        """
        if self._receiving:
            raise trio.BusyResourceError(f"another task is receiving from {self.id}")
        self._receiving = True
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            waited = False
            while not self._waiting:
                self._raise_if_ended()
                await self._pull()
                waited = True
            if self._before_event is not None:
                await self._before_event(self._waiting[0])
                self._raise_if_closed()
            if not waited:
                await trio.lowlevel.cancel_shielded_checkpoint()
            self._events += 1
            return self._waiting.popleft()
        finally:
            self._receiving = False

    async def aclose(self) -> None:
        """Close it from this side: what was not received yet is discarded.

        On the wire it is cancelled at once, as leaving the block of `Client.listen` does by
        itself. Closing twice is fine. Whoever waits in `receive` gets
        `trio.ClosedResourceError`.
        """
        self._close()
        await self._messages.aclose()

    def _close(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._life.cancel()
        if self.end is None:
            self.end = SubscriptionEnd("local")
            # What has arrived, and nobody has read, is discarded with it.
            self._observers.missed(self.acknowledged)

    async def _open(self, ack_timeout: float) -> None:
        """Wait until it is acknowledged, or over before it began."""
        with trio.move_on_after(ack_timeout) as waiting:
            while True:
                await self._pull(opening=True)
                if self._life.state is not exchange.State.OPENING:
                    break
        if waiting.cancelled_caught:
            raise errors.AcknowledgementTimeout(
                f"subscriptions/listen was not acknowledged within {ack_timeout:g} s"
            )

    async def _pull(self, *, opening: bool = False) -> None:
        """Take one message in."""
        try:
            message = await self._messages.receive()
            self._take(message)
        except trio.EndOfChannel:
            raise self._lose(None) from None
        except trio.ClosedResourceError as problem:
            self._raise_if_closed()
            raise self._lose(problem) from problem
        except errors.SubscriptionLost as problem:
            self._lose(problem)
            raise
        except errors.ConnectionLost as problem:
            raise self._lose(problem) from problem
        except errors.McpError as problem:
            # Before it is open, whoever opens it is better served with the cause itself.
            if opening:
                raise
            raise self._lose(problem) from problem

    def _take(self, message: jsonrpc.Message) -> None:
        if self._life.receive(message) is not exchange.Disposition.DELIVER:
            self._ignore("late, or not its own")
        elif isinstance(message, jsonrpc.ErrorReply):
            raise message.error
        elif isinstance(message, jsonrpc.ResultReply):
            self._end_gracefully(message.result)
        elif message.method == methods.CANCELLED:
            reason = message.params.get("reason")
            self.end = SubscriptionEnd("cancelled", reason if isinstance(reason, str) else None)
            self._observe(message)
        elif message.method == methods.ACKNOWLEDGED:
            self.acknowledged = self._read_acknowledgement(message.params)
            self._observe(message)
        else:
            self._take_change(message)

    def _read_acknowledgement(self, params: Mapping[str, Any]) -> SubscriptionFilter:
        try:
            granted = parse_filter(
                params.get("notifications"),
                max_uris=_NO_LIMIT,
                extension_fields=tuple(self.requested.extensions),
                absolute_uris=False,
            )
        except errors.InvalidParams as problem:
            raise errors.RemoteProtocolError(
                f"the acknowledgement is malformed: {problem.message}"
            ) from problem
        if not granted.issubset(self.requested):
            surplus = granted.difference(self.requested).to_wire()
            raise errors.RemoteProtocolError(
                f"the acknowledgement grants what was not asked for: {str(surplus)[:200]}"
            )
        return granted

    def _end_gracefully(self, result: dict[str, Any]) -> None:
        requests.check_result(methods.LISTEN, result)
        raw = result.get("_meta")
        said = raw.get(meta.META_END) if isinstance(raw, dict) else None
        reason = said.get("reason") if isinstance(said, dict) else None
        self._note_dropped(raw)
        self.end = SubscriptionEnd(
            "graceful",
            reason if isinstance(reason, str) else None,
            errors.delay_of(said),
        )

    def _take_change(self, message: jsonrpc.Notification) -> None:
        event = self._read_event(message)
        if event is None:
            self._ignore("not among what was granted")
            return
        self._observe(message)  # before anybody can hear of it
        self._note_dropped(message.params.get("_meta"))
        self._waiting.append(event)

    def _observe(self, message: jsonrpc.Notification) -> None:
        self._observers.observe(message, subscription_id=self.id, granted=self.acknowledged)

    def _note_dropped(self, raw: object) -> None:
        """Say before what follows the gap how many events it has swallowed."""
        dropped = raw.get(meta.META_DROPPED) if isinstance(raw, dict) else None
        if type(dropped) is int and dropped > 0:
            self._waiting.append(EventsDropped(dropped))

    def _read_event(self, message: jsonrpc.Notification) -> Event | None:
        """The event of a notification; None if it was not granted."""
        granted = self.acknowledged
        event_type = CORE_EVENTS.get(message.method)
        if event_type is None:
            # Which extension field an event belongs to is known to its extension alone.
            if not granted.task_ids and not granted.extensions:
                return None
            return ExtensionEvent(message.method, message.params)
        if event_type is ResourceUpdated:
            # Not only the URIs asked for: an update may be about a resource below one of them.
            if not granted.resource_subscriptions:
                return None
            uri = message.params.get("uri")
            if not isinstance(uri, str):
                raise errors.RemoteProtocolError("an update without the URI of its resource")
            return ResourceUpdated(uri)
        event = event_type()  # type: ignore[call-arg]
        return event if granted.matches(event) else None

    def _ignore(self, why: str) -> None:
        self._ignored += 1
        logger.debug("%s: ignored a message: %s", self.id, why)

    def _lose(self, cause: Exception | None) -> errors.SubscriptionLost:
        self._life.lost()
        text = str(cause) if cause is not None else "the stream ended without a result"
        self.end = SubscriptionEnd("lost", text)
        self._loss = cause
        self._observers.missed(self.acknowledged)
        return errors.SubscriptionLost(f"{self.id} was lost: {text}")

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError(f"{self.id} was closed")

    def _raise_if_ended(self) -> None:
        self._raise_if_closed()
        if self.end is None:
            return
        if self.end.how == "lost":
            raise errors.SubscriptionLost(f"{self.id} was lost: {self.end.reason}") from self._loss
        raise trio.EndOfChannel


@asynccontextmanager
async def open_subscription(
    transport: abc.Transport,
    subscription_id: str,
    wanted: SubscriptionFilter,
    params: dict[str, Any],
    *,
    ack_timeout: float,
    before_event: EventHook | None = None,
    observers: Observers | None = None,
) -> AsyncGenerator[Subscription]:
    """Open a subscription; see `Client.listen`."""
    async with transport.open_exchange(subscription_id, methods.LISTEN, params) as messages:
        subscription = Subscription(
            subscription_id, wanted, messages, before_event=before_event, observers=observers
        )
        await subscription._open(ack_timeout)  # noqa: SLF001 - opening is nobody else's business
        try:
            yield subscription
        finally:
            subscription._close()  # noqa: SLF001
