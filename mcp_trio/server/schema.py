"""JSON Schema from Python types, and the reading of values against it.

One walk over an annotation makes both, so what is advertised is what is checked. Reading is
strict: nothing is coerced but an integer where a float is asked for and a float without a
fraction where an integer is, as JSON Schema has it.

Schemas that are written by hand are `raw_schema`'s.

Source: specification, server/tools, "Tool"; basic/index, "JSON Schema Usage".
"""

import collections.abc
import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcp_trio import codec
from mcp_trio.server.fields import MISSING, Field, fields_of
from mcp_trio.server.param_headers import KEYWORD, Header
from mcp_trio.server.readers import (
    SCALARS,
    Mismatch,
    Reader,
    TypeSpec,
    expected,
    read_fields,
    show,
    under,
)

__all__ = ["Builder"]


class Builder:
    """Builds the schema of one root object; classes that contain themselves become ``$defs``."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._open: dict[type, str] = {}
        self._recursive: set[type] = set()
        self._specs: dict[type, TypeSpec] = {}

    def spec(self, annotation: Any) -> TypeSpec:
        """Build for one annotation.

        Raises:
            TypeError: it is of a kind that has no JSON form here.
        """
        simple = SCALARS.get(annotation) if _hashable(annotation) else None
        if simple is not None:
            return TypeSpec(dict(simple.schema), simple.read)
        origin = typing.get_origin(annotation)
        arguments = typing.get_args(annotation)
        if origin is typing.Annotated:
            return self._annotated(arguments[0], arguments[1:])
        if origin in (typing.Required, typing.NotRequired):
            return self.spec(arguments[0])
        if origin is typing.Literal:
            return _choices(arguments, dict(zip(map(_exact, arguments), arguments, strict=True)))
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        if isinstance(annotation, typing.NewType):
            return self.spec(annotation.__supertype__)
        if hasattr(annotation, "__value__"):
            return self.spec(annotation.__value__)
        kind = origin or annotation
        if isinstance(kind, type):
            return self._of_class(kind, arguments)
        raise TypeError(f"{_show_type(annotation)} has no JSON form")

    def object(
        self, fields: Sequence[Field], make: Callable[..., Any], extra: Any = MISSING
    ) -> TypeSpec:
        """Build for an object with these fields, made by calling `make` with keywords.

        Args:
            fields: its properties.
            make: gets them as keyword arguments.
            extra: what any other property must be; `MISSING` allows none.
        """
        properties: dict[str, Any] = {}
        readers: dict[str, Reader] = {}
        required: list[str] = []
        for field in fields:
            spec = self.spec(field.annotation)
            properties[field.name] = spec.schema
            readers[field.name] = spec.read
            if field.default is MISSING:
                required.append(field.name)
            elif _has_json_form(field.default):
                # Beside a $ref, as beside everything else, 2020-12 allows it.
                properties[field.name] = {**spec.schema, "default": field.default}
        schema: dict[str, Any] = {"type": "object"}
        if properties:
            schema["properties"] = properties
        if required:
            schema["required"] = required
        more = None if extra is MISSING else self.spec(extra)
        schema["additionalProperties"] = False if more is None else more.schema
        read_more = None if more is None else more.read

        def read(value: Any, path: str) -> Any:
            if type(value) is not dict:
                raise expected("an object", value, path)
            members = read_fields(value, path, readers, required, read_more)
            try:
                return make(**members)
            except _REFUSALS as problem:
                # A class can ask for more than its types say, and its words are for the client.
                raise Mismatch(path, str(problem) or type(problem).__name__) from problem

        return TypeSpec(schema, read)

    def _annotated(self, annotation: Any, extras: tuple[Any, ...]) -> TypeSpec:
        spec = self.spec(annotation)
        more: dict[str, Any] = {}
        for extra in extras:
            if isinstance(extra, str):
                more.setdefault("description", extra)
            elif isinstance(extra, Header):
                more[KEYWORD] = extra.name
        return TypeSpec({**spec.schema, **more}, spec.read) if more else spec

    def _union(self, members: tuple[Any, ...]) -> TypeSpec:
        specs = [self.spec(member) for member in members]
        solid = [spec for spec in specs if spec.schema != {"type": "null"}]

        def read(value: Any, path: str) -> Any:
            if value is None and len(solid) < len(specs):
                return None
            problems = []
            for spec in solid:
                try:
                    return spec.read(value, path)
                except Mismatch as problem:
                    problems.append(problem)
            if len(problems) == 1:
                raise problems[0]
            raise Mismatch(path, "; or ".join(dict.fromkeys(p.reason for p in problems)))

        return TypeSpec({"anyOf": [spec.schema for spec in specs]}, read)

    def _of_class(self, kind: type, arguments: tuple[Any, ...]) -> TypeSpec:
        if issubclass(kind, enum.Enum):
            return _choices(
                [member.value for member in kind],
                {_exact(member.value): member for member in kind},
            )
        if issubclass(kind, tuple) and not hasattr(kind, "_fields"):
            return self._tuple(arguments)
        if issubclass(kind, collections.abc.Mapping) and not typing.is_typeddict(kind):
            return self._mapping(arguments)
        if kind in _ARRAYS:
            return self._array(arguments[0] if arguments else Any, _ARRAYS[kind])
        fields = fields_of(kind)
        if fields is None:
            raise TypeError(f"{_show_type(kind)} has no JSON form")
        return self._named(kind, fields)

    def _named(self, kind: type, fields: Sequence[Field]) -> TypeSpec:
        if kind in self._open:
            # A class inside itself: refer to the definition that is being built.
            self._recursive.add(kind)
            return TypeSpec(
                {"$ref": f"#/$defs/{self._open[kind]}"},
                lambda value, path: self._specs[kind].read(value, path),
            )
        name = kind.__name__
        while name in self.definitions or name in self._open.values():
            name += "_"
        self._open[kind] = name
        spec = self.object(fields, kind)
        if kind in self._recursive:
            self._specs[kind] = spec
            self.definitions[name] = spec.schema
            return TypeSpec({"$ref": f"#/$defs/{name}"}, spec.read)
        del self._open[kind]
        return spec

    def _array(self, item: Any, make: Callable[[list[Any]], Any]) -> TypeSpec:
        spec = self.spec(item)
        schema: dict[str, Any] = {"type": "array", "items": spec.schema}
        if make in (set, frozenset):
            schema["uniqueItems"] = True

        def read(value: Any, path: str) -> Any:
            if type(value) is not list:
                raise expected("an array", value, path)
            items = [spec.read(member, f"{path}[{at}]") for at, member in enumerate(value)]
            try:
                made = make(items)
            except TypeError:
                raise Mismatch(path, "holds what cannot be in a set") from None
            if "uniqueItems" in schema and len(made) != len(items):
                raise Mismatch(path, "holds an item twice")
            return made

        return TypeSpec(schema, read)

    def _tuple(self, members: tuple[Any, ...]) -> TypeSpec:
        if not members:
            return self._array(Any, tuple)
        if len(members) == 2 and members[1] is Ellipsis:
            return self._array(members[0], tuple)
        specs = [self.spec(member) for member in members]
        size = len(specs)

        def read(value: Any, path: str) -> Any:
            if type(value) is not list or len(value) != size:
                raise expected(f"an array of {size} items", value, path)
            return tuple(
                spec.read(member, f"{path}[{at}]")
                for at, (spec, member) in enumerate(zip(specs, value, strict=True))
            )

        schema = {
            "type": "array",
            "prefixItems": [spec.schema for spec in specs],
            "items": False,
            "minItems": size,
        }
        return TypeSpec(schema, read)

    def _mapping(self, arguments: tuple[Any, ...]) -> TypeSpec:
        key, item = arguments or (str, Any)
        if key is not str and key is not Any:
            raise TypeError(f"the keys of a JSON object are strings, not {_show_type(key)}")
        spec = self.spec(item)

        def read(value: Any, path: str) -> Any:
            if type(value) is not dict:
                raise expected("an object", value, path)
            return {name: spec.read(member, under(path, name)) for name, member in value.items()}

        return TypeSpec({"type": "object", "additionalProperties": spec.schema}, read)


_REFUSALS: Final = (AssertionError, TypeError, ValueError)
"""With what a class refuses its arguments: a validator, a `__post_init__`."""

_ARRAYS: Final[dict[type, Callable[[list[Any]], Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
}


def _choices(values: Sequence[Any], by_exact: Mapping[Any, Any]) -> TypeSpec:
    for value in values:
        if not isinstance(value, str | int | float | None) or not _has_json_form(value):
            raise TypeError(f"the choice {value!r} has no JSON form")
    listed = [value if value is None else _plain(value) for value in values]
    text = ", ".join(map(show, listed))

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, dict | list) and _exact(value) in by_exact:
            return by_exact[_exact(value)]
        raise expected(f"one of {text}", value, path)

    return TypeSpec({"enum": listed}, read)


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


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _show_type(annotation: Any) -> str:
    return getattr(annotation, "__qualname__", None) or repr(annotation)
