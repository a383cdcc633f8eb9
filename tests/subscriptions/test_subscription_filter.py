"""Filters: parsed, narrowed, compared."""

import time
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import errors
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
from mcp_trio.subscriptions.filter import (
    ALL_KINDS,
    SubscriptionFilter,
    narrow_by_capabilities,
    parse_filter,
)
from mcp_trio.subscriptions.uris import MAX_URI_LENGTH

URIS = st.lists(st.sampled_from([f"note://{n}" for n in "abcdefghijklmnop"]), max_size=12)
FILTERS = st.builds(
    SubscriptionFilter,
    tools_list_changed=st.booleans(),
    prompts_list_changed=st.booleans(),
    resources_list_changed=st.booleans(),
    resource_subscriptions=URIS,
    task_ids=st.lists(st.sampled_from(["t1", "t2", "t3"])),
    extensions=st.dictionaries(
        st.sampled_from(["com.example/a", "com.example/b"]),
        st.sampled_from([True, 0, 1, 1.0, "1", [1, "1"], [1], {"a": [1]}]),
    ),
)


@pytest.mark.parametrize(
    "notifications",
    [
        None,
        [],
        "toolsListChanged",
        5,
        {"toolsListChanged": "yes"},
        {"toolsListChanged": 1},
        {"promptsListChanged": None},
        {"resourcesListChanged": []},
        {"resourceSubscriptions": "note://a"},
        {"resourceSubscriptions": None},
        {"resourceSubscriptions": {"note://a": True}},
        {"resourceSubscriptions": [1]},
        {"resourceSubscriptions": ["note://a", None]},
        {"resourceSubscriptions": ["not a uri"]},
        {"resourceSubscriptions": [""]},
        {"resourceSubscriptions": ["note://" + "a" * MAX_URI_LENGTH]},
        {"taskIds": "t1"},
        {"taskIds": [1]},
    ],
)
def test_malformed_filters_are_invalid_params(notifications: object) -> None:
    """S-01, W37."""
    with pytest.raises(errors.InvalidParams):
        parse_filter(notifications)


def test_a_filter_is_read_as_it_stands() -> None:
    """S-42, S-43, W36, W38: unknown fields and false left out, no duplicates, URIs verbatim."""
    parsed = parse_filter(
        {
            "toolsListChanged": True,
            "promptsListChanged": False,
            "resourceSubscriptions": ["note://B", "note://a%20b", "x:é", "note://B", "NOTE://b"],
            "taskIds": ["t2", "t1", "t2"],
            "futureThing": True,
            "com.example/logs": ["error"],
            "com.example/off": False,
        },
        extension_fields=("com.example/logs", "com.example/off", "com.example/absent"),
    )
    assert parsed == SubscriptionFilter(
        tools_list_changed=True,
        resource_subscriptions=("note://B", "note://a%20b", "x:é", "NOTE://b"),
        task_ids=("t2", "t1"),
        extensions={"com.example/logs": ["error"]},
    )
    assert parsed.to_wire() == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["note://B", "note://a%20b", "x:é", "NOTE://b"],
        "taskIds": ["t2", "t1"],
        "com.example/logs": ["error"],
    }
    assert parse_filter({"resourceSubscriptions": ["a"]}, absolute_uris=False).covers("a")


@pytest.mark.parametrize(
    "notifications", [{}, {"toolsListChanged": False}, {"resourceSubscriptions": []}, {"x": True}]
)
def test_asking_for_nothing_is_no_error(notifications: dict[str, Any]) -> None:
    """S-47, W36."""
    parsed = parse_filter(notifications)
    assert not parsed
    assert parsed.to_wire() == {}


@pytest.mark.parametrize("field", ["resourceSubscriptions", "taskIds"])
def test_the_number_is_limited_before_anything_is_looked_at(field: str) -> None:
    """S-41: an entry of the wrong type beyond the limit is not even seen."""
    fine = [f"note://{n}" for n in range(1000)]
    assert len(parse_filter({field: fine}).to_wire()[field]) == 1000
    with pytest.raises(errors.InvalidParams, match="more than 1000"):
        parse_filter({field: [*fine, 5]})
    with pytest.raises(errors.InvalidParams, match="more than 2 entries"):
        parse_filter({field: ["a:", "b:", "c:"]}, max_uris=2)


def test_every_check_is_linear() -> None:
    """S-44: 50,000 URIs, well under two seconds."""
    started = time.perf_counter()
    many = [f"note://{n}" for n in range(50_000)]
    wanted = parse_filter({"resourceSubscriptions": many}, max_uris=50_000)
    granted = SubscriptionFilter(resource_subscriptions=many[::2])
    assert granted.issubset(wanted)
    assert not wanted.issubset(granted)
    assert len(wanted.difference(granted).resource_subscriptions) == 25_000
    assert len(wanted.intersection(granted).resource_subscriptions) == 25_000
    assert all(wanted.covers(uri) for uri in many)
    assert time.perf_counter() - started < 2


