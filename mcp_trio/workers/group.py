"""All workers together: how they start, are replaced, and stop."""

import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from mcp_trio._stopping import Stopping
from mcp_trio.workers.place import Place, WorkersFailed
from mcp_trio.workers.process import WorkerProcess, start_worker
from mcp_trio.workers.sockets import GivenPort, SharedPort, url_of

__all__ = ["Group"]

logger: Final = logging.getLogger("mcp_trio.workers")

MARGIN: Final = 3.0
"""Seconds that a worker gets to end beyond those for its drain: an interpreter takes a while."""
CUT_GRACE: Final = 1.0
"""Seconds that workers get to end when a second signal cuts the drain short."""
REAPED: Final = 2.0
"""Seconds to wait for processes to vanish that have been killed."""


class Group:
    """The workers of one parent.

    Attributes:
        started: set when all of them serve, or never will.
        stopping: whether they are to stop.
        done: set when they have.
        failure: why they never served.
    """

    def __init__(
        self,
        command: Sequence[str],
        port: SharedPort | GivenPort,
        count: int,
        *,
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
        drain_grace: float,
        start_timeout: float,
    ) -> None:
        self.started = trio.Event()
        self.stopping = Stopping()
        self.done = trio.Event()
        self.failure: Exception | None = None
        self._port = port
        self._stop_timeout = drain_grace + MARGIN
        self._launch = partial(start_worker, command, env=env, cwd=cwd)
        self._places = [Place(number, port, self._start, start_timeout) for number in range(count)]
        self._running: set[WorkerProcess] = set()
        self._renewal = trio.Event()
        self._nursery: trio.Nursery

    def urls(self) -> list[str]:
        """Where the workers serve, as they say, or as far as it is known here."""
        for place in self._places:
            if place.worker is not None and place.worker.urls:
                return place.worker.urls
        return [url_of(*name) for name in self._port.names]

    async def obey_signals(self, signals: AsyncIterator[int]) -> None:
        """Stop at the first signal, and at once at the second; replace workers on SIGHUP."""
        async for number in signals:
            if number == signal.SIGHUP:
                self._renewal.set()
            else:
                self.stopping.signalled()

    async def run(self) -> None:
        """Keep the workers running until told to stop, then end them. Nothing else ends this."""
        try:
            async with trio.open_nursery() as self._nursery:
                async with trio.open_nursery() as keeping:
                    for place in self._places:
                        keeping.start_soon(self._keep, place)
                    keeping.start_soon(self._report)
                    keeping.start_soon(self._renew)
                    await self.stopping.wanted.wait()
                    keeping.cancel_scope.cancel()
                self._port.close()
                for place in self._places:
                    place.close()
                await self._end()
                self._nursery.cancel_scope.cancel()
        finally:
            self.started.set()
            self.done.set()

    async def _keep(self, place: Place) -> None:
        try:
            await place.keep()
        except (OSError, WorkersFailed) as problem:
            self.failure = problem
            self.stopping.stop()
            await trio.lowlevel.checkpoint()

    async def _start(
        self, number: int, listeners: Sequence[socket.socket], after_crash: bool
    ) -> WorkerProcess:
        worker = await self._launch(number, listeners, after_crash)
        self._running.add(worker)
        self._nursery.start_soon(self._watch, worker)
        logger.info("%s starts", worker)
        return worker

    async def _watch(self, worker: WorkerProcess) -> None:
        try:
            await worker.run()
        finally:
            self._running.discard(worker)

    async def _report(self) -> None:  # noqa: ASYNC910 (there is a place at least)
        for place in self._places:
            await place.first_ready.wait()
        self.started.set()

    async def _renew(self) -> None:
        """Replace the workers, one after the other, whenever that is wanted."""
        while True:
            await self._renewal.wait()
            self._renewal = trio.Event()
            for place in self._places:
                if not await place.renew(self._stop_timeout):
                    logger.error("the workers that have not been replaced go on")
                    break

    async def _end(self) -> None:
        for worker in self._running:
            worker.stop()
        with trio.move_on_after(self._stop_timeout), self.stopping.drain:
            await self._wait_all()
        if self.stopping.drain.cancelled_caught:
            for worker in self._running:
                worker.hurry()
            with trio.move_on_after(CUT_GRACE):
                await self._wait_all()
        for worker in self._running:
            worker.kill()
        with trio.move_on_after(REAPED):
            await self._wait_all()

    async def _wait_all(self) -> None:
        await trio.lowlevel.checkpoint()
        for worker in list(self._running):
            await worker.gone.wait()
