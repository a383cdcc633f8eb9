"""Real processes: signals with a hundred listeners, and Hypercorn's own command line."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from http_kit import Peer, post

SUPPORT = Path(__file__).parents[1] / "support"

SERVER = """
import sys
import trio
import http_kit
from http_kit import FakeHandler, note

class Flooding(FakeHandler):
    async def handle(self, request, exchange):
        if request.method == "tools/list":
            for _ in range(100):
                self.publish(note("n", padding="x" * 60_000))
        return await super().handle(request, exchange)

async def main():
    http_kit.host = sys.argv[1]
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(http_kit.serving(None, handle_signals=True), Flooding())
        print(urls[0].rpartition(":")[2], flush=True)

trio.run(main)
"""

APP = """
from http_kit import FakeHandler
from mcp_trio.http.asgi import asgi_app
app = asgi_app(FakeHandler())
"""


@contextlib.contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a session of its own; afterwards it is gone, whatever happened."""
    paths = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(10)
        assert running.stdout is not None
        running.stdout.close()


@contextlib.contextmanager
def server(host: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with process(sys.executable, "-c", SERVER, host) as running:
        assert running.stdout is not None
        yield running, int(running.stdout.readline())


@asynccontextmanager
async def connect(port: int, receive_buffer: int | None = None) -> AsyncIterator[Peer]:
    sock = trio.socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    with sock:
        await sock.connect(("127.0.0.1", port))
        yield Peer(trio.SocketStream(sock))


async def read_to_the_end(peer: Peer, ended: list[object]) -> None:
    """Read a stream until its result has come and the connection is closed."""
    message = await peer.event()
    while "result" not in message:
        message = await peer.event()
    assert await peer.read_chunk() == b""
    assert await peer.eof() == b""
    ended.append(message["id"])


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_gives_every_listener_its_result(host: str, signum: signal.Signals) -> None:
    """W32: a hundred of them, and the process is gone within two seconds."""
    ended: list[object] = []
    with trio.fail_after(30), server(host) as (running, port):
        async with contextlib.AsyncExitStack() as stack, trio.open_nursery() as nursery:
            for number in range(100):
                peer = await stack.enter_async_context(connect(port))
                await peer.listen(number)
                nursery.start_soon(read_to_the_end, peer, ended)
            begun = time.monotonic()
            running.send_signal(signum)
            assert await trio.to_thread.run_sync(running.wait, 10) == 0
            assert time.monotonic() - begun < 2
    assert sorted(ended, key=repr) == sorted(range(100), key=repr)


async def test_clients_that_have_stopped_reading_delay_the_end_but_not_for_long(host: str) -> None:
    """W31: the others get their results, and the process is gone within five seconds."""
    ended: list[object] = []
    with trio.fail_after(30), server(host) as (running, port):
        async with contextlib.AsyncExitStack() as stack, trio.open_nursery() as nursery:
            for _ in range(5):
                await (await stack.enter_async_context(connect(port, 4096))).listen("stalled")
            async with connect(port) as caller:
                assert (await caller.request(post("tools/list"))).status == 200
            for number in range(95):
                peer = await stack.enter_async_context(connect(port))
                await peer.listen(number)
                nursery.start_soon(read_to_the_end, peer, ended)
            begun = time.monotonic()
            running.send_signal(signal.SIGTERM)
            assert await trio.to_thread.run_sync(running.wait, 10) == 0
            assert time.monotonic() - begun < 5
    assert len(ended) == 95


async def test_a_second_signal_cuts_the_drain_short(host: str) -> None:
    with trio.fail_after(30), server(host) as (running, port):
        async with connect(port) as busy:
            await busy.stream.send_all(post("tools/call", name="slow", arguments={"seconds": 60}))
            await trio.sleep(0.2)
            begun = time.monotonic()
            running.send_signal(signal.SIGTERM)
            await trio.sleep(0.2)
            running.send_signal(signal.SIGTERM)
            assert await trio.to_thread.run_sync(running.wait, 10) == 0
            assert time.monotonic() - begun < 1.5


async def test_hypercorns_command_line_serves_the_application(tmp_path: Path) -> None:
    """Good enough for development: requests, streams, disconnects, and an end with a result."""
    (tmp_path / "module.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    bind = f"127.0.0.1:{port}"
    where = f"{tmp_path / 'module'}:app"
    command = (
        sys.executable,
        "-m",
        "hypercorn",
        "-k",
        "trio",
        "--graceful-timeout",
        "1",
        "-b",
        bind,
        where,
    )
    with trio.fail_after(30), process(*command) as running:
        await _until_it_listens(running, port)
        async with connect(port) as peer, connect(port) as leaving:
            assert (await peer.request(post("tools/list"))).status == 200
            await leaving.listen()
            await peer.listen(2)
            leaving.stream.socket.close()
            running.send_signal(signal.SIGTERM)
            assert (await peer.event())["id"] == 2
            assert await peer.read_chunk() == b""
        await trio.to_thread.run_sync(running.wait, 10)


async def _until_it_listens(running: subprocess.Popen[bytes], port: int) -> None:
    while running.poll() is None:
        with contextlib.suppress(OSError):
            async with connect(port):
                return
        await trio.sleep(0.05)
