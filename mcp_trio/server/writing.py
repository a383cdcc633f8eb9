"""From Python values to the JSON values that stand for them."""

import base64
import enum
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_trio import codec, types
from mcp_trio.server.fields import attributes_of
from mcp_trio.server.scalars import WRITERS

__all__ = ["to_json"]

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def to_json(value: Any, *, typed: bool = False) -> Any:
    """A value as JSON holds it.

    Objects with fields become objects, enumerations their values; dates, times, durations, UUIDs
    and decimal numbers strings. What JSON cannot hold is left as it is, for `codec.encode_json`
    to find.

    Args:
        value: any.
        typed: whether it is known what it is meant to be. Then sets become arrays, and bytes
            Base64, which would be guesses otherwise.

    Raises:
        codec.EncodeError: a value is of a type that has a JSON form, but has none itself.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return {key: to_json(item, typed=typed) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [to_json(item, typed=typed) for item in value]
    write = _writer(kind)  # type: ignore[arg-type]  # classes are hashable
    if write is not None:
        try:
            return write(value, typed)
        except ValueError as problem:
            raise codec.EncodeError(str(problem)) from None
    if typed and isinstance(value, set | frozenset):
        return _ordered([to_json(item, typed=True) for item in value])
    if typed and isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    return value


@functools.lru_cache(maxsize=1024)
def _writer(kind: type) -> Callable[[Any, bool], Any] | None:
    """What writes the instances of a class; None if nothing is known of it."""
    for base in kind.__mro__:
        if base in WRITERS:
            write = WRITERS[base]
            return lambda value, _: write(value)
    if issubclass(kind, enum.Enum):
        return lambda value, typed: to_json(value.value, typed=typed)
    if issubclass(kind, types.Value):
        return lambda value, _: codec.unstructure(value)
    if issubclass(kind, Mapping):
        return lambda value, typed: {k: to_json(v, typed=typed) for k, v in value.items()}
    names = attributes_of(kind)
    if names is None:
        return None
    return lambda value, typed: {
        name: to_json(getattr(value, attribute), typed=typed) for name, attribute in names
    }


def _ordered(items: list[Any]) -> list[Any]:
    """In the same order each time, where the items have one."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=codec.encode_json)
