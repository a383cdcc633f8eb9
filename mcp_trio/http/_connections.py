"""The connections that a server has open, whichever it is, and what any of them may take."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

import trio

__all__ = [
    "GONE",
    "LINGER",
    "MAX_LINGER",
    "MAX_RECEIVE",
    "MAX_WAITING",
    "Connections",
    "OpenConnection",
    "forget_frames",
    "notice_absence",
]

MAX_RECEIVE: Final = 64 * 1024
MAX_WAITING: Final = 256 * 1024
"""How many bytes a client may send behind a request that is still being answered."""
LINGER: Final = 1.0
"""Seconds for which what a refused client still sends is read, so that it sees the refusal."""
MAX_LINGER: Final = 1024 * 1024

_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 60),
    ("TCP_KEEPINTVL", 15),
    ("TCP_KEEPCNT", 4),
    ("TCP_USER_TIMEOUT", 120_000),
)
"""Seconds, seconds, probes, milliseconds, as the kernel counts them."""

GONE: Final = (
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)
"""How a connection ends whose client has left, or never finished its handshake."""


class OpenConnection(Protocol):
    """What can be done to a connection from outside."""

    def close_if_idle(self) -> None:
        """Close it if it carries no request."""

    def cut(self) -> None:
        """Close it, whatever it is doing; its handler sees a disconnect."""


C = TypeVar("C", bound=OpenConnection)


class Connections(Generic[C]):
    """Those that are open."""

    def __init__(self) -> None:
        self._open: set[C] = set()
        self._empty: trio.Event | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[C]:
        return iter(self._open)

    def add(self, connection: C) -> None:
        """One has been opened."""
        self._open.add(connection)

    def discard(self, connection: C) -> None:
        """One has ended."""
        self._open.discard(connection)
        if self._empty is not None and not self._open:
            self._empty.set()

    async def wait_empty(self) -> None:
        """Wait until none is left."""
        await trio.lowlevel.checkpoint()
        if self._open:
            self._empty = trio.Event()
            await self._empty.wait()

    def close_idle(self) -> None:
        """Close those that carry no request."""
        for connection in self._open:
            connection.close_if_idle()

    def cut(self) -> None:
        """Close them all, whatever they are doing; handlers see a disconnect."""
        for connection in self._open:
            connection.cut()


def forget_frames(problem: BaseException | None) -> None:
    """Take the tracebacks from an exception that goes no further.

    One that has passed through a context manager of `contextlib` refers back to itself by its
    frames (in Python 3.13), and would keep them until the garbage is collected.
    """
    while problem is not None:
        problem.__traceback__ = None
        problem = problem.__cause__ or problem.__context__


def notice_absence(sock: socket.socket | trio.socket.SocketType) -> None:
    """Have the kernel end a connection in two minutes whose peer has vanished without a word.

    Set on a socket that listens, it holds for what is accepted from it.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            option = getattr(socket, name, None)
            if option is not None:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
