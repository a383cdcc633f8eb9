"""Four workers on one port, with Redis between them.

    redis-server --port 6379 &
    python examples/cluster.py 127.0.0.1:8000 --redis redis://127.0.0.1:6379   # at /mcp

    python examples/follow.py http://127.0.0.1:8000/mcp                        # somewhere else

This program is both: started by hand it is the parent, which keeps four workers running, each
of them this program again with `--worker`. There is one note. All workers share it, so it is kept
in Redis. A call of `write` is served by one of the four, and everybody who follows the note hears
of the change, through the bus, whichever worker serves them.

Stop it with Ctrl-C or SIGTERM: each stream ends with its result. SIGHUP replaces the workers one
by one. Kill a worker, and another takes its place; the clients of the others notice nothing.
"""

import argparse
import sys
from functools import partial

import coredis
import trio

from mcp_trio import Hub, ResourceUpdated, Server, serve_http
from mcp_trio.subscriptions.bridge import open_bridge
from mcp_trio.subscriptions.redis import RedisBus
from mcp_trio.workers import inherited_worker, serve_workers

NOTE = "note://board"
GC = (20_000, 20, 100)
DRAIN = 2.0


def make_server(number: int, hub: Hub, redis: coredis.Redis[str]) -> Server:
    """The server of one worker."""
    server = Server("cluster", version="1.0", hub=hub)

    @server.tool
    async def write(text: str) -> str:
        """Change the note, and tell everybody who follows it."""
        await redis.set(NOTE, text)
        hub.publish(ResourceUpdated(NOTE))
        return f"written by worker {number}"

    @server.resource(NOTE)
    async def note() -> str:
        """The note; whichever worker is asked, it is the same."""
        return await redis.get(NOTE) or ""

    return server


async def work(redis_url: str) -> None:
    """Be a worker: serve what the parent has left to us, until it says stop or is gone."""
    hub = Hub()
    with inherited_worker() as worker:
        async with (
            coredis.Redis.from_url(redis_url, decode_responses=True) as redis,
            open_bridge(hub, RedisBus(redis_url), after_crash=worker.after_crash),
        ):
            await serve_http(
                make_server(worker.number, hub, redis),
                listeners=worker.listeners,
                shutdown_trigger=worker.wait_stop,
                handle_signals=True,
                drain_grace=DRAIN,
                gc_thresholds=GC,
                task_status=worker,
            )


async def lead(bind: str, redis_url: str, workers: int) -> None:
    """Be the parent: keep the workers running until SIGTERM or SIGINT, and say where they are."""
    host, _, port = bind.rpartition(":")
    command = [sys.executable, __file__, "--worker", "--redis", redis_url]
    async with trio.open_nursery() as nursery:
        serve = partial(serve_workers, workers=workers, handle_signals=True, drain_grace=DRAIN)
        for url in await nursery.start(serve, command, host.strip("[]"), int(port)):
            print(f"serving {url}/mcp", file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bind", metavar="HOST:PORT", nargs="?", default="127.0.0.1:8000")
    parser.add_argument("--redis", metavar="URL", default="redis://127.0.0.1:6379")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        trio.run(work, arguments.redis)
    else:
        trio.run(lead, arguments.bind, arguments.redis, arguments.workers)
