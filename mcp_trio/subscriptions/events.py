"""The vocabulary of change: what a publisher says and a subscriber hears.

The core events are level triggers. Each means "this has changed, read it again", so two of the
same `key` that wait for one listener are worth no more than one.

Source: specification, basic/patterns/subscriptions.
"""

from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Final, Literal, TypeGuard

import attrs

from mcp_trio import codec
from mcp_trio.protocol import methods

__all__ = [
    "CORE_EVENTS",
    "CoreEvent",
    "Event",
    "EventsDropped",
    "ExtensionEvent",
    "Kind",
    "PromptsListChanged",
    "ResourceUpdated",
    "ResourcesListChanged",
    "Resync",
    "ToolsListChanged",
    "is_event",
    "topic_of",
    "topics_of",
]

Kind = Literal["tools", "prompts", "resources", "updated"]
"""The four kinds of core event, as a source declares them and a capability allows them."""


class _Encodable:
    """Room for the event's encoded form, which all its listeners share; see `frames`.

    Not an attrs field: it takes no part in comparison, representation or conversion.
    """

    __slots__ = ("_template",)

    _template: tuple[bytes, bytes]


class _ListChanged:
    """A change that says nothing but its kind."""

    __slots__ = ()

    method: ClassVar[str]

    @property
    def key(self) -> Hashable:
        """What coalescing compares: equal keys are the same news."""
        return self.method


@attrs.frozen
class ToolsListChanged(_ListChanged):
    """The list of tools has changed."""

    method: ClassVar[str] = methods.TOOLS_LIST_CHANGED


@attrs.frozen
class PromptsListChanged(_ListChanged):
    """The list of prompts has changed."""

    method: ClassVar[str] = methods.PROMPTS_LIST_CHANGED


@attrs.frozen
class ResourcesListChanged(_ListChanged):
    """The list of resources, or of resource templates, has changed."""

    method: ClassVar[str] = methods.RESOURCES_LIST_CHANGED


@attrs.frozen
class ResourceUpdated(_Encodable):
    """A resource has changed.

    Attributes:
        uri: the resource, or a sub-resource of one that is subscribed to. Compared as the
            exact string; never normalised.

    Raises:
        TypeError: the URI is not a string.
        ValueError: it holds a lone surrogate, as an undecodable file name does; JSON cannot.
    """

    uri: str
    method: ClassVar[str] = methods.RESOURCE_UPDATED

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.uri, str):
            raise TypeError(f"a resource URI is a string, not {type(self.uri).__name__}")
        if not self.uri.isascii():
            try:
                self.uri.encode()
            except UnicodeEncodeError:
                raise ValueError(f"not a URI, it holds a lone surrogate: {self.uri!a}") from None

    @property
    def key(self) -> Hashable:
        """What coalescing compares: equal keys are the same news."""
        return (self.method, self.uri)


@attrs.frozen
class ExtensionEvent(_Encodable):
    """An event of an extension; unlike the core events it may carry data.

    Attributes:
        method: the notification's method.
        params: its params, plain JSON. They are encoded when the event is first published;
            changing them afterwards changes nothing on the wire.
        selector: for whom it is: filter fields and a value for each. A listener matches whose
            accepted filter has every one of these values (in a list, or as the whole field).
            ``{"taskIds": "t1"}`` reaches whoever follows task ``t1``. Never empty: what
            nobody can ask for must not be sent.
        coalesce: whether only the newest event of this method and selector matters, as with a
            state. Then it replaces one that still waits, and is never dropped: how many can
            wait follows from the filter. Otherwise each event counts, and a listener that
            falls behind is treated by the hub's overflow policy.
    """

    method: str
    params: Mapping[str, Any] = attrs.field(factory=dict)
    selector: Mapping[str, Any] = attrs.field(factory=dict)
    coalesce: bool = False

    def __hash__(self) -> int:
        # The mappings are not hashable; equal events have equal methods.
        return hash((self.method, self.coalesce))

    @property
    def key(self) -> Hashable:
        """What coalescing compares; None if this event is never merged with another."""
        if not self.coalesce:
            return None
        return (self.method, *sorted(topics_of(self.selector)))


@attrs.frozen
class Resync:
    """Changes may have been missed: read again everything the subscription covers.

    A client's watcher says it after every gap. Published on a hub, or returned by a source, it
    becomes one event for each core key of a listener's filter, because the wire has no word
    for it.

    Attributes:
        reason: why, for the log.
        narrowed: what was granted before the gap and is not any more, as wire names and URIs.
    """

    reason: str = ""
    narrowed: tuple[str, ...] = ()


@attrs.frozen
class EventsDropped:
    """A source lost events that carry data, because the listener did not keep up.

    It stands where the loss becomes known, before the next event. On the wire that next
    notification carries the number in its `_meta` under ``org.mcp-trio/dropped``.

    Attributes:
        count: how many events.
    """

    count: int


Event = (
    ToolsListChanged
    | PromptsListChanged
    | ResourcesListChanged
    | ResourceUpdated
    | ExtensionEvent
    | Resync
    | EventsDropped
)
"""Everything a subscription can yield."""

CoreEvent = ToolsListChanged | PromptsListChanged | ResourcesListChanged | ResourceUpdated

CORE_EVENTS: Final[Mapping[str, type[CoreEvent]]] = {
    event.method: event
    for event in (ToolsListChanged, PromptsListChanged, ResourcesListChanged, ResourceUpdated)
}
"""The core events by the method that carries them."""

_EVENT_TYPES: Final = frozenset({*CORE_EVENTS.values(), ExtensionEvent, Resync, EventsDropped})


def is_event(value: object) -> TypeGuard[Event]:
    """Whether a value is one of the events above; a source could return anything."""
    return type(value) in _EVENT_TYPES


def topic_of(field: str, value: Any) -> str:
    """One thing an extension's filter field can ask for, as an index key.

    The canonical JSON keeps types apart: `1`, `1.0`, `"1"` and `true` are four topics.

    Raises:
        codec.EncodeError: JSON cannot hold the value.
    """
    return f"{field}\0{codec.encode_json(_canonical(value)).decode()}"


def topics_of(selector: Mapping[str, Any]) -> list[str]:
    """The topics of all fields of a selector; an event is for those who asked for all."""
    return [topic_of(field, value) for field, value in selector.items()]


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _canonical(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return value
