"""Snapshots of a watch: when they are taken, and which changes they stand for."""

from typing import Any

import pytest
import trio
from watch_kit import FakePeer, drain, highest_delays, settle

from mcp_trio import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    SubscriptionFilter,
    ToolsListChanged,
    errors,
)
from mcp_trio.client.watch import Snapshot

ALL = SubscriptionFilter(True, True, True, ("note://a", "note://b"))
TOOLS = SubscriptionFilter(tools_list_changed=True)
NOTES = SubscriptionFilter(resource_subscriptions=("note://a", "note://b"))
A, B = ResourceUpdated("note://a"), ResourceUpdated("note://b")


@pytest.fixture(autouse=True)
def _no_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    highest_delays(monkeypatch)


class Gate:
    """Answers to reads that wait for the test."""

    def __init__(self, peer: FakePeer) -> None:
        self.waiting: dict[str, trio.Event] = {}
        peer.before_read = self._wait

    async def _wait(self, name: str) -> None:
        self.waiting[name] = trio.Event()
        await self.waiting[name].wait()

    async def open(self, name: str) -> None:
        """Let one go on."""
        await settle()
        self.waiting.pop(name).set()
        await settle()


async def test_everything_that_was_granted(autojump_clock: trio.abc.Clock) -> None:
    """P-05: lists and contents, after the acknowledgement and before any event."""
    peer = FakePeer()
    peer.holds = {"tools": ["t"], "prompts": ["p"], "resources": ["r"], "templates": ["x"]}
    peer.holds |= {"note://a": "a", "note://b": "b"}
    peer.answer = lambda wanted: wanted.difference(SubscriptionFilter(prompts_list_changed=True))
    async with peer.watch(ALL, snapshot=True) as changes:
        [snapshot] = await drain(changes)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.prompts is None
        lists: list[Any] = [snapshot.tools, snapshot.resources, snapshot.resource_templates]
        assert [each.get() for each in lists] == [["t"], ["r"], ["x"]]
        got = {uri: each.get() for uri, each in snapshot.contents.items()}
        assert got == {"note://a": "a", "note://b": "b"}
        assert changes.statistics().snapshots == 1
        peer.say(A)
        assert await drain(changes) == [A]


async def test_without_being_asked_nothing_is_read(autojump_clock: trio.abc.Clock) -> None:
    """P-05: snapshots are for those who want them."""
    peer = FakePeer()
    async with peer.watch(ALL) as changes:
        peer.stream.cut()
        assert isinstance(await changes.receive(), Resync)
        await trio.sleep(60)
        assert peer.reads == []


async def test_what_the_fetch_covers_is_left_out(autojump_clock: trio.abc.Clock) -> None:
    """C-47: a change that came before its value was asked for; one that came later follows."""
    peer = FakePeer()
    gate = Gate(peer)
    many = SubscriptionFilter(
        resource_subscriptions=tuple(f"note://{number}" for number in range(12))
    )
    async with peer.watch(many, snapshot=True) as changes:
        await settle()
        # Eight are asked for at once; the others wait for their turn.
        assert sorted(gate.waiting) == sorted(f"note://{number}" for number in range(8))
        peer.say(ResourceUpdated("note://0"))  # after it was asked for: news
        peer.say(ResourceUpdated("note://11"))  # before: the answer will have it
        while gate.waiting:
            await gate.open(next(iter(gate.waiting)))
        snapshot, *later = await drain(changes)
        assert isinstance(snapshot, Snapshot)
        assert len(snapshot.contents) == 12
        assert later == [ResourceUpdated("note://0")]


async def test_nothing_is_told_before_the_snapshot(autojump_clock: trio.abc.Clock) -> None:
    """C-47: acknowledgement, state, events, in this order."""
    peer = FakePeer()
    gate = Gate(peer)
    async with peer.watch(NOTES, snapshot=True) as changes:
        await settle()
        peer.say(A)
        with trio.move_on_after(1) as scope:
            await changes.receive()
        assert scope.cancelled_caught
        await gate.open("note://a")
        await gate.open("note://b")
        first, second = await drain(changes)
        assert isinstance(first, Snapshot)
        assert second == A


