"""The server: tools, resources and prompts behind one object that any transport can serve.

`Server` is what an application makes and registers things with, `Context` is what a handler
learns of its request, and `Limits` bounds how much one server takes on.
"""

from mcp_trio.server.context import Context
from mcp_trio.server.limits import Limits
from mcp_trio.server.server import Server

__all__ = ["Context", "Limits", "Server"]
