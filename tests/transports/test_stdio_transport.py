"""A client and the server process that it owns: real processes, well-behaved and not."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import patience
import pytest
import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, methods
from mcp_trio.transports import _child
from mcp_trio.transports.abc import Transport
from mcp_trio.transports.stdio import open_stdio_transport

HERE = Path(__file__).parent
START = 10
"""Seconds for an interpreter to start on a busy machine."""


def odd(mode: str) -> list[str]:
    # Without the site module an interpreter starts in a tenth of the time.
    return [sys.executable, "-IS", str(HERE / "odd_child_program.py"), mode]


async def ask(transport: Transport, request_id: int = 1, **params: Any) -> dict[str, Any]:
    with trio.fail_after(START):
        async with transport.open_exchange(request_id, "x", params) as messages:
            reply = await messages.receive()
    assert isinstance(reply, jsonrpc.ResultReply)
    return reply.result


@contextmanager
def takes(at_least: float, limit: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert at_least <= time.monotonic() - start < patience.at_most(limit)


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie that awaits its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def children() -> set[str]:
    # Of all threads: each has a list of the processes that it has started.
    lists = Path("/proc/self/task").glob("*/children")
    return {child for each in lists for child in each.read_text(encoding="utf-8").split()}


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Every test ends without a new child, not even a zombie, and without a new descriptor."""
    before, descriptors = children(), open_descriptors()
    yield
    assert children() <= before
    assert open_descriptors() == descriptors


async def test_a_polite_server_is_gone_soon() -> None:
    """Closing its input is all it takes; many exchanges share its pipes."""
    async with open_stdio_transport(odd("polite")) as transport:
        assert transport.kind == "stdio"
        assert await ask(transport, data="読🎉\u2028") == {"data": "読🎉\u2028"}
        async with trio.open_nursery() as nursery:
            for number in range(2, 52):
                nursery.start_soon(ask, transport, number)
        with trio.move_on_after(0.1) as scope:
            async with transport.open_exchange(60, "silent", {}) as messages:
                await messages.receive()
        assert scope.cancelled_caught
        assert await ask(transport, 61) == {}
        start = time.monotonic()
    assert time.monotonic() - start < patience.at_most(1)


async def test_where_and_how_it_runs(tmp_path: Path) -> None:
    """Working directory, environment, and a session of its own."""
    async with open_stdio_transport(
        odd("environment"), env={"ONLY": "this"}, cwd=tmp_path
    ) as transport:
        result = await ask(transport)
    assert result["cwd"] == str(tmp_path)
    assert result["env"]["ONLY"] == "this"
    assert "PATH" not in result["env"]
    assert result["sid"] != os.getsid(0)


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize(
    ("mode", "at_least", "limit"), [("deaf", 0.3, 1.0), ("stubborn", 0.6, 1.3)]
)
async def test_the_steps_of_ending_a_server(
    mode: str, at_least: float, limit: float, cancelled: bool
) -> None:
    """W25: end of input, SIGTERM, SIGKILL, each with its grace; the same under cancellation."""
    with trio.CancelScope() as scope:
        async with open_stdio_transport(odd(mode), grace=0.3) as transport:
            await ask(transport)
            start = time.monotonic()
            if cancelled:
                scope.cancel()
                await trio.lowlevel.checkpoint()
    assert at_least <= time.monotonic() - start < patience.at_most(limit)
    assert scope.cancelled_caught == cancelled


@pytest.mark.parametrize("mode", ["helper", "stubborn_helper"])
async def test_helpers_do_not_outlive_the_server(mode: str) -> None:
    """W25: one holds all pipes open when the server itself has long gone."""
    with contextlib.ExitStack() as stack:
        async with open_stdio_transport(odd(mode)) as transport:
            pid = (await ask(transport))["helper"]
            assert is_alive(pid)
            stack.enter_context(takes(0, 1))
        assert not is_alive(pid)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("dies", "has exited with status 1; the end of its stderr:\nno configuration file"),
        ("dies_when_asked", "has exited with status 3; the end of its stderr:\nxxx"),
        ("dies_when_asked", "xxxthe last words"),
        ("killed", "was killed by SIGKILL"),
        ("odd_signal", "was killed by signal 40"),
        ("closes_output", "has closed its output, though it is still running"),
    ],
)
async def test_a_server_that_dies_fails_every_request(mode: str, message: str) -> None:
    """W17, W62, W87: one exception within a second, with the exit status and the last words."""
    async with open_stdio_transport(odd(mode), grace=0.1) as transport:
        with pytest.raises(errors.ConnectionLost, match=message) as caught:
            await ask(transport)
        assert odd(mode)[0] in str(caught.value)
        assert len(str(caught.value)) < 3000
        with takes(0, 1), pytest.raises(errors.ConnectionLost, match=message):
            await ask(transport, 2)


