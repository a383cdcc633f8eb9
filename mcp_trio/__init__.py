"""The Model Context Protocol for Trio: servers, clients and change subscriptions.

The names below are what most programs need. Beside them, `mcp_trio.types` has the values of the
protocol, `mcp_trio.errors` the exceptions, `mcp_trio.testing` what tests of your own need,
`mcp_trio.subscriptions` what a source of your own does, and `mcp_trio.server` what fewer handlers
need.
"""

from mcp_trio._backoff import Backoff
from mcp_trio.client.client import Client
from mcp_trio.client.connect import open_http_client, open_stdio_client
from mcp_trio.client.subscription import Subscription, SubscriptionEnd
from mcp_trio.http.asgi import asgi_app
from mcp_trio.http.hypercorn import serve_hypercorn
from mcp_trio.http.listener import serve_http
from mcp_trio.server.completion import Complete
from mcp_trio.server.context import Context
from mcp_trio.server.dependencies import Depends
from mcp_trio.server.limits import Limits
from mcp_trio.server.questions import (
    Accepted,
    Declined,
    Dismissed,
    Elicit,
    ElicitUrl,
    InputRequired,
    ListRoots,
    Sample,
)
from mcp_trio.server.server import Server
from mcp_trio.subscriptions.events import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.testing import open_memory_client
from mcp_trio.transports.stdio import serve_stdio

__all__ = [
    "Accepted",
    "Backoff",
    "Client",
    "Complete",
    "Context",
    "Declined",
    "Depends",
    "Dismissed",
    "Elicit",
    "ElicitUrl",
    "Hub",
    "InputRequired",
    "Limits",
    "ListRoots",
    "PromptsListChanged",
    "ResourceUpdated",
    "ResourcesListChanged",
    "Resync",
    "Sample",
    "Server",
    "Subscription",
    "SubscriptionEnd",
    "SubscriptionFilter",
    "ToolsListChanged",
    "asgi_app",
    "open_http_client",
    "open_memory_client",
    "open_stdio_client",
    "serve_http",
    "serve_hypercorn",
    "serve_stdio",
]
