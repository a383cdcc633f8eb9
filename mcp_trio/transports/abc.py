"""The two seams between the roles and what carries their messages.

A client is written against `Transport`, a server against `Exchange`. Neither knows whether
there is a pipe, a socket or a function call behind it.
"""

import abc
import logging
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Final, Literal, Protocol, runtime_checkable

import attrs
import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc

__all__ = [
    "NOTHING_MIRRORED",
    "EndGracefully",
    "Exchange",
    "Handler",
    "Heartbeat",
    "Principal",
    "Transport",
    "call_handler",
    "end_exchange",
    "end_in_turn",
    "notify_handler",
]

logger = logging.getLogger("mcp_trio.transports")

NOTHING_MIRRORED: Final[Mapping[str, object]] = MappingProxyType({})

_FOR_ENDING: Final = 0.75
"""Which part of the time there is for stopping is for ending streams; the rest is to write."""


@attrs.frozen
class Principal:
    """Who makes a request, as far as the transport could tell.

    Attributes:
        name: a stable identifier; limits are counted per name.
        expires_at: the moment of `trio.current_time` at which the credentials end, in seconds.
            A subscription does not outlive it.
    """

    name: str
    expires_at: float = math.inf


class EndGracefully(Protocol):
    """Ends one request early but properly: its response follows, soon."""

    def __call__(self, reason: str, /, *, retry_after: float | None = None) -> object:
        """End it; a second call does nothing.

        Args:
            reason: what the client is told.
            retry_after: after how many seconds it may come back, if there is a wish.
        """


class Exchange(abc.ABC):
    """What a transport lends to the server for one request: a way back, and who is asking.

    The transport runs `Handler.handle` in a task of its own inside a cancel scope that belongs
    to this request. It cancels that scope when the request is cancelled or its peer has gone.
    """

    kind: Literal["memory", "stdio", "http"]
    connection: Hashable = None
    """What the limits per connection count by; None where a connection carries one request."""
    principal: Principal | None = None
    headers: Mapping[str, str] = {}
    """The request's HTTP headers in lower case; empty elsewhere."""
    end_gracefully: EndGracefully | None = None
    """Whoever serves a subscription sets it, at the latest before the acknowledgement. A
    transport that is itself told to stop calls it (`end_exchange`), and gives `Handler.handle` a
    moment to return, where it would otherwise cancel it at once."""

    @abc.abstractmethod
    async def send(self, frame: bytes) -> None:
        """Write one notification: a whole JSON message in UTF-8, without a line end.

        Returns when the transport has handed it on. Cancelling before that leaves it unsent or
        sent, never half sent.

        Raises:
            trio.BrokenResourceError: the peer has gone.
        """

    def send_nowait(self, frame: bytes, now: float | None = None) -> bool:
        """Write one notification at once if that needs no waiting; whether it was written.

        Args:
            frame: as for `send`.
            now: `trio.current_time`, of who has read it already: to read it takes longer than
                much else here, and a publisher writes to thousands.
        """
        return False

    def release(self) -> None:  # noqa: B027
        """Forget what only the opening of the request needed: body, params, headers."""


class Handler(Protocol):
    """What a transport needs of a server."""

    @property
    def supported_versions(self) -> tuple[str, ...]:
        """The revisions this server speaks, newest first."""

    def knows(self, method: str) -> bool:
        """Whether there is a handler for the method."""

    def mirrored(self, request: jsonrpc.Request) -> Mapping[str, object]:
        """What the `Mcp-Param-*` headers of a request have to say, by the end of their names.

        None where the header has to be absent, because the body has no such value.
        """

    async def handle(self, request: jsonrpc.Request, exchange: Exchange) -> jsonrpc.Reply:
        """Serve one request and return its response, which the transport then writes.

        Never raises but for cancellation (and `KeyboardInterrupt`, `SystemExit`): whatever goes
        wrong in a handler is an error reply. Cancelling ends the request without a response.
        """

    def notify(self, notification: jsonrpc.Notification) -> None:
        """Take note of a notification that is not the transport's own business."""


async def call_handler(
    handler: Handler, request: jsonrpc.Request, exchange: Exchange
) -> jsonrpc.Reply:
    """Call a handler; should it break its promise not to raise, answer in its place.

    Cancelling cancels the handler.
    """
    request_id, method = request.id, request.method
    try:
        return await handler.handle(request, exchange)
    except Exception:
        logger.exception("the handler failed on %r", method)
        await trio.lowlevel.checkpoint()
        return jsonrpc.error_reply(request_id, errors.InternalError("the server failed"))


