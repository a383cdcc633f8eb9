"""The publisher's own way to an idle listener, with real sockets and the native HTTP listener."""

import select
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from http_kit import LISTEN, Peer, post, until

from mcp_trio import Hub, ResourceUpdated, Server, ToolsListChanged
from mcp_trio.http.listener import serve_http
from mcp_trio.subscriptions.statistics import PublishReport

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
ONE = "note://one"


@attrs.define
class Served:
    """A server with a hub, on a free port."""

    hub: Hub
    server: Server
    port: int

    @asynccontextmanager
    async def listening(
        self, request_id: int, *uris: str, receive_buffer: int | None = None
    ) -> AsyncIterator[Peer]:
        """A client that listens, and whose listener has begun to wait."""
        sock = trio.socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
        with sock:
            await sock.connect(("127.0.0.1", self.port))
            peer = Peer(trio.SocketStream(sock))
            wanted = {"toolsListChanged": True, "resourceSubscriptions": list(uris)}
            await peer.stream.send_all(post(LISTEN, request_id, notifications=wanted))
            assert (await peer.head()).status == 200
            acknowledgement = await peer.event()
            assert acknowledgement["method"] == "notifications/subscriptions/acknowledged"
            await trio.testing.wait_all_tasks_blocked()
            yield peer


@asynccontextmanager
async def serving(seconds: float = 30, **options: Any) -> AsyncIterator[Served]:
    hub = Hub()
    server = Server("wire", version="1", hub=hub)

    @server.tool
    async def nothing() -> None: ...

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return name

    async with trio.open_nursery() as nursery:
        urls = await nursery.start(lambda **kw: serve_http(server, port=0, **options, **kw))
        port = int(urls[0].rpartition(":")[2].partition("/")[0])
        with trio.fail_after(seconds):
            await trio.lowlevel.checkpoint()
            yield Served(hub, server, port)
        nursery.cancel_scope.cancel()


class Steps(trio.abc.Instrument):
    """Counts the steps that tasks take."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


@contextmanager
def no_step() -> Iterator[None]:
    """Nothing but the block runs."""
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(steps)
    assert steps.count == 0


def read_now(peer: Peer) -> bytes:
    """What is in a client's socket, or comes into it, without giving any task a turn."""
    stream = peer.stream
    assert isinstance(stream, trio.SocketStream)
    poll = select.poll()
    poll.register(stream.socket.fileno(), select.POLLIN)
    assert poll.poll(10_000)
    with socket.socket(fileno=socket.dup(stream.socket.fileno())) as own:
        return own.recv(65536)


def counts(report: PublishReport) -> tuple[int, int, int]:
    return report.matched, report.delivered, report.buffered


def chunk_of(request_id: int) -> bytes:
    message = (
        b'data: {"jsonrpc":"2.0","method":"notifications/resources/updated","params":'
        b'{"_meta":{"io.modelcontextprotocol/subscriptionId":%d},"uri":"note://one"}}\n\n'
    ) % request_id
    return b"%x\r\n%b\r\n" % (len(message), message)


async def test_a_publication_is_in_the_sockets_before_anybody_has_a_turn() -> None:
    """S-65: to each listener with its own id, and no task takes a step for it."""
    async with (
        serving() as served,
        served.listening(7, ONE) as one,
        served.listening(70000, ONE) as other,
    ):
        with no_step():
            assert counts(served.hub.publish(ResourceUpdated(ONE))) == (2, 2, 0)
            assert read_now(one) == chunk_of(7)
            assert read_now(other) == chunk_of(70000)
            # Once more, because the listeners are as idle as before.
            assert counts(served.hub.publish(ResourceUpdated(ONE))) == (2, 2, 0)
            assert read_now(one) == chunk_of(7)
            assert read_now(other) == chunk_of(70000)
        await trio.testing.wait_all_tasks_blocked()
        poll = select.poll()
        poll.register(one.stream.socket.fileno(), select.POLLIN)
        assert not poll.poll(0)


async def test_a_burst_is_written_in_order_and_before_the_result() -> None:
    """S-65, S-81: what was published before the end is before the result, on either way."""
    uris = [f"note://{number}" for number in range(50)]
    async with serving() as served, served.listening(7, *uris) as peer:
        with no_step():
            for uri in uris:
                assert served.hub.publish(ResourceUpdated(uri)).delivered == 1
            served.hub.close("shutdown")
            assert served.hub.publish(ToolsListChanged()).matched == 0
        got = [(await peer.event())["params"]["uri"] for _ in uris]
        assert got == uris
        assert (await peer.event())["result"]["_meta"][SUBSCRIPTION_ID] == 7
        assert await peer.read_chunk() == b""


