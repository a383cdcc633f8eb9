"""Input schemas by hand, and parameters that are mirrored in headers."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any

import attrs
import pytest
from http_kit import post
from http_kit import running as running_host
from server_kit import call, result_of, text_of

from mcp_trio import Server
from mcp_trio.protocol.param_headers import header_paths
from mcp_trio.server import Header
from mcp_trio.server.validation import MAX_SCHEMA_DEPTH, MAX_SCHEMA_SIZE

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"point": {"$anchor": "p", "type": "array", "prefixItems": [{"type": "number"}]}},
    "properties": {"at": {"$ref": "#p"}, "how": {"enum": ["a", "b"]}, "name": {"type": "string"}},
    "required": ["at"],
    "if": {"properties": {"how": {"const": "b"}}, "required": ["how"]},
    "then": {"required": ["name"]},
    "additionalProperties": False,
}


def make() -> Server:
    server = Server("s", version="1")

    @server.tool(input_schema=SCHEMA)
    async def some(at: Any) -> str:
        return str(at)

    @server.tool(input_schema=SCHEMA)
    def every(**arguments: Any) -> str:
        return str(sorted(arguments))

    return server


async def test_a_schema_is_listed_as_it_is() -> None:
    """W41: `$defs`, `$anchor` and conditions are kept."""
    tools = (await result_of(make(), "tools/list"))["tools"]
    assert [tool["inputSchema"] for tool in tools] == [SCHEMA] * 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"at": [1, "x"], "how": "a"}, "[1, 'x']"),
        ({"at": ["x"]}, "Invalid arguments for some: at[0]: "),
        ({"how": "a"}, "Invalid arguments for some: at: missing"),
        ({"at": [], "how": "b"}, "Invalid arguments for some: name: missing"),
        ({"at": [], "else": 1}, "Invalid arguments for some: else: unexpected"),
    ],
)
async def test_arguments_are_checked_by_it(arguments: dict[str, Any], text: str) -> None:
    """The error names path and reason."""
    assert text_of(await call(make(), "some", **arguments)).startswith(text)


async def test_a_function_with_keywords_gets_all_of_them() -> None:
    assert text_of(await call(make(), "every", at=[], how="a")) == "['at', 'how']"


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array"}, "object"),
        ({}, "object"),
        ({"type": "object", "required": 5}, "not a JSON Schema"),
        ({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, "none is"),
        ({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}, "none is"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "not a JSON Schema"),
        ({"type": "object", "title": "x" * MAX_SCHEMA_SIZE}, "bytes"),
        (deep(MAX_SCHEMA_DEPTH), "deep"),
        ({"type": "object", "title": float("nan")}, "nan"),
    ],
)
def test_what_cannot_be_checked_by_is_refused(schema: dict[str, Any], why: str) -> None:
    """No other document is fetched; size and depth have a bound."""
    server = Server("s", version="1")

    def tool() -> None:
        """Do nothing."""

    with pytest.raises(ValueError, match=why):
        server.add_tool(tool, input_schema=schema)


def test_a_function_may_ask_only_for_what_must_be_there() -> None:
    server = Server("s", version="1")

    def tool(missing: int) -> None:
        """Ask for it."""

    with pytest.raises(ValueError, match="does not require 'missing'"):
        server.add_tool(tool, input_schema={"type": "object"})


async def test_a_pattern_cannot_hold_the_server() -> None:
    """Backtracking has a bound, and what exceeds it does not match."""
    server = Server("s", version="1")
    bomb = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+(?=b)$"}}}

    @server.tool(input_schema=bomb)
    async def tool(**arguments: Any) -> str:
        return "matched"

    assert text_of(await call(server, "tool", a="a" * 40)).startswith("Invalid arguments")


# Headers


@attrs.frozen
class Place:
    """An object with a mirrored field."""

    zone: Annotated[str, "where", Header("Zone")]


def with_headers() -> Server:
    server = Server("s", version="1")

    @server.tool
    async def query(
        region: Annotated[str, Header("Region")] = "",
        count: Annotated[int, Header("Count")] = 0,
        dry: Annotated[bool, Header("Dry")] = False,
    ) -> str:
        """Query."""
        return region

    return server


def test_a_signature_says_which() -> None:
    server = Server("s", version="1")

    @server.tool
    async def query(region: Annotated[str, "where", Header("Region")], place: Place) -> str:
        """Query."""
        return region

    tool = server._tools.registry.get("query")
    assert tool is not None
    properties = tool.wire["inputSchema"]["properties"]
    assert properties["region"] == {
        "type": "string",
        "description": "where",
        "x-mcp-header": "Region",
    }
    assert tool.headers == {"Region": ("region",), "Zone": ("place", "zone")}


def test_one_that_is_optional_is_of_one_type() -> None:
    """Clients leave out tools whose mirrored parameters may be null."""
    server = Server("s", version="1")

    @server.tool
    async def query(region: Annotated[str | None, Header("Region")] = None) -> str:
        """Query."""
        return str(region)

    tool = server._tools.registry.get("query")
    assert tool is not None
    assert tool.wire["inputSchema"]["properties"] == {
        "region": {"type": "string", "x-mcp-header": "Region"}
    }

    def inside(region: Annotated[str, Header("Region")] | None = None) -> None: ...

    with pytest.raises(ValueError, match="reached"):
        server.add_tool(inside)


async def test_arguments_are_read_as_what_they_are_annotated_with() -> None:
    """Once they fit the schema; and what has no name is dropped."""
    server = Server("s", version="1")

    @server.tool(input_schema={"type": "object", "properties": {"day": {}, "more": {}}})
    async def some(day: date | None = None) -> str:
        return repr(day)

    assert text_of(await call(server, "some", day="2026-07-28", more=1)) == (
        "datetime.date(2026, 7, 28)"
    )
    assert "day: expected a date" in text_of(await call(server, "some", day="x"))


def mark(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"} | schema}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (mark(**{"x-mcp-header": ""}), "name of a header"),
        (mark(**{"x-mcp-header": "a b"}), "name of a header"),
        (mark(**{"x-mcp-header": "a\r\n"}), "name of a header"),
        (mark(**{"x-mcp-header": 5}), "name of a header"),
        (mark(type="number"), "strings"),
        (mark(type="object"), "strings"),
        ({"type": "object", "items": mark()}, "reached"),
        ({"type": "object", "anyOf": [mark()]}, "reached"),
        ({"type": "object", "$defs": {"x": mark()}}, "reached"),
        ({"properties": {"a": mark()["properties"]["a"], "b": mark()}}, "twice"),
    ],
)
def test_those_that_clients_would_refuse_are_refused(schema: Mapping[str, Any], why: str) -> None:
    """W86: what the specification asks of `x-mcp-header`."""
    with pytest.raises(ValueError, match=why):
        header_paths(schema)


def test_data_is_not_mistaken_for_a_schema() -> None:
    data = {"x-mcp-header": "no"}
    schema = {
        "properties": {"x-mcp-header": {"type": "string", "default": data, "enum": [data]}},
        "examples": [data],
    }
    assert header_paths(schema) == {}


@pytest.mark.parametrize(
    ("arguments", "headers", "status"),
    [
        ({}, {}, 200),
        ({"region": "x"}, {"region": "x"}, 200),
        ({"region": "Hello"}, {"region": "=?base64?SGVsbG8=?="}, 200),
        ({"region": "SGVsbG8="}, {"region": "SGVsbG8="}, 200),
        ({"count": 3, "dry": True}, {"count": "3", "dry": "true"}, 200),
        ({"region": None}, {}, 200),
        ({"region": "Zürich"}, {"region": "=?base64?WsO8cmljaA==?="}, 200),
        ({"region": " x "}, {"region": "=?base64?IHggPw==?="}, 400),
        ({"region": " x "}, {"region": "=?base64?IHgg?="}, 200),
        ({"count": 3}, {"count": "3.0"}, 200),
        ({"count": 3.0}, {"count": "3"}, 200),
        ({"region": "x"}, {}, 400),
        ({"region": "x"}, {"region": "y"}, 400),
        ({}, {"region": "x"}, 400),
        ({"region": "Hello"}, {"region": "=?base64?SGVs!!!bG8=?="}, 400),
        ({"count": 3}, {"count": "4"}, 400),
        ([], {"region": "x"}, 400),
    ],
)
async def test_headers_have_to_repeat_the_body(
    arguments: Any, headers: dict[str, str], status: int
) -> None:
    """W86: -32020 with status 400; what is not declared is ignored."""
    lines = {f"Mcp_Param_{name}".replace("_", "-"): value for name, value in headers.items()}
    data = post("tools/call", name="query", arguments=arguments)
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    data = data.replace(b"\r\n", b"\r\n" + head.encode() + b"Mcp-Param-Other: z\r\n", 1)
    async with running_host(with_headers()) as server, server.connect() as peer:  # type: ignore[arg-type]
        response = await peer.request(data)
        assert response.status == status
        assert (b"-32020" in response.body) == (status == 400)
