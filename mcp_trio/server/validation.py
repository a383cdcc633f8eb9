"""JSON Schemas that are written by hand: whether they can be used, and what does not fit them.

The work is done by `jsonschema_rs`, which is imported when the first such schema comes along. It
never sees the network here: a reference that leaves the schema is refused with the schema.

Source: specification, basic/index, "JSON Schema Usage".
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mcp_trio import codec
from mcp_trio.server.readers import REPORTED, Mismatch, expected, show, under

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["DIALECTS", "MAX_SCHEMA_DEPTH", "MAX_SCHEMA_SIZE", "Validator", "check_size"]

MAX_SCHEMA_DEPTH: Final = 64
"""How deep objects and arrays may nest in a schema."""
MAX_SCHEMA_SIZE: Final = 256 * 1024
"""How many bytes a schema may have."""
BACKTRACK_LIMIT: Final = 100_000
"""How many steps back one match of a pattern may take; that is about 10 ms."""

DIALECTS: Final[Mapping[str, str]] = {
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
}
"""The dialects that ``$schema`` may name, with or without an empty fragment."""


class Validator:
    """A schema, ready for use.

    Args:
        schema: a JSON Schema, of the dialect that its ``$schema`` names, or else of 2020-12.

    Raises:
        ValueError: it is no valid schema of its dialect, or the dialect is not known, or it
            refers to what is not in it, or it is too large.
        codec.EncodeError: it is no JSON.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        own = dict(schema)
        check_size(own)
        self._validator = _compile(own)

    def accepts(self, value: Any) -> bool:
        """Whether a JSON value fits."""
        return self._validator.is_valid(value)

    def check(self, value: Any) -> None:
        """Do nothing for a JSON value that fits.

        Raises:
            Mismatch: it does not; the exception says where and why, up to ten times.
        """
        if self._validator.is_valid(value):
            return
        problems: list[tuple[str, str]] = []
        for error in self._validator.iter_errors(value):
            for problem in _explain(error):
                if problem not in problems:
                    problems.append(problem)
            if len(problems) >= REPORTED:
                break
        raise Mismatch.of(problems)


def check_size(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that is too large or too deep.

    Raises:
        ValueError: it is.
        codec.EncodeError: it is no JSON.
    """
    level: list[Any] = [schema]
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        level = [
            part
            for node in level
            for part in (node.values() if isinstance(node, Mapping) else node)
            if isinstance(part, Mapping | list | tuple)
        ]
        if not level or len(level) > MAX_SCHEMA_SIZE:
            break
    else:
        raise ValueError(f"a schema may be nested {MAX_SCHEMA_DEPTH} deep, not deeper")
    if level or len(codec.encode_json(schema)) > MAX_SCHEMA_SIZE:
        raise ValueError(f"a schema may have {MAX_SCHEMA_SIZE} bytes, not more")


def _compile(schema: dict[str, Any]) -> "jsonschema_rs.Validator":
    import jsonschema_rs

    dialect = schema.get("$schema", next(iter(DIALECTS)))
    kind = DIALECTS.get(dialect.removesuffix("#")) if isinstance(dialect, str) else None
    if kind is None:
        raise ValueError(
            f"the dialect {show(dialect)} is not supported; supported are {', '.join(DIALECTS)}"
        )
    try:
        validator: jsonschema_rs.Validator = getattr(jsonschema_rs, kind)(
            schema,
            retriever=_refuse,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT),
        )
    except jsonschema_rs.ValidationError as problem:
        path = _join("", problem.instance_path) or "the whole"
        message = problem.message if len(problem.message) <= 300 else problem.message[:297] + "..."
        raise ValueError(f"not a JSON Schema: {path}: {message}") from None
    except ValueError as problem:
        raise ValueError(f"not a JSON Schema: {problem}") from None
    return validator


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is another document, and none is fetched")


def _explain(error: "jsonschema_rs.ValidationError") -> list[tuple[str, str]]:
    """Where a value does not fit and why, in the words that readers of annotations use."""
    path = _join("", error.instance_path)
    kind: Any = error.kind
    match kind.name:
        case "type":
            kinds = sorted(kind.types, key=list(_NAMES).index)
            wanted = " or ".join(_NAMES[name] for name in kinds)
            return [_pair(expected(wanted, error.instance, path))]
        case "required":
            return [(under(path, kind.property), "missing")]
        case "additionalProperties" | "unevaluatedProperties" if hasattr(kind, "unexpected"):
            return [(under(path, name), "unexpected") for name in kind.unexpected[:REPORTED]]
        case "enum":
            options = ", ".join(map(show, kind.options[:20]))
            return [_pair(expected(f"one of {options}", error.instance, path))]
        case "const":
            return [_pair(expected(show(kind.expected_value), error.instance, path))]
        case "anyOf" | "oneOf" if hasattr(kind, "context"):
            return _explain_choice(error, path)
        case "pattern" if hasattr(kind, "pattern"):
            return [_pair(expected(f"what matches {kind.pattern}", error.instance, path))]
        case "false schema" | "falseSchema":
            return [(path, "unexpected")]
    # The value itself can be large; the message begins with it.
    text = error.message
    if isinstance(error.instance, dict | list | str) and len(text) > _LONG:
        text = f"{show(error.instance)} does not fit {kind.name}"
    return [(path, text)]


def _explain_choice(error: "jsonschema_rs.ValidationError", path: str) -> list[tuple[str, str]]:
    kind: Any = error.kind
    branches = [[pair for each in branch for pair in _explain(each)] for branch in kind.context]
    branches = [branch for branch in branches if branch]
    if not branches:
        return [(path, "fits more than one of what it may be")]
    # Where each is wrong about the value itself, the reasons stand side by side.
    if all(branch[0][0] == path for branch in branches):
        reasons = dict.fromkeys(branch[0][1] for branch in branches)
        return [(path, "; or ".join(list(reasons)[:REPORTED]))]
    texts = [": ".join(filter(None, branch[0])) for branch in branches]
    return [("", "; or ".join(list(dict.fromkeys(texts))[:REPORTED]))]


def _pair(mismatch: Mismatch) -> tuple[str, str]:
    return mismatch.problems[0]


def _join(path: str, steps: list[str | int]) -> str:
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else under(path, step)
    return path


_NAMES: Final = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_LONG: Final = 200
