"""What a server says about how long, and for whom, a client may cache its results.

Source: specification, server/utilities/caching.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import attrs

__all__ = ["MAX_TTL", "CacheHints", "CacheScope", "CachedMethod", "Caching", "forbid_caching"]

CacheScope = Literal["public", "private"]
"""Who may share a cached result: anybody, or only the caller it was made for."""

CachedMethod = Literal[
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
]
"""The methods whose results can be cached."""

MAX_TTL: Final = 2**53
"""So many milliseconds nobody can mean, and not everybody can read."""


@attrs.frozen
class CacheHints:
    """How long and for whom results may be cached; None leaves it to whoever is next to say.

    Attributes:
        ttl_ms: for how many milliseconds.
        cache_scope: who may share them.

    Raises:
        ValueError: with such a hint clients would refuse the result.
    """

    ttl_ms: int | None = None
    cache_scope: CacheScope | None = None

    def __attrs_post_init__(self) -> None:
        ttl_ms = self.ttl_ms
        if ttl_ms is not None and (type(ttl_ms) is not int or not 0 <= ttl_ms < MAX_TTL):
            raise ValueError(f"ttl_ms must be an integer from 0 to 2**53, got {ttl_ms!r}")
        if self.cache_scope is not None and self.cache_scope not in get_args(CacheScope):
            raise ValueError(
                f"cache_scope is one of {get_args(CacheScope)}, got {self.cache_scope!r}"
            )


class Caching:
    """The hints of one server. They do not change, so all pages of a list have the same scope.

    Args:
        ttl_ms: for what has no hint of its own.
        cache_scope: likewise.
        hints: by method.

    Raises:
        ValueError: a hint makes no sense, or is for a method whose results cannot be cached.
    """

    def __init__(
        self, ttl_ms: int, cache_scope: CacheScope, hints: Mapping[CachedMethod, CacheHints]
    ) -> None:
        for method in hints:
            if method not in get_args(CachedMethod):
                raise ValueError(f"results of {method!r} cannot be cached")
        if ttl_ms is None or cache_scope is None:
            raise ValueError("what nothing else is said about needs ttl_ms and cache_scope")
        general = CacheHints(ttl_ms, cache_scope)
        self._hints: dict[str, tuple[int, CacheScope]] = {
            method: _first(ttl_ms, cache_scope, hints.get(method, general))
            for method in get_args(CachedMethod)
        }

    def is_public(self) -> bool:
        """Whether a result that can depend on the caller may be shared by all."""
        return any(
            scope == "public"
            for method, (_, scope) in self._hints.items()
            if method != "server/discover"
        )

    def mark(
        self, result: dict[str, Any], method: str, own: CacheHints | None = None
    ) -> dict[str, Any]:
        """Add the hints to a result just made, unless it has its own.

        Args:
            result: as the wire has it.
            method: of the request.
            own: what is said about this one result; it has precedence.
        """
        ttl_ms, scope = self._hints[method]
        if own is not None:
            ttl_ms, scope = _first(ttl_ms, scope, own)
        result.setdefault("ttlMs", ttl_ms)
        result.setdefault("cacheScope", scope)
        return result


def _first(ttl_ms: int, scope: CacheScope, hints: CacheHints) -> tuple[int, CacheScope]:
    return (
        ttl_ms if hints.ttl_ms is None else hints.ttl_ms,
        scope if hints.cache_scope is None else hints.cache_scope,
    )


def forbid_caching(result: dict[str, Any]) -> None:
    """Say of a result that nobody may keep it: what the client was asked is in no cache's key."""
    result["ttlMs"] = 0
    result["cacheScope"] = "private"
