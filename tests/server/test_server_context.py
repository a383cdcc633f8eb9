"""Progress, and publishing from handlers."""

import math
import threading
from typing import Any

import pytest
import trio
from server_kit import Recorder, ask, call, request, text_of

from mcp_trio.server import Context, Server
from mcp_trio.subscriptions.events import ResourceUpdated
from mcp_trio.subscriptions.hub import Hub


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
