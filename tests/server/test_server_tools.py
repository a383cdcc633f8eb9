"""Tools: registration, arguments, results, threads."""

import contextvars
import dataclasses
import enum
import functools
import logging
import threading
from pathlib import Path
from typing import Annotated, Any

import attrs
import pytest
import trio
from server_kit import Recorder, ask, call, error_of, request, result_of, text_of

from mcp_trio import codec, errors, types
from mcp_trio.server import Context, Limits, Server


@pytest.fixture
def server() -> Server:
    return Server("s", version="1")


async def test_decorators_leave_the_function_alone(server: Server) -> None:
    @server.tool
    async def one(a: int) -> str:
        """First."""
        return str(a)

    @server.tool(
        name="two.b",
        title="Two",
        description="Second.",
        annotations=types.ToolAnnotations(read_only_hint=True),
        icons=[types.Icon("data:,")],
        meta={"org.example/x": 1},
    )
    def two() -> str:
        return "2"

    assert await one(5) == "5"
    assert two() == "2"
    result = await result_of(server, "tools/list")
    codec.structure(types.ListToolsResult, result)
    assert result["tools"] == [
        {
            "name": "one",
            "description": "First.",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"],
                "additionalProperties": False,
            },
        },
        {
            "name": "two.b",
            "title": "Two",
            "description": "Second.",
            "inputSchema": {"type": "object", "additionalProperties": False},
            "annotations": {"readOnlyHint": True},
            "icons": [{"src": "data:,"}],
            "_meta": {"org.example/x": 1},
        },
    ]


async def test_the_call_form(server: Server) -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    server.add_tool(functools.partial(add, 1))
    server.add_tool(functools.partial(add, b=2), name="other")
    tools = (await result_of(server, "tools/list"))["tools"]
    assert [(tool["name"], tool["description"]) for tool in tools] == [
        ("add", "Add."),
        ("other", "Add."),
    ]
    assert text_of(await call(server, "add", b=2)) == "3"
    assert text_of(await call(server, "other", a=3)) == "5"
    # What the server has bound, no client can set.
    assert (await call(server, "other", a=3, b=9))["isError"]
    server.remove_tool("add")
    assert (await error_of(server, "tools/call", name="add"))["code"] == errors.INVALID_PARAMS


def test_what_cannot_be_registered(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    def tool(path: Path) -> None: ...

    with pytest.raises(TypeError, match="tool: Path has no JSON form"):
        server.add_tool(tool)
    with pytest.raises(TypeError, match="pass name="):
        server.add_tool(lambda: "")
    with pytest.raises(ValueError, match="needs a name"):
        server.add_tool(lambda: "", name="")
    with pytest.raises(codec.EncodeError):
        server.add_tool(lambda: "", name="t", meta={"x": b""})
    assert server.statistics().tools == 0
    with caplog.at_level(logging.WARNING):
        server.add_tool(lambda: "", name=" a ")
    assert "unusual" in caplog.text
    with pytest.raises(ValueError, match="already"):
        server.add_tool(lambda: "", name=" a ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": 5}, "the name of a tool is a string, not 5"),
        ({"title": 5}, "tool: title: expected a string, got 5"),
        ({"description": 5}, "tool: description: expected a string"),
        ({"annotations": {"readOnlyHint": True}}, "annotations are ToolAnnotations"),
        ({"annotations": types.ToolAnnotations(title=5)}, "annotations.title: expected a string"),  # type: ignore[arg-type]
        ({"icons": "data:,"}, r"icons\[0\]: expected an object"),
        ({"icons": types.Icon("data:,")}, "not iterable"),
        ({"input_schema": "object"}, "input_schema is a JSON Schema"),
    ],
)
def test_options_of_the_wrong_type(server: Server, options: dict[str, Any], words: str) -> None:
    """Found when the tool is registered, with the path."""

    def tool() -> None: ...

    with pytest.raises(TypeError, match=words):
        server.add_tool(tool, **options)
    assert server.statistics().tools == 0


async def test_the_decorator_with_empty_parentheses(server: Server) -> None:
    @server.tool()
    def tool() -> str:
        return "hi"

    assert text_of(await call(server, "tool")) == "hi"
    with pytest.raises(TypeError, match="a handler is a function"):
        server.tool("tool")  # type: ignore[call-overload]


