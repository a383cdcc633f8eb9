"""Handlers that follow what a server says, over each transport."""

import logging
from typing import Any

import pytest
import script_kit as say
import trio
import trio.testing
from asking_server import make as make_asking
from script_kit import Play, play_lines
from wire_kit import LISTEN, SUBSCRIPTION_ID, TOOLS_CHANGED, UPDATED

from mcp_trio import Client, SubscriptionFilter, errors, types
from mcp_trio.client.notifications import FanOut, RunningHandler, log_notifications
from mcp_trio.client.observers import Observers, ServerMessage
from mcp_trio.protocol import jsonrpc, methods
from mcp_trio.testing import open_memory_client

WANTED = SubscriptionFilter(tools_list_changed=True, resource_subscriptions=("note://a",))
NOTHING: tuple[ServerMessage, ...] = ()


async def collect(
    message: ServerMessage, state: tuple[ServerMessage, ...]
) -> tuple[ServerMessage, ...]:
    await trio.lowlevel.checkpoint()
    return (*state, message)


def note(method: str, **params: Any) -> ServerMessage:
    return ServerMessage(method=method, params=params)


async def test_all_that_is_said(play: Play) -> None:
    """H-01, H-02, H-08, X-08: one at a time, in order, each with what it belongs to.

    What a handler returns is what it is given next, and what `state` shows. The metadata that
    the server has sent with a change is there, beside the subscription's id.
    """

    async def script(peer: Any) -> None:
        call = await peer.expect("tools/call")
        token = call["params"]["_meta"]["progressToken"]
        progress = {"progressToken": token, "progress": 1}
        await peer.send(
            call,
            {"jsonrpc": "2.0", "method": methods.PROGRESS, "params": progress},
            say.result(call, content=[]),
        )
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        await peer.send(
            listen,
            say.tagged(listen, TOOLS_CHANGED, {"_meta": {"org.example/who": "me"}}),
            say.tagged(listen, UPDATED, {"uri": "note://a"}),
            say.withdrawn(listen),
        )
        await peer.expect("tools/list")

    async def count(message: ServerMessage, state: int) -> int:
        await trio.lowlevel.checkpoint()
        return state + 1

    async def ignore(_: object) -> None:
        await trio.lowlevel.checkpoint()

    async with (
        play(script) as client,
        client.notifications(collect, NOTHING) as collecting,
        client.notifications(count, 10) as counting,
    ):
        await client.call_tool("t", progress=ignore)
        async with client.listen(WANTED) as changes:
            async for _ in changes:
                pass
        await collecting.wait_settled()
        await counting.wait_settled()
        said = collecting.state
        assert [message.method for message in said] == [
            methods.PROGRESS,
            methods.ACKNOWLEDGED,
            TOOLS_CHANGED,
            UPDATED,
            methods.CANCELLED,
        ]
        assert {message.kind for message in said} == {"notification"}
        assert [message.request_id for message in said] == [1, None, None, None, None]
        assert [message.subscription_id for message in said] == [None, *["listen-1"] * 4]
        assert said[2].params["_meta"] == {"org.example/who": "me", SUBSCRIPTION_ID: "listen-1"}
        assert said[3].params["uri"] == "note://a"
        assert counting.state == 15


async def test_questions_are_observed() -> None:
    """H-05, H-08: the client's own handler answers; this one hears of it, and for which request."""

    async def decline(_: types.ElicitRequestFormParams) -> types.ElicitResult:
        await trio.lowlevel.checkpoint()
        return types.ElicitResult(action="decline")

    async with (
        open_memory_client(make_asking(), on_elicitation=decline) as client,
        client.notifications(collect, NOTHING) as running,
    ):
        await client.list_tools()
        await client.call_tool("greet")
        await running.wait_settled()
        [message] = running.state
        assert (message.kind, message.method) == ("request", "elicitation/create")
        assert message.params["message"] == "Who are you?"
        assert (message.request_id, message.subscription_id) == (2, None)


