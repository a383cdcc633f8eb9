"""The bridge between a hub and a bus, in virtual time."""

import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from mcp_trio import Hub, ResourceUpdated, Resync, Server, SubscriptionFilter, ToolsListChanged
from mcp_trio.subscriptions import bus_messages
from mcp_trio.subscriptions.bridge import open_bridge
from mcp_trio.subscriptions.bus import Bus, BusConnection, Gap
from mcp_trio.subscriptions.events import Event, ExtensionEvent
from mcp_trio.subscriptions.source import SourceHandle, SubscriptionContext
from mcp_trio.testing.buses import MemoryBus

WANTED = SubscriptionFilter(
    tools_list_changed=True, resource_subscriptions=("file:///a", "file:///b"), task_ids=("t",)
)
CUES = [ToolsListChanged(), ResourceUpdated("file:///a"), ResourceUpdated("file:///b")]


async def listen(hub: Hub, wanted: SubscriptionFilter = WANTED) -> SourceHandle:
    return await hub.open(wanted, SubscriptionContext(1))


async def heard(handle: SourceHandle) -> list[Event]:
    """What is there, and what comes in the next second."""
    events: list[Event] = []
    with trio.move_on_after(1):
        while True:
            events.append(await handle.receive())
    return events


async def test_listeners_of_all_processes_hear(autojump_clock: MockClock) -> None:
    """W65: of an update in one process, the local ones at once, the others by the bus."""
    bus, one, other = MemoryBus(), Hub(), Hub()
    near, far = await listen(one), await listen(other)
    async with open_bridge(one, bus) as bridge, open_bridge(other, bus) as far_bridge:
        assert await heard(near) == CUES  # of the connecting itself: they may be older than it
        assert await heard(far) == CUES
        report = one.publish(ResourceUpdated("file:///a"))
        assert report.matched == 1
        assert one.statistics().queued == 1
        assert await heard(far) == [ResourceUpdated("file:///a")]
        assert await heard(near) == [ResourceUpdated("file:///a")]
        assert bridge.statistics().sent == far_bridge.statistics().received == 1
        assert bridge.statistics().received == far_bridge.statistics().sent == 0
    assert not bridge.statistics().connected


async def test_what_a_server_announces_goes_over_the_bus(autojump_clock: MockClock) -> None:
    """Registries and `Server.publish` publish on the hub, and so on the bus; threads as well."""
    bus, one, other = MemoryBus(), Hub(), Hub()
    server = Server("x", version="1", hub=one)
    far = await listen(other)
    async with open_bridge(one, bus), open_bridge(other, bus):
        await heard(far)

        @server.tool
        def late() -> str:
            return ""

        assert await heard(far) == [ToolsListChanged()]
        # Nobody listens in this process, and yet it is published.
        await trio.to_thread.run_sync(server.publish, ResourceUpdated("file:///b"))
        assert await heard(far) == [ResourceUpdated("file:///b")]


async def test_publish_from_another_thread_is_refused(autojump_clock: MockClock) -> None:
    """Also where nobody listens: the outbox is no more made for threads than a mailbox."""
    hub = Hub()
    async with open_bridge(hub, MemoryBus()):
        with pytest.raises(RuntimeError, match="publish_from_thread"):
            await trio.to_thread.run_sync(hub.publish, ToolsListChanged())


async def test_a_burst_is_few_messages(autojump_clock: MockClock) -> None:
    """The first goes at once; what comes in the meantime goes together, each key once."""
    bus, one, other = MemoryBus(), Hub(), Hub()
    far = await listen(other)
    async with open_bridge(one, bus, pace=0.01) as bridge, open_bridge(other, bus):
        await heard(far)
        begun = trio.current_time()
        for n in range(500):
            one.publish(ResourceUpdated(f"file:///{'ab'[n % 2]}"))
            await trio.sleep(0.0001)
        await bridge.flush()
        assert trio.current_time() - begun == pytest.approx(0.05, abs=0.02)
        assert 5 <= bridge.statistics().sent <= 7
        assert set(await heard(far)) == {ResourceUpdated("file:///a"), ResourceUpdated("file:///b")}


