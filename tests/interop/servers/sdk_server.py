"""A server on the official Python SDK. Runs in an environment of its own.

    python sdk_server.py http PORT
    python sdk_server.py stdio

`ts_server.mjs` has the same tools, resources and prompts.
"""

import os
import sys
from typing import Annotated

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.types import (
    Completion,
    CreateMessageResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

bus = InMemorySubscriptionBus()
server = MCPServer("peer", log_level="ERROR", subscriptions=bus)


class Name(BaseModel):
    """What is asked for."""

    name: str


@server.tool()
async def echo(text: str) -> str:
    """Say it back."""
    return text


@server.tool()
async def pid() -> str:
    """Say which process this is."""
    return str(os.getpid())


@server.tool()
async def progress(steps: int, ctx: Context) -> str:
    """Report progress."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return "done"


@server.tool()
async def publish(uri: str, ctx: Context) -> str:
    """Say that a resource has changed."""
    await ctx.notify_resource_updated(uri)
    return "published"


@server.tool()
async def touch_tools(ctx: Context) -> str:
    """Say that the list of tools has changed."""
    await ctx.notify_tools_changed()
    return "published"


async def ask_name() -> Elicit[Name]:
    """Ask the user."""
    return Elicit("What is your name?", Name)


async def ask_model() -> Sample:
    """Ask the client's model."""
    text = TextContent(type="text", text="What is the capital of France?")
    return Sample([SamplingMessage(role="user", content=text)], max_tokens=10)


async def ask_roots() -> ListRoots:
    """Ask where to work."""
    return ListRoots()


@server.tool()
async def ask(
    name: Annotated[Name, Resolve(ask_name)],
    said: Annotated[CreateMessageResult, Resolve(ask_model)],
    roots: Annotated[ListRootsResult, Resolve(ask_roots)],
) -> str:
    """Ask three things."""
    return f"{name.name}, {said.content.text}, {len(roots.roots)}"


@server.tool()
async def hang_up() -> str:
    """End all subscriptions gracefully."""
    listening.close()
    return "hung up"


@server.resource("note://a")
async def note() -> str:
    """A note."""
    return "text of a"


@server.resource("note://slow")
async def slow() -> str:
    """A note that takes its time."""
    await anyio.sleep(0.5)
    return "text of slow"


@server.resource("note://of/{name}")
async def note_of(name: str) -> str:
    """One of many notes."""
    return f"text of {name}"


@server.prompt()
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@server.completion()
async def complete(ref: object, argument: object, context: object) -> Completion:
    """Know two names."""
    return Completion(values=["Alice", "Alan"])


def find_listening() -> ListenHandler:
    """What serves subscriptions; the SDK keeps it to itself."""
    entry = server._lowlevel_server._request_handlers["subscriptions/listen"]
    return getattr(entry, "handler", entry)


listening = find_listening()

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        anyio.run(server.run_stdio_async)
    else:
        uvicorn.run(
            server.streamable_http_app(),
            host="127.0.0.1",
            port=int(sys.argv[2]),
            log_level="error",
            access_log=False,
        )
