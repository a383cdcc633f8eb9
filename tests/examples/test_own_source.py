"""`own_source.py`: the hand-written source, in memory and under a foreign Hypercorn."""

import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import trio

from mcp_trio import ResourceUpdated, SubscriptionFilter, open_http_client, open_memory_client
from mcp_trio.client import Client

Load = Callable[[str], ModuleType]
ROOT = Path(__file__).parents[2]


async def test_ticks_reach_the_subscriber_until_the_source_ends(
    load_example: Load, autojump_clock: trio.testing.MockClock
) -> None:
    """S-20: what the source accepts is acknowledged, and its end is a graceful one."""
    example = load_example("own_source")
    server = example.make_server(example.TickSource(interval=2.0, ticks=3))
    wanted = SubscriptionFilter(
        tools_list_changed=True, resource_subscriptions=("clock://seconds", "other://x")
    )
    async with open_memory_client(server) as client, client.listen(wanted) as changes:
        start = trio.current_time()
        assert changes.acknowledged.resource_subscriptions == ("clock://seconds",)
        assert changes.declined.tools_list_changed
        events = [change async for change in changes]
        assert events == [ResourceUpdated("clock://seconds")] * 3
        assert trio.current_time() - start == 6.0
        assert changes.end is not None
        assert changes.end.how == "graceful"


async def test_slow_readers_miss_ticks_and_build_no_queue(
    load_example: Load, autojump_clock: trio.testing.MockClock
) -> None:
    """S-25: the next pull comes after the last event was taken."""
    example = load_example("own_source")
    server = example.make_server(example.TickSource(interval=1.0))
    wanted = SubscriptionFilter(resource_subscriptions=("clock://seconds",))
    async with open_memory_client(server) as client, client.listen(wanted) as changes:
        await trio.sleep(10.5)
        for _ in range(4):
            await changes.receive()
        assert trio.current_time() < 15


async def listens(url: str) -> None:
    wanted = SubscriptionFilter(resource_subscriptions=("clock://seconds",))
    async with open_http_client(url) as client, client.listen(wanted) as changes:
        assert await changes.receive() == ResourceUpdated("clock://seconds")
        await read_clock(client)


async def read_clock(client: Client) -> None:
    (contents,) = (await client.read_resource("clock://seconds")).contents
    assert contents.mime_type == "text/plain"


async def test_a_foreign_hypercorn_can_load_the_application() -> None:
    """The command in the example's docstring works as it stands, with a page beside MCP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bind = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "hypercorn", "-k", "trio", "-b", bind]
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    [*command, "examples.own_source:app"],
                    cwd=ROOT,
                    stderr=subprocess.DEVNULL,
                    check=False,
                )
            )
            page = b""
            while b"/mcp" not in page:
                try:
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
                except OSError:
                    await trio.sleep(0.05)
                    continue
                async with stream:
                    await stream.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    while b"/mcp" not in page:
                        page += await stream.receive_some()
            await listens(f"http://{bind}/mcp")
            process.terminate()
