"""A watch over a wire: what is sent, what is heard, how it ends."""

import math
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import script_kit as say
import trio
from script_kit import Play
from watch_kit import settle

from mcp_trio import Hub, Server, errors
from mcp_trio._backoff import Backoff
from mcp_trio.client.client import Client
from mcp_trio.client.watch import Snapshot, Watcher
from mcp_trio.subscriptions.events import ResourceUpdated, Resync, ToolsListChanged
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.testing import ScriptedPeer, open_memory_client, open_scripted_peer

TOOLS = SubscriptionFilter(tools_list_changed=True)
WIDE = SubscriptionFilter(tools_list_changed=True, resource_subscriptions=("note://a",))
CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
LISTEN = "subscriptions/listen"
QUICK = Backoff(initial=0.001, maximum=0.01)

Script = Callable[[ScriptedPeer], Awaitable[None]]


@asynccontextmanager
async def playing(script: Script) -> Any:
    """A client of a scripted server, in virtual time."""
    async with open_scripted_peer() as peer, trio.open_nursery() as nursery:
        nursery.start_soon(script, peer)
        yield Client(peer.transport)
        nursery.cancel_scope.cancel()


async def test_goes_on_after_a_loss(play: Play) -> None:
    """C-42, C-43, W69: a new id, the same filter, and a cue that changes may have been missed."""

    async def script(peer: Any) -> None:
        first = await peer.expect(LISTEN)
        await peer.send(first, say.ack(first), say.tagged(first, CHANGED))
        await peer.send(first, say.withdrawn(first, reason="restarting"))
        second = await peer.expect(LISTEN)
        assert second["id"] != first["id"]
        assert second["params"]["notifications"] == WIDE.to_wire()
        await peer.send(second, say.ack(second), say.tagged(second, UPDATED, {"uri": "note://a"}))
        await peer.until_cancelled(second)

    async with play(script) as client, client.watch(WIDE, backoff=QUICK) as changes:
        assert changes.acknowledged == WIDE
        assert not changes.declined
        assert await changes.receive() == ToolsListChanged()
        resync = await changes.receive()
        assert isinstance(resync, Resync)
        assert "restarting" in resync.reason
        assert resync.narrowed == ()
        assert await changes.receive() == ResourceUpdated("note://a")


async def test_each_http_stream_is_lost_alone() -> None:
    """W17: a connection that is reset is a gap, whatever else goes on."""

    async def script(peer: Any) -> None:
        first = await peer.expect(LISTEN)
        await peer.send(first, say.ack(first))
        await peer.crash(first)
        second = await peer.expect(LISTEN)
        await peer.send(second, say.ack(second), say.tagged(second, CHANGED))
        await peer.cut(second)
        third = await peer.expect(LISTEN)
        await peer.send(third, say.ack(third))
        await peer.until_cancelled(third)

    async with say.play_http(script) as client, client.watch(TOOLS, backoff=QUICK) as changes:
        assert isinstance(await changes.receive(), Resync)
        assert await changes.receive() == ToolsListChanged()
        assert isinstance(await changes.receive(), Resync)
        assert changes.statistics().reopened == 2


async def test_a_child_that_is_not_started_again_ends_it(autojump_clock: trio.abc.Clock) -> None:
    """C-48, W17: to wait for a connection that will not come again would be silence for ever."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.acknowledge(await peer.expect(LISTEN))
        await trio.sleep(100)
        await peer.cut()

    async with playing(script) as client, client.watch(TOOLS) as changes:
        with pytest.raises(errors.WatchEnded, match="has ended the connection") as caught:
            await changes.receive()
        assert caught.value.reason == "refused"
        assert isinstance(caught.value.__cause__, errors.ConnectionLost)
        with pytest.raises(errors.WatchEnded):
            await changes.receive()
        with pytest.raises(errors.WatchEnded):
            await changes.update(WIDE)
        with pytest.raises(errors.WatchEnded):
            await changes.wait_open()
        assert repr(changes) == "<Watcher ended>"


async def test_a_client_that_is_closed_ends_it(autojump_clock: trio.abc.Clock) -> None:
    """W67: a transport that has been left is not tried again and again."""
    server = Server("s", version="1", hub=Hub())
    server.tool(name="t")(lambda: "")
    left = trio.Event()
    async with trio.open_nursery() as nursery:

        async def watch(client: Client) -> None:
            with pytest.raises(errors.WatchEnded):
                async with client.watch(TOOLS) as changes:
                    watching.set()
                    await left.wait()
                    await changes.receive()

        watching = trio.Event()
        async with open_memory_client(server) as client:
            nursery.start_soon(watch, client)  # noqa: ASYNC111 - it outlives the client
            await watching.wait()
        left.set()


async def test_a_modern_minus_32601_is_final(autojump_clock: trio.abc.Clock) -> None:
    """C-48, P-03: a server without subscriptions says so once, and is asked once."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.refuse(await peer.expect(LISTEN), -32601, "no such method")
        await peer.expect("no second request")

    async with playing(script) as client:
        with pytest.raises(errors.MethodNotFound):
            async with client.watch(TOOLS):
                pytest.fail("it was entered")


async def test_entering_can_be_given_up(autojump_clock: trio.abc.Clock) -> None:
    """W16: the wait for the first stream is bounded by a cancel scope, as everything is."""

    async def script(peer: ScriptedPeer) -> None:
        while True:
            listen = await peer.expect(LISTEN)
            assert (await peer.receive())["params"]["requestId"] == listen["id"]

    async with playing(script) as client:
        with trio.move_on_after(60) as scope:
            async with client.watch(TOOLS, ack_timeout=5):
                pytest.fail("it was entered")
        assert scope.cancelled_caught