async def test_the_order_is_that_of_registration(server: Server) -> None:
    """And the same each time; what comes back comes last."""
    for name in ("b", "c", "a"):
        server.add_tool(lambda: "", name=name)
    server.remove_tool("c")
    server.add_tool(lambda: "", name="c")
    for _ in range(2):
        tools = (await result_of(server, "tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == ["b", "a", "c"]


async def test_every_kind_of_content(server: Server) -> None:
    """Each block as it is, with its annotations, and text among them."""
    hints = types.Annotations(audience=["user"], priority=0.5)
    blocks: list[str | types.ContentBlock] = [
        "text",
        types.TextContent("more", annotations=hints),
        types.ImageContent("aGk=", "image/png"),
        types.AudioContent("aGk=", "audio/wav"),
        types.ResourceLink(name="a", uri="note://a", mime_type="text/plain", size=5),
        types.EmbeddedResource(types.TextResourceContents("note://a", "text")),
        types.EmbeddedResource(types.BlobResourceContents("note://b", "aGk=")),
    ]

    @server.tool
    async def tool() -> list[str | types.ContentBlock]:
        return blocks

    result = await call(server, "tool")
    codec.structure(types.CallToolResult, result)
    assert [block["type"] for block in result["content"]] == [
        "text", "text", "image", "audio", "resource_link", "resource", "resource",
    ]  # fmt: skip
    assert result["content"][1]["annotations"] == {"audience": ["user"], "priority": 0.5}
    assert result["content"][4]["size"] == 5
    assert "structuredContent" not in result
    [listed] = (await result_of(server, "tools/list"))["tools"]
    assert "outputSchema" not in listed


async def test_bad_arguments_are_for_the_model(server: Server) -> None:
    """An `isError` result names path and reason, and the tool is not run."""
    ran: list[int] = []

    @server.tool
    async def tool(celsius: Annotated[float, "degrees"], rooms: list[str] | None = None) -> None:
        ran.append(1)

    result = await call(server, "tool", celsius="warm", rooms=[1], wind=2)
    assert result["isError"] is True
    text = text_of(result)
    assert text.startswith("Invalid arguments for tool: ")
    for part in (
        'celsius: expected a number, got "warm"',
        "rooms[0]: expected a string, got 1",
        "wind: unexpected",
    ):
        assert part in text
    assert "celsius: missing" in text_of(await result_of(server, "tools/call", name="tool"))
    assert not ran
    assert (await call(server, "tool", celsius=1)) == {
        "content": [],
        "resultType": "complete",
        "_meta": result["_meta"],
    }


@dataclasses.dataclass
class Positive:
    """A class that asks for more than its types say."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(f"{self.number} is not positive")
        assert self.number != 13


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"one": {"number": 0}}, "one: 0 is not positive"),
        ({"many": [{"number": 1}, {"number": -1}]}, "many[1]: -1 is not positive"),
        ({"one": {"number": 13}}, "one: "),
    ],
)
async def test_what_a_class_refuses_is_a_bad_argument(
    server: Server, value: dict[str, Any], words: str
) -> None:
    """A validator's words are for the model, as are those about types."""

    @server.tool
    async def tool(
        one: Positive | None = None, many: tuple[Positive, ...] = (), other: Positive | str = ""
    ) -> str:
        return repr(other)

    result = await call(server, "tool", **value)
    assert result["isError"] is True
    assert text_of(result).startswith(f"Invalid arguments for tool: {words}")
    assert "Positive" in text_of(await call(server, "tool", other={"number": 5}))


class Colour(enum.Enum):
    """An enumeration."""

    RED = "red"


@attrs.frozen
class Room:
    """An attrs class."""

    name: str
    colour: Colour
    beds: tuple[int, ...] = (1, 2)


@dataclasses.dataclass
class House:
    """A dataclass."""

    rooms: dict[str, Room]


IMAGE = types.ImageContent("aGk=", "image/png")
TEXT = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(
    ("value", "content", "structured"),
    [
        ("hi", [TEXT], None),
        (None, [], None),
        (types.TextContent("hi"), [TEXT], None),
        (
            ["hi", IMAGE],
            [TEXT, {"type": "image", "data": "aGk=", "mimeType": "image/png"}],
            None,
        ),
        ({"a": [1]}, [{"type": "text", "text": '{"a":[1]}'}], {"a": [1]}),
        ([], [{"type": "text", "text": "[]"}], []),
        (["a"], [{"type": "text", "text": '["a"]'}], ["a"]),
        (5, [{"type": "text", "text": "5"}], 5),
        (True, [{"type": "text", "text": "true"}], True),
        (
            House({"r": Room("r", Colour.RED)}),
            [
                {
                    "type": "text",
                    "text": '{"rooms":{"r":{"name":"r","colour":"red","beds":[1,2]}}}',
                }
            ],
            {"rooms": {"r": {"name": "r", "colour": "red", "beds": [1, 2]}}},
        ),
        (
            {"icon": types.Icon("data:,", mime_type="image/png")},
            [{"type": "text", "text": '{"icon":{"src":"data:,","mimeType":"image/png"}}'}],
            {"icon": {"src": "data:,", "mimeType": "image/png"}},
        ),
    ],
)
async def test_what_a_tool_may_return(
    server: Server, value: Any, content: list[Any], structured: Any
) -> None:
    server.add_tool(lambda: value, name="tool")
    result = await call(server, "tool")
    codec.structure(types.CallToolResult, result)
    assert result["content"] == content
    assert result.get("structuredContent") == structured
    assert "isError" not in result


async def test_a_whole_result_is_taken_as_it_is(server: Server) -> None:
    whole = types.CallToolResult(
        content=[types.TextContent("hi")], is_error=True, meta={"org.example/x": 1}
    )
    server.add_tool(lambda: whole, name="tool")
    result = await call(server, "tool")
    assert result["isError"] is True
    assert result["_meta"]["org.example/x"] == 1
    assert "io.modelcontextprotocol/serverInfo" in result["_meta"]


@pytest.mark.parametrize(
    "value",
    ["\udcaf", float("nan"), float("inf"), set(), b"x", {1: 2}, {"a": {"b": [float("nan")]}},
     object(), {"x": "\ud800"}, [IMAGE, 5], types.TextContent("\udcaf")],
)  # fmt: skip
async def test_what_json_cannot_hold_is_an_error(server: Server, value: Any) -> None:
    """W59: -32603 instead of a dead writer, and the next request works."""
    server.add_tool(lambda: value, name="tool")
    server.add_tool(lambda: "fine", name="next")
    error = await error_of(server, "tools/call", name="tool")
    assert error["code"] == errors.INTERNAL_ERROR
    assert text_of(await call(server, "next")) == "fine"


class UnspeakableError(Exception):
    """Its message cannot be made."""

    def __str__(self) -> str:
        raise ValueError


async def _group() -> None:
    raise ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [KeyError("b")])])


