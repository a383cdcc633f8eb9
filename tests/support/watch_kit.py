"""A peer for a watch, without a wire: it grants, refuses, says and ends what a test tells it."""

import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from mcp_trio import errors, types
from mcp_trio.client.subscription import SubscriptionEnd
from mcp_trio.client.watch.policy import Policy
from mcp_trio.client.watch.sharing import SharedWatch
from mcp_trio.client.watch.supervisor import Supervisor, open_supervisor
from mcp_trio.client.watch.watcher import Watcher
from mcp_trio.subscriptions.events import Event
from mcp_trio.subscriptions.filter import SubscriptionFilter

Answer = SubscriptionFilter | SubscriptionEnd | Exception | None
"""What is granted; how it ends at once; what is wrong; or None for all that is asked for."""


def highest_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full jitter, and always the full delay."""
    monkeypatch.setattr(random.Random, "random", lambda self: 1.0)


@attrs.define(eq=False)
class Pulse:
    """A heartbeat that the test beats."""

    comment_interval: float | None = None
    last_heard: float = attrs.field(factory=trio.current_time)


class FakeStream:
    """One stream, at its peer's end and at its reader's."""

    def __init__(self, wanted: SubscriptionFilter, granted: SubscriptionFilter) -> None:
        self.wanted = wanted
        self.acknowledged = granted
        self.end: SubscriptionEnd | None = None
        self.heartbeat: Pulse | None = None
        self.left = trio.Event()
        self._waiting: deque[Event | Exception | SubscriptionEnd] = deque()
        self._readers = trio.lowlevel.ParkingLot()

    def say(self, *events: Event) -> None:
        """It arrives at the client."""
        self._waiting += events
        self._readers.unpark_all()

    def finish(self, reason: str | None = None, retry_after: float | None = None) -> None:
        """The peer ends it gracefully."""
        self._waiting.append(SubscriptionEnd("graceful", reason, retry_after))
        self._readers.unpark_all()

    def cut(self, cause: Exception | None = None) -> None:
        """It is lost."""
        lost = errors.SubscriptionLost("cut")
        lost.__cause__ = cause
        self._waiting.append(lost)
        self._readers.unpark_all()

    async def receive(self) -> Event:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._waiting:
            await self._readers.park()
        what = self._waiting.popleft()
        await trio.lowlevel.cancel_shielded_checkpoint()
        if isinstance(what, SubscriptionEnd):
            self.end = what
            raise trio.EndOfChannel
        if isinstance(what, Exception):
            raise what
        return what


class FakePeer:
    """Opens streams, and answers what a snapshot asks.

    Attributes:
        answer: what becomes of the next attempts, by what they ask for.
        latency: seconds that an acknowledgement takes.
        attempts: when each attempt was made.
        asked: what each attempt asked for.
        streams: the streams that are open.
        holds: what there is to read: a value, or an exception, by name or URI.
        reads: what has been read.
        before_read: awaited before each answer to a read.
        ended: whether nothing can be opened any more.
    """

    def __init__(self) -> None:
        self.answer: Callable[[SubscriptionFilter], Answer] = lambda wanted: None
        self.latency = 0.0
        self.attempts: list[float] = []
        self.asked: list[SubscriptionFilter] = []
        self.streams: list[FakeStream] = []
        self.most = 0
        self.holds: dict[str, Any] = {}
        self.reads: list[str] = []
        self.before_read: Callable[[str], Awaitable[object]] | None = None
        self.ended = False

    @property
    def stream(self) -> FakeStream:
        """The one that is open."""
        [stream] = self.streams
        return stream

    @asynccontextmanager
    async def open(self, wanted: SubscriptionFilter) -> AsyncIterator[FakeStream]:
        self.attempts.append(trio.current_time())
        self.asked.append(wanted)
        await trio.sleep(self.latency)
        answer = self.answer(wanted)
        if isinstance(answer, Exception):
            raise answer
        granted = wanted if answer is None else answer
        if isinstance(granted, SubscriptionEnd):
            stream = FakeStream(wanted, SubscriptionFilter())
            stream.end = granted
        else:
            stream = FakeStream(wanted, granted)
        self.streams.append(stream)
        self.most = max(self.most, len(self.streams))
        try:
            yield stream
        finally:
            self.streams.remove(stream)
            stream.left.set()

    def say(self, event: Event) -> None:
        """Every stream that covers it hears of it."""
        for stream in self.streams:
            if stream.acknowledged.matches(event, sub_resources=True):
                stream.say(event)

    async def _read(self, name: str) -> Any:
        self.reads.append(name)
        await trio.lowlevel.checkpoint()
        if self.before_read is not None:
            await self.before_read(name)
        value = self.holds.get(name, [])
        if isinstance(value, Exception):
            raise value
        return value

    async def all_tools(self, *, fresh: bool = False) -> list[types.Tool]:
        assert fresh
        return await self._read("tools")  # type: ignore[no-any-return]

    async def all_prompts(self, *, fresh: bool = False) -> list[types.Prompt]:
        assert fresh
        return await self._read("prompts")  # type: ignore[no-any-return]

    async def all_resources(self, *, fresh: bool = False) -> list[types.Resource]:
        assert fresh
        return await self._read("resources")  # type: ignore[no-any-return]

    async def all_resource_templates(self, *, fresh: bool = False) -> list[types.ResourceTemplate]:
        assert fresh
        return await self._read("templates")  # type: ignore[no-any-return]

    async def read_resource(self, uri: str, *, fresh: bool = False) -> types.ReadResourceResult:
        assert fresh
        return await self._read(uri)  # type: ignore[no-any-return]

    def supervise(self, **options: Any) -> AbstractAsyncContextManager[Supervisor]:
        """Keep streams to this peer open."""
        return open_supervisor(
            self.open, self, Policy(**options), transport_ended=lambda: self.ended
        )

    @asynccontextmanager
    async def watch(
        self, wanted: SubscriptionFilter, *, snapshot: bool = False, **options: Any
    ) -> AsyncIterator[Watcher]:
        """As `Client.watch`."""
        async with (
            self.supervise(**options) as supervisor,
            supervisor.join(wanted, snapshot=snapshot) as watcher,
        ):
            yield watcher

    @asynccontextmanager
    async def share(self, **options: Any) -> AsyncIterator[SharedWatch]:
        """As `Client.open_shared_watch`."""
        async with self.supervise(**options) as supervisor:
            yield SharedWatch(supervisor)


async def settle() -> None:
    """Wait until nobody has anything to do without the clock."""
    await trio.testing.wait_all_tasks_blocked()


async def drain(watcher: Watcher) -> list[Any]:
    """All that can be received at once."""
    await settle()
    return [await watcher.receive() for _ in range(watcher.statistics().waiting)]
