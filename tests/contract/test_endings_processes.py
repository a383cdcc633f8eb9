"""How a server process ends: in time, and with a last word to everybody who listens.

The limits in seconds are promises about real processes, so real time is measured here.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import contract_server
import pytest
import trio
from patience import in_time
from wire_http import HttpExchange, HttpWire
from wire_kit import (
    PATIENCE,
    Children,
    Ended,
    Frame,
    Open,
    StdioWire,
    call,
    cancelled,
    destroy,
    end_of,
    open_stdio,
    text_of,
)

from mcp_trio import (
    SubscriptionEnd,
    SubscriptionFilter,
    ToolsListChanged,
    open_http_client,
    open_stdio_client,
)

by_http = pytest.mark.parametrize("host", ["--hypercorn", "--http"])
WANTED = SubscriptionFilter(tools_list_changed=True)
LONG = "x:" + "a" * 8000


@attrs.frozen
class HttpProcess:
    """The example as a process behind an address."""

    process: "subprocess.Popen[bytes]"
    port: int

    @asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[HttpWire]:
        """A client of it."""
        client = HttpWire(self.port, **options)
        with contextlib.closing(client):
            yield client

    async def gone_after(self) -> float:
        """Wait until the process has ended, with status 0; how many seconds that took."""
        begun = time.monotonic()
        with trio.move_on_after(PATIENCE):
            while self.process.poll() is None:
                await trio.sleep(0.005)
        assert self.process.returncode == 0
        return time.monotonic() - begun


@asynccontextmanager
async def http_process(how: str) -> AsyncIterator[HttpProcess]:
    """Start the example on a port of its own."""
    command = [sys.executable, str(contract_server.EXAMPLE), how, "127.0.0.1:0"]
    environment = contract_server.environment()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)  # noqa: ASYNC220
    try:
        assert process.stderr is not None
        said = await trio.to_thread.run_sync(process.stderr.readline)
        assert said.startswith(b"serving http://127.0.0.1:"), said
        yield HttpProcess(process, int(said.removesuffix(b"/mcp\n").rpartition(b":")[2]))
    finally:
        destroy(process)


async def read_its_end(stream: HttpExchange, ends: list[tuple[Any, str]]) -> None:
    """Read a stream that gets its result, and then the end of its connection."""
    [result] = await stream.rest()
    ends.append(end_of(result))


@by_http
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_hundred_subscriptions_get_their_result(host: str, signum: signal.Signals) -> None:
    """W32, S-81, S-86: each of them, and the process is gone within two seconds."""

    async def attempt() -> float:
        ends: list[tuple[Any, str]] = []
        async with (
            http_process(host) as server,
            server.connect() as client,
            trio.open_nursery() as nursery,
        ):
            for number in range(100):
                stream = await client.listen(number, toolsListChanged=True)
                assert isinstance(stream, HttpExchange)
                nursery.start_soon(read_its_end, stream, ends)
            server.process.send_signal(signum)
            took = await server.gone_after()
        assert sorted(ends) == [(number, "shutdown") for number in range(100)]
        return took

    await in_time(2, attempt)


@by_http
async def test_clients_that_have_stopped_reading_keep_no_server(host: str) -> None:
    """W20, W31: nor does a call that takes too long; the others are told, all within 5 seconds."""

    async def attempt() -> float:
        ends: list[tuple[Any, str]] = []
        async with (
            http_process(host) as server,
            server.connect(receive_buffer=4096) as stalled,
            server.connect() as client,
        ):
            uris = [f"{LONG}{number}" for number in range(50)]
            for number in range(10):
                await stalled.listen(number, resourceSubscriptions=uris)
            async with trio.open_nursery() as nursery:
                for number in range(90):
                    stream = await client.listen(number, toolsListChanged=True)
                    assert isinstance(stream, HttpExchange)
                    nursery.start_soon(read_its_end, stream, ends)
                for _ in range(20):
                    await client.call("publish", uri=LONG, count=50)
                slow = await client.start(call("slow", "slow", seconds=60))
                await client.call("echo", text="x")
                server.process.terminate()
                took = await server.gone_after()
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await slow.next()
        assert sorted(ends) == [(number, "shutdown") for number in range(90)]
        return took

    await in_time(5, attempt)


@by_http
async def test_requests_that_are_nearly_done_are_answered(host: str) -> None:
    """W27, W32: stopping lets them finish; idle connections are closed, and none is accepted."""
    async with http_process(host) as server, server.connect() as client:
        slow = await client.start(call(1, "slow", seconds=0.5))
        late = await client.connect()
        await client.call("echo", text="x")
        server.process.terminate()
        assert text_of(await slow.next()) == "slept 0.5 s"
        assert not await late.stream.receive_some()
        with pytest.raises(OSError, match="refused"):
            await client.connect()
        await server.gone_after()


# Standard input and output


@pytest.fixture
def connect_once(children: Children) -> Open:
    """A process that is of no use afterwards."""
    return partial(open_stdio, children, keep=False)


async def end(client: StdioWire, how: str) -> None:
    """Have it end."""
    if how == "EOF":
        await client.end()
        # What holds the same pipe open in this process has to go as well.
        assert client.process.stdin is not None
        client.process.stdin.close()
    else:
        client.process.send_signal(getattr(signal, how))


@pytest.mark.parametrize("reading", [True, False], ids=["reading", "stalled"])
@pytest.mark.parametrize("how", ["EOF", "SIGINT", "SIGTERM"])
async def test_a_process_on_stdio_ends(connect_once: Open, how: str, reading: bool) -> None:
    """W26, W31, W32, S-84: within a second, with a subscription and a slow call open.

    A signal gives the subscription its result, then `notifications/cancelled`; the end of
    input means that nobody is there to be told.
    """

    async def attempt() -> float:
        async with connect_once() as client:
            assert isinstance(client, StdioWire)
            stream = await client.listen(1, toolsListChanged=True)
            slow = await client.start(call(2, "slow", seconds=60))
            await client.call("echo", text="x")
            if not reading:
                client.stop_reading()
                await client.start(call(3, "big", bytes=1_000_000))
                await trio.sleep(0.05)
            await end(client, how)
            took = await client.gone_after()
            if not reading:
                return took  # what is in the pipe may end in the middle of a message
            await client.until_ended()
            client.check()
            with pytest.raises(Ended):
                await slow.next()
            if how != "EOF":
                assert end_of(await stream.next()) == (1, "shutdown")
                assert await stream.next() == cancelled(1)
            with pytest.raises(Ended):
                await stream.next()
            return took

    await in_time(1, attempt)


async def test_an_output_that_nobody_reads_any_more_ends_the_process(connect_once: Open) -> None:
    """W26: although its input is still open."""

    async def attempt() -> float:
        async with connect_once() as client:
            assert isinstance(client, StdioWire)
            await client.listen(1, toolsListChanged=True)
            await client.start(call(2, "slow", seconds=60))
            assert client.process.stdout is not None
            client.process.stdout.close()
            client.stop_reading()
            await trio.aclose_forcefully(client._wire._receive_stream)
            await client.send(call(3, "touch_tools"))
            return await client.gone_after()

    await in_time(1, attempt)


async def test_a_process_without_any_input_ends() -> None:
    """W26: standard input is empty, or not even open for long."""
    command = contract_server.command("everything")
    begun = time.monotonic()
    done = await trio.run_process(
        command, stdin=subprocess.DEVNULL, capture_stdout=True, capture_stderr=True
    )
    assert (done.stdout, done.returncode) == (b"", 0)
    assert time.monotonic() - begun < PATIENCE  # most of it is the start of an interpreter


# Seen from our own client


def children_of_this_process() -> set[int]:
    """The ids of the child processes that there are."""
    threads = Path("/proc/self/task").iterdir()
    return {int(pid) for t in threads for pid in (t / "children").read_text().split()}


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "SIGKILL", "hang_up"])
@pytest.mark.parametrize("transport", ["stdio", "--hypercorn", "--http"])
async def test_what_the_client_makes_of_it(transport: str, how: str) -> None:
    """W17, W32, C-25: after what came before; graceful with its reason, or lost at once."""
    async with contextlib.AsyncExitStack() as stack:
        if transport != "stdio":
            server = await stack.enter_async_context(http_process(transport))
            pid = server.process.pid
            opened = open_http_client(f"http://127.0.0.1:{server.port}/mcp")
            client = await stack.enter_async_context(opened)
        else:
            before = children_of_this_process()
            opened = open_stdio_client(contract_server.command("everything"))
            client = await stack.enter_async_context(opened)
            [pid] = children_of_this_process() - before
        heard: list[object] = []
        async with client.listen(WANTED) as changes:
            await client.call_tool("touch_tools")
            heard.append(await changes.receive())
            if how == "hang_up":
                await client.call_tool("hang_up")
            else:
                os.kill(pid, getattr(signal, how))
            with trio.fail_after(PATIENCE):
                try:
                    async for change in changes:
                        heard.append(change)
                except trio.BrokenResourceError as lost:
                    heard.append(type(lost).__name__)
        reasons: Frame = {"SIGTERM": "shutdown", "SIGINT": "shutdown", "hang_up": "complete"}
        assert heard[0] == ToolsListChanged()
        if how in reasons:
            assert changes.end == SubscriptionEnd("graceful", reasons[how])
            assert heard[1:] == []
        else:
            assert changes.end is not None
            assert changes.end.how == "lost"
            assert heard[1:] == ["SubscriptionLost"]
            if transport == "stdio":
                assert "SIGKILL" in str(changes.end.reason)
