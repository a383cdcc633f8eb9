"""The connections of `HttpTransport`: how they end, and which of them are used again."""

import socket
from typing import Any

import pytest
import trio
import trio.testing
from client_peer import DONE, HUGE, NOTE, PARAMS, SSE_HEAD, Peer, Script, ask, connected

from mcp_trio import errors
from mcp_trio.http import _connect, _pool, _wire
from mcp_trio.protocol import jsonrpc

# Endings


async def close_cleanly(peer: Peer) -> None:
    await peer.end_chunks()


async def close_early(peer: Peer) -> None:
    pass


async def close_within_a_chunk(peer: Peer) -> None:
    await peer.send(b"100\r\ndata: ")


async def reset(peer: Peer) -> None:
    peer.reset()


@pytest.mark.parametrize("end", [close_cleanly, close_early, close_within_a_chunk, reset])
@pytest.mark.parametrize("method", ["tools/call", "subscriptions/listen"])
async def test_stream_that_ends_without_a_response(end: Script, method: str) -> None:
    """W17: (a) clean end, (b) RST, (c) truncated body."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(SSE_HEAD)
        await peer.event(NOTE)
        await end(peer)

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, method, PARAMS) as messages,
    ):
        await messages.receive()
        with pytest.raises(errors.ConnectionLost, match="127"):
            await messages.receive()
        with pytest.raises(errors.ConnectionLost):
            await messages.receive()


async def test_end_before_any_answer() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()

    async with connected(script) as (transport, server):
        with pytest.raises(errors.ConnectionLost, match="before the response"):
            await ask(transport)
        assert server.connections == 1  # a fresh connection is no reason to try again


async def test_what_is_not_http() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"SSH-2.0-OpenSSH\r\n\r\n")
        await peer.gone()

    async with connected(script) as (transport, _):
        with pytest.raises(errors.RemoteProtocolError, match="does not answer in HTTP"):
            await ask(transport)


async def test_interim_answers() -> None:
    """W85: they are passed over, but not for ever."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3)
        await peer.json(DONE)
        await peer.request()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 30)
        await peer.gone()

    async with connected(script) as (transport, _):
        await ask(transport)
        with pytest.raises(errors.RemoteProtocolError, match="interim"):
            await ask(transport)


async def test_answer_before_the_body_was_read() -> None:
    """W85: a 413 counts even though writing the request failed."""

    async def script(peer: Peer) -> None:
        await peer.stream.receive_some(100)
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await peer.stream.send_eof()
        with trio.move_on_after(0.2):
            await trio.sleep_forever()  # while the client finds out that nobody reads

    async with connected(script) as (transport, _):
        with pytest.raises((errors.HttpStatusError, errors.ConnectionLost)):
            await ask(transport, "tools/call", HUGE)
        assert transport.statistics().idle == 0


async def test_leaving_the_block_closes_the_socket() -> None:
    """W43, C-40: that is the cancellation; other requests do not notice."""
    left = trio.Event()
    other = trio.Event()

    async def script(peer: Peer) -> None:
        *_, body = await peer.request()
        await peer.send(SSE_HEAD)
        await peer.event(NOTE)
        if b'"id":1,' in body:
            await peer.gone()
            left.set()
        else:
            await other.wait()
            await peer.event(DONE.replace(b'"id":1', b'"id":2'))

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(2, "tools/call", PARAMS) as second,
    ):
        await second.receive()
        with trio.move_on_after(0.05) as scope:
            async with transport.open_exchange(1, "tools/call", PARAMS) as first:
                await first.receive()
                await first.receive()
        assert scope.cancelled_caught
        await left.wait()
        assert transport.statistics().open == 1
        other.set()
        assert isinstance(await second.receive(), jsonrpc.ResultReply)


async def test_cancelled_receive_loses_nothing() -> None:
    """C-23: whenever it is cancelled."""
    count = 50

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(SSE_HEAD)
        for number in range(count):
            data = b"data: " + NOTE.replace(b'"progress":1', b'"progress":%d' % number) + b"\n\n"
            await peer.chunk(data[:30])
            await trio.sleep(0.001)
            await peer.chunk(data[30:])
        await peer.event(DONE)
        await peer.gone()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        received: list[jsonrpc.Message] = []
        while len(received) <= count:
            with trio.move_on_after(0.0007):
                received.append(await messages.receive())
            with trio.CancelScope() as scope:
                scope.cancel()
                received.append(await messages.receive())
        progress = [
            m.params["progress"] for m in received[:-1] if isinstance(m, jsonrpc.Notification)
        ]
        assert progress == list(range(count))


