"""A server in the same program."""

import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mcp_trio import codec, errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.transports import abc
from mcp_trio.transports._service import open_services
from mcp_trio.transports.memory import MemoryTransport, open_memory_transport

Connect = Callable[..., MemoryTransport]
Function = Callable[[jsonrpc.Request, abc.Exchange], Awaitable[jsonrpc.Reply]]


class Functions:
    """A handler made of one function."""

    supported_versions = ("2026-07-28",)

    def __init__(self, function: Function) -> None:
        self._function = function

    def mirrored(self, request: jsonrpc.Request) -> dict[str, object]:
        return {}

    def knows(self, method: str) -> bool:
        return True

    async def handle(self, message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        return await self._function(message, exchange)

    def notify(self, notification: jsonrpc.Notification) -> None: ...


async def echo(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
    return jsonrpc.result_reply(message.id, message.params)


def note(number: int) -> bytes:
    return jsonrpc.encode_notification("note", {"number": number})


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connections that live as long as the test."""
    async with open_services() as services:

        def connect(
            handler: abc.Handler, *, principal: abc.Principal | None = None
        ) -> MemoryTransport:
            return MemoryTransport(handler, services, principal)

        yield connect


async def test_a_request_and_its_response(connect: Connect, autojump_clock: MockClock) -> None:
    """W05, W06: ids of each type, and the end of the channel after the response."""
    transport = connect(Functions(echo))
    assert transport.kind == "memory"
    for request_id in (0, "", "1", 1):
        async with transport.open_exchange(request_id, "echo", {"a": [1]}) as messages:
            assert await messages.receive() == jsonrpc.ResultReply(request_id, {"a": [1]})
            with pytest.raises(trio.EndOfChannel):
                await messages.receive()


async def test_values_pass_through_bytes(connect: Connect, autojump_clock: MockClock) -> None:
    """W59: what JSON cannot hold fails here as on a wire, and nothing is shared."""
    transport = connect(Functions(echo))
    with pytest.raises(codec.EncodeError):
        async with transport.open_exchange(1, "echo", {"a": {1, 2}}):
            pytest.fail("not reached")
    inner = {"n": 1}
    async with transport.open_exchange(1, "echo", {"a": inner}) as messages:
        inner["n"] = 2
        assert await messages.receive() == jsonrpc.ResultReply(1, {"a": {"n": 1}})
    with pytest.raises(errors.LocalProtocolError):
        async with transport.open_exchange(True, "echo", {}):
            pytest.fail("not reached")


async def test_nothing_is_buffered(connect: Connect, autojump_clock: MockClock) -> None:
    """W20, S-25: `send` returns when the client has taken the message."""
    sent = []

    async def notes(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        for number in range(3):
            await exchange.send(note(number))
            sent.append(number)
        return jsonrpc.result_reply(message.id, {})

    async with connect(Functions(notes)).open_exchange(1, "x", {}) as messages:
        await trio.testing.wait_all_tasks_blocked()
        assert sent == []
        for number in range(3):
            assert await messages.receive() == jsonrpc.Notification("note", {"number": number})
            await trio.testing.wait_all_tasks_blocked()
            assert sent == list(range(number + 1))
        assert isinstance(await messages.receive(), jsonrpc.ResultReply)


async def test_requests_of_a_server(connect: Connect, autojump_clock: MockClock) -> None:
    """W58: dropped, whatever their id; what is no message at all is an error."""
    frames = [
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"method":"roots/list","params":{}}',
        note(1),
        b'{"jsonrpc":"2.0","id":2}',
    ]

    async def ask(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        for frame in frames:
            await exchange.send(frame)
        return jsonrpc.result_reply(message.id, {})

    async with connect(Functions(ask)).open_exchange(1, "x", {}) as messages:
        assert await messages.receive() == jsonrpc.Notification("note", {"number": 1})
        with pytest.raises(errors.RemoteProtocolError, match="neither"):
            await messages.receive()
        assert await messages.receive() == jsonrpc.ResultReply(1, {})


async def test_writing_without_waiting(connect: Connect, autojump_clock: MockClock) -> None:
    """`send_nowait` hands over to a client that waits, and says so if there is none."""
    exchanges: list[abc.Exchange] = []

    async def wait(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        exchanges.append(exchange)
        await trio.sleep(10)
        return jsonrpc.result_reply(message.id, {})

    async with connect(Functions(wait)).open_exchange(1, "x", {}) as messages:
        await trio.testing.wait_all_tasks_blocked()
        assert not exchanges[0].send_nowait(note(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(messages.receive)
            await trio.testing.wait_all_tasks_blocked()
            assert exchanges[0].send_nowait(note(1))
        await messages.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert not exchanges[0].send_nowait(note(1))
        with pytest.raises(trio.ClosedResourceError):
            await messages.receive()


async def test_what_is_sent_too_late_is_dropped(
    connect: Connect, autojump_clock: MockClock
) -> None:
    """W82, S-12: after the response nothing is sent, and that is no error."""
    exchanges: list[abc.Exchange] = []

    async def answer(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        exchanges.append(exchange)
        return jsonrpc.result_reply(message.id, {})

    async with connect(Functions(answer)).open_exchange(1, "x", {}) as messages:
        await trio.testing.wait_all_tasks_blocked()
        assert not exchanges[0].send_nowait(note(1))
        await exchanges[0].send(note(1))
        assert isinstance(await messages.receive(), jsonrpc.ResultReply)


async def test_closing_the_channel_cancels_the_server(
    connect: Connect, autojump_clock: MockClock
) -> None:
    """C-40: ahead of leaving the block; a server that goes on sending is told."""
    outcomes: list[str] = []

    async def stubborn(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            with trio.move_on_after(1, shield=True), pytest.raises(trio.BrokenResourceError):
                await exchange.send(note(1))
            outcomes.append("told")
            raise
        raise AssertionError("unreachable: it sleeps forever")

    async def deaf(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        with trio.move_on_after(1, shield=True):
            await trio.sleep(0.5)
        outcomes.append("answered")
        return jsonrpc.result_reply(message.id, {})

    for function in (stubborn, deaf):
        async with connect(Functions(function)).open_exchange(1, "x", {}) as messages:
            await trio.testing.wait_all_tasks_blocked()
            await messages.aclose()
            await trio.sleep(2)
    assert outcomes == ["told", "answered"]


async def test_leaving_cancels_the_server_and_waits_for_it(
    connect: Connect, autojump_clock: MockClock
) -> None:
    """W42, W43, C-40: when the block has been left, nothing runs any more."""
    ended = []

    async def slow(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(5, shield=True):
                await trio.sleep(1)
            ended.append(message.id)
        raise AssertionError("unreachable: it sleeps forever")

    transport = connect(Functions(slow))
    async with transport.open_exchange(1, "x", {}):
        await trio.testing.wait_all_tasks_blocked()
    assert ended == [1]
    with trio.move_on_after(1):
        async with transport.open_exchange(2, "x", {}) as messages:
            await messages.receive()
    assert ended == [1, 2]
    with pytest.raises(ValueError, match="mine"):
        async with transport.open_exchange(3, "x", {}):
            await trio.testing.wait_all_tasks_blocked()
            raise ValueError("mine")
    assert ended == [1, 2, 3]


async def test_an_id_may_be_in_flight_once(connect: Connect, autojump_clock: MockClock) -> None:
    """W07: a client must not use an id again before it has its answer."""
    transport = connect(Functions(echo))
    async with transport.open_exchange(1, "x", {}):
        with pytest.raises(errors.LocalProtocolError, match="in flight"):
            async with transport.open_exchange(1, "x", {}):
                pytest.fail("not reached")
        async with transport.open_exchange("1", "x", {}) as messages:
            assert isinstance(await messages.receive(), jsonrpc.ResultReply)
    async with transport.open_exchange(1, "x", {}) as messages:
        assert isinstance(await messages.receive(), jsonrpc.ResultReply)


async def test_a_handler_that_raises_is_answered_for(
    connect: Connect, autojump_clock: MockClock
) -> None:
    """W62, W63: an error response, never a group that comes out of the client's block."""

    async def fail(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        raise RuntimeError("secret")

    async with connect(Functions(fail)).open_exchange(1, "x", {}) as messages:
        reply = await messages.receive()
    assert isinstance(reply, jsonrpc.ErrorReply)
    assert isinstance(reply.error, errors.InternalError)


async def test_the_server_is_told_who_asks(connect: Connect, autojump_clock: MockClock) -> None:
    """One transport is one connection, for the limits, and has one principal."""
    exchanges: list[abc.Exchange] = []

    async def look(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        exchanges.append(exchange)
        exchange.release()
        return jsonrpc.result_reply(message.id, {})

    principal = abc.Principal("ada")
    transport = connect(Functions(look), principal=principal)
    for request_id in (1, 2):
        async with transport.open_exchange(request_id, "x", {}) as messages:
            await messages.receive()
    assert exchanges[0].connection is exchanges[1].connection
    assert exchanges[0].connection is not None
    assert {exchange.principal for exchange in exchanges} == {principal}
    assert {exchange.kind for exchange in exchanges} == {"memory"}


async def test_nothing_keeps_the_params(connect: Connect, autojump_clock: MockClock) -> None:
    """S-23: while an exchange is open, what opened it can be forgotten."""

    class Weighty(dict[str, Any]):
        pass

    async def wait(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        message.take_params()
        await trio.sleep_forever()
        raise AssertionError("unreachable: it sleeps forever")

    transport = connect(Functions(wait))
    async with transport.open_exchange(1, "x", Weighty(a="padding")):
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        assert not [thing for thing in gc.get_objects() if type(thing) is Weighty]


async def until_cancelled(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
    await trio.sleep_forever()
    raise AssertionError("unreachable: it sleeps forever")


async def test_exchanges_are_left_in_any_order(autojump_clock: MockClock) -> None:
    """W61: the first block is left before the second, and by another task."""
    async with open_memory_transport(Functions(until_cancelled)) as transport:
        first, second = AsyncExitStack(), AsyncExitStack()
        await first.enter_async_context(transport.open_exchange(1, "x", {}))
        await second.enter_async_context(transport.open_exchange(2, "x", {}))
        await first.aclose()
        async with trio.open_nursery() as nursery:  # noqa: ASYNC112 -- another task is the point
            nursery.start_soon(second.aclose)
        async with transport.open_exchange(1, "x", {}):
            pass  # the ids are free again


async def test_nothing_outlives_the_connection(autojump_clock: MockClock) -> None:
    """W67: leaving it ends the requests of other tasks with an error, and there are no more."""
    ended = []

    async def wait(message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        try:
            return await until_cancelled(message, exchange)
        finally:
            ended.append(message.id)

    async def call(transport: MemoryTransport) -> None:
        async with transport.open_exchange(1, "x", {}) as messages:
            with pytest.raises(errors.ConnectionLost, match="has been left"):
                await messages.receive()

    async with trio.open_nursery() as nursery:
        async with open_memory_transport(Functions(wait)) as transport:
            nursery.start_soon(call, transport)  # noqa: ASYNC111 -- so is leaving first
            await trio.testing.wait_all_tasks_blocked()
        assert ended == [1]
    with pytest.raises(errors.ConnectionLost, match="has been left"):
        async with transport.open_exchange(2, "x", {}):
            pytest.fail("not reached")
