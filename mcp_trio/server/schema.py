"""JSON Schema from Python types, and the reading of values against it.

One walk over an annotation makes both, so what is advertised is what is checked. Reading is
strict: nothing is coerced but an integer where a float is asked for and a float without a
fraction where an integer is, as JSON Schema has it.

Readers are written for values that fit: where one is wrong, what is wrong is found by a second,
slower look.

Schemas that are written by hand are `raw_schema`'s.

Source: specification, server/tools, "Tool"; basic/index, "JSON Schema Usage".
"""

import collections.abc
import enum
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcp_trio import codec
from mcp_trio import types as protocol
from mcp_trio.protocol.param_headers import KEYWORD
from mcp_trio.server.composites import (
    array_spec,
    choices_spec,
    mapping_spec,
    object_spec,
    protocol_spec,
    tuple_spec,
    union_spec,
)
from mcp_trio.server.constraints import Reference, apply_markers, with_keywords
from mcp_trio.server.fields import MISSING, Field, fields_of, members_of
from mcp_trio.server.readers import (
    SCALARS,
    Mismatch,
    Reader,
    TypeSpec,
)
from mcp_trio.server.scalars import TEXTUAL
from mcp_trio.server.validation import Validator, check_size
from mcp_trio.server.writing import to_json

__all__ = ["Builder"]


class Builder:
    """Builds the schema of one root object.

    Classes are built once each. `root` puts those into ``$defs`` that are used more than once or
    contain themselves, and the others where they are used.

    Args:
        outputs: whether the schema is of what instances hold, as a result has it, instead of
            what makes them.
    """

    def __init__(self, *, outputs: bool = False) -> None:
        self.definitions: dict[str, Any] = {}
        self._outputs = outputs
        self._names: dict[Any, str] = {}
        self._built: dict[str, TypeSpec] = {}
        self._uses: dict[str, int] = {}
        self._recursive: set[str] = set()
        self._validated: list[_Validated] = []

    def root(self, spec: TypeSpec) -> TypeSpec:
        """Finish what was built: a schema that stands by itself.

        Raises:
            TypeError: it is too large, or what stands beside its types is no JSON Schema.
        """
        kept = {name for name, uses in self._uses.items() if uses > 1} | self._recursive
        schema = self._placed(spec.schema, kept)
        definitions = {
            name: self._placed(schema, kept)
            for name, schema in self.definitions.items()
            if name in kept
        }
        if definitions:
            schema["$defs"] = definitions
        try:
            check_size(schema)
            for validated in self._validated:
                validated.compile()
        except ValueError as problem:
            raise TypeError(str(problem)) from None
        read_it = spec.read

        def read(value: Any, path: str) -> Any:
            try:
                return read_it(value, path)
            except RecursionError:
                raise Mismatch(path, "nested too deeply") from None

        return TypeSpec(schema, read if self._recursive else read_it)

    def _placed(self, node: Any, kept: set[str]) -> Any:
        if isinstance(node, Reference) and node.name not in kept:
            beside = {key: value for key, value in node.items() if key != "$ref"}
            node = {**self.definitions[node.name], **beside}
        if isinstance(node, dict):
            return {key: self._placed(value, kept) for key, value in node.items()}
        if isinstance(node, list):
            return [self._placed(item, kept) for item in node]
        return node

    def spec(self, annotation: Any) -> TypeSpec:
        """Build for one annotation. Its schema may refer to `definitions`.

        Raises:
            TypeError: it is of a kind that has no JSON form here.
        """
        if _hashable(annotation):
            simple = SCALARS.get(annotation) or TEXTUAL.get(annotation)
            if simple is not None:
                return TypeSpec(dict(simple.schema), simple.read)
        origin = typing.get_origin(annotation)
        arguments = typing.get_args(annotation)
        if origin is typing.Annotated:
            return self._annotated(arguments[0], arguments[1:])
        if origin in (typing.Required, typing.NotRequired):
            return self.spec(arguments[0])
        if origin is typing.Literal:
            return choices_spec([(value, value) for value in arguments])
        if origin in (typing.Union, types.UnionType):
            return union_spec([self.spec(member) for member in arguments])
        if isinstance(annotation, typing.NewType):
            return self.spec(annotation.__supertype__)
        if isinstance(annotation, typing.TypeVar):
            return self._variable(annotation)
        if hasattr(annotation, "__value__"):
            return self._alias(annotation, origin, arguments)
        kind = origin or annotation
        if isinstance(kind, type):
            return self._of_class(kind, arguments, annotation)
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
            else:
                properties[field.name] = _with_default(spec, field.default)
        schema: dict[str, Any] = {"type": "object"}
        if properties:
            schema["properties"] = properties
        if required:
            schema["required"] = required
        more = None if extra is MISSING else self.spec(extra)
        schema["additionalProperties"] = False if more is None else more.schema
        return object_spec(schema, readers, more, make)

    def _annotated(self, annotation: Any, markers: tuple[Any, ...]) -> TypeSpec:
        spec = apply_markers(self.spec(annotation), markers, self._validate)
        if KEYWORD in spec.schema:
            return TypeSpec(_without_null(spec.schema), spec.read, spec.glance)
        return spec

    def _validate(self, schema: dict[str, Any]) -> Callable[[Any, str], None]:
        validated = _Validated(schema, self.definitions)
        self._validated.append(validated)
        return validated.check

    def _variable(self, variable: typing.TypeVar) -> TypeSpec:
        if variable.__constraints__:
            return union_spec([self.spec(member) for member in variable.__constraints__])
        return self.spec(Any if variable.__bound__ is None else variable.__bound__)

    def _alias(self, alias: Any, origin: Any, arguments: tuple[Any, ...]) -> TypeSpec:
        """Build for what ``type X = ...`` made, which may contain itself."""
        value = alias.__value__
        if origin is not None and getattr(value, "__parameters__", None):
            value = value[arguments]
        name = str(getattr(origin or alias, "__name__", "Alias"))
        spec = self._named(alias, name, lambda: self.spec(value))
        if isinstance(spec.schema, Reference):
            self._uses[spec.schema.name] -= 1
            if spec.schema.name not in self._recursive:
                return self._built[spec.schema.name]
        return spec

    def _of_class(self, kind: type, arguments: tuple[Any, ...], annotation: Any) -> TypeSpec:
        if issubclass(kind, enum.Enum):
            return choices_spec([(member.value, member) for member in kind])
        if issubclass(kind, protocol.Value):
            return protocol_spec(kind)
        if issubclass(kind, tuple) and not hasattr(kind, "_fields"):
            return self._tuple(arguments)
        if issubclass(kind, collections.abc.Mapping) and not typing.is_typeddict(kind):
            return self._mapping(arguments)
        if kind in _ARRAYS:
            return array_spec(self.spec(arguments[0] if arguments else Any), _ARRAYS[kind])
        try:
            fields = members_of(kind) if self._outputs else fields_of(kind)
        except (NameError, ValueError) as problem:
            raise TypeError(f"{_show_type(kind)}: {problem}") from problem
        if fields is None:
            raise TypeError(f"{_show_type(kind)} has no JSON form")
        name = kind.__name__
        if arguments:
            filled = dict(zip(kind.__parameters__, arguments, strict=True))  # type: ignore[attr-defined]
            fields = [_filled(field, filled) for field in fields]
            name = f"{name}_{'_'.join(map(_show_type, arguments))}"
        return self._named(annotation, name, lambda: self.object(fields, kind))

    def _named(self, key: Any, name: str, build: Callable[[], TypeSpec]) -> TypeSpec:
        """Build once what has a name, and refer to it."""
        key = key if _hashable(key) else repr(key)
        known = self._names.get(key)
        if known is None:
            name = re.sub(r"\W+", "_", name).strip("_")
            while name in self._uses:
                name += "_"
            self._names[key] = name
            self._uses[name] = 1
            made = self._built[name] = build()
            self.definitions[name] = made.schema
            return TypeSpec(Reference(name), made.read, made.glance)
        self._uses[known] += 1
        spec = self._built.get(known)
        if spec is not None:
            return TypeSpec(Reference(known), spec.read, spec.glance)
        # Inside itself: its reader is not there yet.
        self._recursive.add(known)

        def glance(value: Any, path: str) -> None:
            if (found := self._built[known].glance) is not None:
                found(value, path)

        return TypeSpec(
            Reference(known), lambda value, path: self._built[known].read(value, path), glance
        )

    def _tuple(self, members: tuple[Any, ...]) -> TypeSpec:
        if not members:
            return array_spec(self.spec(Any), tuple)
        if len(members) == 2 and members[1] is Ellipsis:
            return array_spec(self.spec(members[0]), tuple)
        return tuple_spec([self.spec(member) for member in members])

    def _mapping(self, arguments: tuple[Any, ...]) -> TypeSpec:
        key, item = arguments or (str, Any)
        if key is not str and key is not Any:
            raise TypeError(f"the keys of a JSON object are strings, not {_show_type(key)}")
        return mapping_spec(self.spec(item))


