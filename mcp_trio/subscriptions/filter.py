"""What a subscription asks for, and what of it is granted.

A filter only ever shrinks on its way: what the client asked for, less what the server does not
advertise, less what the caller may not see, less what the source declines. The acknowledgement
shows what is left and never why something is missing.

Source: specification, basic/patterns/subscriptions, "Notification Filter".
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from mcp_trio import errors
from mcp_trio.subscriptions import uris
from mcp_trio.subscriptions.events import (
    CoreEvent,
    Event,
    EventsDropped,
    ExtensionEvent,
    Kind,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
    topic_of,
    topics_of,
)

__all__ = [
    "ALL_KINDS",
    "DEFAULT_MAX_URIS",
    "SubscriptionFilter",
    "narrow_by_capabilities",
    "parse_filter",
]

ALL_KINDS: Final[frozenset[Kind]] = frozenset({"tools", "prompts", "resources", "updated"})
DEFAULT_MAX_URIS: Final = 1_000

_WIRE_FLAGS: Final = (
    ("tools", "toolsListChanged", "tools_list_changed"),
    ("prompts", "promptsListChanged", "prompts_list_changed"),
    ("resources", "resourcesListChanged", "resources_list_changed"),
)
_LINEAR: Final = 8  # up to here, looking along a tuple is as good as hashing


def _flag(_: Any, attribute: "attrs.Attribute[bool]", value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{attribute.name} is true or false, not {value!r}")


def _strings(value: Any) -> tuple[str, ...]:
    if isinstance(value, str | bytes):
        raise TypeError(f"expected several strings, got one: {value!r}")
    items = tuple(dict.fromkeys(value))
    for item in items:
        if not isinstance(item, str):
            raise TypeError(f"expected a string, got {item!r}")
    return items


def _extension_topics(extensions: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(topic for name, value in extensions.items() for topic in _topics(name, value))


def _topics(name: str, value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list | tuple) else (value,):
        yield topic_of(name, item)


_NOTHING_MORE: Final[Mapping[str, Any]] = MappingProxyType({})


def _extensions(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(value)) if value else _NOTHING_MORE


@attrs.frozen
class SubscriptionFilter:
    """Which changes a subscription covers. Everything is opt-in.

    Attributes:
        tools_list_changed: the list of tools.
        prompts_list_changed: the list of prompts.
        resources_list_changed: the list of resources and of resource templates.
        resource_subscriptions: URIs of resources, compared as exact strings. Duplicates are
            collapsed, the order is kept.
        task_ids: tasks to follow, for peers with the tasks extension.
        extensions: further fields of negotiated extensions, plain JSON by wire name.

    Raises:
        TypeError: a flag is no `bool`, or a bare string stands where several belong.
    """

    tools_list_changed: bool = attrs.field(default=False, validator=_flag)
    prompts_list_changed: bool = attrs.field(default=False, validator=_flag)
    resources_list_changed: bool = attrs.field(default=False, validator=_flag)
    resource_subscriptions: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    task_ids: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    extensions: Mapping[str, Any] = attrs.field(
        default=_NOTHING_MORE, converter=_extensions, eq=_extension_topics
    )
    # Made when first needed; most filters are small and never need it.
    _uri_set: frozenset[str] | None = attrs.field(default=None, init=False, eq=False, repr=False)

    def __bool__(self) -> bool:
        """Whether anything at all is asked for."""
        return bool(
            self.tools_list_changed
            or self.prompts_list_changed
            or self.resources_list_changed
            or self.resource_subscriptions
            or self.task_ids
            or self.extensions
        )

    def to_wire(self) -> dict[str, Any]:
        """The filter as a JSON object; what is not asked for is left out."""
        wire: dict[str, Any] = dict(self.extensions)
        wire |= {name: True for _, name, field in _WIRE_FLAGS if getattr(self, field)}
        if self.resource_subscriptions:
            wire["resourceSubscriptions"] = list(self.resource_subscriptions)
        if self.task_ids:
            wire["taskIds"] = list(self.task_ids)
        return wire

    def issubset(self, other: "SubscriptionFilter") -> bool:
        """Whether this asks for nothing that `other` does not. Linear in the size of both."""
        return self is other or (
            self.tools_list_changed <= other.tools_list_changed
            and self.prompts_list_changed <= other.prompts_list_changed
            and self.resources_list_changed <= other.resources_list_changed
            and other._all_uris().issuperset(self.resource_subscriptions)  # noqa: SLF001
            and frozenset(other.task_ids).issuperset(self.task_ids)
            and self.extensions.keys() <= other.extensions.keys()
            and _extension_topics(self.extensions) <= _extension_topics(other.extensions)
        )

    def intersection(self, other: "SubscriptionFilter") -> "SubscriptionFilter":
        """What both ask for, in the order of this one."""
        return self._select(other, wanted=True)

    def difference(self, other: "SubscriptionFilter") -> "SubscriptionFilter":
        """What this asks for and `other` does not: of a request and its grant, the declined."""
        return self._select(other, wanted=False)

    def _select(self, other: "SubscriptionFilter", *, wanted: bool) -> "SubscriptionFilter":
        uri_set, tasks = other._all_uris(), frozenset(other.task_ids)  # noqa: SLF001
        topics = _extension_topics(other.extensions)
        extensions: dict[str, Any] = {}
        for name, value in self.extensions.items():
            if isinstance(value, list | tuple):
                kept = [item for item in value if (topic_of(name, item) in topics) is wanted]
                if kept:
                    extensions[name] = kept
            elif (topic_of(name, value) in topics) is wanted:
                extensions[name] = value
        return SubscriptionFilter(
            self.tools_list_changed and other.tools_list_changed is wanted,
            self.prompts_list_changed and other.prompts_list_changed is wanted,
            self.resources_list_changed and other.resources_list_changed is wanted,
            [uri for uri in self.resource_subscriptions if (uri in uri_set) is wanted],
            [task for task in self.task_ids if (task in tasks) is wanted],
            extensions,
        )

    def matches(self, event: Event, *, sub_resources: bool = False) -> bool:
        """Whether an event is among what this asks for.

        Args:
            event: the event.
            sub_resources: whether an update of a resource that lies below one of the URIs, by
                path segments, counts as well.
        """
        if isinstance(event, ResourceUpdated):
            return self.covers(event.uri) or (
                sub_resources and any(self.covers(uri) for uri in uris.ancestors(event.uri))
            )
        if isinstance(event, ToolsListChanged):
            return self.tools_list_changed
        if isinstance(event, PromptsListChanged):
            return self.prompts_list_changed
        if isinstance(event, ResourcesListChanged):
            return self.resources_list_changed
        if isinstance(event, ExtensionEvent):
            return bool(event.selector) and self.topics().issuperset(topics_of(event.selector))
        return isinstance(event, Resync | EventsDropped)  # about the stream itself

    def covers(self, uri: str) -> bool:
        """Whether the URI is one of those subscribed to."""
        if len(self.resource_subscriptions) <= _LINEAR:
            return uri in self.resource_subscriptions
        return uri in self._all_uris()

    def cues(self) -> Iterator[CoreEvent]:
        """One core event for each core key: what says "read everything again"."""
        if self.tools_list_changed:
            yield ToolsListChanged()
        if self.prompts_list_changed:
            yield PromptsListChanged()
        if self.resources_list_changed:
            yield ResourcesListChanged()
        for uri in self.resource_subscriptions:
            yield ResourceUpdated(uri)

    def topics(self) -> frozenset[str]:
        """What extension events are matched by: one topic for each value asked for."""
        if not self.task_ids and not self.extensions:
            return frozenset()
        tasks = frozenset(topic_of("taskIds", task) for task in self.task_ids)
        return tasks | _extension_topics(self.extensions)

    def _all_uris(self) -> frozenset[str]:
        if self._uri_set is None:
            object.__setattr__(self, "_uri_set", frozenset(self.resource_subscriptions))
        return self._uri_set or frozenset()


def parse_filter(
    notifications: object,
    *,
    max_uris: int = DEFAULT_MAX_URIS,
    extension_fields: Collection[str] = (),
    absolute_uris: bool = True,
) -> SubscriptionFilter:
    """Read a filter from the wire.

    Unknown fields are ignored; `false`, empty lists and duplicates ask for nothing. The number
    of URIs and of task ids is checked before any of them is looked at.

    Args:
        notifications: what stood under ``notifications``; None where nothing did.
        max_uris: how many URIs, and how many task ids, one request may name.
        extension_fields: wire names of fields that negotiated extensions define.
        absolute_uris: whether a URI without a scheme is refused.

    Raises:
        errors.InvalidParams: it is missing, no object, over the limit, or a field has the
            wrong type.
    """
    if not isinstance(notifications, Mapping):
        raise errors.InvalidParams('"notifications" is required and must be an object')
    flags: dict[str, bool] = {}
    for _, name, field in _WIRE_FLAGS:
        value = notifications.get(name, False)
        if not isinstance(value, bool):
            raise errors.InvalidParams(f"notifications.{name} must be a boolean")
        flags[field] = value
    subscribed = _string_list(notifications, "resourceSubscriptions", max_uris)
    for index, uri in enumerate(subscribed):
        if (absolute_uris and not uris.has_scheme(uri)) or len(uri) > uris.MAX_URI_LENGTH:
            raise errors.InvalidParams(
                f"notifications.resourceSubscriptions[{index}] is not an absolute URI"
                f" of at most {uris.MAX_URI_LENGTH} characters"
            )
    extensions = {
        name: value
        for name in extension_fields
        if (value := notifications.get(name)) is not None and value is not False and value != []
    }
    return SubscriptionFilter(
        **flags,
        resource_subscriptions=subscribed,
        task_ids=_string_list(notifications, "taskIds", max_uris),
        extensions=extensions,
    )


def _string_list(notifications: Mapping[str, Any], name: str, limit: int) -> list[str]:
    value = notifications.get(name, [])
    if not isinstance(value, list):
        raise errors.InvalidParams(f"notifications.{name} must be a list of strings")
    if len(value) > limit:
        raise errors.InvalidParams(f"notifications.{name} has more than {limit} entries")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise errors.InvalidParams(f"notifications.{name}[{index}] must be a string")
    return value


def narrow_by_capabilities(
    wanted: SubscriptionFilter,
    kinds: Collection[Kind],
    extension_fields: Collection[str] = (),
) -> SubscriptionFilter:
    """Leave out what is not advertised.

    Args:
        wanted: what was asked for.
        kinds: the kinds of core event that the server advertises and the source can emit.
        extension_fields: wire names of fields that negotiated extensions serve; ``taskIds`` is
            one of them.
    """
    return SubscriptionFilter(
        wanted.tools_list_changed and "tools" in kinds,
        wanted.prompts_list_changed and "prompts" in kinds,
        wanted.resources_list_changed and "resources" in kinds,
        wanted.resource_subscriptions if "updated" in kinds else (),
        wanted.task_ids if "taskIds" in extension_fields else (),
        {k: v for k, v in wanted.extensions.items() if k in extension_fields},
    )
