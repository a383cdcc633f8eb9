"""A pipe without an operating system; `testing` makes it public."""

from typing import Final

import trio

__all__ = ["PIPE_CAPACITY", "MemoryPipeReceiveStream", "MemoryPipeSendStream", "memory_pipe"]

PIPE_CAPACITY: Final = 65536
"""Bytes that a `memory_pipe` holds, like a pipe of Linux."""


class _Pipe:
    """The bytes of one direction."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held = bytearray()
        self.send_closed = False
        self.receive_closed = False
        self.broken = False
        self._changed = trio.lowlevel.ParkingLot()

    async def wait(self) -> None:
        await self._changed.park()

    def changed(self) -> None:
        self._changed.unpark_all()

    def break_pipe(self) -> None:
        self.broken = True
        self.held.clear()
        self.changed()


class MemoryPipeSendStream(trio.abc.SendStream):
    """The end of a `memory_pipe` at which bytes go in."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Put bytes into the pipe, as soon as they fit. Cancelled, part of them may be in."""
        await trio.lowlevel.checkpoint()
        pipe, rest = self._pipe, memoryview(bytes(data))
        while True:
            if pipe.send_closed:
                raise trio.ClosedResourceError("this end is closed")
            if pipe.receive_closed or pipe.broken:
                raise trio.BrokenResourceError("nobody reads from the pipe")
            room = pipe.capacity - len(pipe.held)
            if rest and room > 0:
                pipe.held += rest[:room]
                rest = rest[room:]
                pipe.changed()
            if not rest:
                return
            await pipe.wait()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room."""
        await trio.lowlevel.checkpoint()
        pipe = self._pipe
        while len(pipe.held) >= pipe.capacity and not (
            pipe.send_closed or pipe.receive_closed or pipe.broken
        ):
            await pipe.wait()

    async def aclose(self) -> None:
        """Close this end: the other reads what is in the pipe, then the end."""
        self._pipe.send_closed = True
        self._pipe.changed()
        await trio.lowlevel.checkpoint()

    def break_pipe(self) -> None:
        """Lose what is in the pipe; both ends raise `trio.BrokenResourceError` from now on."""
        self._pipe.break_pipe()


class MemoryPipeReceiveStream(trio.abc.ReceiveStream):
    """The end of a `memory_pipe` at which bytes come out."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Take what is in the pipe, at most `max_bytes`, and wait while there is nothing."""
        await trio.lowlevel.checkpoint()
        pipe = self._pipe
        while True:
            if pipe.receive_closed:
                raise trio.ClosedResourceError("this end is closed")
            if pipe.broken:
                raise trio.BrokenResourceError("the pipe has broken")
            if pipe.held or pipe.send_closed:
                data = bytes(pipe.held[:max_bytes])
                del pipe.held[: len(data)]
                pipe.changed()
                return data
            await pipe.wait()

    async def aclose(self) -> None:
        """Close this end: what is written at the other raises."""
        self._pipe.receive_closed = True
        self._pipe.changed()
        await trio.lowlevel.checkpoint()

    def break_pipe(self) -> None:
        """Lose what is in the pipe; both ends raise `trio.BrokenResourceError` from now on."""
        self._pipe.break_pipe()


def memory_pipe(
    capacity: int = PIPE_CAPACITY,
) -> tuple[MemoryPipeSendStream, MemoryPipeReceiveStream]:
    """A pipe in memory: a send stream and the receive stream at its other end.

    It behaves like a pipe of the operating system: when it is full, writing waits; a write that
    is cancelled may have been half done. Unlike one it needs no file descriptors and runs in
    virtual time. (`trio.testing.memory_stream_one_way_pair` never blocks the writer.)

    Args:
        capacity: how many bytes it holds, at least 1.
    """
    if capacity < 1:
        raise ValueError("a pipe holds at least one byte")
    pipe = _Pipe(capacity)
    return MemoryPipeSendStream(pipe), MemoryPipeReceiveStream(pipe)
