"""Run one subscription: open its source, acknowledge, then one event at a time until it ends.

Whatever the transport, a subscription is the task that runs `run_subscription`. Cancelling it
is how a client's cancel, a lost connection and a closing program look from here; `end` of its
`OpenSubscription` is how the server ends it with a result.

Source: specification, basic/patterns/subscriptions.
"""

import logging
import math
from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.subscriptions import frames
from mcp_trio.subscriptions.authorize import Authorizer, authorize_filter
from mcp_trio.subscriptions.events import Event, EventsDropped, Kind, Resync, is_event
from mcp_trio.subscriptions.filter import ALL_KINDS, SubscriptionFilter, narrow_by_capabilities
from mcp_trio.subscriptions.source import (
    CloseReason,
    End,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)

__all__ = [
    "CLOSE_GRACE",
    "DISCONNECTED",
    "FrameWriter",
    "OpenSubscription",
    "reason_of",
    "run_subscription",
]

logger = logging.getLogger("mcp_trio.subscriptions")

CLOSE_GRACE: Final = 5.0
"""Seconds a source may take to close a handle, or to end one that it was asked to complete."""

DISCONNECTED: Final = "disconnected"
"""The reason with which a transport cancels a subscription whose peer has gone."""


class _StoppedError(Exception):
    """Nothing more may be written."""


_SOURCE_FAILED: Final = "subscription source failed"


class FrameWriter(Protocol):
    """What the runner needs of an exchange."""

    async def send(self, frame: bytes) -> None:
        """Write one whole message; returns when it was handed on.

        Other tasks have to get a turn every few messages, though not with each.
        """

    def send_nowait(self, frame: bytes, now: float | None = None) -> bool:
        """Write one whole message if that needs no waiting; whether it was written."""


