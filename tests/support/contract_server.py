"""The servers that the contract suite runs, in this process or as a program of their own.

    python tests/support/contract_server.py KIND          # serves on standard input and output

`make(KIND)` is the same server without a process. Each call makes one that shares nothing with
any other, the kind "everything" too, which is the example of that name.
"""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from mcp_trio import Context, Hub, ResourceUpdated, Server, serve_stdio
from mcp_trio.server import Limits
from mcp_trio.subscriptions.source import SubscriptionContext

EXAMPLE = Path(__file__).parents[2] / "examples" / "everything_server.py"


def make(kind: str) -> Server:
    """A fresh server of a kind that is named below."""
    return KINDS[kind]()


def everything() -> Server:
    """The example, unchanged."""
    if str(EXAMPLE.parent) not in sys.path:
        sys.path.append(str(EXAMPLE.parent))  # where its fixtures are
    spec = importlib.util.spec_from_file_location("everything_server", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server: Server = module.server
    return server


class OddError(BaseException):
    """Neither an error nor one of those that end a program."""


def more() -> Server:
    """The example, and tools that behave badly."""
    server = everything()

    @server.tool
    async def count(ctx: Context, to: int, back: bool = False) -> str:
        """Report progress up to a number; `back` tries to report less, and that again."""
        for number in range(1, to + 1):
            await ctx.report_progress(number, to)
            if back:
                await ctx.report_progress(number)
                await ctx.report_progress(number - 1)
        return "counted"

    @server.tool
    async def linger(ctx: Context, wait: bool = False) -> str:
        """Report progress, and go on with that in the background; return, or wait for ever."""
        await ctx.report_progress(1)

        async def go_on() -> None:
            with contextlib.suppress(trio.BrokenResourceError):  # the client may have left
                for number in range(2, 50):
                    await trio.sleep(0.001)
                    await ctx.report_progress(number)

        trio.lowlevel.spawn_system_task(go_on)
        if wait:
            await trio.sleep_forever()
        return "returned"

    @server.tool
    async def fail(how: str) -> str | None:
        """Fail in some way."""
        if how == "group":
            raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])
        if how == "base":
            raise OddError("not an Exception")
        if how == "none":
            return None
        if how == "set":
            return {1, 2}  # type: ignore[return-value]
        if how == "bytes":
            return b"\xff"  # type: ignore[return-value]
        raise AssertionError(how)

    @server.tool
    async def scribble() -> str:
        """Write to standard output in every way there is, and read standard input."""
        print("printed", flush=True)  # noqa: T201
        os.write(1, b"written\n")
        subprocess.run(["echo", "echoed"], check=True)  # noqa: ASYNC221, S607
        read = subprocess.run(["cat"], check=True, capture_output=True)  # noqa: ASYNC221, S607
        return f"{read.stdout.decode()!r}"

    @server.tool
    def block(seconds: float) -> str:
        """Keep a thread busy, which nothing can cancel."""
        time.sleep(seconds)
        return "blocked"

    @server.tool
    def publish_from_thread(uri: str) -> str:
        """Publish from the thread that this runs in."""
        assert server.hub is not None
        server.hub.publish_from_thread(ResourceUpdated(uri))
        return "published"

    return server


def strict() -> Server:
    """Two subscriptions at most, none to `secret:`, and a record of who takes an interest."""
    interest: list[tuple[str, bool]] = []
    hub = Hub(on_interest=lambda uri, interested: interest.append((uri, interested)))

    async def authorize(field: str, value: str | None, context: SubscriptionContext, /) -> bool:
        await trio.lowlevel.checkpoint()
        return value is None or not value.startswith("secret:")

    limits = Limits(subscriptions_per_connection=2, subscriptions_per_server=2)
    server = Server("strict", version="1", hub=hub, limits=limits, authorizer=authorize)
    _add_common_tools(server, interest)
    return server


def deaf() -> Server:
    """Nobody can subscribe."""
    server = Server("deaf", version="1")
    _add_common_tools(server, [])
    return server


def narrow() -> Server:
    """Only the list of tools is ever announced."""
    server = Server("narrow", version="1", hub=Hub(kinds={"tools"}))
    _add_common_tools(server, [])
    return server


def _add_common_tools(server: Server, interest: list[tuple[str, bool]]) -> None:
    @server.tool
    async def publish(uri: str) -> str:
        """Publish that a resource was updated."""
        server.publish(ResourceUpdated(uri))
        return "published"

    @server.tool
    async def heard_of() -> str:
        """Which URIs have found their first listener, and which have lost their last."""
        return json.dumps(interest)

    @server.tool
    async def stats() -> str:
        """Counts of this moment, as JSON."""
        return json.dumps({"subscriptions": server.open_subscriptions})


KINDS: dict[str, Callable[[], Server]] = {
    "everything": everything,
    "more": more,
    "strict": strict,
    "deaf": deaf,
    "narrow": narrow,
}


def command(kind: str) -> list[str]:
    """What starts the server as a program on standard input and output."""
    if kind == "everything":
        return [sys.executable, str(EXAMPLE), "--stdio"]
    return [sys.executable, __file__, kind]


def environment() -> dict[str, str]:
    """That of a process whose time is measured: what it runs is covered by others."""
    return {name: os.environ[name] for name in os.environ if not name.startswith("COVERAGE_")}


def main(arguments: list[Any]) -> None:
    """Serve."""
    trio.run(serve_stdio, make(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
