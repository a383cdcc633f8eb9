"""The messages of a subscription as bytes; an event is encoded once for all its listeners.

What differs between two listeners is the subscription id alone. So an event keeps its encoded
form in two halves, and a listener only puts its own id between them.

Source: specification, basic/patterns/subscriptions.
"""

from typing import Any, Final

from mcp_trio import codec
from mcp_trio.protocol import jsonrpc, meta, methods
from mcp_trio.subscriptions.events import (
    CORE_EVENTS,
    Event,
    ExtensionEvent,
    ResourceUpdated,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.source import End

__all__ = [
    "Template",
    "ack_frame",
    "completion_result",
    "encode_id",
    "event_frame",
    "event_template",
]

Template = tuple[bytes, bytes]
"""What stands before and after the subscription id."""

# A listen stream carries its own messages and the events that were asked for, nothing else.
_RESERVED: Final = frozenset(
    {
        *CORE_EVENTS,
        methods.ACKNOWLEDGED,
        methods.CANCELLED,
        methods.LOG_MESSAGE,
        methods.PROGRESS,
    }
)


def _prefix(method: str) -> bytes:
    return b"".join(
        (
            b'{"jsonrpc":"2.0","method":',
            codec.encode_json(method),
            b',"params":{"_meta":{"',
            meta.META_SUBSCRIPTION_ID.encode(),
            b'":',
        )
    )


_UPDATED_PREFIX: Final = _prefix(ResourceUpdated.method)
_LIST_TEMPLATES: Final[dict[type, Template]] = {
    event: (_prefix(method), b"}}}")
    for method, event in CORE_EVENTS.items()
    if event is not ResourceUpdated
}


def encode_id(request_id: jsonrpc.RequestId) -> bytes:
    """The subscription id as JSON, verbatim and with its type; made once per subscription."""
    return codec.encode_json(request_id)


def event_template(event: Event) -> Template:
    """The encoded event without its subscription id: made once and kept on the event.

    Raises:
        codec.EncodeError: the event carries what JSON cannot hold.
        ValueError: its method belongs to the protocol itself.
        TypeError: it has no form of its own on the wire.
    """
    # Called for each listener.
    template = _LIST_TEMPLATES.get(type(event)) or getattr(event, "_template", None)
    if template is None and isinstance(event, ResourceUpdated | ExtensionEvent):
        template = _encode(event)
        object.__setattr__(event, "_template", template)  # its place is there for this module
    if template is not None:
        return template
    raise TypeError(f"{type(event).__name__} has no form on the wire")


def _encode(event: ResourceUpdated | ExtensionEvent) -> Template:
    if isinstance(event, ResourceUpdated):
        return _UPDATED_PREFIX, b'},"uri":' + codec.encode_json(event.uri) + b"}}"
    if event.method in _RESERVED:
        raise ValueError(f"{event.method} is not the method of an extension's event")
    params = dict(event.params)
    own_meta = params.pop("_meta", None)
    own_meta = dict(own_meta) if isinstance(own_meta, dict) else {}
    own_meta.pop(meta.META_SUBSCRIPTION_ID, None)
    suffix = b"".join((_members(own_meta), b"}", _members(params), b"}}"))
    return _prefix(event.method), suffix


def _members(value: dict[str, Any]) -> bytes:
    """The members of an object, to stand after others."""
    return b"," + codec.encode_json(value)[1:-1] if value else b""


def event_frame(event: Event, encoded_id: bytes, dropped: int = 0) -> bytes:
    """One event for one listener.

    Args:
        event: the event.
        encoded_id: the subscription id, from `encode_id`.
        dropped: how many events before this one were lost.
    """
    prefix, suffix = event_template(event)
    if dropped:
        return b'%b%b,"%b":%d%b' % (prefix, encoded_id, meta.META_DROPPED.encode(), dropped, suffix)
    return prefix + encoded_id + suffix


def ack_frame(encoded_id: bytes, accepted: SubscriptionFilter) -> bytes:
    """The acknowledgement, with the filter as far as it is honoured."""
    notifications = codec.encode_json(accepted.to_wire())
    return b"".join((_ACK_PREFIX, encoded_id, b'},"notifications":', notifications, b"}}"))


_ACK_PREFIX: Final = _prefix(methods.ACKNOWLEDGED)


def completion_result(
    request_id: jsonrpc.RequestId,
    server_info: dict[str, Any] | None,
    end: End,
    dropped: int = 0,
) -> dict[str, Any]:
    """The result that ends a subscription gracefully, with its reason for those who know it.

    Args:
        request_id: the id of the subscription.
        server_info: name and version of the server.
        end: why, and when to try again.
        dropped: how many events at its end were lost.
    """
    reason: dict[str, Any] = {"reason": end.reason}
    if end.retry_after is not None:
        reason["retryAfterMs"] = max(0, round(end.retry_after * 1000))
    result_meta: dict[str, Any] = {meta.META_SUBSCRIPTION_ID: request_id}
    if server_info is not None:
        result_meta[meta.META_SERVER_INFO] = server_info
    result_meta[meta.META_END] = reason
    if dropped:
        result_meta[meta.META_DROPPED] = dropped
    return {"resultType": "complete", "_meta": result_meta}
