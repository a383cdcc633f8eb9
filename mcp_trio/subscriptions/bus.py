"""The seam between the processes of one server: what a bus has to be able to do.

A hub reaches the listeners of its own process. Where several processes serve together, a change
that one of them publishes has to reach the listeners of all, and a bus carries it there. The
bridge (`bridge.open_bridge`) does the work: it encodes, coalesces, sends, tries again,
reconnects, and drops what is its own. A bus only carries bytes, and may even lose some as long
as it says so: then every listener is told that anything may have changed.

`redis.RedisBus` is one. Write your own against these two classes, and have `testing.buses` check
it.
"""

import abc
import enum
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Final, Literal

__all__ = ["GAP", "Bus", "BusConnection", "Gap"]


class Gap(enum.Enum):
    """The type of `GAP`."""

    GAP = "gap"


GAP: Final[Literal[Gap.GAP]] = Gap.GAP
"""Stands among the messages where some may have been lost."""


class BusConnection(abc.ABC):
    """One connection to a bus; see `Bus.connect`."""

    __slots__ = ()

    @abc.abstractmethod
    async def publish(self, message: bytes) -> None:
        """Hand a message to everybody who is connected.

        Called by one task, one call at a time, while another task receives. Returns when the
        bus has taken the message: from then on each connection either receives it or learns of a
        gap.

        Args:
            message: any bytes, at most `Bus.max_message` of them.

        Raises:
            Exception: the bus may not have taken it. The caller tries again; `receive` says
                whether the connection is lost. It must not wait for ever: give up after some
                seconds.

        Cancelling leaves open whether the message was sent.
        """

    @abc.abstractmethod
    async def receive(self) -> Sequence[bytes | Literal[Gap.GAP]]:
        """Wait for messages, and return all that are there.

        One at a time would do, but then a busy program falls behind: it takes as many turns as
        there are messages. Called by one task. What this connection itself has published may be
        among them; the bridge ignores it.

        Returns:
            Messages, in the order in which each publisher sent its own, and `GAP` where some
            may be missing.

        Raises:
            Exception: the connection is lost; `errors.BusLost` says it best. Cancelling the block
                of `Bus.connect` instead, and raising at its end, is as good. A loss has to be
                noticed, within some seconds, also where no message comes.
        """


class Bus(abc.ABC):
    """Carries messages between the processes of one server."""

    max_message: ClassVar[int] = 65536
    """The longest message it carries, in bytes."""

    @abc.abstractmethod
    def connect(self) -> AbstractAsyncContextManager[BusConnection]:
        """Connect, and disconnect at the end of the block.

        The block is entered once every message that is published from now on will be received,
        or be part of a gap. After a loss the bridge leaves the block and connects again.

        Raises:
            Exception: there is no connecting now. The bridge tries again, later and later.

        Cancelling the block from outside, or within, leaves nothing behind and lets no other
        exception out.
        """
