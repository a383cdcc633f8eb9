"""What a bridge says to the others: typed events, many in one message, with a version.

A message is one JSON object, but no JSON-RPC: it names its sender, counts what it has sent,
and holds events, or says that anything may have changed. The count shows what a bus has lost
without saying so.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from mcp_trio import codec, errors
from mcp_trio.subscriptions.events import (
    CoreEvent,
    Event,
    ExtensionEvent,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

__all__ = [
    "VERSION",
    "BusEvent",
    "BusMessage",
    "GarbledMessage",
    "UnknownVersion",
    "decode_message",
    "encode_event",
    "encode_message",
]

VERSION: Final = 1
"""The version of this encoding."""

_MARK: Final = "mcp_trio"
"""The member that makes a message one of ours; its value is the version."""

_LISTS: Final[Mapping[str, CoreEvent]] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}
_ENCODED_LISTS: Final = {
    event: codec.encode_json({"event": name}) for name, event in _LISTS.items()
}

_LONGEST_SENDER: Final = 64


class GarbledMessage(errors.McpError, ValueError):
    """The bytes are not a message of a bridge."""


class UnknownVersion(errors.McpError, ValueError):
    """The message is of a version that this one cannot read."""


@attrs.frozen
class BusEvent:
    """An event on its way.

    Attributes:
        event: what has changed.
        include_sub_resources: as with `hub.Hub.publish`.
    """

    event: Event
    include_sub_resources: bool = False


@attrs.frozen
class BusMessage:
    """What one bridge tells the others.

    Attributes:
        sender: which bridge: random, new each time one is opened.
        number: counts its messages, from 1. One that is sent again keeps its number.
        anything: whether anything may have changed, and not only what the events say.
        events: what has changed.
        unknown: how many events of kinds that this version does not know were left out. They
            are news to nobody here.
    """

    sender: str
    number: int
    anything: bool = False
    events: tuple[BusEvent, ...] = ()
    unknown: int = 0


def encode_event(event: Event, include_sub_resources: bool = False) -> bytes:
    """One event, encoded.

    Raises:
        codec.EncodeError: it carries what JSON cannot hold.
        TypeError: not an event that goes over a bus.
    """
    match event:
        case ResourceUpdated():
            update: dict[str, Any] = {"event": "updated", "uri": event.uri}
            if include_sub_resources:
                update["below"] = True
            return codec.encode_json(update)
        case ToolsListChanged() | PromptsListChanged() | ResourcesListChanged():
            return _ENCODED_LISTS[event]
        case ExtensionEvent():
            return codec.encode_json(
                {
                    "event": "extension",
                    "method": event.method,
                    "params": dict(event.params),
                    "selector": dict(event.selector),
                    "coalesce": event.coalesce,
                }
            )
        case _:
            raise TypeError(f"{type(event).__name__} does not go over a bus")


def encode_message(
    sender: str, number: int, events: Iterable[bytes] = (), *, anything: bool = False
) -> bytes:
    """A message of events that `encode_event` has encoded."""
    return b'{"%b":%d,"sender":%b,"number":%d,"anything":%b,"events":[%b]}' % (
        _MARK.encode(),
        VERSION,
        codec.encode_json(sender),
        number,
        b"true" if anything else b"false",
        b",".join(events),
    )


def decode_message(data: bytes) -> BusMessage:
    """Read a message; members that this version does not know are ignored.

    Raises:
        GarbledMessage: it is none.
        UnknownVersion: it is of another version.
    """
    try:
        value = codec.decode_json(data)
    except errors.ParseError as error:
        raise GarbledMessage(error.message) from None
    if not isinstance(value, dict) or type(version := value.get(_MARK)) is not int:
        raise GarbledMessage("not a message of a bridge")
    if version != VERSION:
        raise UnknownVersion(f"version {version} of a bridge's message; this one reads {VERSION}")
    sender, number = value.get("sender"), value.get("number")
    anything, encoded = value.get("anything", False), value.get("events", [])
    if (
        not (isinstance(sender, str) and 0 < len(sender) <= _LONGEST_SENDER)
        or not (type(number) is int and number > 0)
        or not isinstance(anything, bool)
        or not isinstance(encoded, list)
    ):
        raise GarbledMessage("a member is missing or of the wrong type")
    events = [_event(item) for item in encoded]
    known = tuple(event for event in events if event is not None)
    return BusMessage(sender, number, anything, known, len(events) - len(known))


def _event(value: Any) -> BusEvent | None:
    if not isinstance(value, dict) or not isinstance(name := value.get("event"), str):
        raise GarbledMessage("an event is an object with a name")
    if name in _LISTS:
        return BusEvent(_LISTS[name])
    if name == "updated":
        uri, below = value.get("uri"), value.get("below", False)
        if not isinstance(uri, str) or not isinstance(below, bool):
            raise GarbledMessage("an update needs a URI")
        return BusEvent(ResourceUpdated(uri), below)
    if name == "extension":
        method, coalesce = value.get("method"), value.get("coalesce", False)
        params, selector = value.get("params"), value.get("selector")
        if (
            not isinstance(method, str)
            or not isinstance(params, dict)
            or not isinstance(selector, dict)
            or not isinstance(coalesce, bool)
        ):
            raise GarbledMessage("a member of an extension's event is missing")
        return BusEvent(ExtensionEvent(method, params, selector, coalesce))
    return None
