"""A floor: the official Python SDK, as its users run it. Needs an environment of its own."""

import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("floor", log_level="ERROR")


@server.tool()
async def echo(text: str) -> str:
    """Say it back."""
    return text


@server.tool()
async def publish(uri: str, count: int, ctx: Context) -> str:
    """Tell those who listen that resources have changed."""
    for each in [uri] if count == 1 else [f"{uri}{number}" for number in range(count)]:
        await ctx.notify_resource_updated(each)
    return "published"


if __name__ == "__main__":
    uvicorn.run(
        server.streamable_http_app(),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="error",
        access_log=False,
        backlog=1024,
        timeout_keep_alive=600,
    )
