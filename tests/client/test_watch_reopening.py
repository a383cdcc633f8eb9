"""When a watch opens its stream again, how often, and when it does not."""

import math
from typing import Any

import pytest
import trio
from watch_kit import FakePeer, drain, highest_delays, settle

from mcp_trio import errors
from mcp_trio._backoff import Backoff
from mcp_trio.client.subscription import SubscriptionEnd
from mcp_trio.client.watch import failures
from mcp_trio.subscriptions.events import PromptsListChanged, Resync, ToolsListChanged
from mcp_trio.subscriptions.filter import SubscriptionFilter

TOOLS = SubscriptionFilter(tools_list_changed=True)
BOTH = SubscriptionFilter(tools_list_changed=True, prompts_list_changed=True)
BUSY = errors.HttpStatusError("busy", status=503)


@pytest.fixture(autouse=True)
def _no_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    highest_delays(monkeypatch)


def times(peer: FakePeer) -> list[float]:
    return [round(moment, 6) for moment in peer.attempts]


async def test_failures_back_off(autojump_clock: trio.abc.Clock) -> None:
    """C-45, P-03: 100 ms, doubling, up to 30 s; and never an end to it."""
    peer = FakePeer()
    peer.answer = lambda wanted: BUSY
    with trio.move_on_after(200):
        async with peer.watch(TOOLS):
            pytest.fail("it was entered")
    gaps = [b - a for a, b in zip(peer.attempts, peer.attempts[1:], strict=False)]
    expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, *[30.0] * 4]
    assert gaps == pytest.approx(expected)


async def test_an_ending_at_once_is_a_failure(autojump_clock: trio.abc.Clock) -> None:
    """P-04, scenario 53: a clean end right after the acknowledgement does not reset the pauses."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        for _ in range(6):
            peer.stream.finish()
            await settle()
            await changes.wait_open()
        assert times(peer) == [0.0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3]
        assert changes.statistics().losses == 6
        assert changes.statistics().failures == 0
        await trio.sleep(9.9)
        peer.stream.finish()
        await settle()
        assert changes.statistics().failures == 7
        assert changes.statistics().next_attempt == pytest.approx(6.3 + 9.9 + 6.4)
        await changes.wait_open()
        await trio.sleep(10)  # it has lasted
        peer.stream.cut()
        await settle()
        assert changes.statistics().next_attempt == pytest.approx(22.6 + 10 + 0.1)


async def test_a_result_without_an_acknowledgement_is_a_failure(
    autojump_clock: trio.abc.Clock,
) -> None:
    """W16, C-04: opened and closed already; that is no stream, and it is tried again."""
    peer = FakePeer()
    answers: list[Any] = [SubscriptionEnd("graceful"), SubscriptionEnd("cancelled", "busy"), None]
    peer.answer = lambda wanted: answers.pop(0)
    async with peer.watch(TOOLS) as changes:
        assert times(peer) == [0.0, 0.1, 0.3]
        assert changes.statistics().losses == 0
        assert "tore down" in (changes.statistics().last_cause or "")
        assert await drain(changes) == []


@pytest.mark.parametrize(
    "problem",
    [
        errors.HttpStatusError("429", status=429, retry_after=20),
        errors.HttpStatusError("503", status=503, retry_after=20),
        errors.ServerBusy("full", retry_after=20),
        errors.ErrorResponse("overloaded", code=-32000, data={"retryAfterMs": 20_000}),
    ],
    ids=repr,
)
async def test_what_the_server_asks_for_is_honoured(
    problem: Exception, autojump_clock: trio.abc.Clock
) -> None:
    """P-03: `Retry-After`, and `retryAfterMs` of an error; the backoff comes on top."""
    peer = FakePeer()
    answers: list[Any] = [problem, None]
    peer.answer = lambda wanted: answers.pop(0)
    async with peer.watch(TOOLS):
        assert times(peer) == [0.0, 20.1]


async def test_an_end_says_when_to_come_back(autojump_clock: trio.abc.Clock) -> None:
    """P-12: servers that stop spread their clients; P-02: and say why they stop."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        peer.stream.finish("shutdown", retry_after=7.5)
        assert await changes.receive() == Resync("the server ended the subscription: shutdown")
        assert times(peer) == [0.0, 7.6]