class OpenSubscription:
    """A running subscription, as the server sees it.

    Attributes:
        id: the id of the request that opened it.
        acknowledged: whether the acknowledgement has been written.
        written: how many events have been written.
        granted: what an authorizer has granted, once it has been asked; later what of that the
            source serves.
    """

    __slots__ = (
        "_end",
        "_expires_at",
        "_gate",
        "_handle",
        "_holds",
        "_is_cut",
        "_lost",
        "_outdated",
        "_scope",
        "_stop_at",
        "acknowledged",
        "granted",
        "id",
        "written",
    )

    def __init__(self, request_id: jsonrpc.RequestId) -> None:
        self.id = request_id
        self.acknowledged = False
        self.written = 0
        self.granted: SubscriptionFilter | None = None
        self._end: End | None = None
        self._expires_at = math.inf
        self._gate: trio.Event | None = None  # there while nothing may be written
        self._holds = 0
        self._is_cut = False
        self._outdated = False
        self._handle: SourceHandle | None = None
        self._stop_at = math.inf
        self._lost = 0  # events that carry data, of which the client has not been told yet
        # While the source is opened, and while one that may not end itself is pulled.
        self._scope: trio.CancelScope | None = None

    def end(self, reason: str = "complete", *, retry_after: float | None = None) -> None:
        """End the subscription gracefully: what is queued is written, then the result.

        Returns at once; the first reason stands. Called while the source is still being opened,
        it makes the request fail with `errors.ServerBusy`, for nothing was acknowledged yet.

        Args:
            reason: what the client is told.
            retry_after: after how many seconds it may try again, if that is known.
        """
        if self._end is not None:
            return
        self._end = End(reason, retry_after)
        if self._handle is not None:
            self._complete(self._handle, self._end)
        elif self._scope is not None:
            self._scope.cancel("the server ends its subscriptions")

    def hold(self) -> None:
        """Write no event until `release` was called as often.

        For who asks again what the client may see: from here on nothing is written for which
        the old answer counted, but for what is being written at this moment. While the first
        answers are still awaited, these are asked for again.
        """
        self._holds += 1
        self._outdated = True
        if self._gate is None:
            self._gate = trio.Event()

    def release(self) -> None:
        """Go on where `hold` has stopped."""
        self._holds -= 1
        if self._gate is not None and not self._holds and not self._is_cut:
            self._gate.set()
            self._gate = None

    def cut(self, reason: str) -> None:
        """End the subscription without what is queued: only the result is written.

        Returns at once. Also a graceful end that has begun already writes no more events.
        """
        if self._is_cut:
            return
        self._is_cut = True
        self._end = End(reason)
        if self._gate is None:
            self._gate = trio.Event()
        self._gate.set()
        if self._handle is not None:
            self._complete(self._handle, self._end)
            if not self._handle.ends_itself:
                self._stop_at = -math.inf
        if self._scope is not None:
            self._scope.cancel("the server ends its subscriptions")

    async def _pass_gate(self) -> None:
        """Wait while permission is asked for again.

        Raises:
            _StoppedError: it is gone, or the credentials have expired.
        """
        expires_at = self._expires_at
        with trio.CancelScope(deadline=expires_at):
            await trio.lowlevel.checkpoint()
            while self._gate is not None and not self._is_cut:
                await self._gate.wait()
        if self._is_cut:
            raise _StoppedError
        if expires_at != math.inf and expires_at <= trio.current_time():
            if self._end is None:
                self._end = End("expired")
            raise _StoppedError

    def _complete(self, handle: SourceHandle, end: End) -> None:
        honoured = False
        try:
            honoured = handle.complete(end)
        except Exception:
            logger.exception("a subscription source failed to complete; it is stopped instead")
        if not handle.ends_itself:
            self._stop_at = trio.current_time() + CLOSE_GRACE if honoured else -math.inf
            if self._scope is not None:
                self._scope.deadline = min(self._scope.deadline, self._stop_at)

    async def _open(
        self,
        source: SubscriptionSource,
        wanted: SubscriptionFilter,
        context: SubscriptionContext,
        authorizer: Authorizer | None,
    ) -> tuple[SourceHandle | None, SubscriptionFilter]:
        """Ask for permission, then the source; no handle if nothing is left to open."""
        handle: SourceHandle | None = None
        with trio.CancelScope() as scope:
            if self._end is not None:
                scope.cancel()
            self._scope = scope
            try:
                if authorizer is not None:
                    wanted = self.granted = await self._ask(authorizer, wanted, context)
                if wanted:
                    handle = await source.open(wanted, context)
                else:
                    await trio.lowlevel.checkpoint()
            except errors.ErrorResponse:
                raise
            except Exception as problem:
                raise _source_failed("failed to open", problem) from problem
            finally:
                self._scope = None
        if scope.cancelled_caught:
            raise errors.ServerBusy("the server ends its subscriptions")
        if not wanted:
            return None, wanted
        if not isinstance(handle, SourceHandle):
            raise _source_failed(f"returned no handle but {handle!r}")
        self._handle = handle
        if self._end is not None:
            self._complete(handle, self._end)
        return handle, wanted

    async def _ask(
        self, authorizer: Authorizer, wanted: SubscriptionFilter, context: SubscriptionContext
    ) -> SubscriptionFilter:
        """Ask for permission until the answers are none of before a `hold`."""
        while True:
            self._outdated = False
            granted = await authorize_filter(authorizer, wanted, context)
            if not self._outdated:
                return granted

    async def _deliver(
        self,
        handle: SourceHandle,
        accepted: SubscriptionFilter,
        exchange: FrameWriter,
        sub_resources: bool,
        on_acknowledged: Callable[[], object] | None,
    ) -> End:
        """Acknowledge, then pull and write in turn; returns how it ended gracefully.

        Raises:
            _StoppedError: it ends gracefully as well, but may write no events any more.
        """
        expires_at = self._expires_at
        encoded_id = frames.encode_id(self.id)
        await exchange.send(frames.ack_frame(encoded_id, accepted))
        self.acknowledged = True
        if on_acknowledged is not None:
            on_acknowledged()
            del on_acknowledged
        if not accepted:
            return End("nothing-granted")
        handle.write_through(self._writer(encoded_id, exchange, expires_at))
        unbounded = handle.ends_itself and expires_at == math.inf
        while True:
            try:
                if unbounded:
                    event = await handle.receive()
                else:
                    event = await self._pull(handle, expires_at)
            except trio.EndOfChannel:
                if self._is_cut:
                    raise _StoppedError from None
                return handle.end or self._end or End()
            except Exception as problem:
                raise _source_failed("failed", problem) from problem
            if isinstance(event, EventsDropped):
                self._lost += event.count
                continue
            if not is_event(event):
                raise _source_failed(f"returned no event but {event!r}")
            if isinstance(event, Resync):
                await trio.lowlevel.checkpoint()
                for cue in accepted.cues():
                    await self._write(cue, encoded_id, exchange)
            elif not accepted.matches(event, sub_resources=sub_resources):
                # Not this client's concern. Other tasks get a turn even so.
                await trio.lowlevel.checkpoint()
            else:
                await self._write(event, encoded_id, exchange)

    def _writer(
        self, encoded_id: bytes, exchange: FrameWriter, expires_at: float
    ) -> Callable[[Event, float], bool]:
        """What a source may write with while its `receive` waits; see `write_through`."""
        send_nowait = exchange.send_nowait

        def write(event: Event, now: float) -> bool:
            if self._handle is None or self._lost or self._gate is not None or expires_at <= now:
                return False  # it is over, or the task has more to do than to write
            try:
                prefix, suffix = frames.event_template(event)
                written = send_nowait(prefix + encoded_id + suffix, now)
            except Exception:
                logger.exception("an event could not be written at once")
                return False
            self.written += written
            return written

        return write

    async def _write(self, event: Event, encoded_id: bytes, exchange: FrameWriter) -> None:
        try:
            frame = frames.event_frame(event, encoded_id, self._lost)
        except (TypeError, ValueError) as problem:
            raise _source_failed("returned what cannot be sent", problem) from problem
        if self._gate is not None or self._expires_at != math.inf:
            await self._pass_gate()
        await exchange.send(frame)
        self._lost = 0
        self.written += 1

    async def _pull(self, handle: SourceHandle, expires_at: float) -> Event:
        """One `receive`, for as long as the credentials last and the server lets it."""
        deadline = min(expires_at, self._stop_at)
        with trio.CancelScope(deadline=deadline) as scope:
            if trio.current_time() < deadline:
                self._scope = scope
                try:
                    event = await handle.receive()
                finally:
                    self._scope = None
                if trio.current_time() < expires_at:
                    return event
            await trio.lowlevel.checkpoint()
        if self._end is None:
            self._end = End("expired")
        raise trio.EndOfChannel