async def test_kept_while_the_bus_is_away(autojump_clock: MockClock) -> None:
    """Nothing that was published in an outage is lost, however much it was."""
    bus, one, other = MemoryBus(), Hub(), Hub()
    async with open_bridge(one, bus, max_outbox=1000) as bridge, open_bridge(other, bus):
        await bridge.wait_connected()
        bus.stop()
        await trio.sleep(1)
        for _ in range(3):
            one.publish(ResourceUpdated("file:///a"))
        assert not bridge.statistics().connected
        assert bridge.statistics().outbox == 1
        for n in range(100):
            one.publish(ResourceUpdated(f"file:///{n}"))
        assert bridge.statistics().outbox == bridge.statistics().collapsed == 1
        bus.start()
        await bridge.wait_connected()
        await bridge.flush()
        statistics = bridge.statistics()
        assert statistics.connected
        assert statistics.reconnects == 1
        assert statistics.failures > 1
        assert statistics.outbox == statistics.outbox_bytes == 0


async def test_reconnecting_gets_slower_and_is_spread(autojump_clock: MockClock) -> None:
    """Backoff: up to 100 ms at first, up to `max_backoff` in the end, at random."""
    moments: list[float] = []

    class Nowhere(Bus):
        @asynccontextmanager
        async def connect(self) -> AsyncIterator[BusConnection]:
            moments.append(trio.current_time())
            await trio.lowlevel.checkpoint()
            if moments:
                raise OSError("nobody there")
            async with MemoryBus().connect() as connection:
                yield connection

    async with open_bridge(Hub(), Nowhere(), max_backoff=2.0):
        await trio.sleep(100)
    waits = [b - a for a, b in itertools.pairwise(moments)]
    assert all(wait <= min(2.0, 0.1 * 2**n) + 1e-6 for n, wait in enumerate(waits))
    assert 60 < len(waits) < 200
    assert max(waits) > 1.5
    assert min(waits[6:]) < 0.5


async def test_after_a_crash_the_others_are_told(autojump_clock: MockClock) -> None:
    """What a process that was killed had published, and not yet sent, nobody else knows."""
    bus, other = MemoryBus(), Hub()
    far = await listen(other)
    async with open_bridge(other, bus):
        await heard(far)
        async with open_bridge(Hub(), bus):
            assert await heard(far) == []
        async with open_bridge(Hub(), bus, after_crash=True):
            assert await heard(far) == CUES


async def test_resync_goes_to_all(autojump_clock: MockClock) -> None:
    """Published on one hub, it is for the listeners of all."""
    bus, one, other = MemoryBus(), Hub(), Hub()
    far = await listen(other)
    async with open_bridge(one, bus), open_bridge(other, bus):
        await heard(far)
        one.publish(Resync("the database was away"))
        assert await heard(far) == CUES
        one.publish_here(Resync("for us only"))
        assert await heard(far) == []


async def test_data_is_sent_once(autojump_clock: MockClock) -> None:
    """Events with data arrive in order; what the bus may or may not have taken is not repeated."""
    bus, one, other = MemoryBus(), Hub(), Hub()
    far = await listen(other, SubscriptionFilter(task_ids=("t",)))
    async with open_bridge(one, bus) as bridge, open_bridge(other, bus):
        await bridge.wait_connected()
        for n in range(3):
            one.publish(ExtensionEvent("x/data", {"n": n}, {"taskIds": "t"}))
        assert [event.params for event in await heard(far)] == [{"n": n} for n in range(3)]  # type: ignore[union-attr]
        bus.refuse()
        one.publish(ExtensionEvent("x/data", {"n": 3}, {"taskIds": "t"}))
        one.publish(ExtensionEvent("x/state", {"n": 4}, {"taskIds": "t"}, coalesce=True))
        assert [event.params for event in await heard(far)] == [{"n": 4}]  # type: ignore[union-attr]
        assert bridge.statistics().dropped == 1


