"""What the tests of many processes share: clients that hold many streams, and processes to end."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from http_kit import LISTEN, Peer, connect, post

SUPPORT = Path(__file__).parent
PROGRAM = str(SUPPORT / "worker_program.py")
PARENT = str(SUPPORT / "workers_parent.py")


async def call(peer: Peer, name: str, **arguments: Any) -> str:
    """Call a tool; the text of its result."""
    response = await peer.request(post("tools/call", name=name, arguments=arguments))
    assert response.status == 200, response
    result = response.json()["result"]
    assert not result.get("isError"), result
    text: str = result["content"][0]["text"]
    return text


async def who(peer: Peer) -> tuple[int, int, int]:
    """Number and process of the worker that serves a connection, and who listens there."""
    number, pid, listening = json.loads(await call(peer, "who"))
    return number, pid, listening


async def ask_who(port: int) -> tuple[int, int, int]:
    """`who` on a connection of its own."""
    async with connect(port) as peer:
        return await who(peer)


async def everybody(port: int, count: int) -> dict[int, int]:
    """The process of each worker, once as many have answered."""
    found: dict[int, int] = {}
    while len(found) < count:
        number, pid, _ = await ask_who(port)
        found[number] = pid
    return found


@attrs.define(eq=False)
class Listener:
    """One stream of a client.

    Attributes:
        end: the reason in its result, once that has come; "lost" if the connection ended first.
        events: how many events it has had.
    """

    peer: Peer
    end: str | None = None
    retry_after_ms: int | None = None
    events: int = 0

    async def open(self, **wanted: Any) -> None:
        """Listen, and wait for the acknowledgement."""
        await self.peer.stream.send_all(post(LISTEN, notifications=wanted))
        assert (await self.peer.head()).status == 200
        await self.peer.event()

    async def read(self) -> None:
        """Read to the end."""
        try:
            while self.end is None:
                message = await self.peer.event()
                if message is None:
                    continue
                if "result" in message:
                    end = message["result"]["_meta"]["org.mcp-trio/end"]
                    self.end, self.retry_after_ms = end["reason"], end.get("retryAfterMs")
                else:
                    self.events += 1
            assert await self.peer.read_chunk() == b""
        except EOFError:
            self.end = self.end or "lost"


@asynccontextmanager
async def listeners(
    port: int, count: int, *, receive_buffer: int | None = None, **wanted: Any
) -> AsyncIterator[list[Listener]]:
    """Open many streams; nobody reads them yet."""
    with contextlib.ExitStack() as stack:
        opened: list[Listener] = []

        async def open_some() -> None:
            while len(opened) < count:
                sock = stack.enter_context(trio.socket.socket())
                listener = Listener(Peer(trio.SocketStream(sock)))
                opened.append(listener)
                if receive_buffer is not None:
                    sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
                await sock.connect(("127.0.0.1", port))
                await listener.open(**wanted)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(open_some)
        yield opened


@attrs.frozen
class Program:
    """A server that is a process of its own, with or without workers."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: list[str]

    async def until_logged(self, text: str) -> str:
        """Wait for a line of its log, and return it."""
        while True:
            for line in self.log:
                if text in line:
                    return line
            assert self.process.poll() is None, self.log
            await trio.sleep(0.01)

    async def gone_after(self) -> float:
        """Wait until it has ended; how many seconds that took."""
        begun = trio.current_time()
        while self.process.poll() is None:
            await trio.sleep(0.005)
        return trio.current_time() - begun


@asynccontextmanager
async def program(*command: str) -> AsyncIterator[Program]:
    """Run a server that says where it serves; afterwards it is gone, with all its workers."""
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, *command],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    )
    assert process.stderr is not None
    log: list[str] = []
    workers: set[int] = set()
    try:
        async with trio.open_nursery() as nursery:
            stream = trio.lowlevel.FdStream(os.dup(process.stderr.fileno()))
            nursery.start_soon(_keep_log, stream, log)
            while not (said := [line for line in log if line.startswith("serving http")]):
                assert process.poll() is None, log
                await trio.sleep(0.01)
            port = int(said[0].removesuffix("/mcp").rpartition(":")[2])
            workers = children_of(process.pid)
            yield Program(process, port, log)
            nursery.cancel_scope.cancel()
    finally:
        workers |= children_of(process.pid)
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()
        for pid in workers:
            _kill_worker(pid)


def _kill_worker(pid: int) -> None:
    """Kill a worker that is left, unless something else has its number by now."""
    with contextlib.suppress(OSError):
        if b"worker_program" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


async def _keep_log(stream: trio.abc.ReceiveStream, log: list[str]) -> None:
    rest = b""
    async with stream:
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            log += [line.decode() for line in lines]


def children_of(pid: int) -> set[int]:
    """The child processes of a process; none if it has ended."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return {int(each) for task in tasks for each in (task / "children").read_text().split()}
    except OSError:
        return set()


def is_there(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
