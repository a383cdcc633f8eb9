"""What goes over a bus: typed events, bounded, and nothing that can do harm."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import codec
from mcp_trio.subscriptions.bus_messages import (
    BusEvent,
    BusMessage,
    GarbledMessage,
    UnknownVersion,
    decode_message,
    encode_event,
    encode_message,
)
from mcp_trio.subscriptions.events import (
    Event,
    EventsDropped,
    ExtensionEvent,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.sampled_from([ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()]),
    st.builds(ResourceUpdated, TEXT),
    st.builds(
        ExtensionEvent,
        TEXT,
        st.dictionaries(TEXT, JSON, max_size=3),
        st.dictionaries(TEXT, JSON, min_size=1, max_size=2),
        st.booleans(),
    ),
)


@given(st.lists(st.tuples(EVENTS, st.booleans()), max_size=5), st.booleans())
def test_what_is_written_is_read(events: list[tuple[Event, bool]], anything: bool) -> None:
    """P-14: typed events in, the same typed events out."""
    encoded = [encode_event(event, below) for event, below in events]
    message = decode_message(encode_message("me", 7, encoded, anything=anything))
    expected = tuple(
        BusEvent(event, below and isinstance(event, ResourceUpdated)) for event, below in events
    )
    assert message == BusMessage("me", 7, anything, expected)


@given(st.binary(max_size=200) | JSON.map(codec.encode_json))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Whatever else speaks on the same channel raises nothing but these two."""
    with pytest.raises((GarbledMessage, UnknownVersion)):
        decode_message(data)


def message(**members: Any) -> bytes:
    whole = {"mcp_trio": 1, "sender": "a", "number": 1, "events": []} | members
    return codec.encode_json({name: value for name, value in whole.items() if value is not ...})


@pytest.mark.parametrize(
    "members",
    [
        {"mcp_trio": "1"},
        {"mcp_trio": True},
        {"mcp_trio": ...},
        {"sender": ...},
        {"sender": ""},
        {"sender": "x" * 65},
        {"number": 0},
        {"number": "1"},
        {"number": True},
        {"anything": 1},
        {"events": {}},
        {"events": [1]},
        {"events": [{}]},
        {"events": [{"event": 1}]},
        {"events": [{"event": "updated"}]},
        {"events": [{"event": "updated", "uri": 1}]},
        {"events": [{"event": "updated", "uri": "a", "below": 1}]},
        {"events": [{"event": "extension", "method": "m", "params": {}, "selector": []}]},
        {"events": [{"event": "extension", "method": 1, "params": {}, "selector": {}}]},
        {"events": [{"event": "extension", "method": "m", "params": 1, "selector": {}}]},
        {"jsonrpc": "2.0", "mcp_trio": None},
    ],
)
def test_garbled_messages(members: dict[str, Any]) -> None:
    """Half a message is none."""
    with pytest.raises(GarbledMessage):
        decode_message(message(**members))


def test_a_newer_version_is_told_apart() -> None:
    """It is ours, it has news, and this version cannot read it."""
    with pytest.raises(UnknownVersion, match="version 2"):
        decode_message(b'{"mcp_trio":2,"anything else":[]}')


def test_what_a_newer_minor_adds_is_left_out() -> None:
    """Members and kinds of event that are unknown here are news to nobody here."""
    read = decode_message(
        message(more=1, events=[{"event": "weather", "x": 1}, {"event": "tools", "why": "so"}])
    )
    assert read == BusMessage("a", 1, False, (BusEvent(ToolsListChanged()),), unknown=1)


def test_not_for_a_bus() -> None:
    """A cue of a single listener's is nothing for others."""
    with pytest.raises(TypeError):
        encode_event(EventsDropped(1))
