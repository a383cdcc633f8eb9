"""A server over standard input and output: real processes, pipes, sockets, files, terminals."""

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import patience
import pytest
import trio

from mcp_trio import codec, errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.testing import Wire, request
from mcp_trio.transports import _standard_streams as standard_streams
from mcp_trio.transports import abc
from mcp_trio.transports.stdio import serve_stdio

PROGRAM = [sys.executable, str(Path(__file__).with_name("stdio_server_program.py"))]
START = 10
"""Seconds for an interpreter to start on a busy machine."""


class Running(Wire):
    """A server process, with messages written by hand."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        super().__init__(process.stdout, process.stdin)
        self.process = process

    async def ask(self, request_id: int, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return the next message."""
        await self.send(request(request_id, method, params))
        with trio.fail_after(START):
            return await self.receive()

    async def gone_within(self, seconds: float) -> None:
        """Wait for the process to exit with status 0."""
        start = time.monotonic()
        with trio.fail_after(START):
            status = await self.process.wait()
        assert status == 0
        assert time.monotonic() - start < patience.at_most(seconds)

    async def stderr(self) -> str:
        """All that it wrote to standard error."""
        assert self.process.stderr is not None
        return b"".join([bytes(data) async for data in self.process.stderr]).decode()


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[Running]:
    process = await trio.lowlevel.open_process(
        [*PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield Running(process)
    finally:
        if process.poll() is None:
            process.kill()
        with trio.move_on_after(5, shield=True):
            await process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                assert stream is not None
                await trio.aclose_forcefully(stream)


def run(data: bytes, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the server on some input, to its end."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([*PROGRAM, *arguments], input=data, timeout=START, check=True, **options)


def line(request_id: int, method: str, **params: Any) -> bytes:
    return jsonrpc.encode_request(request_id, method, params) + b"\n"


async def test_nothing_but_the_protocol_is_on_standard_output() -> None:
    """W30: `print`, a write to descriptor 1, child processes; and standard input is empty."""
    async with running() as server:
        assert (await server.ask(1, "noisy"))["result"] == {"stdin": ""}
        refusal = (await server.ask(2, "claim"))["result"]["refused"]
        assert "already in use" in refusal
        await server.end()
        with trio.fail_after(START):
            # Given back at the end: what is printed now is on standard output again.
            rest = b"".join([bytes(data) async for data in server._receive_stream])
            noise = await server.stderr()
        assert rest == b"restored\n"
        for text in ("ready", "printed", "without a line end", "written", "echoed"):
            assert text in noise


@pytest.mark.parametrize("ending", ["EOF", "SIGINT", "SIGTERM"])
async def test_gone_within_a_second(ending: str) -> None:
    """W26, W27, W32: with a subscription, a call and a thread open that would go on for ever."""
    async with running() as server:
        assert (await server.ask(1, "subscriptions/listen"))["method"] == "ack"
        await server.send(request(2, "slow"), request(3, "thread"))
        assert (await server.ask(4, "echo", data="x"))["id"] == 4
        if ending == "EOF":
            await server.end()
        else:
            server.process.send_signal(getattr(signal, ending))
        await server.gone_within(1.0)
        # The program itself goes on when the server has ended, and prints.
        rest = [bytes(data) async for data in server._receive_stream]
        lines = b"".join(rest).splitlines()
        if ending == "EOF":
            assert lines == [b"restored"]
        else:
            assert [b'"done":true' in lines[0], b"notifications/cancelled" in lines[1]] == [
                True
            ] * 2
            assert lines[2:] == [b"restored"]


@pytest.mark.parametrize("ending", ["EOF", "SIGTERM"])
async def test_gone_within_a_second_though_nobody_reads(ending: str) -> None:
    """W26, W31: a client that has stopped reading keeps no process alive."""
    async with running("--quiet") as server:
        assert (await server.ask(1, "subscriptions/listen"))["method"] == "ack"
        await server.send(request(2, "slow"), request(3, "flood"))
        await trio.sleep(0.3)
        if ending == "EOF":
            await server.end()
        else:
            server.process.send_signal(signal.SIGTERM)
        await server.gone_within(1.0)


async def test_a_closed_output_ends_the_server() -> None:
    """W26: a write that fails means that the client has gone, be standard input open or not."""
    async with running() as server:
        assert (await server.ask(1, "echo"))["id"] == 1
        await trio.aclose_forcefully(server._receive_stream)
        await server.send(request(2, "flood"))
        with trio.fail_after(START):
            await server.process.wait()  # its own last print fails, so the status is not 0
        assert "BrokenPipeError" in await server.stderr()


async def test_being_cancelled_is_a_drain() -> None:
    """W32: an application that cancels the server ends its streams with their results."""
    async with running("--cancel") as server:
        assert (await server.ask(1, "subscriptions/listen"))["method"] == "ack"
        with trio.fail_after(START):
            assert (await server.receive())["result"] == {"done": True}
            assert (await server.receive())["method"] == "notifications/cancelled"
            await server.process.wait()


async def test_signals_are_left_alone_if_asked() -> None:
    """Without them SIGTERM does what it does to any process."""
    async with running("--no-signals") as server:
        assert (await server.ask(1, "echo"))["id"] == 1
        server.process.terminate()
        with trio.fail_after(START):
            assert await server.process.wait() == -signal.SIGTERM


def test_another_thread_can_serve_too() -> None:
    """Signals are the main thread's; without them it works just the same."""
    result = run(line(1, "echo", data=1), "--from-thread")
    assert b'"data":1' in result.stdout


def test_what_was_read_before_the_end_is_answered() -> None:
    """W26, W27, W28: input at once and its end, in one write; a last line without its end."""
    result = run(line(1, "echo", data="ä\u2028") + line(2, "echo")[:-1])
    *answers, last = result.stdout.decode().split("\n")[:-1]
    assert sorted(codec.decode_json(answer.encode())["id"] for answer in answers) == [1, 2]
    assert last == "restored"
    assert run(b"", stdin=None).stdout == b"restored\n"


def test_other_encodings_of_the_locale_change_nothing() -> None:
    """W60: the protocol is UTF-8, whatever the environment says."""
    environment = os.environ | {"PYTHONIOENCODING": "cp1252", "LC_ALL": "C", "PYTHONUTF8": "0"}
    result = run(line(1, "echo", data="—読🎉") + b"\x97\n", env=environment)
    assert "—読🎉".encode() in result.stdout
    assert b"-32700" in result.stdout


def test_files_instead_of_pipes(tmp_path: Path) -> None:
    """Regular files for both; what stood in the output file before is not overwritten."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(line(0, "skipped") + line(1, "echo") + line(2, "echo"))
    target.write_bytes(b"")
    with source.open("rb") as stdin, target.open("ab") as stdout:
        stdin.seek(len(line(0, "skipped")))
        os.lseek(stdin.fileno(), len(line(0, "skipped")), os.SEEK_SET)
        stdout.write(b"header\n")
        stdout.flush()
        subprocess.run(PROGRAM, stdin=stdin, stdout=stdout, timeout=START, check=True)
    lines = target.read_bytes().splitlines()
    assert lines[0] == b"header"
    assert len(lines) == 4
    assert lines[-1] == b"restored"


def test_a_socket_instead_of_pipes() -> None:
    """One socket for both directions, as some programs start their children."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(PROGRAM, stdin=theirs.fileno(), stdout=theirs.fileno())
        theirs.close()
        try:
            ours.sendall(line(1, "echo", data="x" * 300_000))
            ours.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: ours.recv(65536), b""))
            assert process.wait(START) == 0
        finally:
            process.kill()
            process.wait()
    assert received.startswith(b'{"jsonrpc"')
    assert len(received) > 300_000


def test_a_terminal_is_not_left_non_blocking() -> None:
    """A terminal is shared with the shell that comes after us, even if we are killed."""
    leader, follower = pty.openpty()
    try:
        process = subprocess.Popen(PROGRAM, stdin=follower, stdout=follower, stderr=subprocess.PIPE)
        assert process.stderr is not None
        with process.stderr as stderr:
            assert stderr.readline() == b"ready\n"
            assert os.get_blocking(follower)
            process.kill()
            process.wait()
        assert os.get_blocking(follower)
    finally:
        os.close(leader)
        os.close(follower)


def test_output_that_is_also_standard_error() -> None:
    """W30: with `2>&1` there is no other place for stray output than nowhere."""
    result = run(line(1, "noisy"), stderr=subprocess.STDOUT)
    lines = [text for text in result.stdout.splitlines() if b"jsonrpc" in text]
    assert b"printed" not in result.stdout
    assert len(lines) == 1


def test_closed_standard_streams() -> None:
    """There is nobody to talk to, and the error says so."""
    code = "import trio; from mcp_trio.transports.stdio import *; trio.run(serve_stdio, None)"
    for closed in ("<&-", ">&-"):
        result = subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code],
            stderr=subprocess.PIPE,
            timeout=START,
        )
        assert b"LocalProtocolError: standard input or output is not open" in result.stderr