async def test_a_loss_says_when_to_come_back(autojump_clock: trio.abc.Clock) -> None:
    """An error response in the middle of a stream, which has a wish."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        peer.stream.cut(errors.ServerBusy("overload", retry_after=3))
        await changes.receive()
        assert times(peer) == [0.0, 3.1]


async def test_nobody_can_ask_for_silence_for_ever(autojump_clock: trio.abc.Clock) -> None:
    """P-03: an hour is the longest wait that is granted."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        peer.stream.finish("shutdown", retry_after=1e12)
        await changes.receive()
        assert times(peer) == [0.0, 3600.1]


FINAL: list[Exception] = [
    errors.HttpStatusError("who are you?", status=401),
    errors.HttpStatusError("not you", status=403),
    errors.MethodNotFound("no"),
    errors.InvalidParams("no"),
    errors.InvalidRequest("no"),
    errors.HeaderMismatch("no"),
    errors.MissingRequiredClientCapability("no", required={}),
    errors.UnsupportedProtocolVersion(requested="x", supported=()),
    errors.LocalProtocolError("no"),
    errors.ListenNotSupported("no"),
    trio.ClosedResourceError("closed"),
]
PASSING: list[Exception] = [
    errors.HttpStatusError("timeout", status=408),
    errors.HttpStatusError("too many", status=429),
    errors.HttpStatusError("broken", status=500),
    errors.HttpStatusError("bad gateway", status=502),
    errors.InternalError("broken"),
    errors.ErrorResponse("whatever", code=-32000),
    errors.ErrorResponse("whatever", code=17),
    errors.ConnectionLost("refused"),
    errors.SubscriptionLost("cut"),
    errors.AcknowledgementTimeout("nothing came"),
]
FINAL_AT_FIRST: list[Exception] = [
    errors.HttpStatusError("moved", status=301),
    errors.HttpStatusError("not here", status=404),
    errors.HttpStatusError("not so", status=405),
    errors.RemoteProtocolError("a web page"),
    errors.McpError("something else"),
]


def caused(problem: Exception, cause: Exception) -> Exception:
    problem.__cause__ = cause
    return problem


@pytest.mark.parametrize("problem", [*FINAL, *FINAL_AT_FIRST], ids=repr)
async def test_what_will_not_pass_is_raised_on_entering(
    problem: Exception, autojump_clock: trio.abc.Clock
) -> None:
    """C-48, P-03: at once, as itself, after one attempt."""
    peer = FakePeer()
    peer.answer = lambda wanted: problem
    with pytest.raises(type(problem)) as caught:
        async with peer.watch(TOOLS):
            pytest.fail("it was entered")
    assert caught.value is problem
    assert times(peer) == [0.0]


@pytest.mark.parametrize("problem", FINAL, ids=repr)
async def test_what_will_not_pass_ends_the_watch(
    problem: Exception, autojump_clock: trio.abc.Clock
) -> None:
    """C-48: loudly, after what was received before."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        peer.stream.say(ToolsListChanged())
        peer.stream.cut()
        peer.answer = lambda wanted: problem
        await trio.sleep(1000)
        assert await changes.receive() == ToolsListChanged()
        with pytest.raises(errors.WatchEnded) as caught:
            await changes.receive()
        assert caught.value.reason == "refused"
        assert caught.value.__cause__ is problem
        assert times(peer) == [0.0, 0.1]
        statistics = changes.statistics()
        assert not statistics.open
        assert statistics.streams == 0


@pytest.mark.parametrize("problem", [*PASSING, *FINAL_AT_FIRST], ids=repr)
async def test_what_may_pass_is_tried_again(
    problem: Exception, autojump_clock: trio.abc.Clock
) -> None:
    """P-03: what has worked before is not given up for a gateway's bad day."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        peer.answer = lambda wanted: problem
        peer.stream.cut()
        await trio.sleep(60)
        statistics = changes.statistics()
        assert not statistics.open
        assert statistics.uptime == 0
        assert statistics.since == 0
        assert statistics.failures == len(peer.attempts) == 10
        assert str(problem) in (statistics.last_cause or "")
        assert repr(changes) == "<Watcher reopening>"
        peer.answer = lambda wanted: None
        await changes.wait_open()
        assert await drain(changes) == [Resync("cut")]
        assert repr(changes) == "<Watcher open>"


