"""The client's side of the protocol."""

from mcp_trio.client.cache import CacheStatistics, ResponseCache
from mcp_trio.client.client import Client
from mcp_trio.client.connect import open_http_client, open_stdio_client
from mcp_trio.client.inputs import accept_form
from mcp_trio.client.notifications import (
    FanOut,
    HandlerStatistics,
    NotificationHandler,
    RunningHandler,
    log_notifications,
)
from mcp_trio.client.observers import ServerMessage
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
from mcp_trio.client.views import FollowedLists, ListKind, Lists
from mcp_trio.client.watch import (
    Change,
    Fetched,
    SharedWatch,
    Snapshot,
    Watcher,
    WatchOptions,
    WatchStatistics,
)
from mcp_trio.protocol.credentials import Auth, AuthRequest

__all__ = [
    "Auth",
    "AuthRequest",
    "CacheStatistics",
    "Change",
    "Client",
    "ClientOptions",
    "ElicitationHandler",
    "ElicitationUrlHandler",
    "FanOut",
    "Fetched",
    "FollowedLists",
    "HandlerStatistics",
    "ListKind",
    "Lists",
    "LogHandler",
    "LogStream",
    "NotificationHandler",
    "Pages",
    "ProgressHandler",
    "ResponseCache",
    "RootsHandler",
    "RunningHandler",
    "SamplingHandler",
    "ServerMessage",
    "SharedWatch",
    "Snapshot",
    "Subscription",
    "SubscriptionEnd",
    "SubscriptionStatistics",
    "WatchOptions",
    "WatchStatistics",
    "Watcher",
    "accept_form",
    "log_notifications",
    "open_http_client",
    "open_stdio_client",
]
