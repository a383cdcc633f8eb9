"""The place of one worker: a number, a socket, and a process that is replaced when it ends."""

import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import trio

from mcp_trio.errors import McpError
from mcp_trio.workers.process import WorkerProcess

__all__ = ["Place", "Port", "WorkersFailed"]

logger: Final = logging.getLogger("mcp_trio.workers")

FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 30.0
UPTIME: Final = 10.0
"""Seconds after which a worker that dies has done well, and is not one that keeps on dying."""
PATIENCE: Final = 1.0
"""How long connections wait for the next worker to be started, in seconds. Where it takes longer
they are closed, so that their clients can turn to the other workers."""
ATTEMPTS: Final = 3
"""How often a worker may fail to start, one time after the other, before all is given up."""


class WorkersFailed(McpError):
    """The workers cannot be started."""


class Port(Protocol):
    """What the workers listen on."""

    def listen(self) -> list[socket.socket]:
        """Sockets for one worker."""


class Place:
    """Has one worker after the other.

    Args:
        number: which place this is.
        port: gives the sockets to listen on.
        start: starts a worker with its number and sockets, and whether it comes after a crash.
        start_timeout: how long it may take until it serves, in seconds.

    Attributes:
        worker: the one that serves at the moment.
        first_ready: set when the first one serves. Failing to get there is an error.
    """

    def __init__(
        self,
        number: int,
        port: Port,
        start: Callable[[int, Sequence[socket.socket], bool], Awaitable[WorkerProcess]],
        start_timeout: float,
    ) -> None:
        self.worker: WorkerProcess | None = None
        self.first_ready = trio.Event()
        self._number = number
        self._port = port
        self._spawn = start
        self._start_timeout = start_timeout
        self._listeners: list[socket.socket] = []
        self._changing = trio.Lock()
        self._delay = 0.0
        self._crashed = False

    async def keep(self) -> None:
        """Have a worker here, always.

        Raises:
            OSError: the first one cannot be started.
            WorkersFailed: the first one does not come to serve.
        """
        while True:
            async with self._changing:
                # The one whose end has been waited for may have been replaced on purpose.
                if self.worker is None or self.worker.exited.is_set():
                    self.worker = await self._restart(self.worker)
                    self.first_ready.set()
            await self.worker.exited.wait()

    async def renew(self, stop_timeout: float) -> bool:
        """Start another worker on the same socket; when it serves, stop the one before.

        Args:
            stop_timeout: seconds that this one gets.

        Returns:
            Whether there is a new one.
        """
        async with self._changing:
            old = self.worker
            if old is None or old.exited.is_set():
                return True  # there will be a new one anyway
            try:
                new = await self._start()
            except OSError as problem:
                logger.error("worker %d cannot be started: %s", self._number, problem)
                new = None
            if new is not None:
                self.worker = new
                await old.stop_within(stop_timeout)
            return new is not None

    def close(self) -> None:
        """Listen no more; who waits to be accepted is sent away."""
        for listener in self._listeners:
            listener.close()
        self._listeners = []

    async def _restart(self, old: WorkerProcess | None) -> WorkerProcess:
        """Start a worker that serves, however often that has to be tried."""
        if old is not None:
            logger.warning("%s %s; it is started again", old, old.fate)
            self._crashed = self._crashed or old.crashed
            if trio.current_time() - old.ready_at > UPTIME:
                self._delay = FIRST_DELAY
        failures = 0
        while True:
            await self._pause()
            try:
                worker = await self._start()
            except OSError as problem:
                if not self.first_ready.is_set():
                    raise
                logger.error("worker %d cannot be started: %s", self._number, problem)
            else:
                if worker is not None:
                    return worker
            failures += 1
            if failures == ATTEMPTS and not self.first_ready.is_set():
                raise WorkersFailed(
                    f"worker {self._number} has not come to serve in {failures} attempts"
                )

    async def _pause(self) -> None:
        """Wait before the next attempt: not at all before the first, then longer each time."""
        if self._delay > PATIENCE:
            self.close()
        await trio.sleep(self._delay)
        self._delay = min(max(2 * self._delay, FIRST_DELAY), LONGEST_DELAY)

    async def _start(self) -> WorkerProcess | None:
        """Start a worker and wait until it serves; None if it does not come to that."""
        if not self._listeners:
            self._listeners = self._port.listen()
        worker = await self._spawn(self._number, self._listeners, self._crashed)
        if await worker.wait_ready(self._start_timeout):
            logger.info("%s serves", worker)
            self._crashed = False
            return worker
        if worker.exited.is_set():
            logger.error("%s %s before it served", worker, worker.fate)
        else:
            logger.error("%s does not serve after %s s", worker, self._start_timeout)
            await worker.stop_within(0)
        return None
