"""One filter on several streams, several consumers on one, and filters that change."""

from typing import Any

import pytest
import trio
from watch_kit import FakePeer, drain, highest_delays, settle

from mcp_trio import (
    Hub,
    PromptsListChanged,
    ResourceUpdated,
    Resync,
    Server,
    SubscriptionFilter,
    ToolsListChanged,
    errors,
    open_memory_client,
)
from mcp_trio.client.watch import Watcher
from mcp_trio.server.limits import Limits

TOOLS = SubscriptionFilter(tools_list_changed=True)
PROMPTS = SubscriptionFilter(prompts_list_changed=True)
BOTH = SubscriptionFilter(tools_list_changed=True, prompts_list_changed=True)
REFUSED = errors.InvalidParams("too many")


def notes(*names: int) -> SubscriptionFilter:
    return SubscriptionFilter(resource_subscriptions=tuple(f"note://{name}" for name in names))


def updated(name: int) -> ResourceUpdated:
    return ResourceUpdated(f"note://{name}")


def sizes(peer: FakePeer) -> list[int]:
    return sorted(len(stream.wanted.resource_subscriptions) for stream in peer.streams)


@pytest.fixture(autouse=True)
def _no_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    highest_delays(monkeypatch)


# One filter, several streams


async def test_many_uris_are_spread(autojump_clock: trio.abc.Clock) -> None:
    """P-09: each stream has its part, each part is lost and opened again for itself."""
    peer = FakePeer()
    async with peer.watch(notes(*range(5)), max_uris_per_stream=2) as changes:
        assert sizes(peer) == [1, 2, 2]
        assert changes.acknowledged == notes(*range(5))
        for name in range(5):
            peer.say(updated(name))
        assert set(await drain(changes)) == {updated(name) for name in range(5)}
        [second] = [stream for stream in peer.streams if stream.wanted.covers("note://2")]
        second.cut()
        assert isinstance(await changes.receive(), Resync)
        assert sizes(peer) == [1, 2, 2]
        statistics = changes.statistics()
        assert (statistics.streams, statistics.losses, statistics.reopened) == (3, 1, 1)


async def test_what_is_refused_for_its_size_is_halved(autojump_clock: trio.abc.Clock) -> None:
    """P-09: a limit that the server does not tell is found out."""
    peer = FakePeer()
    peer.answer = lambda wanted: REFUSED if len(wanted.resource_subscriptions) > 3 else None
    async with peer.watch(notes(*range(10))) as changes:
        assert max(sizes(peer)) <= 3
        assert sum(sizes(peer)) == 10
        assert changes.acknowledged == notes(*range(10))
        # What was found out is remembered.
        before = len(peer.asked)
        await changes.update(notes(*range(12)))
        assert all(len(asked.resource_subscriptions) <= 3 for asked in peer.asked[before:])
        for name in range(12):
            peer.say(updated(name))
        assert set(await drain(changes)) == {updated(name) for name in range(12)}


async def test_no_more_streams_than_allowed(autojump_clock: trio.abc.Clock) -> None:
    """P-09: beyond `max_streams` the refusal is what the caller gets, in bounded time."""
    peer = FakePeer()
    peer.answer = lambda wanted: REFUSED
    with pytest.raises(errors.InvalidParams):
        async with peer.watch(notes(*range(100)), max_streams=4):
            pytest.fail("it was entered")
    assert len(peer.asked) < 20
    assert peer.most == 0


async def test_what_cannot_be_halved_is_refused(autojump_clock: trio.abc.Clock) -> None:
    """P-03: a filter of one thing that is refused is a refusal."""
    peer = FakePeer()
    peer.answer = lambda wanted: REFUSED
    with pytest.raises(errors.InvalidParams):
        async with peer.watch(notes(1)):
            pytest.fail("it was entered")
    assert len(peer.asked) == 1


async def test_a_real_server_s_limit(autojump_clock: trio.abc.Clock) -> None:
    """P-09, S-60: our own server refuses more than so many URIs; the watch gets them all."""
    hub = Hub()
    server = Server("s", version="1", hub=hub, limits=Limits(filter_uris=4))
    async with open_memory_client(server) as client, client.watch(notes(*range(10))) as changes:
        assert changes.acknowledged == notes(*range(10))
        for name in range(10):
            hub.publish(updated(name))
        await settle()
        assert {await changes.receive() for _ in range(10)} == {updated(n) for n in range(10)}
        assert changes.statistics().streams >= 3


