"""Reading a JSON value as what a type says, strictly, and saying where it does not fit.

Nothing is coerced but an integer where a float is asked for and a float without a fraction where
an integer is, as JSON Schema has it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from mcp_trio import codec, errors

__all__ = [
    "QUICK",
    "REPORTED",
    "SCALARS",
    "Mismatch",
    "Reader",
    "TypeSpec",
    "exact_type",
    "expected",
    "read_fields",
    "read_items",
    "read_text",
    "show",
    "under",
]

REPORTED: Final = 10
"""How many things that are wrong with a value are named at once."""

Reader = Callable[[Any, str], Any]
"""Turns a JSON value, found at a path, into the Python one, or raises `Mismatch`.

Values mostly fit, and to note where one is looking costs more than to look. So a reader of
something with parts reads them with the path `QUICK` first, and only where one does not fit
looks again for what to say. Read with `QUICK` itself, it leaves it at the first look: who asked
so looks again.
"""

QUICK: Final = "?"
"""Stands for a path, by identity, where nobody wants to know it."""


class Mismatch(ValueError):
    """A value is not what its schema says.

    Attributes:
        problems: what is wrong, as pairs of where (``rooms[2].name``; empty for the whole) and
            why.
    """

    problems: tuple[tuple[str, str], ...]

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.problems = ((path, reason),)

    @classmethod
    def of(cls, problems: Iterable[tuple[str, str]]) -> "Mismatch":
        """Make one of several; there is at least one."""
        first, *rest = problems
        made = cls(*first)
        made.problems = (first, *rest)
        return made

    def below(self, path: str) -> "Mismatch":
        """The same about a part of something larger."""
        return Mismatch.of(
            (at if not path else path + at if at.startswith("[") else under(path, at), reason)
            if at
            else (path, reason)
            for at, reason in self.problems
        )

    @property
    def path(self) -> str:
        """Where the first problem is."""
        return self.problems[0][0]

    @property
    def reason(self) -> str:
        """Why it is one."""
        return self.problems[0][1]

    def __str__(self) -> str:
        return "; ".join(
            f"{path}: {reason}" if path else reason for path, reason in self.problems[:REPORTED]
        )


@attrs.frozen
class TypeSpec:
    """What one annotation comes to.

    Attributes:
        schema: the JSON Schema.
        read: reads values that fit it.
        glance: raises `Mismatch` for values that `read` would refuse, as far as that can be seen
            without looking at their parts. A union asks it first: where classes contain one
            another, reading each as each would take time without bounds.
    """

    schema: dict[str, Any]
    read: Reader
    glance: Reader | None = None


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


def read_items(value: list[Any], path: str, readers: Iterable[Reader]) -> list[Any]:
    """Read the items of an array one by one, and report everything that is wrong."""
    made: list[Any] = []
    problems: list[tuple[str, str]] = []
    for at, (item, read) in enumerate(zip(value, readers, strict=False)):
        try:
            made.append(read(item, f"{path}[{at}]"))
        except Mismatch as problem:
            problems += problem.problems
            if len(problems) >= REPORTED:
                break
    if problems:
        raise Mismatch.of(problems)
    return made


def read_fields(
    value: dict[str, Any],
    path: str,
    readers: Mapping[str, Reader],
    required: Sequence[str],
    read_more: Reader | None,
) -> dict[str, Any]:
    """Read the members of an object, and report everything that is wrong, not only the first."""
    made: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for name, member in value.items():
        at = under(path, name)
        read = readers.get(name, read_more)
        if read is None:
            problems.append((at, "unexpected"))
            continue
        try:
            made[name] = read(member, at)
        except Mismatch as problem:
            problems += problem.problems
    problems += [(under(path, name), "missing") for name in required if name not in value]
    if problems:
        raise Mismatch.of(problems)
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


_LONG: Final = 60

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


_EXACT: Final[Mapping[Reader, type]] = {
    _read_str: str,
    _read_bool: bool,
    _read_int: int,
    _read_float: float,
}


def exact_type(read: Reader) -> type | None:
    """The class whose own instances a reader returns as they are; None if there is no such."""
    return _EXACT.get(read)


def under(path: str, name: str) -> str:
    """The path of a member; a long name is cut, for it came from outside."""
    if len(name) > _LONG:
        name = name[: _LONG - 3] + "..."
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
    if isinstance(value, str):
        start = value[: _LONG + 1].encode(errors="replace").decode()
        text = codec.encode_json(start).decode()
    elif isinstance(value, int) and value.bit_length() > _LONG:
        return "a large number"
    else:
        text = repr(value)
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."
