"""The streams of a host: kept open while they are quiet, and ended when the host stops."""

import functools
import math
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from mcp_trio.http.endpoint import EndpointOptions
from mcp_trio.http.exchange import HttpExchange, ResponseWriter
from mcp_trio.transports.abc import end_exchange, end_in_turn

__all__ = ["KEEPALIVE", "KeptAlive", "Streams", "take_keepalive"]

KEEPALIVE: Final = 15.0


def take_keepalive(options: EndpointOptions) -> float:
    """Take the interval out of the options, in seconds.

    Raises:
        ValueError: it is not positive.
    """
    keepalive = options.pop("keepalive", KEEPALIVE)
    if not keepalive > 0:
        raise ValueError("keepalive is a number of seconds greater than 0")
    return keepalive


class Streams:
    """The streams that one host carries: those which end when it stops, and no others.

    The same handler may be served elsewhere, too, and goes on there.
    """

    def __init__(self) -> None:
        self._open: dict[HttpExchange, None] = {}
        self._ending = False

    def add(self, exchange: HttpExchange) -> None:
        """A response has become a stream."""
        self._open[exchange] = None
        if self._ending:
            end_exchange(exchange, "shutdown")

    def discard(self, exchange: HttpExchange) -> None:
        """A stream has ended."""
        self._open.pop(exchange, None)

    async def end(self, deadline: float, stagger: float) -> None:
        """End every stream with its result; see `end_in_turn`. One that still opens ends at once.

        Returns when all have been asked to.
        """
        self._ending = True
        ends = [functools.partial(end_exchange, exchange) for exchange in self._open]
        await end_in_turn(ends, deadline, stagger)


class KeptAlive(ResponseWriter):
    """A response whose stream gets a comment whenever it has been quiet for a while.

    A deadline is set when the stream opens and looked at again only when it has passed, so that
    the writes in between cost nothing.
    """

    __slots__ = ("_exchange", "_keepalive", "_streams", "_timer")

    def __init__(self, keepalive: float, streams: Streams | None = None) -> None:
        self._keepalive = keepalive
        self._streams = streams
        self._exchange: HttpExchange | None = None
        self._timer: trio.CancelScope | None = None

    def opened(self, exchange: HttpExchange) -> None:
        """Begin to count."""
        self._exchange = exchange
        if self._streams is not None:
            self._streams.add(exchange)
        if self._timer is not None:
            self._timer.deadline = exchange.last_write + self._keepalive

    def served(self) -> None:
        """Let go of the exchange, which refers back to here; nothing is written any more."""
        if self._streams is not None and self._exchange is not None:
            self._streams.discard(self._exchange)
        self._exchange = None

    async def comment(self, exchange: HttpExchange) -> None:
        """Write a comment."""
        await exchange.keep_alive()

    async def wait_gone(self, gone: Callable[[], Awaitable[bool]]) -> None:
        """Write comments until `gone`, called again and again, says that the client is."""
        while True:
            with trio.CancelScope(deadline=self._next_comment()) as self._timer:
                if await gone():
                    break
            if self._exchange is not None and self._next_comment() <= trio.current_time():
                await self.comment(self._exchange)

    def _next_comment(self) -> float:
        if self._exchange is None:
            return math.inf
        return self._exchange.last_write + self._keepalive
