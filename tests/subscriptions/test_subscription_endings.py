"""Each of the ways in which one subscription ends, and how its source is closed."""

import math
from typing import Any

import pytest
import trio
import trio.testing
from subscription_kit import Handle, Script, Wire, run, running

from mcp_trio import errors
from mcp_trio.subscriptions.events import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import (
    CloseReason,
    End,
    SourceHandle,
)
from mcp_trio.subscriptions.stream import (
    CLOSE_GRACE,
    DISCONNECTED,
    OpenSubscription,
)

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
