"""Schemas from annotations, and the reading of values against them."""

import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict, Union

import attrs
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.server import Context
from mcp_trio.server.fields import MISSING, Field
from mcp_trio.server.handlers import handler_of
from mcp_trio.server.readers import Mismatch, read_text
from mcp_trio.server.schema import Builder
from mcp_trio.server.tools import input_spec


class Colour(enum.Enum):
    """By name."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """By number."""

    LOW = 1
    HIGH = 2


class Point(TypedDict):
    """An object that stays a dict."""

    x: int
    y: int
    label: NotRequired[str]


@dataclasses.dataclass
class Window:
    """A dataclass."""

    name: str
    open: bool = False
    tags: list[str] = dataclasses.field(default_factory=list)
    secret: int = dataclasses.field(default=0, init=False)


@attrs.frozen
class Room:
    """An attrs class."""

    name: str
    windows: list[Window] = attrs.Factory(list)
    _floor: int = 0
    area: float = attrs.field(default=1.5, init=False)


@dataclasses.dataclass
class Tree:
    """A class inside itself."""

    value: int
    children: "list[Tree]" = dataclasses.field(default_factory=list)


class Alias:
    """What ``type Alias = int`` makes, as far as anybody needs to know."""

    __value__ = int


UserId = NewType("UserId", int)

CASES: list[tuple[Any, list[tuple[Any, Any]], list[Any]]] = [
    # annotation, accepted (wire, value), refused
    (str, [("a", "a"), ("", "")], [1, None, True, ["a"]]),
    (int, [(1, 1), (2.0, 2), (2**70, 2**70)], ["1", 1.5, True, None]),
    (float, [(1.5, 1.5), (1, 1.0)], ["1", True, None, 10**400]),
    (bool, [(True, True), (False, False)], [0, 1, "true", None]),
    (None, [(None, None)], [0, False, ""]),
    (Any, [(1, 1), (None, None), ({"a": []}, {"a": []})], []),
    (Optional[int], [(1, 1), (None, None)], ["1"]),  # noqa: UP045 - the old spelling
    (Union[int, str], [(1, 1), ("1", "1")], [None, 1.5]),  # noqa: UP007
    (int | list[int] | None, [(1, 1), ([1], [1]), (None, None)], ["x", ["x"]]),
    (Literal["a", 1, None], [("a", "a"), (1.0, 1), (None, None)], ["b", True, []]),  # noqa: PYI061
    (Literal[True], [(True, True)], [1, False]),
    (Colour, [("red", Colour.RED)], ["green", 1, {}]),
    (Level, [(2, Level.HIGH)], [3, "2", True]),
    (list[int], [([], []), ([1, 2], [1, 2])], ["x", [1, "x"], {"a": 1}, None]),
    (list, [([1, "a"], [1, "a"])], [1]),
    (Sequence[str], [(["a"], ["a"])], ["a"]),
    (Iterable[str], [(["a"], ["a"])], ["a"]),
    (set[int], [([1, 2], {1, 2})], [[1, 1], 1]),
    (frozenset[str], [(["a"], frozenset("a"))], [["a", "a"]]),
    (tuple[int, str], [([1, "a"], (1, "a"))], [[1], [1, "a", 2], ["a", 1], 1]),
    (tuple[int, ...], [([], ()), ([1, 2], (1, 2))], [["a"], 1]),
    (tuple, [([1], (1,))], [1]),
    (dict[str, int], [({"a": 1}, {"a": 1})], [{"a": "x"}, [], None]),
    (dict, [({"a": []}, {"a": []})], [[]]),
    (Mapping[str, Any], [({"a": 1}, {"a": 1})], [1]),
    (UserId, [(5, 5)], ["5"]),
    (Annotated[int, "how many"], [(5, 5)], ["5"]),
    (Annotated[int, []], [(5, 5)], ["5"]),
    (Alias(), [(5, 5)], ["5"]),
    (
        Point,
        [({"x": 1, "y": 2}, {"x": 1, "y": 2}), ({"x": 1, "y": 2, "label": "p"},) * 2],
        [{"x": 1}, {"x": 1, "y": "2"}, {"x": 1, "y": 2, "z": 3}, [1, 2]],
    ),
    (
        Window,
        [({"name": "n"}, Window("n")), ({"name": "n", "open": True}, Window("n", open=True))],
        [{}, {"name": 1}, {"name": "n", "secret": 1}],
    ),
    (
        Room,
        [({"name": "r", "windows": [{"name": "w"}], "floor": 2}, Room("r", [Window("w")], 2))],
        [{"name": "r", "windows": [{}]}, {"name": "r", "area": 2.0}],
    ),
    (
        Tree,
        [({"value": 1, "children": [{"value": 2}]}, Tree(1, [Tree(2)]))],
        [{"value": 1, "children": [{"value": "x"}]}],
    ),
]


def _root(annotation: Any) -> tuple[dict[str, Any], Callable[[Any, str], Any]]:
    builder = Builder()
    spec = builder.root(builder.object([Field("it", annotation)], dict))
    return spec.schema, lambda value, path: spec.read({"it": value}, path)["it"]


@pytest.mark.parametrize(("annotation", "accepted", "refused"), CASES)
def test_what_is_advertised_is_what_is_checked(
    annotation: Any, accepted: list[tuple[Any, Any]], refused: list[Any]
) -> None:
    """The schema is valid, and says of each value what the reader says."""
    schema, read = _root(annotation)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for wire, value in accepted:
        validator.validate({"it": wire})
        made = read(wire, "")
        assert made == value
        assert type(made) is type(value)
    for wire in refused:
        with pytest.raises(Mismatch, match="it"):
            read(wire, "")
        # Python's 10**400 is a number to the schema; no float can hold it.
        if wire != 10**400:
            assert not validator.is_valid({"it": wire}), wire


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "red", "x", "name"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "x", "y", "name", "value", "children"]), inner)
    ),
    max_leaves=8,
)


@given(st.sampled_from([case[0] for case in CASES]), _json)
def test_reader_and_schema_agree_on_anything(annotation: Any, value: Any) -> None:
    schema, read = _root(annotation)
    try:
        read(value, "")
        read_it = True
    except Mismatch:
        read_it = False
    assert jsonschema.Draft202012Validator(schema).is_valid({"it": value}) == read_it


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ({"name": 5, "windows": []}, "room.name: expected a string, got 5"),
        ({"name": "r", "windows": [{}]}, "room.windows[0].name: missing"),
        ({"name": "r", "windows": {}}, "room.windows: expected an array, got an object"),
        ({"name": "r", "wall": 1}, "room.wall: unexpected"),
        ({}, "room.name: missing"),
        ([1, 2], "room: expected an object, got an array of 2"),
        (None, "room: expected an object, got null"),
        (True, "room: expected an object, got true"),
        ({"name": "r", "floor": "x" * 99}, 'room.floor: expected an integer, got "x'),
        ({"name": False, "floor": "1"}, "room.name: expected a string, got false; room.floor: "),
    ],
)
def test_a_mismatch_names_path_and_reason(wire: Any, message: str) -> None:
    spec = Builder().object([Field("room", Room)], dict)
    with pytest.raises(Mismatch) as caught:
        spec.read({"room": wire}, "")
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 200


def test_choices_and_unions_say_what_there_is() -> None:
    _, read = _root(Colour)
    with pytest.raises(Mismatch, match='it: expected one of "red", "blue", got "green"'):
        read("green", "")
    _, read = _root(int | str)
    with pytest.raises(Mismatch, match="expected an integer, got null; or expected a string, got"):
        read(None, "")
    _, read = _root(float)
    with pytest.raises(Mismatch, match="too large"):
        read(10**400, "")
    _, read = _root(set[Any])
    with pytest.raises(Mismatch, match="cannot be in a set"):
        read([[1]], "")
    _, read = _root(int)
    with pytest.raises(Mismatch, match="got no number"):
        read(math.inf, "")


def test_schemas_carry_descriptions_and_defaults() -> None:
    def tool(
        ctx: Context,
        a: Annotated[int, "the first"],
        b: Annotated[str, object(), "the second"] = "x",
        c: float | None = None,
        d: object = object(),
        **more: int,
    ) -> None: ...

    spec = input_spec(handler_of(tool))
    assert spec.schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first"},
            "b": {"type": "string", "description": "the second", "default": "x"},
            "c": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "d": {},
        },
        "required": ["a"],
        "additionalProperties": {"type": "integer"},
    }
    assert spec.read({"a": 1, "z": 2}, "") == {"a": 1, "z": 2}
    with pytest.raises(Mismatch, match="z: expected an integer"):
        spec.read({"a": 1, "z": "2"}, "")


def test_no_parameters() -> None:
    def tool() -> None: ...

    spec = input_spec(handler_of(tool))
    assert spec.schema == {"type": "object", "additionalProperties": False}


def test_recursive_classes_become_definitions() -> None:
    def tool(tree: Tree, other: Tree) -> None: ...

    schema = input_spec(handler_of(tool)).schema
    assert schema["properties"] == {
        "tree": {"$ref": "#/$defs/Tree"},
        "other": {"$ref": "#/$defs/Tree"},
    }
    children = schema["$defs"]["Tree"]["properties"]["children"]
    assert children["items"] == {"$ref": "#/$defs/Tree"}
    other = dataclasses.make_dataclass(
        "Tree", [("tree", Tree), ("more", "Tree2 | None", None)], namespace={}
    )
    other.__annotations__["more"] = other | None
    builder = Builder()
    builder.spec(Tree)
    builder.spec(other)
    builder.spec(Tree)
    assert set(builder.definitions) == {"Tree", "Tree_"}


@pytest.mark.parametrize(
    "annotation",
    [Path, dict[int, str], Callable[[], int], "unresolved", complex, Literal[b"x"]],
)
def test_types_without_a_json_form_are_refused_at_registration(annotation: Any) -> None:
    with pytest.raises(TypeError):
        Builder().spec(annotation)


def test_read_text() -> None:
    """Arguments that travel as text: the text if it fits, else what it says as JSON."""
    spec = Builder().spec
    assert read_text(spec(str).read, "5", "p") == "5"
    assert read_text(spec(int).read, "5", "p") == 5
    assert read_text(spec(bool).read, "true", "p") is True
    assert read_text(spec(int | None).read, "null", "p") is None
    assert read_text(spec(int | str).read, "5", "p") == "5"
    assert read_text(spec(Level).read, "2", "p") is Level.HIGH
    assert read_text(spec(list[int]).read, "[1, 2]", "p") == [1, 2]
    for bad in ("x", "007", "1.5", "", "\udcaf"):
        with pytest.raises(Mismatch, match="p: expected an integer"):
            read_text(spec(int).read, bad, "p")


class _Methods:
    async def plain(self, ctx: Context, a: int) -> None: ...

    def __call__(self, b: int) -> None: ...

    @staticmethod
    def static(c: int) -> None: ...

    @classmethod
    def of_class(cls, d: int) -> None: ...

    def positional_self(self, /, e: int) -> None: ...


def _names(function: Callable[..., Any]) -> list[str]:
    return [field.name for field in handler_of(function).shape.fields]


def test_whatever_is_callable_by_name_can_be_a_handler() -> None:
    methods = _Methods()
    assert _names(methods.plain) == ["a"]
    assert handler_of(methods.plain).shape.context == "ctx"
    assert handler_of(methods.plain).shape.is_async
    assert _names(methods) == ["b"]
    assert _names(methods.static) == ["c"]
    assert _names(methods.of_class) == ["d"]
    assert _names(methods.positional_self) == ["e"]

    def function(a: int, b: int, *, c: int = 3, ctx: Context | None = None) -> None: ...

    assert _names(function) == ["a", "b", "c"]
    assert handler_of(function).shape.context == "ctx"
    assert _names(functools.partial(function, 1)) == ["b", "c"]
    # What is bound is the server's, and no client may set it.
    assert _names(functools.partial(function, 1, c=2)) == ["b"]
    assert handler_of(functools.partial(function, ctx=None)).shape.context is None
    assert _names(functools.partial(methods.plain)) == ["a"]
    assert handler_of(function).shape is handler_of(function).shape

    @functools.wraps(function)
    def wrapped(*args: Any, **keywords: Any) -> None: ...

    assert _names(wrapped) == ["a", "b", "c"]
    assert _names([].copy) == []
    assert _names(functools.partial({}.get, "x")) == []


def _generator() -> Iterable[int]:
    yield 1


async def _agenerator() -> Any:  # noqa: ASYNC900 - what the test is about
    yield 1


def _positional(a: int, /) -> None: ...


def _var_positional(*a: int) -> None: ...


def _two(a: Context, b: Annotated[Context, "x"]) -> None: ...


def _unresolved(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (_generator, "generator"),
        (_agenerator, "generator"),
        (_positional, "by name"),
        (_var_positional, "by name"),
        (_two, "two parameters"),
        (_unresolved, "cannot be resolved"),
        (min, "no signature"),
        (5, "a handler is a function"),
        (int, "a handler is a function"),
    ],
)
def test_what_cannot_be_a_handler_is_refused(function: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        handler_of(function)


def test_missing_is_no_default() -> None:
    assert Field("a", int).default is MISSING