async def test_after_each_gap(autojump_clock: trio.abc.Clock) -> None:
    """C-47: what came before the gap, the Resync, the state, what came after."""
    peer = FakePeer()
    async with peer.watch(NOTES, snapshot=True) as changes:
        await drain(changes)
        peer.holds["note://a"] = "new"
        peer.say(B)
        peer.stream.cut()
        await settle()
        await changes.wait_open()
        await settle()
        peer.say(A)
        before, resync, snapshot, after = await drain(changes)
        assert (before, after) == (B, A)
        assert isinstance(resync, Resync)
        assert snapshot.contents["note://a"].get() == "new"


async def test_a_gap_while_it_is_read(autojump_clock: trio.abc.Clock) -> None:
    """C-47: what was read before the gap is worth nothing; it is read again."""
    peer = FakePeer()
    gate = Gate(peer)
    async with peer.watch(NOTES, snapshot=True) as changes:
        await gate.open("note://a")
        peer.stream.cut()
        await settle()
        await changes.wait_open()
        peer.holds |= {"note://a": "2", "note://b": "2"}
        await gate.open("note://a")
        await gate.open("note://b")
        resync, snapshot = await drain(changes)
        assert isinstance(resync, Resync)
        assert {each.get() for each in snapshot.contents.values()} == {"2"}
        assert peer.reads.count("note://a") == 2


async def test_one_that_cannot_be_read(autojump_clock: trio.abc.Clock) -> None:
    """P-05: it says why, and hinders no other; and one that hangs has a limit."""
    peer = FakePeer()
    problem = errors.InvalidParams("gone")
    peer.holds |= {"note://a": problem, "note://b": "b"}
    async with peer.watch(NOTES, snapshot=True, read_timeout=3) as changes:
        [snapshot] = await drain(changes)
        assert snapshot.contents["note://a"].error is problem
        with pytest.raises(errors.InvalidParams):
            snapshot.contents["note://a"].get()
        assert snapshot.contents["note://b"].get() == "b"
        Gate(peer)
        peer.stream.cut()
        begun = trio.current_time()
        assert isinstance(await changes.receive(), Resync)
        snapshot = await changes.receive()
        assert isinstance(snapshot, Snapshot)
        assert isinstance(snapshot.contents["note://b"].error, trio.TooSlowError)
        assert trio.current_time() - begun < 4


async def test_what_an_update_adds(autojump_clock: trio.abc.Clock) -> None:
    """P-05, P-08: only that is read, and no Resync is told."""
    peer = FakePeer()
    async with peer.watch(TOOLS, snapshot=True) as changes:
        await drain(changes)
        peer.reads.clear()
        await changes.update(
            SubscriptionFilter(tools_list_changed=True, resource_subscriptions=("note://a",))
        )
        [snapshot] = await drain(changes)
        assert isinstance(snapshot, Snapshot)
        assert (snapshot.tools, list(snapshot.contents)) == (None, ["note://a"])
        assert peer.reads == ["note://a"]


async def test_a_snapshot_that_was_not_taken_is_not_lost(autojump_clock: trio.abc.Clock) -> None:
    """C-47: another gap before it was received; what it was about is in the next one."""
    peer = FakePeer()
    async with peer.watch(ALL, snapshot=True, max_uris_per_stream=1) as changes:
        await settle()
        [only_b] = [each for each in peer.streams if each.wanted.covers("note://b")]
        only_b.cut()
        await settle()
        await changes.wait_open()
        heard = await drain(changes)
        [snapshot] = [each for each in heard if isinstance(each, Snapshot)]
        assert snapshot.tools is not None
        assert set(snapshot.contents) == {"note://a", "note://b"}


async def test_leaving_ends_the_reading(autojump_clock: trio.abc.Clock) -> None:
    """C-40: whoever leaves waits for no answer."""
    peer = FakePeer()
    gate = Gate(peer)
    async with peer.watch(NOTES, snapshot=True):
        await settle()
        assert gate.waiting
    assert trio.current_time() < 1


async def test_lists_and_their_events(autojump_clock: trio.abc.Clock) -> None:
    """C-47: list changes are covered as updates are."""
    peer = FakePeer()
    gate = Gate(peer)
    wanted = SubscriptionFilter(True, True, True)
    async with peer.watch(wanted, snapshot=True) as changes:
        await settle()
        peer.say(ToolsListChanged())
        peer.say(PromptsListChanged())
        peer.say(ResourcesListChanged())
        for name in ("tools", "prompts", "resources", "templates"):
            await gate.open(name)
        snapshot, *later = await drain(changes)
        assert isinstance(snapshot, Snapshot)
        assert set(later) == {ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()}