async def test_an_open_stream_has_no_timeout(autojump_clock: trio.abc.Clock) -> None:
    """W15, C-03: a day without a word is a quiet day."""

    async def script(peer: ScriptedPeer) -> None:
        listen = await peer.expect(LISTEN)
        await peer.acknowledge(listen)
        await trio.sleep(86_400)
        await peer.notify(CHANGED, of=listen)
        await peer.expect("nothing else")

    async with playing(script) as client, client.watch(TOOLS) as changes:
        assert await changes.receive() == ToolsListChanged()
        assert changes.statistics().losses == 0
        assert changes.statistics().uptime == 86_400


async def test_what_was_received_before_a_loss_comes_before_its_resync(
    autojump_clock: trio.abc.Clock,
) -> None:
    """C-25, C-43: in order, even if the consumer looks only afterwards."""

    async def script(peer: ScriptedPeer) -> None:
        first = await peer.expect(LISTEN)
        await peer.acknowledge(first)
        for _ in range(3):
            await peer.notify(CHANGED, of=first)
        await peer.complete(first, end={"reason": "shutdown"})
        second = await peer.expect(LISTEN)
        await peer.acknowledge(second)
        await peer.notify(CHANGED, of=second)
        await peer.expect("nothing else")

    async with playing(script) as client, client.watch(TOOLS) as changes:
        await trio.sleep(60)
        received = [await changes.receive() for _ in range(changes.statistics().waiting)]
        assert received == [
            ToolsListChanged(),
            Resync("the server ended the subscription: shutdown"),
            ToolsListChanged(),
        ]


async def test_over_a_real_server(autojump_clock: trio.abc.Clock) -> None:
    """C-47, P-05, P-08: snapshot and change of filter, with the hub that they are made for."""
    hub = Hub()
    server = Server("s", version="1", hub=hub)
    state = {"a": 1, "b": 1}

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return str(state[name])

    def text(snapshot: Any, uri: str) -> str:
        assert isinstance(snapshot, Snapshot)
        return str(snapshot.contents[uri].get().contents[0].text)  # type: ignore[union-attr]

    def only(name: str) -> SubscriptionFilter:
        return SubscriptionFilter(resource_subscriptions=(f"note://{name}",))

    async with (
        open_memory_client(server) as client,
        client.watch(only("a"), snapshot=True) as changes,
    ):
        assert text(await changes.receive(), "note://a") == "1"
        state["a"] = 2
        hub.publish(ResourceUpdated("note://a"))
        assert await changes.receive() == ResourceUpdated("note://a")
        await changes.update(only("b"))
        assert text(await changes.receive(), "note://b") == "1"
        hub.publish(ResourceUpdated("note://b"))
        assert await changes.receive() == ResourceUpdated("note://b")
        await trio.sleep(2)
        assert hub.statistics().subscriptions == 1
        await changes.aclose()
        await settle()
        assert hub.statistics().subscriptions == 0


async def test_closing(autojump_clock: trio.abc.Clock) -> None:
    """C-40: from this side, twice, and under a receiver."""

    async def script(peer: ScriptedPeer) -> None:
        listen = await peer.expect(LISTEN)
        await peer.acknowledge(listen)
        await peer.notify(CHANGED, of=listen)
        assert (await peer.receive())["params"]["requestId"] == listen["id"]
        cancelled.set()
        await peer.expect("nothing else")

    async def receive(changes: Watcher) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await changes.receive()

    cancelled = trio.Event()
    async with playing(script) as client, client.watch(TOOLS) as changes:
        assert await changes.receive() == ToolsListChanged()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive, changes)
            await settle()
            await changes.aclose()
        await cancelled.wait()
        await changes.aclose()
        assert repr(changes) == "<Watcher closed>"
        for call in (changes.receive, changes.wait_open):
            with pytest.raises(trio.ClosedResourceError):
                await call()
        with pytest.raises(trio.ClosedResourceError):
            await changes.update(WIDE)


async def test_what_the_consumer_raises_comes_out_as_it_is(play: Play) -> None:
    """One cause raises one exception, though there are tasks around the block."""

    async def script(peer: Any) -> None:
        while True:
            listen = await peer.expect(LISTEN)
            await peer.send(listen, say.ack(listen))
            await peer.until_cancelled(listen)

    async with play(script) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.watch(TOOLS):
                _ = 1 / 0
        with pytest.RaisesGroup(ValueError, match="^theirs$"):
            async with client.watch(TOOLS):
                raise ExceptionGroup("theirs", [ValueError()])


async def test_early_validation() -> None:
    """C-08, C-09: before anything is sent, and before the block is entered."""
    async with open_scripted_peer() as peer:
        client = Client(peer.transport)
        with pytest.raises(TypeError, match="SubscriptionFilter, got dict"):
            client.watch({"toolsListChanged": True})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="asks for nothing"):
            client.watch(SubscriptionFilter())
        for option in ("ack_timeout", "give_up_after", "max_streams", "overlap", "min_silence"):
            with pytest.raises(ValueError, match=option):
                client.watch(TOOLS, **{option: 0})  # type: ignore[arg-type]
            with pytest.raises(ValueError, match=option):
                client.open_shared_watch(**{option: math.nan})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="backoff"):
            client.watch(TOOLS, backoff=5)  # type: ignore[arg-type]
        peer.transport.can_listen = False
        with pytest.raises(errors.ListenNotSupported):
            client.watch(TOOLS)
        with pytest.raises(errors.ListenNotSupported):
            client.open_shared_watch()