async def test_a_reader_that_stops_falls_back_and_catches_up() -> None:
    """S-06, S-65, S-66: coalesced meanwhile, then nothing lost; the neighbour feels nothing."""
    uris = [f"note://{number}/{'x' * 3000}" for number in range(20)]
    async with (
        serving() as served,
        served.listening(7, *uris, receive_buffer=4096) as slow,
        served.listening(8, ONE) as neighbour,
    ):
        told = 0
        reports: list[PublishReport] = []
        # Until every key waits twice over: the kernel has taken what it would.
        while sum(report.coalesced for report in reports[-20:]) < 20:
            reports.append(served.hub.publish(ResourceUpdated(uris[told % 20])))
            assert reports[-1].matched == 1
            told += 1
            if told % 50 == 0:
                await trio.testing.wait_all_tasks_blocked()
        assert reports[0].delivered == 1
        # All but one that the task is writing.
        assert served.hub.statistics().queued in {19, 20}
        assert counts(served.hub.publish(ResourceUpdated(ONE))) == (1, 1, 0)
        assert (await neighbour.event())["params"]["uri"] == ONE
        # It reads again.
        taken = sum(report.delivered + report.buffered for report in reports)
        got = [(await slow.event())["params"]["uri"] for _ in range(taken)]
        assert set(got[-20:]) == set(uris)
        # First-queued order is the order of publication here, as each waits only once.
        assert got == [uris[number % 20] for number in range(taken)]
        await until(lambda: not served.hub.statistics().busy)
        with no_step():
            assert counts(served.hub.publish(ToolsListChanged())) == (1 + 1, 2, 0)
        assert (await slow.event())["method"] == "notifications/tools/list_changed"


async def test_nothing_is_written_to_a_client_that_has_gone() -> None:
    """S-67: the first write that fails ends that stream; the neighbour and the publisher go on."""
    async with serving() as served, served.listening(8, ONE) as neighbour:
        async with served.listening(7, ONE) as gone:
            linger = b"\x01\0\0\0\0\0\0\0"
            gone.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            gone.stream.socket.close()
            with no_step():
                report = served.hub.publish(ResourceUpdated(ONE))
                assert report.matched == 2
                assert report.delivered + report.buffered == 2
                assert report.delivered >= 1
                assert read_now(neighbour) == chunk_of(8)
            await until(lambda: served.hub.statistics().subscriptions == 1)
        assert counts(served.hub.publish(ResourceUpdated(ONE))) == (1, 1, 0)
        assert read_now(neighbour) == chunk_of(8)


async def test_what_a_publisher_writes_keeps_comments_away(
    mock_clock: trio.testing.MockClock,
) -> None:
    """A comment comes after fifteen seconds without a write, whoever wrote."""
    async with serving(1000) as served, served.listening(7, ONE) as peer:
        for _ in range(3):
            mock_clock.jump(10)
            assert served.hub.publish(ResourceUpdated(ONE)).delivered == 1
            await trio.testing.wait_all_tasks_blocked()
            assert read_now(peer) == chunk_of(7)
        mock_clock.jump(14.9)
        await trio.testing.wait_all_tasks_blocked()
        assert served.hub.publish(ResourceUpdated(ONE)).delivered == 1
        assert read_now(peer) == chunk_of(7)
        mock_clock.jump(15.1)
        await trio.testing.wait_all_tasks_blocked()
        assert read_now(peer) == b"3\r\n:\n\n\r\n"


@pytest.mark.parametrize("reads", [False, True])
async def test_a_reader_that_stops_for_ever_is_cut_off(
    mock_clock: trio.testing.MockClock, reads: bool
) -> None:
    """S-67: what a publisher began has a deadline, too; nothing is left of it."""
    async with serving(1000) as served, served.listening(7, ONE, receive_buffer=4096) as slow:
        while not served.hub.publish(ResourceUpdated(ONE)).coalesced:
            await trio.testing.wait_all_tasks_blocked()
        if reads:
            while served.hub.statistics().busy:
                await slow.event()
                await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(31)
        await trio.testing.wait_all_tasks_blocked()
        assert served.hub.statistics().subscriptions == reads
