"""A hand-written subscription source, mounted in an ASGI application of one's own.

    hypercorn -k trio examples.own_source:app        # MCP at /mcp, a page at /

A `Hub` is the usual source. Write your own where changes are *pulled* from somewhere: a database
that is polled, a queue that is read, here a clock that ticks. One handle belongs to one
subscription; the SDK pulls an event, writes it, and only then pulls the next, so a slow client
makes a slow pull and never a queue.
"""

import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import trio

from mcp_trio import ResourceUpdated, Server, SubscriptionFilter, asgi_app
from mcp_trio.subscriptions import (
    CloseReason,
    Event,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)

CLOCK_URI = "clock://seconds"


class TickHandle(SourceHandle):
    """The ticks of one subscription."""

    def __init__(self, accepted: SubscriptionFilter, interval: float, left: float) -> None:
        self._accepted = accepted
        self._interval = interval
        self._left = left
        self._next = trio.current_time() + interval
        self.closed: CloseReason | None = None

    @property
    def accepted(self) -> SubscriptionFilter:
        """The clock, if the client asked for it."""
        return self._accepted

    async def receive(self) -> Event:
        """Wait for the next tick. Cancelling waits for none and loses none."""
        if self.closed is not None or not self._left:
            await trio.lowlevel.checkpoint()
            raise trio.EndOfChannel
        await trio.sleep_until(self._next)
        # A client that reads slowly misses ticks, not the fact that time went on.
        now = trio.current_time()
        self._next += self._interval * max(1, math.ceil((now - self._next) / self._interval))
        self._left -= 1
        return ResourceUpdated(CLOCK_URI)

    async def aclose(self, reason: CloseReason) -> None:
        """Called once, however the subscription ended."""
        self.closed = reason
        await trio.lowlevel.checkpoint()


class TickSource(SubscriptionSource):
    """A clock that ticks for each of its subscribers on its own.

    Args:
        interval: seconds from tick to tick.
        ticks: after how many ticks the source ends a subscription, gracefully.
    """

    kinds = frozenset({"updated"})

    def __init__(self, interval: float = 1.0, ticks: float = math.inf) -> None:
        self._interval = interval
        self._ticks = ticks

    async def open(self, wanted: SubscriptionFilter, context: SubscriptionContext) -> TickHandle:
        """Accept the clock and nothing else."""
        await trio.lowlevel.checkpoint()
        granted = tuple(uri for uri in wanted.resource_subscriptions if uri == CLOCK_URI)
        return TickHandle(
            SubscriptionFilter(resource_subscriptions=granted), self._interval, self._ticks
        )


def make_server(source: SubscriptionSource) -> Server:
    """A server whose changes come from the source."""
    server = Server("clock", version="1.0", source=source)

    @server.resource(CLOCK_URI, mime_type="text/plain")
    async def seconds() -> str:
        """Seconds on the server's clock."""
        return f"{trio.current_time():.0f}"

    return server


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

mcp = asgi_app(make_server(TickSource()))


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """The application around it: a page of its own, and everything else to MCP."""
    if scope["type"] == "http" and scope["path"] == "/":
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"The clock is at /mcp\n"})
    else:
        await mcp(scope, receive, send)
