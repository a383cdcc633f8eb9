"""Parameters of tools that clients mirror in HTTP headers: how a schema marks them.

A proxy can then route a call without reading its body. A server refuses to offer what is marked
wrongly, and a client leaves such a tool out.

Source: specification, basic/transports/streamable-http, "Custom Headers from Tool Parameters".
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcp_trio.protocol.headers import is_token
from mcp_trio.protocol.jsonrpc import show

__all__ = ["KEYWORD", "Paths", "header_paths", "mirrored_values"]

KEYWORD: Final = "x-mcp-header"

Paths = Mapping[str, tuple[str, ...]]
"""Where the value of each header stands in the arguments."""

_TYPES: Final = ("string", "integer", "boolean")
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
_BY_NAME: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties"})


def header_paths(schema: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The headers that a schema of arguments asks for.

    Raises:
        ValueError: one is not as the specification has it; clients leave out the tool.
    """
    found: dict[str, tuple[str, ...]] = {}
    lower: set[str] = set()
    for path, place in _annotated(schema, ()):
        name = place[KEYWORD]
        if not isinstance(name, str) or not is_token(name):
            raise ValueError(f"{KEYWORD} is the name of a header, not {show(name)}")
        if path is None:
            raise ValueError(f"{KEYWORD} {show(name)} is not reached by properties alone")
        if place.get("type") not in _TYPES:
            raise ValueError(f"{KEYWORD} {show(name)} is for strings, integers and booleans")
        if name.lower() in lower:
            raise ValueError(f"{KEYWORD} {show(name)} is there twice")
        lower.add(name.lower())
        found[name] = path
    return found


def _annotated(
    schema: Any, path: tuple[str, ...] | None
) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Each schema with the keyword, and where properties alone lead to it; None if they do not."""
    if isinstance(schema, list):
        for each in schema:
            yield from _annotated(each, None)
    if not isinstance(schema, Mapping):
        return
    if KEYWORD in schema:
        yield path, schema
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, Mapping):
            for name, each in value.items():
                yield from _annotated(each, None if path is None else (*path, name))
        elif keyword in _BY_NAME and isinstance(value, Mapping):
            for each in value.values():
                yield from _annotated(each, None)
        elif keyword not in _DATA and keyword != KEYWORD:
            yield from _annotated(value, None)


def mirrored_values(paths: Paths, arguments: Any) -> dict[str, object]:
    """What each header has to say about a call; None where there is no value."""
    return {name: _value(arguments, path) for name, path in paths.items()}


def _value(arguments: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(name)
    return arguments
