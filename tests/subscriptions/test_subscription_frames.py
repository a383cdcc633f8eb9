"""The messages of a subscription, as bytes."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import codec
from mcp_trio.subscriptions import frames
from mcp_trio.subscriptions.events import (
    Event,
    EventsDropped,
    ExtensionEvent,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.source import End

SCHEMA = Path(__file__).parents[2] / ".." / "shared" / "schema" / "2026-07-28" / "schema.json"
ID_KEY = "io.modelcontextprotocol/subscriptionId"
IDS: list[str | int] = [0, 1, -5, 2**63 - 1, "", "0", "1", 'é\u2028"', "x" * 256]


def check(definition: str, message: object) -> None:
    if not SCHEMA.exists():
        pytest.skip("the official schema is not beside this checkout")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{definition}"}).validate(message)


@pytest.mark.parametrize("request_id", IDS)
@pytest.mark.parametrize(
    ("event", "definition", "params"),
    [
        (ToolsListChanged(), "ToolListChangedNotification", {}),
        (PromptsListChanged(), "PromptListChangedNotification", {}),
        (ResourcesListChanged(), "ResourceListChangedNotification", {}),
        (
            ResourceUpdated('n://é"\\\u2028'),
            "ResourceUpdatedNotification",
            {"uri": 'n://é"\\\u2028'},
        ),
    ],
)
def test_core_events(
    request_id: str | int, event: Event, definition: str, params: dict[str, Any]
) -> None:
    """S-04, W05, W06, W39: the id verbatim, with its type, on every message."""
    frame = frames.event_frame(event, frames.encode_id(request_id))
    message = json.loads(frame)
    assert b"\xe2\x80\xa8" not in frame
    found = message["params"]["_meta"][ID_KEY]
    assert found == request_id
    assert type(found) is type(request_id)
    assert message == {
        "jsonrpc": "2.0",
        "method": event.method,  # type: ignore[union-attr]
        "params": {"_meta": {ID_KEY: request_id}, **params},
    }
    check(definition, message)


@pytest.mark.parametrize("request_id", IDS)
def test_acknowledgement(request_id: str | int) -> None:
    """S-03: the honoured subset; nothing that is not, and no `false`."""
    accepted = SubscriptionFilter(tools_list_changed=True, resource_subscriptions=("note://é",))
    for filter_, wire in [
        (accepted, {"toolsListChanged": True, "resourceSubscriptions": ["note://é"]}),
        (SubscriptionFilter(), {}),
    ]:
        message = json.loads(frames.ack_frame(frames.encode_id(request_id), filter_))
        assert message == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {ID_KEY: request_id}, "notifications": wire},
        }
        check("SubscriptionsAcknowledgedNotification", message)


def test_completion() -> None:
    """S-81, S-83, P-02."""
    info = {"name": "s", "version": "1"}
    result = frames.completion_result("a", info, End("shutdown", 1.5))
    assert result == {
        "resultType": "complete",
        "_meta": {
            ID_KEY: "a",
            "io.modelcontextprotocol/serverInfo": info,
            "org.mcp-trio/end": {"reason": "shutdown", "retryAfterMs": 1500},
        },
    }
    check("SubscriptionsListenResult", result)
    bare = frames.completion_result(0, None, End())
    assert bare["_meta"] == {ID_KEY: 0, "org.mcp-trio/end": {"reason": "complete"}}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text('aé\u2028"\\'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab_"), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text("abc_"), JSON, max_size=3),
    st.none() | st.dictionaries(st.sampled_from(["k", ID_KEY]), JSON) | st.just("no object"),
    st.integers(0, 3),
)
def test_extension_events(params: dict[str, Any], meta: Any, dropped: int) -> None:
    """Their own params and `_meta` stay; the id is always ours; a loss is counted beside it."""
    whole = params if meta is None else {**params, "_meta": meta}
    event = ExtensionEvent("notifications/x", whole, {"x": 1})
    message = json.loads(frames.event_frame(event, b'"me"', dropped))
    expected = dict(meta) if isinstance(meta, dict) else {}
    expected[ID_KEY] = "me"
    if dropped:
        expected["org.mcp-trio/dropped"] = dropped
    assert message["params"] == {**params, "_meta": expected}
    assert message["method"] == "notifications/x"


def test_an_event_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encode once: a thousand listeners splice, and nobody encodes again."""
    calls = 0
    encode = codec.encode_json

    def counting(value: Any) -> bytes:
        nonlocal calls
        calls += 1
        return encode(value)

    monkeypatch.setattr(codec, "encode_json", counting)
    for event in (
        ToolsListChanged(),
        ResourceUpdated("note://a"),
        ExtensionEvent("notifications/x", {"a": 1}, {"x": 1}),
    ):
        frames.event_frame(event, b"0")
        calls = 0
        written = {frames.event_frame(event, b"%d" % n) for n in range(1000)}
        assert len(written) == 1000
        assert calls == 0


def test_later_changes_of_params_change_nothing() -> None:
    params = {"a": 1}
    event = ExtensionEvent("notifications/x", params, {"x": 1})
    before = frames.event_frame(event, b"1")
    params["a"] = 2
    assert frames.event_frame(event, b"1") == before


@pytest.mark.parametrize(
    "method",
    [
        "notifications/progress",
        "notifications/message",
        "notifications/cancelled",
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    ],
)
def test_extensions_cannot_use_the_protocols_own_methods(method: str) -> None:
    """S-11: progress and log messages never travel on a listen stream."""
    with pytest.raises(ValueError, match=method):
        frames.event_frame(ExtensionEvent(method, {}, {"x": 1}), b"1")


def test_what_has_no_form_on_the_wire() -> None:
    for event in (Resync(), EventsDropped(1)):
        with pytest.raises(TypeError, match="no form on the wire"):
            frames.event_template(event)
    with pytest.raises(codec.EncodeError):
        frames.event_template(ExtensionEvent("x", {"a": float("nan")}, {"x": 1}))
