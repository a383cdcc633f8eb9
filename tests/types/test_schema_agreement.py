"""Our reading of the schema against that of a JSON Schema validator.

Each official example is damaged in every place in a few ways. What the validator then still
accepts, we accept and keep; what it refuses, we refuse, but for the tolerance that is listed.
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mcp_trio import codec, types

SCHEMA = (
    Path(__file__).parents[3] / "shared" / "schema" / types.REVISION / "schema.json"
).resolve()
EXAMPLES = sorted(SCHEMA.parent.glob("examples/*/*.json"))
# One example of each type, the one with the most in it.
RICHEST = {
    path.parent.name: path
    for path in sorted(EXAMPLES, key=lambda path: path.stat().st_size)
    if hasattr(types, path.parent.name)
}

GONE: Any = object()
DAMAGES: list[Any] = [GONE, None, True, 5, "x", [], {}]

Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text("utf-8"))
    # What the schema lost, as the generator has it.
    answers = found["$defs"]["ElicitResult"]["properties"]["content"]["additionalProperties"]
    answers["anyOf"][-1]["type"] = ["string", "number", "boolean"]
    found["$defs"]["JSONValue"] = {}
    found["$defs"]["InputRequiredResult"]["properties"]["resultType"]["const"] = "input_required"
    return found


def _places(value: Any, path: Place = ()) -> Iterator[Place]:
    yield path
    if isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(item, (*path, step))


def _damaged(value: Any, path: Place, damage: Any) -> Any:
    if not path:
        return damage
    value = copy.deepcopy(value)
    parent = value
    for step in path[:-1]:
        parent = parent[step]
    if damage is GONE:
        del parent[path[-1]]
    else:
        parent[path[-1]] = damage
    return value


def _tolerated(path: Place, damage: Any) -> bool:
    """Where we accept what the schema refuses."""
    if damage is None:
        return True  # null for an optional field is like its absence
    if {"_meta", "inputSchema", "outputSchema"} & set(path):
        return True  # plain objects to us; protocol/meta.py and the server look into them
    if not path:
        return bool(damage == {})  # only where a schema requires nothing but _meta
    if damage is GONE:
        return path[-1] in {"resultType", "ttlMs", "cacheScope"}
    # Ranges are advice to whoever uses a number.
    return damage == 5 and str(path[-1]).endswith(("priority", "Priority"))


@pytest.mark.skipif(not RICHEST, reason="the JSON Schema of the protocol is not in the repository")
@pytest.mark.parametrize("name", sorted(RICHEST))
def test_damaged_examples_are_judged_as_the_schema_does(name: str, schema: dict[str, Any]) -> None:
    """And what is accepted is kept as it is, with defaults for a result's three fields."""
    validator = jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{name}"})
    cls = getattr(types, name)
    example = json.loads(RICHEST[name].read_bytes())
    cases = [
        (path, damage, _damaged(example, path, damage))
        for path in _places(example)
        for damage in DAMAGES
        if path or damage is not GONE
    ]
    for path, damage, wire in cases:
        valid = validator.is_valid(wire)
        try:
            value = codec.structure(cls, wire)
        except codec.DecodeError as problem:
            if valid:
                pytest.fail(f"refused with {damage!r} at {path}: {problem}")
            continue
        assert valid or _tolerated(path, damage), (path, damage, value)
        back = codec.unstructure(value)
        if isinstance(back, dict):
            for field in {"resultType", "ttlMs", "cacheScope"} - wire.keys():
                back.pop(field, None)
        assert back == wire