async def _nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_fail)
        nursery.start_soon(trio.sleep_forever)


async def _fail() -> None:
    raise RuntimeError("inside")


async def _many() -> None:
    raise ExceptionGroup("g", [ValueError(str(i)) for i in range(9)])


async def _unspeakable() -> None:
    raise UnspeakableError


async def _surrogate() -> None:
    raise OSError("no file '\udcaf'")


def _stop() -> None:
    raise StopIteration


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_group, "ValueError: a; KeyError: 'b'"),
        (_nursery, "RuntimeError: inside"),
        (_many, "ValueError: 0; ValueError: 1; ValueError: 2; ValueError: 3; ValueError: 4; and"),
        (_unspeakable, "UnspeakableError"),
        (_surrogate, "OSError: no file '?'"),
        (_stop, "RuntimeError: coroutine raised StopIteration"),
    ],
)
async def test_a_tool_that_fails_says_so(
    server: Server, function: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """W62, W63: an `isError` result names the cause, also out of a group; the log has it all."""
    server.add_tool(function, name="tool")
    result = await call(server, "tool")
    assert result["isError"] is True
    assert text_of(result).startswith(text)
    assert "Traceback" in caplog.text


async def test_an_error_response_passes_through_a_tool(server: Server) -> None:
    @server.tool
    async def tool() -> None:
        async with trio.open_nursery():
            raise errors.InvalidParams("no", data={"x": 1})

    @server.tool
    async def plain() -> None:
        raise errors.ErrorResponse("mine", code=7, data={"\udcaf": 1})

    error = await error_of(server, "tools/call", name="tool")
    assert error == {"code": errors.INVALID_PARAMS, "message": "no", "data": {"x": 1}}
    assert (await error_of(server, "tools/call", name="plain"))["code"] == 7


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def test_plain_functions_run_in_threads(server: Server) -> None:
    """Their context variables come along."""

    @server.tool
    def where() -> list[Any]:
        return [threading.get_ident(), variable.get()]

    @server.tool
    async def here() -> list[Any]:
        return [threading.get_ident(), variable.get()]

    variable.set("set")
    there, what = (await call(server, "where"))["structuredContent"]
    assert (there != threading.get_ident(), what) == (True, "set")
    assert (await call(server, "here"))["structuredContent"] == [threading.get_ident(), "set"]


async def test_awaitables_of_plain_functions_are_awaited(server: Server) -> None:
    async def real(text: str) -> str:
        await trio.lowlevel.checkpoint()
        return text.upper()

    server.add_tool(lambda text: real(text), name="tool")
    assert text_of(await call(server, "tool", text="a")) == "A"


async def test_a_cancelled_thread_is_abandoned(server: Server) -> None:
    """W18: its result is dropped, and the request ends at once."""
    started, release, done = threading.Event(), threading.Event(), threading.Event()

    @server.tool
    def slow() -> str:
        started.set()
        release.wait(10)
        done.set()
        return "late"

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, server, "tools/call", {"name": "slow"})
            assert await trio.to_thread.run_sync(started.wait, 5)
            nursery.cancel_scope.cancel()
    assert not done.is_set()
    release.set()
    assert await trio.to_thread.run_sync(done.wait, 5)


