"""The processes that a child of ours has started: they end when it does."""

import os
import signal
from typing import Final

import trio

__all__ = ["ProcessGroup", "fate_of"]

_LEFTOVERS: Final = 0.25
"""Seconds that helper processes get after SIGTERM, when the child itself has ended already."""
_KILLED: Final = 0.1
"""Seconds for them to vanish after SIGKILL. Where nobody reaps orphans, they never do."""


def fate_of(status: int) -> str:
    """How a process has ended, in words."""
    if status >= 0:
        return f"has exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


class ProcessGroup:
    """The group of a child that was started in a session of its own.

    The leader of a session has its group's number, and keeps it even when it has ended.

    Args:
        leader: the child's process id.
    """

    def __init__(self, leader: int) -> None:
        self._number = leader

    def signal(self, number: int) -> bool:
        """Signal the whole group; whether there was anybody in it."""
        try:
            os.killpg(self._number, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            # Those left have become another user. There is nothing that we could do to them.
            return False
        return True

    async def sweep(self) -> None:
        """End what a child that has ended has left behind. Takes at most 0.4 s."""
        for number, seconds in ((signal.SIGTERM, _LEFTOVERS), (signal.SIGKILL, _KILLED)):
            if not self.signal(number):
                break
            with trio.move_on_after(seconds):
                while True:  # there is nothing to wait on: they are no children of ours
                    await trio.sleep(0.01)
                    if not self.signal(0):
                        break
        await trio.lowlevel.checkpoint()
