"""What the server has said, for those who follow it without being the one it was said to.

A client has one `Observers`. Whoever takes a message in tells it, before anybody else hears of
the message: requests their notifications, subscriptions their changes, the transport what
belongs to neither. It tells the cache first, and then the notification handlers. Nothing here
waits, and nothing raises.

Source: specification, basic/patterns/subscriptions; server/utilities/caching.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import attrs

from mcp_trio.protocol import jsonrpc
from mcp_trio.subscriptions.filter import SubscriptionFilter

__all__ = ["Listener", "Memory", "Observers", "ServerMessage"]


@attrs.frozen(kw_only=True)
class ServerMessage:
    """Something the server has said, other than an answer.

    Attributes:
        kind: ``"notification"``; or ``"request"`` for what the server asked of the client, which
            is answered elsewhere and only observed here.
        method: its method.
        params: its params as they came, plain JSON, with the ``_meta`` that was sent along. All
            who observe the message share them, so do not change them.
        subscription_id: the subscription that it arrived on, if it did: `Subscription.id`.
        request_id: the id of the request that it belongs to, if that is known. Not that of a
            subscription.
        missed: how many messages before this one were dropped, since whoever gets it had too
            many waiting.
    """

    kind: Literal["notification", "request"] = "notification"
    method: str
    params: Mapping[str, Any]
    subscription_id: jsonrpc.RequestId | None = None
    request_id: jsonrpc.RequestId | None = None
    missed: int = 0


class Memory(Protocol):
    """What remembers answers, and has to forget them in time."""

    def forget(self, message: ServerMessage, granted: SubscriptionFilter | None) -> None:
        """Something may have changed.

        Args:
            message: what the server said.
            granted: what the subscription covers that it arrived on.
        """

    def forget_covered(self, covered: SubscriptionFilter) -> None:
        """Anything of this may have changed without a word."""


class Listener(Protocol):
    """What is told each message."""

    def put(self, message: ServerMessage) -> None:
        """Take it; never wait, never raise."""


class Observers:
    """Who follows what the server says to one client.

    Args:
        memory: the client's part of a cache, which is told before the listeners.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory
        self._listeners: dict[Listener, None] = {}

    def add(self, listener: Listener) -> None:
        """From now on tell this one too."""
        self._listeners[listener] = None

    def remove(self, listener: Listener) -> None:
        """Tell this one no more."""
        self._listeners.pop(listener, None)

    def observe(
        self,
        notification: jsonrpc.Notification,
        *,
        subscription_id: jsonrpc.RequestId | None = None,
        request_id: jsonrpc.RequestId | None = None,
        granted: SubscriptionFilter | None = None,
    ) -> None:
        """A notification has arrived.

        Args:
            notification: the notification.
            subscription_id: the subscription it arrived on, if it did.
            request_id: the request it belongs to, if it is known to belong to one.
            granted: what that subscription covers.
        """
        if self._memory is None and not self._listeners:
            return
        message = ServerMessage(
            method=notification.method,
            params=notification.params,
            subscription_id=subscription_id,
            request_id=request_id,
        )
        if self._memory is not None:
            self._memory.forget(message, granted)
        self._tell(message)

    def observe_request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        request_id: jsonrpc.RequestId | None = None,
    ) -> None:
        """The server asks the client for something, in the course of a request if one is given."""
        if self._listeners:
            self._tell(
                ServerMessage(kind="request", method=method, params=params, request_id=request_id)
            )

    def missed(self, covered: SubscriptionFilter) -> None:
        """Changes of what a subscription covers may have been missed."""
        if self._memory is not None and covered:
            self._memory.forget_covered(covered)

    def _tell(self, message: ServerMessage) -> None:
        for listener in self._listeners:
            listener.put(message)