# Another filter, without a gap


async def test_an_update_opens_before_it_leaves(autojump_clock: trio.abc.Clock) -> None:
    """P-08: the old stream is read until the new one is acknowledged, and a while longer."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        [old] = peer.streams
        peer.latency = 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(changes.update, BOTH)
            await trio.sleep(0.5)
            assert not old.left.is_set()
            old.say(ToolsListChanged())
        [_, new] = peer.streams
        assert changes.acknowledged == BOTH
        old.say(ToolsListChanged())
        new.say(ToolsListChanged())
        new.say(PromptsListChanged())
        # The same change on both streams is one change.
        assert await drain(changes) == [ToolsListChanged(), PromptsListChanged()]
        await trio.sleep(1.5)
        assert peer.streams == [new]
        assert changes.statistics().losses == 0


async def test_a_change_on_both_streams_at_different_times(autojump_clock: trio.abc.Clock) -> None:
    """P-08: the echo on the stream that is about to be left is not told a second time."""
    peer = FakePeer()
    async with peer.watch(TOOLS, overlap=5) as changes:
        [old] = peer.streams
        await changes.update(BOTH)
        [_, new] = peer.streams
        new.say(ToolsListChanged())
        assert await drain(changes) == [ToolsListChanged()]
        old.say(ToolsListChanged())
        assert await drain(changes) == []


async def test_an_update_that_is_refused_changes_nothing(autojump_clock: trio.abc.Clock) -> None:
    """P-08: the caller is told, and hears what it heard before."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        [old] = peer.streams
        peer.answer = lambda wanted: REFUSED
        with pytest.raises(errors.InvalidParams):
            await changes.update(BOTH)
        peer.answer = lambda wanted: errors.ConnectionLost("gone")
        with pytest.raises(errors.ConnectionLost):
            await changes.update(BOTH)
        assert changes.requested == TOOLS
        assert peer.streams == [old]
        old.say(ToolsListChanged())
        assert await drain(changes) == [ToolsListChanged()]


async def test_an_update_can_be_cancelled(autojump_clock: trio.abc.Clock) -> None:
    """P-08: the old filter stays in force, and the attempt leaves nothing behind."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        [old] = peer.streams
        peer.latency = 10
        with trio.move_on_after(1):
            await changes.update(BOTH)
        await settle()
        assert changes.requested == TOOLS
        assert peer.streams == [old]
        peer.latency = 0
        await changes.update(BOTH)
        assert changes.acknowledged == BOTH


async def test_a_loss_while_it_is_updated(autojump_clock: trio.abc.Clock) -> None:
    """P-08, C-43: the stream that was there is lost meanwhile; that is a gap, and is told."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        [old] = peer.streams
        peer.latency = 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(changes.update, BOTH)
            await trio.sleep(0.5)
            old.cut()
        await changes.wait_open()
        assert changes.acknowledged == BOTH
        heard = await drain(changes)
        assert any(isinstance(change, Resync) for change in heard)
        await trio.sleep(60)
        assert len(peer.streams) == 1


async def test_narrower_after_an_update(autojump_clock: trio.abc.Clock) -> None:
    """C-46: what is not granted any more is named, though there was no gap in the rest."""
    peer = FakePeer()
    async with peer.watch(BOTH) as changes:
        peer.answer = lambda wanted: wanted.difference(PROMPTS)
        await changes.update(SubscriptionFilter(True, True, True))
        [resync] = await drain(changes)
        assert isinstance(resync, Resync)
        assert resync.narrowed == ("promptsListChanged",)
        assert changes.declined == PROMPTS


async def test_update_says_what_is_wrong(autojump_clock: trio.abc.Clock) -> None:
    """C-08: before anything is sent."""
    peer = FakePeer()
    async with peer.watch(TOOLS) as changes:
        with pytest.raises(ValueError, match="asks for nothing"):
            await changes.update(SubscriptionFilter())
        with pytest.raises(TypeError, match="SubscriptionFilter"):
            await changes.update({})  # type: ignore[arg-type]
        await changes.update(TOOLS)
        assert len(peer.asked) == 1


# Several consumers, one stream


