"""Workers behind one port with a Redis between them: one is killed under load."""

import os
import random
import signal
from pathlib import Path

import pytest
import trio
from patience import at_most
from redis_kit import RedisServer, needs_redis
from workers_kit import PARENT, everybody, program

from mcp_trio import (
    ResourceUpdated,
    SubscriptionFilter,
    errors,
    open_http_client,
)

pytestmark = needs_redis


class Follower:
    """A client: it fetches after each event, and everything when its stream is new."""

    def __init__(self, port: int, paths: list[Path]) -> None:
        self.paths = {path.as_uri(): path for path in paths}
        self.known = dict.fromkeys(paths, -1)
        self.streams = 0
        self._url = f"http://127.0.0.1:{port}/mcp"

    def fetch(self, path: Path) -> None:
        self.known[path] = path.stat().st_size

    @property
    def stale(self) -> list[str]:
        """What has changed since it was fetched."""
        return [path.name for path, size in self.known.items() if path.stat().st_size != size]

    async def run(self) -> None:
        wanted = SubscriptionFilter(resource_subscriptions=tuple(self.paths))
        while True:
            try:
                async with open_http_client(self._url) as client, client.listen(wanted) as changes:
                    self.streams += 1
                    for path in self.paths.values():
                        self.fetch(path)
                    async for change in changes:
                        assert isinstance(change, ResourceUpdated)
                        self.fetch(self.paths[change.uri])
            except (OSError, errors.McpError):
                await trio.sleep(0.01)


@pytest.mark.parametrize("host", ["native", "hypercorn"])
async def test_kill_9_of_a_worker(host: str, tmp_path: Path) -> None:
    """Its clients come back and start afresh; those of the other have a cue for every change."""
    chance = random.Random(host)  # noqa: S311
    paths = [tmp_path / f"resource{number}" for number in range(50)]
    for path in paths:
        path.touch()
    redis = RedisServer()
    try:
        await redis.start()
        flags = [host, f"redis={redis.url}", f"folder={tmp_path}"]
        async with program(PARENT, "2", *flags) as server, trio.open_nursery() as nursery:
            pids = await everybody(server.port, 2)
            followers = [Follower(server.port, chance.sample(paths, 20)) for _ in range(12)]
            for follower in followers:
                nursery.start_soon(follower.run)
            with trio.fail_after(at_most(20)):
                while not all(follower.streams for follower in followers):
                    await trio.sleep(0.01)
            for victim in (0, 1):
                (tmp_path / "load").touch()
                await trio.sleep(chance.uniform(0.2, 0.5))
                os.kill(pids[victim], signal.SIGKILL)
                (tmp_path / "load").unlink()
                with trio.move_on_after(at_most(20)):
                    while any(follower.stale for follower in followers):
                        await trio.sleep(0.02)
                assert not any(follower.stale for follower in followers), victim
                pids = await everybody(server.port, 2)
            # Whoever was at neither victim has had one stream all the time; the rest came back.
            assert sum(follower.streams for follower in followers) > len(followers)
            assert sum(path.stat().st_size for path in paths) > 50
            nursery.cancel_scope.cancel()
    finally:
        redis.kill()
