"""W59 and W63 as a kind: whatever an application says, wherever its words reach the wire.

Each place where a value of the application goes into a message gets each of the values below. The
request must have one answer, by the schema of the protocol a good one or an error; what comes
before it likewise; and the next request is served. What is registered is refused at once, or can
be listed.
"""

import collections.abc
import decimal
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any

import pytest
import trio
from conformance_kit import EVERYTHING, TOKEN, check_result, check_schema, metadata

from mcp_trio import Complete, Context, Hub, Server, errors, types
from mcp_trio.server import CacheHints, Elicit, Header, InputRequired, Sample
from mcp_trio.testing import Wire, open_raw_client, request

LOG_LEVEL = "io.modelcontextprotocol/logLevel"
META = metadata(
    {**EVERYTHING, "elicitation": {"form": {}, "url": {}}},
    **{TOKEN: "t", LOG_LEVEL: "debug"},
)


class Text(str):
    """A string that is more than one."""

    __slots__ = ()


class Broken:
    """Cannot even be named."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class BrokenMapping(collections.abc.Mapping[str, Any]):
    """Fails when it is read."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(key)

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    return value


def _cycle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = value
    return value


VALUES: dict[str, Any] = {
    "surrogate": "a\udcafb",
    "text": Text("\udcaf"),
    "nan": float("nan"),
    "infinity": float("-inf"),
    "set": {1, 2},
    "bytes": b"\xff",
    "memoryview": memoryview(b"x"),
    "cycle": _cycle(),
    "deep": _deep(),
    "digits": 10**5000,
    "large": 2**70,
    "decimal": decimal.Decimal("NaN"),
    "complex": 1j,
    "key": {1: 2},
    "bad key": {"\udcaf": 1},
    "nested": {"a": [{"b": float("nan")}]},
    "object": object(),
    "broken": Broken(),
    "broken mapping": BrokenMapping(),
    "class": int,
    "range": range(3),
    "exception": ValueError("\udcaf"),
    "none": None,
    "true": True,
    "dict": {},
    "list": [],
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What cannot be put into words cannot be put into the log of a test either."""
    logger = logging.getLogger("mcp_trio")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


def raised(error: BaseException) -> Any:
    """Fail with something."""
    raise error


def text(value: Any = "x", **more: Any) -> types.TextContent:
    """A block of text."""
    return types.TextContent(value, **more)


def content(value: Any = "x", **more: Any) -> types.TextResourceContents:
    """The content of a resource."""
    return types.TextResourceContents("x://a", value, **more)


def result(**more: Any) -> types.CallToolResult:
    """A whole result."""
    return types.CallToolResult(**{"content": [text()], **more})


def read(**more: Any) -> types.ReadResourceResult:
    """A whole result of reading."""
    return types.ReadResourceResult(
        **{"contents": [content()], "ttl_ms": 1, "cache_scope": "public", **more}
    )


TOOLS: dict[str, Callable[[Any, Context], Any]] = {
    "returned": lambda v, _: v,
    "in a list": lambda v, _: [text(), v],
    "text": lambda v, _: text(v),
    "meta": lambda v, _: text(meta=v),
    "in meta": lambda v, _: text(meta={"a": v}),
    "extra": lambda v, _: text(extra={"a": v}),
    "annotations": lambda v, _: text(annotations=v),
    "last modified": lambda v, _: text(annotations=types.Annotations(last_modified=v)),
    "image": lambda v, _: types.ImageContent(v, "image/png"),
    "type of a sound": lambda v, _: types.AudioContent("", v),
    "link": lambda v, _: types.ResourceLink(name=v, uri="x://a"),
    "embedded": lambda v, _: types.EmbeddedResource(v),
    "text of embedded": lambda v, _: types.EmbeddedResource(content(v)),
    "content": lambda v, _: result(content=v),
    "structured": lambda v, _: result(structured_content=v),
    "is_error": lambda v, _: result(is_error=v),
    "meta of result": lambda v, _: result(meta=v),
    "in meta of result": lambda v, _: result(meta={"a": v}),
    "extra of result": lambda v, _: result(extra={"a": v}),
    "kind of result": lambda v, _: result(result_type=v) if not isinstance(v, str) else v,
    "exception": lambda v, _: raised(ValueError(v)),
    "group": lambda v, _: raised(BaseExceptionGroup("\udcaf", [ValueError(v), KeyError(v)])),
    "message": lambda v, _: raised(errors.ErrorResponse(v)),
    "code": lambda v, _: raised(errors.ErrorResponse("x", code=v)),
    "data": lambda v, _: raised(errors.InvalidParams("x", data=v)),
    "busy": lambda v, _: raised(errors.ServerBusy("x", retry_after=v)),
    "required": lambda v, _: raised(errors.MissingRequiredClientCapability("x", required=v)),
    "log": lambda v, ctx: ctx.log("info", v),
    "level": lambda v, ctx: ctx.log(v, "x"),
    "logger": lambda v, ctx: ctx.log("info", "x", logger=v),
    "progress": lambda v, ctx: ctx.report_progress(v),
    "total": lambda v, ctx: ctx.report_progress(1, v),
    "message of progress": lambda v, ctx: ctx.report_progress(1, 2, v),
    "question": lambda v, ctx: ctx.elicit(v),
    "form": lambda v, ctx: ctx.elicit("x", v),
    "key of a question": lambda v, ctx: ctx.elicit("x", key=v),
    "url": lambda v, ctx: ctx.elicit_url("x", v),
    "sample": lambda v, ctx: ctx.sample(v, max_tokens=5),
    "temperature": lambda v, ctx: ctx.sample("x", max_tokens=5, temperature=v),
    "metadata": lambda v, ctx: ctx.ask(Sample("x", max_tokens=5, metadata=v)),
    "tokens": lambda v, ctx: ctx.sample("x", max_tokens=v),
    "state": lambda v, _: InputRequired({"a": Elicit("x")}, state=v),
    "requests": lambda v, _: InputRequired(v),
    "a request": lambda v, _: InputRequired({"a": v}),
    "key of a request": lambda v, _: InputRequired({v: Elicit("x")}),
    "capability": lambda v, ctx: ctx.require(v),
    "reason": lambda v, ctx: ctx.server.end_subscriptions(v),
    "delay": lambda v, ctx: ctx.server.end_subscriptions(retry_after=v),
}
RESOURCES: dict[str, Callable[[Any], Any]] = {
    "returned": lambda v: v,
    "in a list": lambda v: ["x", v],
    "text": content,
    "uri": lambda v: types.TextResourceContents(v, "x"),
    "blob": lambda v: types.BlobResourceContents("x://a", v),
    "type": lambda v: content(mime_type=v),
    "in meta": lambda v: content(meta={"a": v}),
    "ttl": lambda v: read(ttl_ms=v),
    "negative ttl": lambda _: read(ttl_ms=-1),
    "scope": lambda v: read(cache_scope=v),
    "contents": lambda v: read(contents=v),
    "meta": lambda v: read(meta=v),
    "data": lambda v: raised(errors.ErrorResponse("x", data=v)),
    "exception": lambda v: raised(ValueError(v)),
}
PROMPTS: dict[str, Callable[[Any], Any]] = {
    "returned": lambda v: v,
    "in a list": lambda v: ["x", v],
    "message": lambda v: types.PromptMessage("user", v),
    "text": lambda v: types.PromptMessage("user", text(v)),
    "role": lambda v: types.PromptMessage(v, text()),
    "messages": lambda v: types.GetPromptResult(messages=v),
    "description": lambda v: types.GetPromptResult(messages=[], description=v),
    "exception": lambda v: raised(ValueError(v)),
}
NOTES = {
    "notifications/progress": "ProgressNotification",
    "notifications/message": "LoggingMessageNotification",
}


async def answer(wire: Wire, method: str, **params: Any) -> dict[str, Any]:
    """Ask, and hold everything that comes to the schema; returns the response."""
    await wire.send(request("asked", method, {"_meta": META, **params}))
    with trio.fail_after(10):
        while "id" not in (frame := await wire.receive()):
            check_schema(NOTES[frame["method"]], frame)
    assert frame["id"] == "asked"
    if "error" in frame:
        check_schema("JSONRPCErrorResponse", frame)
        assert type(frame["error"]["code"]) is int
        assert type(frame["error"]["message"]) is str
    else:
        check_schema("JSONRPCResultResponse", frame)
        check_result(method, frame["result"])
    return frame


async def _finish(made: Any) -> object:
    return await made if isinstance(made, Awaitable) else made


@pytest.mark.parametrize("place", TOOLS)
async def test_what_a_tool_says(place: str) -> None:
    """W59, W63: results, errors, log messages, progress, questions, states."""
    server = Server("s", version="1", hub=Hub())
    now: list[Any] = [None]

    @server.tool
    async def tool(ctx: Context) -> object:
        return await _finish(TOOLS[place](now[0], ctx))

    async with open_raw_client(server) as wire:
        for now[0] in VALUES.values():
            await answer(wire, "tools/call", name="tool")
        await answer(wire, "server/discover")


@pytest.mark.parametrize("place", RESOURCES)
async def test_what_a_resource_says(place: str) -> None:
    """W59, W63: contents, their hints for caches, errors."""
    server = Server("s", version="1")
    now: list[Any] = [None]

    @server.resource("x://a")
    async def resource() -> object:
        return await _finish(RESOURCES[place](now[0]))

    async with open_raw_client(server) as wire:
        for now[0] in VALUES.values():
            await answer(wire, "resources/read", uri="x://a")
        await answer(wire, "server/discover")


@pytest.mark.parametrize("place", PROMPTS)
async def test_what_a_prompt_says(place: str) -> None:
    """W59, W63: messages, roles, descriptions, errors."""
    server = Server("s", version="1")
    now: list[Any] = [None]

    @server.prompt
    async def prompt() -> object:
        return await _finish(PROMPTS[place](now[0]))

    async with open_raw_client(server) as wire:
        for now[0] in VALUES.values():
            await answer(wire, "prompts/get", name="prompt")
        await answer(wire, "server/discover")


@pytest.mark.parametrize("in_list", [False, True])
async def test_what_a_completer_says(in_list: bool) -> None:
    """W59, W63: values that are no strings."""
    server = Server("s", version="1")
    now: list[Any] = [None]

    async def complete(typed: str) -> Any:
        return now if in_list else now[0]

    @server.prompt
    async def prompt(a: Annotated[str, Complete(complete)]) -> str:
        return a

    ref = {"type": "ref/prompt", "name": "prompt"}
    async with open_raw_client(server) as wire:
        for now[0] in VALUES.values():
            await answer(wire, "completion/complete", ref=ref, argument={"name": "a", "value": ""})
        await answer(wire, "server/discover")


# What is registered


async def nothing() -> None:
    """Return nothing."""


async def one(a: str) -> str:
    """Return what came."""
    return a


def with_default(server: Server, value: Any, annotation: Any = str) -> None:
    """A tool with a default."""

    async def tool(a: Any = value) -> str:
        return str(a)

    tool.__annotations__["a"] = annotation
    server.add_tool(tool)


Registration = Callable[[Server, Any], object]


def tool_with(name: str) -> Registration:
    """A tool with an option."""
    return lambda server, value: server.add_tool(nothing, **{name: value})


def schema_with(name: str, keyword: str) -> Registration:
    """A tool with a schema with a keyword."""
    return lambda server, value: tool_with(name)(server, {"type": "object", keyword: value})


def prompt_with(name: str) -> Registration:
    """A prompt with an option."""
    return lambda server, value: server.add_prompt(nothing, **{name: value})


def resource_with(name: str) -> Registration:
    """A resource with an option."""
    return lambda server, value: server.add_resource("x://a", nothing, **{name: value})


def template_with(name: str) -> Registration:
    """A template with an option."""
    return lambda server, value: server.add_resource_template("x://{a}", one, **{name: value})


def server_with(name: str) -> Registration:
    """A server with an option."""
    return lambda _, value: Server("s", version="1", **{name: value})


def icon(**of: Any) -> dict[str, Any]:
    """The option for one picture."""
    return {"icons": [types.Icon(**{"src": "x", **of})]}


COMMON = ["name", "title", "description", "icons", "meta"]
CACHED = ["ttl_ms", "cache_scope"]
KEYWORDS = ["default", "description", "title", "enum", "properties", "required", "$defs"]
ABOUT = ["title", "description", "instructions", "website_url", "icons", "page_size", *CACHED]
SCHEMAS = ["input_schema", "output_schema"]
REGISTRATIONS: dict[str, Registration] = {
    **{f"tool {name}": tool_with(name) for name in [*COMMON, *SCHEMAS, "annotations"]},
    **{f"{name} {key}": schema_with(name, key) for name in SCHEMAS for key in KEYWORDS},
    "icon": lambda server, value: server.add_tool(nothing, icons=[value]),
    "source of an icon": lambda server, value: server.add_tool(nothing, **icon(src=value)),
    "sizes of an icon": lambda server, value: server.add_tool(nothing, **icon(sizes=value)),
    "hint": lambda server, value: server.add_tool(
        nothing, annotations=types.ToolAnnotations(read_only_hint=value)
    ),
    "in meta": lambda server, value: server.add_tool(nothing, meta={"a": value}),
    "default": with_default,
    "default of anything": lambda server, value: with_default(server, value, object),
    "marker": lambda server, value: with_default(server, "", Annotated[str, value]),
    "header": lambda server, value: with_default(server, "", Annotated[str, Header(value)]),
    **{f"prompt {name}": prompt_with(name) for name in COMMON},
    **{
        f"resource {name}": resource_with(name)
        for name in [*COMMON, *CACHED, "mime_type", "annotations", "size"]
    },
    **{
        f"template {name}": template_with(name)
        for name in [*COMMON, *CACHED, "mime_type", "annotations"]
    },
    "resource uri": lambda server, value: server.add_resource(value, nothing),
    "template uri": lambda server, value: server.add_resource_template(value, one),
    **{f"server {name}": server_with(name) for name in ABOUT},
    "server name": lambda _, value: Server(value, version="1"),
    "server version": lambda _, value: Server("s", version=value),
    "hint for caches": lambda _, value: Server(
        "s", version="1", cache_hints={"tools/list": CacheHints(value)}
    ),
}
LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


@pytest.mark.parametrize("place", REGISTRATIONS)
async def test_what_is_registered(place: str) -> None:
    """W59: it is refused there and then, or every list and the discovery can be sent."""
    for name, value in VALUES.items():
        server = Server("s", version="1", hub=Hub())
        try:
            made = REGISTRATIONS[place](server, value)
        except (TypeError, ValueError):
            continue
        except (RecursionError, RuntimeError):
            assert name in ("deep", "cycle", "broken", "broken mapping")
            continue
        server = made if isinstance(made, Server) else server
        async with open_raw_client(server) as wire:
            for method in ("server/discover", *(m for m in LISTS if server.knows(m))):
                assert "result" in await answer(wire, method), name
