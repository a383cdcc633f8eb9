"""The client's side of the protocol."""

from mcp_trio.client.client import Client
from mcp_trio.client.connect import open_http_client, open_stdio_client
from mcp_trio.client.subscription import Subscription, SubscriptionEnd, SubscriptionStatistics

__all__ = [
    "Client",
    "Subscription",
    "SubscriptionEnd",
    "SubscriptionStatistics",
    "open_http_client",
    "open_stdio_client",
]
