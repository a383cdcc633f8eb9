"""Forms for elicitation: flat objects of simple fields, and the reading of what was filled in.

Source: specification, client/elicitation, "Requested Schema".
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from mcp_trio import codec, types
from mcp_trio.server.readers import Mismatch, expected, show, under
from mcp_trio.server.schema import Builder

__all__ = ["VALUE", "Form", "form_of"]

VALUE: Final = "value"
"""The name of the only field of a form that asks for one simple value."""

_FORMATS: Final = frozenset({"date", "date-time", "email", "uri"})
_DEFINITION: Final = "requestedSchema"


@attrs.frozen
class Form:
    """A form as the client shows it.

    Attributes:
        schema: the JSON Schema that is sent.
        read: makes the value that was asked for of the fields as they were filled in, or raises
            `readers.Mismatch`.
    """

    schema: dict[str, Any]
    read: Callable[[dict[str, Any]], Any]


def form_of(form: Any) -> Form:
    """The form that asks for a value of a type, or that a schema describes.

    Args:
        form: a class with fields (dataclass, attrs, TypedDict), a simple type (``str``, ``int``,
            ``float``, ``bool``, a ``Literal`` or ``Enum`` of strings, a list of these choices,
            any of them ``Annotated`` or optional), a JSON Schema as a mapping, a
            `types.ElicitationSchema`, or None for a form without fields.

    Raises:
        TypeError: it asks for what a form cannot hold: forms are flat.
        ValueError: the same, of a schema that was given as such.
    """
    if form is None:
        return _EMPTY
    if isinstance(form, types.ElicitationSchema):
        form = codec.unstructure(form)
    if isinstance(form, Mapping):
        return _given(dict(form))
    try:
        return _inferred(form)
    except TypeError as problem:
        # An annotation need not be hashable, and then is not cached.
        if "unhashable" not in str(problem):
            raise
        return _inferred.__wrapped__(form)


_EMPTY: Final = Form({"type": "object", "properties": {}}, lambda _: None)


def _given(schema: dict[str, Any]) -> Form:
    _check(schema)
    properties = schema["properties"]
    required = schema.get("required", ())

    def read(content: dict[str, Any]) -> dict[str, Any]:
        filled = {name: value for name, value in content.items() if name in properties}
        for name in required:
            if name not in filled:
                raise Mismatch(name, "missing")
        for name, value in filled.items():
            _check_value(properties[name], value, name)
        return filled

    return Form(schema, read)


@functools.lru_cache(maxsize=256)
def _inferred(annotation: Any) -> Form:
    builder = Builder()
    spec = builder.root(builder.spec(annotation))
    shape = spec.schema
    if shape.get("type") == "object" and "properties" in shape:
        fields, required = shape["properties"], list(shape.get("required", ()))
        read_object = spec.read

        def read(content: dict[str, Any]) -> Any:
            return read_object({name: content[name] for name in fields if name in content}, "")
    else:
        fields, required = {VALUE: shape}, [VALUE]
        if _solid(shape) is not shape:
            required = []
        read_value = spec.read

        def read(content: dict[str, Any]) -> Any:
            if required and VALUE not in content:
                raise Mismatch(VALUE, "missing")
            return read_value(content.get(VALUE), VALUE)

    name = getattr(annotation, "__qualname__", None) or repr(annotation)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key: _simplify(name, key, field) for key, field in fields.items()},
    }
    if required:
        schema["required"] = required
    try:
        _check(schema)
    except ValueError as problem:
        raise TypeError(f"{name} cannot be asked for in a form: {problem}") from None
    return Form(schema, read)


def _solid(field: dict[str, Any]) -> dict[str, Any]:
    """A field without the null of an optional one: in a form that is left empty instead."""
    members = field.get("anyOf")
    if members is None:
        return field
    solid = [member for member in members if member != {"type": "null"}]
    if len(solid) != 1 or len(solid) == len(members):
        return field
    return {**solid[0], **{key: value for key, value in field.items() if key != "anyOf"}}


def _simplify(name: str, key: str, field: dict[str, Any]) -> dict[str, Any]:
    """A field in the few words a form has; what else its type says is checked on return."""
    field = _choice(_solid(field))
    if isinstance(field.get("items"), dict):
        field = {**field, "items": _choice(field["items"])}
    if field.get("default", ...) is None:
        field = {word: value for word, value in field.items() if word != "default"}
    if field.get("format", "date") not in _FORMATS:
        field = {word: value for word, value in field.items() if word != "format"}
    try:
        value = codec.structure(types.PrimitiveSchemaDefinition, field, at=key)
    except codec.DecodeError:
        raise TypeError(
            f"{name} cannot be asked for in a form: {key}: neither text, number, yes or no, nor "
            "a choice between texts"
        ) from None
    plain: dict[str, Any] = codec.unstructure(attrs.evolve(value, extra={}))
    return plain


def _choice(field: dict[str, Any]) -> dict[str, Any]:
    values = field.get("enum")
    if not isinstance(values, list):
        return field
    if all(isinstance(value, str) for value in values):
        return {"type": "string", **field}
    return {"enum": values}  # forms have no choice between anything else


def _check(schema: dict[str, Any]) -> None:
    """Refuse what the specification does not allow in a form.

    Raises:
        ValueError: naming the path.
    """
    try:
        form = codec.structure(types.ElicitationSchema, schema, at=_DEFINITION)
    except codec.DecodeError as problem:
        raise ValueError(f"not a form: {problem}") from None
    places: list[tuple[str, Mapping[str, Any]]] = [(_DEFINITION, form.extra)]
    for name, field in form.properties.items():
        at = f"{_DEFINITION}.properties.{name}"
        places.append((at, field.extra))
        if isinstance(
            field, types.UntitledMultiSelectEnumSchema | types.TitledMultiSelectEnumSchema
        ):
            places.append((f"{at}.items", field.items.extra))
    for at, extra in places:
        for word in extra:
            raise ValueError(f"not a form: {at}: {word!r} has no place in a form")
    for name in form.required or ():
        if name not in form.properties:
            raise ValueError(f"not a form: {_DEFINITION}.required: there is no field {name!r}")


def _check_value(field: dict[str, Any], value: Any, path: str) -> None:
    kind = field["type"]
    if kind == "array":
        _check_several(field, value, path)
    elif kind == "boolean":
        if type(value) is not bool:
            raise expected("true or false", value, path)
    elif kind == "string":
        if type(value) is not str:
            raise expected("a string", value, path)
        _check_choice(field, value, path)
        _check_range(field, len(value), path, "minLength", "maxLength", " characters")
    else:
        whole = type(value) is int or (type(value) is float and value.is_integer())
        if type(value) not in (int, float) or (kind == "integer" and not whole):
            raise expected("an integer" if kind == "integer" else "a number", value, path)
        _check_range(field, value, path, "minimum", "maximum", "")


def _check_several(field: dict[str, Any], value: Any, path: str) -> None:
    if type(value) is not list:
        raise expected("an array", value, path)
    for at, item in enumerate(value):
        _check_choice(field["items"], item, under(path, str(at)))
    _check_range(field, len(value), path, "minItems", "maxItems", " items")


def _check_choice(field: dict[str, Any], value: Any, path: str) -> None:
    options = field.get("enum")
    titled = field.get("oneOf", field.get("anyOf"))
    if titled is not None:
        options = [option["const"] for option in titled]
    if options is not None and value not in options:
        raise expected(f"one of {', '.join(map(show, options))}", value, path)


def _check_range(
    field: dict[str, Any], value: float, path: str, least: str, most: str, unit: str
) -> None:
    if least in field and value < field[least]:
        raise Mismatch(path, f"at least {field[least]}{unit} are required, got {value}")
    if most in field and value > field[most]:
        raise Mismatch(path, f"at most {field[most]}{unit} are allowed, got {value}")
