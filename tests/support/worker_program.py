"""A worker for the tests of `mcp_trio.workers`: one server, on either host, with odd habits.

    python tests/support/worker_program.py native|hypercorn [FLAG…]

Flags: ``never-ready`` sleeps, ``exits`` ends at once, ``dies-later`` is killed soon after it is
ready, ``ignores`` does not stop, ``child`` starts a helper that outlives it, ``redis=URL``
bridges its hub, and ``folder=PATH`` changes files there and publishes that, while there is one
that is called ``load``.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio
from hypercorn.config import Config

from mcp_trio import (
    Hub,
    ResourceUpdated,
    Server,
    ToolsListChanged,
    serve_http,
    serve_hypercorn,
)
from mcp_trio.server import Limits
from mcp_trio.workers import Worker, inherited_worker

MANY = 5000


def make(number: int) -> tuple[Server, Hub]:
    """The server of one worker."""
    limits = Limits(
        subscriptions_per_connection=MANY,
        subscriptions_per_server=MANY,
        subscriptions_per_principal=MANY,
    )
    hub = Hub()
    server = Server("worker", version="1.0", hub=hub, limits=limits)

    @server.tool
    async def who() -> str:
        """Which worker this is, and which process; and how many listen to it."""
        return json.dumps([number, os.getpid(), server.open_subscriptions])

    @server.tool
    async def publish(uri: str, count: int = 1) -> str:
        """Publish updates: of the URI, or with a count of many that begin with it."""
        for each in [uri] if count == 1 else [f"{uri}{index}" for index in range(count)]:
            hub.publish(ResourceUpdated(each))
        hub.publish(ToolsListChanged())
        return "published"

    @server.tool
    async def crash() -> str:
        """Be gone."""
        os.kill(os.getpid(), signal.SIGKILL)
        return "gone"

    @server.tool
    async def slow(seconds: float) -> str:
        """Take so long."""
        await trio.sleep(seconds)
        return f"slept {seconds} s"

    return server, hub


async def serve(server: Server, worker: Worker, host: str) -> None:
    """Serve until told to stop."""
    run: Callable[..., Awaitable[None]] = partial(serve_http, server)
    if host == "hypercorn":
        run = partial(serve_hypercorn, server, Config())
    await run(
        listeners=worker.listeners,
        shutdown_trigger=worker.wait_stop,
        handle_signals=True,
        task_status=worker,
    )


async def main(host: str, flags: list[str]) -> None:
    """Serve as the flags say."""
    with inherited_worker() as worker:
        if "child" in flags:
            helper = "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"
            child = subprocess.Popen([sys.executable, "-c", helper])  # noqa: ASYNC220
            sys.stderr.write(f"helper {child.pid}\n")
        if "never-ready" in flags:
            await trio.sleep_forever()
        if "exits" in flags:
            sys.exit(7)
        if "ignores" in flags:
            worker.started()
            with trio.open_signal_receiver(signal.SIGTERM):
                await trio.sleep_forever()
        server, hub = make(worker.number)
        async with contextlib.AsyncExitStack() as stack, trio.open_nursery() as nursery:
            if "dies-later" in flags:
                nursery.start_soon(die)
            for flag in flags:
                what, _, value = flag.partition("=")
                if what == "redis":
                    from mcp_trio.subscriptions.bridge import open_bridge
                    from mcp_trio.subscriptions.redis import RedisBus

                    after_crash = worker.after_crash
                    bridging = open_bridge(hub, RedisBus(value), after_crash=after_crash)
                    await (await stack.enter_async_context(bridging)).wait_connected()
                elif what == "folder":
                    folder = Path(value)
                    names = list(folder.glob("resource*"))  # noqa: ASYNC240
                    nursery.start_soon(load, hub, names, folder / "load")
            await serve(server, worker, host)
            nursery.cancel_scope.cancel()


def change(path: Path) -> None:
    """Add a byte."""
    with path.open("ab") as file:
        file.write(b".")


async def load(hub: Hub, names: list[Path], wanted: Path) -> None:
    """Change files, and publish what has changed. A file has changed as often as it has bytes."""
    while True:
        if wanted.exists():  # noqa: ASYNC240
            path = random.choice(names)  # noqa: S311
            change(path)
            hub.publish(ResourceUpdated(path.as_uri()))
        await trio.sleep(0.002)


async def die() -> None:
    """Be gone soon."""
    await trio.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2:])
