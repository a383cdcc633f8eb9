"""A server process that is started again when it ends by itself.

One task owns the process, whatever happens to it: it starts it, waits for its end and starts the
next. Requests only ever wait for that task.

Source: specification, basic/transports/stdio, "Unexpected Termination".
"""

import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import attrs
import trio

from mcp_trio import errors
from mcp_trio._backoff import Backoff, Delays
from mcp_trio.protocol import jsonrpc
from mcp_trio.transports import abc
from mcp_trio.transports._service import open_services
from mcp_trio.transports.client_lines import LineTransport, LineTransportStatistics

__all__ = ["RestartingTransport", "RestartingTransportStatistics", "open_restarting_transport"]

logger = logging.getLogger("mcp_trio.transports")

Connect = Callable[[], AbstractAsyncContextManager[LineTransport]]
"""Opens the connection to another server process, which ends with the block."""


@attrs.frozen
class RestartingTransportStatistics:
    """A snapshot of a server that is started again when it ends.

    Attributes:
        running: whether there is a server at the moment.
        restarts: how many times it has been started again.
        failures: how many times in a row it could not be started, or ended too soon.
        last_end: how the last one has ended, or why it could not be started; None so far.
        last_exit_status: its exit status, or the negative number of the signal that killed it;
            None where there was none.
        connection: of the server there is, or was last.
    """

    running: bool
    restarts: int
    failures: int
    last_end: str | None
    last_exit_status: int | None
    connection: LineTransportStatistics


class RestartingTransport(abc.Transport):
    """Connections to one server after the other; see `open_restarting_transport`."""

    kind = "stdio"

    def __init__(
        self,
        connect: Connect,
        backoff: Backoff,
        *,
        give_up_after: int | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._connect = connect
        self._min_uptime = backoff.min_uptime
        self._delays = Delays(backoff, chance=chance)
        self._give_up_after = give_up_after
        self._current: LineTransport | None = None
        self._failure: errors.ConnectionLost | None = None
        self._news = trio.lowlevel.ParkingLot()
        self._over: errors.ConnectionLost | None = None
        self._starts = 0
        self._failures = 0
        self._last_end: errors.ConnectionLost | None = None
        self._statistics = LineTransportStatistics(0, 0, 0)

    @property
    def ended(self) -> bool:
        """Whether it has been given up, or closed."""
        return self._over is not None

    def statistics(self) -> RestartingTransportStatistics:
        """What has become of the server so far."""
        current, end = self._current, self._last_end
        return RestartingTransportStatistics(
            running=current is not None and not current.ended,
            restarts=max(0, self._starts - 1),
            failures=self._failures,
            last_end=None if end is None else str(end),
            last_exit_status=None if end is None else end.exit_status,
            connection=self._statistics if current is None else current.statistics(),
        )

    @asynccontextmanager
    async def open_exchange(
        self,
        request_id: jsonrpc.RequestId,
        method: str,
        params: dict[str, Any],
        *,
        mirrored: Mapping[str, object] = abc.NOTHING_MIRRORED,
    ) -> AsyncIterator[trio.abc.ReceiveChannel[jsonrpc.Message]]:
        """Send a request to the server that there is, or else to the next one.

        See `Transport.open_exchange`. While there is none this waits. What has been sent is
        never sent to another one.

        Raises:
            errors.ConnectionLost: on entering, the server for which this waited could not be
                started, or ended before it could be sent the request; or it has been given up.
        """
        async with AsyncExitStack() as stack:
            current = await self._running()
            try:
                exchange = current.open_exchange(request_id, method, params)
                messages = await stack.enter_async_context(exchange)
            except errors.ConnectionLost:
                # It had gone before it could read the request, which so might as well have been
                # made a moment later.
                current = await self._running()
                exchange = current.open_exchange(request_id, method, params)
                messages = await stack.enter_async_context(exchange)
            yield messages

    def close(self) -> None:
        """There will be no other server; who waits for one gets `ConnectionLost`."""
        if self._over is None:
            self._over = errors.ConnectionLost("the connection has been closed")
        self._news.unpark_all()

    async def wait_started(self) -> None:
        """Wait until the first server is there."""
        await self._running()

    async def run(self) -> None:
        """Start one server after the other; never returns before it gives up.

        Raises:
            errors.ConnectionLost: the first one could not be started.
        """
        while True:
            uptime = await self._run_one()
            delay = self._delays.next(uptime=uptime)
            # What has run for long enough is no failure, though the next one may come at once.
            self._failures = 0 if uptime >= self._min_uptime else self._failures + 1
            if self._give_up_after is not None and self._failures >= self._give_up_after:
                break
            logger.warning("%s\nIt is started again in %.1f s", self._last_end, delay)
            await trio.sleep(delay)
        logger.error("%s\nIt is not started again", self._last_end)
        self._give_up()

    async def _run_one(self) -> float:
        """Start a server, wait for its end and clean up; for how many seconds it was there."""
        self._failure = None
        begun = trio.current_time()
        try:
            async with self._connect() as connection:
                self._starts += 1
                begun = trio.current_time()
                connection.on_unrouted = self._unrouted
                self._current = connection
                self._news.unpark_all()
                self._last_end = await connection.wait_ended()
                uptime = trio.current_time() - begun
                self._current = None
                self._statistics = connection.statistics()
        except errors.ConnectionLost as problem:
            if self._starts == 0:
                raise
            self._last_end = self._failure = problem
            self._news.unpark_all()
            return 0.0  # noqa: ASYNC910 - its delay is waited for
        return uptime

    async def _running(self) -> LineTransport:
        """The server that there is, once there is one."""
        while self._current is None or self._current.ended:
            if self._over is not None:
                raise self._over.again()
            await self._news.park()
            if self._failure is not None:
                raise self._failure.again()
        return self._current  # noqa: ASYNC910 - it is sent to next

    def _give_up(self) -> None:
        why, times = self._last_end, self._failures
        if why is None:
            raise AssertionError("unreachable: it is given up because of an end")
        self._over = errors.ConnectionLost(
            f"given up after {times} failure{'s' * (times > 1)} in a row: {why}",
            exit_status=why.exit_status,
            stderr=why.stderr,
        )
        self._news.unpark_all()

    def _unrouted(self, notification: jsonrpc.Notification) -> None:
        if self.on_unrouted is not None:
            self.on_unrouted(notification)


@asynccontextmanager
async def open_restarting_transport(
    connect: Connect,
    backoff: Backoff,
    *,
    give_up_after: int | None = None,
    chance: random.Random | None = None,
) -> AsyncIterator[RestartingTransport]:
    """Keep a server running for as long as the block lasts.

    The block is entered once the first one has been started. Leaving it ends the one that there
    is, or the waiting for the next.

    Args:
        connect: starts a server and gives the connection to it.
        backoff: how long to wait before a server that has ended is started again. One that has
            ended before ``min_uptime`` counts as a failure, and so does one that cannot be
            started.
        give_up_after: so many failures in a row are the end: no other is started, and every
            request raises `errors.ConnectionLost`. None never gives up.
        chance: where the jitter comes from.

    Raises:
        errors.ConnectionLost: the first server could not be started.
        ValueError: `give_up_after` is not positive.
    """
    if give_up_after is not None and give_up_after < 1:
        raise ValueError("give_up_after must be positive")
    transport = RestartingTransport(connect, backoff, give_up_after=give_up_after, chance=chance)
    async with open_services() as services:
        services.start_soon(transport.run)
        try:
            await transport.wait_started()
            yield transport
        finally:
            transport.close()
