"""How what serves is told to stop, and how it is told to be quick about it."""

from collections.abc import Awaitable, Callable

import trio

__all__ = ["Stopping"]


class Stopping:
    """That something is to stop.

    Attributes:
        wanted: set once it is.
        drain: the scope for what is done gracefully then; whoever stops runs it.
    """

    def __init__(self) -> None:
        self.wanted = trio.Event()
        self.drain = trio.CancelScope()

    def stop(self) -> None:
        """Begin to stop; once is enough."""
        self.wanted.set()

    def signalled(self) -> None:
        """Stop at the first signal, and at once at the second."""
        if self.wanted.is_set():
            self.drain.cancel()
        self.stop()

    async def stop_after(self, trigger: Callable[[], Awaitable[object]]) -> None:
        """Stop when the trigger returns."""
        await trigger()
        self.stop()
