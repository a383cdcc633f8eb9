"""Resource URIs: compared as exact strings, and what lies below what.

Source: specification, server/resources; schema, "ResourceUpdatedNotification".
"""

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["MAX_LEVELS", "MAX_URI_LENGTH", "ancestors", "has_scheme"]

MAX_URI_LENGTH: Final = 16_384
"""Longest URI a filter may name, in characters: a path of 4,096 bytes, percent-encoded, fits."""

MAX_LEVELS: Final = 256
"""How many levels upwards `ancestors` looks."""

_scheme = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:").match


def has_scheme(uri: str) -> bool:
    """Whether a string is an absolute URI, as far as anybody needs to know."""
    return _scheme(uri) is not None


def ancestors(uri: str) -> Iterator[str]:
    """The URIs that `uri` lies below, nearest first, each as a folder (`/`) and without.

    Counted in path segments: ``note://ab`` is not below ``note://a``. A slash in the authority's
    place, in the query or in the fragment is none; nothing is decoded or normalised.
    """
    colon = uri.find(":")
    if colon < 0 or len(uri) > 2 * MAX_URI_LENGTH:
        return
    end = len(uri)
    for mark in "?#":
        at = uri.find(mark, colon + 1, end)
        if at >= 0:
            end = at
    # The path begins at `root`. Its slash can be left off a URI that has an authority, or a
    # rootless path; what would be left otherwise is a bare scheme.
    root, shortest = colon + 1, colon + 2
    if uri.startswith("//", root):
        authority = root + 2
        root = uri.find("/", authority, end)
        if root < 0:
            return
        shortest = authority + 1
    cut = uri.rfind("/", root, end)
    for _ in range(MAX_LEVELS):
        if cut < 0:
            return
        if cut + 1 < end:
            yield uri[: cut + 1]
        # After an empty segment the next round says it.
        if cut >= shortest and uri[cut - 1] != "/":
            yield uri[:cut]
        cut = uri.rfind("/", root, cut)
