"""What every way to run an HTTP server needs around it."""

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["gc_thresholds_set"]


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
