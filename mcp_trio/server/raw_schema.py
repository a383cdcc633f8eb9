"""Input schemas that are written by hand: kept as they are, and what arguments are checked by.

Source: specification, server/tools, "Tool"; basic/index, "JSON Schema Usage".
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

import jsonschema_rs

from mcp_trio import codec
from mcp_trio.server.fields import MISSING
from mcp_trio.server.handlers import Shape
from mcp_trio.server.readers import Mismatch, TypeSpec

__all__ = ["MAX_DEPTH", "MAX_SIZE", "raw_spec"]

MAX_SIZE: Final = 256 * 1024
"""How many bytes a schema may have."""
MAX_DEPTH: Final = 64
"""How deep it may be nested."""
MAX_BACKTRACKING: Final = 100_000
"""Steps after which a pattern counts as not matching, so that none can hold the server."""
_LONGEST_REASON: Final = 300


def raw_spec(schema: Mapping[str, Any], shape: Shape) -> TypeSpec:
    """What a schema by hand comes to for a function.

    The function gets the arguments that it names, and with ``**keywords`` all of them, as JSON
    has them. A `$ref` to somewhere else is not followed.

    Raises:
        ValueError: it is no JSON Schema of an object, too large or too deep, or refers to another
            document; or the function asks for an argument that may be absent.
        codec.EncodeError: it is no JSON.
    """
    if len(codec.encode_json(dict(schema))) > MAX_SIZE:
        raise ValueError(f"a schema may have {MAX_SIZE} bytes")
    copy = codec.decode_json(codec.encode_json(dict(schema)))
    _check_depth(copy, MAX_DEPTH)
    if copy.get("type") != "object":
        raise ValueError("the schema of arguments has the type 'object'")
    required = copy.get("required", [])
    for field in shape.fields:
        if field.default is MISSING and field.name not in required:
            raise ValueError(f"the schema does not require {field.name!r}, but the function does")
    try:
        # Patterns go through an engine whose backtracking is bounded.
        patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKING)
        validator = jsonschema_rs.validator_for(copy, retriever=_refuse, pattern_options=patterns)
    except (ValueError, jsonschema_rs.ReferencingError) as problem:
        raise ValueError(f"not a schema to check by: {problem}") from problem
    named = frozenset(field.name for field in shape.fields)
    everything = shape.extra is not MISSING

    def read(value: Any, path: str) -> dict[str, Any]:
        for error in validator.iter_errors(value):
            raise Mismatch(_path(error.instance_path), error.message[:_LONGEST_REASON])
        return {name: item for name, item in value.items() if everything or name in named}

    return TypeSpec(copy, read)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is another document, and none is fetched")


def _check_depth(value: Any, left: int) -> None:
    if left < 0:
        raise ValueError(f"a schema may be nested {MAX_DEPTH} deep")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _check_depth(each, left - 1)


def _path(parts: list[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".")
