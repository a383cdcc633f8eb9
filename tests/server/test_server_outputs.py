"""What tools promise about their results, and are held to."""

import dataclasses
import datetime as dt
import functools
import logging
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar

import attrs
import pytest
from server_kit import Recorder, call, error_of, request, result_of, text_of

from mcp_trio import codec, errors, types
from mcp_trio.server import Context, InputRequired, Server
from mcp_trio.server.outputs import output_of

T = TypeVar("T")
NUMBER = {"type": "number"}


class Weather(TypedDict):
    """What the weather is like."""

    celsius: Annotated[float, "outside"]
    wind: float | None


@attrs.frozen
class Room:
    """Has an attribute that its constructor knows by another name."""

    name: str
    _floor: int = 0


@dataclasses.dataclass
class Tree:
    """Contains itself."""

    value: int
    branches: "list[Tree]" = dataclasses.field(default_factory=list)


class Point(NamedTuple):
    """Is an object."""

    x: float
    y: float


class Asker:
    """Is called like a function."""

    def __call__(self) -> int:
        return 1

    def method(self) -> float:
        return 1


def returning(annotation: Any, value: Any = None) -> Callable[[], Any]:
    """A function with that return annotation, and what it returns."""

    async def tool() -> Any:
        return value

    tool.__annotations__["return"] = annotation
    return tool


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (int, {"type": "integer"}),
        (bool, {"type": "boolean"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, float], {"type": "object", "additionalProperties": NUMBER}),
        (dict, {"type": "object", "additionalProperties": {}}),
        (
            Weather,
            {
                "type": "object",
                "properties": {
                    "celsius": {"type": "number", "description": "outside"},
                    "wind": {"anyOf": [NUMBER, {"type": "null"}]},
                },
                "required": ["celsius", "wind"],
                "additionalProperties": False,
            },
        ),
        (
            Room,
            {
                "type": "object",
                "properties": {"name": {"type": "string"}, "floor": {"type": "integer"}},
                "required": ["name", "floor"],
                "additionalProperties": False,
            },
        ),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (int | types.CallToolResult | InputRequired, {"type": "integer"}),
        (Awaitable[int], {"type": "integer"}),
        (dict[str, types.Icon], {"type": "object", "additionalProperties": {"type": "object"}}),
        *(
            (annotation, None)
            for annotation in (
                str,
                None,
                Any,
                object,
                T,
                str | None,
                Annotated[str, "text"],
                str | InputRequired,
                types.CallToolResult,
                types.ImageContent,
                types.ContentBlock,
                list[types.ContentBlock],
                list[str | types.ImageContent],
                tuple[types.TextContent, ...],
                dict[str, int] | types.TextContent,
            )
        ),
    ],
)
def test_what_an_annotation_promises(annotation: Any, schema: Any) -> None:
    """Text, blocks and nothing are content; anything else is structured."""
    output = output_of(returning(annotation), None)
    assert (None if output is None else output.schema) == schema
    assert output_of(returning(annotation), False) is None


def test_the_annotation_is_found_however_the_function_is_wrapped() -> None:
    def wrapped(a: int) -> int:
        return a

    @functools.wraps(wrapped)
    def wrapper(*args: Any, **keywords: Any) -> Any:
        return wrapped(*args, **keywords)

    for function in (wrapped, wrapper, functools.partial(wrapped, 1), Asker()):
        output = output_of(function, None)
        assert output is not None
        assert output.schema == {"type": "integer"}
    output = output_of(Asker().method, None)
    assert output is not None
    assert output.schema == NUMBER
    assert output_of(lambda: 5, None) is None
    assert output_of(len, None) is None


