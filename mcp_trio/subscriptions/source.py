"""The contract of a subscription source: where the events of a subscription come from.

`hub.Hub` is one. Write your own where events already have a home elsewhere, such as a database
that notifies or a message broker. The runner (`stream.run_subscription`) does everything that
the protocol asks for around it: it acknowledges, asks for one event at a time, filters, writes,
ends, and closes the handle exactly once.
"""

import abc
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

import attrs
import trio

from mcp_trio import errors
from mcp_trio.subscriptions.events import Event, Kind
from mcp_trio.subscriptions.filter import ALL_KINDS, SubscriptionFilter

__all__ = ["CloseReason", "End", "SourceHandle", "SubscriptionContext", "SubscriptionSource"]

_LONGEST_NAME: Final = 256


@attrs.frozen
class End:
    """A graceful end, as the client is told.

    Attributes:
        reason: ``"complete"``, ``"shutdown"``, ``"overflow"``, ``"expired"``, ``"revoked"`` or
            ``"nothing-granted"``.
        retry_after: seconds after which the client may try again; None if nothing is known.

    Raises:
        ValueError: the reason is no text that can be sent, or the seconds are no such number.
    """

    reason: str = "complete"
    retry_after: float | None = None

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.reason, str) or not _is_text(self.reason):
            raise ValueError(f"a reason is a text, not {self.reason!r}")
        delay = self.retry_after
        if delay is None:
            return
        if not isinstance(delay, int | float) or not 0 <= delay <= errors.LONGEST_DELAY:
            raise ValueError(f"retry_after is a number of seconds, not {delay!r}")


@attrs.frozen
class CloseReason:
    """Why a handle is closed, for the source's own bookkeeping.

    Attributes:
        kind: ``"cancelled"`` by the client or by the program around it, ``"disconnected"``:
            the peer has gone, ``"complete"``: a graceful end, ``"error"``: the source, or
            something near it, failed.
        detail: the client's own words, or the reason of the end; may be empty.
        cause: the exception behind it, if there was one.
    """

    kind: Literal["cancelled", "disconnected", "complete", "error"]
    detail: str = ""
    cause: BaseException | None = attrs.field(default=None, eq=False)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _client_info(info: Mapping[str, Any] | None) -> Mapping[str, str] | None:
    """Name and version only, and short: a context outlives the request it was made from."""
    if info is None:
        return None
    return MappingProxyType(
        {
            name: info[name][:_LONGEST_NAME]
            for name in ("name", "version")
            if isinstance(info.get(name), str)
        }
    )


@attrs.frozen
class SubscriptionContext:
    """What a source may know about the subscription it opens. Small: a stream keeps it.

    Attributes:
        subscription_id: the id of the request. Unique within one connection at most.
        kind: the kind of transport: ``"memory"``, ``"stdio"``, ``"http"``, …
        principal_name: who asked, where the transport could tell.
        expires_at: the moment (`trio.current_time`, seconds) at which the credentials end.
        client_info: name and version of the client, as it says; for display and logs.
    """

    subscription_id: str | int
    kind: str = "memory"
    principal_name: str | None = None
    expires_at: float = math.inf
    client_info: Mapping[str, str] | None = attrs.field(default=None, converter=_client_info)


class SourceHandle(abc.ABC):
    """One open subscription, as its source sees it."""

    __slots__ = ()

    ends_itself: ClassVar[bool] = False
    """Promises that `complete` returns True and that `receive` then ends without fail.

    The runner then needs no cancel scope around each `receive`.
    """

    @property
    @abc.abstractmethod
    def accepted(self) -> SubscriptionFilter:
        """What this source serves of the filter it was offered: that filter, or a narrower one."""

    @property
    def end(self) -> End | None:
        """Why `receive` raised `trio.EndOfChannel`; None counts as ``"complete"``."""
        return None

    @abc.abstractmethod
    async def receive(self) -> Event:
        """Wait for the next event.

        Called by one task, one call at a time, and not before the last event was written. May
        wait for as long as it takes. Cancelling it must not leave anything behind that `aclose`
        does not release.

        Raises:
            trio.EndOfChannel: nothing more will come; the client is told of a graceful end. A
                call after `aclose` raises it, too.
            Exception: anything else ends the subscription with an error, and only that one.
        """

    def complete(self, end: End) -> bool:
        """Ask for a graceful end after what is already queued, from any task.

        Returns:
            Whether the source will see to it; `receive` then yields what is queued and raises
            `trio.EndOfChannel`, within a few seconds. False, the default, makes the runner stop
            by itself, without another `receive`.
        """
        return False

    def write_through(self, write: Callable[[Event, float], bool]) -> None:  # noqa: B027
        """Take note of a way to the client that needs no task to be woken up; may be ignored.

        Called once, when the subscription has been acknowledged.

        Args:
            write: writes an event that the accepted filter matches, given the `trio.current_time`
                as well, and returns whether it did. It may be called, in the thread of the
                `trio.run`, while a `receive` waits and nothing is queued, and at no other time.
                What it did not write is to be returned by that `receive`. It never waits and
                never raises.
        """

    @abc.abstractmethod
    async def aclose(self, reason: CloseReason) -> None:
        """Release everything. Called exactly once, shielded, with a deadline of some seconds.

        A failure is logged and has no other effect.
        """


class SubscriptionSource(abc.ABC):
    """Where the events of a server's subscriptions come from."""

    kinds: frozenset[Kind] = ALL_KINDS
    """The kinds of core event it can emit; the server advertises no more than these."""

    emits_sub_resources: bool = False
    """Whether its updates may name a resource below a subscribed URI, by path segments.

    Otherwise an update for a URI that the client did not name is left out.
    """

    @abc.abstractmethod
    async def open(self, wanted: SubscriptionFilter, context: SubscriptionContext) -> SourceHandle:
        """Start to collect events; nothing published after this returns may be missed.

        Args:
            wanted: what the server grants: never more than the client asked for, and never
                empty.
            context: who asks. This is the only place where it is offered.

        Raises:
            errors.ErrorResponse: refuses the subscription with that error.
            Exception: anything else is an internal error to the client.

        If it raises, or is cancelled, nothing may be left behind: there is no handle to close.
        """

    async def drain(self, deadline: float) -> None:
        """End every subscription gracefully and refuse new ones, until `deadline` at most.

        Args:
            deadline: a moment of `trio.current_time`, in seconds.

        The default does nothing: the server ends the subscriptions one by one.
        """
        await trio.lowlevel.checkpoint()
