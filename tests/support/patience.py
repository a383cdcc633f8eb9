"""How long a test waits for a real process before it says that something hangs."""

import os
from collections.abc import Awaitable, Callable


def at_most(seconds: float) -> float:
    """A limit that tells a wait that was skipped or doubled, not how fast this machine is.

    Three times what an idle machine is allowed, and more on one that has more to do than it has
    processors for.
    """
    return 3 * seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


async def in_time(seconds: float, attempt: Callable[[], Awaitable[float]]) -> None:
    """Hold a process to a limit, in one of three attempts.

    Everything but the time has to be right each time. The limit is stretched on a machine that
    has more to do than it has processors for: nobody can promise anything for that.
    """
    stretched = seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    took = []
    for _ in range(3):
        took.append(await attempt())
        if took[-1] < stretched:
            return
    raise AssertionError(f"not within {stretched:.2f} s but {took}")