async def test_a_subscription_learns_of_the_death_of_its_server() -> None:
    """W17: `kill -9` ends it within a second, though nothing was happening."""
    before = children()
    async with open_stdio_transport(odd("polite")) as transport:
        await ask(transport)
        params: dict[str, Any] = {"notifications": {}}
        async with transport.open_exchange("listen-1", methods.LISTEN, params) as messages:
            await messages.receive()  # this server answers anything at once
        async with transport.open_exchange("listen-2", "silent", params) as messages:
            (pid,) = children() - before
            with takes(0, 1), pytest.raises(errors.ConnectionLost, match="killed by SIGKILL"):
                os.kill(int(pid), signal.SIGKILL)
                await messages.receive()


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        (["/no/such/program"], FileNotFoundError),
        ([str(HERE / "odd_child_program.py")], PermissionError),
    ],
)
async def test_a_server_that_cannot_be_started(command: list[str], cause: type[OSError]) -> None:
    """W62, W87: one exception that names the program, with its cause, and no group."""
    with pytest.raises(errors.ConnectionLost, match="cannot start the server") as caught:
        async with open_stdio_transport(command):
            pytest.fail("not reached")
    assert command[0] in str(caught.value)
    assert isinstance(caught.value.__cause__, cause)


async def test_a_command_is_a_list() -> None:
    """A string would be one program's name, with spaces in it."""
    commands: list[Any] = ["python server.py", []]
    for command in commands:
        with pytest.raises(TypeError, match="a sequence of strings"):
            async with open_stdio_transport(command):
                pytest.fail("not reached")


async def test_a_server_that_reads_nothing() -> None:
    """W87: a request that does not fit can be given up, and leaving waits for no pipe."""
    async with open_stdio_transport(odd("reads_nothing"), grace=0.1) as transport:
        with trio.move_on_after(0.2) as scope:
            async with transport.open_exchange(1, "x", {"data": "x" * 1_000_000}):
                pytest.fail("not reached")
        assert scope.cancelled_caught
        start = time.monotonic()
    assert time.monotonic() - start < patience.at_most(1)


async def test_a_server_that_floods() -> None:
    """W87: other tasks run, and leaving waits for no end of the flood."""
    async with open_stdio_transport(odd("floods"), grace=0.1) as transport:
        await trio.sleep(0.3)
        start = time.monotonic()
    assert time.monotonic() - start < patience.at_most(1)
    assert transport.statistics().noise > 0


async def test_noise_before_the_answer() -> None:
    """W29: fifty thousand lines of it."""
    async with open_stdio_transport(odd("noise")) as transport:
        assert await ask(transport) == {}
        assert transport.statistics().noise == 50_002


async def test_standard_error_is_always_read(caplog: pytest.LogCaptureFixture) -> None:
    """W24: before the answer and while the server is being ended; the rest need not be kept."""
    heard = bytearray()
    start = 0.0
    async with open_stdio_transport(odd("talks"), stderr=heard.extend) as transport:
        assert await ask(transport) == {}
        start = time.monotonic()
    assert time.monotonic() - start < patience.at_most(1)
    assert heard == b"x" * 300_000 + b"y" * 300_000

    calls = []

    def fail(data: bytes) -> None:
        calls.append(data)
        raise RuntimeError("full")

    async with open_stdio_transport(odd("talks"), stderr=fail) as transport:
        assert await ask(transport) == {}
    assert len(calls) == 1
    assert "the receiver of the server's stderr failed" in caplog.text


async def test_much_in_both_directions() -> None:
    """W21: two hundred requests of 64 KiB, whose answers are as long."""

    async def one(transport: Transport, number: int) -> None:
        data = "x" * 65536
        assert await ask(transport, number, data=data) == {"data": data}

    async with open_stdio_transport(odd("polite")) as transport, trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(one, transport, number)


async def test_leaving_while_the_server_starts() -> None:
    """W61, W67: cancelled at once, at any point, nothing stays behind."""
    for delay in (0, 0.001, 0.01, 0.03):
        with trio.move_on_after(delay):
            async with open_stdio_transport(odd("polite"), grace=0.1) as transport:
                await ask(transport)
    with pytest.raises(ValueError, match="mine"):
        async with open_stdio_transport(odd("polite"), grace=0.1):
            raise ValueError("mine")


async def test_what_cannot_be_signalled_or_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Helpers of another user are left alone; a process that will not die is reported."""
    processes: list[trio.Process] = []
    open_process = trio.lowlevel.open_process

    async def remember(*arguments: Any, **options: Any) -> trio.Process:
        processes.append(await open_process(*arguments, **options))
        return processes[-1]

    def forbid(group: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(_child, "_REAPED", 0.1)
    monkeypatch.setattr(trio.lowlevel, "open_process", remember)
    monkeypatch.setattr(os, "killpg", forbid)
    async with open_stdio_transport(odd("polite"), grace=0.5):
        pass
    assert "cannot be killed" not in caplog.text
    async with open_stdio_transport(odd("stubborn"), grace=0.1) as transport:
        await ask(transport)
    assert "cannot be killed" in caplog.text
    processes[-1].kill()
    await processes[-1].wait()


def test_the_tail_of_standard_error_is_bounded() -> None:
    """W24: the last 64 KiB, whatever comes."""
    tail = _child.StderrTail()
    assert tail.summary() == ""
    for number in range(1000):
        tail.add(b"%03d" % number * 1000)
    assert len(tail.value) == 65536
    assert tail.value.endswith(b"999999")
    assert len(tail.summary()) == 2000
