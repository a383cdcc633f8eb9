"""What a watch can be told, and what it needs of whoever opens its streams."""

import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeAlias, TypedDict

import attrs

from mcp_trio._backoff import Backoff
from mcp_trio.client.subscription import SubscriptionEnd
from mcp_trio.subscriptions.events import Event
from mcp_trio.subscriptions.filter import DEFAULT_MAX_URIS, SubscriptionFilter
from mcp_trio.transports import abc

__all__ = ["ACK_TIMEOUT", "Opener", "Policy", "Stream", "WatchOptions"]

ACK_TIMEOUT: Final = 10.0


class Stream(Protocol):
    """One stream of changes, from its acknowledgement to its end; a `Subscription` is one.

    `receive` raises ``trio.EndOfChannel`` where `end` says why the server ended it, and
    `errors.SubscriptionLost` where it ended in any other way.
    """

    @property
    def acknowledged(self) -> SubscriptionFilter:
        """What was granted."""

    @property
    def end(self) -> SubscriptionEnd | None:
        """How it ended; None while it has not."""

    @property
    def heartbeat(self) -> abc.Heartbeat | None:
        """By what the peer's silence can be noticed, if by anything."""

    async def receive(self) -> Event:
        """Wait for the next event. Cancelling loses none."""


Opener: TypeAlias = Callable[[SubscriptionFilter], AbstractAsyncContextManager[Stream]]
"""Opens one stream and waits for its acknowledgement; leaving the block cancels it."""


class WatchOptions(TypedDict, total=False):
    """The keyword arguments that `Client.watch` and `Client.open_shared_watch` take.

    Attributes:
        backoff: how long to wait before another attempt: after a failed one, and after a stream
            that has ended. By default 100 ms, doubling up to 30 s, with full jitter, and from
            the beginning again after a stream that lasted for 10 s.
        give_up_after: seconds without a stream that lasted (for ``backoff.min_uptime``) after
            which the watch ends with `errors.WatchEnded`. By default it never gives up.
        ack_timeout: seconds that each acknowledgement may take; 10 by default.
        max_uris_per_stream: how many URIs one stream asks for, 1,000 by default. More are spread
            over several streams. Servers have limits that cannot be asked for: a stream that is
            refused for its size (-32602, or HTTP status 413) is halved by itself.
        max_streams: how many streams that may lead to; 16 by default. Beyond it such a refusal
            is final.
        silence_factor: over HTTP, how many times the longest time between two keep-alive
            comments may pass without a byte before the stream counts as lost; 3 by default, and
            `math.inf` for never. A server that sends no comments is never suspected.
        min_silence: seconds of silence that are no reason to worry, however short that time is;
            10 by default.
        overlap: seconds for which a stream that has been replaced, since the filter changed, is
            still read, for what was on its way; 1 by default.
        read_timeout: seconds that each request of a snapshot may take; 30 by default.
    """

    backoff: Backoff
    give_up_after: float
    ack_timeout: float
    max_uris_per_stream: int
    max_streams: int
    silence_factor: float
    min_silence: float
    overlap: float
    read_timeout: float


def _positive(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name} must be positive")


@attrs.frozen(kw_only=True)
class Policy:
    """`WatchOptions` with the defaults filled in.

    Raises:
        ValueError: a number is not positive.
    """

    backoff: Backoff = attrs.field(factory=Backoff, validator=attrs.validators.instance_of(Backoff))
    give_up_after: float = attrs.field(default=math.inf, validator=_positive)
    ack_timeout: float = attrs.field(default=ACK_TIMEOUT, validator=_positive)
    max_uris_per_stream: int = attrs.field(default=DEFAULT_MAX_URIS, validator=_positive)
    max_streams: int = attrs.field(default=16, validator=_positive)
    silence_factor: float = attrs.field(default=3.0, validator=_positive)
    min_silence: float = attrs.field(default=10.0, validator=_positive)
    overlap: float = attrs.field(default=1.0, validator=_positive)
    read_timeout: float = attrs.field(default=30.0, validator=_positive)
