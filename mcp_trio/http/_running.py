"""What every way to run an HTTP server needs around it."""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["gc_thresholds_set", "one_cause"]


@contextlib.contextmanager
def one_cause() -> Iterator[None]:
    """Let one exception through as itself, not as a group of one."""
    cause: BaseException | None = None
    try:
        yield
    except BaseExceptionGroup as group:
        cause = group
        while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
            cause = cause.exceptions[0]
    if cause is not None:
        raise cause


@contextlib.contextmanager
def gc_thresholds_set(thresholds: tuple[int, int, int] | None) -> Iterator[None]:
    """Set the garbage collector's thresholds for a while."""
    if thresholds is None:
        yield
        return
    before = gc.get_threshold()
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*before)
