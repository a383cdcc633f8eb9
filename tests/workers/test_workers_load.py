"""SIGTERM under load: a thousand streams, ten clients that have stopped reading, a publisher."""

import contextlib
import signal
from pathlib import Path

import pytest
import trio
from http_kit import connect
from patience import in_time
from workers_kit import PARENT, Listener, call, everybody, listeners, program

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "everything_server.py")
STREAMS = 1000
STALLED = 10
LONG = "x:" + "a" * 8000
URIS = 20


async def stall(port: int) -> None:
    """Publish more to those who do not read than the kernel holds for them."""
    async with connect(port) as peer:
        for _ in range(20):
            await call(peer, "publish", uri=LONG, count=URIS)


async def keep_publishing(port: int) -> None:
    """Publish until the server stops."""
    with contextlib.suppress(EOFError, OSError, trio.BrokenResourceError):
        async with connect(port) as peer:
            while True:
                await call(peer, "publish", uri="note://a")
                await trio.sleep(0.01)


async def attempt(command: list[str], workers: int) -> float:
    reading: list[Listener]
    with trio.fail_after(120):
        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(program(*command))
            many = [f"{LONG}{number}" for number in range(URIS)]
            await stack.enter_async_context(
                listeners(server.port, STALLED, receive_buffer=4096, resourceSubscriptions=many)
            )
            if workers > 1:
                await everybody(server.port, workers)
            for _ in range(2 * workers):
                await stall(server.port)
            reading = await stack.enter_async_context(
                listeners(server.port, STREAMS, resourceSubscriptions=["note://a"])
            )
            async with trio.open_nursery() as nursery:
                for listener in reading:
                    nursery.start_soon(listener.read)
                nursery.start_soon(keep_publishing, server.port)
                await trio.sleep(0.3)
                server.process.send_signal(signal.SIGTERM)
                took = await server.gone_after()
            assert server.process.returncode == 0
    assert [listener.end for listener in reading] == ["shutdown"] * STREAMS
    assert all(listener.events for listener in reading) or workers > 1
    return took


@pytest.mark.parametrize("host", ["native", "hypercorn"])
async def test_a_thousand_streams_of_one_process(host: str) -> None:
    """W31, W32: each that is read gets its result; the process is gone within five seconds."""
    flag = "--http" if host == "native" else "--hypercorn"
    await in_time(5, lambda: attempt([EXAMPLE, flag, "127.0.0.1:0"], 1))


@pytest.mark.parametrize("host", ["native", "hypercorn"])
async def test_a_thousand_streams_of_four_processes(host: str) -> None:
    """W31, W32: the same, and the parent is gone when its workers are."""
    await in_time(6, lambda: attempt([PARENT, "4", host], 4))
