"""The publisher's own way to an idle listener, without its task."""

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from mcp_trio.subscriptions.events import (
    Event,
    EventsDropped,
    ExtensionEvent,
    PromptsListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import (
    CloseReason,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)
from mcp_trio.subscriptions.stream import OpenSubscription, run_subscription

WANTED = SubscriptionFilter(True, True, False, ("note://a",), (), {"x": 1})


@attrs.define
class Wire:
    """An exchange with or without room, which says who wrote what."""

    room: bool = True
    fail: Exception | None = None
    on_write: Any = None
    at_once: list[str] = attrs.field(factory=list)
    moments: list[float | None] = attrs.field(factory=list)
    by_task: list[str] = attrs.field(factory=list)
    control: list[OpenSubscription] = attrs.field(factory=list)
    result: dict[str, Any] | None = None

    def send_nowait(self, frame: bytes, now: float | None = None) -> bool:
        if self.fail is not None:
            raise self.fail
        if self.room:
            self.at_once.append(name(frame))
            self.moments.append(now)
            if self.on_write is not None:
                self.on_write()
        return self.room

    async def send(self, frame: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.by_task.append(name(frame))


def name(frame: bytes) -> str:
    message = json.loads(frame)
    assert message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 7
    of = message["params"].get("uri") or message["method"].removeprefix("notifications/")
    assert isinstance(of, str)
    return of


async def listen(
    nursery: trio.Nursery,
    source: SubscriptionSource,
    wire: Wire,
    *,
    expires_at: float = float("inf"),
) -> trio.CancelScope:
    scope = trio.CancelScope()

    async def run() -> None:
        with scope:
            wire.result = await run_subscription(
                request_id=7,
                wanted=WANTED,
                source=source,
                context=SubscriptionContext(7, expires_at=expires_at),
                exchange=wire,
                extension_fields={"x"},
                on_open=wire.control.append,
            )

    nursery.start_soon(run)
    await trio.testing.wait_all_tasks_blocked()
    assert wire.by_task.pop(0) == "subscriptions/acknowledged"
    return scope


async def test_an_idle_listener_is_written_to_in_the_publishers_turn(
    nursery: trio.Nursery,
) -> None:
    """S-65: no task is woken up, of whatever sort the event is."""
    hub, wire = Hub(sub_resources=True), Wire()
    await listen(nursery, hub, wire)
    events: list[Event] = [
        ToolsListChanged(),
        ToolsListChanged(),
        ResourceUpdated("note://a"),
        ResourceUpdated("note://a/b"),
        ExtensionEvent("notifications/data", {"n": 1}, {"x": 1}),
    ]
    for event in events:
        report = hub.publish(event)
        assert (report.matched, report.delivered, report.buffered) == (1, 1, 0)
    expected = ["tools/list_changed"] * 2 + ["note://a", "note://a/b", "data"]
    assert wire.at_once == expected
    hub.publish(Resync())
    assert sorted(wire.at_once[5:]) == ["note://a", "prompts/list_changed", "tools/list_changed"]
    assert wire.control[0].written == 8
    await trio.testing.wait_all_tasks_blocked()
    assert wire.by_task == []
    hub.close()


async def test_without_room_the_task_writes_and_the_order_stays(nursery: trio.Nursery) -> None:
    """S-65, S-66: what waits is before what comes, even when there is room again."""
    hub, wire = Hub(), Wire(room=False)
    await listen(nursery, hub, wire)
    assert hub.publish(ToolsListChanged()).delivered == 1
    wire.room = True
    # The task has been woken up and has not run: nobody may overtake it.
    report = hub.publish(PromptsListChanged())
    assert (report.delivered, report.buffered) == (0, 1)
    assert hub.publish(ToolsListChanged()).coalesced == 1
    await trio.testing.wait_all_tasks_blocked()
    assert wire.by_task == ["tools/list_changed", "prompts/list_changed"]
    assert wire.at_once == []
    hub.publish(PromptsListChanged())
    assert wire.at_once == ["prompts/list_changed"]
    hub.close()


async def test_nothing_is_written_to_one_that_was_cancelled_or_ended(
    nursery: trio.Nursery,
) -> None:
    """S-28, S-33: not even before its task has had a turn to notice."""
    hub, cancelled, ended = Hub(), Wire(), Wire()
    scope = await listen(nursery, hub, cancelled)
    await listen(nursery, hub, ended)
    scope.cancel()
    ended.control[0].end("revoked")
    hub.publish(ToolsListChanged())
    await trio.testing.wait_all_tasks_blocked()
    assert cancelled.at_once == cancelled.by_task == []
    assert ended.at_once == ended.by_task == []
    assert ended.result is not None


async def test_nothing_is_written_once_the_credentials_have_ended(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    """S-45: the clock counts, and not whether the task has seen it."""
    hub, wire = Hub(), Wire()
    await listen(nursery, hub, wire, expires_at=trio.current_time() + 10)
    hub.publish(ToolsListChanged())
    assert wire.at_once == ["tools/list_changed"]
    mock_clock.jump(11)
    hub.publish(PromptsListChanged())
    assert wire.at_once == ["tools/list_changed"]
    await trio.testing.wait_all_tasks_blocked()
    assert wire.by_task == []
    assert wire.result is not None
    assert wire.result["_meta"]["org.mcp-trio/end"] == {"reason": "expired"}


@pytest.mark.parametrize("fail", [OSError("no"), RuntimeError("bug")])
async def test_a_writer_that_fails_harms_nobody(
    nursery: trio.Nursery, fail: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """S-67: neither the publisher nor the neighbours, and the event is not lost."""
    hub, failing, neighbour = Hub(), Wire(fail=fail), Wire()
    await listen(nursery, hub, failing)
    await listen(nursery, hub, neighbour)
    assert hub.publish(ToolsListChanged()).delivered == 2
    assert "could not be written at once" in caplog.text
    assert neighbour.at_once == ["tools/list_changed"]
    await trio.testing.wait_all_tasks_blocked()
    assert failing.by_task == ["tools/list_changed"]
    hub.close()


async def test_publishing_while_something_is_written(nursery: trio.Nursery) -> None:
    """S-65: a writer's own doing may publish, or end the listener; each event goes out once."""
    hub, wire = Hub(), Wire()
    await listen(nursery, hub, wire)
    again = [PromptsListChanged()]

    def on_write() -> None:
        if again:
            hub.publish(again.pop())
        else:
            wire.control[0].end("revoked")

    wire.on_write = on_write
    hub.publish(ToolsListChanged())
    assert wire.at_once == ["tools/list_changed", "prompts/list_changed"]
    assert not hub.publish(ToolsListChanged()).matched
    await trio.testing.wait_all_tasks_blocked()
    assert wire.by_task == []
    assert wire.result is not None


async def test_a_loss_is_told_before_anything_goes_straight_through(
    nursery: trio.Nursery,
) -> None:
    """S-63: while the client does not know of a loss, the task writes."""
    hub, wire = Hub(), Wire()
    await listen(nursery, hub, wire)
    listener = next(iter(hub._listeners))
    listener.put(1, (EventsDropped(3), 0.0))
    listener.wake()
    await trio.testing.wait_all_tasks_blocked()
    hub.publish(ToolsListChanged())
    assert wire.at_once == []
    await trio.testing.wait_all_tasks_blocked()
    assert wire.by_task == ["tools/list_changed"]
    hub.publish(ToolsListChanged())
    assert wire.at_once == ["tools/list_changed"]
    hub.close()


async def test_one_that_ends_while_others_are_written_to_hears_no_more(
    nursery: trio.Nursery,
) -> None:
    """S-65: whoever listens above the URI may go while the ones before it are written to."""
    hub, first, second = Hub(sub_resources=True), Wire(), Wire()
    await listen(nursery, hub, first)
    await listen(nursery, hub, second)

    def end_both() -> None:
        for wire in (first, second):
            wire.control[0].end("revoked")

    first.on_write = end_both
    report = hub.publish(ResourceUpdated("note://a/b"))
    assert (report.matched, report.delivered, report.buffered) == (2, 1, 1)
    await trio.testing.wait_all_tasks_blocked()
    # It was published before the end, so it comes before the result.
    assert (first.at_once, first.by_task) == (["note://a/b"], [])
    assert (second.at_once, second.by_task) == ([], ["note://a/b"])
    assert first.result is not None
    assert second.result is not None


async def test_the_clock_is_read_once_a_publication(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-65: all listeners are told the same moment, also those whose credentials expire."""
    hub, wires = Hub(sub_resources=True), [Wire() for _ in range(5)]
    for wire in wires:
        await listen(nursery, hub, wire, expires_at=trio.current_time() + 100)
    now, reads = trio.current_time(), 0

    def current_time() -> float:
        nonlocal reads
        reads += 1
        return now

    for event in (ToolsListChanged(), ExtensionEvent("notifications/data", {}, {"x": 1})):
        reads = 0
        with monkeypatch.context() as patch:
            patch.setattr(trio, "current_time", current_time)
            assert hub.publish(event).delivered == 5
        assert reads == 1
    assert all(wire.moments == [now, now] for wire in wires)
    hub.close()


class Hoarder(SourceHandle, SubscriptionSource):
    """Keeps what it may write with for longer than it should."""

    def __init__(self) -> None:
        self.write: Callable[[Event, float], bool] | None = None
        self.ended = trio.Event()
        self.wrote_in_close: bool | None = None

    @property
    def accepted(self) -> SubscriptionFilter:
        return WANTED

    async def open(self, wanted: SubscriptionFilter, context: SubscriptionContext) -> SourceHandle:
        await trio.lowlevel.checkpoint()
        return self

    def write_through(self, write: Callable[[Event, float], bool]) -> None:
        self.write = write

    async def receive(self) -> Event:
        await self.ended.wait()
        raise trio.EndOfChannel

    async def aclose(self, reason: CloseReason) -> None:
        await trio.lowlevel.checkpoint()
        assert self.write is not None
        self.wrote_in_close = self.write(ToolsListChanged(), trio.current_time())


@pytest.mark.parametrize("cancel", [False, True])
async def test_a_source_that_is_closed_writes_nothing_more(
    nursery: trio.Nursery, cancel: bool
) -> None:
    """S-28, S-33: whoever may write is not trusted to know when it is over."""
    source, wire = Hoarder(), Wire()
    scope = await listen(nursery, source, wire)
    assert source.write is not None
    assert source.write(ToolsListChanged(), trio.current_time())
    if cancel:
        scope.cancel()
    source.ended.set()
    await trio.testing.wait_all_tasks_blocked()
    assert source.wrote_in_close is False
    assert not source.write(PromptsListChanged(), trio.current_time())
    assert wire.at_once == ["tools/list_changed"]
    assert (wire.result is None) is cancel
