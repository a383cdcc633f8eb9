"""The parent as a program that is signalled, or killed."""

import os
import signal

import pytest
import trio
from http_kit import connect, post, until
from patience import in_time
from workers_kit import (
    PARENT,
    Listener,
    children_of,
    everybody,
    is_there,
    listeners,
    program,
    who,
)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_the_parent_is_a_drain(signum: signal.Signals) -> None:
    """W32: SIGTERM and SIGINT; each stream gets its result."""
    with trio.fail_after(60):
        async with program(PARENT, "2", "native") as server:
            async with listeners(server.port, 10, toolsListChanged=True) as streams:
                server.process.send_signal(signum)
                for stream in streams:
                    await stream.read()
            await server.gone_after()
            assert server.process.returncode == 0
    assert {stream.end for stream in streams} == {"shutdown"}


async def test_a_second_signal_cuts_the_drain_short() -> None:
    async def attempt() -> float:
        with trio.fail_after(60):
            async with program(PARENT, "2", "native") as server, connect(server.port) as busy:
                await busy.stream.send_all(
                    post("tools/call", name="slow", arguments={"seconds": 60})
                )
                await trio.sleep(0.2)
                server.process.terminate()
                await trio.sleep(0.2)
                server.process.terminate()
                took = await server.gone_after()
                assert server.process.returncode == 0
        return took

    await in_time(1.5, attempt)


@pytest.mark.parametrize("host", ["native", "hypercorn"])
async def test_workers_whose_parent_is_killed_drain(host: str) -> None:
    """They notice by themselves; nobody is left behind, and each stream gets its result."""
    with trio.fail_after(60):
        async with program(PARENT, "2", host) as server:
            workers = children_of(server.process.pid)
            assert len(workers) == 2
            async with listeners(server.port, 10, toolsListChanged=True) as streams:
                server.process.kill()
                for stream in streams:
                    await stream.read()
            assert {stream.end for stream in streams} == {"shutdown"}
            await until(lambda: not any(map(is_there, workers)), 20)


async def test_sighup_replaces_the_workers_and_refuses_nobody() -> None:
    """One after the other; the streams of the old ones get their results."""
    with trio.fail_after(90):
        async with program(PARENT, "2", "native") as server:
            before = await everybody(server.port, 2)
            asked = 0

            async def keep_asking() -> None:
                nonlocal asked
                while True:
                    async with connect(server.port) as peer:
                        # A worker that stops may close a connection that carries no request yet.
                        try:
                            await who(peer)
                        except EOFError:
                            await trio.sleep(0.01)
                        else:
                            asked += 1

            async with (
                listeners(server.port, 20, toolsListChanged=True) as streams,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(keep_asking)
                server.process.send_signal(signal.SIGHUP)
                for stream in streams:
                    await stream.read()
                while True:
                    after = await everybody(server.port, 2)
                    if not set(after.values()) & set(before.values()):
                        break
                    await trio.sleep(0.05)
                nursery.cancel_scope.cancel()
            assert {stream.end for stream in streams} == {"shutdown"}
            assert asked > 20
            await until(lambda: children_of(server.process.pid) == set(after.values()), 10)


async def test_a_worker_that_is_terminated_drains_and_is_replaced() -> None:
    """An operator's SIGTERM to one worker; its own clients alone are told."""
    with trio.fail_after(60):
        async with program(PARENT, "2", "native") as server:
            pids = await everybody(server.port, 2)
            held: dict[int, Listener] = {}
            while len(held) < 2:
                async with connect(server.port) as peer:
                    number, _, _ = await who(peer)
                    if number not in held:
                        await Listener(peer).open(toolsListChanged=True)
                        held[number] = Listener(peer)
                        os.kill(pids[number], signal.SIGTERM)
                        await held[number].read()
                        assert held[number].end == "shutdown"
            await server.until_logged("has exited with status 0; it is started again")
