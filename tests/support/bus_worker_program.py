"""One of several workers: a server over HTTP, and a bridge to the others over Redis.

    python bus_worker_program.py REDIS_URL FOLDER [--after-crash]

A resource is a file in the folder, and has changed as often as it has bytes. As long as there is a
file called ``load``, the worker changes one after the other and publishes what it has changed. On
its standard output it says where it serves, and nothing else.
"""

import os
import random
import sys
from pathlib import Path

import trio

from mcp_trio import Hub, ResourceUpdated, Server, serve_http
from mcp_trio.subscriptions.bridge import open_bridge
from mcp_trio.subscriptions.redis import RedisBus


def change(path: Path) -> None:
    """One byte more; also between processes no change is lost."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b".")
    os.close(fd)


def is_wanted(folder: Path) -> bool:
    return (folder / "load").exists()


async def load(hub: Hub, folder: Path, names: list[Path]) -> None:
    while True:
        if is_wanted(folder):
            path = random.choice(names)  # noqa: S311
            change(path)
            # Where a process is killed just here, nobody has been told, and nobody could be.
            hub.publish(ResourceUpdated(path.as_uri()))
        await trio.sleep(0.002)


async def main(url: str, folder: Path, names: list[Path]) -> None:
    hub = Hub()
    server = Server("worker", version="1", hub=hub)
    async with (
        open_bridge(
            hub, RedisBus(url), after_crash="--after-crash" in sys.argv, max_backoff=0.5
        ) as bridge,
        trio.open_nursery() as nursery,
    ):
        await bridge.wait_connected()
        nursery.start_soon(load, hub, folder, names)
        urls = await nursery.start(serve_http, server, "127.0.0.1", 0)
        sys.stdout.write(f"{urls[0]}\n")
        sys.stdout.flush()


FOLDER = Path(sys.argv[2])
trio.run(main, sys.argv[1], FOLDER, sorted(FOLDER.glob("resource*")))
