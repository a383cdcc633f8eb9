"""One subscription from its opening to its end: what is asked of the source, and written."""

import gc
import weakref
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from subscription_kit import ALL, ID_KEY, INFO, Handle, Script, Step, Wire, run, running

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
    run_subscription,
)

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