async def test_consumers_share_a_stream(autojump_clock: trio.abc.Clock) -> None:
    """P-09: each hears what it has asked for, and the wire carries it once."""
    peer = FakePeer()
    async with peer.share() as shared, shared.watch(TOOLS) as one, shared.watch(BOTH) as two:
        await trio.sleep(2)
        [stream] = peer.streams
        assert stream.wanted == BOTH
        stream.say(ToolsListChanged(), PromptsListChanged())
        assert await drain(one) == [ToolsListChanged()]
        assert await drain(two) == [ToolsListChanged(), PromptsListChanged()]
        assert (one.acknowledged, two.acknowledged) == (TOOLS, BOTH)
        stream.cut()
        for each in (one, two):
            assert isinstance(await each.receive(), Resync)
        assert peer.most == 2


async def test_what_is_left_behind_is_let_go(autojump_clock: trio.abc.Clock) -> None:
    """P-09: by counting, and not at once: who comes back soon finds it as it was."""
    peer = FakePeer()
    async with peer.share() as shared, shared.watch(notes(1)) as first:
        async with shared.watch(notes(1, 2)):
            pass
        await trio.sleep(1)
        async with shared.watch(notes(2)):
            asked = len(peer.asked)
        assert len(peer.asked) == asked == 2
        await trio.sleep(20)
        [stream] = peer.streams
        assert stream.wanted == notes(1)
        stream.say(updated(1))
        assert await drain(first) == [updated(1)]


async def test_the_last_one_ends_the_stream(autojump_clock: trio.abc.Clock) -> None:
    """P-09: nothing is held open for nobody; and who comes later has it opened again."""
    peer = FakePeer()
    async with peer.share() as shared:
        await settle()
        assert peer.asked == []
        for times in (1, 2):
            async with shared.watch(TOOLS) as changes:
                peer.stream.say(ToolsListChanged())
                assert await drain(changes) == [ToolsListChanged()]
            await settle()
            assert peer.streams == []
            assert len(peer.asked) == times


async def test_a_slow_consumer_holds_up_nobody(autojump_clock: trio.abc.Clock) -> None:
    """P-09, W41: it has one of each change when it comes; the other has had them all in time."""
    peer = FakePeer()
    async with peer.share() as shared, shared.watch(TOOLS) as slow, shared.watch(TOOLS) as quick:
        for _ in range(100):
            peer.stream.say(ToolsListChanged())
            assert await quick.receive() == ToolsListChanged()
        assert await drain(slow) == [ToolsListChanged()]
        assert slow.statistics().coalesced == 99


async def test_who_asks_for_too_much_is_alone_with_that(autojump_clock: trio.abc.Clock) -> None:
    """P-09: a refusal ends the one who has caused it, and leaves the others what they had."""
    peer = FakePeer()
    async with peer.share() as shared, shared.watch(TOOLS) as first:
        peer.answer = lambda wanted: REFUSED if wanted.prompts_list_changed else None
        with pytest.raises(errors.InvalidParams):
            async with shared.watch(PROMPTS):
                pytest.fail("it was entered")
        peer.stream.say(ToolsListChanged())
        assert await drain(first) == [ToolsListChanged()]


async def test_an_end_ends_all(autojump_clock: trio.abc.Clock) -> None:
    """C-48, P-09: nobody is left to wait for what will not come."""
    peer = FakePeer()

    async def expect_end(changes: Watcher) -> None:
        with pytest.raises(errors.WatchEnded) as caught:
            await changes.receive()
        assert caught.value.reason == "revoked"

    async with (
        peer.share() as shared,
        shared.watch(TOOLS) as one,
        shared.watch(TOOLS) as two,
        trio.open_nursery() as nursery,
    ):
        for each in (one, two):
            nursery.start_soon(expect_end, each)
        await settle()
        peer.stream.finish("revoked")


async def test_each_has_its_snapshot(autojump_clock: trio.abc.Clock) -> None:
    """P-05, P-09: who comes later is told how things are, whoever was there before."""
    hub = Hub()
    server = Server("s", version="1", hub=hub)
    state = {"n": 0}

    @server.resource("note://1")
    async def note() -> str:
        return str(state["n"])

    def text(snapshot: Any) -> str:
        return str(snapshot.contents["note://1"].get().contents[0].text)

    async with (
        open_memory_client(server) as client,
        client.open_shared_watch() as shared,
        shared.watch(notes(1), snapshot=True) as first,
    ):
        assert text(await first.receive()) == "0"
        state["n"] = 1
        async with shared.watch(notes(1), snapshot=True) as second:
            assert text(await second.receive()) == "1"
        await settle()
        assert first.statistics().waiting == 0
