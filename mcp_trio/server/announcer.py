"""Publishes what the registries change: at once, or at the end of a batch."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from mcp_trio.subscriptions.events import (
    Event,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)

__all__ = ["Announcer"]

_ORDER = (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())


class Announcer:
    """Holds events back while a batch is open.

    Args:
        publish: called with each event that is due. From a thread that runs a handler it waits
            for Trio's thread, so no lock is held meanwhile.
    """

    def __init__(self, publish: Callable[[Event], object]) -> None:
        self._publish = publish
        self._lock = threading.Lock()
        self._depth = 0
        self._held: dict[Event, None] = {}  # in the order in which they came

    def announce(self, event: Event) -> None:
        """Publish an event, once, now or when the outermost batch ends."""
        with self._lock:
            if self._depth:
                self._held[event] = None
                return
        self._publish(event)

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Hold back what is announced in the block, and announce each event once at its end."""
        with self._lock:
            self._depth += 1
        try:
            yield
        finally:
            due: dict[Event, None] = {}
            with self._lock:
                self._depth -= 1
                if not self._depth:
                    due, self._held = self._held, due
            for event in sorted(due, key=_rank):
                self._publish(event)


def _rank(event: Event) -> int:
    """Lists first: who hears of a resource can find it there."""
    return _ORDER.index(event) if event in _ORDER else len(_ORDER)
