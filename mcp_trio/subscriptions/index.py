"""Who listens to what: found by key, so that a publication touches only who it is for."""

from collections.abc import Collection, Iterable, Mapping
from typing import Generic, TypeVar

from mcp_trio.subscriptions.events import (
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
    topics_of,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter

__all__ = ["Index"]

L = TypeVar("L")


class _Buckets(Generic[L]):
    """Listeners by key. A key with one listener, the usual case, costs no container."""

    __slots__ = ("_many", "_one")

    def __init__(self) -> None:
        self._one: dict[str, L] = {}
        self._many: dict[str, dict[L, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._one or self._many)

    def add(self, key: str, listener: L) -> bool:
        """Add a listener; whether it is the only one of this key."""
        if key in self._many:
            self._many[key][listener] = None
        elif key in self._one:
            self._many[key] = {self._one.pop(key): None, listener: None}
        else:
            self._one[key] = listener
            return True
        return False

    def discard(self, key: str, listener: L) -> bool:
        """Remove a listener; whether it was the last one of this key."""
        if self._one.get(key) is listener:
            del self._one[key]
            return True
        bucket = self._many.get(key)
        if bucket is not None:
            bucket.pop(listener, None)
            if len(bucket) == 1:
                (self._one[key],) = self._many.pop(key)
        return False

    def get(self, key: str) -> Collection[L]:
        """The listeners of a key, in the order in which they came."""
        one = self._one.get(key)
        if one is not None:
            return (one,)
        return self._many.get(key, ())


class Index(Generic[L]):
    """Listeners by what they asked for."""

    __slots__ = ("_kinds", "_topics", "_uris")

    def __init__(self) -> None:
        self._kinds: dict[type, dict[L, None]] = {
            ToolsListChanged: {},
            PromptsListChanged: {},
            ResourcesListChanged: {},
        }
        self._uris: _Buckets[L] = _Buckets()
        self._topics: _Buckets[L] = _Buckets()

    def add(self, listener: L, wanted: SubscriptionFilter) -> list[str]:
        """Register a listener; returns the URIs that had none before."""
        for kind in _kinds(wanted):
            self._kinds[kind][listener] = None
        for topic in wanted.topics():
            self._topics.add(topic, listener)
        return [uri for uri in wanted.resource_subscriptions if self._uris.add(uri, listener)]

    def discard(self, listener: L, wanted: SubscriptionFilter) -> list[str]:
        """Remove what `add` registered; returns the URIs that have none any more."""
        for kind in _kinds(wanted):
            self._kinds[kind].pop(listener, None)
        for topic in wanted.topics():
            self._topics.discard(topic, listener)
        return [uri for uri in wanted.resource_subscriptions if self._uris.discard(uri, listener)]

    @property
    def has_uris(self) -> bool:
        """Whether anybody subscribed to any resource."""
        return bool(self._uris)

    def of_kind(self, kind: type) -> Collection[L]:
        """Who asked for this kind of list change."""
        return self._kinds[kind].keys()

    def of_uri(self, uri: str) -> Collection[L]:
        """Who subscribed to exactly this URI."""
        return self._uris.get(uri)

    def of_selector(self, selector: Mapping[str, object]) -> Iterable[tuple[L, list[str]]]:
        """Who asked for the first field of a selector, with the topics still to be compared."""
        first, *others = topics_of(selector)
        return ((listener, others) for listener in self._topics.get(first))


def _kinds(wanted: SubscriptionFilter) -> list[type]:
    asked = (
        (ToolsListChanged, wanted.tools_list_changed),
        (PromptsListChanged, wanted.prompts_list_changed),
        (ResourcesListChanged, wanted.resources_list_changed),
    )
    return [kind for kind, is_wanted in asked if is_wanted]
