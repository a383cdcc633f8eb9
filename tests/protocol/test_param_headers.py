"""Parameters that headers mirror: what a client builds from a schema, a server accepts."""

import string
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_trio import errors
from mcp_trio.protocol.headers import Headers, build_param_headers, verify_params
from mcp_trio.protocol.param_headers import header_paths, mirrored_values

_TOKEN = st.text(string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~", min_size=1, max_size=6)
_SAFE = 2**53 - 1
_VALUES = {
    "string": st.text() | st.sampled_from(["=?base64?x?=", " ", "\t", "", "\r\nA: b", "é", "a\tb"]),
    "integer": st.integers(-_SAFE, _SAFE) | st.integers(-(2**30), 2**30).map(float),
    "boolean": st.booleans(),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema with marked parameters at any depth, and arguments for it."""
    names = draw(st.lists(_TOKEN, unique_by=str.lower, max_size=5))
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    arguments: dict[str, Any] = {}
    for number, name in enumerate(names):
        place, values = schema, arguments
        for step in draw(st.lists(st.sampled_from(["a", "b", "properties"]), max_size=3)):
            place = place["properties"].setdefault(step, {"type": "object", "properties": {}})
            values = values.setdefault(step, {})
        kind = draw(st.sampled_from(sorted(_VALUES)))
        place["properties"][f"p{number}"] = {"type": kind, "x-mcp-header": name}
        match draw(st.sampled_from(["value", "null", "absent"])):
            case "value":
                values[f"p{number}"] = draw(_VALUES[kind])
            case "null":
                values[f"p{number}"] = None
    return schema, arguments


def _sent(schema: dict[str, Any], arguments: dict[str, Any]) -> tuple[Headers, int]:
    built = build_param_headers(mirrored_values(header_paths(schema), arguments))
    raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in built]
    for _, value in raw:
        assert all(byte == 9 or 32 <= byte < 127 for byte in value)
        assert value == value.strip(b" \t")
    return Headers(raw), len(raw)


def _verified(headers: Headers, schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    verify_params(headers, mirrored_values(header_paths(schema), arguments))


@given(calls())
def test_what_a_client_builds_a_server_accepts(call: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """W86: whatever the values; there is one header for each that is neither null nor absent."""
    schema, arguments = call
    headers, count = _sent(schema, arguments)
    _verified(headers, schema, arguments)
    values = mirrored_values(header_paths(schema), arguments).values()
    assert count == sum(value is not None for value in values)


@given(calls(), st.data())
def test_no_other_call_has_the_same_headers(
    call: tuple[dict[str, Any], dict[str, Any]], data: st.DataObject
) -> None:
    """W86: with another value, or with none, the headers do not fit."""
    schema, arguments = call
    paths = header_paths(schema)
    assume(paths)
    headers, _ = _sent(schema, arguments)
    path = paths[data.draw(st.sampled_from(sorted(paths)))]
    place = arguments
    for step in path[:-1]:
        place = place[step]
    before = place.get(path[-1])
    after = data.draw(st.none() | _VALUES["string"] | _VALUES["integer"] | _VALUES["boolean"])
    # The text of a value of another type is the same header, and schemas are checked elsewhere.
    assume(after is None or before is None or type(after) is type(before))
    assume(after != before)
    place[path[-1]] = after
    with pytest.raises(errors.HeaderMismatch):
        _verified(headers, schema, arguments)
