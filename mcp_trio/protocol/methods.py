"""The methods that have a meaning below the features: each name is spelled here and nowhere else.

Source: specification, schema.
"""

from typing import Final

__all__ = [
    "ACKNOWLEDGED",
    "CANCELLED",
    "INITIALIZE",
    "LISTEN",
    "LOG_MESSAGE",
    "PROGRESS",
    "PROMPTS_LIST_CHANGED",
    "RESOURCES_LIST_CHANGED",
    "RESOURCE_UPDATED",
    "TOOLS_CALL",
    "TOOLS_LIST",
    "TOOLS_LIST_CHANGED",
]

LISTEN: Final = "subscriptions/listen"
INITIALIZE: Final = "initialize"
"""The handshake of the older era, and the one request that must not be cancelled."""

TOOLS_CALL: Final = "tools/call"
"""Its arguments may be mirrored in headers."""
TOOLS_LIST: Final = "tools/list"
"""Says which."""

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CANCELLED: Final = "notifications/cancelled"
PROGRESS: Final = "notifications/progress"
LOG_MESSAGE: Final = "notifications/message"

TOOLS_LIST_CHANGED: Final = "notifications/tools/list_changed"
PROMPTS_LIST_CHANGED: Final = "notifications/prompts/list_changed"
RESOURCES_LIST_CHANGED: Final = "notifications/resources/list_changed"
RESOURCE_UPDATED: Final = "notifications/resources/updated"
