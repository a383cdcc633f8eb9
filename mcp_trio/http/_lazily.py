"""Running a coroutine in such a way that what it needs while it waits is started only then."""

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

import trio

__all__ = ["run_lazily"]

T = TypeVar("T")


def _checkpoint_trap() -> object:
    checkpoint = trio.lowlevel.cancel_shielded_checkpoint()  # noqa: ASYNC105 (looked at, not done)
    try:
        return checkpoint.send(None)
    finally:
        checkpoint.close()


_CHECKPOINT: Final = _checkpoint_trap()
"""What a task yields to Trio when it gives others a turn and waits for nothing."""

MAX_TURNS: Final = 10
"""How often a coroutine may give others a turn before it counts as one that waits."""


@types.coroutine
def run_lazily(
    coroutine: Coroutine[Any, Any, T], on_wait: Callable[[], object]
) -> Generator[Any, Any, T]:
    """Run a coroutine in this task, and call `on_wait` before it first waits for anything.

    A checkpoint is no waiting, but many of them are. Cancellation and exceptions pass through as
    if it were awaited.
    """
    turns, waiting = 0, False
    answers: list[Any] = []
    try:
        trap = coroutine.send(None)
        while True:
            if not waiting:
                turns += 1
                if trap is not _CHECKPOINT or turns > MAX_TURNS:
                    waiting = True
                    on_wait()
            try:
                answers.append((yield trap))
            except BaseException as thrown:  # noqa: ASYNC103, BLE001 (its business, not ours)
                trap = coroutine.throw(thrown)
            else:
                # Not kept in a variable: it may hold an exception, which would hold this frame.
                trap = coroutine.send(answers.pop())
    except StopIteration as stop:
        result: T = stop.value
        return result
