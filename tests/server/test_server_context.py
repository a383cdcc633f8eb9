"""Progress, log messages and publishing from handlers, and what they learn of the request."""

import json
import math
import threading
from typing import Any, get_args

import pytest
import trio
from server_kit import Recorder, ask, call, request, text_of

from mcp_trio import errors
from mcp_trio.server import Context, Server
from mcp_trio.server.context import LogLevel
from mcp_trio.subscriptions.events import ResourceUpdated
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.transports.abc import Principal

EXTENSION: dict[str, Any] = {"org.x/y": True}
LOG_LEVEL = "io.modelcontextprotocol/logLevel"


@pytest.fixture
def server() -> Server:
    return Server("s", version="1", hub=Hub())


async def progress_of(server: Server, name: str, **meta: Any) -> list[dict[str, Any]]:
    exchange = Recorder()
    await ask(server, "tools/call", {"name": name}, exchange=exchange, **meta)
    assert all(m["method"] == "notifications/progress" for m in exchange.sent)
    return [message["params"] for message in exchange.sent]


@pytest.mark.parametrize("token", [0, "", "a", 2**53])
async def test_progress_goes_to_the_token_given(server: Server, token: str | int) -> None:
    """W05, W81: 0 and "" are tokens; W39: no subscription id on it."""

    @server.tool
    async def work(ctx: Context) -> None:
        await ctx.report_progress(0)
        await ctx.report_progress(0.5, 1, "half")

    sent = await progress_of(server, "work", progressToken=token)
    assert sent == [
        {"progressToken": token, "progress": 0},
        {"progressToken": token, "progress": 0.5, "total": 1, "message": "half"},
    ]
    assert all(type(params["progressToken"]) is type(token) for params in sent)


async def test_no_token_no_progress(server: Server) -> None:
    """W81: none given, none sent; a loop that reports can still be cancelled."""

    @server.tool
    async def work(ctx: Context) -> None:
        with trio.move_on_after(0.01):
            while True:
                await ctx.report_progress(1)

    assert await progress_of(server, "work") == []


async def test_progress_grows(server: Server) -> None:
    """W82: 5, 5, 3 is one report."""

    @server.tool
    async def work(ctx: Context) -> None:
        for value in (5, 5, 3, 4.9, 6):
            await ctx.report_progress(value)
        for bad in (math.nan, math.inf):
            with pytest.raises(ValueError, match="finite"):
                await ctx.report_progress(bad)
            with pytest.raises(ValueError, match="finite"):
                await ctx.report_progress(7, bad)

    sent = await progress_of(server, "work", progressToken=1)
    assert [params["progress"] for params in sent] == [5, 6]


@pytest.mark.parametrize("cancel", [False, True])
async def test_progress_stops_with_the_answer(
    server: Server, nursery: trio.Nursery, cancel: bool
) -> None:
    """W82: a task that outlives its request reports nothing more."""
    contexts: list[Context] = []

    @server.tool
    async def work(ctx: Context) -> None:
        contexts.append(ctx)
        await ctx.report_progress(1)
        if cancel:
            await trio.sleep_forever()

    exchange = Recorder()
    asked = request("tools/call", {"name": "work"}, progressToken=1)
    with trio.move_on_after(0.02):
        await server.handle(asked, exchange)
    await contexts[0].report_progress(2)
    assert len(exchange.sent) == 1


async def test_a_report_under_way_does_not_follow_the_answer(
    server: Server, nursery: trio.Nursery
) -> None:
    """W82: with a peer that is slow to read."""
    exchange = Recorder()
    exchange.hold = trio.Event()
    returned = trio.Event()

    async def background(ctx: Context) -> None:
        await ctx.report_progress(1)
        returned.set()

    @server.tool
    async def work(ctx: Context) -> str:
        nursery.start_soon(background, ctx)
        await trio.testing.wait_all_tasks_blocked()
        return "done"

    await server.handle(request("tools/call", {"name": "work"}, progressToken=1), exchange)
    with trio.fail_after(5):
        await returned.wait()
    exchange.hold.set()
    await trio.testing.wait_all_tasks_blocked()
    assert exchange.sent == []


async def test_progress_from_a_thread(server: Server) -> None:
    @server.tool
    def work(ctx: Context) -> None:
        trio.from_thread.run(ctx.report_progress, 1)

    assert await progress_of(server, "work", progressToken="t") == [
        {"progressToken": "t", "progress": 1}
    ]


async def test_progress_to_a_client_that_has_gone(server: Server) -> None:
    """W63, W82: a report that nobody can take does not fail who made it."""

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1)
        return "done"

    exchange = Recorder()
    exchange.gone = True
    response = await ask(server, "tools/call", {"name": "work"}, exchange=exchange, progressToken=1)
    assert text_of(response["result"]) == "done"


async def test_publishing_from_handlers(server: Server, nursery: trio.Nursery) -> None:
    """W65: from a task, and from a thread, with somebody listening and with nobody."""

    @server.tool
    async def task(ctx: Context) -> int:
        return ctx.publish(ResourceUpdated("x://task")).matched

    @server.tool
    def thread(ctx: Context) -> int:
        return ctx.publish(ResourceUpdated("x://thread")).matched

    @server.tool
    def register() -> bool:
        server.add_tool(lambda: "", name=f"t{threading.get_ident()}")
        return True

    assert (await call(server, "task"))["structuredContent"] == 0
    assert (await call(server, "thread"))["structuredContent"] == 0
    listener = Recorder()
    wanted = {"resourceSubscriptions": ["x://task", "x://thread"], "toolsListChanged": True}
    listen = request("subscriptions/listen", {"notifications": wanted}, request_id=9)
    nursery.start_soon(server.handle, listen, listener)
    await listener.wait_for(1)
    assert (await call(server, "task"))["structuredContent"] == 1
    assert (await call(server, "thread"))["structuredContent"] == 1
    assert (await call(server, "register"))["structuredContent"] is True
    sent = await listener.wait_for(4)
    assert {message["params"].get("uri") for message in sent[1:]} == {
        "x://task",
        "x://thread",
        None,
    }
    nursery.cancel_scope.cancel()


