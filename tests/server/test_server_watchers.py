"""What runs while somebody is subscribed to a resource."""

import itertools
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from server_kit import Recorder, request

from mcp_trio.server import Limits, Server
from mcp_trio.server.watchers import FIRST_DELAY, LONGEST_DELAY
from mcp_trio.subscriptions.events import ResourceUpdated
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.testing import open_memory_client

T = "db://{table}"


class Log:
    """What watchers did, and how many run for each URI now."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.running: dict[str, int] = {}

    @contextmanager
    def run(self, name: str) -> Iterator[None]:
        self.running[name] = self.running.get(name, 0) + 1
        assert self.running[name] == 1, "two at once"
        self.lines.append(f"+{name}")
        try:
            yield
        finally:
            self.running[name] -= 1
            self.lines.append(f"-{name}")


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def server(log: Log) -> Server:
    server = Server("s", version="1", hub=Hub())

    @server.watcher(T)
    async def poll(table: str) -> None:
        with log.run(table):
            await trio.sleep_forever()

    return server


class Subscriber:
    """One subscription of a test, which `leave` cancels."""

    def __init__(self, server: Server, nursery: trio.Nursery, *uris: str) -> None:
        self.exchange = Recorder()
        self.scope = trio.CancelScope()
        self.code: int | None = None
        nursery.start_soon(self._run, server, uris)

    async def _run(self, server: Server, uris: tuple[str, ...]) -> None:
        wanted = {"notifications": {"resourceSubscriptions": list(uris)}}
        with self.scope:
            reply = await server.handle(request("subscriptions/listen", wanted), self.exchange)
            self.code = reply.error_code

    def leave(self) -> None:
        self.scope.cancel()

    @property
    def told(self) -> list[str]:
        return [message["params"]["uri"] for message in self.exchange.sent[1:]]


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_it_starts_with_the_first_and_stops_with_the_last(
    server: Server, log: Log, nursery: trio.Nursery
) -> None:
    """W66: once each, for each URI, however the last one leaves."""
    async with server.running():
        first = Subscriber(server, nursery, "db://a", "db://b")
        await settle()
        assert sorted(log.lines) == ["+a", "+b"]
        second = Subscriber(server, nursery, "db://a", "note://x")
        await settle()
        first.leave()
        await settle()
        assert log.lines[2:] == ["-b"]
        second.leave()
        await settle()
        assert log.lines[3:] == ["-a"]
        Subscriber(server, nursery, "db://a")
        await settle()
        assert server.end_subscriptions() == 1
        await settle()
        assert log.lines[4:] == ["+a", "-a"]


async def test_all_stop_with_the_server(server: Server, log: Log, nursery: trio.Nursery) -> None:
    async with server.running():
        subscriber = Subscriber(server, nursery, "db://a")
        await settle()
    assert log.lines == ["+a", "-a"]
    subscriber.leave()
    await settle()
    async with server.running():
        Subscriber(server, nursery, "db://a")
        await settle()
        assert log.lines == ["+a", "-a", "+a"]
    nursery.cancel_scope.cancel()


async def test_a_context_manager_is_entered_and_left(nursery: trio.Nursery) -> None:
    """And an update follows its entering: nobody watched what changed before."""
    hub, log = Hub(), Log()
    server = Server("s", version="1", hub=hub)
    ready = trio.Event()

    @server.watcher("db://{number}")
    @asynccontextmanager
    async def watch(number: int, uri: str) -> AsyncIterator[None]:
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            with log.run(f"{uri} {number + 1}"):
                await ready.wait()
                yield
            inner.cancel_scope.cancel()

    async with server.running():
        subscriber = Subscriber(server, nursery, "db://41", "db://x")
        await settle()
        assert log.lines == ["+db://41 42"]
        assert subscriber.told == []
        ready.set()
        await settle()
        assert subscriber.told == ["db://41"]
        late = Subscriber(server, nursery, "db://41")
        await settle()
        assert late.told == []
        subscriber.leave()
        late.leave()
        await settle()
        assert log.running == {"db://41 42": 0}


async def test_what_fails_is_logged_and_started_again(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """W63: it backs off, and fails nobody but itself."""
    monkeypatch.setattr(random, "uniform", lambda _, high: high)
    server = Server("s", version="1", hub=Hub())
    begun: list[float] = []
    start = trio.current_time()

    @server.watcher("note://a")
    async def broken() -> None:
        begun.append(round(trio.current_time() - start, 3))
        if len(begun) == 12:
            await trio.sleep(20)
        async with trio.open_nursery():
            raise OSError("no database")

    async with server.running():
        subscriber = Subscriber(server, nursery, "note://a")
        await trio.sleep(1)
        assert begun == [0, 0.1, 0.3, 0.7]
        await trio.sleep(200)
        gaps = [b - a for a, b in itertools.pairwise(begun)]
        assert max(gaps[:11]) == pytest.approx(LONGEST_DELAY)
        assert gaps[11] == pytest.approx(20 + FIRST_DELAY)
        assert "no database" in caplog.text
        subscriber.leave()
        await settle()
        count = len(begun)
        await trio.sleep(100)
        assert len(begun) == count
        assert subscriber.exchange.sent


@pytest.mark.parametrize("how", ["an error", "a group"])
async def test_what_fails_while_it_stops_is_logged(
    how: str, server: Server, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    @server.watcher("note://a")
    async def broken() -> None:
        if how == "a group":
            async with trio.open_nursery() as inner:
                inner.start_soon(fail)
                await trio.sleep_forever()
        await fail()

    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("cannot close")

    async with server.running():
        Subscriber(server, nursery, "note://a").leave()
        subscriber = Subscriber(server, nursery, "note://a")
        await settle()
        subscriber.leave()
        await settle()
        assert "cannot close" in caplog.text
        assert server.open_subscriptions == 0
        Subscriber(server, nursery, "db://a")
        await settle()
    nursery.cancel_scope.cancel()


async def test_one_that_returns_is_done(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    server = Server("s", version="1", hub=Hub())
    calls: list[str] = []

    async def once(uri: str, extra: int = 1) -> None:
        calls.append(uri)

    server.add_watcher("note://a", partial(once, extra=2))
    async with server.running():
        first = Subscriber(server, nursery, "note://a")
        await trio.sleep(100)
        second = Subscriber(server, nursery, "note://a")
        await trio.sleep(1)
        assert calls == ["note://a"]
        first.leave()
        second.leave()
        await settle()
        Subscriber(server, nursery, "note://a")
        await settle()
        assert calls == ["note://a"] * 2
        nursery.cancel_scope.cancel()


async def test_too_much_to_watch_is_refused_before_it_starts(
    log: Log, nursery: trio.Nursery
) -> None:
    """A template stands for any number of URIs, and clients make them up."""
    server = Server("s", version="1", hub=Hub(), limits=Limits(watched_uris=2))

    @server.watcher(T)
    async def poll(table: str) -> None:
        with log.run(table):
            await trio.sleep_forever()

    async with server.running():
        greedy = Subscriber(server, nursery, "db://a", "db://b", "db://c")
        await settle()
        assert (greedy.code, log.lines, greedy.exchange.sent) == (-32603, [], [])
        for _ in range(2):
            Subscriber(server, nursery, "db://a", "db://b")
        await settle()
        assert sorted(log.lines) == ["+a", "+b"]
        nursery.cancel_scope.cancel()


async def test_without_a_running_server_it_says_so(
    server: Server, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    subscriber = Subscriber(server, nursery, "db://a")
    await settle()
    assert "Server.running()" in caplog.text
    assert subscriber.exchange.sent
    nursery.cancel_scope.cancel()


async def test_it_publishes_to_a_real_client() -> None:
    hub = Hub()
    server = Server("s", version="1", hub=hub)

    @server.watcher("count://{step}")
    async def count(step: int, uri: str) -> None:
        while True:
            hub.publish(ResourceUpdated(uri))
            await trio.sleep(0.01)

    from mcp_trio import SubscriptionFilter

    async with open_memory_client(server) as client:
        wanted = SubscriptionFilter(resource_subscriptions=("count://2",))
        with trio.fail_after(5):
            async with client.listen(wanted) as changes:
                for _ in range(3):
                    assert (await changes.receive()) == ResourceUpdated("count://2")


@pytest.mark.parametrize(
    ("uri", "function", "error"),
    [
        ("relative", lambda: None, ValueError),
        ("db://{a}{?b*}", lambda a, b: None, ValueError),
        (T, lambda: None, TypeError),
        (T, lambda table, other: None, TypeError),
        ("db://x{?q}", lambda q: None, TypeError),
        ("db://x", lambda table: None, TypeError),
    ],
)
def test_what_cannot_work_is_refused(uri: str, function: Any, error: type[Exception]) -> None:
    server = Server("s", version="1", hub=Hub())
    with pytest.raises(error):
        server.add_watcher(uri, function)


def test_there_is_one_watcher_for_each(server: Server) -> None:
    with pytest.raises(ValueError, match="already"):
        server.add_watcher(T, lambda table: None)


def test_a_watcher_serves_no_request(server: Server) -> None:
    from mcp_trio import Context

    async def poll(ctx: Context) -> None: ...

    with pytest.raises(TypeError, match="context"):
        server.add_watcher("note://x", poll)


Steps = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "yield", "tick"]), st.sampled_from("ab")),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(Steps, st.integers(0, 3), st.booleans())
def test_however_they_come_and_go(steps: list[tuple[str, str]], cleanup: int, fails: bool) -> None:
    """W66: never two for one URI, always one where there is a subscriber, and nothing is left."""

    async def main() -> None:
        log = Log()
        server = Server("s", version="1", hub=Hub())

        @server.watcher(T)
        @asynccontextmanager
        async def watch(table: str) -> AsyncIterator[None]:
            with log.run(table):
                await trio.lowlevel.checkpoint()
                try:
                    yield
                finally:
                    with trio.move_on_after(5, shield=True):
                        for _ in range(cleanup):
                            await trio.lowlevel.checkpoint()
                    if fails:
                        raise OSError("cannot stop")

        async with server.running(), trio.open_nursery() as nursery:
            here: dict[str, list[Subscriber]] = {"a": [], "b": []}
            for what, table in steps:
                if what == "join":
                    here[table].append(Subscriber(server, nursery, f"db://{table}"))
                elif what == "leave" and here[table]:
                    here[table].pop().leave()
                elif what == "tick":
                    await trio.lowlevel.checkpoint()
                else:
                    await settle()
                    for name, those in here.items():
                        assert log.running.get(name, 0) == bool(those)
            nursery.cancel_scope.cancel()
        assert not any(log.running.values())

    trio.run(main)
