"""A server that has questions, for the clients that answer them.

    python tests/support/asking_server.py       # serves on standard input and output

`open_asking` runs it for a client of whatever transport.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Unpack

import attrs
import trio

from mcp_trio import (
    Client,
    Context,
    Server,
    open_http_client,
    open_stdio_client,
    serve_http,
    serve_stdio,
    types,
)
from mcp_trio.client import ClientOptions
from mcp_trio.server import Elicit, ListRoots, Sample
from mcp_trio.testing import open_memory_client


@attrs.frozen
class Visitor:
    """A form."""

    name: str
    age: int = 18


def make() -> Server:
    """The server, which asks in its tools, its prompt and its resource."""
    server = Server("asking", version="1.0")

    @server.tool
    async def greet(ctx: Context) -> str:
        """Ask who it is."""
        answer = await ctx.elicit("Who are you?", Visitor)
        if answer.content is None:
            return answer.action
        return f"{answer.content.name}, {answer.content.age}"

    @server.tool
    async def visit(ctx: Context) -> str:
        """Ask to open a page."""
        return (await ctx.elicit_url("Pay, please", "https://example.com/pay")).action

    @server.tool
    async def think(ctx: Context, about: str) -> str:
        """Ask the model."""
        said = await ctx.sample(about, max_tokens=10)
        assert isinstance(said.content, types.TextContent)
        return f"{said.model}: {said.content.text}"

    @server.tool
    async def look(ctx: Context) -> list[str]:
        """Ask for the roots."""
        return [root.uri for root in await ctx.list_roots()]

    @server.tool
    async def all_at_once(ctx: Context) -> str:
        """Ask for three things in one round."""
        who, said, roots = await ctx.ask(
            Elicit("Who?", str, key="who"),
            Sample("Hello", max_tokens=5, key="said"),
            ListRoots(key="roots"),
        )
        return f"{who.action} {said.model} {len(roots)}"

    @server.tool
    async def interview(ctx: Context, questions: int) -> str:
        """Ask one after the other, and say how it goes."""
        answers = []
        for number in range(questions):
            await ctx.report_progress(number + 1, questions)
            await ctx.log("info", f"question {number}")
            answer = await ctx.elicit(f"Question {number}?", str, key=f"q{number}")
            answers.append(str(answer.content))
        return " ".join(answers)

    @server.prompt
    async def letter(ctx: Context) -> str:
        """Ask whom it is to."""
        return f"Dear {(await ctx.elicit('To whom?', str)).content}"

    @server.resource("note://diary")
    async def diary(ctx: Context) -> str:
        """Ask first."""
        return (await ctx.elicit("May I?")).action

    return server


@asynccontextmanager
async def open_asking(transport: str, **options: Unpack[ClientOptions]) -> AsyncIterator[Client]:
    """A client of that server, which is reached in memory, over stdio or over HTTP."""
    if transport == "memory":
        async with open_memory_client(make(), **options) as client:
            yield client
    elif transport == "stdio":
        async with open_stdio_client([sys.executable, __file__], **options) as client:
            yield client
    else:
        async with trio.open_nursery() as nursery:
            [url] = await nursery.start(partial(serve_http, make(), port=0))
            async with open_http_client(f"{url}/mcp", **options) as client:
                yield client
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(serve_stdio, make())