async def test_questions_that_make_no_sense(play: Play) -> None:
    """H-05: seen as far as they are questions, and an error of the call all the same."""

    async def script(peer: Any) -> None:
        asked = await peer.expect("tools/call")
        for questions in ({"a": 5, "b": {"method": 5}, "c": {"method": "x/y", "params": 5}}, 5):
            await peer.send(
                asked, say.result(asked, resultType="input_required", inputRequests=questions)
            )
            asked = await peer.expect("tools/call" if questions != 5 else "prompts/list")
        await peer.send(asked, say.result(asked, prompts=[]))

    async with play(script) as client, client.notifications(collect, NOTHING) as running:
        for _ in range(2):
            with pytest.raises(errors.RemoteProtocolError):
                await client.call_tool("greet")
        await client.list_prompts()
        await running.wait_settled()
        [message] = running.state
        assert (message.method, message.params, message.request_id) == ("x/y", {}, 1)


async def test_slow_handler(play: Play) -> None:
    """H-03: a handler that never comes to an end holds up neither requests nor other handlers."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen), say.tagged(listen, TOOLS_CHANGED))
        asked = await peer.expect("tools/list")
        await peer.send(asked, say.result(asked, tools=[]))
        await peer.until_cancelled(listen)

    async def hang(message: ServerMessage, state: None) -> None:
        await trio.sleep_forever()

    async with (
        play(script) as client,
        client.notifications(hang, None) as hanging,
        client.notifications(collect, NOTHING) as running,
        client.listen(WANTED) as changes,
    ):
        await changes.receive()
        await client.list_tools()
        await running.wait_settled()
        assert len(running.state) == 2
        assert hanging.statistics().waiting == 1
        assert hanging.statistics().handled == 0


async def test_failing_handler(caplog: pytest.LogCaptureFixture) -> None:
    """H-04: logged; the state stays, and the next message is handled."""
    observers = Observers()

    async def fail_at_2(message: ServerMessage, state: int) -> int:
        await trio.lowlevel.checkpoint()
        if state == 2 and message.method == "two":
            raise RuntimeError("two is too much")
        return state + 1

    async with trio.open_nursery() as nursery:
        running = RunningHandler(fail_at_2, 1)
        observers.add(running)
        nursery.start_soon(running.run)
        for method in ("one", "two", "three"):
            observers.observe(jsonrpc.Notification(method, {}))
        await running.wait_settled()
        assert running.state == 3
        assert (running.statistics().handled, running.statistics().failed) == (3, 1)
        observers.remove(running)
        observers.observe(jsonrpc.Notification("four", {}))
        assert running.statistics().waiting == 0
        nursery.cancel_scope.cancel()
    [record] = caplog.records
    assert record.getMessage() == "the notification handler failed on 'two'"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)


async def test_what_is_no_exception_ends_the_block() -> None:
    """H-04: an exit is not contained, and comes out as itself."""

    async def leave(message: ServerMessage, state: None) -> None:
        raise SystemExit(3)

    client = Client(say.Nowhere())
    with pytest.raises(SystemExit):
        async with client.notifications(leave, None):
            client.transport.on_unrouted(jsonrpc.Notification("x", {}))  # type: ignore[misc]
            await trio.sleep_forever()


async def test_bounds() -> None:
    """H-03: what is a level trigger counts once; beyond the bound the oldest goes, and is told."""
    running = RunningHandler(collect, NOTHING, max_waiting=3)
    for _ in range(5):
        running.put(note(TOOLS_CHANGED))
        running.put(note(UPDATED, uri="note://a"))
        running.put(note(UPDATED, uri="note://b"))
    assert running.statistics().waiting == 3
    assert running.statistics().coalesced == 12
    running.put(note(methods.LOG_MESSAGE, data=1))
    running.put(note(methods.LOG_MESSAGE, data=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        await running.wait_settled()
        running.put(note(TOOLS_CHANGED))
        await running.wait_settled()
        nursery.cancel_scope.cancel()
    assert [(message.method, message.missed) for message in running.state] == [
        (UPDATED, 2),
        (methods.LOG_MESSAGE, 0),
        (methods.LOG_MESSAGE, 0),
        (TOOLS_CHANGED, 0),
    ]
    assert running.statistics().dropped == 2
    assert "0 waiting" in repr(running)


async def test_what_is_not_the_same_news() -> None:
    """Another subscription's, another kind's, and what cannot be read."""
    running = RunningHandler(collect, NOTHING)
    running.put(note(TOOLS_CHANGED))
    running.put(ServerMessage(method=TOOLS_CHANGED, params={}, subscription_id="listen-1"))
    running.put(ServerMessage(method=TOOLS_CHANGED, params={}, subscription_id="listen-2"))
    running.put(ServerMessage(kind="request", method=TOOLS_CHANGED, params={}))
    running.put(note(UPDATED, uri=1))
    running.put(note(UPDATED, uri=1))
    assert running.statistics().waiting == 6
    assert running.statistics().coalesced == 0


async def test_only() -> None:
    """H-08: a handler may be for some methods alone."""
    running = RunningHandler(collect, NOTHING, only=[TOOLS_CHANGED])
    running.put(note(UPDATED, uri="note://a"))
    running.put(note(TOOLS_CHANGED))
    assert running.statistics().waiting == 1
    client = Client(say.Nowhere())
    with pytest.raises(TypeError, match="several"):
        client.notifications(collect, NOTHING, only=TOOLS_CHANGED)
    with pytest.raises(ValueError, match="positive"):
        client.notifications(collect, NOTHING, max_waiting=0)


async def test_wait_settled() -> None:
    """It waits for what is being handled, too, and can be cancelled."""
    go = trio.Event()

    async def wait(message: ServerMessage, state: int) -> int:
        await go.wait()
        return state + 1

    running = RunningHandler(wait, 0)
    await running.wait_settled()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        running.put(note("a"))
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await running.wait_settled()
        assert scope.cancelled_caught
        nursery.start_soon(running.wait_settled)
        await trio.testing.wait_all_tasks_blocked()
        assert running.state == 0
        go.set()
        await running.wait_settled()
        assert running.state == 1
        nursery.cancel_scope.cancel()


async def test_what_belongs_to_no_request(caplog: pytest.LogCaptureFixture) -> None:
    """W80: over a connection that carries lines a server may speak up by itself.

    What names a subscription that there is not, or a request that is over, is passed over.
    """

    async def script(peer: Any) -> None:
        asked = await peer.expect("tools/list")
        lost = {"id": "listen-9", "params": {}}
        await peer.send(
            asked,
            {"jsonrpc": "2.0", "method": TOOLS_CHANGED},
            {"jsonrpc": "2.0", "method": "notifications/unknown", "params": {"x": 1}},
            {"jsonrpc": "2.0", "method": methods.LOG_MESSAGE, "params": {"data": "hi"}},
            say.tagged(lost, TOOLS_CHANGED),
            {
                "jsonrpc": "2.0",
                "method": methods.PROGRESS,
                "params": {"progressToken": 7, "progress": 1},
            },
            say.result(asked, tools=[]),
        )

    async with play_lines(script) as client, client.notifications(collect, NOTHING) as running:
        await client.list_tools()
        await running.wait_settled()
        assert [message.method for message in running.state] == [
            TOOLS_CHANGED,
            "notifications/unknown",
            methods.LOG_MESSAGE,
        ]
        assert {message.request_id for message in running.state} == {None}
    assert "belongs to no open request" in caplog.text


# The handlers that come along


@pytest.mark.parametrize(
    ("message", "level", "text"),
    [
        (
            note(methods.LOG_MESSAGE, level="error", data={"a": 1}, logger="db"),
            logging.ERROR,
            "db: {'a': 1}",
        ),
        (note(methods.LOG_MESSAGE, level="notice", data="x"), logging.INFO, "'x'"),
        (note(methods.LOG_MESSAGE, level=["?"], data="x"), logging.DEBUG, "'x'"),
        (
            ServerMessage(
                method=methods.PROGRESS,
                params={"progress": 1, "total": 4, "message": "reading"},
                request_id=5,
            ),
            logging.DEBUG,
            "progress 1 of 4: 'reading' (5)",
        ),
        (note(methods.PROGRESS, progress=0.5), logging.DEBUG, "progress 0.5"),
        (
            ServerMessage(method=TOOLS_CHANGED, params={}, subscription_id="listen-1"),
            logging.DEBUG,
            "changed: the list of tools (listen-1)",
        ),
        (note(UPDATED, uri="a:b\n"), logging.DEBUG, "updated: 'a:b\\n'"),
        (
            ServerMessage(kind="request", method="roots/list", params={}),
            logging.DEBUG,
            "the server asks for roots/list",
        ),
        (note("notifications/x", a=1, _meta={}), logging.DEBUG, "notifications/x {'a': 1}"),
    ],
)
async def test_logging_handler(
    message: ServerMessage, level: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """H-06: each kind of message in words, and the server's own log at its level."""
    caplog.set_level(logging.DEBUG)
    handler = log_notifications(level=logging.DEBUG)
    assert await handler(message, "state") == "state"
    [record] = caplog.records
    assert (record.name, record.levelno) == ("mcp_trio.notifications", level)
    assert record.getMessage() == text