def notify_handler(handler: Handler, notification: jsonrpc.Notification) -> None:
    """Hand on a notification, which nobody answers: what goes wrong with it is for the log."""
    try:
        handler.notify(notification)
    except Exception:
        logger.exception("the handler failed on %r", notification.method)


def end_exchange(exchange: Exchange, reason: str, *, retry_after: float | None = None) -> bool:
    """End a request gracefully if it can be; whether it could."""
    if exchange.end_gracefully is None:
        return False
    try:
        exchange.end_gracefully(reason, retry_after=retry_after)
    except Exception:
        logger.exception("a subscription could not be ended gracefully")
        return False
    return True


async def end_in_turn(ends: Sequence[EndGracefully], deadline: float, stagger: float) -> None:
    """End subscriptions with the reason "shutdown", one after the other.

    Args:
        ends: ends one of them.
        deadline: when the last response has to be written, as a moment of `trio.current_time`.
        stagger: over how many seconds the clients shall be spread that come back. Where the
            deadline leaves less time than that, the ends are spread over what it leaves, and
            each client is told for how long it had better stay away.

    Cancelling leaves those open that have not had their turn.
    """
    begun = trio.current_time()
    spread = max(0.0, min(stagger, _FOR_ENDING * (deadline - begun)))
    for number, end in enumerate(ends):
        if spread:
            await trio.sleep_until(begun + spread * number / len(ends))
        away = (stagger - spread) * number / len(ends)
        end("shutdown", retry_after=away if away > 0 else None)
    await trio.lowlevel.checkpoint()


@runtime_checkable
class Heartbeat(Protocol):
    """What the channel of an exchange may know of the peer's signs of life.

    A peer that is known to send keep-alive comments, and sends none for several times as long
    as it ever took, has gone, whether or not the connection has noticed.
    """

    @property
    def comment_interval(self) -> float | None:
        """The longest time between two comments, in seconds; None before the second."""

    @property
    def last_heard(self) -> float:
        """The moment of `trio.current_time` at which anything was read last."""


class Transport(abc.ABC):
    """What a client needs to reach one server."""

    kind: Literal["memory", "stdio", "http"]
    can_listen: bool = True
    """Whether notifications can arrive before the response; without that, no subscriptions."""
    server: Hashable = None
    """Which server it reaches, where that can be said: equal values, the same server. For what a
    client knows of the server and may share."""
    one_principal: bool = True
    """Whether all requests show the same credentials, as far as can be said."""
    on_unrouted: Callable[[jsonrpc.Notification], object] | None = None
    """Called with each notification that belongs to no request. Set by whoever wants to know; a
    transport that gives each request a channel of its own has none."""
    mirrors_params: bool = False
    """Whether arguments of a tool that its schema marks for it are mirrored in headers."""

    @property
    def ended(self) -> bool:
        """Whether it is over for good: no exchange can be opened any more, nor ever again."""
        return False

    @abc.abstractmethod
    def open_exchange(
        self,
        request_id: jsonrpc.RequestId,
        method: str,
        params: dict[str, object],
        *,
        mirrored: Mapping[str, object] = NOTHING_MIRRORED,
    ) -> AbstractAsyncContextManager[trio.abc.ReceiveChannel[jsonrpc.Message]]:
        """Send a request and open the channel on which everything that belongs to it arrives.

        The channel yields the notifications of that request in order, then its response, then
        `trio.EndOfChannel`. Where the transport fails first it raises
        `errors.ConnectionLost`, which names the cause as far as it is known. A slow receiver
        delays nobody but its own exchange.

        Leaving the block before the response has come cancels the request in the way of the
        transport: `notifications/cancelled` on stdio, a closed response stream over HTTP. The
        goodbye is shielded, with a deadline. Closing the channel does the same ahead of time.

        Args:
            request_id: of the request.
            method: of the request.
            params: of the request.
            mirrored: what the `Mcp-Param-*` headers have to say, by the end of their names, as
                in `protocol.headers.build_param_headers`. A transport without headers ignores it.

        Raises:
            errors.ConnectionLost: on entering, the request could not be sent.
        """
