"""The place of a worker: when it is started again, and what happens to who waits to be accepted."""

import socket
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcp_trio.workers import WorkersFailed
from mcp_trio.workers.place import Place


class FakeWorker:
    """Becomes ready after `start` seconds, unless that is None, and dies after `life` more."""

    fate = "has died"
    crashed = True

    def __init__(self, start: float | None, life: float) -> None:
        self.exited = trio.Event()
        self.ready_at = 0.0
        self.stopped = False
        self._start = start
        self._life = life

    async def wait_ready(self, seconds: float) -> bool:
        await trio.sleep(seconds if self._start is None else min(self._start, seconds))
        self.ready_at = trio.current_time()
        if self._life == 0:
            self.exited.set()
        return self._start is not None and self._start < seconds and self._life > 0

    async def stop_within(self, seconds: float) -> None:
        await trio.lowlevel.checkpoint()
        self.stopped = True
        self.exited.set()

    async def live(self) -> None:
        await trio.sleep(self._life + (self._start or 0.0))
        self.exited.set()


class World:
    """Starts fake workers as a list says, and notes when."""

    def __init__(self, nursery: trio.Nursery, plan: list[Any]) -> None:
        self.started: list[float] = []
        self.after_crash: list[bool] = []
        self.workers: list[FakeWorker] = []
        self.ports = 0
        self.sockets: list[socket.socket] = []
        self._nursery = nursery
        self._plan = plan

    def listen(self) -> list[socket.socket]:
        self.ports += 1
        self.sockets.append(socket.socket())
        return [self.sockets[-1]]

    async def start(
        self, number: int, listeners: Sequence[socket.socket], after_crash: bool
    ) -> Any:
        await trio.lowlevel.checkpoint()
        assert number == 7
        assert all(listener.fileno() != -1 for listener in listeners)
        self.started.append(round(trio.current_time(), 3))
        self.after_crash.append(after_crash)
        step = self._plan.pop(0) if self._plan else (0.0, 1e9)
        if isinstance(step, OSError):
            raise step
        worker = FakeWorker(*step)
        self.workers.append(worker)
        self._nursery.start_soon(worker.live)
        return worker

    def place(self) -> Place:
        return Place(7, self, self.start, 5.0)


async def run(plan: list[Any], seconds: float) -> World:
    """Keep a place for a while, in virtual time."""
    try:
        async with trio.open_nursery() as nursery:
            world = World(nursery, plan)
            place = world.place()
            nursery.start_soon(place.keep)
            await trio.sleep(seconds)
            nursery.cancel_scope.cancel()
    finally:
        place.close()
    assert all(sock.fileno() == -1 for sock in world.sockets)
    return world


async def test_one_that_keeps_on_dying_is_started_later_and_later(
    autojump_clock: MockClock,
) -> None:
    world = await run([(0.0, 0.001)] * 100, 100)
    gaps = [later - one for one, later in zip(world.started, world.started[1:], strict=False)]
    expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert gaps == pytest.approx(expected[: len(gaps)], abs=0.01)
    assert len(gaps) >= 9


async def test_who_waits_is_sent_away_when_it_takes_long(autojump_clock: MockClock) -> None:
    """While the pause is short one socket serves all; later on there is a new one each time."""
    world = await run([(0.0, 0.001)] * 100, 1.6)
    assert (len(world.started), world.ports) == (5, 1)
    world = await run([(0.0, 0.001)] * 100, 14)
    assert (len(world.started), world.ports) == (8, 4)


async def test_one_that_has_done_well_is_started_at_once(autojump_clock: MockClock) -> None:
    world = await run([(0.0, 0.001)] * 5 + [(0.0, 20.0)] + [(0.0, 20.0)], 60)
    # 0, then dead at once 5 times: 0.1 + … + 1.6 later there is one that lives.
    assert world.started[5] == pytest.approx(3.1, abs=0.02)
    assert world.started[6] == pytest.approx(23.2, abs=0.02)
    assert world.started[7] == pytest.approx(43.3, abs=0.02)


@pytest.mark.parametrize("step", [(0.0, 0), (None, 100.0)], ids=["dies", "never serves"])
async def test_one_that_never_serves_is_an_error(autojump_clock: MockClock, step: Any) -> None:
    with pytest.RaisesGroup(WorkersFailed):
        await run([step] * 10, 1000)


async def test_one_that_has_served_is_tried_for_ever(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    failing = [(0.0, 0), (None, 100.0), OSError("no memory")] * 5
    world = await run([(0.0, 1.0), *failing], 2000)
    assert len(world.started) == 17
    assert "no memory" in caplog.text
    assert "has died before it served" in caplog.text
    assert "does not serve after 5.0 s" in caplog.text
    assert world.workers[2].stopped
    assert world.after_crash == [False] + [True] * 16


async def test_one_that_cannot_be_started_is_an_error(autojump_clock: MockClock) -> None:
    with pytest.RaisesGroup(OSError):
        await run([OSError("no such program")], 10)


async def test_a_new_one_takes_the_place_and_the_old_one_stops(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, [(0.0, 1e9), (2.0, 1e9)])
        place = world.place()
        assert await place.renew(5.0)  # nobody is there yet
        nursery.start_soon(place.keep)
        await place.first_ready.wait()
        assert await place.renew(5.0)
        await trio.sleep(5)
        assert world.started == [0.0, 0.0]
        old, new = world.workers
        assert old.stopped
        assert not new.stopped
        assert id(place.worker) == id(new)
        assert world.ports == 1
        assert world.after_crash == [False, False]
        nursery.cancel_scope.cancel()
    place.close()


@pytest.mark.parametrize("step", [(0.0, 0), (None, 100.0), OSError("no memory")])
async def test_a_new_one_that_does_not_serve_leaves_the_old_one_where_it_is(
    autojump_clock: MockClock, step: Any
) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, [(0.0, 1e9), step])
        place = world.place()
        nursery.start_soon(place.keep)
        await place.first_ready.wait()
        assert not await place.renew(5.0)
        assert id(place.worker) == id(world.workers[0])
        assert not world.workers[0].stopped
        nursery.cancel_scope.cancel()
    place.close()


async def test_one_that_dies_while_its_successor_starts_has_one_successor(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery, [(0.0, 1.0), (2.0, 1e9)])
        place = world.place()
        nursery.start_soon(place.keep)
        await place.first_ready.wait()
        assert await place.renew(5.0)
        await trio.sleep(10)
        assert len(world.started) == 2
        nursery.cancel_scope.cancel()
    place.close()
