"""Workers as real processes, kept by a parent in this one."""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from http_kit import connect, post, until
from workers_kit import (
    PROGRAM,
    Listener,
    ask_who,
    call,
    everybody,
    is_there,
    listeners,
    who,
)

from mcp_trio.workers import WorkersFailed, serve_workers

both = pytest.mark.parametrize("host", ["native", "hypercorn"])


@attrs.define
class Running:
    """Workers around a test."""

    port: int
    urls: list[str]
    stop: trio.Event
    nursery: trio.Nursery


@asynccontextmanager
async def running(*flags: str, workers: int = 2, **options: Any) -> AsyncIterator[Running]:
    """Serve around a block; when the block ends the parent is told to stop."""
    stop = trio.Event()
    command = [sys.executable, PROGRAM, *(flags or ["native"])]
    if "listeners" not in options:
        options["port"] = 0
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_workers, workers=workers, shutdown_trigger=stop.wait, **options)
            urls = await nursery.start(serve, command)
            yield Running(int(urls[0].rpartition(":")[2]), urls, stop, nursery)
            stop.set()


@both
async def test_they_share_a_port_and_end_together(host: str) -> None:
    """W32: each stream gets its result; afterwards nobody listens and no process is left."""
    async with running(host, workers=2) as server:
        assert server.urls == [f"http://127.0.0.1:{server.port}"]
        pids = await everybody(server.port, 2)
        assert sorted(pids) == [0, 1]
        async with listeners(server.port, 20, toolsListChanged=True) as streams:
            async with trio.open_nursery() as nursery:
                for stream in streams:
                    nursery.start_soon(stream.read)
                async with connect(server.port) as busy:
                    await busy.stream.send_all(
                        post("tools/call", name="slow", arguments={"seconds": 0.5})
                    )
                    await trio.sleep(0.2)
                    server.stop.set()
                    assert (await busy.response()).status == 200
            assert {stream.end for stream in streams} == {"shutdown"}
    assert not any(map(is_there, pids.values()))
    with pytest.raises(OSError, match="refused"):
        await ask_who(server.port)


@both
async def test_cancelling_is_a_stop(host: str) -> None:
    async with running(host) as server:
        pids = await everybody(server.port, 2)
        async with listeners(server.port, 1, toolsListChanged=True) as (stream,):
            server.nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True), trio.fail_after(20):
                await stream.read()
                assert stream.end == "shutdown"
                await until(lambda: not any(map(is_there, pids.values())))


async def test_one_that_dies_harms_no_other_and_nobody_is_refused() -> None:
    """Its own clients are cut; who connects meanwhile waits for its successor."""
    async with running() as server, contextlib.AsyncExitStack() as stack:
        pids = await everybody(server.port, 2)
        held: dict[int, Listener] = {}
        while len(held) < 2:
            peer = await stack.enter_async_context(connect(server.port))
            number, _, _ = await who(peer)
            held[number] = Listener(peer)
            await held[number].open(toolsListChanged=True)
        os.kill(pids[0], signal.SIGKILL)
        await held[0].read()
        assert held[0].end == "lost"
        found = set()
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                number, pid, _ = await ask_who(server.port)
                found.add((number, pid))

            for _ in range(30):
                nursery.start_soon(ask)
        assert {number for number, _ in found} == {0, 1}
        assert (1, pids[1]) in found
        assert (0, pids[0]) not in found
        while True:  # until it is the survivor that publishes
            async with connect(server.port) as peer:
                if (await who(peer))[0] == 1:
                    await call(peer, "publish", uri="x:y")
                    break
        assert (await held[1].peer.event())["method"] == "notifications/tools/list_changed"


async def test_those_that_keep_on_dying_are_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "mcp_trio.workers"):
        async with running("native", "dies-later", workers=1):
            await until(lambda: caplog.text.count("killed by SIGKILL; it is started") >= 2, 60)


