"""What a bus between processes has to hold, for tests of your own bus.

`CHECKS` are the contract of `subscriptions.bus`: run each of them on a bus that a `BusSetup` of
yours makes and breaks. They use no clock but Trio's, so that those of a bus in memory work in
virtual time.

Example:
    ::

        @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
        async def test_my_bus(check: BusCheck) -> None:
            await check(MySetup())
"""

import abc
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import attrs
import trio

from mcp_trio.subscriptions.bridge import Bridge, open_bridge
from mcp_trio.subscriptions.bus import GAP, Bus, BusConnection, Gap
from mcp_trio.subscriptions.events import (
    Event,
    ExtensionEvent,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import SourceHandle, SubscriptionContext

__all__ = ["CHECKS", "BusCheck", "BusSetup", "check_nothing_is_lost"]

_PATIENCE: Final = 30.0
"""Seconds after which a check says that something hangs."""


class BusSetup(abc.ABC):
    """A bus to check, and the ways in which it can fail."""

    @abc.abstractmethod
    def bus(self) -> Bus:
        """The bus as one more process would have it, connected to the same place."""

    @abc.abstractmethod
    async def cut(self) -> None:
        """Break every connection, as a network or an administrator does; new ones are possible."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Take away what is behind the bus, without a farewell."""

    @abc.abstractmethod
    async def start(self) -> None:
        """Bring back what `stop` has taken away, and return when it takes connections."""


BusCheck = Callable[[BusSetup], Awaitable[None]]
"""A check: it returns if all is well, and raises AssertionError or `trio.TooSlowError` if not."""


def _expect(condition: object, what: str) -> None:
    if not condition:
        raise AssertionError(what)


async def _receive(connection: BusConnection, count: int) -> list[bytes | Gap]:
    received: list[bytes | Gap] = []
    await trio.lowlevel.checkpoint()
    while len(received) < count:
        received.extend(await connection.receive())
    return received


async def messages_arrive_whole(setup: BusSetup) -> None:
    """Any bytes up to the longest message, at everybody who is connected."""
    bus = setup.bus()
    sent = [bytes(range(256)), b"\n", b"x" * bus.max_message]
    with trio.fail_after(_PATIENCE):
        async with (
            setup.bus().connect() as first,
            setup.bus().connect() as second,
            bus.connect() as publisher,
        ):
            for message in sent:
                await publisher.publish(message)
            _expect(await _receive(first, len(sent)) == sent, "messages arrive as they were sent")
            _expect(await _receive(second, len(sent)) == sent, "everybody gets every message")


async def messages_keep_their_order(setup: BusSetup) -> None:
    """Those of one publisher arrive in the order in which they were published."""
    count = 200
    with trio.fail_after(_PATIENCE):
        async with (
            setup.bus().connect() as subscriber,
            setup.bus().connect() as one,
            setup.bus().connect() as other,
            trio.open_nursery() as nursery,
        ):

            async def publish(name: bytes, connection: BusConnection) -> None:
                for number in range(count):
                    await connection.publish(b"%b %d" % (name, number))
                await trio.lowlevel.checkpoint()

            nursery.start_soon(publish, b"one", one)
            nursery.start_soon(publish, b"other", other)
            received = [
                message
                for message in await _receive(subscriber, 2 * count)
                if isinstance(message, bytes)
            ]
    for name in (b"one", b"other"):
        own = [message for message in received if message.startswith(name + b" ")]
        expected = [b"%b %d" % (name, number) for number in range(count)]
        _expect(own == expected, "each once, and in order")


async def connected_means_subscribed(setup: BusSetup) -> None:
    """What is published after the block was entered arrives, however soon after."""
    with trio.fail_after(_PATIENCE):
        async with setup.bus().connect() as publisher:
            for number in range(10):
                async with setup.bus().connect() as subscriber:
                    await publisher.publish(b"%d" % number)
                    received = list(await subscriber.receive())
                    _expect(received == [b"%d" % number], "what is published next arrives")


async def a_cut_is_noticed(setup: BusSetup) -> None:
    """A connection that is broken ends, or says that there is a gap; it never just goes on."""
    with trio.fail_after(_PATIENCE):
        noticed = False
        try:
            async with setup.bus().connect() as subscriber:
                await setup.cut()
                while not noticed:
                    noticed = GAP in await subscriber.receive()
        except Exception:  # noqa: BLE001 (whatever the bus says of it)
            noticed = True
        _expect(noticed, "a cut connection ends")
        async with setup.bus().connect() as again:
            await again.publish(b"again")
            _expect(b"again" in await again.receive(), "a new connection works")


async def an_outage_is_an_error(setup: BusSetup) -> None:
    """Neither connecting nor publishing succeeds, or waits for ever, while nobody is there."""
    with trio.fail_after(_PATIENCE):
        published = connected = False
        try:
            async with setup.bus().connect() as publisher:
                await setup.stop()
                await publisher.publish(b"to nobody")
                published = True
        except Exception:  # noqa: BLE001 (whatever the bus says of it)
            await trio.lowlevel.checkpoint()
        _expect(not published, "publishing to nobody fails")
        try:
            async with setup.bus().connect():
                connected = True
        except Exception:  # noqa: BLE001 (whatever the bus says of it)
            await trio.lowlevel.checkpoint()
        _expect(not connected, "connecting to nobody fails")
        await setup.start()
        async with setup.bus().connect() as again:
            await again.publish(b"again")
            _expect(b"again" in await again.receive(), "a new connection works")


async def cancelling_is_clean(setup: BusSetup) -> None:
    """A block that is cancelled, whenever it is, ends with nothing but the cancellation."""
    chance = random.Random(1)  # noqa: S311 (not a secret)
    with trio.fail_after(_PATIENCE):
        for _ in range(60):
            with trio.move_on_after(chance.uniform(0, 0.02)):
                async with setup.bus().connect() as connection, trio.open_nursery() as nursery:

                    async def publish(connection: BusConnection = connection) -> None:
                        while True:
                            await connection.publish(b"news")
                            await trio.sleep(0.0005)  # for virtual time to pass

                    nursery.start_soon(publish)
                    while True:
                        await connection.receive()


async def bridges_carry_every_event(setup: BusSetup) -> None:
    """Each listener of each process hears each event once, the publisher's own included."""
    wanted = SubscriptionFilter(
        tools_list_changed=True,
        prompts_list_changed=True,
        resources_list_changed=True,
        resource_subscriptions=("file:///a", "file:///dir"),
        task_ids=("t",),
    )
    with trio.fail_after(_PATIENCE):
        async with _open_processes(setup, 3) as processes:
            handles = [await process.listen(wanted) for process in processes]
            events: list[tuple[Event, bool]] = [
                (ToolsListChanged(), False),
                (PromptsListChanged(), False),
                (ResourcesListChanged(), False),
                (ResourceUpdated("file:///a"), False),
                (ResourceUpdated("file:///dir/below"), True),
                (ExtensionEvent("x/state", {"n": 1}, {"taskIds": "t"}, coalesce=True), False),
                (ExtensionEvent("x/data", {"n": 2.5, "s": "é"}, {"taskIds": "t"}), False),
            ]
            for event, below in events:
                processes[0].hub.publish(event, include_sub_resources=below)
                for handle in handles:
                    _expect(await handle.receive() == event, f"everybody hears of {event}")
            # Only what was sent on, or came back, would be heard a second time.
            await trio.sleep(0.1)
            last = ToolsListChanged()
            processes[1].hub.publish(last)
            for handle, process in zip(handles, processes, strict=True):
                _expect(await handle.receive() == last, "nothing is heard twice")
                _expect(not process.hub.statistics().queued, "nothing is heard twice")


async def nothing_is_lost(setup: BusSetup) -> None:
    """`check_nothing_is_lost`, with cuts and outages."""

    async def outage() -> None:
        await setup.stop()
        await trio.sleep(0.2)
        await setup.start()

    await check_nothing_is_lost(setup, [setup.cut, outage], seed=1)


CHECKS: Final[tuple[BusCheck, ...]] = (
    messages_arrive_whole,
    messages_keep_their_order,
    connected_means_subscribed,
    a_cut_is_noticed,
    an_outage_is_an_error,
    cancelling_is_clean,
    bridges_carry_every_event,
    nothing_is_lost,
)
"""Everything that a bus has to hold."""


@attrs.define
class _Process:
    """A hub and its bridge, as one process would have them."""

    hub: Hub
    bridge: Bridge

    async def listen(self, wanted: SubscriptionFilter) -> SourceHandle:
        return await self.hub.open(wanted, SubscriptionContext(1))


@asynccontextmanager
async def _open_processes(setup: BusSetup, count: int) -> AsyncIterator[list[_Process]]:
    """Hubs with bridges, once all of them are connected."""
    async with AsyncExitStack() as stack:
        processes = []
        for _ in range(count):
            hub = Hub()
            bridge = await stack.enter_async_context(
                open_bridge(hub, setup.bus(), min_backoff=0.02, max_backoff=0.2)
            )
            processes.append(_Process(hub, bridge))
        for process in processes:
            await process.bridge.wait_connected()
        yield processes


@attrs.define
class _World:
    """What is subscribed to: how often each thing has changed."""

    changes: dict[str, int]

    def is_known_to(self, fetched: dict[str, int]) -> bool:
        return all(self.changes[name] == at for name, at in fetched.items())

    def explain(self, known: list[dict[str, int]], when: str) -> None:
        """Fail, and say who does not know what."""
        for index, fetched in enumerate(known):
            stale = [name for name, at in fetched.items() if self.changes[name] != at]
            _expect(not stale, f"{when} listener {index} has no cue for {stale}")

    def change(self, name: str, hub: Hub) -> None:
        self.changes[name] += 1
        hub.publish(ToolsListChanged() if name == "tools" else ResourceUpdated(name))


async def check_nothing_is_lost(
    setup: BusSetup,
    faults: Sequence[Callable[[], Awaitable[None]]],
    *,
    seed: int,
    rounds: int = 6,
    processes: int = 3,
    pause: float = 0.1,
) -> None:
    """Publish without pause, have a fault happen, and then see who knows less than there is.

    Each listener does what a client does: for each event it fetches what has changed. After each
    fault the publishing stops, at any moment, and each listener has to come to the last state of
    everything it subscribes to.

    Args:
        setup: the bus.
        faults: what may happen to it, one at a time. Each leaves it working.
        seed: for the choice of faults, publishers and moments.
        rounds: how many faults.
        processes: how many hubs.
        pause: seconds for which there is load before and after a fault, at most.
    """
    chance = random.Random(seed)  # noqa: S311 (not a secret)
    # So many that none is soon published again, which would make good what was lost.
    names = ["tools", *(f"file:///{number}" for number in range(200))]
    world = _World(dict.fromkeys(names, 0))
    known: list[dict[str, int]] = []

    async def follow(handle: SourceHandle, fetched: dict[str, int], delay: float) -> None:
        while True:
            event = await handle.receive()
            await trio.sleep(delay)
            name = event.uri if isinstance(event, ResourceUpdated) else "tools"
            fetched[name] = world.changes[name]

    async def publish(hub: Hub) -> None:
        while True:
            world.change(chance.choice(names), hub)
            await trio.sleep(chance.uniform(0, 0.003))

    async with _open_processes(setup, processes) as opened, trio.open_nursery() as nursery:
        for process in opened:
            for delay in (0.0, 0.001):
                some = chance.sample(names[1:], 80)
                wanted = SubscriptionFilter(
                    tools_list_changed=True, resource_subscriptions=tuple(some)
                )
                known.append(dict.fromkeys(["tools", *some], 0))
                nursery.start_soon(follow, await process.listen(wanted), known[-1], delay)
        for _ in range(rounds):
            fault = chance.choice(faults)
            async with trio.open_nursery() as load:
                for process in opened:
                    load.start_soon(publish, process.hub)
                await trio.sleep(chance.uniform(0, pause))
                with trio.fail_after(_PATIENCE):
                    await fault()
                await trio.sleep(chance.choice([0.0, chance.uniform(0, pause)]))
                load.cancel_scope.cancel()
            until = trio.current_time() + _PATIENCE
            while not all(map(world.is_known_to, known)):  # noqa: ASYNC110
                if trio.current_time() > until:
                    world.explain(known, f"after {fault}")
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