def test_which_failure_is_which() -> None:
    """The status says more than the error beside it."""
    for known in (False, True):
        assert all(failures.is_final(problem, known=known) for problem in FINAL)
        assert not any(failures.is_final(problem, known=known) for problem in PASSING)
        odd = caused(errors.MethodNotFound("no"), BUSY)
        assert not failures.is_final(odd, known=known)
        strict = caused(errors.InternalError("no"), FINAL[0])
        assert failures.is_final(strict, known=known)
    assert failures.is_too_large(errors.HttpStatusError("large", status=413))
    assert failures.is_too_large(errors.InvalidParams("too many"))
    assert not failures.is_too_large(errors.InternalError("no"))
    assert failures.retry_after(None) == 0
    busy = errors.ServerBusy("x", retry_after=2)
    assert failures.retry_after(caused(errors.McpError(), busy)) == 2


@pytest.mark.parametrize("reason", ["revoked", "nothing-granted"])
async def test_ends_that_are_meant(reason: str, autojump_clock: trio.abc.Clock) -> None:
    """C-44: what the server has withdrawn is not asked for again."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        peer.stream.finish(reason)
        with pytest.raises(errors.WatchEnded, match=reason) as caught:
            await changes.receive()
        assert caught.value.reason == reason
        assert caught.value.__cause__ is None
        assert times(peer) == [0.0]


@pytest.mark.parametrize("reason", ["shutdown", "overflow", "expired", "complete", None, "new"])
async def test_ends_that_are_not(reason: str | None, autojump_clock: trio.abc.Clock) -> None:
    """C-44: whoever stops at a clean end goes deaf; servers end streams for many reasons."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        peer.stream.finish(reason)
        assert isinstance(await changes.receive(), Resync)


async def test_nothing_granted_and_the_end(autojump_clock: trio.abc.Clock) -> None:
    """A server that grants nothing and says no reason means it all the same."""
    peer = FakePeer()
    peer.answer = lambda wanted: SubscriptionFilter()
    async with peer.watch(TOOLS) as changes:
        assert changes.declined == TOOLS
        peer.stream.finish()
        with pytest.raises(errors.WatchEnded) as caught:
            await changes.receive()
        assert caught.value.reason == "nothing-granted"


async def test_refused_on_entering_with_a_reason(autojump_clock: trio.abc.Clock) -> None:
    """A result at once that says that nothing is granted."""
    peer = FakePeer()
    peer.answer = lambda wanted: SubscriptionEnd("graceful", "nothing-granted")
    with pytest.raises(errors.WatchEnded) as caught:
        async with peer.watch(TOOLS):
            pytest.fail("it was entered")
    assert caught.value.reason == "nothing-granted"


async def test_narrowed_and_widened(autojump_clock: trio.abc.Clock) -> None:
    """C-46, scenario 52: what is not granted any more is named; what is again can be seen."""
    peer = FakePeer()
    async with peer.watch(BOTH) as changes:
        assert changes.acknowledged == BOTH
        peer.answer = lambda wanted: TOOLS
        peer.stream.finish()
        assert await changes.receive() == Resync(
            "the server ended the subscription", ("promptsListChanged",)
        )
        assert changes.acknowledged == TOOLS
        assert changes.declined == SubscriptionFilter(prompts_list_changed=True)
        peer.answer = lambda wanted: None
        peer.stream.finish()
        resync = await changes.receive()
        assert isinstance(resync, Resync)
        assert resync.narrowed == ()
        assert changes.acknowledged == BOTH
        # The filter that was asked for, and not what was granted of it, is asked for again.
        assert peer.asked == [BOTH, BOTH, BOTH]


async def test_several_gaps_and_one_cue(autojump_clock: trio.abc.Clock) -> None:
    """P-01, W20: a slow consumer of a bad connection is told once, and nothing piles up."""
    peer = FakePeer()
    async with peer.watch(BOTH) as changes:
        peer.say(ToolsListChanged())
        for granted in (TOOLS, None, TOOLS, None):
            peer.answer = lambda wanted, granted=granted: granted  # type: ignore[misc]
            await settle()
            peer.stream.finish()
            await changes.wait_open() if changes.statistics().open is False else None
            await trio.sleep(11)
            peer.say(ToolsListChanged())
            peer.say(PromptsListChanged())
        await settle()
        received = await drain(changes)
        assert received == [
            ToolsListChanged(),
            Resync("the server ended the subscription", ()),
            ToolsListChanged(),
            PromptsListChanged(),
        ]
        assert changes.statistics().resyncs == 1
        assert changes.statistics().reopened == 4