class _Validated:
    """A check of a schema that says more than the readers know."""

    def __init__(self, schema: dict[str, Any], definitions: dict[str, Any]) -> None:
        self._schema = schema
        self._definitions = definitions
        self._validator: Validator | None = None

    def compile(self) -> Validator:
        if self._validator is None:
            self._validator = Validator({**self._schema, "$defs": self._definitions})
        return self._validator

    def check(self, value: Any, path: str) -> None:
        try:
            self.compile().check(value)
        except Mismatch as problem:
            raise problem.below(path) from None


def _with_default(spec: TypeSpec, default: Any) -> dict[str, Any]:
    """A schema with its default, if that is a value that could have been sent."""
    if default is None and KEYWORD in spec.schema:
        return spec.schema
    try:
        value = to_json(default, typed=True)
        codec.encode_json(value)
        spec.read(value, "")
    except (codec.EncodeError, TypeError, Mismatch):
        return spec.schema
    # Beside a $ref, as beside everything else, 2020-12 allows it.
    return with_keywords(spec.schema, {"default": value})


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the null of what is optional: clients look for one simple type under a header."""
    members = [member for member in schema.get("anyOf", ()) if member != {"type": "null"}]
    if len(members) != 1:
        return schema
    return {**members[0], **{key: value for key, value in schema.items() if key != "anyOf"}}


def _filled(field: Field, variables: Mapping[Any, Any]) -> Field:
    """A field of a generic class, with types for its variables."""
    annotation = field.annotation
    if isinstance(annotation, typing.TypeVar):
        return Field(field.name, variables.get(annotation, annotation), field.default)
    parameters = getattr(annotation, "__parameters__", ())
    if not parameters or isinstance(annotation, type):
        return field
    filled = annotation[tuple(variables.get(each, each) for each in parameters)]
    return Field(field.name, filled, field.default)


_ARRAYS: Final[dict[type, Callable[[list[Any]], Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
}


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _show_type(annotation: Any) -> str:
    return getattr(annotation, "__qualname__", None) or repr(annotation)