async def test_logging_handler_is_brief(caplog: pytest.LogCaptureFixture) -> None:
    """A server does not fill the disk with one message; what was dropped is said."""
    caplog.set_level(logging.INFO)
    handler = log_notifications(logging.getLogger("mine"))
    message = ServerMessage(
        method=methods.LOG_MESSAGE, params={"level": "info", "data": "x" * 9_000}, missed=3
    )
    await handler(message, None)
    first, second = caplog.records
    assert first.getMessage() == "3 messages were dropped before this one"
    assert (second.name, len(second.getMessage())) == ("mine", 2_001)


async def test_fan_out() -> None:
    """H-06: each reader has its own channel, and loses its own messages."""
    with FanOut() as fan_out:
        slow, fast, gone = (fan_out.open_reader(size) for size in (1, 10, 1))
        gone.close()
        for number in range(3):
            message = ServerMessage(method="n", params={"n": number}, missed=number)
            assert await fan_out(message, "state") == "state"
        got = [fast.receive_nowait() for _ in range(3)]
        assert [(one.params["n"], one.missed) for one in got] == [(0, 0), (1, 1), (2, 2)]
        assert slow.receive_nowait().params["n"] == 0
        await fan_out(note("n", n=3), None)
        late = slow.receive_nowait()
        # Two of its own, and three that the fan-out itself had not been given.
        assert (late.params["n"], late.missed) == (3, 5)
        await fan_out(note("n", n=4), None)
    assert [one.params["n"] async for one in slow] == [4]
    with pytest.raises(trio.ClosedResourceError):
        fan_out.open_reader(1)


@pytest.mark.parametrize("size", [0, -1, float("inf"), float("nan")])
async def test_fan_out_needs_room(size: float) -> None:
    with FanOut() as fan_out, pytest.raises(ValueError, match="positive and finite"):
        fan_out.open_reader(size)  # type: ignore[arg-type]


async def test_fan_out_of_a_client(play: Play) -> None:
    """H-06: several tasks read what one client hears."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen), say.tagged(listen, TOOLS_CHANGED))
        await peer.until_cancelled(listen)

    async with play(script) as client:
        with FanOut() as fan_out:
            readers = [fan_out.open_reader(10) for _ in range(3)]
            async with client.notifications(fan_out, None), client.listen(WANTED) as changes:
                await changes.receive()
                for reader in readers:
                    assert (await reader.receive()).method == methods.ACKNOWLEDGED
                    assert (await reader.receive()).subscription_id == changes.id
