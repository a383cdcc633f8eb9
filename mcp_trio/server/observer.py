"""What a server tells somebody who measures it; `server.telemetry` is one who does."""

from collections.abc import Callable
from typing import Protocol

from mcp_trio.protocol import jsonrpc
from mcp_trio.server.middleware import Middleware
from mcp_trio.subscriptions.observer import HubObserver

__all__ = ["Observer", "SubscriptionObserver", "Target"]

Target = Callable[[jsonrpc.Request], str | None]
"""Gives the registered tool or prompt that a request is about, if it is about one."""


class SubscriptionObserver(Protocol):
    """Is told what becomes of one subscription. Its methods must neither block nor raise."""

    def acknowledged(self) -> object:
        """The acknowledgement was written."""

    def ended(self, how: str, written: int, /) -> object:
        """It is over.

        Args:
            how: a reason out of `ServerStatistics.ended`.
            written: how many events have been written.
        """


class Observer(Protocol):
    """Watches a server, and the hub of it."""

    @property
    def hub(self) -> HubObserver:
        """Who is told by the server's hub."""

    def around(self, target: Target, /) -> Middleware:
        """What runs around every request, outside of any other middleware.

        Args:
            target: tells what a request is about, without names that a client makes up.
        """

    def subscription(self) -> SubscriptionObserver:
        """A subscription is asked for; called in the task of its request."""