def test_types_are_checked_where_a_program_makes_a_filter() -> None:
    """C-09: a bare string for URIs is a type error."""
    for wrong in ("note://a", b"note://a", [5]):
        with pytest.raises(TypeError):
            SubscriptionFilter(resource_subscriptions=wrong)
    with pytest.raises(TypeError, match="tools_list_changed"):
        SubscriptionFilter(tools_list_changed="yes")  # type: ignore[arg-type]


def test_filters_are_values() -> None:
    one = SubscriptionFilter(True, extensions={"x": {"b": 1, "a": 2}})
    same = SubscriptionFilter(True, extensions={"x": {"a": 2, "b": 1}})
    assert one == same
    assert hash(one) == hash(same)
    assert one != SubscriptionFilter(True, extensions={"x": {"a": 2.0, "b": 1}})
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.tools_list_changed = False  # type: ignore[misc]
    with pytest.raises(TypeError):
        one.extensions["y"] = 1  # type: ignore[index]


@given(FILTERS, FILTERS)
def test_the_algebra_of_filters(one: SubscriptionFilter, other: SubscriptionFilter) -> None:
    """C-01: what is granted and what is declined make up what was asked for."""
    both, rest = one.intersection(other), one.difference(other)
    assert both.issubset(one)
    assert both.issubset(other)
    assert rest.issubset(one)
    assert not rest.intersection(other)
    assert (not rest) is one.issubset(other)
    assert set(both.resource_subscriptions) | set(rest.resource_subscriptions) == set(
        one.resource_subscriptions
    )
    assert both.topics() | rest.topics() == one.topics()
    assert one.issubset(one)
    assert one.difference(SubscriptionFilter()) == one


@given(FILTERS)
def test_the_wire_form_reads_back(wanted: SubscriptionFilter) -> None:
    fields = ("com.example/a", "com.example/b")
    assert parse_filter(wanted.to_wire(), extension_fields=fields) == wanted
    assert bool(wanted) is bool(wanted.to_wire())


@given(FILTERS, st.sets(st.sampled_from(sorted(ALL_KINDS))), st.sets(st.just("com.example/a")))
def test_the_capability_gate(wanted: SubscriptionFilter, kinds: Any, fields: set[str]) -> None:
    """S-40, W34, W35: what is not advertised is left out."""
    narrowed = narrow_by_capabilities(wanted, kinds, fields)
    assert narrowed.issubset(wanted)
    by_kind: dict[str, Event] = {
        "tools": ToolsListChanged(),
        "prompts": PromptsListChanged(),
        "resources": ResourcesListChanged(),
        "updated": ResourceUpdated("note://a"),
    }
    for name, event in by_kind.items():
        assert narrowed.matches(event) is (wanted.matches(event) and name in kinds)
    assert set(narrowed.extensions) == set(wanted.extensions) & fields
    assert not narrowed.task_ids


def test_task_ids_need_their_extension() -> None:
    wanted = SubscriptionFilter(task_ids=("t",))
    assert not narrow_by_capabilities(wanted, ALL_KINDS)
    assert narrow_by_capabilities(wanted, (), {"taskIds"}) == wanted


def test_what_matches() -> None:
    """S-05: only what was asked for, exactly."""
    few = SubscriptionFilter(False, True, False, ("note://a",), ("t",), {"x": [1, "e"], "y": True})
    many = attrs.evolve(few, resource_subscriptions=[f"note://{n}" for n in "abcdefghijklm"])
    for wanted in (few, many):
        yes: list[Event] = [
            PromptsListChanged(),
            ResourceUpdated("note://a"),
            ExtensionEvent("m", {}, {"taskIds": "t"}),
            ExtensionEvent("m", {}, {"x": 1}),
            ExtensionEvent("m", {}, {"x": "e", "y": True}),
            Resync(),
            EventsDropped(1),
        ]
        no: list[Event] = [
            ToolsListChanged(),
            ResourcesListChanged(),
            ResourceUpdated("NOTE://a"),
            ResourceUpdated("note://a/b"),
            ExtensionEvent("m", {}, {"taskIds": "u"}),
            ExtensionEvent("m", {}, {"x": True}),
            ExtensionEvent("m", {}, {"x": 1, "y": 1}),
            ExtensionEvent("m", {}, {"z": 1}),
            ExtensionEvent("m"),
        ]
        assert all(map(wanted.matches, yes))
        assert not any(map(wanted.matches, no))
        assert wanted.matches(ResourceUpdated("note://a/b/c"), sub_resources=True)
        assert not wanted.matches(ResourceUpdated("note://ab"), sub_resources=True)


def test_cues_say_everything_once() -> None:
    assert list(SubscriptionFilter().cues()) == []
    assert list(SubscriptionFilter(True, True, True, ("note://a", "note://b"), ("t",)).cues()) == [
        ToolsListChanged(),
        PromptsListChanged(),
        ResourcesListChanged(),
        ResourceUpdated("note://a"),
        ResourceUpdated("note://b"),
    ]
