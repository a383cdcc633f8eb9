"""A program's standard input and output, taken for the protocol alone.

Whatever else writes to standard output - `print`, C code, a child process - would corrupt the
protocol. So the streams move to file descriptors that nobody else knows, standard output becomes
an alias of standard error, and standard input is empty.
"""

import contextlib
import os
import select
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import trio

from mcp_trio import errors

__all__ = ["ThreadStream", "claim_standard_streams", "open_fd_stream", "open_private_fd"]

_claim: Final = threading.Lock()


class ThreadStream(trio.abc.Stream):
    """A stream over a file descriptor that cannot be waited for, such as a regular file.

    Each call runs in a thread. A cancelled call leaves its thread behind, which may still take
    one piece of input or deliver its output; the stream is of no use then but for closing.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._busy = 0
        self._closed = False
        self._lock = threading.Lock()
        # Its own: what else runs in threads must not keep the protocol waiting.
        self._limiter = trio.CapacityLimiter(2)
        os.set_blocking(fd, True)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of it."""
        await trio.lowlevel.checkpoint()
        with memoryview(bytes(data)) as view:
            sent = 0
            while sent < len(view):
                sent += len(await self._call(view[sent:], 0))

    async def wait_send_all_might_not_block(self) -> None:
        """There is no way to tell."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Read what there is; empty at the end of the file."""
        return bytes(await self._call(None, max_bytes or 65536))

    async def _call(self, data: memoryview | None, size: int) -> bytes | memoryview:
        if self._closed:
            raise trio.ClosedResourceError("the file is closed")
        try:
            return await trio.to_thread.run_sync(
                self._in_thread, data, size, abandon_on_cancel=True, limiter=self._limiter
            )
        except OSError as error:
            raise trio.BrokenResourceError from error

    def _in_thread(self, data: memoryview | None, size: int) -> bytes | memoryview:
        with self._lock:
            if self._closed:
                return b""  # nobody waits for it any more
            self._busy += 1
        try:
            if data is None:
                return os.read(self._fd, size)
            return data[: os.write(self._fd, data)]
        finally:
            with self._lock:
                self._busy -= 1
                self._close_if_unused()

    def close(self) -> None:
        """Close the file, or have the last thread do it that still uses it."""
        with self._lock:
            already, self._closed = self._closed, True
            if not already:
                self._close_if_unused()

    async def aclose(self) -> None:
        """`close`, and a checkpoint."""
        self.close()
        await trio.lowlevel.checkpoint()

    def _close_if_unused(self) -> None:
        if self._closed and not self._busy:
            os.close(self._fd)


def open_private_fd(fd: int, flags: int) -> int:
    """Return another file descriptor for the same file, which no child process inherits.

    For pipes and terminals it is an open file of its own, so that making it non-blocking does
    not make the original non-blocking, which other processes may share.
    """
    mode = os.fstat(fd).st_mode
    # A reopened regular file would start at its beginning, and a socket cannot be reopened.
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        # O_NONBLOCK: opening a named pipe must not wait for its other end.
        flags |= os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK
        with contextlib.suppress(OSError):
            return os.open(f"/proc/self/fd/{fd}", flags)
    return os.dup(fd)


def open_fd_stream(fd: int) -> trio.lowlevel.FdStream | ThreadStream:
    """A stream that owns the file descriptor."""
    return trio.lowlevel.FdStream(fd) if _can_be_waited_for(fd) else ThreadStream(fd)


def _can_be_waited_for(fd: int) -> bool:
    if not hasattr(select, "epoll"):
        return not stat.S_ISREG(os.fstat(fd).st_mode)
    with select.epoll(1) as poll:
        try:
            poll.register(fd, select.EPOLLIN)
        except PermissionError:
            return False
    return True


@contextmanager
def claim_standard_streams() -> Iterator[tuple[trio.abc.Stream, trio.abc.Stream]]:
    """Take standard input and output away from the rest of the program for a while.

    Yields:
        a stream to read from and one to write to. They are closed at the end of the block, and
        file descriptors 0 and 1 are then what they were.

    Raises:
        errors.LocalProtocolError: they are taken already, or one of them is closed.
    """
    if not _claim.acquire(blocking=False):
        raise errors.LocalProtocolError("standard input and output are already in use")
    with ExitStack() as stack:
        stack.callback(_claim.release)
        if sys.__stdin__ is None or sys.__stdout__ is None:
            # It was closed when the interpreter started. What has that number now is not ours.
            raise errors.LocalProtocolError("standard input or output is not open")
        stdin = _take(stack, 0, os.O_RDONLY)
        stdout = _take(stack, 1, os.O_WRONLY)
        stack.enter_context(_diverted())
        yield stdin, stdout


def _take(stack: ExitStack, fd: int, flags: int) -> trio.abc.Stream:
    try:
        stream = open_fd_stream(open_private_fd(fd, flags))
    except OSError as error:
        name = ("input", "output")[fd]
        raise errors.LocalProtocolError(f"standard {name} is not open: {error}") from error
    stack.callback(stream.close)
    return stream


@contextmanager
def _diverted() -> Iterator[None]:
    """Point 0 at nothing and 1 at standard error."""
    saved = [os.dup(0), os.dup(1)]
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    _flush_stdout()
    try:
        os.dup2(nothing, 0)
        os.dup2(nothing if _stderr_is_stdout() else 2, 1)
        os.close(nothing)
        with _line_buffered_stdout():
            yield
    finally:
        # What was printed meanwhile and is still buffered here is not for the protocol.
        _flush_stdout()
        for fd, original in enumerate(saved):
            os.dup2(original, fd)
            os.close(original)


def _stderr_is_stdout() -> bool:
    """Whether standard error is no place to divert to: closed, or the protocol's own pipe."""
    try:
        one, two = os.fstat(1), os.fstat(2)
    except OSError:
        return True
    return os.path.samestat(one, two) and not stat.S_ISCHR(two.st_mode)


def _flush_stdout() -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stdout.flush()


@contextmanager
def _line_buffered_stdout() -> Iterator[None]:
    """What is printed appears on standard error at once, not when the program ends."""
    before = getattr(sys.stdout, "line_buffering", None)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if before is not False or reconfigure is None:
        yield
        return
    reconfigure(line_buffering=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            reconfigure(line_buffering=False)
