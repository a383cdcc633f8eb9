"""Media types: what a client accepts, and what a body says it is.

Source: RFC 9110, sections 8.3 and 12.5.1; specification, basic/transports/streamable-http,
"Sending Messages".
"""

import re
from typing import Final

import attrs

from mcp_trio.protocol.headers import TCHARS, Headers

__all__ = [
    "JSON",
    "SSE",
    "Accepts",
    "MediaType",
    "accepts",
    "is_json",
    "is_sse",
    "parse_media_type",
]

JSON: Final = "application/json"
SSE: Final = "text/event-stream"

_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_TYPE: Final = re.compile(rf"[ \t]*({TCHARS})/({TCHARS})", re.ASCII)
_PARAMETER: Final = re.compile(
    rf"[ \t]*;[ \t]*(?:({TCHARS})=({TCHARS}|{_QUOTED}))?", re.ASCII | re.DOTALL
)
_WEIGHT: Final = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?", re.ASCII)


@attrs.frozen
class MediaType:
    """A media type or range, in lower case, with its parameters by lower-case name."""

    type: str
    subtype: str
    parameters: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Accepts:
    """Which of the two forms of an answer a client takes."""

    json: bool
    sse: bool


def accepts(headers: Headers) -> Accepts:
    """Read the `Accept` lines of a request.

    Without any, everything is accepted. The most specific range that covers a type decides,
    and a weight of 0 refuses it. An entry that cannot be read accepts nothing.
    """
    lines = [line for line in headers.get_all("accept") if line]
    if not lines:
        return Accepts(json=True, sse=True)
    ranges = [
        (entry, weight)
        for line in lines
        for entry in _entries(line)
        if (weight := _weight(entry)) is not None
    ]
    return Accepts(json=_covers(ranges, JSON), sse=_covers(ranges, SSE))


def is_json(content_type: str | None) -> bool:
    """Whether a Content-Type is that of JSON in UTF-8; other parameters do not matter."""
    return _is(content_type, JSON)


def is_sse(content_type: str | None) -> bool:
    """Whether a Content-Type is that of a stream of server-sent events."""
    return _is(content_type, SSE)


def parse_media_type(value: str) -> MediaType | None:
    """Read one media type with its parameters; None if it is malformed."""
    entry, end = _parse(value, 0)
    return entry if not value[end:].strip(" \t") else None


def _is(content_type: str | None, wanted: str) -> bool:
    entry = parse_media_type(content_type) if content_type is not None else None
    if entry is None or f"{entry.type}/{entry.subtype}" != wanted:
        return False
    return entry.parameters.get("charset", "utf-8").lower() == "utf-8"


def _parse(text: str, start: int) -> tuple[MediaType | None, int]:
    """Read a media type at a position; the type, if it is one, and where it ends."""
    match = _TYPE.match(text, start)
    if match is None:
        return None, start
    entry = MediaType(match[1].lower(), match[2].lower())
    end = match.end()
    while parameter := _PARAMETER.match(text, end):
        end = parameter.end()
        name, value = parameter[1], parameter[2]
        if name is None:
            continue  # an empty parameter, which RFC 9110 tolerates
        if name.lower() in entry.parameters:
            return None, end
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
        entry.parameters[name.lower()] = value
    return entry, end


def _entries(line: str) -> list[MediaType]:
    """The members of a comma-separated list that can be read."""
    found: list[MediaType] = []
    start = 0
    while start < len(line):
        entry, end = _parse(line, start)
        separator = line.find(",", end)
        stop = len(line) if separator < 0 else separator
        if entry is not None and not line[end:stop].strip(" \t"):
            found.append(entry)
        start = stop + 1
    return found


def _weight(entry: MediaType) -> float | None:
    text = entry.parameters.get("q", "1")
    return float(text) if _WEIGHT.fullmatch(text) else None


def _covers(ranges: list[tuple[MediaType, float]], wanted: str) -> bool:
    kind, _, subtype = wanted.partition("/")
    for pattern in ((kind, subtype), (kind, "*"), ("*", "*")):
        weights = [weight for entry, weight in ranges if (entry.type, entry.subtype) == pattern]
        if weights:
            return max(weights) > 0
    return False
