"""Real worker processes and a real Redis: one of them is killed, and nobody goes deaf."""

import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from patience import at_most
from redis_kit import RedisServer, needs_redis

from mcp_trio import (
    ResourceUpdated,
    SubscriptionFilter,
    errors,
    open_http_client,
)

PROGRAM = Path(__file__).parents[1] / "support" / "bus_worker_program.py"

pytestmark = needs_redis


class Worker:
    """A worker process; another takes its place when it was killed."""

    def __init__(self, redis: RedisServer, folder: Path) -> None:
        self._command = [sys.executable, str(PROGRAM), redis.url, str(folder)]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    async def start(self, *options: str) -> None:
        process = subprocess.Popen(  # noqa: ASYNC220
            [*self._command, *options], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        self._process = process
        assert process.stdout is not None
        with trio.fail_after(at_most(20)):
            line = await trio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)
        self.url = line.decode().strip() + "/mcp"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@asynccontextmanager
async def open_workers(redis: RedisServer, folder: Path, count: int) -> AsyncIterator[list[Worker]]:
    workers = [Worker(redis, folder) for _ in range(count)]
    try:
        await redis.start()
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(worker.start)
        yield workers
    finally:
        for worker in workers:
            worker.kill()
        redis.kill()


async def follow(worker: Worker, paths: list[Path], known: dict[Path, int]) -> None:
    """What a client does: fetch after each event, and everything when the stream is new."""
    by_uri = {path.as_uri(): path for path in paths}
    wanted = SubscriptionFilter(resource_subscriptions=tuple(by_uri))
    while True:
        try:
            async with open_http_client(worker.url) as client, client.listen(wanted) as changes:
                for path in paths:
                    known[path] = path.stat().st_size
                async for change in changes:
                    if isinstance(change, ResourceUpdated):
                        path = by_uri[change.uri]
                        known[path] = path.stat().st_size
        except (OSError, errors.McpError):
            await trio.sleep(0.05)  # its worker is not there; the next one has another port


@pytest.mark.parametrize("seed", [1, 2])
async def test_kill_9(seed: int, tmp_path: Path) -> None:
    """Under load a worker is killed, and Redis is: every listener hears of every change.

    Also of those that a worker had made, and had not yet told anybody when it was killed.
    """
    chance = random.Random(seed)  # noqa: S311
    paths = [tmp_path / f"resource{number}" for number in range(150)]
    for path in paths:
        path.touch()
    known: list[dict[Path, int]] = []
    redis = RedisServer()
    async with (
        open_workers(redis, tmp_path, 2) as workers,
        trio.open_nursery() as nursery,
    ):
        for worker in workers:
            for _ in range(2):
                some = chance.sample(paths, 70)
                known.append(dict.fromkeys(some, -1))
                nursery.start_soon(follow, worker, some, known[-1])
        for fault in ["worker", "redis", "both"]:
            (tmp_path / "load").touch()
            await trio.sleep(chance.uniform(0.2, 0.5))
            victim = chance.choice(workers)
            if fault != "worker":
                redis.kill()
            if fault != "redis":
                victim.kill()
            (tmp_path / "load").unlink()
            if fault != "worker":
                await redis.start()
            if fault != "redis":
                await victim.start("--after-crash")
            with trio.move_on_after(at_most(10)):
                while any(path.stat().st_size != at for one in known for path, at in one.items()):
                    await trio.sleep(0.02)
            for index, one in enumerate(known):
                stale = [path.name for path, at in one.items() if path.stat().st_size != at]
                assert not stale, f"{fault}: listener {index} has no cue for {stale}"
        assert sum(path.stat().st_size for path in paths) > 100
        nursery.cancel_scope.cancel()
