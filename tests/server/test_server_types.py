"""Types that JSON has no value for, classes of all kinds, and what stands beside types."""

import dataclasses
import datetime as dt
import enum
import time
import types as types_module
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypedDict,
    TypeVar,
    Union,
)

import annotated_types as at
import attrs
import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_trio import codec, types
from mcp_trio.server import Header
from mcp_trio.server.fields import Field
from mcp_trio.server.readers import Mismatch
from mcp_trio.server.schema import Builder
from mcp_trio.server.validation import Validator
from mcp_trio.server.writing import to_json

T = TypeVar("T")
N = TypeVar("N", int, str)
B = TypeVar("B", bound=int)


class Size(NamedTuple):
    """A named tuple is an object, for its names say what is what."""

    width: int
    height: int = 1


@dataclasses.dataclass
class Door:
    """A dataclass whose constructor takes what it does not keep."""

    name: str
    key: dataclasses.InitVar[int]
    _: dataclasses.KW_ONLY
    open: bool = False
    lock: int = dataclasses.field(init=False, default=0)

    def __post_init__(self, key: int) -> None:
        self.lock = key + 1


def _split(text: str) -> list[str]:
    return text.split(",")


_as_it_is: Any = lambda value: value  # noqa: E731 - without annotations


@attrs.frozen
class Tagged:
    """An attrs class with a converter, and one without annotations."""

    tags: list[str] = attrs.field(converter=_split)
    more: Any = attrs.field(default=None, converter=_as_it_is)  # type: ignore[misc]


class Partial(TypedDict, total=False):
    """A TypedDict."""

    must: "Required[int]"
    may: str


class Whole(TypedDict):
    """Its opposite."""

    must: int
    may: "NotRequired[str]"


@dataclasses.dataclass
class Box(Generic[T]):
    """A generic class."""

    content: T
    more: list[T] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Add:
    """One of two classes that contain each other."""

    left: "Expression"
    right: "Expression"
    kind: Literal["add"] = "add"


@dataclasses.dataclass
class Multiply:
    """The other."""

    left: "Expression"
    right: "Expression"
    kind: Literal["multiply"] = "multiply"


Expression = Union[Add, Multiply, int]  # noqa: UP007 - a forward reference


@dataclasses.dataclass
class Nowhere:
    """Names what is not there."""

    what: "Missing"  # type: ignore[name-defined] # noqa: F821


class Alias:
    """What ``type`` statements of Python 3.12 make."""

    def __init__(self, name: str, value: Any = None) -> None:
        self.__name__ = name
        self.__value__ = value

    def __getitem__(self, argument: Any) -> Any:
        """Like ``Pair[int]`` of ``type Pair[T] = list[T]``."""
        return types_module.GenericAlias(self, (argument,))  # type: ignore[arg-type]


JSON = Alias("JSON")
JSON.__value__ = str | list[JSON] | dict[str, JSON]  # type: ignore[valid-type]
Ids = Alias("Ids", list[int])
Pair = Alias("Pair", list[T])  # type: ignore[valid-type]


class Mood(enum.StrEnum):
    """An enumeration of strings."""

    GOOD = "good"
    BAD = "bad"


