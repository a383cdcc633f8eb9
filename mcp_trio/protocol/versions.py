"""Revisions of the protocol, and the two eras they fall into.

A modern revision carries version and capabilities with every request. A legacy one agrees on
them once, in an `initialize` handshake. Which era a peer belongs to is a fact about the peer,
not about one request.

Source: specification, basic/versioning.
"""

import enum
import re
from collections.abc import Iterable
from typing import Final

__all__ = ["LATEST", "LEGACY", "MODERN", "SUPPORTED_VERSIONS", "Era", "choose", "era_of"]


class Era(enum.Enum):
    """How a revision agrees on version and capabilities."""

    MODERN = "modern"
    """With every request, in its `_meta` (2026-07-28 and later)."""
    LEGACY = "legacy"
    """Once, by an `initialize` handshake (2025-11-25 and earlier)."""


LATEST: Final = "2026-07-28"
"""The newest revision this package knows."""

MODERN: Final[tuple[str, ...]] = (LATEST,)
"""The modern revisions, newest first."""

LEGACY: Final[tuple[str, ...]] = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions with an `initialize` handshake, newest first."""

SUPPORTED_VERSIONS: Final[tuple[str, ...]] = MODERN
"""What a server of this package serves, newest first."""

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def era_of(version: str) -> Era | None:
    """The era of a revision; None for a string that is no revision we can place.

    A date after `LATEST` is modern: later revisions keep per-request metadata.
    """
    if version in MODERN:
        return Era.MODERN
    if version in LEGACY:
        return Era.LEGACY
    if _DATE.fullmatch(version) and version > LATEST:
        return Era.MODERN
    return None


def choose(mine: Iterable[str], theirs: Iterable[object]) -> str | None:
    """The first of `mine`, in order of preference, that is among `theirs`; None without one.

    `theirs` may come straight from the peer: what is not a string is passed over.
    """
    offered = {version for version in theirs if isinstance(version, str)}
    return next((version for version in mine if version in offered), None)
