"""What goes wrong in a handler: what passes, what is answered, and how it is put in words."""

from typing import Final

import trio

from mcp_trio._causes import leaves

__all__ = ["PASSING", "describe", "take_apart"]

PASSING: Final = (KeyboardInterrupt, SystemExit, GeneratorExit, trio.Cancelled)
"""What is nobody's answer, and goes on through everything."""

_SHOWN = 5


def take_apart(problem: BaseException) -> BaseException:
    """The one cause behind an exception, or the group itself where there are several.

    A handler may run a nursery, and then one failure arrives in a group. A group that holds one
    of `PASSING` is that one: a request that is cancelled while one of its tasks fails is
    cancelled. It is raised.
    """
    found = leaves(problem)
    for kind in PASSING:
        for leaf in found:
            if isinstance(leaf, kind):
                raise leaf
    return found[0] if len(found) == 1 else problem


def describe(problem: BaseException) -> str:
    """Name an exception and say its message, for whoever made the request."""
    found = leaves(problem)
    text = "; ".join(_describe_one(leaf) for leaf in found[:_SHOWN])
    if len(found) > _SHOWN:
        text += f"; and {len(found) - _SHOWN} more"
    # The message can hold what came from a file name or a broken peer.
    return text.encode("utf-8", "replace").decode()


def _describe_one(problem: BaseException) -> str:
    name = type(problem).__name__
    try:
        message = str(problem)
    except Exception:  # noqa: BLE001 - a message that cannot be made is no message
        message = ""
    return f"{name}: {message}" if message else name
