"""A server with one of everything, for tests, benchmarks and first contact with a client.

    python examples/everything_server.py --stdio
    python examples/everything_server.py --http 127.0.0.1:8000         # the endpoint is /mcp
    python examples/everything_server.py --hypercorn 127.0.0.1:8000    # the same on Hypercorn

Its limits are high: tens of thousands of clients may listen at once.
"""

import argparse
import json
import resource
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

import everything_fixtures
import trio
from hypercorn.config import Config

from mcp_trio import Hub, ResourceUpdated, Server, serve_http, serve_hypercorn, serve_stdio
from mcp_trio.server import Limits

MANY = 30_000

hub = Hub()
server = Server(
    "everything",
    version="1.0",
    instructions="Call a tool and see what becomes of it.",
    hub=hub,
    limits=Limits(
        subscriptions_per_connection=MANY,
        subscriptions_per_server=MANY,
        subscriptions_per_principal=MANY,
    ),
)
cancelled_calls = 0


# First, for the suite begins with the first tool.
everything_fixtures.register(server)


@server.resource("note://a")
async def note() -> str:
    """A note to follow: publish it and read it again."""
    return "This is note a."


@server.resource("test://cancelled")
async def cancelled() -> str:
    """How many calls of `slow` were cancelled so far."""
    return str(cancelled_calls)


@server.tool
async def echo(text: str) -> str:
    """Say it back."""
    return text


@server.tool
async def publish(uri: str, count: int = 1) -> str:
    """Publish that a resource was updated; with a count, the resources uri0, uri1 and so on."""
    for each in [uri] if count == 1 else [f"{uri}{number}" for number in range(count)]:
        hub.publish(ResourceUpdated(each))
    return f"published {count}"


@server.tool
async def slow(seconds: float) -> str:
    """Wait, and count the calls that were cancelled meanwhile."""
    global cancelled_calls
    try:
        await trio.sleep(seconds)
    except trio.Cancelled:
        cancelled_calls += 1
        raise
    return f"slept {seconds} s"


@server.tool
async def big(bytes: int) -> str:
    """A text of so many bytes."""
    return "x" * bytes


@server.tool
async def touch_tools() -> str:
    """Change the list of tools: add one, or take it away again."""
    try:
        server.remove_tool("touched")
    except LookupError:
        server.add_tool(touched)
    return "the list of tools has changed"


async def touched() -> str:
    """Be here at the moment."""
    return "touched"


@server.tool
async def boom() -> str:
    """Fail."""
    raise RuntimeError("boom")


@server.tool
async def unencodable(kind: Literal["surrogate", "nan"] = "surrogate") -> object:
    """Return what JSON cannot hold: a lone surrogate in a text, or NaN in structured content."""
    return "a lone surrogate: \udcaf" if kind == "surrogate" else {"value": float("nan")}


@server.tool
async def hang_up() -> str:
    """End every open subscription with its result."""
    return f"ended {server.end_subscriptions()} subscriptions"


@server.tool
async def noisy() -> str:
    """Print to standard output, where a protocol may be spoken."""
    print("this must not reach the protocol", flush=True)
    return "printed"


@server.tool
async def stats() -> str:
    """Counts of this moment, as JSON."""
    now = server.statistics()
    return json.dumps({"subscriptions": now.subscriptions, "requests": now.requests})


async def serve(bind: str, *, natively: bool, default_gc: bool) -> None:
    """Serve over HTTP until SIGTERM or SIGINT, and say where on standard error."""
    start: Callable[..., Awaitable[None]]
    if natively:
        host, _, port = bind.rpartition(":")
        start = partial(serve_http, server, host.strip("[]"), int(port), max_connections=MANY)
    else:
        config = Config()
        config.bind = [bind]
        start = partial(serve_hypercorn, server, config)
    # With thousands of open streams the default thresholds cost throughput.
    thresholds = None if default_gc else (20_000, 20, 100)
    start = partial(start, handle_signals=True, gc_thresholds=thresholds)
    async with trio.open_nursery() as nursery:
        for url in await nursery.start(start):
            print(f"serving {url}/mcp", file=sys.stderr, flush=True)


def raise_file_limit() -> None:
    """Have as many sockets as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--stdio", action="store_true", help="serve one client on stdio")
    how.add_argument("--http", metavar="HOST:PORT", help="serve over HTTP, at /mcp")
    how.add_argument("--hypercorn", metavar="HOST:PORT", help="the same on Hypercorn")
    parser.add_argument(
        "--default-gc", action="store_true", help="leave the garbage collector as it is"
    )
    arguments = parser.parse_args()
    if arguments.stdio:
        trio.run(serve_stdio, server)
    else:
        raise_file_limit()
        trio.run(
            partial(
                serve,
                arguments.http or arguments.hypercorn,
                natively=arguments.http is not None,
                default_gc=arguments.default_gc,
            )
        )
