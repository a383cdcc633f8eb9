"""What a server needs while it runs: opened once, however many serve it, and closed in the end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from server_kit import call, text_of

from mcp_trio import asgi_app, open_memory_client, serve_http
from mcp_trio.server import Context, Server
from mcp_trio.server.lifespan import LAST_REQUESTS
from mcp_trio.testing import memory_pipe
from mcp_trio.transports.lines import serve_lines


class Life:
    """A lifespan that writes down what happens to it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fail: str | None = None
        self.opening: trio.Event | None = None

    @asynccontextmanager
    async def __call__(self, server: Server) -> AsyncIterator[str]:
        if self.fail == "open":
            raise OSError("no database")
        if self.opening is not None:
            await self.opening.wait()
        self.events.append(f"open {server.info.name}")
        try:
            yield f"state {len(self.events)}"
        finally:
            self.events.append("close")
        if self.fail == "close":
            raise OSError("not closed")


@pytest.fixture
def life() -> Life:
    return Life()


@pytest.fixture
def server(life: Life) -> Server:
    server = Server("s", version="1", lifespan=life)

    @server.tool
    async def state(ctx: Context) -> str:
        return str(ctx.lifespan)

    return server


async def state_of(client: Any) -> str:
    result = await client.call_tool("state")
    text: str = result.content[0].text
    return text


async def test_handlers_find_its_state(server: Server, life: Life) -> None:
    async with open_memory_client(server) as client:
        assert life.events == ["open s"]
        assert await state_of(client) == "state 1"
        assert server.lifespan == "state 1"
    assert life.events == ["open s", "close"]
    async with open_memory_client(server) as client:
        assert await state_of(client) == "state 3"


async def test_it_is_shared(server: Server, life: Life) -> None:
    async with server.running() as state:
        assert state == "state 1"
        async with open_memory_client(server) as one, open_memory_client(server) as two:
            assert await state_of(one) == await state_of(two) == "state 1"
        assert life.events == ["open s"]
    assert life.events == ["open s", "close"]


async def test_the_first_waits_for_the_others(server: Server, life: Life) -> None:
    left = []

    async def serve(name: str, until: trio.Event, status: Any) -> None:
        async with server.running():
            status.started()
            await until.wait()
        left.append(name)

    events = [trio.Event(), trio.Event()]
    async with trio.open_nursery() as nursery:
        for name, event in zip("ab", events, strict=True):
            await nursery.start(lambda task_status, n=name, e=event: serve(n, e, task_status))
        events[0].set()
        await trio.testing.wait_all_tasks_blocked()
        assert (left, life.events) == ([], ["open s"])
        async with open_memory_client(server) as client:
            assert await state_of(client) == "state 1"
        events[1].set()
        await trio.testing.wait_all_tasks_blocked()
        assert (left, life.events) == (["b", "a"], ["open s", "close"])


@pytest.mark.parametrize("stays", [1.0, 100.0])
async def test_the_first_is_cancelled(
    server: Server, life: Life, stays: float, autojump_clock: trio.testing.MockClock
) -> None:
    """Those who are still inside get time to leave, and no more than that."""
    closed = []

    async def first(scope: trio.CancelScope, status: Any) -> None:
        with scope:
            async with server.running():
                status.started()
                await trio.sleep_forever()
        closed.append(trio.current_time())

    async def second() -> None:
        async with server.running():
            await trio.sleep(stays)

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: first(scope, task_status))
        nursery.start_soon(second)
        await trio.testing.wait_all_tasks_blocked()
        begun = trio.current_time()
        scope.cancel()
    assert closed[0] - begun == pytest.approx(min(stays, LAST_REQUESTS))
    assert life.events == ["open s", "close"]
    with pytest.raises(RuntimeError, match="not open"):
        _ = server.lifespan


async def test_it_is_not_open_before_it_is_served(server: Server) -> None:
    text = text_of(await call(server, "state"))
    assert text.startswith("RuntimeError: the lifespan is not open: serve the server, or enter")


