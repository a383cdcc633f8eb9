"""Cancellation at every single point at which it can arrive.

A scenario is run again and again. The k-th run is cancelled at the k-th step of the
subscription's task, once just before the task takes that step and once just after it; the last
run is the one that gets to its end. Nothing is left out, because it is Trio that counts.
"""

import itertools
import json
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from mcp_trio import errors
from mcp_trio.subscriptions.events import Event, PromptsListChanged, ToolsListChanged
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import (
    CloseReason,
    End,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)
from mcp_trio.subscriptions.statistics import PublishReport
from mcp_trio.subscriptions.stream import OpenSubscription, run_subscription

WANTED = SubscriptionFilter(True, True, resource_subscriptions=("note://a",))


class CancelAtStep(trio.abc.Instrument):
    """Cancel a scope at the k-th step of one task."""

    def __init__(self, step: int, when: str) -> None:
        self.step, self.when = step, when
        self.steps = 0
        self.task: trio.lowlevel.Task | None = None
        self.scope = trio.CancelScope()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.steps += 1
            self.strike("before")

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.strike("after")

    def strike(self, when: str) -> None:
        if self.steps == self.step and self.when == when:
            self.scope.cancel()

    @property
    def struck(self) -> bool:
        return self.steps >= self.step


async def several_checkpoints() -> None:
    for _ in range(3):
        await trio.lowlevel.checkpoint()


