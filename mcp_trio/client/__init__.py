"""The client's side of the protocol."""

from mcp_trio.client.client import Client
from mcp_trio.client.connect import open_http_client, open_stdio_client
from mcp_trio.client.inputs import accept_form
from mcp_trio.client.options import (
    ClientOptions,
    ElicitationHandler,
    ElicitationUrlHandler,
    RootsHandler,
    SamplingHandler,
)
from mcp_trio.client.pages import Pages
from mcp_trio.client.requests import LogHandler, LogStream, ProgressHandler
from mcp_trio.client.subscription import Subscription, SubscriptionEnd, SubscriptionStatistics

__all__ = [
    "Client",
    "ClientOptions",
    "ElicitationHandler",
    "ElicitationUrlHandler",
    "LogHandler",
    "LogStream",
    "Pages",
    "ProgressHandler",
    "RootsHandler",
    "SamplingHandler",
    "Subscription",
    "SubscriptionEnd",
    "SubscriptionStatistics",
    "accept_form",
    "open_http_client",
    "open_stdio_client",
]
