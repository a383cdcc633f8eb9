"""The vocabulary of change: what a publisher says and a subscriber hears.

The core events are level triggers. Each means "this has changed, read it again", so two of the
same `key` that wait for one listener are worth no more than one.

Source: specification, basic/patterns/subscriptions.
"""

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar

import attrs

__all__ = [
    "CORE_EVENTS",
    "Event",
    "ExtensionEvent",
    "PromptsListChanged",
    "ResourceUpdated",
    "ResourcesListChanged",
    "Resync",
    "ToolsListChanged",
]


@attrs.frozen
class ToolsListChanged:
    """The list of tools has changed."""

    method: ClassVar[str] = "notifications/tools/list_changed"

    @property
    def key(self) -> Hashable:
        """What coalescing compares: equal keys are the same news."""
        return self.method


@attrs.frozen
class PromptsListChanged:
    """The list of prompts has changed."""

    method: ClassVar[str] = "notifications/prompts/list_changed"

    @property
    def key(self) -> Hashable:
        """What coalescing compares: equal keys are the same news."""
        return self.method


@attrs.frozen
class ResourcesListChanged:
    """The list of resources, or of resource templates, has changed."""

    method: ClassVar[str] = "notifications/resources/list_changed"

    @property
    def key(self) -> Hashable:
        """What coalescing compares: equal keys are the same news."""
        return self.method


@attrs.frozen
class ResourceUpdated:
    """A resource has changed.

    Attributes:
        uri: the resource, or a sub-resource of one that is subscribed to. Compared as the
            exact string; never normalised.
    """

    uri: str
    method: ClassVar[str] = "notifications/resources/updated"

    @property
    def key(self) -> Hashable:
        """What coalescing compares: equal keys are the same news."""
        return (self.method, self.uri)
