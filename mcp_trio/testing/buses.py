"""A bus in memory, for tests with several hubs in one program."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from mcp_trio import errors
from mcp_trio.subscriptions.bus import GAP, Bus, BusConnection, Gap

__all__ = ["MemoryBus"]


class MemoryBus(Bus):
    """A bus between hubs of one program; give each bridge the same one.

    Args:
        capacity: messages that wait for one connection; beyond it they become a gap.
    """

    def __init__(self, *, capacity: int = 1000) -> None:
        self._capacity = capacity
        self._connections: set[_MemoryConnection] = set()
        self._up = True
        self._lost = self._refused = 0

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[BusConnection]:
        """See `Bus.connect`."""
        await trio.lowlevel.checkpoint()
        if not self._up:
            raise errors.BusLost("this bus is stopped")
        connection = _MemoryConnection(self)
        self._connections.add(connection)
        try:
            yield connection
        finally:
            self._connections.discard(connection)

    def send(self, message: bytes) -> None:
        """Give a message to everybody, as if somebody had published it."""
        if self._lost:
            self._lost -= 1
            for connection in self._connections:
                connection.overrun()
        else:
            for connection in self._connections:
                connection.put(message, self._capacity)

    def take(self, message: bytes) -> None:
        """Take a message from who publishes it, or refuse it."""
        if self._refused:
            self._refused -= 1
            raise errors.BusLost("refused")
        self.send(message)

    def lose(self, count: int = 1) -> None:
        """Lose the next messages, and say so with a gap."""
        self._lost += count

    def refuse(self, count: int = 1) -> None:
        """Fail to take the next messages, while connections last."""
        self._refused += count

    def cut(self) -> None:
        """Break every connection."""
        for connection in self._connections:
            connection.break_off()

    def stop(self) -> None:
        """Break every connection, and allow no other until `start`."""
        self._up = False
        self.cut()

    def start(self) -> None:
        """Allow connections again."""
        self._up = True


class _MemoryConnection(BusConnection):
    __slots__ = ("_broken", "_bus", "_come", "_more")

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._come: list[bytes | Gap] = []
        self._more = trio.Event()
        self._broken = False

    def put(self, message: bytes, capacity: int) -> None:
        if self._broken:
            return
        if len(self._come) >= capacity:
            self.overrun()
        self._come.append(message)
        self._more.set()

    def overrun(self) -> None:
        self._come[:] = [GAP]
        self._more.set()

    def break_off(self) -> None:
        self._broken = True
        self._come.clear()
        self._more.set()

    async def publish(self, message: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self._broken:
            raise errors.BusLost("this connection is broken")
        self._bus.take(message)

    async def receive(self) -> Sequence[bytes | Gap]:
        await trio.lowlevel.checkpoint()
        if not self._come and not self._broken:
            self._more = trio.Event()
            await self._more.wait()
        if self._broken:
            raise errors.BusLost("this connection is broken")
        come, self._come = self._come, []
        return come