class SlowWire:
    """Each write takes several steps; a frame counts once it is out."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.writing = 0
        self.room = False

    def send_nowait(self, frame: bytes, now: float | None = None) -> bool:
        assert not self.writing
        if self.room:
            self.frames.append(json.loads(frame))
        return self.room

    async def send(self, frame: bytes) -> None:
        assert not self.writing
        self.writing += 1
        try:
            await several_checkpoints()
            self.frames.append(json.loads(frame))
            await trio.lowlevel.checkpoint()
        finally:
            self.writing -= 1


@attrs.define
class Counted(SubscriptionSource):
    """A hand-written source that takes several steps for everything and counts."""

    honours: bool = False
    opening: int = 0
    opened: int = 0
    released: int = 0
    closed: list[CloseReason] = attrs.field(factory=list)
    handles: list["CountedHandle"] = attrs.field(factory=list)

    async def open(self, wanted: SubscriptionFilter, context: SubscriptionContext) -> SourceHandle:
        self.opening += 1
        try:
            await several_checkpoints()
        finally:
            self.opening -= 1
        self.opened += 1
        self.handles.append(CountedHandle(self, wanted))
        return self.handles[-1]


class CountedHandle(SourceHandle):
    """Its handle; events come through a channel."""

    def __init__(self, source: Counted, accepted: SubscriptionFilter) -> None:
        self.source = source
        self.pulling = 0
        self.send, self.channel = trio.open_memory_channel[Event](10)
        self._accepted = accepted

    @property
    def accepted(self) -> SubscriptionFilter:
        return self._accepted

    async def receive(self) -> Event:
        assert not self.pulling
        self.pulling += 1
        try:
            await several_checkpoints()
            return await self.channel.receive()
        finally:
            self.pulling -= 1

    def complete(self, end: End) -> bool:
        if self.source.honours:
            self.send.close()
        return self.source.honours

    async def aclose(self, reason: CloseReason) -> None:
        assert not self.pulling
        self.source.closed.append(reason)
        await several_checkpoints()
        self.send.close()
        self.channel.close()
        self.source.released += 1


async def slow_authorizer(field: str, value: str | None, context: SubscriptionContext, /) -> bool:
    await several_checkpoints()
    return value != "note://a"


@attrs.define
class Run:
    """One run of a scenario."""

    source: SubscriptionSource
    options: dict[str, Any]
    wire: SlowWire = attrs.field(factory=SlowWire)
    subscriptions: list[OpenSubscription] = attrs.field(factory=list)
    result: dict[str, Any] | None = None
    error: BaseException | None = None
    finished: bool = False

    async def serve(self, instrument: CancelAtStep) -> None:
        instrument.task = trio.lowlevel.current_task()
        with instrument.scope:
            try:
                self.result = await run_subscription(
                    request_id=1,
                    wanted=WANTED,
                    exchange=self.wire,
                    source=self.source,
                    on_open=self.subscriptions.append,
                    **self.options,
                )
            except errors.ErrorResponse as error:
                self.error = error
        instrument.task = None
        self.finished = True


Play = Callable[[Run], Awaitable[None]]


def every_step(
    make: Callable[[], SubscriptionSource], play: Play, *, room: bool = False, **options: Any
) -> Iterator[tuple[Run, bool]]:
    """Every run of a scenario, with whether it was cancelled; the last two were not."""
    for when in ("before", "after"):
        for step in itertools.count(1):
            instrument = CancelAtStep(step, when)
            run = Run(make(), {"context": SubscriptionContext(1), **options})
            run.wire.room = room

            async def main(run: Run = run, instrument: CancelAtStep = instrument) -> None:
                before = trio.lowlevel.current_statistics().tasks_living
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(run.serve, instrument)
                    with trio.move_on_after(60):
                        await play(run)
                assert trio.lowlevel.current_statistics().tasks_living == before

            clock = trio.testing.MockClock(autojump_threshold=0)
            trio.run(main, instruments=[instrument], clock=clock)
            check_frames(run)
            yield run, instrument.struck
            if not instrument.struck:
                assert run.result is not None or run.error is not None
                break
            assert step < 500


def check_frames(run: Run) -> None:
    """Whatever was written is a beginning of the right stream."""
    methods = [frame["method"].rpartition("notifications/")[2] for frame in run.wire.frames]
    whole = ["subscriptions/acknowledged", "tools/list_changed", "prompts/list_changed"]
    assert methods == whole[: len(methods)]
    assert run.wire.writing == 0


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def publish_and_close(run: Run) -> None:
    assert isinstance(run.source, Hub)
    await settle()
    run.source.publish(ToolsListChanged())
    await settle()
    run.source.publish(PromptsListChanged())
    await settle()
    run.source.close("shutdown")


async def publish_at_once_and_drain(run: Run) -> None:
    assert isinstance(run.source, Hub)
    while not run.finished and not run.source.statistics().subscriptions:
        await trio.lowlevel.checkpoint()
    run.source.publish(ToolsListChanged())
    run.source.publish(PromptsListChanged())
    await run.source.drain()


@pytest.mark.parametrize("play", [publish_and_close, publish_at_once_and_drain])
@pytest.mark.parametrize("expires_at", [math.inf, 1e9])
@pytest.mark.parametrize("authorize", [None, slow_authorizer])
@pytest.mark.parametrize("room", [False, True])
def test_the_hub(play: Play, expires_at: float, authorize: Any, room: bool) -> None:
    """S-28, catalogue 55: whenever it comes, the hub is left as it was."""
    runs = 0
    context = SubscriptionContext(1, expires_at=expires_at)
    for run, cancelled in every_step(Hub, play, room=room, context=context, authorize=authorize):
        runs += 1
        hub = run.source
        assert isinstance(hub, Hub)
        assert hub.statistics().subscriptions == 0
        assert not hub._index.has_uris
        assert not any(hub._index._kinds.values())
        if not cancelled:
            assert run.error is None
            assert len(run.wire.frames) == 3
    assert runs > 12


@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("room", [False, True])
@pytest.mark.parametrize("expires_at", [math.inf, 1e9])
def test_publishing_at_every_step(cancels: bool, when: str, room: bool, expires_at: float) -> None:
    """S-28, S-65: the acknowledgement comes first, the result last, and a cancel before both.

    The publisher strikes between any two steps of the subscription's task, so also when that
    has been cancelled or ended and does not know it yet.
    """
    context = SubscriptionContext(1, expires_at=expires_at)
    heard = 0
    for step in itertools.count(1):
        run = Run(Hub(), {"context": context, "authorize": slow_authorizer})
        run.wire.room = room
        reports: list[PublishReport] = []
        frames_then: list[int] = []

        class PublishAtStep(CancelAtStep):
            target, told, written = run, reports, frames_then

            def strike(self, when: str) -> None:
                if self.steps == self.step and self.when == when:
                    hub = self.target.source
                    assert isinstance(hub, Hub)
                    if cancels:
                        self.scope.cancel()
                    self.told.append(hub.publish(ToolsListChanged()))
                    self.told.append(hub.publish(PromptsListChanged()))
                    self.written.append(len(self.target.wire.frames))
                    if not cancels:
                        self.target.subscriptions[0].end("shutdown")
                    assert hub.publish(ToolsListChanged()).matched == 0 or cancels
                    assert len(self.target.wire.frames) == self.written[0]

        instrument = PublishAtStep(step, when)

        async def main(run: Run = run, instrument: CancelAtStep = instrument) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run.serve, instrument)
                await settle()
                if run.subscriptions:
                    run.subscriptions[0].end()

        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(main, instruments=[instrument], clock=clock)
        check_frames(run)
        hub = run.source
        assert isinstance(hub, Hub)
        assert hub.statistics().subscriptions == hub.statistics().queued == 0
        matched = bool(reports and reports[0].matched)
        if cancels and run.result is None:
            # Not even what was queued, and nothing but what was out already.
            assert len(run.wire.frames) == (frames_then or [0])[0]
        elif matched:
            assert len(run.wire.frames) == 3
            heard += 1
        if not instrument.struck:
            break
        assert step < 500
    assert cancels or heard > 3


async def feed_and_end(run: Run) -> None:
    assert isinstance(run.source, Counted)
    await settle()
    for event in (ToolsListChanged(), PromptsListChanged()):
        for handle in run.source.handles:
            if not run.source.closed:
                handle.send.send_nowait(event)
        await settle()
    for subscription in run.subscriptions:
        subscription.end("shutdown")


async def feed_and_finish(run: Run) -> None:
    assert isinstance(run.source, Counted)
    await settle()
    for handle in run.source.handles:
        if not run.source.closed:
            handle.send.send_nowait(ToolsListChanged())
            handle.send.close()


@pytest.mark.parametrize("play", [feed_and_end, feed_and_finish])
@pytest.mark.parametrize("honours", [False, True])
@pytest.mark.parametrize("expires_at", [math.inf, 1e9])
def test_a_hand_written_source(play: Play, honours: bool, expires_at: float) -> None:
    """S-28, S-29: each handle that was opened is closed, once, with the right reason."""
    runs, reasons = 0, set()
    context = SubscriptionContext(1, expires_at=expires_at)
    for run, cancelled in every_step(lambda: Counted(honours), play, context=context):
        runs += 1
        source = run.source
        assert isinstance(source, Counted)
        assert source.opening == 0
        assert len(source.closed) == source.released == source.opened == len(source.handles)
        kinds = {reason.kind for reason in source.closed}
        reasons |= kinds
        assert kinds <= {"cancelled", "complete"}
        if run.result is not None:
            assert kinds == {"complete"}
        if not cancelled:
            assert kinds == {"complete"}
    assert runs > 20
    assert reasons == {"cancelled", "complete"}


def test_a_source_that_fails() -> None:
    """S-30, S-87 under cancellation: closed once, whichever of the two comes first."""

    async def fail(run: Run) -> None:
        assert isinstance(run.source, Counted)
        await settle()
        for handle in run.source.handles:
            handle.channel.close()
        for handle in run.source.handles:
            if not run.source.closed:
                handle.send.close()
        for subscription in run.subscriptions:
            subscription.end("shutdown")

    class Failing(CountedHandle):
        async def receive(self) -> Event:
            await several_checkpoints()
            raise ValueError("broken")

    class FailingSource(Counted):
        async def open(
            self, wanted: SubscriptionFilter, context: SubscriptionContext
        ) -> SourceHandle:
            await several_checkpoints()
            self.opened += 1
            self.handles.append(Failing(self, wanted))
            return self.handles[-1]

    reasons = set()
    for run, cancelled in every_step(FailingSource, fail):
        assert isinstance(run.source, Counted)
        assert len(run.source.closed) == run.source.released == run.source.opened
        reasons |= {reason.kind for reason in run.source.closed}
        if not cancelled:
            assert isinstance(run.error, errors.InternalError)
    assert reasons == {"cancelled", "error"}


def test_the_server_ends_it_at_every_step() -> None:
    """S-81, S-85: `end` instead of a cancel; there is always one answer, and one close."""
    answers = set()
    for honours, when in itertools.product((False, True), ("before", "after")):
        for step in itertools.count(1):
            run = Run(Counted(honours), {"context": SubscriptionContext(1)})

            class EndAtStep(CancelAtStep):
                target = run

                def strike(self, when: str) -> None:
                    if self.steps == self.step and self.when == when:
                        for subscription in self.target.subscriptions:
                            subscription.end("shutdown")

            instrument = EndAtStep(step, when)

            async def main(run: Run = run, instrument: CancelAtStep = instrument) -> None:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(run.serve, instrument)
                    await feed_and_end(run)

            clock = trio.testing.MockClock(autojump_threshold=0)
            trio.run(main, instruments=[instrument], clock=clock)
            check_frames(run)
            source = run.source
            assert isinstance(source, Counted)
            assert source.opening == 0
            assert len(source.closed) == source.released == source.opened
            assert (run.result is None) is not (run.error is None)
            if run.result is not None:
                answers.add(run.result["_meta"]["org.mcp-trio/end"]["reason"])
            else:
                assert isinstance(run.error, errors.ServerBusy)
                assert run.wire.frames == []
                answers.add("refused")
            if not instrument.struck:
                break
    assert answers == {"shutdown", "refused"}