async def test_threads_are_bounded() -> None:
    server = Server("s", version="1", limits=Limits(threads=2))
    release = threading.Event()
    running: list[int] = []
    two = threading.Barrier(3)

    @server.tool
    def slow() -> None:
        running.append(1)
        if len(running) <= 2:
            two.wait(10)
        release.wait(10)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call, server, "slow")
            await trio.to_thread.run_sync(two.wait, 5)
            await trio.sleep(0.02)
            assert len(running) == 2
            release.set()
    assert len(running) == 5


def test_a_server_serves_one_run_after_another() -> None:
    """Abandoned threads of one run take nothing from the next."""
    server = Server("s", version="1", limits=Limits(threads=1))
    release = threading.Event()
    server.add_tool(lambda: release.wait(10) and "done", name="slow")
    server.add_tool(lambda: "quick", name="quick")

    async def first() -> None:
        with trio.move_on_after(0.05):
            await call(server, "slow")

    async def second() -> None:
        with trio.fail_after(5):
            assert text_of(await call(server, "quick")) == "quick"

    trio.run(first)
    trio.run(second)
    release.set()


async def test_calls_run_side_by_side(
    server: Server, autojump_clock: trio.testing.MockClock
) -> None:
    @server.tool
    async def nap(ctx: Context, seconds: float) -> str:
        await trio.sleep(seconds)
        return str(ctx.request_id)

    answers: list[str] = []

    async def one(request_id: int, seconds: float) -> None:
        params = {"name": "nap", "arguments": {"seconds": seconds}}
        response = await ask(server, "tools/call", params, request_id=request_id)
        answers.append(text_of(response["result"]))

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for i in range(50):
            nursery.start_soon(one, i, 50.0 - i)
    assert trio.current_time() - start == 50
    assert answers == [str(i) for i in reversed(range(50))]


async def test_a_call_needs_no_arguments_object(server: Server) -> None:
    server.add_tool(lambda: "hi", name="tool")
    reply = await server.handle(request("tools/call", {"name": "tool"}), Recorder())
    assert reply.error_code is None


@pytest.mark.parametrize("text", ["", "hello", '"\\', "a\nb", "é \u2028 \x85 \U0001f600", "\udcaf"])
async def test_a_text_is_sent_as_the_block_that_it_stands_for(server: Server, text: str) -> None:
    """W05: and what JSON cannot hold is the same error."""

    @server.tool
    async def plain() -> str:
        return text

    @server.tool
    async def block() -> types.TextContent:
        return types.TextContent(text)

    sent = [
        await ask(server, "tools/call", {"name": name}, request_id="x")
        for name in ("plain", "block")
    ]
    assert sent[0] == sent[1]
    assert ("error" in sent[0]) == (text == "\udcaf")
