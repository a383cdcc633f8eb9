"""What every way to run an HTTP server needs around it, and what stopping means for it."""

import abc
import contextlib
import gc
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio

from mcp_trio._stopping import Stopping
from mcp_trio.http._connections import Connections
from mcp_trio.http._keepalive import Streams

__all__ = ["Host", "gc_thresholds_set"]

CUT_GRACE: Final = 0.25
"""Seconds between closing a connection and cancelling what still serves it."""


class Host(abc.ABC):
    """Serves connections until it is told to stop.

    To stop is to accept no more, to end every stream with its result, to let requests finish, and
    to cut what is left when the grace is over.

    Args:
        connections: those that are open.
        streams: the streams that they carry.
        drain_grace: how long stopping may take, in seconds.
        drain_stagger: over how many seconds the clients of the streams are spread.
    """

    def __init__(
        self,
        connections: Connections[Any],
        streams: Streams,
        drain_grace: float,
        drain_stagger: float,
    ) -> None:
        self._connections = connections
        self._streams = streams
        self._grace = drain_grace
        self._stagger = drain_stagger
        self._ready = trio.Event()
        self._done = trio.Event()
        self._stopping = Stopping()

    @asynccontextmanager
    async def serving(
        self,
        *,
        handle_signals: bool,
        shutdown_trigger: Callable[[], Awaitable[object]] | None,
    ) -> AsyncIterator[None]:
        """Serve from the beginning of the block, and wait at its end until this has stopped.

        It stops when the trigger returns, when a signal comes, and when it is cancelled.
        """
        with contextlib.ExitStack() as stack:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run)
                try:
                    await self._ready.wait()
                    if handle_signals:
                        receiver = trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT)
                        nursery.start_soon(self._obey, stack.enter_context(receiver))
                    if shutdown_trigger is not None:
                        nursery.start_soon(self._stopping.stop_after, shutdown_trigger)
                    yield
                    await self._done.wait()
                finally:
                    self._stopping.stop()
                nursery.cancel_scope.cancel()

    async def _obey(self, signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            self._stopping.signalled()

    async def _run(self) -> None:
        await self._live()
        self._done.set()

    @abc.abstractmethod
    async def _live(self) -> None:
        """Do `_accept`, shielded: `Stopping.stop` alone ends it, which `serving` is bound to do."""

    async def _accept(self, listeners: list[trio.abc.Listener[Any]]) -> None:
        """Accept connections until told to stop, and stop."""
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                accepting.start_soon(
                    partial(
                        trio.serve_listeners,
                        self._handler(connections),
                        listeners,
                        handler_nursery=connections,
                    )
                )
                self._ready.set()
                await self._stopping.wanted.wait()
                accepting.cancel_scope.cancel()
            self._close_listeners()
            await self._finish_requests()
            connections.cancel_scope.cancel()

    @abc.abstractmethod
    def _handler(self, nursery: trio.Nursery) -> Callable[[Any], Awaitable[None]]:
        """What serves one connection; the nursery is for tasks of its own."""

    @abc.abstractmethod
    def _close_listeners(self) -> None:
        """Stop listening."""

    @abc.abstractmethod
    async def _begin_to_stop(self) -> None:
        """Close the connections that carry no request, and let no other carry a second one."""

    async def _finish_requests(self) -> None:
        deadline = trio.current_time() + self._grace
        await self._begin_to_stop()
        self._stopping.drain.deadline = deadline
        with self._stopping.drain:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._streams.end, deadline, self._stagger)
                await self._connections.wait_empty()
                nursery.cancel_scope.cancel()
        self._connections.cut()
        # Each handler hears that its client has gone before it is cancelled.
        with trio.move_on_after(CUT_GRACE):
            await self._connections.wait_empty()


@contextlib.contextmanager
def gc_thresholds_set(thresholds: tuple[int, int, int] | None) -> Iterator[None]:
    """Set the garbage collector's thresholds for a while."""
    if thresholds is None:
        yield
        return
    before = gc.get_threshold()
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*before)
