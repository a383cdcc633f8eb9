"""Between bytes, plain JSON values and the protocol's types.

JSON is read and written strictly. msgspec already refuses NaN, broken UTF-8 and lone surrogates
when it reads, and keeps integers exact. What it would do quietly is refused here: nesting that
would exhaust the stack of whoever walks the value later, and, when writing, everything that JSON
cannot hold (msgspec would write `null` for NaN, Base64 for bytes, a list for a set).
"""

import math
from typing import Any, Final

import msgspec

from mcp_trio import errors

__all__ = ["MAX_DEPTH", "DecodeError", "EncodeError", "decode_json", "encode_json"]

MAX_DEPTH: Final = 200
"""How deep objects and arrays may nest, in what is read and in what is written."""

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()

# Weaker peers split text at these; JSON allows their escaped form everywhere they can occur.
_LINE_BREAKS: Final = (
    (b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2\x80\xa9", rb"\u2029"),
    (b"\xc2\x85", rb"\u0085"),
)


class EncodeError(errors.McpError, ValueError):
    """A value that JSON cannot hold; the message says where it stands and what it is."""


class DecodeError(errors.McpError, ValueError):
    """A JSON value that is not of the type asked for; the message says where and why."""


def decode_json(data: bytes | bytearray | memoryview) -> Any:
    """Parse JSON text.

    Raises:
        errors.ParseError: it is not JSON, not UTF-8, holds a number that no float can, or nests
            deeper than `MAX_DEPTH`.
    """
    try:
        value = _decoder.decode(data)
    except msgspec.DecodeError as problem:
        # msgspec's text for a lone surrogate ("truncated") misleads, so it stays in the cause.
        raise errors.ParseError("not valid JSON") from problem
    except RecursionError:
        raise errors.ParseError("JSON nested too deeply") from None
    # A value cannot be deeper than it has opening brackets, and most have few.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _depth_exceeds(value, MAX_DEPTH):
        raise errors.ParseError(f"JSON nested more than {MAX_DEPTH} deep")
    return value


def encode_json(value: Any) -> bytes:
    """Write a plain value (dict with string keys, list, tuple, str, int, float, bool, None).

    Raises:
        EncodeError: somewhere in it is something JSON cannot hold.
    """
    _check(value)
    try:
        data = _encoder.encode(value)
    except UnicodeEncodeError:
        raise EncodeError("a string holds a lone surrogate") from None
    for raw, escaped in _LINE_BREAKS:
        if raw in data:
            data = data.replace(raw, escaped)
    return data


def _check(value: Any) -> None:
    """Find what msgspec would quietly turn into something else. Iterative: depth is bounded."""
    level: list[tuple[str, Any]] = [("", value)]
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return
        level = [child for path, item in level for child in _children(path, item)]
    raise EncodeError(f"nested more than {MAX_DEPTH} deep")


def _children(path: str, value: Any) -> list[tuple[str, Any]]:
    kind = type(value)
    if kind is dict:
        for key in value:
            if not isinstance(key, str):
                raise EncodeError(f"{path or 'value'}: the key {key!r} is not a string")
        return [
            (f"{path}.{key}" if path else key, item)
            for key, item in value.items()
            if type(item) not in _PLAIN
        ]
    if kind is list or kind is tuple:
        return [
            (f"{path}[{index}]", item)
            for index, item in enumerate(value)
            if type(item) not in _PLAIN
        ]
    if kind is float:
        if not math.isfinite(value):
            raise EncodeError(f"{path or 'value'}: {value!r} is not a JSON number")
        return []
    if kind in _PLAIN or (isinstance(value, str | int) and not isinstance(value, bytes)):
        return []
    raise EncodeError(f"{path or 'value'}: {kind.__name__} has no JSON form")


_PLAIN: Final = frozenset({str, int, bool, type(None)})


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True
