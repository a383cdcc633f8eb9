"""The one task that writes, and the tasks that work behind a block."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mcp_trio.testing import MemoryPipeReceiveStream, memory_pipe
from mcp_trio.transports._service import open_services
from mcp_trio.transports._writer import LineWriter


@asynccontextmanager
async def writing(capacity: int) -> AsyncIterator[tuple[LineWriter, MemoryPipeReceiveStream]]:
    sending, receiving = memory_pipe(capacity)
    writer = LineWriter(sending)
    async with open_services() as services:
        services.start_soon(writer.run)
        yield writer, receiving


async def test_lines_are_written_in_turn(autojump_clock: MockClock) -> None:
    """First come, first served; `write` returns when the stream has it all."""
    async with writing(4) as (writer, receiving):
        written = []

        async def write(data: bytes) -> None:
            await writer.write(data)
            written.append(data)

        async with trio.open_nursery() as nursery:
            for data in (b"one\n", b"two\n", b"three\n"):
                nursery.start_soon(write, data)
                await trio.testing.wait_all_tasks_blocked()
            assert written == [b"one\n"]
            received = b""
            while len(received) < 14:
                received += await receiving.receive_some(2)
        assert received == b"one\ntwo\nthree\n"


async def test_a_line_that_is_not_wanted_any_more_is_dropped(autojump_clock: MockClock) -> None:
    """W08: it is asked at the last moment, and its waiter does not wait for ever."""
    async with writing(2) as (writer, receiving):
        wanted = True
        first = writer.put(b"1\n")
        second = writer.put(b"2\n", lambda: wanted)
        third = writer.put(b"3\n")
        await trio.testing.wait_all_tasks_blocked()
        assert (first.settled.is_set(), second.started, third.started) == (True, True, False)
        fourth = writer.put(b"4\n", lambda: wanted)
        wanted = False
        assert await receiving.receive_some() == b"1\n"
        assert await receiving.receive_some() == b"2\n"
        assert await receiving.receive_some() == b"3\n"
        await writer.wait(fourth)
        assert not fourth.started
        writer.withdraw(fourth)


async def test_a_line_can_be_taken_back(autojump_clock: MockClock) -> None:
    """Until its writing begins; from then on it is written whole."""
    async with writing(2) as (writer, receiving):
        with trio.move_on_after(1):
            await writer.write(b"long line\n")
        with trio.move_on_after(1):
            await writer.write(b"withdrawn\n")
        last = writer.put(b"last\n")
        received = b""
        while not received.endswith(b"last\n"):
            received += await receiving.receive_some()
        assert received == b"long line\nlast\n"
        await writer.flush()
        assert last.settled.is_set()
        assert not last.failed


async def test_when_the_stream_ends_all_lines_have_failed(autojump_clock: MockClock) -> None:
    """The one that is being written, those that wait, and those to come."""
    sending, receiving = memory_pipe(1)
    writer = LineWriter(sending)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        lines = [writer.put(b"abc\n"), writer.put(b"def\n")]
        await trio.testing.wait_all_tasks_blocked()
        await receiving.aclose()
        for line in [*lines, writer.put(b"ghi\n")]:
            with pytest.raises(trio.BrokenResourceError) as caught:
                await writer.wait(line)
            assert caught.value.__cause__ is writer.cause is not None
        await writer.flush()


async def test_background_tasks_outlive_the_goodbye(autojump_clock: MockClock) -> None:
    """They are cancelled when the block has ended, and not when it is cancelled."""
    events = []

    async def serve() -> None:
        try:
            await trio.sleep_forever()
        finally:
            events.append("task cancelled")

    with trio.move_on_after(1):
        async with open_services() as services:
            services.start_soon(serve)
            try:
                await trio.sleep_forever()
            finally:
                with trio.move_on_after(5, shield=True):
                    await trio.sleep(1)
                events.append("block ended")
    assert events == ["block ended", "task cancelled"]


async def test_one_exception_is_no_group_and_two_are(autojump_clock: MockClock) -> None:
    """W62: a background task that fails ends the block, with its own exception."""

    async def fail() -> None:
        raise KeyError("task")

    with pytest.raises(KeyError, match="task"):
        async with open_services() as services:
            services.start_soon(fail)
            await trio.sleep_forever()
    with pytest.RaisesGroup(KeyError, ValueError):
        async with open_services() as services:
            services.start_soon(fail)
            raise ValueError("block")
