"""The bus on a real Redis, which is killed, restarted and cut."""

import gc
import signal
import subprocess
import warnings
from collections.abc import Iterator

import pytest
import trio
from patience import at_most
from redis_kit import RedisServer, needs_redis

from mcp_trio import Hub, ResourceUpdated, SubscriptionFilter, ToolsListChanged, errors
from mcp_trio.subscriptions.bridge import open_bridge
from mcp_trio.subscriptions.bus import Bus
from mcp_trio.subscriptions.redis import RedisBus
from mcp_trio.subscriptions.source import SourceHandle, SubscriptionContext
from mcp_trio.testing.bus_contract import CHECKS, BusCheck, BusSetup, check_nothing_is_lost

pytestmark = [
    needs_redis,
    # coredis leaves some queues unclosed where connecting fails.
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.kill()
    with warnings.catch_warnings():
        # Collected here, lest a later test is blamed for what coredis has left.
        warnings.filterwarnings("ignore", "Unclosed <MemoryObject", ResourceWarning)
        gc.collect()


class RedisSetup(BusSetup):
    """Every process with an object of its own, on one server."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server

    def bus(self) -> Bus:
        return RedisBus(self.server.url)

    async def cut(self) -> None:
        await self.cut_subscribers()
        await self.cut_publishers()

    async def cut_subscribers(self) -> None:
        await self.server.command("CLIENT", "KILL", "TYPE", "pubsub")

    async def cut_publishers(self) -> None:
        await self.server.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def stop(self) -> None:
        self.server.kill()
        await trio.lowlevel.checkpoint()

    async def start(self) -> None:
        await self.server.start()

    async def kill_and_restart(self) -> None:
        await self.stop()
        await trio.sleep(0.1)
        await self.start()


async def listen(hub: Hub, *uris: str) -> SourceHandle:
    wanted = SubscriptionFilter(tools_list_changed=True, resource_subscriptions=uris)
    return await hub.open(wanted, SubscriptionContext(1))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_redis_bus_holds_the_contract(check: BusCheck, redis: RedisServer) -> None:
    """P-14: the test kit, on a real Redis."""
    await redis.start()
    await check(RedisSetup(redis))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_nothing_is_lost(seed: int, redis: RedisServer) -> None:
    """Under load the server is killed, and connections of publishers and of subscribers are."""
    await redis.start()
    setup = RedisSetup(redis)
    await check_nothing_is_lost(
        setup,
        [setup.kill_and_restart, setup.cut_publishers, setup.cut_subscribers],
        seed=seed,
        rounds=8,
        processes=4,
    )


async def test_a_server_that_comes_later(redis: RedisServer) -> None:
    """What is published before there is a Redis arrives when there is one."""
    one, other = Hub(), Hub()
    handle = await listen(other, "file:///a")
    with trio.fail_after(at_most(20)):
        async with (
            open_bridge(one, RedisBus(redis.url), max_backoff=0.2) as bridge,
            open_bridge(other, RedisBus(redis.url), max_backoff=0.2),
        ):
            one.publish(ResourceUpdated("file:///a"))
            await trio.sleep(0.3)
            assert not bridge.statistics().connected
            assert bridge.statistics().outbox == 1
            await redis.start()
            heard = {await handle.receive(), await handle.receive()}
            await bridge.flush()
            assert bridge.statistics().outbox == 0
    assert heard == {ToolsListChanged(), ResourceUpdated("file:///a")}


async def test_an_overrun_output_buffer_is_a_gap(redis: RedisServer) -> None:
    """A process that does not read is cut off by Redis, and told everything when it comes back."""
    await redis.start()
    await redis.command("CONFIG SET client-output-buffer-limit 'pubsub 100kb 100kb 1'")
    bus = RedisBus(redis.url, channel="c")
    with trio.fail_after(at_most(20)):
        with pytest.raises(errors.BusLost):
            async with bus.connect() as connection:
                # Nobody else runs meanwhile: this process is busy, for as long as it takes.
                command = ["redis-benchmark", "-p", str(redis.port), "-n", "30000", "-P", "100"]
                command += ["-q", "publish", "c", "x" * 1000]
                subprocess.run(command, check=True, capture_output=True)  # noqa: ASYNC221
                while True:
                    await connection.receive()


async def test_a_flood_takes_few_turns(redis: RedisServer) -> None:
    """All that has come is taken at once; one message a turn would never catch up."""
    await redis.start()
    count, turns = 5000, 0
    with trio.fail_after(at_most(20)):
        async with RedisBus(redis.url, channel="c").connect() as connection:
            command = ["redis-benchmark", "-p", str(redis.port), "-n", str(count), "-P", "100"]
            command += ["-q", "publish", "c", "x" * 100]
            subprocess.run(command, check=True, capture_output=True)  # noqa: ASYNC221
            received = 0
            while received < count:
                received += len(await connection.receive())
                turns += 1
    assert received == count
    assert turns < count / 50


async def test_a_server_that_hangs_is_lost(redis: RedisServer) -> None:
    """It has the connection open, and says nothing: as behind a network that has gone."""
    await redis.start()
    assert redis.process is not None
    bus = RedisBus(redis.url, idle=0.5, stream_timeout=0.5)
    with trio.fail_after(at_most(10)):
        with pytest.raises(errors.BusLost):
            async with bus.connect() as connection:
                redis.process.send_signal(signal.SIGSTOP)
                await connection.receive()
        with pytest.raises(errors.BusLost):
            async with bus.connect():
                pass


async def test_channels_are_apart(redis: RedisServer) -> None:
    """Two servers on one Redis do not hear each other."""
    await redis.start()
    with trio.fail_after(at_most(10)):
        async with (
            RedisBus(redis.url, channel="one").connect() as one,
            RedisBus(redis.url, channel="two").connect() as two,
        ):
            await one.publish(b"for one")
            await two.publish(b"for two")
            assert list(await one.receive()) == [b"for one"]
            assert list(await two.receive()) == [b"for two"]


async def test_leaving_sends_the_rest(redis: RedisServer) -> None:
    """What was published just before the block ended reaches the others, also if cancelled."""
    await redis.start()
    one, other = Hub(), Hub()
    handle = await listen(other)
    with trio.fail_after(at_most(10)):
        async with open_bridge(other, RedisBus(redis.url)):
            await handle.receive()
            with trio.CancelScope() as scope:
                async with open_bridge(one, RedisBus(redis.url)) as bridge:
                    await bridge.wait_connected()
                    for _ in range(3):
                        one.publish(ToolsListChanged())
                    scope.cancel()
                    await trio.sleep_forever()
            assert await handle.receive() == ToolsListChanged()


def test_a_wrong_url_is_said_at_once() -> None:
    """Not when it is connected to, again and again."""
    with pytest.raises(ValueError, match="redis://"):
        RedisBus("http://127.0.0.1")
    assert "secret" not in repr(RedisBus("redis://user:secret@127.0.0.1:1"))
