"""Forms for elicitation: flat, checked, and read as the type that was asked for."""

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

import attrs
import pytest

from mcp_trio import types
from mcp_trio.server.forms import form_of
from mcp_trio.server.readers import Mismatch


class Color(enum.Enum):
    """A choice."""

    RED = "r"
    BLUE = "b"


@dataclasses.dataclass
class Person:
    """Fields of each kind."""

    name: Annotated[str, "in full"]
    age: int = 3
    height: float | None = None
    color: Color = Color.RED
    hobbies: list[Literal["chess", "tennis"]] = dataclasses.field(default_factory=list)


@attrs.frozen
class Point:
    """An attrs class with a rule of its own."""

    x: int
    y: int = attrs.field(default=0, validator=attrs.validators.lt(10))


class Flags(TypedDict, total=False):
    """Nothing is required."""

    on: bool


def test_a_class_is_a_form_with_its_fields() -> None:
    form = form_of(Person)
    assert form.schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "in full"},
            "age": {"type": "integer", "default": 3},
            "height": {"type": "number"},
            "color": {"type": "string", "enum": ["r", "b"], "default": "r"},
            "hobbies": {"type": "array", "items": {"type": "string", "enum": ["chess", "tennis"]}},
        },
        "required": ["name"],
    }
    filled = {"name": "A", "age": 4.0, "height": 2, "color": "b", "hobbies": ["chess"], "x": 1}
    assert form.read(filled) == Person("A", 4, 2.0, Color.BLUE, ["chess"])
    assert form.read({"name": "A"}) == Person("A")
    assert form_of(Person) is form
    assert form_of(Point).read({"x": 1, "y": 2}) == Point(1, 2)
    assert form_of(Flags).read({"on": True}) == {"on": True}
    assert form_of(Flags).schema == {"type": "object", "properties": {"on": {"type": "boolean"}}}


@pytest.mark.parametrize(
    ("form", "field", "filled", "value"),
    [
        (str, {"type": "string"}, "a", "a"),
        (bool, {"type": "boolean"}, True, True),
        (float, {"type": "number"}, 1, 1.0),
        (int, {"type": "integer"}, 2.0, 2),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
        (Color, {"type": "string", "enum": ["r", "b"]}, "r", Color.RED),
        (
            list[Color],
            {"type": "array", "items": {"type": "string", "enum": ["r", "b"]}},
            ["b"],
            [Color.BLUE],
        ),
        (Annotated[int, "years"], {"type": "integer", "description": "years"}, 1, 1),
    ],
)
def test_a_simple_type_is_a_form_with_one_field(
    form: Any, field: dict[str, Any], filled: Any, value: Any
) -> None:
    made = form_of(form)
    assert made.schema == {
        "type": "object",
        "properties": {"value": field},
        "required": ["value"],
    }
    assert made.read({"value": filled}) == value
    assert type(made.read({"value": filled})) is type(value)
    with pytest.raises(Mismatch, match="value: missing"):
        made.read({})


def test_an_optional_one_may_be_left_empty() -> None:
    form = form_of(int | None)
    assert form.schema == {"type": "object", "properties": {"value": {"type": "integer"}}}
    assert form.read({}) is None
    assert form.read({"value": 1}) == 1


def test_a_form_without_fields() -> None:
    form = form_of(None)
    assert form.schema == {"type": "object", "properties": {}}
    assert form.read({"anything": 1}) is None


@dataclasses.dataclass
class Nested:
    """Not flat."""

    inner: Point


@pytest.mark.parametrize(
    "form",
    [
        dict,
        list[int],
        list[str],
        Point | None,
        list[Point],
        Literal[1, 2],
        dict[str, int],
        Nested,
        Any,
        int | str,
        Mapping[str, str],
        list[list[Color]],
    ],
)
def test_forms_are_flat(form: Any) -> None:
    with pytest.raises(TypeError, match="cannot be asked for in a form"):
        form_of(form)
    with pytest.raises(TypeError, match="no JSON form"):
        form_of(Exception)


def test_an_annotation_that_is_not_hashable() -> None:
    form = form_of(Annotated[int, "years", ["x"]])
    assert form.schema["properties"]["value"] == {"type": "integer", "description": "years"}
    with pytest.raises(TypeError, match="cannot be asked"):
        form_of(Annotated[list[int], "years", ["x"]])


