"""What types that are made of others come to: their schema, and what reads their values.

Source: specification, basic/index, "JSON Schema Usage".
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, TypeVar

from mcp_trio import codec, types
from mcp_trio.server.readers import (
    QUICK,
    Mismatch,
    Reader,
    TypeSpec,
    exact_type,
    expected,
    read_fields,
    read_items,
    show,
    under,
)

__all__ = [
    "array_spec",
    "choices_spec",
    "mapping_spec",
    "object_spec",
    "protocol_spec",
    "tuple_spec",
    "union_spec",
]


T = TypeVar("T")

_REFUSALS: Final = (AssertionError, TypeError, ValueError)
"""With what a class refuses its arguments: a validator, a `__post_init__`."""


class _OrElse(dict[str, T]):
    """Values by name, and one for every other name."""

    def __init__(self, named: Mapping[str, T], other: T) -> None:
        super().__init__(named)
        self._other = other

    def __missing__(self, name: str) -> T:
        return self._other


def object_spec(
    schema: dict[str, Any],
    readers: Mapping[str, Reader],
    more: TypeSpec | None,
    make: Callable[..., Any],
) -> TypeSpec:
    """An object with named members, made by calling `make` with them as keywords.

    Args:
        schema: of it, with its properties and what of them is required.
        readers: of its members, by name.
        more: what any other member is; None allows none.
        make: makes what it is read as.
    """
    required: list[str] = schema.get("required", [])
    needed = frozenset(required)
    read_more = None if more is None else more.read
    # What is one of a few values tells which of several classes is meant.
    properties = schema.get("properties", {})
    tags = [name for name in readers if "enum" in properties[name]]
    # Most values are taken as they are, which is seen sooner than asked.
    exact = {name: exact_type(read) for name, read in readers.items()}
    known = dict(readers)
    if read_more is not None:
        exact, known = _OrElse(exact, exact_type(read_more)), _OrElse(known, read_more)
    size = len(readers) if read_more is None else -1  # so many of them are all of them

    def read(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise expected("an object", value, path)
        members: dict[str, Any] = value
        fits = True
        try:
            for name, item in value.items():
                if type(item) is not exact[name]:
                    made = known[name](item, QUICK)
                    if made is not item:
                        members = value.copy() if members is value else members
                        members[name] = made
        except (KeyError, Mismatch):
            fits = False
        if not fits or (len(value) != size and not needed <= value.keys()):
            if path is QUICK:
                raise Mismatch(path, "does not fit")
            members = read_fields(value, path, readers, required, read_more)
        if make is dict:
            return value.copy() if members is value else members
        try:
            return make(**members)
        except _REFUSALS as problem:
            # A class can ask for more than its types say, and its words are for the client.
            raise Mismatch(path, str(problem) or type(problem).__name__) from problem

    def glance(value: Any, path: str) -> None:
        if type(value) is not dict:
            raise expected("an object", value, path)
        for name in tags:
            if name in value:
                readers[name](value[name], path if path is QUICK else under(path, name))
        for name in required:
            if name not in value:
                raise Mismatch(under(path, name), "missing")
        if read_more is None:
            for name in value:
                if name not in readers:
                    raise Mismatch(under(path, name), "unexpected")

    return TypeSpec(schema, read, glance)


def _read_quickly(read: Reader, value: Any) -> Any:
    return read(value, QUICK)


def protocol_spec(kind: type[types.Value]) -> TypeSpec:
    """A value of a class of the protocol."""

    def read(value: Any, path: str) -> Any:
        try:
            return codec.structure(kind, value, at=path)
        except codec.DecodeError as problem:
            raise Mismatch(problem.path, problem.reason) from None

    return TypeSpec({"type": "object"}, read)


def array_spec(item: TypeSpec, make: Callable[[list[Any]], Any]) -> TypeSpec:
    """An array of any length, of which something is made."""
    schema: dict[str, Any] = {"type": "array", "items": item.schema}
    unique = make in (set, frozenset)
    if unique:
        schema["uniqueItems"] = True
    read_item = item.read
    exact = exact_type(read_item)

    def read(value: Any, path: str) -> Any:
        if type(value) is not list:
            raise expected("an array", value, path)
        try:
            items = [
                member if type(member) is exact else read_item(member, QUICK) for member in value
            ]
        except Mismatch:
            if path is QUICK:
                raise
            items = read_items(value, path, repeat(read_item))
        if make is list:
            return items
        try:
            made = make(items)
        except TypeError:
            raise Mismatch(path, "holds what cannot be in a set") from None
        if unique and len(made) != len(items):
            raise Mismatch(path, "holds an item twice")
        return made

    return TypeSpec(schema, read)


def tuple_spec(specs: Sequence[TypeSpec]) -> TypeSpec:
    """An array of a fixed length, each place with a type of its own."""
    size = len(specs)
    readers = [spec.read for spec in specs]

    def read(value: Any, path: str) -> Any:
        if type(value) is not list or len(value) != size:
            raise expected(f"an array of {size} items", value, path)
        if path is QUICK:
            return tuple(map(_read_quickly, readers, value))
        return tuple(read_items(value, path, readers))

    schema = {
        "type": "array",
        "prefixItems": [spec.schema for spec in specs],
        "items": False,
        "minItems": size,
    }
    return TypeSpec(schema, read)


def mapping_spec(item: TypeSpec) -> TypeSpec:
    """An object with any keys."""
    read_item = item.read

    def read(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise expected("an object", value, path)
        try:
            return {name: read_item(member, QUICK) for name, member in value.items()}
        except Mismatch:
            if path is QUICK:
                raise
            return read_fields(value, path, {}, (), read_item)

    return TypeSpec({"type": "object", "additionalProperties": item.schema}, read)


def union_spec(specs: Sequence[TypeSpec]) -> TypeSpec:
    """A value that is one of several things; the first that fits."""
    solid = [spec for spec in specs if spec.schema != {"type": "null"}]
    schema = {"anyOf": [spec.schema for spec in specs]}
    optional = len(solid) < len(specs)
    if optional and len(solid) == 1:
        read_it = solid[0].read
        return TypeSpec(schema, lambda value, path: None if value is None else read_it(value, path))

    def read(value: Any, path: str) -> Any:
        if value is None and optional:
            return None
        problems = []
        for spec in solid:
            try:
                if spec.glance is not None:
                    spec.glance(value, path)
                return spec.read(value, path)
            except Mismatch as problem:
                problems.append(problem)
        # Where all but one say that it is of another kind, that one is what was meant.
        closest = [problem for problem in problems if problem.path != path]
        if len(closest) == 1:
            raise closest[0]
        raise Mismatch(path, "; or ".join(dict.fromkeys(_alone(p, path) for p in problems)))

    return TypeSpec(schema, read)


def _alone(problem: Mismatch, path: str) -> str:
    """The words of a mismatch, with where it is if that is deeper than a path."""
    return problem.reason if problem.path == path else str(problem)


def choices_spec(choices: Sequence[tuple[Any, Any]]) -> TypeSpec:
    """One of a few JSON values; each with what it is read as."""
    values = [value for value, _ in choices]
    by_exact = {_exact(value): meant for value, meant in choices}
    for value in values:
        if not isinstance(value, str | int | float | None) or not _has_json_form(value):
            raise TypeError(f"the choice {value!r} has no JSON form")
    listed = [value if value is None else _plain(value) for value in values]
    text = ", ".join(map(show, listed))

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, dict | list) and _exact(value) in by_exact:
            return by_exact[_exact(value)]
        raise expected(f"one of {text}", value, path)

    kinds = {_CHOICE_TYPES.get(type(value)) for value in listed}
    kind = kinds.pop() if len(kinds) == 1 else None
    return TypeSpec({"enum": listed} if kind is None else {"type": kind, "enum": listed}, read)


_CHOICE_TYPES: Final = {str: "string", int: "integer", bool: "boolean"}


def _plain(value: str | float) -> str | float:
    """Without the class that a StrEnum's or an IntEnum's value may carry."""
    kinds: tuple[type[str | float], ...] = (bool, str, int, float)
    return next(kind(value) for kind in kinds if isinstance(value, kind))


def _exact(value: Any) -> tuple[object, Any]:
    """A key that keeps true and 1 apart, though not 1 and 1.0: to JSON Schema they are equal."""
    kind = next((kind for kind in (bool, int | float, str) if isinstance(value, kind)), None)
    return kind, value


def _has_json_form(value: Any) -> bool:
    try:
        codec.encode_json(value)
    except (codec.EncodeError, TypeError):
        return False
    return True
