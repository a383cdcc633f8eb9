"""What a server counts: requests by method, errors by code, subscriptions by their end."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing
from server_kit import Recorder, ask, call, request

from mcp_trio import errors
from mcp_trio.server import Limits, Server
from mcp_trio.subscriptions.events import Event, ToolsListChanged
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import (
    CloseReason,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)
from mcp_trio.transports.abc import Principal

TOOLS = {"toolsListChanged": True}


class BrokenHandle(SourceHandle):
    """Fails when it is asked for the first event."""

    @property
    def accepted(self) -> SubscriptionFilter:
        return SubscriptionFilter(tools_list_changed=True)

    async def receive(self) -> Event:
        raise OSError("the database is gone")

    async def aclose(self, reason: CloseReason) -> None:
        await trio.lowlevel.checkpoint()


class BrokenSource(SubscriptionSource):
    """Its subscriptions are opened, and no more than that."""

    async def open(self, wanted: SubscriptionFilter, context: SubscriptionContext) -> SourceHandle:
        return BrokenHandle()


async def listen(
    server: Server,
    exchange: Recorder | None = None,
    notifications: Any = TOOLS,
    scope: trio.CancelScope | None = None,
) -> None:
    with scope or trio.CancelScope():
        await server.handle(
            request("subscriptions/listen", {"notifications": notifications}),
            exchange or Recorder(),
        )


def ended(server: Server) -> Mapping[str, int]:
    numbers = server.statistics()
    assert numbers.requests == numbers.subscriptions == 0
    assert numbers.handled["subscriptions/listen"] == sum(numbers.ended.values())
    return happened(numbers.ended)


def happened(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts without those of what has not happened."""
    return {name: count for name, count in counts.items() if count}


async def test_requests_are_counted_by_method_and_errors_by_code() -> None:
    """What clients or handlers make up is counted together: it could be anything."""
    server = Server("s", version="1")

    @server.tool
    async def fail(code: int) -> str:
        raise errors.ErrorResponse("no", code=code)

    await ask(server, "tools/list")
    await ask(server, "server/discover")
    await ask(server, "nothing/such")
    await ask(server, "subscriptions/listen", {"notifications": TOOLS})
    await ask(server, "tools/call", {"name": "nothing-such"})
    for code in (-32602, 7, 8, -32603):
        await ask(server, "tools/call", {"name": "fail", "arguments": {"code": code}})
    numbers = server.statistics()
    assert happened(numbers.handled) == {
        "tools/list": 1,
        "server/discover": 1,
        "tools/call": 5,
        "other": 2,
    }
    assert happened(numbers.failed) == {"-32601": 2, "-32602": 2, "-32603": 1, "other": 2}
    assert numbers.ended == {}  # there is nothing to subscribe to
    assert numbers.events_written == 0


async def test_what_has_not_happened_is_there_with_0() -> None:
    """So that whoever watches a count sees the first step, too."""
    numbers = Server("s", version="1", hub=Hub()).statistics()
    assert numbers.handled["subscriptions/listen"] == numbers.handled["other"] == 0
    assert numbers.failed["-32603"] == 0
    assert set(numbers.ended.values()) == {0}


async def test_a_tool_that_fails_has_a_result() -> None:
    server = Server("s", version="1")

    @server.tool
    async def fail() -> str:
        raise ValueError("no")

    assert (await call(server, "fail"))["isError"]
    assert not any(server.statistics().failed.values())


@pytest.mark.parametrize("reason", ["complete", "shutdown", "revoked", "overflow"])
async def test_graceful_ends(reason: str, nursery: trio.Nursery) -> None:
    hub = Hub()
    server = Server("s", version="1", hub=hub)
    exchange = Recorder()
    async with trio.open_nursery() as listening:
        listening.start_soon(listen, server, exchange)
        await exchange.wait_for(1)
        hub.publish(ToolsListChanged())
        await exchange.wait_for(2)
        assert server.statistics().events_written == 1
        server.end_subscriptions(reason)
    assert ended(server) == {reason: 1}
    assert server.statistics().events_written == 1


async def test_ends_with_a_reason_of_ones_own(nursery: trio.Nursery) -> None:
    """It goes to the client as it is, and is nothing to count by: it may name somebody."""
    server = Server("s", version="1", hub=Hub())
    exchange = Recorder()
    async with trio.open_nursery() as listening:
        listening.start_soon(listen, server, exchange)
        await exchange.wait_for(1)
        server.end_subscriptions("bob has left")
    assert ended(server) == {"other": 1}


async def test_expired_and_nothing_granted(autojump_clock: object) -> None:
    server = Server("s", version="1", hub=Hub(kinds={"tools"}))
    await listen(server, Recorder(principal=Principal("bob", trio.current_time() + 5)))
    await listen(server, notifications={"promptsListChanged": True})
    assert ended(server) == {"expired": 1, "nothing-granted": 1}


@pytest.mark.parametrize(("reason", "counted"), [("disconnected: eof", "disconnected"), (None, "")])
async def test_ends_without_a_result(reason: str | None, counted: str) -> None:
    """By the client itself, or because it has gone."""
    server = Server("s", version="1", hub=Hub())
    exchange, scope = Recorder(), trio.CancelScope()
    async with trio.open_nursery() as listening:
        listening.start_soon(listen, server, exchange, TOOLS, scope)
        await exchange.wait_for(1)
        scope.cancel(reason)
    assert ended(server) == {counted or "cancelled": 1}


async def test_who_has_gone_when_something_is_written() -> None:
    hub = Hub()
    server = Server("s", version="1", hub=hub)
    exchange = Recorder()
    async with trio.open_nursery() as listening:
        listening.start_soon(listen, server, exchange)
        await exchange.wait_for(1)
        exchange.gone = True
        hub.publish(ToolsListChanged())
    assert ended(server) == {"disconnected": 1}


async def test_refused_and_failed(caplog: pytest.LogCaptureFixture) -> None:
    """An error before the acknowledgement is a refusal, and after it a failure."""
    server = Server("s", version="1", hub=Hub(), limits=Limits(subscriptions_per_server=1))
    exchange, scope = Recorder(), trio.CancelScope()
    async with trio.open_nursery() as listening:
        listening.start_soon(listen, server, exchange, TOOLS, scope)
        await exchange.wait_for(1)
        await listen(server)
        await listen(server, notifications=5)
        assert happened(server.statistics().ended) == {"refused": 2}
        scope.cancel()
    assert ended(server) == {"refused": 2, "cancelled": 1}
    broken = Server("s", version="1", source=BrokenSource())
    await listen(broken)
    assert ended(broken) == {"error": 1}


async def test_threads_and_who_waits_for_one() -> None:
    """A server whose threads are all in use looks like one that hangs."""
    server = Server("s", version="1", limits=Limits(threads=2))
    release = threading.Event()

    @server.tool
    def block() -> str:
        release.wait(10)
        return "done"

    numbers = server.statistics()
    assert (numbers.threads, numbers.threads_waiting) == (0, 0)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call, server, "block")
            await trio.testing.wait_all_tasks_blocked()
            numbers = server.statistics()
            assert (numbers.requests, numbers.threads, numbers.threads_waiting) == (5, 2, 3)
            release.set()
    assert server.statistics().threads == 0


def test_outside_of_a_run() -> None:
    """A server can be asked at any time."""
    numbers = Server("s", version="1", hub=Hub()).statistics()
    assert numbers.hub is not None
    assert (numbers.threads, numbers.hub.oldest_queued_age) == (0, 0.0)