FIELDS: dict[str, dict[str, Any]] = {
    "text": {"type": "string", "minLength": 2, "maxLength": 3, "format": "email", "title": "T"},
    "number": {"type": "number", "minimum": 0, "maximum": 1.5, "default": 1},
    "whole": {"type": "integer"},
    "yes": {"type": "boolean", "default": False},
    "one": {"type": "string", "enum": ["a", "b"], "default": "a"},
    "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
    "legacy": {"type": "string", "enum": ["a"], "enumNames": ["A"]},
    "many": {
        "type": "array",
        "minItems": 1,
        "maxItems": 2,
        "items": {"type": "string", "enum": ["a", "b"]},
    },
    "many_titled": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
}


def test_a_schema_is_sent_as_it_is() -> None:
    schema = {"type": "object", "properties": FIELDS, "required": ["text"]}
    form = form_of(schema)
    assert form.schema == schema
    content = {
        "text": "ab",
        "number": 1.5,
        "whole": 2.0,
        "yes": True,
        "one": "b",
        "titled": "a",
        "legacy": "a",
        "many": ["a", "b"],
        "many_titled": [],
    }
    assert form.read({**content, "more": 1}) == content
    assert form.read({"text": "abc"}) == {"text": "abc"}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("text", "a", "text: at least 2 characters"),
        ("text", "abcd", "text: at most 3 characters"),
        ("text", 1, "text: expected a string, got 1"),
        ("number", -1, "number: at least 0 are"),
        ("number", 2, "number: at most 1.5 are"),
        ("number", True, "number: expected a number, got true"),
        ("number", math.inf, "number: at most"),
        ("whole", 1.5, "whole: expected an integer"),
        ("whole", None, "whole: expected an integer, got null"),
        ("yes", 1, "yes: expected true or false"),
        ("one", "c", 'one: expected one of "a", "b"'),
        ("titled", "A", 'titled: expected one of "a"'),
        ("many", "a", "many: expected an array"),
        ("many", [], "many: at least 1 items"),
        ("many", ["a", "a", "b"], "many: at most 2 items"),
        ("many", ["a", 1], "many.1: expected one of"),
        ("many_titled", [{}], "many_titled.0: expected one of"),
    ],
)
def test_what_does_not_fit_is_named(name: str, value: Any, reason: str) -> None:
    form = form_of({"type": "object", "properties": FIELDS})
    with pytest.raises(Mismatch, match=reason):
        form.read({name: value})


def test_what_is_missing_is_named() -> None:
    form = form_of({"type": "object", "properties": FIELDS, "required": ["yes"]})
    with pytest.raises(Mismatch, match="yes: missing"):
        form.read({})
    with pytest.raises(Mismatch, match="name: missing"):
        form_of(Person).read({})
    with pytest.raises(Mismatch, match="10"):
        form_of(Point).read({"x": 1, "y": 11})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object"}, "requestedSchema.properties: missing"),
        ({"type": "string", "properties": {}}, "requestedSchema.type"),
        ({"type": "object", "properties": {}, "required": ["x"]}, "no field 'x'"),
        ({"type": "object", "properties": {}, "additionalProperties": False}, "'additionalProp"),
        (
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}},
            "properties.a: 'pattern' has no place",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "format": "uuid"}}},
            "properties.a",
        ),
        ({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}, "a"),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}, "a"),
        (
            {
                "type": "object",
                "properties": {
                    "a": {"type": "array", "items": {"type": "string", "enum": [], "minLength": 1}}
                },
            },
            "a.items: 'minLength' has no place",
        ),
        ({"type": "object", "properties": {"a": {"$ref": "#/x"}}}, "a"),
    ],
)
def test_other_schemas_are_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        form_of(schema)


def test_a_schema_as_a_value() -> None:
    schema = types.ElicitationSchema(
        properties={"n": types.NumberSchema(type="integer", minimum=1)}, required=["n"]
    )
    form = form_of(schema)
    assert form.schema == {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}},
        "required": ["n"],
    }
    assert form.read({"n": 1}) == {"n": 1}
