"""The contract of a bus, over the bus in memory."""

import pytest
import trio

from mcp_trio.subscriptions.bus import Bus
from mcp_trio.testing.bus_contract import CHECKS, BusCheck, BusSetup, check_nothing_is_lost
from mcp_trio.testing.buses import MemoryBus


class MemorySetup(BusSetup):
    """All processes share one object."""

    def __init__(self) -> None:
        self.shared = MemoryBus()

    def bus(self) -> Bus:
        return self.shared

    async def cut(self) -> None:
        self.shared.cut()
        await trio.lowlevel.checkpoint()

    async def stop(self) -> None:
        self.shared.stop()
        await trio.lowlevel.checkpoint()

    async def start(self) -> None:
        self.shared.start()
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_memory_bus_holds_the_contract(check: BusCheck, autojump_clock: object) -> None:
    """P-14: the test kit, on the bus that it comes with."""
    await check(MemorySetup())


@pytest.mark.parametrize("seed", range(8))
async def test_nothing_is_lost(seed: int, autojump_clock: object) -> None:
    """After cuts, outages and gaps every listener has had a cue for all it had not fetched."""
    setup = MemorySetup()

    async def outage() -> None:
        await setup.stop()
        await trio.sleep(0.5)
        await setup.start()

    async def lose() -> None:
        setup.shared.lose(3)
        await trio.lowlevel.checkpoint()

    async def refuse() -> None:
        setup.shared.refuse(5)
        await trio.lowlevel.checkpoint()

    await check_nothing_is_lost(setup, [setup.cut, outage, lose, refuse], seed=seed, rounds=8)
