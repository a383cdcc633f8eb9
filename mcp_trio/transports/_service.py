"""What every transport needs beside its bytes: helpers with no protocol in them.

A plain nursery cancels its tasks together with the block it serves, so a reader or a writer is
gone just when the block wants to say goodbye. The tasks of `open_services` go on until the block
has ended, however it ends, and are cancelled then.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVarTuple, Unpack

import trio

from mcp_trio._causes import one_cause

__all__ = ["RateLimitedLog", "Services", "open_services"]

Ts = TypeVarTuple("Ts")


class Services:
    """The background tasks of one block."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: set[trio.CancelScope] = set()

    def start_soon(self, async_fn: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts) -> None:
        """Run a task until it returns or the block has ended. If it raises, the block ends."""
        # The shield is not a promise to outlive a cancellation: the end of the block lifts it.
        scope = trio.CancelScope(shield=True)
        self._scopes.add(scope)
        self._nursery.start_soon(self._run, scope, async_fn, *args)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for scope in self._scopes:
            scope.cancel()

    async def _run(
        self,
        scope: trio.CancelScope,
        async_fn: Callable[[Unpack[Ts]], Awaitable[object]],
        *args: *Ts,
    ) -> None:
        try:
            with scope:
                await async_fn(*args)
        finally:
            self._scopes.discard(scope)


@asynccontextmanager
async def open_services() -> AsyncIterator[Services]:
    """Open a place for background tasks that outlive the goodbye of the block.

    Cancelling the block from outside does not reach the tasks; they are cancelled, and waited
    for, when the block has been left. One exception, of the block or of a task, comes out as
    itself and not in a group.
    """
    with one_cause(1):
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            services = Services(nursery)
            try:
                yield services
            finally:
                services.cancel()


class RateLimitedLog:
    """Says once what a peer may repeat a million times, and from time to time how often."""

    def __init__(self, target: logging.Logger, *, interval: float = 10.0) -> None:
        self._target = target
        self._interval = interval
        self._silenced: dict[str, tuple[float, int]] = {}

    def warning(self, what: str, detail: object) -> None:
        """Log a warning of the kind `what`, unless one was logged less than `interval` s ago."""
        now = trio.current_time()
        until, count = self._silenced.get(what, (-1.0, 0))
        if now < until:
            self._silenced[what] = (until, count + 1)
            return
        self._silenced[what] = (now + self._interval, 0)
        more = f" ({count} more since the last such message)" if count else ""
        self._target.warning("%s: %s%s", what, detail, more)
