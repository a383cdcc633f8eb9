"""Values that the server gives its handlers."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import pytest
import trio
from server_kit import Recorder, call, request, result_of, text_of

from mcp_trio import errors
from mcp_trio.server import Context, Depends, Server

events: list[str] = []


@pytest.fixture(autouse=True)
def _clean() -> None:
    events.clear()


@pytest.fixture
def server() -> Server:
    return Server("s", version="1")


def setting() -> str:
    events.append("setting")
    return "plain"


async def user(ctx: Context, value: Annotated[str, Depends(setting)], more: int = 5) -> str:
    await trio.lowlevel.checkpoint()
    return f"user of {ctx.request_id} with {value} {more}"


@asynccontextmanager
async def connection(value: Annotated[str, Depends(setting)]) -> AsyncIterator[str]:
    events.append("open")
    try:
        yield f"connection {value}"
    except BaseException as problem:
        events.append(type(problem).__name__)
        raise
    finally:
        events.append("close")


@contextmanager
def block() -> Iterator[str]:
    events.append("in")
    yield "block"
    events.append("out")


Connection = Annotated[str, Depends(connection)]


async def test_parameters_are_filled_and_not_in_the_schema(server: Server) -> None:
    """Each function is called once for a request, and its block is around the handler."""

    @server.tool
    async def work(
        n: int,
        db: Connection,
        who: Annotated[str, Depends(user)],
        inner: Annotated[str, Depends(block)],
        again: Annotated[str, Depends(setting)],
    ) -> list[Any]:
        events.append("work")
        return [n, db, who, inner, again]

    [tool] = (await result_of(server, "tools/list"))["tools"]
    assert tool["inputSchema"]["properties"] == {"n": {"type": "integer"}}
    assert (await call(server, "work", n=1))["structuredContent"] == [
        1,
        "connection plain",
        "user of 1 with plain 5",
        "block",
        "plain",
    ]
    assert events == ["setting", "open", "in", "work", "out", "close"]
    result = await call(server, "work", n=1, db="mine")
    assert result["isError"]
    assert "db: unexpected" in text_of(result)


async def test_in_threads_prompts_and_resources(server: Server) -> None:
    @server.tool
    def work(db: Connection) -> str:
        return db

    @server.prompt
    async def ask(db: Connection, topic: str) -> str:
        return f"{topic} {db}"

    @server.resource("x://{name}")
    async def some(name: str, db: Connection) -> str:
        return f"{name} {db}"

    assert text_of(await call(server, "work")) == "connection plain"
    [prompt] = (await result_of(server, "prompts/list"))["prompts"]
    assert [argument["name"] for argument in prompt["arguments"]] == ["topic"]
    got = await result_of(server, "prompts/get", name="ask", arguments={"topic": "t"})
    assert got["messages"][0]["content"]["text"] == "t connection plain"
    read = await result_of(server, "resources/read", uri="x://a")
    assert read["contents"][0]["text"] == "a connection plain"


async def test_blocks_see_what_the_handler_raises(server: Server) -> None:
    @server.tool
    async def work(db: Connection) -> None:
        raise KeyError(db)

    assert (await call(server, "work"))["isError"]
    assert events == ["setting", "open", "KeyError", "close"]


async def test_blocks_see_questions_and_cancellation(server: Server) -> None:
    """So a transaction is not committed for a handler that is to run again."""

    @server.tool
    async def work(ctx: Context, db: Connection) -> None:
        if ctx.meta.declares("elicitation"):
            await ctx.elicit("?")
        await trio.sleep_forever()

    capable: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    await server.handle(request("tools/call", {"name": "work"}, **capable), Recorder())
    assert events == ["setting", "open", "NeedsInput", "close"]
    with trio.move_on_after(0.01):
        await server.handle(request("tools/call", {"name": "work"}), Recorder())
    assert events[4:] == ["setting", "open", "Cancelled", "close"]


async def test_a_dependency_that_fails(server: Server) -> None:
    def refuse(ctx: Context) -> None:
        raise errors.InvalidParams("not you")

    async def work(who: Annotated[None, Depends(refuse)]) -> None:
        raise AssertionError("unreachable")

    server.add_tool(work)
    reply = await server.handle(request("tools/call", {"name": "work"}), Recorder())
    assert reply.error_code == errors.INVALID_PARAMS


async def test_a_bound_parameter_depends_on_nothing(server: Server) -> None:
    async def work(db: Connection, n: int) -> str:
        return f"{db} {n}"

    server.add_tool(functools.partial(work, "mine"), name="work")
    assert text_of(await call(server, "work", n=1)) == "mine 1"
    assert events == []


def needs(value: int) -> int:
    return value


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (needs, "nothing fills 'value' of needs"),
        (int, "a handler is a function"),
        (5, "a handler is a function"),
    ],
)
def test_dependencies_are_checked(server: Server, make: Callable[..., Any], reason: str) -> None:
    async def work(value) -> None:  # type: ignore[no-untyped-def]
        raise AssertionError("unreachable")

    work.__annotations__["value"] = Annotated[int, Depends(make)]
    with pytest.raises(TypeError, match=reason):
        server.add_tool(work)
