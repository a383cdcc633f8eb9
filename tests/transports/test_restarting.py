"""A server that is started again: whose turn it is, in virtual time and without processes."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import Backoff, errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.testing import ScriptedPeer, open_scripted_peer
from mcp_trio.transports.client_lines import LineTransport
from mcp_trio.transports.restarting import RestartingTransport, open_restarting_transport


class Longest(random.Random):
    """No luck: every delay is as long as it may be."""

    def random(self) -> float:
        return 1.0


class Servers:
    """One scripted server after the other; `starts` has when each was started."""

    def __init__(self) -> None:
        self.peers: list[ScriptedPeer] = []
        self.starts: list[float] = []
        self.refusing: Callable[[], None] = lambda: None
        self.running = 0
        self._news = trio.Condition()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[LineTransport]:
        self.starts.append(trio.current_time())
        async with self._news:
            self._news.notify_all()
        self.refusing()
        async with open_scripted_peer() as peer:
            self.peers.append(peer)
            self.running += 1
            try:
                yield peer.transport
            finally:
                self.running -= 1

    def refuse(self) -> None:
        def raise_lost() -> None:
            raise errors.ConnectionLost(f"no such program ({len(self.starts)})")

        self.refusing = raise_lost

    async def die(self) -> None:
        await self.peers[-1].cut()
        await trio.testing.wait_all_tasks_blocked()

    async def started(self, count: int) -> None:
        async with self._news:
            while len(self.starts) < count:
                await self._news.wait()
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def restarting(
    give_up_after: int | None = None, **rule: float
) -> AsyncIterator[tuple[RestartingTransport, Servers]]:
    servers = Servers()
    async with open_restarting_transport(
        servers.connect, Backoff(**rule), give_up_after=give_up_after, chance=Longest()
    ) as transport:
        yield transport, servers
    assert servers.running == 0


async def ask(transport: RestartingTransport, request_id: int = 1) -> dict[str, Any]:
    async with transport.open_exchange(request_id, "x", {}) as messages:
        reply = await messages.receive()
    assert isinstance(reply, jsonrpc.ResultReply)
    return reply.result


async def answer(peer: ScriptedPeer, **result: Any) -> None:
    await peer.answer(await peer.expect("x"), result)


async def test_what_is_asked_while_there_is_no_server_waits_for_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """W69, W87: what was under way fails at once; what comes after is answered by the next."""
    async with restarting() as (transport, servers), trio.open_nursery() as nursery:
        nursery.start_soon(answer, servers.peers[0])
        assert (await ask(transport)) == {"resultType": "complete"}
        async with transport.open_exchange(2, "x", {}) as messages:
            await trio.sleep(1)
            died = trio.current_time()
            await servers.die()
            with pytest.raises(errors.ConnectionLost, match="ended the connection"):
                await messages.receive()
        assert trio.current_time() == died
        assert not transport.statistics().running
        nursery.start_soon(ask, transport, 3)
        await servers.started(2)
        assert servers.starts == [0, pytest.approx(died + 0.1)]
        assert transport.statistics().running
        # Its id is its own: the server is another one, and knows nothing of the request that died.
        request = await servers.peers[1].expect("x")
        assert request["id"] == 3
        await servers.peers[1].answer(request)


async def test_waiting_for_a_server_can_be_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """W87: nobody who waits is held, and nothing is sent for whom has stopped to wait."""
    async with restarting(initial=5.0) as (transport, servers):
        await servers.die()
        with trio.move_on_after(1) as scope:
            await ask(transport)
        assert scope.cancelled_caught
        assert trio.current_time() == 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, transport, 2)
            await servers.started(2)
            request = await servers.peers[1].expect("x")
            assert request["id"] == 2
            await servers.peers[1].answer(request)


async def test_delays_grow_with_failures_and_are_forgotten_after_enough_uptime(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """P-04, W87: a server that comes up and goes at once is a failure each time."""
    async with restarting(initial=1.0, maximum=4.0, min_uptime=10.0) as (transport, servers):
        for count in range(1, 6):
            await servers.started(count)
            await servers.die()
            assert transport.statistics().failures == count
        assert servers.starts == [0, 1, 3, 7, 11]
        await servers.started(6)
        assert servers.starts[-1] == 15
        await trio.sleep(10)
        await servers.die()
        assert transport.statistics().failures == 0
        await servers.started(7)
        assert servers.starts[-1] == 26
        assert transport.statistics().restarts == 6
        assert not transport.ended


async def test_who_waits_for_a_server_that_cannot_be_started_is_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """W87: that request fails with the reason; the next one waits for another attempt."""
    async with restarting(initial=1.0) as (transport, servers):
        servers.refuse()
        await servers.die()
        for number in (2, 3):
            with pytest.raises(errors.ConnectionLost, match=rf"no such program \({number}\)"):
                await ask(transport)
        assert trio.current_time() == 3
        statistics = transport.statistics()
        assert (statistics.running, statistics.restarts, statistics.failures) == (False, 0, 3)
        assert statistics.last_end == "no such program (3)"
        servers.refusing = lambda: None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, transport)
            await servers.started(4)
            await answer(servers.peers[1])
        assert transport.statistics().restarts == 1


async def test_giving_up_is_for_good(autojump_clock: trio.testing.MockClock) -> None:
    """P-03, W87: after so many failures in a row; who waits and who comes later is told why."""
    async with restarting(give_up_after=2, initial=1.0) as (transport, servers):
        await servers.die()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_given_up, transport)
            await servers.started(2)
            async with transport.open_exchange(2, "x", {}):
                await servers.peers[1].expect("x")
            before = transport.ended
            # The request that waits has been sent; the one that is under way is not given up.
            await servers.die()
        assert (before, transport.ended) == (False, True)
        await trio.sleep(1000)
        assert servers.starts == [0, 1]
        with pytest.raises(
            errors.ConnectionLost, match="given up after 2 failures in a row: the s"
        ):
            await ask(transport)


async def expect_given_up(transport: RestartingTransport) -> None:
    with pytest.raises(errors.ConnectionLost):
        await ask(transport)


async def test_who_waits_when_it_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    """W87: a request that waits does not wait for what will never be."""
    async with restarting(give_up_after=1) as (transport, servers):
        async with trio.open_nursery() as nursery:
            await servers.peers[0].cut()
            nursery.start_soon(expect_given_up, transport)
        with pytest.raises(errors.ConnectionLost, match="given up after 1 failure in a row"):
            await ask(transport)
        assert transport.statistics().restarts == 0


async def test_a_request_that_a_dying_server_could_not_read_goes_to_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """W87: it has not been sent, so it is as good as made a moment later; but only once."""
    async with restarting(initial=1.0) as (transport, servers), trio.open_nursery() as nursery:
        await servers.peers[0].cut(broken=True)  # and nobody has noticed yet
        nursery.start_soon(ask, transport)
        await servers.started(2)
        assert trio.current_time() == 1
        await answer(servers.peers[1])


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("state", ["running", "waiting"])
async def test_leaving_ends_all_of_it(
    state: str, cancelled: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """W25, W61: while a server runs, and while the next one is waited for, in no time."""
    with trio.CancelScope() as scope:
        async with restarting(initial=1000.0, maximum=1000.0) as (transport, servers):
            if state == "waiting":
                await servers.die()
            if cancelled:
                scope.cancel()
                await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught == cancelled
    assert trio.current_time() < 1
    assert servers.running == 0
    assert transport.ended
    with pytest.raises(errors.ConnectionLost, match="the connection has been closed"):
        await ask(transport)


async def test_who_waits_while_the_block_is_left(autojump_clock: trio.testing.MockClock) -> None:
    """W61: a task that outlives the block does not wait for ever."""
    async with (
        trio.open_nursery() as nursery,
        restarting(initial=1000.0, maximum=1000.0) as (transport, servers),
    ):
        await servers.die()
        nursery.start_soon(expect_given_up, transport)
        await trio.testing.wait_all_tasks_blocked()


async def test_what_belongs_to_no_request_is_heard_from_each_server(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What a server says to nobody in particular reaches whoever wants it, restarted or not."""
    heard: list[str] = []
    async with restarting() as (transport, servers):
        await servers.peers[0].notify("notifications/nobody-listens")
        await trio.testing.wait_all_tasks_blocked()
        transport.on_unrouted = lambda notification: heard.append(notification.method)
        await servers.peers[0].notify("notifications/first")
        await trio.testing.wait_all_tasks_blocked()
        await servers.die()
        await servers.started(2)
        await servers.peers[1].notify("notifications/second")
        await trio.testing.wait_all_tasks_blocked()
        assert transport.statistics().connection.unrouted == 1
    assert heard == ["notifications/first", "notifications/second"]


async def test_the_first_server_has_to_start(autojump_clock: trio.testing.MockClock) -> None:
    """W62, W87: a wrong command is an error of the block, once and as itself."""
    servers = Servers()
    servers.refuse()
    with pytest.raises(errors.ConnectionLost, match="no such program"):
        async with open_restarting_transport(servers.connect, Backoff()):
            pytest.fail("not reached")
    assert len(servers.starts) == 1
    with pytest.raises(ValueError, match="give_up_after must be positive"):
        async with open_restarting_transport(servers.connect, Backoff(), give_up_after=0):
            pytest.fail("not reached")
