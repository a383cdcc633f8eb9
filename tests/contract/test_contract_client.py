"""A client in front of servers that do what a script says, over every transport."""

import contextlib
import json
import math
from typing import Any

import pytest
import trio
from script_kit import (
    PLAYS,
    CutStage,
    LineStage,
    MemoryStage,
    Play,
    Stage,
    ack,
    done,
    error,
    result,
)
from wire_kit import Frame, cancelled, tools_changed, updated

from mcp_trio import (
    Client,
    PromptsListChanged,
    ResourceUpdated,
    SubscriptionEnd,
    SubscriptionFilter,
    ToolsListChanged,
    errors,
    open_stdio_client,
)

LISTEN = "subscriptions/listen"
WANTED = SubscriptionFilter(tools_list_changed=True)
GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


async def serve_tools(stage: Stage) -> None:
    """Answer `tools/list` from now on."""
    while True:
        await stage.send(request := await stage.expect("tools/list"), result(request, tools=[]))


# Opening


async def test_no_timeout_but_for_the_acknowledgement(play: Play) -> None:
    """W15, C-03: an event that comes long after it is an event like any other."""

    async def script(stage: Stage) -> None:
        listen = await stage.expect(LISTEN)
        await stage.send(listen, ack(listen))
        await trio.sleep(0.3)
        await stage.send(listen, tools_changed(listen["id"]), done(listen))

    async with play(script) as client, client.listen(WANTED, ack_timeout=0.2) as changes:
        assert [change async for change in changes] == [ToolsListChanged()]
        assert changes.end == SubscriptionEnd("graceful")


async def test_an_acknowledgement_that_never_comes(play: Play) -> None:
    """W16 (a), C-03, W43: the wait is bounded, the request is cancelled, and the client goes on."""
    was_cancelled = trio.Event()

    async def script(stage: Stage) -> None:
        listen = await stage.expect(LISTEN)
        await stage.until_cancelled(listen)
        was_cancelled.set()
        await serve_tools(stage)

    async with play(script) as client:
        with pytest.raises(errors.AcknowledgementTimeout):
            async with client.listen(WANTED, ack_timeout=0.05):
                raise AssertionError("unreachable")
        await was_cancelled.wait()
        assert (await client.list_tools()).tools == ()


async def test_over_before_it_was_acknowledged(play: Play) -> None:
    """W16 (b), C-04: opened, and already at its end."""

    async def script(stage: Stage) -> None:
        listen = await stage.expect(LISTEN)
        await stage.send(listen, done(listen, {"reason": "complete"}))
        await serve_tools(stage)

    async with play(script) as client:
        async with client.listen(WANTED) as changes:
            assert [change async for change in changes] == []
            assert changes.end == SubscriptionEnd("graceful", "complete")
        await client.list_tools()


async def test_refused(play: Play) -> None:
    """W16 (c), W62, C-04: the server's own error and no other, not in a group."""

    async def script(stage: Stage) -> None:
        for code in (-32602, -32601, -32603, -32000):
            listen = await stage.expect(LISTEN)
            await stage.send(listen, error(listen, code, f"error {code}"))
        await serve_tools(stage)

    async with play(script) as client:
        for code in (-32602, -32601, -32603, -32000):
            with pytest.raises(errors.ErrorResponse, match=f"error {code}") as caught:
                async with client.listen(WANTED):
                    raise AssertionError("unreachable")
            assert caught.value.code == code
        await client.list_tools()


@pytest.mark.parametrize("how", ["cut", "crash"])
async def test_lost_before_it_was_acknowledged(play_bytes: Play, how: str) -> None:
    """W16 (d), W62, C-04: one exception, at once."""

    async def script(stage: CutStage) -> None:
        await getattr(stage, how)(await stage.expect(LISTEN))

    async with play_bytes(script) as client:
        with trio.fail_after(1), pytest.raises(trio.BrokenResourceError):
            async with client.listen(WANTED):
                raise AssertionError("unreachable")


async def test_the_acknowledgement_of_another(play: Play) -> None:
    """W16 (e), W06: keep waiting; the number is not the string, and events do not open it."""

    async def script(stage: Stage) -> None:
        listen = await stage.expect(LISTEN)
        strangers: list[Any] = ["listen-2", 1, "", None, [listen["id"]]]
        for stranger in strangers:
            await stage.send(listen, ack({**listen, "id": stranger}), tools_changed(stranger))
        await stage.send(listen, ack(listen), done(listen))

    async with play(script) as client, client.listen(WANTED) as changes:
        assert [change async for change in changes] == []
        assert changes.end == SubscriptionEnd("graceful")