def root(annotation: Any, *, outputs: bool = False) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The schema of an object with one field, and what reads the field."""
    builder = Builder(outputs=outputs)
    spec = builder.root(builder.object([Field("it", annotation)], dict))
    return spec.schema, lambda value: spec.read({"it": value}, "")["it"]


UTC = dt.UTC
CASES: list[tuple[Any, list[tuple[Any, Any]], list[Any]]] = [
    # annotation, accepted (wire, value), refused
    (
        dt.date,
        [("2026-07-28", dt.date(2026, 7, 28))],
        ["2026-7-28", "2026-02-30", "20260728", "2026-07-28T00:00:00Z", 5, "\uff12026-07-28", None],
    ),
    (
        dt.datetime,
        [
            ("2026-07-28T10:00:00Z", dt.datetime(2026, 7, 28, 10, tzinfo=UTC)),
            ("2026-07-28t10:00:00.5z", dt.datetime(2026, 7, 28, 10, 0, 0, 500_000, tzinfo=UTC)),
            (
                "2026-07-28T10:00:00-02:30",
                dt.datetime(2026, 7, 28, 10, tzinfo=dt.timezone(-dt.timedelta(hours=2.5))),
            ),
        ],
        ["2026-07-28T10:00:00", "2026-07-28 10:00:00Z", "2026-07-28T25:00:00Z", 5, "2026-07-28"],
    ),
    (
        dt.time,
        [("10:30", dt.time(10, 30)), ("23:59:59.25", dt.time(23, 59, 59, 250_000))],
        ["24:00", "9:00", "10:30Z", "10:60", 10, "10:30\n"],
    ),
    (
        dt.timedelta,
        [
            ("P1DT2H", dt.timedelta(days=1, hours=2)),
            ("PT1.5S", dt.timedelta(seconds=1.5)),
            ("PT90M", dt.timedelta(minutes=90)),
            ("P0D", dt.timedelta(0)),
        ],
        ["P", "PT", "P1Y", "P1M", "P1DT", "1D", "PT-5S", 5, "P9999999999D"],
    ),
    (
        uuid.UUID,
        [("12345678-1234-5678-1234-567812345678", uuid.UUID("12345678123456781234567812345678"))],
        ["12345678123456781234567812345678", "{12345678-1234-5678-1234-567812345678}", 5],
    ),
    (
        Decimal,
        [("1.50", Decimal("1.50")), (1.1, Decimal("1.1")), (5, Decimal(5)),
         ("-2e3", Decimal("-2e3"))],
        ["NaN", "Infinity", "1_000", ".5", "x", True, None, "1e99999"],
    ),
    (bytes, [("aGk=", b"hi"), ("", b"")], ["aGk", "a Gk=", "äöü", 5, None]),
    (Size, [({"width": 2}, Size(2)), ({"width": 2, "height": 3}, Size(2, 3))], [[2, 3], {}]),
    (
        Door,
        [({"name": "d", "key": 1}, Door("d", 1)),
         ({"name": "d", "key": 2, "open": True}, Door("d", 2, open=True))],
        [{"name": "d"}, {"name": "d", "key": "1"}, {"name": "d", "key": 1, "lock": 1}],
    ),
    (Tagged, [({"tags": "a,b"}, Tagged("a,b"))], [{"tags": ["a"]}, {}]),
    (Partial, [({"must": 1}, {"must": 1})], [{}, {"must": 1, "may": 1}, {"must": 1, "x": 1}]),
    (Whole, [({"must": 1}, {"must": 1})], [{}, {"must": 1, "may": 1}]),
    (
        Box[int],
        [({"content": 1, "more": [2]}, Box(1, [2]))],
        [{"content": "1"}, {"content": 1, "more": ["2"]}],
    ),
    (Box[Box[str]], [({"content": {"content": "a"}}, Box(Box("a")))], [{"content": "a"}]),
    (Box, [({"content": "a"}, Box("a"))], [{}]),
    (N, [(1, 1), ("a", "a")], [1.5, None]),
    (B, [(1, 1)], ["a"]),
    (JSON, [("a", "a"), ({"a": ["b", {}]}, {"a": ["b", {}]})], [1, {"a": [1]}, None]),
    (Ids, [([1], [1])], [["a"], 1]),
    (Pair[int], [([1, 2], [1, 2])], [["a"], 1]),
    (
        Expression,
        [
            (1, 1),
            ({"left": 1, "right": 2, "kind": "multiply"}, Multiply(1, 2)),
            ({"left": {"left": 1, "right": 1}, "right": 2}, Add(Add(1, 1), 2)),
        ],
        ["1", {"left": 1}, {"left": 1, "right": 2, "kind": "divide"}],
    ),
    (
        types.Icon,
        [({"src": "data:,"}, types.Icon("data:,"))],
        [5],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "accepted", "refused"), CASES)
def test_each_type(annotation: Any, accepted: list[tuple[Any, Any]], refused: list[Any]) -> None:
    """What is read is what the schema accepts, but for what formats say."""
    schema, read = root(annotation)
    validator = Validator(schema)
    for wire, value in accepted:
        assert validator.accepts({"it": wire})
        assert read(wire) == value
        assert type(read(wire)) is type(value)
    for wire in refused:
        with pytest.raises(Mismatch, match="it"):
            read(wire)
        text = schema["properties"]["it"]
        if not {"format", "contentEncoding"} & text.keys() or "pattern" in text:
            assert not validator.accepts({"it": wire}), wire


def test_schemas_of_them() -> None:
    assert root(Size)[0]["properties"]["it"] == {
        "type": "object",
        "properties": {"width": {"type": "integer"}, "height": {"type": "integer", "default": 1}},
        "required": ["width"],
        "additionalProperties": False,
    }
    door = root(Door)[0]["properties"]["it"]
    assert list(door["properties"]) == ["name", "key", "open"]
    assert door["required"] == ["name", "key"]
    door = root(Door, outputs=True)[0]["properties"]["it"]
    assert list(door["properties"]) == door["required"] == ["name", "open", "lock"]
    assert root(Tagged)[0]["properties"]["it"]["properties"] == {
        "tags": {"type": "string"},
        "more": {"default": None},
    }
    assert root(Partial)[0]["properties"]["it"]["required"] == ["must"]
    assert root(Whole)[0]["properties"]["it"]["required"] == ["must"]
    assert root(Mood)[0]["properties"]["it"] == {"type": "string", "enum": ["good", "bad"]}
    assert root(bytes)[0]["properties"]["it"]["contentEncoding"] == "base64"
    assert root(Ids)[0]["properties"]["it"] == {"type": "array", "items": {"type": "integer"}}


def test_what_is_used_twice_is_described_once() -> None:
    """So a schema is not larger than what it was made of."""
    kinds: list[Any] = [Size]
    for number in range(40):
        kinds.append(
            dataclasses.make_dataclass(
                f"Level{number}", [("a", kinds[-1]), ("b", kinds[-1]), ("c", Annotated[Size, "c"])]
            )
        )
    schema, _ = root(kinds[-1])
    assert len(codec.encode_json(schema)) < 20_000
    assert set(schema["$defs"]) == {"Size", *(f"Level{number}" for number in range(39))}
    assert schema["$defs"]["Level0"]["properties"]["c"] == {
        "$ref": "#/$defs/Size",
        "description": "c",
    }
    jsonschema.Draft202012Validator.check_schema(schema)


def test_defaults_are_shown_as_they_would_be_sent() -> None:
    builder = Builder()
    spec = builder.object(
        [
            Field("mood", Mood, Mood.BAD),
            Field("day", dt.date, dt.date(2026, 7, 28)),
            Field("size", Size, Size(2)),
            Field("ids", frozenset[int], frozenset({2, 1})),
            Field("blob", bytes, b"hi"),
            Field("wrong", int, None),  # says one thing and does another: not shown
            Field("naive", dt.datetime, dt.datetime(2026, 7, 28)),
            Field("thing", Any, object()),
        ],
        dict,
    )
    shown = builder.root(spec).schema["properties"]
    assert {name: field["default"] for name, field in shown.items() if "default" in field} == {
        "mood": "bad",
        "day": "2026-07-28",
        "size": {"width": 2, "height": 1},
        "ids": [1, 2],
        "blob": "aGk=",
    }


# What stands beside types

Meta = msgspec.Meta

CONSTRAINED: list[tuple[Any, dict[str, Any], list[Any], list[tuple[Any, str]]]] = [
    # annotation, keywords, accepted, refused with words
    (
        Annotated[int, Meta(ge=1, le=3)],
        {"type": "integer", "minimum": 1, "maximum": 3},
        [1, 3, 2.0],
        [(0, "at least 1, got 0"), (4, "at most 3, got 4"), ("1", "expected an integer")],
    ),
    (
        Annotated[float, Meta(gt=0), at.Lt(1)],
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        [0.5],
        [(0, "more than 0"), (1, "less than 1, got 1.0")],
    ),
    (
        Annotated[int, at.Interval(ge=1, lt=5)],
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 5},
        [1, 4],
        [(5, "less than 5"), (10**80, "less than 5, got more")],
    ),
    (
        Annotated[float, Meta(multiple_of=0.1)],
        {"type": "number", "multipleOf": 0.1},
        [0.3, 2, 0.7],
        [(0.35, "a multiple of 0.1")],
    ),
    (
        Annotated[int | None, at.MultipleOf(3), "by three"],
        {
            "anyOf": [{"type": "integer"}, {"type": "null"}],
            "multipleOf": 3,
            "description": "by three",
        },
        [3, None],
        [(4, "a multiple of 3")],
    ),
    (
        Annotated[str, Meta(min_length=1, max_length=2, pattern="^[a-c]*$", title="T")],
        {"type": "string", "minLength": 1, "maxLength": 2, "pattern": "^[a-c]*$", "title": "T"},
        ["a", "bc"],
        [("", "at least 1 characters"), ("abc", "at most 2"), ("d", "what matches ^[a-c]*$")],
    ),
    (
        Annotated[list[Annotated[int, at.Ge(0)]], at.Len(1, 2)],
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": 2},
        [[0], [1, 2]],
        [([], "at least 1 items"), ([1, 2, 3], "at most 2 items"), ([0, -1], "it[1]: must be at")],
    ),
    (
        Annotated[dict[str, int], at.MinLen(1)],
        {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
        [{"a": 1}],
        [({}, "at least 1 members")],
    ),
    (
        Annotated[bytes, at.MaxLen(4)],
        {"type": "string", "contentEncoding": "base64", "maxLength": 8},
        ["aGk=", "aGlhaA=="],
        [("aGlhaGlhaGk=", "at most 4 bytes")],
    ),
    (
        Annotated[Decimal, at.Ge(0)],
        {"anyOf": root(Decimal)[0]["properties"]["it"]["anyOf"], "minimum": 0},
        [0, 1.5, "2.5"],
        [(-1, "at least 0")],
    ),
    (
        Annotated[str | list[int], at.MinLen(2)],
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}],
            "minLength": 2,
            "minItems": 2,
        },
        ["ab", [1, 2]],
        [("a", "at least 2 characters"), ([1], "at least 2 items")],
    ),
    (
        Annotated[list[Any], Meta(extra_json_schema={"contains": {"const": "a"}}), "some"],
        {"type": "array", "items": {}, "contains": {"const": "a"}, "description": "some"},
        [["a"], [1, "a"]],
        [([], "it"), ([1], "it")],
    ),
    (Annotated[str, at.doc("documented")], {"type": "string", "description": "documented"}, [], []),
    (
        Annotated[str, Meta(description="one", examples=["a"]), "two", object()],
        {"type": "string", "description": "one", "examples": ["a"]},
        ["b"],
        [],
    ),
    (Annotated[str, Header("Region")], {"type": "string", "x-mcp-header": "Region"}, ["a"], []),
    (
        Annotated[Mood | None, Header("Mood"), "how"],
        {"type": "string", "enum": ["good", "bad"], "x-mcp-header": "Mood", "description": "how"},
        ["bad"],
        [("x", "expected one of")],
    ),
]


@pytest.mark.parametrize(("annotation", "keywords", "accepted", "refused"), CONSTRAINED)
def test_what_stands_beside_a_type(
    annotation: Any, keywords: dict[str, Any], accepted: list[Any], refused: list[Any]
) -> None:
    schema, read = root(annotation)
    assert schema["properties"]["it"] == keywords
    validator = Validator(schema)
    for value in accepted:
        read(value)
        assert validator.accepts({"it": value})
    for value, words in refused:
        with pytest.raises(Mismatch) as caught:
            read(value)
        assert words in str(caught.value)
        assert not validator.accepts({"it": value})


def test_predicates_are_asked_but_cannot_be_told() -> None:
    schema, read = root(at.LowerCase[str])
    assert schema["properties"]["it"] == {"type": "string"}
    assert read("a") == "a"
    with pytest.raises(Mismatch, match="it: does not satisfy islower"):
        read("A")
    _, read = root(Annotated[int | None, at.Predicate(lambda number: number > 1)])
    with pytest.raises(Mismatch, match="does not satisfy"):
        read(None)


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[str, Meta(ge=1)],
        Annotated[int, at.MinLen(1)],
        Annotated[int, Meta(pattern="a")],
        Annotated[dt.date, at.Ge(dt.date(2026, 1, 1))],
        Annotated[int, at.Ge(Decimal(1))],
        Annotated[int, at.Ge(1), at.Ge(2)],
        Annotated[Size, at.MinLen(1)],
        Annotated[str, Meta(extra_json_schema={"pattern": "("})],
        Annotated[str, Meta(extra_json_schema={"type": "integer"})],
        Annotated[str, Meta(extra_json_schema={"minLength": "1"})],
        Annotated[str, Meta(extra_json_schema={"$ref": "http://127.0.0.1:9/x"})],
        Annotated[str, "x" * 300_000],
        dict[Mood, int],
        Nowhere,
        Literal["\udcaf"],
    ],
)
def test_what_cannot_be_said_is_found_at_registration(annotation: Any) -> None:
    with pytest.raises(TypeError):
        root(annotation)


def test_errors_in_depth() -> None:
    """The first ten things that are wrong, each with its path."""
    _, read = root(list[Box[int]])
    with pytest.raises(Mismatch) as caught:
        read([{"content": 1}, {"content": "x", "more": [1, "y"]}, {"contents": 5}])
    assert str(caught.value) == (
        'it[1].content: expected an integer, got "x"; '
        'it[1].more[1]: expected an integer, got "y"; '
        "it[2].contents: unexpected; it[2].content: missing"
    )
    _, read = root(list[int])
    with pytest.raises(Mismatch) as caught:
        read(["x"] * 1000)
    assert len(caught.value.problems) == 10
    with pytest.raises(Mismatch, match="got a large number"):
        root(str)[1](10**5000)
    with pytest.raises(Mismatch) as caught:
        root(Size)[1]({"width": 1, "x" * 1000: 1})
    assert len(str(caught.value)) < 100
    _, read = root(Expression)
    with pytest.raises(Mismatch) as caught:
        read({"left": {"left": 1, "right": "x", "kind": "add"}, "right": 2, "kind": "multiply"})
    assert "it.left.right: expected" in str(caught.value)


@pytest.mark.parametrize("last", [1, "wrong"])
def test_unions_of_what_contains_itself_take_no_time(last: Any) -> None:
    """The tag tells which it is, wherever it stands; each part is read a few times at most."""
    value: Any = last
    for _ in range(90):
        value = {"left": value, "right": 1, "kind": "multiply"}
    _, read = root(Expression)
    begun = time.process_time()
    with nullcontext() if last == 1 else pytest.raises(Mismatch):
        read(value)
    assert time.process_time() - begun < 1


def test_depth_has_a_bound() -> None:
    """Deeper than the codec lets anything come in, it is a mismatch too, not a crash."""
    value: Any = "x"
    for _ in range(5000):
        value = [value]
    _, read = root(JSON)
    with pytest.raises(Mismatch, match="nested too deeply"):
        read(value)


# What is advertised is what is read, for types made at random


_exact_leaves: st.SearchStrategy[Any] = st.sampled_from(
    [str, int, float, bool, None, dt.time, Decimal, Size, Mood, Partial, Literal["a", 1], Any,
     Box[int], JSON, Expression, NewType("Id", int), Annotated[int, at.Interval(ge=-1, lt=3)],
     Annotated[str, Meta(min_length=1, pattern="^a?")], Annotated[float, at.MultipleOf(0.5)]]
)  # fmt: skip


def _more(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda kind: list[kind]),  # type: ignore[valid-type]
        inner.map(lambda kind: dict[str, kind]),  # type: ignore[valid-type]
        inner.map(lambda kind: Box[kind]),  # type: ignore[valid-type]
        inner.map(lambda kind: tuple[kind, ...]),  # type: ignore[valid-type]
        inner.map(lambda kind: Annotated[list[kind], at.Len(1, 2)]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(lambda kinds: tuple[kinds]),  # type: ignore[valid-type]
        st.tuples(inner, inner).map(lambda kinds: Union[kinds]),  # noqa: UP007
    )


_annotations = st.recursive(_exact_leaves, _more, max_leaves=4)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, -1.0, 2.5, "", "a", "b", "good", "10:30", "1.5", "add", "ab"])
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "more", "width", "height", "must", "may", "left", "kind"]),
            inner,
            max_size=3,
        )
        | st.fixed_dictionaries({"content": inner}, optional={"more": st.lists(inner, max_size=2)})
        | st.fixed_dictionaries({"left": inner, "right": inner}, optional={"kind": inner})
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=300)
@given(_annotations, _values)
def test_reader_and_schema_agree(annotation: Any, value: Any) -> None:
    schema, read = root(annotation)
    try:
        read(value)
        fits = True
    except Mismatch:
        fits = False
    assert Validator(schema).accepts({"it": value}) == fits


_typed: dict[Any, st.SearchStrategy[Any]] = {
    dt.date: st.dates(),
    dt.datetime: st.datetimes(timezones=st.just(UTC) | st.just(dt.timezone(dt.timedelta(hours=5)))),
    dt.time: st.times(),
    dt.timedelta: st.timedeltas(min_value=dt.timedelta(0), max_value=dt.timedelta(days=10**7)),
    uuid.UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    bytes: st.binary(max_size=20),
    float: st.floats(allow_nan=False, allow_infinity=False),
    frozenset[int]: st.frozensets(st.integers()),
    set[str]: st.sets(st.text(st.characters(exclude_categories=["Cs"]))),
    Size: st.builds(Size, st.integers(), st.integers()),
    Mood: st.sampled_from(Mood),
    Box[Decimal]: st.builds(Box, st.decimals(allow_nan=False, allow_infinity=False)),
    Expression: st.recursive(
        st.integers(),
        lambda inner: st.builds(Add, inner, inner) | st.builds(Multiply, inner, inner),
        max_leaves=5,
    ),
}


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_what_is_written_fits_and_is_read_again(data: st.DataObject) -> None:
    """The output schema accepts it, with its formats, and what comes back is what went."""
    annotation = data.draw(st.sampled_from(list(_typed)))
    value = data.draw(_typed[annotation])
    wire = codec.decode_json(codec.encode_json(to_json(value, typed=True)))
    schema, _ = root(annotation, outputs=True)
    jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    ).validate({"it": wire})
    _, read = root(annotation)
    assert read(wire) == value


@pytest.mark.parametrize(
    "value",
    [dt.datetime(2026, 7, 28), Decimal("NaN"), Decimal("-Infinity"), dt.timedelta(-1)],
)
def test_values_without_a_json_form(value: Any) -> None:
    with pytest.raises(codec.EncodeError):
        codec.encode_json(to_json(value))