async def run_subscription(
    *,
    request_id: jsonrpc.RequestId,
    wanted: SubscriptionFilter,
    source: SubscriptionSource,
    context: SubscriptionContext,
    exchange: FrameWriter,
    server_info: dict[str, Any] | None = None,
    kinds: Collection[Kind] = ALL_KINDS,
    extension_fields: Collection[str] = (),
    authorize: Authorizer | None = None,
    on_open: Callable[[OpenSubscription], object] | None = None,
    on_accepted: Callable[[SubscriptionFilter], object] | None = None,
    on_acknowledged: Callable[[], object] | None = None,
) -> dict[str, Any]:
    """Serve one `subscriptions/listen` request until it ends.

    Nothing of the request is kept once the source is open: pass the filter and the context
    without keeping them yourself.

    Args:
        request_id: the id of the request, which every message of the stream carries.
        wanted: what the client asked for.
        source: where the events come from.
        context: who asks; also the moment at which the subscription expires.
        exchange: the way back to the client.
        server_info: name and version of this server, for the final result.
        kinds: the kinds of core event that the server advertises.
        extension_fields: wire names of the filter fields of negotiated extensions.
        authorize: decides what of the rest the caller may see; None: everything.
        on_open: called before anything else, with what can end this subscription. Forget that
            when this function returns.
        on_accepted: called with what the subscription covers, before that is acknowledged, if
            it covers anything. What it raises ends the subscription.
        on_acknowledged: called when the acknowledgement was written; it must not raise.

    Returns:
        The result to answer with, after a graceful end.

    Raises:
        errors.ErrorResponse: the error to answer with. Before the acknowledgement it may be any;
            after it, it is an `errors.InternalError`, because the source failed.
        trio.BrokenResourceError: the client has gone.

    Cancelling ends the subscription without a result. A transport that cancels because its peer
    has gone lets the source know by ``scope.cancel("disconnected")``; any other text stands for
    the client's own reason. However it ends, the source's handle has been closed, once.
    """
    subscription = OpenSubscription(request_id)
    if on_open is not None:
        on_open(subscription)
    wanted = narrow_by_capabilities(wanted, source.kinds.intersection(kinds), extension_fields)
    subscription._expires_at = context.expires_at  # noqa: SLF001
    handle, wanted = await subscription._open(source, wanted, context, authorize)  # noqa: SLF001
    del context, authorize, on_open, kinds, extension_fields
    if handle is None:
        await exchange.send(frames.ack_frame(frames.encode_id(request_id), wanted))
        if on_acknowledged is not None:
            on_acknowledged()
        return frames.completion_result(request_id, server_info, End("nothing-granted"))
    reason = CloseReason("error")
    try:
        accepted = _check_narrowed(handle, wanted)
        if subscription.granted is not None:
            subscription.granted = accepted
        if on_accepted is not None:
            on_accepted(accepted)
            del on_accepted
        del wanted
        try:
            end = await subscription._deliver(  # noqa: SLF001
                handle, accepted, exchange, source.emits_sub_resources, on_acknowledged
            )
        except _StoppedError:
            end = subscription._end or End()  # noqa: SLF001
        reason = CloseReason("complete", end.reason)
    except trio.Cancelled as cancelled:
        reason = reason_of(cancelled)
        raise
    except (trio.BrokenResourceError, trio.ClosedResourceError) as gone:
        reason = CloseReason("disconnected", cause=gone)
        raise
    except BaseException as problem:
        reason = CloseReason("error", cause=problem)
        raise
    finally:
        subscription._handle = None  # noqa: SLF001
        try:
            with trio.move_on_after(CLOSE_GRACE, shield=True) as closing:
                await handle.aclose(reason)
            if closing.cancelled_caught:
                logger.error("a subscription source took more than %s s to close", CLOSE_GRACE)
        except Exception:
            logger.exception("a subscription source failed to close")
        del reason  # it may hold an exception, which holds this frame
    return frames.completion_result(request_id, server_info, end, subscription._lost)  # noqa: SLF001


def _check_narrowed(handle: SourceHandle, granted: SubscriptionFilter) -> SubscriptionFilter:
    """What the source accepted, which must not be more than it was offered."""
    try:
        accepted = handle.accepted
        narrowed = isinstance(accepted, SubscriptionFilter) and accepted.issubset(granted)
    except Exception as problem:
        raise _source_failed("has no accepted filter", problem) from problem
    if not narrowed:
        raise _source_failed("accepted more than it was offered")
    return accepted


def _source_failed(how: str, problem: Exception | None = None) -> errors.InternalError:
    """Tell the log everything and the client nothing."""
    logger.error("a subscription source %s", how, exc_info=problem)
    return errors.InternalError(_SOURCE_FAILED)


def reason_of(cancelled: trio.Cancelled) -> CloseReason:
    """Whether who has cancelled a subscription was its client, or whoever noticed its absence."""
    text = cancelled.reason or ""
    if text.startswith(DISCONNECTED):
        return CloseReason("disconnected", text.removeprefix(DISCONNECTED).lstrip(": "))
    return CloseReason("cancelled", text)
