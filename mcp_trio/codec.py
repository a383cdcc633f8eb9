"""Between bytes, plain JSON values and the protocol's types.

`decode_json` and `encode_json` read and write JSON strictly. msgspec already refuses NaN, broken
UTF-8 and lone surrogates when it reads, and keeps integers exact. What it would do quietly is
refused here: nesting that would exhaust the stack of whoever walks the value later, and, when
writing, everything that JSON cannot hold (msgspec would write `null` for NaN, Base64 for bytes, a
list for a set).

`structure` and `unstructure` go between JSON values and the classes of `mcp_trio.types`, with the
hooks of `mcp_trio._converter`.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, overload

import msgspec

from mcp_trio import _converter, errors, types

__all__ = [
    "MAX_DEPTH",
    "DecodeError",
    "EncodeError",
    "decode_json",
    "encode_json",
    "structure",
    "unstructure",
]

T = TypeVar("T")

MAX_DEPTH: Final = 200
"""How deep objects and arrays may nest, in what is read and in what is written."""

# Weaker peers split text at these; JSON allows their escaped form everywhere they can occur.
_LINE_BREAKS: Final = (
    (b"\xe2", b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2", b"\xe2\x80\xa9", rb"\u2029"),
    (b"\x85", b"\xc2\x85", rb"\u0085"),
)


class EncodeError(errors.McpError, ValueError):
    """A value that JSON cannot hold; the message says where it stands and what it is."""


class DecodeError(errors.McpError, ValueError):
    """A JSON value that is not of the type asked for; the message says where and why.

    Attributes:
        path: where in the value, such as ``content[0].text``; empty for the value itself.
        reason: what is wrong there.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


def decode_json(data: bytes | bytearray | memoryview) -> Any:
    """Parse JSON text.

    Raises:
        errors.ParseError: it is not JSON, not UTF-8, holds a number that no float can, or nests
            deeper than `MAX_DEPTH`.
    """
    if isinstance(data, memoryview):
        data = data.tobytes()
    try:
        value = _decoder.decode(data)
    except msgspec.DecodeError as problem:
        # msgspec's text for a lone surrogate ("truncated") misleads, so it stays in the cause.
        raise errors.ParseError("not valid JSON") from problem
    except RecursionError:
        raise errors.ParseError("JSON nested too deeply") from None
    # A value cannot be deeper than it has opening brackets, and most have few.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _is_too_deep(value):
        raise errors.ParseError(f"JSON nested more than {MAX_DEPTH} deep")
    return value


def _is_too_deep(value: Any) -> bool:
    """Walk one level after the other, so that a wide value costs no stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is dict else item)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


def encode_json(value: Any) -> bytes:
    """Write a plain value: dicts with string keys, lists, tuples, str, int, float, bool, None.

    Subclasses of these are written like what they derive from. The classes of `mcp_trio.types`
    are not plain: `unstructure` them first.

    Raises:
        EncodeError: somewhere in it is something JSON cannot hold, or it nests deeper than
            `MAX_DEPTH`.
    """
    if not _is_sound((value,), 0) and (found := _complaint("", value, 1)):
        raise EncodeError(found)
    try:
        data = _encoder.encode(value)
    except ValueError as problem:  # a lone surrogate, or an integer of too many digits
        raise EncodeError(_complaint("", value, 1) or str(problem)) from None
    if not data.isascii():
        for first, raw, escaped in _LINE_BREAKS:
            if first in data:  # to look for one byte is much faster
                data = data.replace(raw, escaped)
    return data


def _derived(value: Any) -> Any:
    """What msgspec is to write for a subclass of a plain type that it does not know."""
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) else float(value)


_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder(enc_hook=_derived)

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_CONTAINERS: Final = (dict, list, tuple)
_SCALARS: Final = (str, int, float, type(None))


def _is_sound(items: Iterable[Any], depth: int) -> bool:
    """Whether msgspec writes all of them as they are; the fast half of `_complaint`."""
    for item in items:
        kind = type(item)
        if kind in _PLAIN:
            continue
        if kind is dict:
            if depth == MAX_DEPTH:
                return False
            for key in item:
                if type(key) is not str:
                    return False
            if not _is_sound(item.values(), depth + 1):
                return False
        elif kind is list or kind is tuple:
            if depth == MAX_DEPTH or not _is_sound(item, depth + 1):
                return False
        elif kind is not float or not math.isfinite(item):
            return False
    return True


def _complaint(path: str, value: Any, depth: int) -> str | None:
    """What JSON cannot hold, and where; None where it can hold everything."""
    where = path or "value"
    if isinstance(value, _CONTAINERS):
        if depth > MAX_DEPTH:
            return f"nested more than {MAX_DEPTH} deep"
        if isinstance(value, dict):
            steps = []
            for key, item in value.items():
                if not isinstance(key, str):
                    return f"{where}: the key {key!r} is not a string"
                if _complaint("", str(key), depth):
                    return f"{where}: the key {key!r} holds a lone surrogate"
                steps.append((f"{path}.{key}" if path else key, item))
        else:
            steps = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        for step, item in steps:
            if found := _complaint(step, item, depth + 1):
                return found
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return f"{where}: {float(value)!r} is not a JSON number"
    if not isinstance(value, _SCALARS):
        return f"{where}: {type(value).__name__} has no JSON form"
    try:
        _encoder.encode(value)
    except UnicodeEncodeError:
        return f"{where}: a string that holds a lone surrogate"
    except ValueError:
        return f"{where}: an integer of too many digits"
    return None


@overload
def structure(cls: type[T], value: Any, *, at: str = "") -> T: ...


@overload
def structure(cls: Any, value: Any, *, at: str = "") -> Any: ...


def structure(cls: Any, value: Any, *, at: str = "") -> Any:
    """Make a value of `mcp_trio.types` of a JSON value that was received.

    Strict about what is there: nothing is converted (`5` is not a string, `true` and `1.0` are
    not integers), a member of a union is chosen by its tag or by the fields it must have and
    never guessed. Tolerant of what is new or missing, as the specification asks: unknown fields
    are kept in `extra`, and a result without `resultType`, `ttlMs` or `cacheScope` is complete,
    stale at once and private. `null` in an optional field reads as None, and is kept too.

    Plain objects inside (`meta`, arguments, schemas) are taken over, not copied.

    Args:
        cls: a class or a union of `mcp_trio.types`.
        value: what `decode_json` returned, or a part of it.
        at: how the path in an error message begins, such as ``params``.

    Raises:
        DecodeError: the value is not a `cls`.
    """
    try:
        return _converter.structure(cls, value)
    except _converter.MismatchError as mismatch:
        raise DecodeError(*_converter.explain(cls, value, at, mismatch)) from None


def unstructure(value: Any) -> Any:
    """Make the JSON value that goes over the wire of a value of `mcp_trio.types`.

    Sequences become lists, fields that are None are left out, `extra` is merged in where it does
    not contradict a field. Lists, tuples and dicts are gone through in search of such values;
    everything else, and the plain objects inside a value, are returned as they are.

    Raises:
        TypeError: a string stands where a sequence of strings belongs.
    """
    if isinstance(value, types.Value):
        return _converter.unstructure(value)
    if isinstance(value, list | tuple):
        return [unstructure(item) for item in value]
    if isinstance(value, Mapping):
        return {key: unstructure(item) for key, item in value.items()}
    return value