async def test_a_context_of_a_server_without_a_hub() -> None:
    server = Server("s", version="1")

    @server.tool
    async def task(ctx: Context) -> int:
        return ctx.publish(ResourceUpdated("x://a")).matched

    assert text_of(await call(server, "task")).startswith("RuntimeError: the server has no hub")


LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


async def logged(server: Server, **meta: Any) -> list[dict[str, Any]]:
    exchange = Recorder()
    response = await ask(server, "tools/call", {"name": "work"}, exchange=exchange, **meta)
    assert "error" not in response
    assert all(m["method"] == "notifications/message" for m in exchange.sent)
    return [message["params"] for message in exchange.sent]


async def test_logs_go_to_whoever_asked_for_their_level(server: Server) -> None:
    """W83: at or above the level of the request, and none asked for is none sent."""

    @server.tool
    async def work(ctx: Context) -> None:
        for level in get_args(LogLevel):
            await ctx.log(level, f"at {level}")

    assert await logged(server) == []
    assert get_args(LogLevel) == LEVELS
    for at, level in enumerate(LEVELS):
        sent = await logged(server, **{LOG_LEVEL: level})
        assert [params["level"] for params in sent] == list(LEVELS[at:])
        assert sent[0] == {"level": level, "data": f"at {level}"}


async def test_levels_do_not_leak_between_requests(server: Server, nursery: trio.Nursery) -> None:
    """W83: overlapping requests, of which one asked."""
    both = trio.Event()
    running = 0

    @server.tool
    async def work(ctx: Context) -> None:
        nonlocal running
        running += 1
        if running == 2:
            both.set()
        await both.wait()
        await ctx.log("emergency", ctx.request_id)

    exchanges = Recorder(), Recorder()
    metas: tuple[dict[str, Any], ...] = ({LOG_LEVEL: "debug"}, {})
    async with trio.open_nursery() as inner:
        for number, (exchange, meta) in enumerate(zip(exchanges, metas, strict=True)):
            asked = request("tools/call", {"name": "work"}, request_id=number, **meta)
            inner.start_soon(server.handle, asked, exchange)
    assert [message["params"]["data"] for message in exchanges[0].sent] == [0]
    assert exchanges[1].sent == []


async def test_a_log_message_may_hold_any_json_value(server: Server) -> None:
    """W63: and what cannot be sent is the mistake of the handler, seen before anything is sent."""

    @server.tool
    async def work(ctx: Context) -> None:
        await ctx.log("info", {"a": [1, None]}, logger="db")
        await ctx.log("info", None)
        with pytest.raises(ValueError, match="object"):
            await ctx.log("info", object())
        with pytest.raises(ValueError, match="one of debug"):
            await ctx.log("loud", "x")  # type: ignore[arg-type]

    assert await logged(server, **{LOG_LEVEL: "info"}) == [
        {"level": "info", "data": {"a": [1, None]}, "logger": "db"},
        {"level": "info", "data": None},
    ]


async def test_no_log_after_the_answer(server: Server) -> None:
    contexts: list[Context] = []

    @server.tool
    async def work(ctx: Context) -> None:
        contexts.append(ctx)

    exchange = Recorder()
    await ask(server, "tools/call", {"name": "work"}, exchange=exchange, **{LOG_LEVEL: "debug"})
    await contexts[0].log("emergency", "late")
    assert exchange.sent == []


async def test_a_level_that_is_none_is_refused(server: Server) -> None:
    """W83: "loud" is -32602."""
    loud: dict[str, Any] = {LOG_LEVEL: "loud"}
    response = await ask(server, "tools/list", **loud)
    assert response["error"]["code"] == errors.INVALID_PARAMS


async def test_the_trace_context_is_passed_through(server: Server) -> None:
    @server.tool
    async def work(ctx: Context) -> dict[str, str]:
        return ctx.trace_context

    traced: dict[str, Any] = {
        "traceparent": "00-0af7-b7-01",
        "baggage": "a=1",
        "tracestate": 5,
        "other": "x",
    }
    asked = request("tools/call", {"name": "work"}, **traced)
    response = json.loads((await server.handle(asked, Recorder())).frame)
    assert response["result"]["structuredContent"] == {
        "traceparent": "00-0af7-b7-01",
        "baggage": "a=1",
    }
    assert (await call(server, "work"))["structuredContent"] == {}


async def test_who_asks_and_how(server: Server) -> None:
    @server.tool
    async def work(ctx: Context) -> list[Any]:
        assert ctx.principal is not None
        return [ctx.principal.name, ctx.headers["x"], ctx.transport, ctx.meta.raw["org.x/y"]]

    exchange = Recorder(principal=Principal("alice"), headers={"x": "1"})
    response = await ask(server, "tools/call", {"name": "work"}, exchange=exchange, **EXTENSION)
    assert response["result"]["structuredContent"] == ["alice", "1", "memory", True]
