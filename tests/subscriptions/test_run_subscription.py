"""One subscription from its opening to each of its endings, without a transport."""

import gc
import json
import math
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from mcp_trio import errors
from mcp_trio.subscriptions.events import (
    EventsDropped,
    ExtensionEvent,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import (
    CloseReason,
    End,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)
from mcp_trio.subscriptions.stream import (
    CLOSE_GRACE,
    DISCONNECTED,
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


# Opening


async def test_the_whole_of_it() -> None:
    """S-02 to S-05, S-81, S-83: ack first, the id on everything, a result with its reason."""
    hub, wire = Hub(), Wire()
    async with running(hub, wire, request_id="listen-1") as stream:
        hub.publish(ToolsListChanged())
        await trio.testing.wait_all_tasks_blocked()
        hub.publish(ResourceUpdated("note://a"))
        hub.publish(ResourceUpdated("note://b"))
        hub.close("shutdown", retry_after=2)
        await stream.done.wait()
    assert wire.methods == [
        "subscriptions/acknowledged",
        "tools/list_changed",
        "resources/updated",
    ]
    assert wire.frames[0]["params"]["notifications"] == ALL.to_wire()
    assert wire.frames[2]["params"]["uri"] == "note://a"
    assert {frame["params"]["_meta"][ID_KEY] for frame in wire.frames} == {"listen-1"}
    assert stream.result == {
        "resultType": "complete",
        "_meta": {
            ID_KEY: "listen-1",
            "io.modelcontextprotocol/serverInfo": INFO,
            "org.mcp-trio/end": {"reason": "shutdown", "retryAfterMs": 2000},
        },
    }
    assert stream.subscription.written == 2
    assert hub.statistics().subscriptions == 0


async def test_a_change_during_the_acknowledgement_is_not_lost() -> None:
    """S-06, S-24, W02: registered before the ack, drained after it, nothing before it."""
    hub, wire = Hub(), Wire(blocked=True)
    async with running(hub, wire) as stream:
        assert hub.publish(ToolsListChanged()).buffered == 1
        await trio.sleep(0.05)
        assert wire.attempts == 1
        acknowledged = [stream.subscription.acknowledged]
        wire.unblock()
        await trio.sleep(0.05)
        acknowledged.append(stream.subscription.acknowledged)
        assert acknowledged == [False, True]
    assert wire.methods == ["subscriptions/acknowledged", "tools/list_changed"]


@pytest.mark.parametrize("kinds", [{"tools"}, {"prompts", "updated"}, set()])
async def test_the_source_sees_only_what_is_advertised(kinds: set[Any]) -> None:
    """S-22, S-40, W34, W35."""
    source = Script(trio.EndOfChannel())
    source.kinds = frozenset({"tools", "updated", "resources"})
    wire = Wire()
    wanted = attrs.evolve(ALL, task_ids=["t"], extensions={"x": 1, "y": 1})
    await run(source, wire, wanted, kinds=kinds, extension_fields={"x"})
    expected: dict[str, Any] = {"x": 1}
    if "tools" in kinds:
        expected["toolsListChanged"] = True
    if "updated" in kinds:
        expected["resourceSubscriptions"] = ["note://a"]
    assert source.offered[0].to_wire() == expected
    assert wire.frames[0]["params"]["notifications"] == expected


async def test_nothing_granted() -> None:
    """S-47, P-21: an empty ack and a result; the source is not even asked."""
    for options in ({"kinds": ()}, {"wanted": SubscriptionFilter()}):
        source, wire = Script(), Wire()
        result = await run(source, wire, **options)
        assert wire.methods == ["subscriptions/acknowledged"]
        assert wire.frames[0]["params"]["notifications"] == {}
        assert result["_meta"]["org.mcp-trio/end"] == {"reason": "nothing-granted"}
        assert source.offered == []


async def test_a_source_that_accepts_nothing() -> None:
    source, wire = Script(accepted=SubscriptionFilter()), Wire()
    result = await run(source, wire)
    assert wire.frames[0]["params"]["notifications"] == {}
    assert result["_meta"]["org.mcp-trio/end"] == {"reason": "nothing-granted"}
    assert source.handle.closed == [CloseReason("complete", "nothing-granted")]
    assert source.handle.pulls == 0


async def test_a_source_may_narrow() -> None:
    """S-03, S-21: the ack shows what it accepted, and nothing else is written."""
    source = Script(
        ToolsListChanged(),
        PromptsListChanged(),
        trio.EndOfChannel(),
        accepted=SubscriptionFilter(prompts_list_changed=True),
    )
    wire = Wire()
    await run(source, wire)
    assert wire.frames[0]["params"]["notifications"] == {"promptsListChanged": True}
    assert wire.methods[1:] == ["prompts/list_changed"]


@pytest.mark.parametrize(
    "accepted",
    [
        SubscriptionFilter(True, True, True, ("note://a", "note://b")),
        SubscriptionFilter(task_ids=("t",)),
        SubscriptionFilter(extensions={"x": 1}),
        {"toolsListChanged": True},
        None or ValueError("no filter"),
    ],
)
async def test_an_over_claiming_source_is_refused(
    accepted: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """S-21: closed with an error, -32603, no acknowledgement."""
    source, wire = Script(accepted=accepted), Wire()
    with pytest.raises(errors.InternalError) as caught:
        await run(source, wire)
    assert caught.value.code == -32603
    assert caught.value.message == "subscription source failed"
    assert wire.attempts == 0
    assert [reason.kind for reason in source.handle.closed] == ["error"]
    assert "a subscription source" in caplog.text


async def test_an_opening_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """S-10, S-30: an error response of the source stays one; what else it raises is hidden."""
    wire, source = Wire(), Script()
    source.open_takes = errors.ServerBusy("full", retry_after=7)
    with pytest.raises(errors.ServerBusy, match="full"):
        await run(source, wire)
    source.open_takes = ZeroDivisionError("secret")
    with pytest.raises(errors.InternalError) as caught:
        await run(source, wire)
    assert "secret" not in str(caught.value)
    assert "ZeroDivisionError: secret" in caplog.text
    source.prepare = lambda handle: None

    class NoHandle(SubscriptionSource):
        async def open(self, wanted: Any, context: Any) -> Any:
            await trio.lowlevel.checkpoint()

    with pytest.raises(errors.InternalError, match="subscription source failed"):
        await run(NoHandle(), wire)
    assert wire.attempts == 0


# Authorisation


async def test_what_the_caller_may_not_see_is_left_out() -> None:
    """S-40, S-45: per field and per URI, silently, and the source is not offered it."""
    asked: list[tuple[str, str | None]] = []

    async def authorize(field: str, value: str | None, context: SubscriptionContext) -> bool:
        await trio.lowlevel.checkpoint()
        assert context.subscription_id == 1
        asked.append((field, value))
        return field not in ("toolsListChanged", "y") and value not in ("note://b", "t2")

    source, wire = Script(trio.EndOfChannel()), Wire()
    wanted = SubscriptionFilter(
        True,
        True,
        False,
        ("note://a", "note://b", "note://c"),
        ("t1", "t2"),
        {"x": [1, 2], "y": True},
    )
    fields = {"taskIds", "x", "y"}
    await run(source, wire, wanted, authorize=authorize, extension_fields=fields)
    granted = {
        "promptsListChanged": True,
        "resourceSubscriptions": ["note://a", "note://c"],
        "taskIds": ["t1"],
        "x": [1, 2],
    }
    assert wire.frames[0]["params"]["notifications"] == granted
    assert source.offered[0].to_wire() == granted
    assert sorted(asked, key=str) == sorted(
        [
            ("toolsListChanged", None),
            ("promptsListChanged", None),
            *(("resourceSubscriptions", uri) for uri in wanted.resource_subscriptions),
            ("taskIds", "t1"),
            ("taskIds", "t2"),
            ("x", None),
            ("y", None),
        ],
        key=str,
    )


async def test_refused_altogether() -> None:
    async def authorize(field: str, value: str | None, context: SubscriptionContext) -> bool:
        await trio.lowlevel.checkpoint()
        return False

    source, wire = Script(), Wire()
    result = await run(source, wire, authorize=authorize)
    assert wire.frames[0]["params"]["notifications"] == {}
    assert result["_meta"]["org.mcp-trio/end"] == {"reason": "nothing-granted"}
    assert source.offered == []


async def test_an_authorizer_that_fails_closes_the_door(caplog: pytest.LogCaptureFixture) -> None:
    """S-45, fail closed: nothing is opened and nothing is told, whatever it raised."""

    async def broken(field: str, value: str | None, context: SubscriptionContext) -> bool:
        await trio.lowlevel.checkpoint()
        if value == "note://a":
            raise errors.InvalidParams("secret")
        return True

    source, wire = Script(), Wire()
    with pytest.raises(errors.InternalError) as caught:
        await run(source, wire, authorize=broken)
    assert caught.value.message == "subscription authorizer failed"
    assert caught.value.data is None
    assert wire.attempts == 0
    assert source.offered == []
    assert "secret" in caplog.text
    with pytest.raises(errors.InternalError):
        await run(source, wire, authorize=lambda *_: True)


# Pulling and writing


async def test_one_pull_one_write(autojump_clock: trio.testing.MockClock) -> None:
    """S-24, S-25: no pull before the ack is written, no second one before the first event is."""
    source = Script(ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())
    wire = Wire(blocked=True)
    async with running(source, wire):
        for written in range(4):
            await trio.sleep(1)
            assert len(wire.frames) == written
            assert source.handle.pulls == written
            wire.waiting.unpark()
            await trio.sleep(1)
    assert source.handle.pulls == 4


async def test_events_are_filtered_again_when_written() -> None:
    """S-05, S-25: what a source sends without being asked is left out, and it is pulled on."""
    source = Script(
        ToolsListChanged(),
        ResourceUpdated("note://b"),
        ResourceUpdated("note://a/b"),
        ExtensionEvent("notifications/x", {}, {"x": 1}),
        ResourceUpdated("note://a"),
        trio.EndOfChannel(),
    )
    wire = Wire()
    await run(source, wire, SubscriptionFilter(resource_subscriptions=("note://a",)))
    assert [frame["params"].get("uri") for frame in wire.frames] == [None, "note://a"]
    assert source.handle.pulls == 6


async def test_a_source_may_declare_sub_resources() -> None:
    source = Script(
        ResourceUpdated("note://a/b"), ResourceUpdated("note://ab"), trio.EndOfChannel()
    )
    source.emits_sub_resources = True
    wire = Wire()
    await run(source, wire)
    assert [frame["params"].get("uri") for frame in wire.frames] == [None, "note://a/b"]


async def test_an_endless_source_of_the_wrong_events_stops_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """S-65: even one whose `receive` never waits."""

    class Busy(Handle):
        async def receive(self) -> Any:
            return ToolsListChanged()

    class BusySource(Script):
        async def open(self, wanted: Any, context: Any) -> SourceHandle:
            self.handle = Busy(wanted, [])
            await trio.lowlevel.checkpoint()
            return self.handle

    source = BusySource()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            wanted = SubscriptionFilter(prompts_list_changed=True)
            nursery.start_soon(run, source, Wire(), wanted)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            scope.cancel()
    assert [reason.kind for reason in source.handle.closed] == ["cancelled"]


async def test_a_resync_becomes_every_cue() -> None:
    """The wire has no word for it; each core key of the accepted filter is said."""
    source, wire = Script(Resync("gap"), trio.EndOfChannel()), Wire()
    await run(source, wire)
    assert wire.methods[1:] == [
        "tools/list_changed",
        "prompts/list_changed",
        "resources/list_changed",
        "resources/updated",
    ]


async def test_a_loss_is_told_with_the_next_event() -> None:
    """S-66, C-24: in order, once."""
    event = ExtensionEvent("notifications/x", {"n": 1}, {"x": 1})
    source = Script(
        event,
        EventsDropped(2),
        EventsDropped(3),
        ToolsListChanged(),
        event,
        event,
        EventsDropped(7),
        trio.EndOfChannel(),
    )
    wire = Wire()
    result = await run(
        source, wire, SubscriptionFilter(extensions={"x": 1}), extension_fields={"x"}
    )
    dropped = [frame["params"]["_meta"].get("org.mcp-trio/dropped") for frame in wire.frames]
    assert dropped == [None, None, 5, None]
    assert result["_meta"]["org.mcp-trio/dropped"] == 7


@pytest.mark.parametrize(
    "step",
    [
        ZeroDivisionError("secret"),
        ExceptionGroup("several", [ValueError("secret")]),
        errors.InvalidParams("secret"),
        trio.ClosedResourceError("secret"),
        trio.BrokenResourceError("secret"),
        "secret",
        None,
        {"method": "secret"},
        ExtensionEvent("notifications/progress", {"secret": 1}, {"x": 1}),
        ExtensionEvent("notifications/x", {"secret": float("nan")}, {"x": 1}),
    ],
)
async def test_a_failing_source_ends_this_stream_with_an_error(
    step: Step, caplog: pytest.LogCaptureFixture
) -> None:
    """S-30, S-87, W63: -32603 to the client, the traceback to the log."""
    source, wire = Script(ToolsListChanged(), step), Wire()
    wanted = SubscriptionFilter(True, extensions={"x": 1})
    with pytest.raises(errors.InternalError) as caught:
        await run(source, wire, wanted, extension_fields={"x"})
    assert (caught.value.code, caught.value.message) == (-32603, "subscription source failed")
    assert caught.value.data is None
    assert wire.methods == ["subscriptions/acknowledged", "tools/list_changed"]
    (reason,) = source.handle.closed
    assert reason.kind == "error"
    assert reason.cause is caught.value
    assert len(caplog.records) == 1
    if isinstance(step, Exception):
        assert "Traceback" in caplog.text
        assert "secret" in caplog.text


# Endings


async def test_the_source_ends(caplog: pytest.LogCaptureFixture) -> None:
    """S-81."""
    for ended, reason in [(None, "complete"), (End("revoked"), "revoked")]:
        source, wire = Script(trio.EndOfChannel()), Wire()
        source.prepare = lambda handle, ended=ended: setattr(handle, "ended", ended)  # type: ignore[misc]
        result = await run(source, wire)
        assert result["_meta"]["org.mcp-trio/end"] == {"reason": reason}
        assert source.handle.closed == [CloseReason("complete", reason)]
    assert caplog.records == []


async def test_cancelling_ends_it_without_a_word() -> None:
    """S-80, S-29, S-31, P-24: no frame after it, though the source says nothing; it hears who."""
    for text, expected in [
        (None, CloseReason("cancelled", "")),
        ("user pressed stop", CloseReason("cancelled", "user pressed stop")),
        (DISCONNECTED, CloseReason("disconnected", "")),
        (DISCONNECTED + ": EOF", CloseReason("disconnected", "EOF")),
    ]:
        source, wire = Script(ToolsListChanged()), Wire()
        async with running(source, wire) as stream:
            stream.scope.cancel(text)
            await stream.done.wait()
            assert stream.scope.cancelled_caught
            assert stream.result is None
        assert source.handle.closed == [expected]
        assert len(wire.frames) == 2


@pytest.mark.parametrize("at", [0, 1])
async def test_a_peer_that_has_gone(at: int) -> None:
    """S-28, S-29: a failing write, of the ack or of an event, is a disconnect."""
    source, wire = Script(0.01, ToolsListChanged()), Wire()
    gone = trio.BrokenResourceError("gone")
    wire.fail = gone if at == 0 else None
    async with running(source, wire) as stream:
        wire.fail = gone
        await stream.done.wait()
        assert stream.error is gone
    (reason,) = source.handle.closed
    assert reason == CloseReason("disconnected")
    assert reason.cause is gone
    assert wire.attempts == at + 1


async def test_a_write_that_fails_otherwise() -> None:
    source, wire = Script(ToolsListChanged()), Wire(fail=errors.LocalProtocolError("bug"))
    with pytest.raises(errors.LocalProtocolError):
        await run(source, wire)
    assert [reason.kind for reason in source.handle.closed] == ["error"]


async def test_ending_a_source_that_ends_itself(autojump_clock: trio.testing.MockClock) -> None:
    """The hub's handles: what is queued is written, however slow the client is."""
    hub, wire = Hub(), Wire()
    async with running(hub, wire) as stream:
        wire.blocked = True
        hub.publish(ToolsListChanged())
        await trio.sleep(1)
        hub.publish(PromptsListChanged())
        stream.subscription.end("revoked", retry_after=1)
        stream.subscription.end("complete")
        hub.publish(ResourcesListChanged())
        await trio.sleep(100)
        wire.unblock()
        await stream.done.wait()
        assert stream.end == {"reason": "revoked", "retryAfterMs": 1000}
    assert wire.methods[1:] == ["tools/list_changed", "prompts/list_changed"]


@pytest.mark.parametrize("honours", [False, RuntimeError("broken")])
async def test_ending_a_source_that_does_not_care(
    honours: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """S-81 for hand-written sources: stopped at once, between two events."""
    source, wire = Script(ToolsListChanged()), Wire()
    source.prepare = lambda handle: setattr(handle, "honours", honours)
    async with running(source, wire) as stream:
        started = trio.current_time()
        stream.subscription.end("shutdown")
        await stream.done.wait()
        assert trio.current_time() == started
        assert stream.end == {"reason": "shutdown"}
    assert source.handle.asked == [End("shutdown")]
    assert source.handle.closed == [CloseReason("complete", "shutdown")]


async def test_ending_during_a_write_finishes_the_write(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source, wire = Script(1.0, ToolsListChanged(), PromptsListChanged()), Wire()
    async with running(source, wire) as stream:
        wire.blocked = True
        await trio.sleep(2)
        assert wire.attempts == 2
        stream.subscription.end("shutdown")
        await trio.sleep(2)
        wire.unblock()
        await stream.done.wait()
        assert stream.end == {"reason": "shutdown"}
    assert wire.methods[1:] == ["tools/list_changed"]
    assert source.handle.pulls == 1


@pytest.mark.parametrize("endless", [False, True])
async def test_ending_a_source_that_says_it_will_and_does_not(
    endless: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """It gets some seconds; neither silence nor a flood of events makes it more."""
    steps = [step for _ in range(1000) for step in (1.0, ToolsListChanged())] if endless else []
    source, wire = Script(*steps), Wire()
    source.prepare = lambda handle: setattr(handle, "honours", True)
    async with running(source, wire) as stream:
        started = trio.current_time()
        stream.subscription.end("shutdown")
        await stream.done.wait()
        assert trio.current_time() == pytest.approx(started + CLOSE_GRACE)
        assert stream.end == {"reason": "shutdown"}
    assert len(wire.frames) == (5 if endless else 1)


async def test_ending_one_that_is_still_being_opened(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """S-85, S-86: refused at once, with nothing acknowledged."""
    source, wire = Script(), Wire()
    source.open_takes = 60
    async with running(source, wire) as stream:
        started = trio.current_time()
        stream.subscription.end("shutdown")
        await stream.done.wait()
        assert isinstance(stream.error, errors.ServerBusy)
        assert trio.current_time() == started
    assert wire.attempts == 0
    assert source.handle.closed == []


async def test_ending_it_before_it_begins_or_after_its_end() -> None:
    source, wire = Script(), Wire()
    with pytest.raises(errors.ServerBusy):
        await run(source, wire, on_open=lambda subscription: subscription.end())
    found: list[OpenSubscription] = []
    source = Script(trio.EndOfChannel())
    await run(source, wire, on_open=found.append)
    found[0].end("late")
    assert source.handle.asked == []


async def test_ending_it_just_when_it_has_opened() -> None:
    """The handle is there, the acknowledgement is not: it is acknowledged, then ended."""
    source, wire = Script(ToolsListChanged()), Wire()
    found: list[OpenSubscription] = []
    source.prepare = lambda handle: found[0].end("shutdown")
    result = await run(source, wire, on_open=found.append)
    assert result["_meta"]["org.mcp-trio/end"] == {"reason": "shutdown"}
    assert wire.methods == ["subscriptions/acknowledged"]
    assert source.handle.closed == [CloseReason("complete", "shutdown")]


@pytest.mark.parametrize("source", [Hub, Script])
async def test_expiry(source: type[Any], autojump_clock: trio.testing.MockClock) -> None:
    """P-15, W68: a subscription does not outlive the credentials; nothing is written after."""
    origin, wire = source(), Wire()
    expires = trio.current_time() + 10
    async with running(origin, wire, expires_at=expires) as stream:
        await stream.done.wait()
        assert trio.current_time() == pytest.approx(expires)
        assert stream.end == {"reason": "expired"}
    assert len(wire.frames) == 1


async def test_expiry_while_events_wait(autojump_clock: trio.testing.MockClock) -> None:
    hub, wire = Hub(), Wire()
    async with running(hub, wire, expires_at=trio.current_time() + 10) as stream:
        wire.blocked = True
        hub.publish(ToolsListChanged())
        await trio.sleep(1)
        hub.publish(PromptsListChanged())
        await trio.sleep(20)
        wire.unblock()
        await stream.done.wait()
        assert stream.end == {"reason": "expired"}
    assert wire.methods[1:] == ["tools/list_changed"]
    assert hub.statistics().subscriptions == 0


async def test_an_event_that_comes_as_the_credentials_end() -> None:
    """The source held the loop beyond the expiry: the event is not for this caller any more."""
    clock = trio.testing.MockClock()

    class Late(Handle):
        async def receive(self) -> Any:
            clock.jump(100)
            return ToolsListChanged()

    class LateSource(Script):
        async def open(self, wanted: Any, context: Any) -> SourceHandle:
            await trio.lowlevel.checkpoint()
            return Late(wanted, [])

    def main() -> Any:
        return run(LateSource(), wire, expires_at=clock.current_time() + 50)

    wire = Wire()
    result = await trio.to_thread.run_sync(lambda: trio.run(main, clock=clock))
    assert result["_meta"]["org.mcp-trio/end"] == {"reason": "expired"}
    assert len(wire.frames) == 1


async def test_already_expired() -> None:
    result = await run(Script(ToolsListChanged()), Wire(), expires_at=-math.inf)
    assert result["_meta"]["org.mcp-trio/end"] == {"reason": "expired"}


async def test_server_end_while_credentials_last(autojump_clock: trio.testing.MockClock) -> None:
    hub, wire = Hub(), Wire()
    async with running(hub, wire, expires_at=trio.current_time() + 10) as stream:
        stream.subscription.end("complete")
        await stream.done.wait()
        assert stream.end == {"reason": "complete"}


# Closing


@pytest.mark.parametrize(
    "close_takes",
    [ValueError("broken"), ExceptionGroup("several", [ValueError("broken")]), 60.0],
)
async def test_a_close_that_fails_or_hangs_changes_nothing(
    close_takes: Any, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """S-28, W64: logged and swallowed, within its deadline, also under cancellation."""
    for cancel in (False, True):
        source, wire = Script(*([] if cancel else [trio.EndOfChannel()])), Wire()
        source.prepare = lambda handle: setattr(handle, "close_takes", close_takes)
        caplog.clear()
        async with running(source, wire) as stream:
            started = trio.current_time()
            if cancel:
                stream.scope.cancel()
            await stream.done.wait()
            assert trio.current_time() - started <= CLOSE_GRACE
            assert (stream.result is None) is cancel
            assert stream.scope.cancelled_caught is cancel
        assert len(source.handle.closed) == 1
        assert len(caplog.records) == 1
        assert "close" in caplog.records[0].message


async def test_a_close_may_take_its_time_under_cancellation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """S-28, W64: it is shielded."""
    finished = []

    class Slow(Handle):
        async def aclose(self, reason: CloseReason) -> None:
            await trio.sleep(1)
            finished.append(reason)

    class SlowSource(Script):
        async def open(self, wanted: Any, context: Any) -> SourceHandle:
            await trio.lowlevel.checkpoint()
            return Slow(wanted, [])

    async with running(SlowSource(), Wire()) as stream:
        stream.scope.cancel()
        await stream.done.wait()
    assert finished == [CloseReason("cancelled")]


async def test_one_bad_stream_harms_no_other() -> None:
    """S-65, W63: a failing write, a cancelled one and a stalled one beside a healthy one."""
    hub = Hub()
    wires = [Wire() for _ in range(4)]
    async with (
        running(hub, wires[0]) as broken,
        running(hub, wires[1]) as cancelled,
        running(hub, wires[2]),
        running(hub, wires[3]),
    ):
        wires[0].fail = trio.BrokenResourceError()
        wires[2].blocked = True
        hub.publish(ToolsListChanged())
        cancelled.scope.cancel()
        await broken.done.wait()
        for _ in range(1000):
            hub.publish(ResourceUpdated("note://a"))
        await trio.sleep(0.05)
        assert wires[3].methods[1:] == ["tools/list_changed", "resources/updated"]
        assert hub.statistics().queued == 1
        wires[2].unblock()
        await trio.sleep(0.05)
        assert wires[2].methods == wires[3].methods
        assert len(wires[1].frames) == 1


# Retention


async def test_a_stream_keeps_nothing_of_its_request() -> None:
    """S-23: the filter, the authorizer and what they hold go once the source is open."""

    class Body(dict[str, Any]):
        pass

    class Authorize:
        def __init__(self, body: Body) -> None:
            self.body = body

        async def __call__(
            self, field: str, value: str | None, context: SubscriptionContext
        ) -> bool:
            await trio.lowlevel.checkpoint()
            return True

    hub, wire = Hub(), Wire()
    gone: list[weakref.ref[Any]] = []

    async def listen() -> None:
        body = Body(padding="x" * 100_000)
        wanted = SubscriptionFilter(True, extensions={"x": 1})
        gone.extend((weakref.ref(body), weakref.ref(wanted)))
        awaitable = run(hub, wire, wanted, authorize=Authorize(body))
        del body, wanted
        await awaitable

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        # `run` above has the filter as an argument of its own; what matters is the body.
        assert gone[0]() is not None  # held by `run`'s options, not by the runner
        nursery.cancel_scope.cancel()

    gone.clear()

    async def listen_directly() -> None:
        body = Body(padding="x" * 100_000)
        wanted = SubscriptionFilter(True, extensions={"x": 1})
        gone.extend((weakref.ref(body), weakref.ref(wanted)))
        awaitable = run_subscription(
            request_id=1,
            wanted=wanted,
            source=hub,
            context=SubscriptionContext(1, client_info=body),
            exchange=wire,
            authorize=Authorize(body),
        )
        del body, wanted
        await awaitable

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen_directly)
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        assert [ref() for ref in gone] == [None, None]
        nursery.cancel_scope.cancel()


def test_a_context_is_small() -> None:
    """S-23: of what the client says about itself, name and version, and not at any length."""
    info = {"name": "n" * 10_000, "version": "1", "icons": ["x" * 10_000], "title": 5}
    context = SubscriptionContext(1, client_info=info)
    assert context.client_info == {"name": "n" * 256, "version": "1"}
    assert SubscriptionContext(1, client_info={"name": 5}).client_info == {}
    assert SubscriptionContext(1).client_info is None


async def test_the_default_of_a_source() -> None:
    class Least(SourceHandle):
        accepted = ALL

        async def receive(self) -> Any:
            await trio.sleep_forever()

        async def aclose(self, reason: CloseReason) -> None:
            await trio.lowlevel.checkpoint()

    handle = Least()
    assert handle.end is None
    assert not handle.complete(End())
    await Script().drain(0.0)
