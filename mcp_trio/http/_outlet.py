"""The writing side of a connection: to the kernel at once where it takes the bytes, and bounded.

Nothing is ever left half written: what the kernel did not take is sent in a shielded scope. So
that a client which has stopped reading cannot hold the server, that scope has a deadline, and
`abandon` ends it at any time.
"""

import os
from collections.abc import Callable
from typing import Final, Protocol

import trio

from mcp_trio.http._connections import forget_frames

__all__ = ["Outlet", "socket_of"]

SLICE: Final = 64 * 1024
"""How much a slow client has to take within the deadline."""
SENDS_PER_YIELD: Final = 8


def socket_of(stream: trio.abc.Stream) -> trio.socket.SocketType | None:
    """The socket of a stream that is nothing more, where a descriptor can be written to."""
    if isinstance(stream, trio.SocketStream) and os.name == "posix":
        return stream.socket
    return None


class OnDeath(Protocol):
    """Told that nothing can be written any more."""

    def __call__(self, *, slow: bool) -> object:
        """`slow`: because the client did not read in time."""


class Outlet:
    """Writes to one stream.

    Args:
        stream: where to.
        fd: its descriptor, if that can be written to without the stream.
        deadline: how long a client may take for each 64 KiB, in seconds.
        start_soon: starts a task for what is left of a write that must not wait.
        on_death: called when a write has failed or taken too long, which it is told.

    Attributes:
        dead: whether nothing can be written any more.
        written: how many bytes have been.
    """

    __slots__ = (
        "_deadline",
        "_fd",
        "_left",
        "_lock",
        "_on_death",
        "_sends",
        "_slow",
        "_start_soon",
        "_stream",
        "dead",
        "written",
    )

    def __init__(
        self,
        stream: trio.abc.SendStream,
        fd: int | None,
        deadline: float,
        start_soon: Callable[..., object],
        on_death: OnDeath,
    ) -> None:
        self.dead = False
        self.written = 0
        self._stream = stream
        self._fd = fd
        self._deadline = deadline
        self._start_soon = start_soon
        self._on_death = on_death
        self._sends = 0
        self._left = b""
        self._slow: list[trio.CancelScope] = []
        self._lock: trio.Lock | None = None

    async def write(self, data: bytes) -> None:  # noqa: ASYNC910 (the point of it)
        """Write it all. A writer that never waits elsewhere yields now and then.

        Raises:
            trio.BrokenResourceError: the client has gone, or did not read in time.
        """
        try:
            sent = self._try(data)
            if sent < len(data):
                await self._write_rest(memoryview(data)[sent:])
        except trio.BrokenResourceError:
            # Whoever writes has mostly been cancelled by now, and should hear that instead.
            await trio.lowlevel.checkpoint()  # noqa: ASYNC120
            raise
        self._sends += 1
        if not self._sends % SENDS_PER_YIELD:
            await trio.lowlevel.cancel_shielded_checkpoint()

    def write_nowait(self, data: bytes) -> bool:
        """Write it if the kernel takes it, or its beginning, at once; whether it did."""
        if self.dead or self._slow or self._fd is None:
            return False
        try:
            sent = os.write(self._fd, data)
        except BlockingIOError:
            return False
        except OSError:
            self._die(slow=False)
            return False
        self.written += sent
        if sent < len(data):
            self._left = data[sent:]
            scope = trio.CancelScope(shield=True)
            # Counted at once, so that whoever writes next goes the slow way, and takes this along.
            self._slow.append(scope)
            self._start_soon(self._flush, scope)
        return True

    def close(self) -> None:
        """`abandon`, for the last time: whom to tell of a death is forgotten as well."""
        self.abandon()
        self._on_death = _nobody
        self._start_soon = _nobody

    def abandon(self) -> None:
        """Give up what is being written, and write nothing more."""
        self.dead = True
        for scope in self._slow:
            scope.cancel()

    def _try(self, data: bytes) -> int:
        if self.dead:
            raise trio.BrokenResourceError("the client has gone")
        sent = 0
        if self._fd is not None and not self._slow:
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                return 0
            except OSError as problem:
                self._die(slow=False)
                raise trio.BrokenResourceError("the client has gone") from problem
            self.written += sent
        return sent

    async def _flush(self, scope: trio.CancelScope) -> None:
        try:
            await self._write_rest(memoryview(b""), scope)
        except trio.BrokenResourceError:
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def _write_rest(  # noqa: ASYNC910 (there is a rest, and sending it waits)
        self, rest: memoryview, scope: trio.CancelScope | None = None
    ) -> None:
        if self._lock is None:
            self._lock = trio.Lock()
        if scope is None:
            scope = trio.CancelScope(shield=True)  # noqa: ASYNC912
            self._slow.append(scope)
        failed = False
        try:
            with scope:
                async with self._lock:
                    if self._left:
                        rest, self._left = memoryview(self._left + rest), b""
                    while rest and not self.dead:
                        scope.deadline = trio.current_time() + self._deadline
                        await self._stream.send_all(rest[:SLICE])
                        self.written += len(rest[:SLICE])
                        rest = rest[SLICE:]
        except (trio.BrokenResourceError, trio.ClosedResourceError) as problem:
            forget_frames(problem)
            failed = True
        finally:
            self._slow.remove(scope)
        if failed or scope.cancelled_caught or rest:
            self._die(slow=scope.cancelled_caught and not self.dead)
            raise trio.BrokenResourceError("the client has gone, or has not read in time")

    def _die(self, *, slow: bool) -> None:
        if not self.dead:
            self.abandon()
            self._on_death(slow=slow)


def _nobody(*_: object, **__: object) -> None:
    """Whoever would have been told has gone."""
