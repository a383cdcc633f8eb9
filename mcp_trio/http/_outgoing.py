"""The headers of a client's request."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_trio.http import _target
from mcp_trio.protocol import headers as protocol_headers
from mcp_trio.protocol import media, meta, versions

__all__ = ["Given", "check_headers", "request_headers"]

Given = Mapping[str, str] | Iterable[tuple[str, str]]

_OURS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        protocol_headers.METHOD_HEADER.lower(),
        protocol_headers.NAME_HEADER.lower(),
        protocol_headers.VERSION_HEADER.lower(),
    }
)
_OUR_PREFIX: Final = protocol_headers.PARAM_PREFIX.lower()
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def check_headers(given: Given) -> list[tuple[str, str]]:
    """Headers that somebody wants to have sent.

    Raises:
        ValueError: they are the protocol's own, or cannot be sent.
    """
    headers = list(given.items()) if isinstance(given, Mapping) else list(given)
    for name, value in headers:
        if not protocol_headers.is_token(name):
            raise ValueError(f"not a header name: {name!r}")
        if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIX):
            raise ValueError(f"the header {name} is the protocol's own")
        # Not shown: it may be a secret with a newline at its end.
        if not _VALUE.fullmatch(value) or value != value.strip():
            raise ValueError(f"the value of the header {name} has characters no header may have")
    return headers


def request_headers(
    target: _target.Target,
    method: str,
    params: Mapping[str, Any],
    mirrored: Mapping[str, object],
    length: int,
) -> list[tuple[str, str]]:
    """What the protocol wants to have sent with a request.

    Raises:
        errors.LocalProtocolError: the request cannot be expressed in headers.
    """
    version = meta.read_version(params) or versions.LATEST
    return [
        ("Host", target.authority),
        ("Accept", f"{media.JSON}, {media.SSE}"),
        ("Accept-Encoding", "identity"),
        ("Content-Type", media.JSON),
        ("Content-Length", str(length)),
        *protocol_headers.build_headers(method, params, version),
        *protocol_headers.build_param_headers(mirrored),
    ]