async def test_two_receivers() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_closed_while_receiving, messages)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await messages.receive()
            await messages.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await messages.receive()


async def _closed_while_receiving(messages: trio.abc.ReceiveChannel[jsonrpc.Message]) -> None:
    with pytest.raises(trio.ClosedResourceError):
        await messages.receive()


async def test_closing_the_transport_closes_everything() -> None:
    gone = 0
    both_gone = trio.Event()

    async def script(peer: Peer) -> None:
        nonlocal gone
        *_, body = await peer.request()
        if b"tools/list" in body:
            await peer.json(DONE)
        await peer.gone()
        gone += 1
        if gone == 2:
            both_gone.set()

    async with connected(script) as (transport, _):
        await ask(transport)
        async with transport.open_exchange(1, "subscriptions/listen", PARAMS) as messages:
            assert transport.statistics().open == 1
            transport.close()
            with pytest.raises(trio.ClosedResourceError):
                await messages.receive()
        with pytest.raises(trio.ClosedResourceError):
            await ask(transport)
        await both_gone.wait()
        assert (transport.statistics().open, transport.statistics().idle) == (0, 0)


@pytest.mark.parametrize("at", ["connecting", "writing"])
async def test_closing_the_transport_ends_what_is_not_open_yet(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is left has no socket, also where another task is only sending."""

    async def script(peer: Peer) -> None:
        sending.set()
        await closed.wait()
        await peer.gone()
        gone.set()

    async def connect(*_: Any, **__: Any) -> None:
        sending.set()
        await trio.sleep_forever()

    async def call() -> None:
        with pytest.raises(trio.ClosedResourceError, match="transport was closed"):
            await ask(transport, "tools/call", HUGE)
        refused.set()

    sending, closed, gone, refused = (trio.Event() for _ in range(4))
    if at == "connecting":
        monkeypatch.setattr(_connect, "connect", connect)
    async with connected(script) as (transport, _), trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await sending.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        transport.close()
        await refused.wait()
        closed.set()
        if at == "writing":
            await gone.wait()


async def test_closed_just_as_a_request_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is out when the transport is closed takes its connection with it."""

    async def connect(*args: Any, **options: Any) -> _wire.HttpConnection:
        connections.append(await real(*args, **options))
        return connections[0]

    async def send(*_: Any) -> None:
        transport.close()

    connections: list[_wire.HttpConnection] = []
    real = _connect.connect
    monkeypatch.setattr(_connect, "connect", connect)
    monkeypatch.setattr(_wire.HttpConnection, "send", send)
    async with connected(Peer.gone) as (transport, _):
        with pytest.raises(trio.ClosedResourceError):
            await ask(transport)
        assert connections[0].closed


async def test_blocks_left_in_any_order_and_from_another_task() -> None:
    """W61: there is no scope in it that could get out of order."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with connected(script) as (transport, _):
        first = transport.open_exchange(1, "subscriptions/listen", PARAMS)
        second = transport.open_exchange(2, "subscriptions/listen", PARAMS)
        await first.__aenter__()
        await second.__aenter__()
        await first.__aexit__(None, None, None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.__aexit__, None, None, None)
            await trio.lowlevel.checkpoint()
        assert transport.statistics().open == 0


# Reuse


async def test_connections_are_reused() -> None:
    async def script(peer: Peer) -> None:
        while True:
            *_, body = await peer.request()
            if b"tools/list" in body:
                await peer.json(DONE)
            else:
                await peer.send(SSE_HEAD)
                await peer.event(NOTE)
                await peer.event(DONE)
                await trio.sleep(0.005)  # the end of the body lags behind the response
                await peer.end_chunks()

    async with connected(script) as (transport, server):
        for method in ("tools/list", "tools/call", "tools/list", "subscriptions/listen"):
            await ask(transport, method)
        # The subscription has one of its own, which is not kept.
        assert server.connections == 2
        statistics = transport.statistics()
        assert (statistics.idle, statistics.connected, statistics.requests) == (1, 2, 4)


@pytest.mark.parametrize("lag", [0.2, None])
async def test_stream_that_does_not_end_is_not_waited_for(lag: float | None) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(SSE_HEAD)
            await peer.event(DONE)
            if lag is None:
                return
            await trio.sleep(lag)
            await peer.end_chunks()

    async with connected(script) as (transport, server):
        await ask(transport, "tools/call")
        assert transport.statistics().idle == 0
        await ask(transport, "tools/call")
        assert server.connections == 2


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n",
    ],
)
async def test_stream_whose_end_ends_the_connection_is_not_waited_for(head: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head + b"content-type: text/event-stream\r\n\r\n")
        event = b"data: " + DONE + b"\n\n"
        await (peer.chunk(event) if b"chunked" in head else peer.send(event))
        await peer.gone()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        assert isinstance(await messages.receive(), jsonrpc.ResultReply)
        assert not messages.lags


async def test_connection_with_more_than_the_answer_is_not_reused() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(
            DONE + b"HTTP/1.1 200 OK\r\n\r\n", extra=f"x: y\r\ncontent-length: {len(DONE)}\r\n"
        )
        await peer.gone()

    async def script_2(peer: Peer) -> None:
        await peer.request()
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(DONE)}\r\n\r\n".encode()
        await peer.send(head + DONE + b"HTTP/1.1 200 OK\r\n\r\n")
        await peer.gone()

    async with connected(script) as (transport, _):
        with pytest.raises(errors.RemoteProtocolError):
            await ask(transport)
    async with connected(script_2) as (transport, _):
        await ask(transport)
        assert transport.statistics().idle == 0


async def test_broken_end_of_a_body_spoils_no_answer() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        event = b"data: " + DONE + b"\n\n"
        await peer.send(SSE_HEAD + b"%x\r\n%s\r\nnonsense\r\n" % (len(event), event))
        await peer.gone()

    async with connected(script) as (transport, _):
        assert len(await ask(transport)) == 1
        assert transport.statistics().idle == 0


async def test_cancelled_while_writing() -> None:
    """W43: half a request is on its way, and its connection is gone."""

    async def script(peer: Peer) -> None:
        await peer.stream.receive_some(100)
        scope.cancel()
        await peer.gone()
        gone.set()

    gone = trio.Event()
    async with connected(script, headers={"User-Agent": "test"}) as (transport, _):
        with trio.CancelScope() as scope:
            await ask(transport, "tools/call", HUGE)
        assert scope.cancelled_caught
        assert transport.statistics().open == 0
        await gone.wait()


async def test_connection_close_is_obeyed() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(DONE, extra="connection: close\r\n")

    async with connected(script) as (transport, server):
        await ask(transport)
        assert transport.statistics().idle == 0
        await ask(transport)
        assert server.connections == 2


async def test_idle_connection_that_was_closed_is_noticed() -> None:
    closed = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(DONE)
        await peer.stream.aclose()
        closed.set()

    async with connected(script) as (transport, server):
        await ask(transport, "tools/call")
        await closed.wait()
        await trio.sleep(0.01)
        await ask(transport, "tools/call")
        assert server.connections == 2
        assert transport.statistics().requests == 2


async def test_closed_as_we_reached_for_it() -> None:
    """What only reads is sent again, once; a call is not."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(DONE)
        await peer.request()

    async with connected(script) as (transport, server):
        await ask(transport)
        await ask(transport)
        assert server.connections == 2
        with pytest.raises(errors.ConnectionLost):
            await ask(transport, "tools/call")
        assert server.connections == 2


async def test_sending_again_can_fail() -> None:
    async def script(peer: Peer) -> None:
        if server.connections == 1:
            await peer.request()
            await peer.json(DONE)
        await peer.request()

    async with connected(script) as (transport, server):
        await ask(transport)
        with pytest.raises(errors.ConnectionLost):
            await ask(transport)
        assert server.connections == 2


async def test_request_that_cannot_be_written_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever it is: not all of it was handed to the system, so it cannot have been served."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.json(DONE)

    async with connected(script) as (transport, server):
        await ask(transport)
        [idle] = transport._connecting.idle._idle
        with socket.fromfd(idle._socket.fileno(), socket.AF_INET, socket.SOCK_STREAM) as twin:
            twin.shutdown(socket.SHUT_WR)
        monkeypatch.setattr(idle, "is_stale", lambda: False)
        await ask(transport, "tools/call")
        assert server.connections == 2


class IdleConnection(_wire.HttpConnection):
    """One that has nothing below it."""

    def __init__(self) -> None:
        self.closed = False

    def recycle(self, now: float) -> bool:
        self.idle_since = now
        return True

    def is_stale(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


async def test_pool_is_bounded_and_forgets(autojump_clock: trio.testing.MockClock) -> None:
    pool = _pool.IdlePool(max_idle=2, max_idle_time=4)
    a, b, c = IdleConnection(), IdleConnection(), IdleConnection()
    for each in (a, b, c):
        pool.put(each)
        await trio.sleep(1)
    assert (a.closed, len(pool)) == (True, 2)
    assert pool.take() is c
    await trio.sleep(3)
    assert pool.take() is None
    assert b.closed
    pool.put(c)
    pool.close()
    assert c.closed
