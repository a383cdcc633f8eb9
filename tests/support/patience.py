"""How long a test waits for a real process before it says that something hangs."""

import os


def at_most(seconds: float) -> float:
    """A limit that tells a wait that was skipped or doubled, not how fast this machine is.

    Three times what an idle machine is allowed, and more on one that has more to do than it has
    processors for.
    """
    return 3 * seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
