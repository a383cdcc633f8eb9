"""Middleware: what runs around every request."""

import gc
import logging
import weakref
from typing import Any

import pytest
import trio
from server_kit import Recorder, ask, error_of, request, result_of, text_of

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.server import Server
from mcp_trio.server.middleware import Incoming, Next
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.transports.abc import Principal


def make(*middleware: Any, **options: Any) -> Server:
    server = Server("s", version="1", middleware=middleware, **options)

    @server.tool
    async def hello() -> str:
        return "hello"

    @server.resource("note://broken")
    async def broken() -> str:
        raise OSError("secret-host")

    return server


async def test_the_first_is_the_outermost() -> None:
    log: list[str] = []

    def named(name: str) -> Any:
        async def around(call: Incoming, proceed: Next) -> jsonrpc.Reply:
            log.append(f"{name}> {call.method}")
            try:
                return await proceed(call)
            finally:
                log.append(f"<{name}")

        return around

    server = make(named("a"), named("b"))
    result = await result_of(server, "tools/call", name="hello")
    assert text_of(result) == "hello"
    assert log == ["a> tools/call", "b> tools/call", "<b", "<a"]


async def test_it_sees_what_there_is_to_know_of_a_request() -> None:
    seen: list[Any] = []

    async def look(call: Incoming, proceed: Next) -> jsonrpc.Reply:
        seen.append((call.params["name"], call.principal, call.headers["x"], call.kind))
        return await proceed(call)

    exchange = Recorder(principal=Principal("alice"), headers={"x": "y"})
    await ask(make(look), "tools/call", {"name": "hello"}, exchange=exchange)
    assert seen == [("hello", Principal("alice"), "y", "memory")]


async def test_it_can_turn_a_request_away() -> None:
    async def limit(call: Incoming, proceed: Next) -> jsonrpc.Reply:
        raise errors.ServerBusy("slow down", retry_after=2)

    server = make(limit)
    reply = await server.handle(request("tools/list"), Recorder())
    assert (reply.error_code, reply.retry_after) == (-32603, 2)
    assert server.statistics().requests == 0


async def test_it_sees_what_is_raised_and_the_client_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W63: the traceback is for the log."""
    seen: list[Exception] = []

    async def watch(call: Incoming, proceed: Next) -> jsonrpc.Reply:
        try:
            return await proceed(call)
        except Exception as problem:
            seen.append(problem)
            raise

    server = make(watch)
    error = await error_of(server, "resources/read", uri="note://broken")
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    error = await error_of(server, "resources/read", uri="note://none")
    assert error["code"] == -32602
    assert [type(problem).__name__ for problem in seen] == ["OSError", "ResourceNotFound"]
    assert "secret-host" in caplog.text


@pytest.mark.parametrize("how", ["raise", "group", "return"])
async def test_one_that_fails_fails_the_request_alone(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """W63: an internal error without a word of the cause, which is in the log."""

    async def broken(call: Incoming, proceed: Next) -> Any:
        if how == "raise":
            raise ValueError("secret")
        if how == "group":
            raise BaseExceptionGroup("x", [ValueError("secret")])
        return {"secret": await proceed(call)}

    with caplog.at_level(logging.ERROR, "mcp_trio.server"):
        error = await error_of(make(broken), "tools/list")
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    assert "secret" in caplog.text
    assert caplog.records[0].exc_info


async def test_a_subscription_runs_inside_and_keeps_nothing_of_its_request(
    nursery: trio.Nursery,
) -> None:
    """S-23: a middleware's frame lives as long as the stream, and what opened it does not."""
    ended: list[str] = []

    async def around(call: Incoming, proceed: Next) -> jsonrpc.Reply:
        try:
            return await proceed(call)
        finally:
            ended.append(call.method)

    class Params(dict[str, Any]):
        pass

    server = make(around, hub=Hub())
    exchange = Recorder()
    asked = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    asked.params = params = Params(asked.params)
    gone = weakref.ref(params)
    nursery.start_soon(server.handle, asked, exchange)
    del params
    await exchange.wait_for(1)
    gc.collect()
    assert gone() is None
    assert not ended
    assert server.end_subscriptions() == 1
    await trio.testing.wait_all_tasks_blocked()
    assert ended == ["subscriptions/listen"]


async def test_cancelling_goes_through() -> None:
    async def around(call: Incoming, proceed: Next) -> jsonrpc.Reply:
        return await proceed(call)

    server = make(around)

    @server.tool
    async def wait() -> None:
        await trio.sleep_forever()

    with trio.move_on_after(0.05) as scope:
        await server.handle(request("tools/call", {"name": "wait"}), Recorder())
    assert scope.cancelled_caught
