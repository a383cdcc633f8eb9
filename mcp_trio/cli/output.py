"""How the command line writes: without ever stopping the world, and quietly if nobody reads.

A pipe may be full for as long as its reader likes. Meanwhile the server has to be listened to and
a Ctrl-C to be heeded, so what waits for the pipe is a thread that can be left behind.
"""

import os
import select
import stat
import threading
from typing import Final

import trio

__all__ = ["Gone", "Writer"]

LAST_WORDS: Final = 1.0
"""Seconds that a reader has to take the last line of all."""


class Gone(Exception):
    """Nobody reads our standard output any more."""


class Writer:
    """Writes to a file descriptor, whole texts one after the other, unbuffered."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = trio.Lock()
        # What was cancelled is still being written by its thread; the next text comes after it.
        self._order = threading.Lock()

    async def write(self, text: bytes) -> None:
        """Write all of it.

        If it is cancelled, part of it may have been written, and the rest follows when there is
        room.

        Raises:
            Gone: nobody is there to read it.
            OSError: it cannot be written, as on a full disk.
        """
        async with self._lock:
            await trio.to_thread.run_sync(self._write_all, text, abandon_on_cancel=True)

    async def last_words(self, text: bytes) -> None:
        """Write in the end, when nothing waits any longer: whoever does not read misses it."""
        with trio.move_on_after(LAST_WORDS, shield=True):
            try:
                await self.write(text)
            except (Gone, OSError):
                await trio.lowlevel.checkpoint()

    def _write_all(self, text: bytes) -> None:
        rest = memoryview(text)
        with self._order:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:
                    # Somebody who shares the terminal has made it non-blocking.
                    select.select([], [self._descriptor], [])
                except (BrokenPipeError, ConnectionResetError) as problem:
                    raise Gone from problem

    async def until_gone(self) -> None:
        """Return when the reader of a pipe has gone; of anything else, that is never.

        So a quiet subscription ends with ``| head -1``, and not only at the next event. Where
        the system cannot tell without writing, it waits for ever.
        """
        if not hasattr(select, "epoll") or not _is_pipe(self._descriptor):
            await trio.sleep_forever()
        with select.epoll() as poll:
            poll.register(self._descriptor, 0)  # errors are told in any case
            await trio.lowlevel.wait_readable(poll.fileno())


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
