"""What `mcp_trio.testing` offers to other people's tests."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mcp_trio import errors
from mcp_trio.client import Client
from mcp_trio.server import Server
from mcp_trio.subscriptions.events import ToolsListChanged
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.testing import (
    ScriptedPeer,
    Wire,
    memory_pipe,
    open_memory_client,
    open_raw_client,
    open_scripted_peer,
    request,
)
from mcp_trio.transports.abc import Principal

WANTED = SubscriptionFilter(tools_list_changed=True)
LISTEN = "subscriptions/listen"


def make_server() -> tuple[Server, Hub]:
    hub = Hub()
    server = Server("kit", version="1.0", hub=hub)

    @server.tool
    async def echo(text: str) -> str:
        """Say it back."""
        return text

    return server, hub


async def test_a_client_in_memory(autojump_clock: MockClock) -> None:
    """P-17: a call and a subscription, without a process or a socket."""
    server, hub = make_server()
    async with open_memory_client(server, principal=Principal("ada")) as client:
        result = await client.call_tool("echo", {"text": "hello"})
        assert not result.is_error
        async with client.listen(WANTED) as changes:
            hub.publish(ToolsListChanged())
            assert await changes.receive() == ToolsListChanged()
        assert server.statistics().subscriptions == 0


async def test_a_raw_client_of_a_real_server(autojump_clock: MockClock) -> None:
    """W33: the frames of a subscription from its first to its last."""
    server, hub = make_server()
    async with open_raw_client(server) as wire:
        await wire.send(request(1, LISTEN, {"notifications": {"toolsListChanged": True}}))
        acknowledged = await wire.receive()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        hub.publish(ToolsListChanged())
        assert (await wire.receive())["method"] == "notifications/tools/list_changed"
        wire.drain.set()
        done, cancelled = await wire.receive_all()
        assert done["id"] == 1
        assert cancelled["params"] == {"requestId": 1}
        assert wire.ended.is_set()


async def test_a_scripted_peer_plays_a_server(autojump_clock: MockClock) -> None:
    """P-17: delay, duplicate, drop, refuse, end gracefully, and cut."""

    async def play(peer: ScriptedPeer) -> None:
        listen = await peer.expect(LISTEN)
        await trio.sleep(5)
        await peer.acknowledge(listen)
        await peer.acknowledge(listen, {})
        await peer.notify("notifications/tools/list_changed", of=listen)
        await peer.complete(listen, end={"reason": "shutdown"})
        await peer.tear_down(listen)
        await peer.expect("tools/list")  # and no answer: the client gives up
        assert (await peer.expect("notifications/cancelled"))["params"]["requestId"] == 1
        await peer.refuse(await peer.expect("prompts/list"), -32601, data={"a": 1})
        listen = await peer.expect(LISTEN)
        await peer.acknowledge(listen)
        await peer.cut()

    async with open_scripted_peer() as peer, trio.open_nursery() as nursery:
        nursery.start_soon(play, peer)
        client = Client(peer.transport)
        async with client.listen(WANTED) as changes:
            assert [change async for change in changes] == [ToolsListChanged()]
            assert changes.end is not None
            assert (changes.end.how, changes.end.reason) == ("graceful", "shutdown")
        with trio.move_on_after(3):
            await client.list_tools()
        with pytest.raises(errors.MethodNotFound, match="refused") as caught:
            await client.list_prompts()
        assert caught.value.data == {"a": 1}
        async with client.listen(WANTED) as changes:
            with pytest.raises(errors.SubscriptionLost):
                await changes.receive()


async def test_a_peer_says_what_it_did_not_expect(autojump_clock: MockClock) -> None:
    """A script that has got out of step fails, with the message that came instead."""
    sending, receiving = memory_pipe()
    async with open_scripted_peer() as peer:
        async with peer.transport.open_exchange(1, "x", {}):
            with pytest.raises(AssertionError, match=r"expected y, got .*'method': 'x'"):
                await peer.expect("y")
        wire = Wire(receiving, sending)
        await wire.send(b"[]\n")
        with pytest.raises(AssertionError, match="not an object"):
            await wire.receive()


async def test_a_pipe_in_memory(autojump_clock: MockClock) -> None:
    """It is bounded, ends, and breaks, as one of the operating system does."""
    with pytest.raises(ValueError, match="at least one byte"):
        memory_pipe(0)

    sending, receiving = memory_pipe(4)
    await sending.send_all(b"")
    with trio.move_on_after(1) as scope:
        await sending.send_all(b"123456")
    assert scope.cancelled_caught
    with trio.move_on_after(1) as scope:
        await sending.wait_send_all_might_not_block()
    assert scope.cancelled_caught
    assert await receiving.receive_some(3) == b"123"
    await sending.wait_send_all_might_not_block()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sending.send_all, b"abcdefgh")
        received = b""
        while len(received) < 9:
            received += await receiving.receive_some()
        assert received == b"4abcdefgh"
    await sending.aclose()
    assert await receiving.receive_some() == b""
    with pytest.raises(trio.ClosedResourceError):
        await sending.send_all(b"x")
    await receiving.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await receiving.receive_some()


async def test_a_pipe_that_breaks(autojump_clock: MockClock) -> None:
    """Whoever waits at either end is told."""
    for breaking_end in (0, 1):
        ends = memory_pipe(1)
        sending, receiving = ends
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_raises_broken, sending.send_all, b"xyz")
            await trio.testing.wait_all_tasks_blocked()
            ends[breaking_end].break_pipe()
        await _raises_broken(receiving.receive_some, 1)

    sending, receiving = memory_pipe()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_raises_broken, receiving.receive_some, 1)
        await trio.testing.wait_all_tasks_blocked()
        sending.break_pipe()

    sending, receiving = memory_pipe(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_raises_broken, sending.send_all, b"xyz")
        await trio.testing.wait_all_tasks_blocked()
        await receiving.aclose()


async def _raises_broken(async_fn: object, *args: object) -> None:
    assert callable(async_fn)
    with pytest.raises(trio.BrokenResourceError):
        await async_fn(*args)