# What arrives


async def test_only_what_was_granted_arrives(play: Play) -> None:
    """W36, C-21, C-22: other types, and events of other subscriptions, are passed over."""

    async def script(stage: Stage) -> None:
        listen = await stage.expect(LISTEN)
        await stage.send(listen, ack(listen, {"toolsListChanged": True}))
        others = ("prompts", "resources")
        frames = [tools_changed(listen["id"]) for _ in others]
        for frame, other in zip(frames, others, strict=True):
            frame["method"] = f"notifications/{other}/list_changed"
        foreign: list[Any] = ["listen-2", "", 1, None]
        await stage.send(
            listen,
            *frames,
            updated(listen["id"], "x:a"),
            *(tools_changed(other) for other in foreign),
            {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
            {"jsonrpc": "2.0", "method": "window/logMessage", "params": {}},
            tools_changed(listen["id"]),
            done(listen),
        )

    wanted = SubscriptionFilter(True, True, True, ("x:a",))
    async with play(script) as client, client.listen(wanted) as changes:
        assert changes.acknowledged == WANTED
        assert changes.declined == SubscriptionFilter(False, True, True, ("x:a",))
        assert [change async for change in changes] == [ToolsListChanged()]


async def test_a_flood_of_different_changes_on_one_channel(play_lines: Play) -> None:
    """W40: what cannot be kept is a loss that is seen; the server is told, and the rest goes on."""

    async def script(stage: LineStage) -> None:
        listen = await stage.expect(LISTEN)
        await stage.send(listen, ack(listen))
        for start in range(0, 20_000, 100):
            frames = (updated(listen["id"], f"x:{start + n}") for n in range(100))
            await stage.send(listen, *frames)
        request = await stage.expect("tools/list")  # sent before the flood was over
        await stage.until_cancelled(listen)
        await stage.send(request, result(request, tools=[]))
        await serve_tools(stage)

    wanted = SubscriptionFilter(resource_subscriptions=("x:",))
    async with play_lines(script) as client, client.listen(wanted) as changes:
        await client.list_tools()
        with pytest.raises(errors.SubscriptionLost, match="not read"):
            while True:
                await changes.receive()
        assert changes.end is not None
        assert changes.end.how == "lost"
        await client.list_tools()


async def test_a_flood_of_different_changes_is_felt_by_its_sender() -> None:
    """W40: over HTTP, and in memory, nothing is taken that nobody has asked for."""
    sent = {"http": 0, "memory": 0}

    async def script(stage: Stage) -> None:
        listen = await stage.expect(LISTEN)
        await stage.send(listen, ack(listen))
        with contextlib.suppress(trio.BrokenResourceError):
            while True:
                uri = f"x:{sent[stage.transport]}/{'a' * 1000}"
                await stage.send(listen, updated(listen["id"], uri))
                sent[stage.transport] += 1

    wanted = SubscriptionFilter(resource_subscriptions=("x:",))
    for transport in sent:
        async with PLAYS[transport](script) as client, client.listen(wanted) as changes:
            last = -1
            with trio.fail_after(5):
                while sent[transport] != last:
                    last = sent[transport]
                    await trio.sleep(0.05)
            assert last < 20_000
            for _ in range(100):
                assert isinstance(await changes.receive(), ResourceUpdated)


async def test_a_consumer_that_sleeps_delays_nobody(play: Play) -> None:
    """W41: a thousand changes that nobody reads, and the answer to a request still comes."""
    async with trio.open_nursery() as nursery:

        async def flood(stage: Stage, listen: Frame) -> None:
            for _ in range(1000):
                await stage.send(listen, tools_changed(listen["id"]))

        async def script(stage: Stage) -> None:
            listen = await stage.expect(LISTEN)
            await stage.send(listen, ack(listen))
            if isinstance(stage, LineStage):
                await flood(stage, listen)  # it is all on one channel, and the answer behind it
            else:
                nursery.start_soon(flood, stage, listen)
            await serve_tools(stage)

        async with play(script) as client, client.listen(WANTED) as changes:
            for _ in range(3):
                with trio.fail_after(1):
                    await client.list_tools()
            assert await changes.receive() == ToolsListChanged()
            nursery.cancel_scope.cancel()
            await trio.lowlevel.checkpoint_if_cancelled()


async def test_several_subscriptions_at_once(play: Play) -> None:
    """W05, W06, C-02, C-20: each with an id of its own, hears what is its own."""

    async def script(stage: Stage) -> None:
        listens = [await stage.expect(LISTEN) for _ in range(3)]
        assert len({listen["id"] for listen in listens}) == 3
        for listen in reversed(listens):
            await stage.send(listen, ack(listen))
        for listen in listens:
            changed = tools_changed(listen["id"])
            if "promptsListChanged" in listen["params"]["notifications"]:
                changed["method"] = "notifications/prompts/list_changed"
            await stage.send(listen, changed, done(listen))

    heard: dict[int, list[object]] = {}

    async def follow(client: Client, number: int, wanted: SubscriptionFilter) -> None:
        async with client.listen(wanted) as changes:
            heard[number] = [change async for change in changes]

    async with play(script) as client, trio.open_nursery() as nursery:
        nursery.start_soon(follow, client, 0, WANTED)
        nursery.start_soon(follow, client, 1, SubscriptionFilter(prompts_list_changed=True))
        nursery.start_soon(follow, client, 2, WANTED)
    assert heard == {0: [ToolsListChanged()], 1: [PromptsListChanged()], 2: [ToolsListChanged()]}


# Endings


FAREWELLS: dict[str, tuple[list[str], SubscriptionEnd]] = {
    "result": (["done"], SubscriptionEnd("graceful", "shutdown")),
    "cancelled": (["cancelled"], SubscriptionEnd("cancelled")),
    "result, cancelled": (["done", "cancelled"], SubscriptionEnd("graceful", "shutdown")),
    "cancelled, result": (["cancelled", "done"], SubscriptionEnd("cancelled")),
}


@pytest.mark.parametrize("acknowledged", [True, False], ids=["open", "opening"])
@pytest.mark.parametrize("farewell", FAREWELLS)
async def test_every_farewell(play: Play, farewell: str, acknowledged: bool) -> None:
    """W33 (a) to (d): before and after the acknowledgement; and the client goes on."""
    order, end = FAREWELLS[farewell]

    async def script(stage: Stage) -> None:
        listen = await stage.expect(LISTEN)
        frames = {
            "done": done(listen, {"reason": "shutdown"}),
            "cancelled": cancelled(listen["id"]),
        }
        if acknowledged:
            await stage.send(listen, ack(listen), tools_changed(listen["id"]))
        for name in order:
            if isinstance(stage, MemoryStage) and name != order[0]:
                break  # its exchange is over by then
            await stage.send(listen, frames[name])
        if isinstance(stage, CutStage) and not isinstance(stage, LineStage):
            await stage.cut(listen)
        await serve_tools(stage)

    async with play(script) as client:
        async with client.listen(WANTED) as changes:
            heard = [change async for change in changes]
            assert heard == ([ToolsListChanged()] if acknowledged else [])
            assert changes.end is not None
            assert changes.end == end
        await client.list_tools()


@pytest.mark.parametrize("how", ["cut", "crash"])
async def test_a_stream_that_ends_without_a_word(play_bytes: Play, how: str) -> None:
    """W17, W33 (e): after what came before it; at once, and not like a graceful end.

    Over stdio the server process ends by itself, or is killed.
    """

    async def script(stage: CutStage) -> None:
        listen = await stage.expect(LISTEN)
        await stage.send(listen, ack(listen), tools_changed(listen["id"]))
        await trio.sleep(0.05)  # a reset would overtake what was sent
        await getattr(stage, how)(listen)

    async with play_bytes(script) as client, client.listen(WANTED) as changes:
        assert await changes.receive() == ToolsListChanged()
        with trio.fail_after(1):
            for _ in range(2):
                with pytest.raises(errors.SubscriptionLost):
                    await changes.receive()
        assert changes.end is not None
        assert changes.end.how == "lost"
        assert changes.end.reason


@pytest.mark.parametrize("how", ["cut", "crash"])
async def test_a_call_that_is_lost(play_bytes: Play, how: str) -> None:
    """W17, W62: one exception for each of many that wait, and no group."""
    lost = []

    async def script(stage: CutStage) -> None:
        calls = [await stage.expect("tools/call") for _ in range(5)]
        for call in calls:
            await getattr(stage, how)(call)

    async def call(client: Client) -> None:
        with pytest.raises(trio.BrokenResourceError) as caught:
            await client.call_tool("x")
        lost.append(caught.value)

    async with play_bytes(script) as client:
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(call, client)
    assert len(lost) == 5
    assert all(isinstance(error, errors.ConnectionLost) for error in lost)


# Cancelling


async def test_a_call_that_is_cancelled(play: Play) -> None:
    """W43, C-40: on the wire, once, in the way of the transport; others do not notice."""

    async def script(stage: Stage) -> None:
        slow = await stage.expect("tools/call")
        other = await stage.expect("resources/list")
        await stage.until_cancelled(slow)
        if isinstance(stage, LineStage):
            await stage.send(slow, result(slow, content=[]))  # too late, and no harm
        await stage.send(other, result(other, resources=[]))
        # The very next thing that comes is the next request: nothing was said twice.
        await serve_tools(stage)

    finished = trio.Event()

    async def other(client: Client) -> None:
        assert (await client.list_resources()).resources == ()
        finished.set()

    async with play(script) as client, trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(other, client)

            async def soon() -> None:
                await trio.sleep(0.05)
                scope.cancel()

            nursery.start_soon(soon)
            await client.call_tool("slow")
        assert scope.cancelled_caught
        await finished.wait()
        await client.list_tools()


async def test_a_subscription_that_is_left(play: Play) -> None:
    """W42, W43, C-40: by the end of its block, by a cancellation, by `aclose`."""

    async def script(stage: Stage) -> None:
        for _ in range(3):
            listen = await stage.expect(LISTEN)
            await stage.send(listen, ack(listen))
            await stage.until_cancelled(listen)
        await serve_tools(stage)

    async with play(script) as client:
        async with client.listen(WANTED) as changes:
            pass
        assert changes.end == SubscriptionEnd("local")
        with trio.move_on_after(0.1):
            async with client.listen(WANTED) as changes:
                await changes.receive()
        assert changes.end == SubscriptionEnd("local")
        async with client.listen(WANTED) as changes:
            await changes.aclose()
            # It was cancelled when it was closed, and not only when the block is left.
            with pytest.raises(trio.ClosedResourceError):
                await changes.receive()
            await client.list_tools()


async def test_after_its_end_a_client_says_so(play_bytes: Play) -> None:
    """W67: whoever still has it gets an error, and no subscription that hears nothing."""

    async def script(stage: Stage) -> None:
        await serve_tools(stage)

    async with play_bytes(script) as client:
        await client.list_tools()
    for _ in range(2):
        with trio.fail_after(1), pytest.raises(GONE):
            await client.list_tools()
        with trio.fail_after(1), pytest.raises(GONE):
            async with client.listen(WANTED):
                raise AssertionError("unreachable")


# What a server must not do


async def test_requests_of_a_server_are_dropped(play_bytes: Play) -> None:
    """W58: on a channel or in a stream; nothing is answered, and ids are each side's own."""

    async def script(stage: CutStage) -> None:
        listen = await stage.expect(LISTEN)
        call = await stage.expect("tools/call")
        for request_id in (call["id"], listen["id"], 5, None):
            for method in ("ping", "sampling/createMessage", "roots/list"):
                request: Frame = {"id": request_id, "method": method, "params": {}}
                request["jsonrpc"] = "2.0"
                await stage.send(call, request)
                await stage.send(listen, request)
        await stage.send(listen, ack(listen), tools_changed(listen["id"]))
        await stage.send(call, result(call, content=[]))
        # What comes next is the client's next request, and not the response to one of these.
        await serve_tools(stage)

    async with play_bytes(script) as client, trio.open_nursery() as nursery:
        opened = trio.Event()

        async def call() -> None:
            await client.call_tool("x")
            opened.set()

        async def listen() -> None:
            async with client.listen(WANTED) as changes:
                assert await changes.receive() == ToolsListChanged()
                await opened.wait()
                await client.list_tools()

        nursery.start_soon(listen)
        await trio.sleep(0.02)
        nursery.start_soon(call)


async def test_an_answer_to_another_id(play_bytes: Play) -> None:
    """W05, W06: `"1"` is not `1`; the request stays pending until its own answer comes."""

    async def script(stage: Stage) -> None:
        request = await stage.expect("tools/list")
        assert request["id"] == 1
        for other in ("1", 2, -1, "", "x"):
            await stage.send(request, result({"id": other}, tools=[]))
        tool = {"name": "right", "inputSchema": {"type": "object"}}
        await stage.send(request, result(request, tools=[tool]))

    async with play_bytes(script) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["right"]


async def test_noise_on_a_channel(play_lines: Play) -> None:
    """W29: reported and skipped, however much it is; what comes between counts."""
    noise = b'Starting\n{\n  "ok": false\n}\n42\nnull\n"x"\n[]\n\xff\xfe\n\r\n{"jsonrpc":"2.0"}\n'

    async def script(stage: LineStage) -> None:
        listen = await stage.expect(LISTEN)
        await stage.noise(noise)
        await stage.send(listen, ack(listen))
        await stage.noise(b"bad\n" * 50_000)
        await stage.noise(b"\xef\xbb\xbf" + json.dumps(tools_changed(listen["id"])).encode())
        await stage.noise(b"\r\n" + noise)
        await stage.send(listen, done(listen))

    async with play_lines(script) as client, client.listen(WANTED) as changes:
        # A byte order mark in the middle of everything makes a line noise as well.
        assert [change async for change in changes] == []
        assert changes.end == SubscriptionEnd("graceful")


@pytest.mark.parametrize("kind", ["zzz", "input_required", 5, None])
async def test_results_of_a_kind_that_is_unknown(play: Play, kind: Any) -> None:
    """W84: an error for the call; a subscription that ends with one is lost."""

    async def script(stage: Stage) -> None:
        call = await stage.expect("tools/call")
        await stage.send(call, result(call, resultType=kind, _meta={}, content=[]))
        listen = await stage.expect(LISTEN)
        await stage.send(listen, ack(listen), {**done(listen), **result(listen, resultType=kind)})
        await serve_tools(stage)

    async with play(script) as client:
        with pytest.raises(errors.RemoteProtocolError):
            await client.call_tool("x")
        async with client.listen(WANTED) as changes:
            with pytest.raises(errors.SubscriptionLost):
                await changes.receive()
        await client.list_tools()


async def test_results_without_a_kind_are_complete(play: Play) -> None:
    """W84: as servers of older revisions send them; for a call and for a subscription."""

    async def script(stage: Stage) -> None:
        request = await stage.expect("tools/list")
        await stage.send(request, {"jsonrpc": "2.0", "id": request["id"], "result": {"tools": []}})
        listen = await stage.expect(LISTEN)
        final: Frame = {"jsonrpc": "2.0", "id": listen["id"], "result": {}}
        await stage.send(listen, ack(listen), final)

    async with play(script) as client:
        assert (await client.list_tools()).tools == ()
        async with client.listen(WANTED) as changes:
            assert [change async for change in changes] == []
            assert changes.end == SubscriptionEnd("graceful")


async def test_errors_come_as_themselves(play: Play) -> None:
    """W62: not in a group, also under a deadline, and from many tasks at once."""

    async def script(stage: Stage) -> None:
        while True:
            call = await stage.expect("tools/call")
            await stage.send(call, error(call, -32602, "no such thing"))

    refused = 0

    async def call(client: Client) -> None:
        nonlocal refused
        with trio.move_on_after(5), pytest.raises(errors.InvalidParams, match="no such thing"):
            await client.call_tool("x")
        refused += 1

    async with play(script) as client, trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(call, client)
    assert refused == 10


# A process that is no good server


SHELL: dict[str, tuple[str, str]] = {
    "exits": ("echo some words >&2; exit 3", "status 3"),
    "exits after reading": ("read request; echo some words >&2; exit 3", "some words"),
    "closes its output": ("exec >&-; exec sleep 60", "closed its output"),
    "is killed": ("read request; kill -9 $$", "SIGKILL"),
}


@pytest.mark.parametrize("manner", SHELL)
async def test_a_process_that_does_not_serve(manner: str) -> None:
    """W62, W87: a call and a subscription fail at once, with a reason that helps."""
    script, reason = SHELL[manner]
    with trio.fail_after(5):
        async with open_stdio_client(["/bin/sh", "-c", script], grace=0.05) as client:
            with pytest.raises(errors.ConnectionLost, match=reason):
                await client.list_tools()
            with pytest.raises((errors.ConnectionLost, errors.SubscriptionLost), match=reason):
                async with client.listen(WANTED, ack_timeout=math.inf):
                    raise AssertionError("unreachable")


@pytest.mark.parametrize("script", ["exec sleep 60", "yes & exec cat >/dev/null", "exec yes"])
async def test_a_process_that_reads_nothing_or_says_too_much(script: str) -> None:
    """W87: leaving never waits on a full pipe, and a call can be given up."""
    with trio.fail_after(5):
        async with open_stdio_client(["/bin/sh", "-c", script], grace=0.05) as client:
            with trio.move_on_after(0.1) as scope:
                await client.call_tool("x", {"padding": "x" * 1_000_000})
            assert scope.cancelled_caught
