"""Reading a JSON value as what a type says, strictly, and saying where it does not fit.

Nothing is coerced but an integer where a float is asked for and a float without a fraction where
an integer is, as JSON Schema has it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from mcp_trio import codec, errors

__all__ = [
    "SCALARS",
    "Mismatch",
    "Reader",
    "TypeSpec",
    "expected",
    "read_fields",
    "read_text",
    "show",
    "under",
]

_REPORTED: Final = 10

Reader = Callable[[Any, str], Any]
"""Turns a JSON value, found at a path, into the Python one, or raises `Mismatch`."""


class Mismatch(ValueError):
    """A value is not what its schema says.

    Attributes:
        path: where, as in ``rooms[2].name``; empty for the whole.
        reason: what is wrong with it.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


@attrs.frozen
class TypeSpec:
    """What one annotation comes to."""

    schema: dict[str, Any]
    read: Reader


def read_text(read: Reader, text: str, path: str) -> Any:
    """Read a value that could only be sent as text: a prompt's argument, a URI's variable.

    The text itself is tried first; then, where the type wants something else, what it says
    as JSON (``5``, ``true``).
    """
    try:
        return read(text, path)
    except Mismatch as problem:
        try:
            value = codec.decode_json(text.encode())
        except (errors.ParseError, UnicodeEncodeError):
            raise problem from None
        return read(value, path)


def read_fields(
    value: dict[str, Any],
    path: str,
    readers: Mapping[str, Reader],
    required: Sequence[str],
    read_more: Reader | None,
) -> dict[str, Any]:
    """Read the members of an object, and report everything that is wrong, not only the first."""
    made: dict[str, Any] = {}
    problems: list[str] = []
    for name, member in value.items():
        at = under(path, name)
        read = readers.get(name, read_more)
        if read is None:
            problems.append(f"{at}: unexpected")
            continue
        try:
            made[name] = read(member, at)
        except Mismatch as problem:
            problems.append(str(problem))
    problems += [f"{under(path, name)}: missing" for name in required if name not in value]
    if problems:
        raise Mismatch("", "; ".join(problems[:_REPORTED]))
    return made


def _read_str(value: Any, path: str) -> str:
    if type(value) is str:
        return value
    raise expected("a string", value, path)


def _read_bool(value: Any, path: str) -> bool:
    if type(value) is bool:
        return value
    raise expected("true or false", value, path)


def _read_int(value: Any, path: str) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise expected("an integer", value, path)


def _read_float(value: Any, path: str) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise Mismatch(path, "too large a number") from None
    raise expected("a number", value, path)


def _read_none(value: Any, path: str) -> None:
    if value is not None:
        raise expected("null", value, path)


def _read_anything(value: Any, path: str) -> Any:
    return value


SCALARS: Final[dict[Any, TypeSpec]] = {
    str: TypeSpec({"type": "string"}, _read_str),
    bool: TypeSpec({"type": "boolean"}, _read_bool),
    int: TypeSpec({"type": "integer"}, _read_int),
    float: TypeSpec({"type": "number"}, _read_float),
    None: TypeSpec({"type": "null"}, _read_none),
    type(None): TypeSpec({"type": "null"}, _read_none),
    Any: TypeSpec({}, _read_anything),
    object: TypeSpec({}, _read_anything),
}


def under(path: str, name: str) -> str:
    """The path of a member."""
    return f"{path}.{name}" if path else name


def expected(what: str, value: Any, path: str) -> Mismatch:
    """The exception for a value of the wrong type."""
    return Mismatch(path, f"expected {what}, got {show(value)}")


def show(value: Any) -> str:
    """A value as a model may read it: short, as JSON."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and not math.isfinite(value):
        return "no number"
    text = repr(value)
    if isinstance(value, str):
        text = codec.encode_json(value.encode(errors="replace").decode()).decode()
    return text if len(text) <= 60 else text[:57] + "..."
