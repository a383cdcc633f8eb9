"""JSON, strictly: nothing is read or written as something else."""

import enum
import json
import math
import sys
from collections import OrderedDict
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_trio import codec, errors, types

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
JSON_VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text("abc\u2028ü"), inner),
    max_leaves=30,
)


Colour = enum.StrEnum("Colour", ["RED"])
Text = type("Text", (str,), {})
Whole = type("Whole", (int,), {})
Real = type("Real", (float,), {})


class Point(NamedTuple):
    """A tuple with names, which JSON does not have."""

    x: int
    y: int


def nested(depth: int, leaf: Any = None) -> Any:
    value: Any = [] if leaf is None else [leaf]
    for level in range(depth - 1):
        value = [value] if level % 2 else {"a": value}
    return value


# --- reading -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1,]",
        b"NaN",
        b"[Infinity]",
        b"1e400",
        b'"\\ud800"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b'{"a":1} x',
        b"'a'",
        "{}".encode("utf-16"),
    ],
)
def test_what_is_not_json_is_refused(text: bytes) -> None:
    """W07: also what lenient parsers take: NaN, a mark at the start, broken text."""
    with pytest.raises(errors.ParseError):
        codec.decode_json(text)


def test_integers_stay_exact_and_keep_their_type() -> None:
    """Ids beyond 2**64 must not become floats, nor 1.0 an integer."""
    value = codec.decode_json(b"[18446744073709551617, 1, 1.0]")
    assert value == [2**64 + 1, 1, 1.0]
    assert [type(item) for item in value] == [int, int, float]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(kind: Any) -> None:
    """Whatever a transport has at hand, with many brackets too."""
    text = b"[" + b",".join([b"{}"] * 300) + b"]"
    assert codec.decode_json(kind(text)) == [{}] * 300


def test_nesting_is_bounded_when_reading() -> None:
    """Exactly `MAX_DEPTH` is read; one more is refused, and so is what exhausts the stack."""
    text = json.dumps(nested(codec.MAX_DEPTH)).encode()
    assert codec.decode_json(text) == nested(codec.MAX_DEPTH)
    with pytest.raises(errors.ParseError, match="200 deep"):
        codec.decode_json(json.dumps(nested(codec.MAX_DEPTH + 1)).encode())
    with pytest.raises(errors.ParseError, match="deeply"):
        codec.decode_json(b"[" * 100_000 + b"]" * 100_000)


def test_brackets_in_strings_do_not_count() -> None:
    """Depth is a matter of values, not of bytes."""
    text = "[" * 1000
    assert codec.decode_json(json.dumps({"a": [text]}).encode()) == {"a": [text]}


# --- writing -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"a": [1, math.nan]}, "a[1]: nan is not a JSON number"),
        ({"a": -math.inf}, "a: -inf is not a JSON number"),
        (math.inf, "value: inf is not a JSON number"),
        ([Real("nan")], "[0]: nan is not a JSON number"),
        ({"a": {"b": "\ud800"}}, "a.b: a string that holds a lone surrogate"),
        ({"a": {"\ud800": 1}}, "a: the key '\\ud800' holds a lone surrogate"),
        ({"a": b"x"}, "a: bytes has no JSON form"),
        ({"a": bytearray()}, "a: bytearray has no JSON form"),
        ({"a": {1, 2}}, "a: set has no JSON form"),
        ([{"a": 1}, object()], "[1]: object has no JSON form"),
        ({"a": msgspec.UNSET}, "a: UnsetType has no JSON form"),
        ({1: "a"}, "value: the key 1 is not a string"),
        ({"a": {None: 1}}, "a: the key None is not a string"),
        ({"a": types.TextContent("x")}, "a: TextContent has no JSON form"),
        ([10**5000], "[0]: an integer of too many digits"),
        (nested(codec.MAX_DEPTH + 1), "nested more than 200 deep"),
        (nested(codec.MAX_DEPTH, {"a": 1}), "nested more than 200 deep"),
    ],
)
def test_what_json_cannot_hold_is_refused_and_named(value: Any, complaint: str) -> None:
    """W76: never `null` for NaN, Base64 for bytes, a list for a set; and no wrong shape."""
    with pytest.raises(codec.EncodeError) as caught:
        codec.encode_json(value)
    assert str(caught.value) == complaint
    assert isinstance(caught.value, ValueError)