def test_what_cannot_be_promised_is_found_at_registration() -> None:
    server = Server("s", version="1")
    with pytest.raises(TypeError, match="name: what it returns: complex has no JSON form; output"):
        server.add_tool(returning(complex), name="name")
    with pytest.raises(TypeError, match="output_schema is a JSON Schema"):
        server.add_tool(returning(int), output_schema=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a JSON Schema"):
        server.add_tool(returning(int), output_schema={"type": "text"})
    server.add_tool(returning(complex), name="name", output_schema=False)
    assert server.statistics().tools == 1


@pytest.mark.parametrize(
    ("annotation", "value", "structured"),
    [
        (int, 5, 5),
        (float, 5, 5),
        (bool, False, False),
        (int | None, None, None),
        (int | str, "a", "a"),
        (list[str], [], []),
        (list[str], ("a",), ["a"]),
        (set[int], {3, 1, 2}, [1, 2, 3]),
        (frozenset[int | str], frozenset({"b", 1}), ["b", 1]),
        (Weather, {"celsius": 5.5, "wind": None}, {"celsius": 5.5, "wind": None}),
        (Room, Room("r", 2), {"name": "r", "floor": 2}),
        (Tree, Tree(1, [Tree(2)]), {"value": 1, "branches": [{"value": 2, "branches": []}]}),
        (Point, Point(1.5, 2), {"x": 1.5, "y": 2}),
        (bytes, b"hi", "aGk="),
        (dict[str, dt.date], {"a": dt.date(2026, 7, 28)}, {"a": "2026-07-28"}),
        (Decimal, Decimal("1.10"), "1.10"),
        (dict[str, types.Icon], {"a": types.Icon("data:,")}, {"a": {"src": "data:,"}}),
    ],
)
async def test_what_was_promised_is_sent(annotation: Any, value: Any, structured: Any) -> None:
    """Any JSON value; and the same as JSON text, for clients that look at the blocks only."""
    server = Server("s", version="1")
    server.add_tool(returning(annotation, value), name="tool")
    result = await call(server, "tool")
    codec.structure(types.CallToolResult, result)
    assert result["structuredContent"] == structured
    assert type(result["structuredContent"]) is type(structured)
    assert codec.decode_json(text_of(result).encode()) == structured
    [listed] = (await result_of(server, "tools/list"))["tools"]
    assert "outputSchema" in listed


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (int, "5", 'expected an integer, got "5"'),
        (Weather, {"celsius": 5}, "wind: missing"),
        (Weather, {"celsius": "5", "wind": None}, 'celsius: expected a number, got "5"'),
        (Weather, {"celsius": 5, "wind": 1, "rain": 1}, "rain: unexpected"),
        (list[int], [1, "2"], '[1]: expected an integer, got "2"'),
        (int, None, "expected an integer, got null"),
        (float, float("nan"), "cannot be sent as JSON"),
        (list[Any], [object()], "cannot be sent as JSON"),
        (dt.datetime, dt.datetime(2026, 7, 28), "without an offset"),
        (int, types.CallToolResult(content=[]), "expected an integer, got null"),
        (int, types.CallToolResult(content=[], structured_content="x"), "expected an integer"),
    ],
)
async def test_a_broken_promise_is_an_internal_error(
    annotation: Any, value: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """W59: it is the server's fault, not the model's: -32603 and a line in the log."""
    server = Server("s", version="1")
    server.add_tool(returning(annotation, value), name="tool")
    with caplog.at_level(logging.ERROR):
        error = await error_of(server, "tools/call", name="tool")
    assert error["code"] == errors.INTERNAL_ERROR
    assert words in error["message"]
    assert "'tool'" in caplog.text


async def test_whole_results_beside_a_promise() -> None:
    """One that says what is wrong need not keep it; one with the right content is taken whole."""
    server = Server("s", version="1")
    text = types.TextContent("five")

    @server.tool
    async def tool(ok: bool) -> int | types.CallToolResult:
        return types.CallToolResult(
            content=[text], is_error=not ok, structured_content=5 if ok else None
        )

    result = await call(server, "tool", ok=True)
    assert (text_of(result), result["structuredContent"]) == ("five", 5)
    result = await call(server, "tool", ok=False)
    assert (text_of(result), result["isError"]) == ("five", True)
    assert "structuredContent" not in result


async def test_a_tool_that_fails_owes_nothing() -> None:
    server = Server("s", version="1")

    @server.tool
    async def tool() -> int:
        raise ValueError("no")

    assert (await call(server, "tool"))["isError"] is True
    assert (await call(server, "tool", x=1))["isError"] is True


async def test_a_schema_by_hand() -> None:
    """Kept as it is, of any kind, and what is returned is held to it."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://example.org/even",
        "definitions": {"even": {"type": "integer", "multipleOf": 2}},
        "type": "array",
        "items": {"$ref": "#/definitions/even"},
    }
    server = Server("s", version="1")

    @server.tool(output_schema=schema)
    def numbers(*, first: int) -> str:
        return [first, 4]  # type: ignore[return-value]

    [listed] = (await result_of(server, "tools/list"))["tools"]
    assert listed["outputSchema"] == schema
    assert (await call(server, "numbers", first=2))["structuredContent"] == [2, 4]
    error = await error_of(server, "tools/call", name="numbers", arguments={"first": 3})
    assert "[0]" in error["message"]


async def test_questions_are_no_results() -> None:
    server = Server("s", version="1")

    @server.tool
    async def tool(ctx: Context) -> int:
        answer = await ctx.elicit("How many?", int)
        assert answer
        return 5

    able: Any = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    reply = await server.handle(request("tools/call", {"name": "tool"}, **able), Recorder())
    assert codec.decode_json(reply.frame)["result"]["resultType"] == "input_required"
