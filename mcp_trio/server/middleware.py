"""What runs around every request of a server: logging, metrics, rate limits.

Middleware is a list of async functions. The first is the outermost: it is called first, and sees
the outcome last. Around all of them the server turns what is raised into an error response.
What a transport refuses by itself, such as a message that it cannot read, comes to none of them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import attrs

from mcp_trio.protocol import jsonrpc
from mcp_trio.transports.abc import Exchange, Principal

__all__ = ["Incoming", "Middleware", "Next", "chain"]


@attrs.frozen
class Incoming:
    """A request on its way in, as a middleware sees it.

    Its `params` and headers are forgotten once a subscription is open, which may stay so for
    days: take out what you need before you call what comes next, and no more.

    Attributes:
        request: the request.
        exchange: the way back, and what the transport knows.
    """

    request: jsonrpc.Request
    exchange: Exchange = attrs.field(repr=False)

    @property
    def method(self) -> str:
        """The method, which the client makes up: it need not be one that there is."""
        return self.request.method

    @property
    def params(self) -> Mapping[str, Any]:
        """The params, as they came: nothing of them has been checked but the `_meta`."""
        return self.request.params

    @property
    def principal(self) -> Principal | None:
        """Who asks, where the transport can tell."""
        return self.exchange.principal

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers by lower-case name; empty for other transports."""
        return self.exchange.headers

    @property
    def kind(self) -> Literal["memory", "stdio", "http"]:
        """The kind of transport."""
        return self.exchange.kind


Next = Callable[[Incoming], Awaitable[jsonrpc.Reply]]
"""What a middleware calls to go on: the next one, and in the end the server's own handler."""


class Middleware(Protocol):
    """An async function around every request.

    It raises what is raised further in, or something else: an `errors.ErrorResponse` is the error
    that the client gets (`errors.ServerBusy` with the time after which to come back), anything
    else is logged and becomes an internal error. It runs in the task of the request and is
    cancelled with it; that of a subscription lasts as long as the subscription.
    """

    async def __call__(self, call: Incoming, proceed: Next, /) -> jsonrpc.Reply:
        """Serve the request: return what `await proceed(call)` returns, or raise."""


def chain(middleware: Sequence[Middleware], handler: Next) -> Next:
    """All of it as one function around the handler."""
    for each in reversed(middleware):
        handler = _around(each, handler)
    return handler


def _around(middleware: Middleware, proceed: Next) -> Next:
    async def step(call: Incoming) -> jsonrpc.Reply:
        reply = await middleware(call, proceed)
        if type(reply) is not jsonrpc.Reply:
            raise TypeError(f"the middleware {middleware!r} returned no reply but {reply!r}")
        return reply

    return step