async def test_descriptors_that_cannot_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same if it is found out only when they are taken; another try is possible then."""

    def refuse(_fd: int) -> int:
        raise OSError("no more descriptors")

    monkeypatch.setattr(os, "dup", refuse)
    monkeypatch.setattr(os, "open", _unless_proc(os.open))
    for _ in range(2):
        with pytest.raises(errors.LocalProtocolError, match="no more descriptors"):
            await serve_stdio(Echo())


# In this process: file descriptors 0 and 1 are exchanged for pipes, and given back.


class Echo:
    """A handler that prints."""

    supported_versions = ("2026-07-28",)

    def mirrored(self, request: jsonrpc.Request) -> dict[str, object]:
        return {}

    def knows(self, method: str) -> bool:
        return True

    async def handle(self, message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        sys.stdout.write("stray")
        return jsonrpc.result_reply(message.id, {})

    def notify(self, notification: jsonrpc.Notification) -> None: ...


@contextmanager
def exchanged(*fds: int) -> Iterator[None]:
    """Put these in the place of descriptors 0, 1 and so on."""
    saved = [os.dup(number) for number in range(len(fds))]
    try:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        yield
    finally:
        for number, fd in enumerate(saved):
            os.dup2(fd, number)
            os.close(fd)


@contextmanager
def pipes() -> Iterator[tuple[int, int, int, int]]:
    fds = (*os.pipe(), *os.pipe())
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


async def test_serving_in_this_process() -> None:
    """W30: claimed while it serves, given back afterwards, and not for two at once."""
    with pipes() as (stdin, to_server, from_server, stdout), exchanged(stdin, stdout):
        before = [os.fstat(0).st_ino, os.fstat(1).st_ino]
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_stdio, Echo())
            assert os.fstat(1).st_ino != before[1]
            with pytest.raises(errors.LocalProtocolError, match="already in use"):
                await serve_stdio(Echo())
            os.write(to_server, line(1, "x"))
            with trio.fail_after(5):
                await trio.lowlevel.wait_readable(from_server)
            assert os.read(from_server, 1000).startswith(b'{"jsonrpc":"2.0","id":1')
            nursery.cancel_scope.cancel()
        assert [os.fstat(0).st_ino, os.fstat(1).st_ino] == before
        assert os.get_blocking(0)
        assert os.get_blocking(1)


@pytest.mark.parametrize("mechanism", ["reopen", "dup", "threads"])
async def test_each_way_to_take_the_descriptors(
    monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    """One that cannot be reopened is duplicated; for one that cannot be waited for, threads."""
    if mechanism == "dup":
        monkeypatch.setattr(os, "open", _unless_proc(os.open))
    elif mechanism == "threads":
        monkeypatch.setattr(standard_streams, "_can_be_waited_for", lambda _fd: False)
    with pipes() as (stdin, to_server, from_server, stdout), exchanged(stdin, stdout):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_stdio, Echo())
            for number in range(100):
                os.write(to_server, line(number, "x"))
            received = b""
            with trio.fail_after(5):
                while True:
                    await trio.lowlevel.wait_readable(from_server)
                    received += os.read(from_server, 10_000)
                    if received.count(b"\n") == 100:
                        break
            start = time.monotonic()
            nursery.cancel_scope.cancel()
        assert time.monotonic() - start < patience.at_most(1)
        os.write(to_server, b"wake the thread that was left behind\n")
        assert os.get_blocking(0)
        assert os.get_blocking(1)


def _unless_proc(original: Any) -> Any:
    def opened(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).startswith("/proc"):
            raise OSError("no /proc here")
        return int(original(path, *arguments, **options))

    return opened


async def test_a_stream_in_threads(tmp_path: Path) -> None:
    """What `FdStream` cannot do is done in threads: files, errors, and closing under a call."""
    path = tmp_path / "file"
    path.write_bytes(b"some text")
    fd = os.open(path, os.O_RDONLY)
    stream = standard_streams.open_fd_stream(fd)
    assert isinstance(stream, standard_streams.ThreadStream)
    async with stream:
        assert await stream.receive_some(4) == b"some"
        assert await stream.receive_some() == b" text"
        assert await stream.receive_some() == b""
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"x")
        await stream.wait_send_all_might_not_block()
    stream.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(trio.ClosedResourceError):
        await stream.receive_some()
    with pytest.raises(trio.ClosedResourceError):
        await stream.send_all(b"x")
    assert stream._in_thread(None, 1) == b""

    reading, writing = os.pipe()
    stream = standard_streams.ThreadStream(reading)
    with trio.move_on_after(0.1):
        await stream.receive_some()
    stream.close()
    os.fstat(reading)  # a thread still reads from it
    os.write(writing, b"x")
    with trio.fail_after(5):
        while True:
            await trio.sleep(0.01)
            if not _is_open(reading):
                break
    os.close(writing)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


async def test_without_epoll_only_regular_files_need_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On systems that wait in other ways."""
    monkeypatch.delattr(select, "epoll")
    (tmp_path / "file").touch()
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    with pipes() as (stdin, *_):
        assert standard_streams._can_be_waited_for(stdin)
        assert not standard_streams._can_be_waited_for(fd)
    os.close(fd)


def test_output_in_python_buffers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """W30: whatever `sys.stdout` is, its buffer never reaches the protocol."""
    for replacement in (None, object()):
        monkeypatch.setattr(sys, "stdout", replacement)
        with standard_streams._line_buffered_stdout():
            standard_streams._flush_stdout()
    with (tmp_path / "file").open("w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        with standard_streams._line_buffered_stdout():
            assert file.line_buffering
        assert not file.line_buffering


def test_where_stray_output_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nowhere, if standard error is closed or is the protocol's own pipe."""
    with pipes() as (_, one, _, two):
        descriptors = {1: one, 2: two}
        real = os.fstat
        monkeypatch.setattr(os, "fstat", lambda fd: real(descriptors[fd] if fd < 3 else fd))
        assert not standard_streams._stderr_is_stdout()
        descriptors[2] = one
        assert standard_streams._stderr_is_stdout()
        descriptors[2] = 10_000
        assert standard_streams._stderr_is_stdout()
