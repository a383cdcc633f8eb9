"""A subscription without a transport: what it writes, a source by script, and its run."""

import json
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
import trio.testing

from mcp_trio import errors
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.source import (
    CloseReason,
    End,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)
from mcp_trio.subscriptions.stream import (
    OpenSubscription,
    run_subscription,
)

ID_KEY = "io.modelcontextprotocol/subscriptionId"
INFO = {"name": "s", "version": "1"}
ALL = SubscriptionFilter(True, True, True, ("note://a",))


@attrs.define
class Wire:
    """An exchange that keeps what was written and can be told to wait or to fail."""

    frames: list[dict[str, Any]] = attrs.field(factory=list)
    blocked: bool = False
    fail: Exception | None = None
    attempts: int = 0
    waiting: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    async def send(self, frame: bytes) -> None:
        self.attempts += 1
        if self.blocked:
            await self.waiting.park()
        await trio.lowlevel.checkpoint()
        if self.fail is not None:
            raise self.fail
        self.frames.append(json.loads(frame))

    def send_nowait(self, frame: bytes, now: float | None = None) -> bool:
        return False

    def unblock(self) -> None:
        self.blocked = False
        self.waiting.unpark_all()

    @property
    def methods(self) -> list[str]:
        return [frame["method"].removeprefix("notifications/") for frame in self.frames]


Step = Any  # an event, an exception to raise, a number of seconds to wait, or "for ever"


class Handle(SourceHandle):
    """A handle that plays a script and records how it is used."""

    def __init__(self, accepted: Any, steps: list[Step]) -> None:
        self._accepted = accepted
        self.steps = deque(steps)
        self.pulls = 0
        self.pulling = False
        self.closed: list[CloseReason] = []
        self.honours: bool | Exception = False
        self.asked: list[End] = []
        self.close_takes: float | Exception = 0.0
        self.ended: End | None = None

    @property
    def accepted(self) -> SubscriptionFilter:
        if isinstance(self._accepted, Exception):
            raise self._accepted
        return self._accepted  # type: ignore[no-any-return]

    @property
    def end(self) -> End | None:
        return self.ended

    async def receive(self) -> Any:
        assert not self.pulling
        assert not self.closed
        self.pulling = True
        self.pulls += 1
        try:
            await trio.lowlevel.checkpoint()
            while self.steps:
                step = self.steps.popleft()
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, float):
                    await trio.sleep(step)
                    continue
                return step
            await trio.sleep_forever()
        finally:
            self.pulling = False

    def complete(self, end: End) -> bool:
        self.asked.append(end)
        if isinstance(self.honours, Exception):
            raise self.honours
        return self.honours

    async def aclose(self, reason: CloseReason) -> None:
        self.closed.append(reason)
        if isinstance(self.close_takes, Exception):
            raise self.close_takes
        await trio.sleep(self.close_takes)


class Script(SubscriptionSource):
    """A source whose handle plays a script."""

    def __init__(self, *steps: Step, accepted: Any = None) -> None:
        self.steps = list(steps)
        self.accepted = accepted
        self.offered: list[SubscriptionFilter] = []
        self.contexts: list[SubscriptionContext] = []
        self.handle = Handle(None, [])
        self.prepare: Callable[[Handle], object] = lambda handle: None
        self.open_takes: float | Exception = 0.0

    async def open(self, wanted: SubscriptionFilter, context: SubscriptionContext) -> SourceHandle:
        self.offered.append(wanted)
        self.contexts.append(context)
        if isinstance(self.open_takes, Exception):
            raise self.open_takes
        await trio.sleep(self.open_takes)
        self.handle = Handle(wanted if self.accepted is None else self.accepted, self.steps)
        self.prepare(self.handle)
        return self.handle


async def run(
    source: SubscriptionSource,
    wire: Wire,
    wanted: SubscriptionFilter = ALL,
    request_id: str | int = 1,
    expires_at: float = math.inf,
    **options: Any,
) -> dict[str, Any]:
    return await run_subscription(
        request_id=request_id,
        wanted=wanted,
        source=source,
        context=SubscriptionContext(request_id, expires_at=expires_at),
        exchange=wire,
        server_info=INFO,
        **options,
    )


@attrs.define
class Running:
    """A subscription in its task, and how it ended."""

    subscription: OpenSubscription
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    done: trio.Event = attrs.field(factory=trio.Event)
    result: dict[str, Any] | None = None
    error: BaseException | None = None

    @property
    def end(self) -> dict[str, Any]:
        assert self.result is not None
        return self.result["_meta"]["org.mcp-trio/end"]  # type: ignore[no-any-return]


@asynccontextmanager
async def running(source: SubscriptionSource, wire: Wire, **options: Any) -> AsyncIterator[Running]:
    """Run a subscription in a task of its own, and wait until nothing moves."""
    found: list[OpenSubscription] = []
    async with trio.open_nursery() as nursery:
        running = Running(OpenSubscription(0))

        async def task() -> None:
            with running.scope:
                try:
                    running.result = await run(source, wire, on_open=found.append, **options)
                except (errors.McpError, trio.BrokenResourceError) as error:
                    running.error = error
            running.done.set()

        nursery.start_soon(task)
        await trio.testing.wait_all_tasks_blocked()
        (running.subscription,) = found
        yield running
        nursery.cancel_scope.cancel()