async def test_what_cannot_be_sent_is_counted(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """Publishing does not fail because of a bus; the listeners here have got it."""
    hub = Hub()
    near = await listen(hub, SubscriptionFilter(task_ids=("t",)))
    # No object, so it is left out of the notification; but it is in the event.
    odd = ExtensionEvent("x/data", {"_meta": object()}, {"taskIds": "t"})
    async with open_bridge(hub, MemoryBus()) as bridge:
        assert hub.publish(odd).matched == 1
        assert bridge.statistics().dropped == 1
        assert bridge.statistics().outbox == 0
    assert await near.receive() == odd
    assert "cannot be sent" in caplog.text


@pytest.mark.parametrize(
    ("message", "gaps", "ignored"),
    [
        (b"\xff", 0, 1),
        (b'{"jsonrpc":"2.0","method":"x"}', 0, 1),
        (b'{"mcp_trio":2}', 1, 1),
        (b"x" * (Bus.max_message + 1), 1, 1),
        (bus_messages.encode_message("a", 1, [b'{"event":"weather"}']), 0, 1),
        (
            bus_messages.encode_message(
                "a", 1, [bus_messages.encode_event(ExtensionEvent("x", {}, {}))]
            ),
            0,
            1,
        ),
        (bus_messages.encode_message("a", 1, anything=True), 1, 0),
    ],
)
async def test_odd_messages(
    message: bytes,
    gaps: int,
    ignored: int,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    """What is not ours is logged and ignored; what is ours and cannot be read is a gap."""
    bus, hub = MemoryBus(), Hub()
    async with open_bridge(hub, bus) as bridge:
        await bridge.wait_connected()
        before = bridge.statistics()
        bus.send(message)
        await trio.sleep(0.1)
        after = bridge.statistics()
        assert after.connected
        assert after.gaps - before.gaps == gaps
        assert after.ignored == ignored
        assert ("ignored" in caplog.text) == bool(ignored)


async def test_a_hole_in_the_numbers_is_a_gap(autojump_clock: MockClock) -> None:
    """A bus that loses a message and says nothing is found out by the next one."""
    bus, hub = MemoryBus(), Hub()
    handle = await listen(hub)
    update = [bus_messages.encode_event(ResourceUpdated("file:///a"))]
    async with open_bridge(hub, bus):
        await heard(handle)
        for number in (7, 8, 8, 9):
            bus.send(bus_messages.encode_message("a", number, update))
            assert await heard(handle) == [ResourceUpdated("file:///a")]
        bus.send(bus_messages.encode_message("b", 3, update))
        assert await heard(handle) == [ResourceUpdated("file:///a")]
        bus.send(bus_messages.encode_message("a", 11, update))
        assert await heard(handle) == CUES
        bus.cut()
        assert await heard(handle) == CUES
        bus.send(bus_messages.encode_message("a", 20, update))
        assert await heard(handle) == [ResourceUpdated("file:///a")]


async def test_an_overrun_connection_is_a_gap(autojump_clock: MockClock) -> None:
    """More has come than the bus can keep for us."""
    bus, hub = MemoryBus(capacity=3), Hub()
    handle = await listen(hub)
    async with open_bridge(hub, bus) as bridge:
        await heard(handle)
        for number in range(1, 10):
            bus.send(bus_messages.encode_message("a", number))
        assert await heard(handle) == CUES
        assert bridge.statistics().gaps == 2


async def test_a_bus_that_hangs(autojump_clock: MockClock) -> None:
    """A message that is not taken in time counts as not sent, and is sent again."""
    hang = True
    sent: list[bytes] = []

    class Connection(BusConnection):
        async def publish(self, message: bytes) -> None:
            if hang:
                await trio.sleep_forever()
            await trio.lowlevel.checkpoint()
            sent.append(message)

        async def receive(self) -> Sequence[bytes | Gap]:
            await trio.sleep_forever()
            raise AssertionError("unreachable: it sleeps forever")

    class Hanging(Bus):
        @asynccontextmanager
        async def connect(self) -> AsyncIterator[BusConnection]:
            await trio.lowlevel.checkpoint()
            yield Connection()

    hub = Hub()
    async with open_bridge(hub, Hanging(), send_timeout=3) as bridge:
        hub.publish(ToolsListChanged())
        await trio.sleep(4)
        assert bridge.statistics().failures == 1
        assert not sent
        hang = False
        await bridge.flush()
        assert [item.event for item in bus_messages.decode_message(sent[0]).events] == [
            ToolsListChanged()
        ]
        hang = True
        hub.publish(ToolsListChanged())
        begun = trio.current_time()
    assert trio.current_time() - begun == pytest.approx(1, abs=0.1)


async def test_leaving_while_there_is_no_bus(autojump_clock: MockClock) -> None:
    """The grace for the outbox and no more; none if it is empty."""
    bus, hub = MemoryBus(), Hub()
    bus.stop()
    begun = trio.current_time()
    async with open_bridge(hub, bus):
        await trio.sleep(1)
    assert trio.current_time() - begun == pytest.approx(1, abs=0.01)
    async with open_bridge(hub, bus, closing_grace=0.5):
        hub.publish(ToolsListChanged())
    assert trio.current_time() - begun == pytest.approx(1.5, abs=0.01)


async def test_what_a_block_raises_comes_out_alone(autojump_clock: MockClock) -> None:
    """One cause, one exception; and the hub is free again."""
    hub = Hub()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            async with open_bridge(hub, MemoryBus()):
                raise ZeroDivisionError
    hub.publish(ToolsListChanged())


async def test_one_bridge_for_a_hub(autojump_clock: MockClock) -> None:
    """What came over one bus would not go to the other."""
    hub = Hub()
    async with open_bridge(hub, MemoryBus()):
        with pytest.raises(RuntimeError, match="bridge already"):
            async with open_bridge(hub, MemoryBus()):
                pass


async def test_wrong_options(autojump_clock: MockClock) -> None:
    """Said before anything is opened."""
    for options in ({"max_outbox": 0}, {"min_backoff": 0.0}, {"max_backoff": 0.01}):
        with pytest.raises(ValueError, match="must be positive"):
            async with open_bridge(Hub(), MemoryBus(), **options):
                pass


async def test_a_bus_that_is_wrong_is_logged(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """Other people's code may do anything; the bridge goes on, and says what it was."""

    class Connection(BusConnection):
        async def publish(self, message: bytes) -> None:
            await trio.lowlevel.checkpoint()

        async def receive(self) -> Sequence[bytes | Gap]:
            await trio.sleep(0.1)
            return ["text"]  # type: ignore[list-item]

    class Wrong(Bus):
        @asynccontextmanager
        async def connect(self) -> AsyncIterator[BusConnection]:
            await trio.lowlevel.checkpoint()
            yield Connection()

    caplog.set_level(logging.INFO)
    async with open_bridge(Hub(), Wrong()) as bridge:
        await trio.sleep(1)
        assert bridge.statistics().failures >= 1
    assert "a bus carries bytes, not str" in caplog.text


async def test_a_bus_that_cannot_disconnect_is_left(autojump_clock: MockClock) -> None:
    """It has a second."""

    class Sticky(MemoryBus):
        @asynccontextmanager
        async def connect(self) -> AsyncIterator[BusConnection]:
            async with super().connect() as connection:
                yield connection
                await trio.sleep_forever()

    async with open_bridge(Hub(), Sticky()) as bridge:
        await bridge.wait_connected()
        begun = trio.current_time()
    assert trio.current_time() - begun == pytest.approx(1, abs=0.01)