async def test_those_that_do_not_stop_are_killed_with_all_that_they_have_started(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with running("native", "child", "ignores", workers=1, drain_grace=-2.5) as server:
        begun = trio.current_time()
        server.stop.set()
    assert trio.current_time() - begun < 10
    helper = int(capfd.readouterr().err.split("helper ")[1].split()[0])
    await until(lambda: not is_there(helper) or is_zombie(helper))


def is_zombie(pid: int) -> bool:
    """Whether a process has ended and only nobody has asked how."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    ("flag", "options"), [("exits", {}), ("never-ready", {"start_timeout": 0.5})]
)
async def test_those_that_do_not_start_are_an_error(flag: str, options: dict[str, Any]) -> None:
    with pytest.RaisesGroup(WorkersFailed):
        async with running("native", flag, workers=2, **options):
            raise AssertionError("unreachable: they never serve")


async def test_a_program_that_there_is_not() -> None:
    with trio.fail_after(20), pytest.raises(FileNotFoundError):
        await serve_workers(["/no/such/program"], port=0, workers=2)


async def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(TypeError, match="sequence"):
        await serve_workers("python worker.py", port=0)
    with pytest.raises(TypeError, match="sequence"):
        await serve_workers([], port=0)
    with pytest.raises(ValueError, match="positive"):
        await serve_workers(["python"], port=0, workers=0)


async def test_a_port_that_is_taken_is_an_error() -> None:
    """Even by other workers, which would share it."""
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(OSError, match="in use"):
        await serve_workers(["python"], port=taken.getsockname()[1])
    async with running(workers=1) as server:
        with pytest.raises(OSError, match="in use"):
            await serve_workers([sys.executable, PROGRAM, "native"], port=server.port)


async def test_a_free_port_of_both_families_and_none() -> None:
    async with running(workers=1, host="::1") as server:
        assert server.urls == [f"http://[::1]:{server.port}"]
    with trio.fail_after(10), pytest.raises(OSError, match=r"."):
        await serve_workers(["python"], host="no.such.host.invalid", port=0)


async def test_sockets_of_the_caller_are_shared() -> None:
    """As those of a service manager would be; they are closed in the end."""
    given = socket.socket()
    given.bind(("127.0.0.1", 0))
    async with running(workers=2, listeners=[given]) as server:
        assert server.port == given.getsockname()[1]
        pid = (await everybody(server.port, 2))[0]
        os.kill(pid, signal.SIGKILL)
        await everybody(server.port, 1)
    assert given.fileno() == -1


async def test_a_trigger_that_fails_stops_them_and_is_raised() -> None:
    async def trigger() -> None:
        await trio.sleep(0.5)
        raise KeyError("trigger")

    with trio.fail_after(30), pytest.raises(KeyError):
        await serve_workers(
            [sys.executable, PROGRAM, "native"], port=0, workers=1, shutdown_trigger=trigger
        )


async def test_environment_and_directory(tmp_path: Any) -> None:
    """Both are the worker's; it inherits no input."""
    (tmp_path / "worker.py").write_text(
        "import os, sys, trio\n"
        "from mcp_trio.workers import inherited_worker\n"
        "assert sys.stdin.read() == ''\n"
        "with inherited_worker() as worker:\n"
        "    worker.started([os.getcwd(), os.environ['COLOUR'], str(len(worker.listeners))])\n"
        "    trio.run(worker.wait_stop)\n"
    )
    env = {**os.environ, "COLOUR": "red"}
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_workers, port=0, workers=1, env=env, cwd=tmp_path)
            told = await nursery.start(serve, [sys.executable, "worker.py"])
            assert told == [str(tmp_path), "red", "1"]
            nursery.cancel_scope.cancel()


async def test_a_worker_that_names_no_address() -> None:
    """The parent knows its own sockets."""
    script = (
        "import trio\nfrom mcp_trio.workers import inherited_worker\n"
        "with inherited_worker() as worker:\n    worker.started()\n    trio.run(worker.wait_stop)\n"
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_workers, port=0, workers=1)
            (url,) = await nursery.start(serve, [sys.executable, "-c", script])
            assert url.startswith("http://127.0.0.1:")
            nursery.cancel_scope.cancel()


def test_signals_need_the_main_thread() -> None:
    script = (
        "import threading, trio\nfrom functools import partial\n"
        "from mcp_trio.workers import serve_workers\n"
        "def run():\n"
        "    try: trio.run(partial(serve_workers, ['x'], port=0, handle_signals=True))\n"
        "    except RuntimeError as error: print(error)\n"
        "thread = threading.Thread(target=run)\nthread.start()\nthread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "main thread" in done.stdout, done.stderr