async def test_a_server_without_one() -> None:
    server = Server("s", version="1")

    @server.tool
    async def state(ctx: Context) -> str:
        return repr(ctx.lifespan)

    async with server.running() as state_given, open_memory_client(server) as client:
        assert state_given is None
        assert await state_of(client) == "None"


async def test_it_cannot_be_opened(server: Server, life: Life) -> None:
    life.fail = "open"
    for _ in range(2):
        with pytest.raises(OSError, match="no database"):
            async with open_memory_client(server):
                raise AssertionError("unreachable")
    life.fail = "close"
    with pytest.raises(OSError, match="not closed"):
        async with open_memory_client(server):
            pass
    life.fail = None
    async with open_memory_client(server) as client:
        assert (await state_of(client)).startswith("state")


async def test_the_others_wait_until_it_is_open(server: Server, life: Life) -> None:
    """And if it fails for the first, the next one tries."""
    life.opening = trio.Event()
    states: list[str] = []

    async def serve() -> None:
        async with open_memory_client(server) as client:
            states.append(await state_of(client))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(serve)
            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            assert states == []
        life.opening.set()
    assert states == ["state 1", "state 1"]
    assert life.events == ["open s", "close"]
    assert not scope.cancelled_caught


async def test_a_nursery_in_it_does_not_wrap_what_fails(life: Life) -> None:
    """One cause is one exception, also through the nursery of the lifespan."""

    @asynccontextmanager
    async def background(_: Server) -> AsyncIterator[trio.Nursery]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            yield nursery
            nursery.cancel_scope.cancel()

    server = Server("s", version="1", lifespan=background)
    with pytest.raises(KeyError, match="x"):
        async with server.running():
            raise KeyError("x")

    async def fail() -> None:
        raise KeyError("background")

    with pytest.RaisesGroup(KeyError):
        async with server.running() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()
    with trio.move_on_after(0) as scope:
        async with server.running():
            await trio.sleep_forever()
    assert scope.cancelled_caught
    async with server.running() as nursery:
        nursery.cancel_scope.cancel()
        await trio.sleep_forever()


async def test_over_lines(server: Server, life: Life) -> None:
    client_end, server_end = memory_pipe(), memory_pipe()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, server, client_end[1], server_end[0])
        await trio.testing.wait_all_tasks_blocked()
        assert life.events == ["open s"]
        await client_end[0].aclose()
    assert life.events == ["open s", "close"]


async def test_over_http(server: Server, life: Life, nursery: trio.Nursery) -> None:
    stop = trio.Event()
    other = Server("other", version="1", lifespan=life)
    with trio.fail_after(10):
        async with trio.open_nursery() as inner:
            await inner.start(
                lambda task_status: serve_http(
                    {"/mcp": server, "/other": other},
                    port=0,
                    handle_signals=False,
                    shutdown_trigger=stop.wait,
                    task_status=task_status,
                )
            )
            assert life.events == ["open s", "open other"]
            stop.set()
    assert life.events == ["open s", "open other", "close", "close"]


async def asgi_lifespan(server: Server) -> list[dict[str, Any]]:
    """What the application says to its host when it is started and stopped."""
    said: list[dict[str, Any]] = []
    asked = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"type": next(asked)}

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        said.append(dict(message))

    await asgi_app(server)({"type": "lifespan"}, receive, send)
    return said


async def test_under_an_asgi_host(
    server: Server, life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    assert await asgi_lifespan(server) == [
        {"type": "lifespan.startup.complete"},
        {"type": "lifespan.shutdown.complete"},
    ]
    assert life.events == ["open s", "close"]
    life.fail = "open"
    assert await asgi_lifespan(server) == [
        {"type": "lifespan.startup.failed", "message": "no database"}
    ]
    life.fail = "close"
    assert await asgi_lifespan(server) == [
        {"type": "lifespan.startup.complete"},
        {"type": "lifespan.shutdown.failed", "message": "not closed"},
    ]
    assert "the lifespan failed on shutdown" in caplog.text
