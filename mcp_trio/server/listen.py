"""`subscriptions/listen`: admission, and the set of what is open.

The work of one subscription is `subscriptions.stream`'s. Here is decided whether it may begin,
and everything is let go that only its request needed: a stream can stay open for days.

Source: specification, basic/patterns/subscriptions.
"""

import logging
import math
from collections.abc import Collection
from typing import Any, Final

import attrs
import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, meta
from mcp_trio.server.access import Guard
from mcp_trio.server.limits import Limits, SubscriptionSlots
from mcp_trio.server.observer import Observer, SubscriptionObserver
from mcp_trio.server.watchers import Watch, Watchers
from mcp_trio.subscriptions.authorize import Authorizer, authorize_filter
from mcp_trio.subscriptions.events import Kind
from mcp_trio.subscriptions.filter import SubscriptionFilter, parse_filter
from mcp_trio.subscriptions.source import End, SubscriptionContext, SubscriptionSource
from mcp_trio.subscriptions.stream import OpenSubscription, reason_of, run_subscription
from mcp_trio.transports.abc import Exchange, end_in_turn

__all__ = ["Subscriptions"]

logger = logging.getLogger("mcp_trio.server")

_CHECKED_AT_ONCE: Final = 16
"""How many subscriptions are asked about at the same time, by `Subscriptions.recheck`."""

_TASKS: Final = "io.modelcontextprotocol/tasks"

GRACEFUL: Final = ("complete", "shutdown", "overflow", "expired", "revoked", "nothing-granted")
"""The reasons for which a subscription ends with a result."""

ENDINGS: Final = (*GRACEFUL, "other", "cancelled", "disconnected", "refused", "error")