def test_a_value_that_contains_itself_is_refused() -> None:
    """It nests without end; the walk stops where nesting does, however often it branches."""
    circle: list[Any] = []
    circle += [circle, circle]
    with pytest.raises(codec.EncodeError, match="nested"):
        codec.encode_json(circle)


def test_nesting_is_bounded_when_writing() -> None:
    """What can be read can be written again."""
    for leaf in (None, 1.5, "x"):
        value = nested(codec.MAX_DEPTH, leaf)
        assert codec.decode_json(codec.encode_json(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Text("a"), b'"a"'),
        (Whole(3), b"3"),
        (Real(1.5), b"1.5"),
        (Colour.RED, b'"red"'),
        ([Text("a"), Whole(3), Real(1.5)], b'["a",3,1.5]'),
        (OrderedDict(a=1), b'{"a":1}'),
        ({Text("k"): ()}, b'{"k":[]}'),
        (Point(1, 2), b"[1,2]"),
        (2**70, b"1180591620717411303424"),
    ],
)
def test_subclasses_are_written_like_what_they_derive_from(value: Any, text: bytes) -> None:
    """An application's own strings and mappings are still strings and mappings."""
    assert codec.encode_json(value) == text


def test_line_separators_are_escaped() -> None:
    """W14: a peer that splits text at any Unicode line break must not split a frame."""
    text = "a\u2028b\u2029c\u0085d\r\n…é"
    frame = codec.encode_json({text: text})
    assert frame.decode().splitlines() == [frame.decode()]
    assert codec.decode_json(frame) == {text: text}


@settings(deadline=None)
@given(JSON_VALUES)
def test_every_json_value_comes_back(value: Any) -> None:
    """Same values, same types, one line, readable by the standard library."""
    frame = codec.encode_json(value)
    for back in (codec.decode_json(frame), json.loads(frame)):
        assert back == value
        assert repr(back) == repr(value)
    assert len(frame.decode().splitlines()) <= 1


ODDITIES = st.sampled_from(
    [math.nan, math.inf, b"x", "\udfff", {1}, 1j, object(), types.Result(), range(3)]
)


@settings(deadline=None)
@given(
    st.recursive(
        SCALARS | ODDITIES,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["a", "b", "\ud800", 1, None]), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_a_value_is_written_as_it_is_or_not_at_all(value: Any) -> None:
    """Whatever an application hands in, the peer reads that or the application hears of it."""
    try:
        frame = codec.encode_json(value)
    except codec.EncodeError as problem:
        assert str(problem)  # noqa: PT017
    else:
        assert codec.decode_json(frame) == value


@settings(deadline=None)
@given(st.binary(max_size=40) | st.text('[]{}",:0123456789eE.+-truefalsn\\u ', max_size=40))
def test_reading_agrees_with_the_standard_library(data: bytes | str) -> None:
    """What is read is what another parser reads; failures are ParseError and nothing else."""
    text = data if isinstance(data, bytes) else data.encode()
    try:
        value = codec.decode_json(text)
    except errors.ParseError:
        return
    assert repr(value) == repr(json.loads(text))


def test_a_deep_value_does_not_need_a_deep_stack() -> None:
    """The bound is well below the interpreter's own, even for a caller deep in it."""

    def from_below(levels: int) -> bytes:
        return from_below(levels - 1) if levels else codec.encode_json(nested(codec.MAX_DEPTH))

    assert from_below(sys.getrecursionlimit() // 2)
