"""What a server needs while it runs: set up once before its first request, taken down in the end.

The transports enter it, each for as long as it serves. Whoever comes first opens it, in its own
task, and holds it open until all have left; so it is open once however many serve the server.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import trio

from mcp_trio.server import failures

__all__ = ["LAST_REQUESTS", "Lifespan"]

LAST_REQUESTS: Final = 30.0
"""Seconds that the others get to leave when the one that holds it open is cancelled."""


class Lifespan:
    """An async context manager that several tasks are inside of at the same time.

    Args:
        open_state: makes the context manager; None for a lifespan in which nothing happens.
    """

    def __init__(self, open_state: Callable[[], AbstractAsyncContextManager[Any]] | None) -> None:
        self._open_state = open_state
        self._state: Any = None
        self._is_open = False
        self._changed: trio.Event | None = None
        self._guests = 0

    @property
    def state(self) -> Any:
        """What the context manager gave; None if there is none.

        Raises:
            RuntimeError: it is not open.
        """
        if self._open_state is not None and not self._is_open:
            raise RuntimeError(
                "the lifespan is not open: serve the server, or enter Server.running()"
            )
        return self._state

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        """Be inside of it for the block; `Server.running` has the contract."""
        if self._open_state is None:
            yield None
            return
        while self._changed is not None:
            if self._is_open:
                self._guests += 1
                try:
                    yield self._state
                finally:
                    self._guests -= 1
                    self._tell()
                return
            await self._changed.wait()
        self._changed = trio.Event()
        cause: BaseException | None = None
        lone: BaseException | None = None
        try:
            async with self._open_state() as self._state:
                self._is_open = True
                self._tell()
                try:
                    yield self._state
                    await self._wait_for_guests()
                except BaseException as problem:
                    cause = problem
                    raise
                finally:
                    if self._guests:
                        with trio.move_on_after(LAST_REQUESTS, shield=True):
                            await self._wait_for_guests()
                    self._is_open = False
        except BaseExceptionGroup as group:
            # A nursery inside of it is no business of whoever serves.
            if cause is None or failures.take_apart(group) is not cause:
                raise
            lone = cause
        finally:
            self._state = None
            self._is_open = False
            self._tell()
            self._changed = None
        if lone is not None:
            raise lone

    async def _wait_for_guests(self) -> None:
        while self._guests and self._changed is not None:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = trio.Event()