class Subscriptions:
    """Serves `subscriptions/listen` for one server.

    Args:
        source: opens each subscription.
        kinds: the kinds of event that the server advertises.
        limits: how many there may be, and how large.
        authorizer: what of a filter a caller may have; None: all of it.
        server_info: for the result that ends a subscription.
        supported_versions: the revisions that a request may declare.
        own_source: whether the source drains with the server; a hub can be shared, and stays.
        guard: asked whether a caller may read what it wants to follow.
        watchers: what runs while there are subscribers to a URI.
        observer: told what becomes of each.
    """

    def __init__(
        self,
        source: SubscriptionSource,
        kinds: Collection[Kind],
        limits: Limits,
        authorizer: Authorizer | None,
        server_info: dict[str, Any],
        supported_versions: tuple[str, ...],
        *,
        own_source: bool,
        guard: Guard | None = None,
        watchers: Watchers | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._source = source
        self._kinds = kinds
        self._limits = limits
        self._authorizer = authorizer
        self._server_info = server_info
        self._supported_versions = supported_versions
        self._slots = SubscriptionSlots(limits)
        self._own_source = own_source
        self._guard = guard
        self._watchers = watchers
        self._observer = observer
        self._open: dict[OpenSubscription, _Asking | None] = {}
        self._idle: trio.Event | None = None
        self._drained_in: trio.lowlevel.TrioToken | None = None
        self._written = 0
        self.ended = dict.fromkeys(ENDINGS, 0)
        """How many have ended so far, by reason; `ServerStatistics` says what each means."""

    @property
    def count(self) -> int:
        """How many are open, or about to be."""
        return self._slots.taken

    @property
    def written(self) -> int:
        """How many events have been written, to those that have ended as well."""
        return self._written + sum(subscription.written for subscription in self._open)

    async def listen(self, request: jsonrpc.Request, exchange: Exchange) -> jsonrpc.Reply:
        """Serve one subscription until it ends.

        Raises:
            errors.ErrorResponse: the error to answer with.

        Cancelling ends it without a result.
        """
        # No local may keep the params, their `_meta` or the principal: this frame lives long.
        how = "error"
        observed = None if self._observer is None else self._observer.subscription()
        running: list[OpenSubscription] = []
        try:
            wanted = [self._read(request, exchange)]
            principal = exchange.principal
            name = None if principal is None else principal.name
            del principal
            with self._slots.slot(exchange.connection, name):
                exchange.release()
                result = await self._run(request.id, exchange, wanted, running, observed)
            how = _reason(result)
            return jsonrpc.result_reply(request.id, result)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            how = "disconnected"
            logger.debug("the client of a subscription has gone")
            raise errors.InternalError("the client has gone") from None
        except trio.Cancelled as cancelled:
            how = reason_of(cancelled).kind
            raise
        except errors.ErrorResponse:
            if not any(subscription.acknowledged for subscription in running):
                how = "refused"
            raise
        finally:
            self.ended[how] += 1
            if observed is not None:
                observed.ended(how, sum(subscription.written for subscription in running))
            if self._idle is not None and not self.count:
                self._idle.set()

    def _read(
        self, request: jsonrpc.Request, exchange: Exchange
    ) -> tuple[SubscriptionFilter, SubscriptionContext, Authorizer | None]:
        about = meta.meta_of(request, self._supported_versions)
        params = request.take_params()
        wanted = parse_filter(params.get("notifications"), max_uris=self._limits.filter_uris)
        if wanted.task_ids and not about.declares("extensions", _TASKS):
            raise errors.MissingRequiredClientCapability(
                "taskIds need the tasks extension", required={"extensions": {_TASKS: {}}}
            )
        if self._is_draining():
            raise errors.ServerBusy("the server is shutting down")
        principal = exchange.principal
        context = SubscriptionContext(
            request.id,
            exchange.kind,
            None if principal is None else principal.name,
            math.inf if principal is None else principal.expires_at,
            about.client_info,
        )
        authorizer = self._authorizer
        if self._guard is not None:
            authorizer = self._guard.subscriptions_of(principal, authorizer)
        return wanted, context, authorizer

    async def _run(
        self,
        request_id: jsonrpc.RequestId,
        exchange: Exchange,
        read: list[tuple[SubscriptionFilter, SubscriptionContext, Authorizer | None]],
        running: list[OpenSubscription],
        observed: SubscriptionObserver | None,
    ) -> dict[str, Any]:
        wanted, context, authorize = read.pop()
        asking = None if authorize is None else _Asking(authorize, context)
        watched: list[Watch] = []

        def on_accepted(accepted: SubscriptionFilter) -> None:
            if self._watchers:
                watched.extend(self._watchers.subscribe(accepted.resource_subscriptions))

        def on_open(subscription: OpenSubscription) -> None:
            running.append(subscription)
            self._open[subscription] = asking
            exchange.end_gracefully = subscription.end

        subscription = run_subscription(
            request_id=request_id,
            wanted=wanted,
            source=self._source,
            context=context,
            exchange=exchange,
            server_info=self._server_info,
            kinds=self._kinds,
            authorize=authorize,
            on_open=on_open,
            on_accepted=on_accepted,
            on_acknowledged=None if observed is None else observed.acknowledged,
        )
        # The runner lets go of them when it can; so must this frame.
        del wanted, context, authorize, on_open, on_accepted
        try:
            return await subscription
        finally:
            exchange.end_gracefully = None
            for watch in watched:
                watch.release()
            for one in running:
                del self._open[one]
                self._written += one.written

    def end_all(self, reason: str, retry_after: float | None = None) -> int:
        """Ask every open subscription to end gracefully; returns how many there were."""
        End(reason, retry_after)  # said wrongly, it is refused even if there is nobody to tell
        subscriptions = list(self._open)
        for subscription in subscriptions:
            subscription.end(reason, retry_after=retry_after)
        return len(subscriptions)

    async def recheck(self, principal: str | None) -> int:
        """Ask again about the open ones, of one principal or of all; `Server.recheck` says how."""
        held = [
            (subscription, asking)
            for subscription, asking in self._open.items()
            if asking is not None
            and (principal is None or asking.context.principal_name == principal)
        ]
        for subscription, _ in held:
            subscription.hold()
        left = held.copy()
        ended = 0

        async def check_some() -> None:  # noqa: ASYNC910 (asking yields)
            nonlocal ended
            while left:
                subscription, asking = left.pop()
                end: str | None = "complete"
                try:
                    end = await asking.again(subscription.granted)
                finally:
                    if end is not None:
                        subscription.cut(end)
                        ended += 1
                    subscription.release()

        try:
            async with trio.open_nursery() as nursery:
                for _ in range(min(len(held), _CHECKED_AT_ONCE)):
                    nursery.start_soon(check_some)
        finally:
            for subscription, _ in left:  # nobody has asked: the asking was cancelled
                subscription.cut("complete")
                subscription.release()
        return ended

    async def drain(self, deadline: float, stagger: float = 0.0) -> None:
        """Refuse new ones, end the open ones, and wait until they have ended."""
        self._drained_in = trio.lowlevel.current_trio_token()
        await end_in_turn([each.end for each in self._open], deadline, stagger)
        self.end_all("shutdown")
        with trio.CancelScope(deadline=deadline):
            await trio.lowlevel.checkpoint()
            if self._own_source:
                try:
                    await self._source.drain(deadline)
                except Exception:
                    logger.exception("a subscription source failed to drain")
            while self.count:
                if self._idle is None or self._idle.is_set():
                    self._idle = trio.Event()
                await self._idle.wait()

    def _is_draining(self) -> bool:
        # A server that is made once and run again, as tests do, drains no more.
        return self._drained_in is trio.lowlevel.current_trio_token()


@attrs.frozen
class _Asking:
    """What it takes to ask again about a subscription."""

    authorize: Authorizer
    context: SubscriptionContext

    async def again(self, granted: SubscriptionFilter | None) -> str | None:
        """With which reason a subscription has to end, if it has to.

        Args:
            granted: what it has got; None while it waits for the first answer.
        """
        await trio.lowlevel.checkpoint()
        if granted is None:
            return None
        try:
            left = await authorize_filter(self.authorize, granted, self.context)
        except errors.InternalError:
            return "complete"
        if granted.issubset(left):
            return None
        return "complete" if left else "revoked"


def _reason(result: dict[str, Any]) -> str:
    """The reason of a graceful end. One that a program has made up may say anything of anybody."""
    reason: str = result["_meta"][meta.META_END]["reason"]
    return reason if reason in GRACEFUL else "other"
