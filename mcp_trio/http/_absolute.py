"""Request targets in absolute form: the form for proxies, which every server has to take.

Source: RFC 9112, 3.2.2.
"""

import re
from typing import Final

__all__ = ["in_origin_form"]

_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE)

Headers = list[tuple[bytes, bytes]]


def in_origin_form(target: bytes, headers: Headers) -> tuple[bytes, Headers]:
    """Path and query of a target, with the host it names in the place of the Host header.

    Any other target, and its headers, are returned as they are.
    """
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        return target, headers
    authority, target = absolute.groups()
    others = [header for header in headers if header[0] != b"host"]
    return target if target.startswith(b"/") else b"/" + target, [(b"host", authority), *others]
