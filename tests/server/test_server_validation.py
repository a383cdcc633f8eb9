"""JSON Schemas that are written by hand, and the words for what does not fit them."""

import socket
import time
from typing import Any

import pytest

from mcp_trio import codec
from mcp_trio.server.readers import Mismatch
from mcp_trio.server.validation import DIALECTS, MAX_SCHEMA_DEPTH, MAX_SCHEMA_SIZE, Validator


@pytest.mark.parametrize("dialect", [*DIALECTS, *(f"{dialect}#" for dialect in DIALECTS)])
def test_dialects(dialect: str) -> None:
    """Each by its own rules: a tuple is written in another way since 2020-12."""
    items = "prefixItems" if "2020" in dialect else "items"
    validator = Validator({"$schema": dialect, items: [{"type": "integer"}]})
    assert validator.accepts([1, "a"])
    assert not validator.accepts(["a"])


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$schema": "https://example.org/mine"}, 'dialect "https://example.org/mine" is not sup'),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "is not supported"),
        ({"$schema": 5}, "the dialect 5 is not supported"),
        ({"type": "text"}, "type: "),
        ({"properties": {"a": {"minimum": "1"}}}, "properties.a.minimum: "),
        ({"pattern": "("}, "regex"),
        ({"$ref": "#/$defs/nowhere"}, "nowhere"),
        ({"$ref": "other.json"}, "not a JSON Schema"),
        ({"$ref": "https://example.org/other"}, "another document"),
        ({"$id": "https://example.org/a/", "items": {"$ref": "b"}}, "another document"),
        ({"$dynamicRef": "https://example.org/other#x"}, "external"),
        ({"title": "x" * MAX_SCHEMA_SIZE}, "bytes"),
    ],
)
def test_schemas_that_cannot_be_used(schema: dict[str, Any], words: str) -> None:
    """Refused with the reason when they are registered, not when they are needed."""
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        Validator(schema)


def test_depth_is_bounded() -> None:
    schema: dict[str, Any] = {}
    for _ in range(MAX_SCHEMA_DEPTH):
        schema = {"not": schema}
    Validator(schema)
    with pytest.raises(ValueError, match="deep"):
        Validator({"not": schema})
    for _ in range(50_000):
        schema = {"not": schema}
    with pytest.raises(ValueError, match="deep"):
        Validator(schema)
    itself: dict[str, Any] = {}
    itself["not"] = itself
    itself["items"] = itself
    with pytest.raises(ValueError, match=r"deep|bytes"):
        Validator(itself)


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, {"a": object()}])
def test_what_is_no_json_is_no_schema(value: Any) -> None:
    with pytest.raises(codec.EncodeError):
        Validator({"default": value})


def test_nothing_is_fetched() -> None:
    """Not by a reference, a relative one, a dynamic one, an id or a dialect, by http or file."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        for schema in (
            {"$ref": url},
            {"$id": url, "$ref": "y"},
            {"$dynamicRef": url},
            {"$schema": url},
            {"$ref": "file:///etc/hostname"},
        ):
            with pytest.raises(ValueError, match=r"document|dialect|external"):
                Validator(schema)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_the_vocabulary_of_2020_12_is_there() -> None:
    """References to itself, anchors, dynamic ones, composition and conditions."""
    validator = Validator(
        {
            "$defs": {
                "node": {
                    "$anchor": "n",
                    "type": "object",
                    "properties": {"a": {"$ref": "#n"}},
                    "unevaluatedProperties": False,
                }
            },
            "$ref": "#/$defs/node",
        }
    )
    assert validator.accepts({"a": {"a": {}}})
    with pytest.raises(Mismatch) as caught:
        validator.check({"a": {"a": {"b": 1}}})
    assert "b: unexpected" in str(caught.value)
    assert Validator({"$ref": "#"}).accepts(5)
    assert Validator({"$schema": next(iter(DIALECTS)), "$ref": next(iter(DIALECTS))}).accepts({})


CONTACT = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "how": {"enum": ["phone", "email"]},
        "kind": {"const": "contact"},
        "at": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
        "one": {"oneOf": [{"type": "integer"}, {"minimum": 0}]},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "never": False,
        "size": {"type": ["integer", "null"]},
        "tags": {"uniqueItems": True, "items": {"type": "string"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "dependentRequired": {"how": ["age"]},
}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "name: missing"),
        ([], "expected an object, got an array of 0"),
        ({"name": 5}, "name: expected a string, got 5"),
        ({"name": "n", "age": -1}, "age: -1 is less than the minimum of 0"),
        ({"name": "n", "how": "post", "age": 1}, 'how: expected one of "phone", "email", got "po'),
        ({"name": "n", "how": "phone"}, "age: missing"),
        ({"name": "n", "kind": "x"}, 'kind: expected "contact", got "x"'),
        ({"name": "n", "at": 5}, "at: expected a string, got 5; or expected an array, got 5"),
        ({"name": "n", "at": ["x"]}, "at[0]: expected an integer"),
        ({"name": "n", "one": 1}, "one: fits more than one of what it may be"),
        ({"name": "n", "one": "a"}, "one: fits"),
        ({"name": "n", "code": "A"}, 'code: expected what matches ^[a-z]+$, got "A"'),
        ({"name": "n", "never": 1}, "never: "),
        ({"name": "n", "size": "x"}, 'size: expected an integer or null, got "x"'),
        ({"name": "n", "other": 1, "more": 2}, "other: unexpected; more: unexpected"),
        ({"name": "n", "tags": ["x" * 500, "x" * 500]}, "tags: an array of 2 does not fit unique"),
    ],
)
def test_words(value: Any, words: str) -> None:
    """As for annotations: where, what was expected, what there is."""
    validator = Validator(CONTACT)
    if words == "one: fits":
        validator.check(value)  # a string has no minimum
        return
    with pytest.raises(Mismatch) as caught:
        validator.check(value)
    assert words in str(caught.value)
    assert not validator.accepts(value)
    assert len(str(caught.value)) < 300


def test_not_more_than_ten_problems_are_named() -> None:
    with pytest.raises(Mismatch) as caught:
        Validator({"items": {"type": "integer"}}).check(["x"] * 10_000)
    assert len(caught.value.problems) == 10


@pytest.mark.parametrize("pattern", ["^(a+)+$", r"^(a|aa)+(?!b)$", r"(?=(a+))(a*)*b\2"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """What would take for ever does not fit, and takes some milliseconds."""
    validator = Validator({"pattern": pattern})
    begun = time.process_time()
    with pytest.raises(Mismatch):
        validator.check("a" * 5000 + "!")
    assert time.process_time() - begun < 1