@pytest.mark.parametrize("after", [25.0, math.inf])
async def test_giving_up(after: float, autojump_clock: trio.abc.Clock) -> None:
    """C-45, C-48: if the caller has said for how long; with the last cause."""
    peer = FakePeer()
    async with peer.watch(TOOLS, give_up_after=after) as changes:
        await trio.sleep(100)  # while there is a stream, nothing is given up
        peer.answer = lambda wanted: BUSY
        peer.stream.cut()
        with trio.move_on_after(50):
            with pytest.raises(errors.WatchEnded, match="busy") as caught:
                await changes.receive()
            assert caught.value.reason == "gave-up"
            assert caught.value.__cause__ is BUSY
            assert trio.current_time() == 100 + after
            return
        assert after == math.inf


async def test_giving_up_on_entering(autojump_clock: trio.abc.Clock) -> None:
    """An attempt under way is cut short, and one that lasts for no time is no success."""
    peer = FakePeer()
    peer.latency = 8
    answers: list[Any] = [BUSY, SubscriptionEnd("graceful")]
    peer.answer = lambda wanted: answers.pop(0)
    with pytest.raises(errors.WatchEnded) as caught:
        async with peer.watch(TOOLS, give_up_after=20):
            pytest.fail("it was entered")
    assert caught.value.reason == "gave-up"
    assert trio.current_time() == 20
    assert times(peer) == [0.0, 8.1, 16.3]


async def test_giving_up_on_streams_that_do_not_last(autojump_clock: trio.abc.Clock) -> None:
    """P-04: a stream that is closed at once does not count as one."""
    peer = FakePeer()
    async with peer.watch(TOOLS, give_up_after=20) as changes:
        with pytest.raises(errors.WatchEnded):
            while True:
                await changes.wait_open()
                peer.stream.finish()
                await settle()
    assert trio.current_time() == 20


async def test_an_own_backoff(autojump_clock: trio.abc.Clock) -> None:
    """C-45: the rule is the caller's, if wanted."""
    peer = FakePeer()
    async with peer.watch(TOOLS, backoff=Backoff(initial=5, maximum=5, min_uptime=1)) as changes:
        for _ in range(3):
            peer.stream.cut()
            await changes.receive()
        assert times(peer) == [0.0, 5.0, 10.0, 15.0]


async def test_a_dead_transport_is_not_waited_for(autojump_clock: trio.abc.Clock) -> None:
    """C-48: ExMCP's two drivers; here what can open nothing any more says so."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        peer.answer = lambda wanted: errors.ConnectionLost("the child has ended")
        peer.ended = True
        peer.stream.cut()
        with pytest.raises(errors.WatchEnded, match="child"):
            await changes.receive()


async def test_a_transport_that_is_coming_back_is_waited_for(
    autojump_clock: trio.abc.Clock,
) -> None:
    """C-42, scenario 51: one driver each. The stream waits while the process is started anew."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        peer.latency = 300  # the child takes its time; nothing is asked twice meanwhile
        peer.stream.cut()
        assert isinstance(await changes.receive(), Resync)
        assert times(peer) == [0.0, 0.1]


async def test_bugs_are_not_retried(autojump_clock: trio.abc.Clock) -> None:
    """What is no failure of the peer comes out of the block as it is."""
    peer = FakePeer()
    peer.answer = lambda wanted: ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        async with peer.watch(TOOLS):
            pytest.fail("it was entered")


async def test_cancelled_anywhere(autojump_clock: trio.abc.Clock) -> None:
    """Scenario 55: entering, receiving and leaving, cut at every step; nothing is left behind."""

    async def disturb(peer: FakePeer, steps: int, scope: trio.CancelScope) -> None:
        for step in range(steps):
            await trio.lowlevel.checkpoint()
            if step % 7 == 3 and peer.streams:
                peer.stream.cut()
            if step % 5 == 4:
                await trio.sleep(0.4)
        scope.cancel()

    for steps in range(40):
        peer = FakePeer()
        peer.latency = 1
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(disturb, peer, steps, scope)
                async with peer.watch(TOOLS, snapshot=True) as changes:
                    async for _ in changes:
                        await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert peer.streams == []
