"""The bridge between a hub and a bus: what one process publishes, the listeners of all hear.

Publishing stays what it is without a bus: synchronous, never waiting, never failing. What is
published waits in an outbox, each key once, until the bus has taken it; while the bus is away it
stays there. What the bus may have lost is made good by a cue for everything: so a bus may
deliver at most once, and still every listener has had, after every failure is over, a cue for
every core change that it has not fetched since. Events that carry data have no such cue. They
are sent once, and a failure can lose them; of those with `coalesce` the newest is sent again
where the bus did not take it, but none are asked for after a gap.
"""

import logging
import math
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from mcp_trio._causes import leaves, one_cause
from mcp_trio.subscriptions.bus import Bus, BusConnection
from mcp_trio.subscriptions.bus_intake import Intake
from mcp_trio.subscriptions.events import Event
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.outbox import Batch, Outbox

__all__ = ["Bridge", "BridgeStatistics", "open_bridge"]

logger = logging.getLogger("mcp_trio.subscriptions")

_ENVELOPE: Final = 256
"""Bytes of a message beside its events, at most."""
_DISCONNECT: Final = 1.0
"""Seconds that a bus has to disconnect in."""


@attrs.frozen
class BridgeStatistics:
    """A bridge at one moment; counts are since it was opened.

    Attributes:
        connected: whether the bus is connected.
        reconnects: connections after the first.
        failures: attempts to connect, or to send, that failed, and connections that were lost.
        gaps: how often every listener here was told that anything may have changed.
        outbox: things that wait to be sent.
        outbox_bytes: how long they are.
        collapsed: how often more was waiting than the outbox holds, so that the others were told
            that anything may have changed.
        dropped: events of extensions that were not sent, or not received by the bus as far as is
            known.
        sent: messages that the bus has taken.
        received: messages of other bridges.
        ignored: messages that could not be read, and events that could not be published.
    """

    connected: bool
    reconnects: int
    failures: int
    gaps: int
    outbox: int
    outbox_bytes: int
    collapsed: int
    dropped: int
    sent: int
    received: int
    ignored: int


@asynccontextmanager
async def open_bridge(
    hub: Hub,
    bus: Bus,
    *,
    after_crash: bool = False,
    pace: float = 0.005,
    max_outbox: int = 1024 * 1024,
    send_timeout: float = 10.0,
    min_backoff: float = 0.1,
    max_backoff: float = 5.0,
    closing_grace: float = 1.0,
) -> AsyncIterator["Bridge"]:
    """Connect a hub to the hubs of other processes, until the end of the block.

    Everything published on the hub in the block goes to the others, and what they publish comes
    to the listeners of this one, and is not sent on. The block is entered at once, whether or
    not the bus can be reached: until it can, listeners hear what this process publishes, and
    from then on everything.

    Args:
        hub: the hub; it can have one bridge.
        bus: the bus.
        after_crash: whether this process takes the place of one that ended without leaving its
            block. What that one published last may have reached nobody, so the listeners of
            the others are told that anything may have changed.
        pace: seconds from one message to the next at least. The first change goes at once;
            those of the meantime go together, each key once. So the others' work for one
            process has a limit, however much that one publishes.
        max_outbox: bytes of core events that may wait, encoded, before they collapse into
            "anything may have changed"; and bytes of extensions' events that may wait before
            the oldest are dropped.
        send_timeout: seconds until a message that the bus does not take counts as failed.
        min_backoff: seconds; the second attempt to connect or to send comes within that time, at
            random. The limit doubles with each failure, and starts again after a connection that
            lasted for `max_backoff`, or a message sent.
        max_backoff: the highest such limit, in seconds.
        closing_grace: seconds for what is still in the outbox when the block ends; also when it
            is cancelled.

    Yields:
        The bridge, for its `statistics`.

    Cancelling the block ends it after `closing_grace` at most, and a second to disconnect.

    Example:
        ::

            async with open_bridge(hub, RedisBus("redis://127.0.0.1:6379")):
                await serve_http(server, "127.0.0.1", 8000)
    """
    bridge = Bridge(hub, bus, pace, max_outbox, send_timeout, min_backoff, max_backoff)
    if after_crash:
        bridge.announce_gap()
    with one_cause(1):
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            with hub.forward_to(bridge.forward):
                nursery.start_soon(bridge.run)
                try:
                    yield bridge
                finally:
                    with trio.move_on_after(closing_grace, shield=True):
                        await bridge.flush()
                    bridge.stop()


