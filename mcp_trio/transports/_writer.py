"""One task that writes, for all who want to write to one byte stream.

A `send_all` that is cancelled can leave half a message behind, which no reader recovers from. So
only this task ever calls it. A line waits here until it is its turn; until then whoever wanted it
sent can take it back, and from then on it is sent whole.
"""

from collections import OrderedDict
from collections.abc import Callable

import trio

__all__ = ["Line", "LineWriter"]


class Line:
    """Bytes that wait to be written.

    Attributes:
        data: the bytes; none are left once they are written.
        wanted: asked when it is their turn; if it says no, they are dropped. None says yes.
        settled: nothing more will happen to them.
        started: the writer has begun to write them.
        failed: they were not written, or not known to be, because the stream has ended.
    """

    __slots__ = ("data", "failed", "settled", "started", "wanted")

    def __init__(self, data: bytes, wanted: Callable[[], bool] | None) -> None:
        self.data = data
        self.wanted = wanted
        self.settled = trio.Event()
        self.started = False
        self.failed = False


class LineWriter:
    """A queue of lines and the task that writes them, first come, first served.

    It is as long as there are tasks that wait for one of their lines, plus what `put` was used
    for without waiting; whoever does that keeps count.

    Attributes:
        cause: what ended the stream; None while it works.
    """

    def __init__(self, stream: trio.abc.SendStream) -> None:
        self._stream = stream
        self._queue: OrderedDict[Line, None] = OrderedDict()
        self._current: Line | None = None
        self._closed = False
        self._wake = trio.Event()
        self.cause: BaseException | None = None

    def put(self, data: bytes, wanted: Callable[[], bool] | None = None) -> Line:
        """Queue a line and return at once.

        Args:
            data: what to write, with its line end.
            wanted: asked when it is the line's turn; if it says no, the line is dropped.
        """
        line = Line(data, wanted)
        if self._closed:
            _give_up(line)
        else:
            self._queue[line] = None
            self._wake.set()
        return line

    async def wait(self, line: Line) -> None:
        """Wait until the line has been handed to the stream (or was dropped as not wanted).

        Cancelling takes the line back, unless its writing has begun: then it is written whole.

        Raises:
            trio.BrokenResourceError: the stream has ended.
        """
        try:
            await line.settled.wait()
        finally:
            self.withdraw(line)
        if line.failed:
            raise trio.BrokenResourceError("the peer has gone") from self.cause

    async def write(self, data: bytes, wanted: Callable[[], bool] | None = None) -> None:
        """Queue a line and wait for it: `put` and `wait` in one."""
        await self.wait(self.put(data, wanted))

    def withdraw(self, line: Line) -> None:
        """Take a line back, if its writing has not begun."""
        if line in self._queue:
            del self._queue[line]
            line.settled.set()

    async def flush(self) -> None:
        """Wait until everything queued by now has been written, or the stream has ended."""
        for line in (self._current, *self._queue):
            if line is not None:
                await line.settled.wait()
        await trio.lowlevel.checkpoint()

    def fail(self, cause: BaseException | None) -> None:
        """Write nothing more: all lines, those to come included, have failed."""
        self._closed = True
        if self.cause is None:
            self.cause = cause
        while self._queue:
            _give_up(self._queue.popitem(last=False)[0])
        if self._current is not None:
            _give_up(self._current)
        self._wake.set()

    async def run(self) -> None:
        """Write what is queued until the stream ends; then everything fails and this returns.

        Cancelling may leave a line half written: the stream is of no use afterwards.
        """
        try:
            while not self._closed:
                if self._queue:
                    await self._write_next()
                else:
                    self._wake = trio.Event()
                    await self._wake.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.fail(error)
        finally:
            self.fail(None)
        await trio.lowlevel.checkpoint()

    async def _write_next(self) -> None:
        line, _ = self._queue.popitem(last=False)
        if line.wanted is not None and not line.wanted():
            line.settled.set()
            await trio.lowlevel.checkpoint()
            return
        line.started = True
        self._current = line
        await self._stream.send_all(line.data)
        self._current = None
        line.data = b""
        line.settled.set()


def _give_up(line: Line) -> None:
    if not line.settled.is_set():
        line.failed = True
        line.settled.set()
