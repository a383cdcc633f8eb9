"""Change subscriptions: events, filters, the hub, and the runner of one subscription.

Knows Trio and the protocol's values, and nothing of transports.

Beside what `mcp_trio` itself has, a source of one's own needs `SubscriptionSource` and
`SourceHandle`, with `SubscriptionContext`, `CloseReason` and `End`; an extension needs
`ExtensionEvent`; and several processes need `open_bridge` and a `Bus`, such as
`subscriptions.redis.RedisBus`.
"""

from mcp_trio.subscriptions.bridge import open_bridge
from mcp_trio.subscriptions.bus import Bus, BusConnection
from mcp_trio.subscriptions.events import (
    Event,
    ExtensionEvent,
    Kind,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import (
    CloseReason,
    End,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)

__all__ = [
    "Bus",
    "BusConnection",
    "CloseReason",
    "End",
    "Event",
    "ExtensionEvent",
    "Hub",
    "Kind",
    "PromptsListChanged",
    "ResourceUpdated",
    "ResourcesListChanged",
    "Resync",
    "SourceHandle",
    "SubscriptionContext",
    "SubscriptionFilter",
    "SubscriptionSource",
    "ToolsListChanged",
    "open_bridge",
]