class Bridge:
    """A hub's place on a bus. Made by `open_bridge`.

    Attributes:
        sender: its name among the bridges: random, for this block only.
    """

    def __init__(
        self,
        hub: Hub,
        bus: Bus,
        pace: float,
        max_outbox: int,
        send_timeout: float,
        min_backoff: float,
        max_backoff: float,
    ) -> None:
        if max_outbox < 1:
            raise ValueError("max_outbox must be positive")
        if not 0 < min_backoff <= max_backoff:
            raise ValueError("min_backoff must be positive, and max_backoff no less")
        self.sender = secrets.token_urlsafe(12)
        self._bus = bus
        self._pace = pace
        self._send_timeout = send_timeout
        self._backoff = (min_backoff, max_backoff)
        self._room = bus.max_message - _ENVELOPE
        self._intake = Intake(hub, self.sender, bus.max_message)
        self._outbox = Outbox(limit=max_outbox, max_event=self._room - 1)
        self._filled = trio.Event()
        self._emptied = trio.Event()
        self._sending = False
        self._life = trio.CancelScope(shield=True)
        self._work = trio.CancelScope()
        self._stopped = False
        self._connected = trio.Event()
        self._number = 0
        self._connections = self._failures = self._in_a_row = self._sent = self._refused = 0

    # Publishing

    def forward(self, event: Event, include_sub_resources: bool = False) -> None:
        """Take in what was published; see `Hub.forward_to`."""
        try:
            self._outbox.put(event, include_sub_resources)
        except (TypeError, ValueError):
            self._refused += 1
            logger.exception("an event cannot be sent to other processes")
        else:
            self._filled.set()

    def announce_gap(self) -> None:
        """Tell the listeners of all other processes that anything may have changed."""
        self._outbox.put_anything()
        self._filled.set()

    async def wait_connected(self) -> None:
        """Wait until the bus is connected: listeners hear what is published anywhere.

        Cancelling stops the waiting only.
        """
        while not self._connected.is_set():
            await self._connected.wait()
        await trio.lowlevel.checkpoint()

    async def flush(self) -> None:
        """Wait until the bus has taken everything published so far, and what comes meanwhile.

        Cancelling stops the waiting only.
        """
        while self._outbox or self._sending:
            await self._emptied.wait()
        await trio.lowlevel.checkpoint()

    def statistics(self) -> BridgeStatistics:
        """Its state and its counts."""
        return BridgeStatistics(
            connected=self._connected.is_set(),
            reconnects=max(0, self._connections - 1),
            failures=self._failures,
            gaps=self._intake.gaps,
            outbox=len(self._outbox),
            outbox_bytes=self._outbox.size,
            collapsed=self._outbox.collapsed,
            dropped=self._outbox.dropped + self._refused,
            sent=self._sent,
            received=self._intake.received,
            ignored=self._intake.ignored,
        )

    # Running; for `open_bridge` alone

    def stop(self) -> None:
        """Disconnect, and end `run`."""
        self._stopped = True
        if self._connected.is_set():
            # First what uses the connection; then the bus can disconnect in peace.
            self._work.cancel()
            self._life.deadline = trio.current_time() + _DISCONNECT
        else:
            self._life.cancel()

    async def run(self) -> None:
        """Keep connected until stopped. Being cancelled from outside does nothing."""
        try:
            with self._life:
                await self._keep_connected()
        except Exception as error:
            if not self._stopped:
                raise
            self._failed("the connection did not end cleanly", error)
        await trio.lowlevel.checkpoint()

    async def _keep_connected(self) -> None:
        least, most = self._backoff
        limit = least
        while True:
            since = math.inf
            self._work = trio.CancelScope()
            try:
                async with self._bus.connect() as connection:
                    since = trio.current_time()
                    with self._work:
                        await self._use(connection)
            except Exception as error:  # noqa: BLE001 (other people's code, and it is logged)
                self._failed("no connection" if since == math.inf else "connection lost", error)
            if self._stopped:
                break
            if trio.current_time() - since > most:
                limit = least
            await self._rest(limit)
            limit = min(2 * limit, most)
        await trio.lowlevel.checkpoint()

    @staticmethod
    async def _rest(limit: float) -> None:
        """Wait before another attempt: any time up to a limit, so that not all come together."""
        await trio.sleep(random.uniform(0, limit))  # noqa: S311 (not a secret)

    async def _use(self, connection: BusConnection) -> None:
        """Send and receive until the connection is lost, or this is stopped."""
        self._connections += 1
        self._in_a_row = 0
        logger.info("bus: connected to %r", self._bus)
        self._intake.start_over()
        # Listeners may be older than the connection, and have missed what came before it.
        self._intake.gap("connected to the bus")
        self._connected.set()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_all, connection)
                while True:
                    for message in await connection.receive():
                        self._intake.take_in(message)
        finally:
            self._connected = trio.Event()

    # Sending

    async def _send_all(self, connection: BusConnection) -> None:
        least, most = self._backoff
        limit = least
        while True:
            if not self._outbox:
                self._filled = trio.Event()
                await self._filled.wait()
            if await self._send(connection, self._outbox.take(self._room)):
                limit = least
                await trio.sleep(self._pace)
            else:
                await self._rest(limit)
                limit = min(2 * limit, most)

    async def _send(self, connection: BusConnection, batch: Batch) -> bool:
        taken = False
        self._sending = True
        try:
            with trio.fail_after(self._send_timeout):
                await connection.publish(batch.encode(self.sender, self._number + 1))
            taken = True
        except Exception as error:  # noqa: BLE001 (as above)
            self._failed("not sent", error)
        finally:
            self._sending = False
            if taken:
                self._number += 1
                self._sent += 1
                self._in_a_row = 0
            else:
                self._outbox.put_back(batch)
            if not self._outbox:
                self._emptied.set()
                self._emptied = trio.Event()
        await trio.lowlevel.checkpoint()
        return taken

    def _failed(self, what: str, error: BaseException) -> None:
        self._failures += 1
        self._in_a_row += 1
        # An outage may be long: its first attempts are logged, and then ever fewer.
        loud = self._in_a_row & (self._in_a_row - 1) == 0
        level = logging.WARNING if loud else logging.DEBUG
        logger.log(level, "bus: %s, %d in a row: %r", what, self._in_a_row, leaves(error)[0])
        logger.debug("bus: %s", what, exc_info=error)
