"""The vocabulary of change."""

import pickle
import time

import attrs
import pytest

from mcp_trio import codec
from mcp_trio.subscriptions import events, frames
from mcp_trio.subscriptions.uris import MAX_LEVELS, MAX_URI_LENGTH, ancestors, has_scheme


def test_core_events_are_equal_by_value_and_keyed_by_what_they_say() -> None:
    """S-61: the same news twice has one key; different news has different keys."""
    core: list[events.CoreEvent] = [
        events.ToolsListChanged(),
        events.PromptsListChanged(),
        events.ResourcesListChanged(),
        events.ResourceUpdated("note://a"),
        events.ResourceUpdated("note://b"),
        events.ResourceUpdated("notifications/tools/list_changed"),
    ]
    again = [pickle.loads(pickle.dumps(event)) for event in core]  # noqa: S301
    assert core == again
    assert len({event.key for event in core + again}) == len(core)
    assert len({*core, *again}) == len(core)
    assert all(events.is_event(event) for event in core)


def test_methods_name_the_core_events() -> None:
    assert set(events.CORE_EVENTS) == {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
    assert all(cls.method == method for method, cls in events.CORE_EVENTS.items())


@pytest.mark.parametrize("value", [None, 5, "notifications/tools/list_changed", object(), b""])
def test_what_is_no_event(value: object) -> None:
    """S-30: a source could return anything."""
    assert not events.is_event(value)


@pytest.mark.parametrize("uri", [None, 5, b"note://a"])
def test_a_uri_is_a_string(uri: object) -> None:
    with pytest.raises(TypeError, match="a resource URI is a string"):
        events.ResourceUpdated(uri)  # type: ignore[arg-type]


def test_a_uri_that_json_cannot_hold_is_refused_at_once() -> None:
    """W59: found when the event is made, not when a stream is about to write it."""
    with pytest.raises(ValueError, match=r"lone surrogate: 'file:///\\udcaf'"):
        events.ResourceUpdated("file:///\udcaf")
    assert events.ResourceUpdated("note://测试").uri == "note://测试"


def test_the_cached_form_takes_no_part_in_what_an_event_is() -> None:
    encoded, fresh = events.ResourceUpdated("note://a"), events.ResourceUpdated("note://a")
    frames.event_template(encoded)
    assert encoded == fresh
    assert hash(encoded) == hash(fresh)
    assert repr(encoded) == repr(fresh)
    assert attrs.asdict(encoded) == {"uri": "note://a"}
    assert pickle.loads(pickle.dumps(encoded)) == fresh  # noqa: S301


def test_extension_events_coalesce_only_if_asked_to() -> None:
    once = events.ExtensionEvent("x/n", {"a": 1}, {"taskIds": "t", "b": 2})
    assert once.key is None
    state = events.ExtensionEvent("x/n", {"a": 1}, {"taskIds": "t", "b": 2}, coalesce=True)
    newer = events.ExtensionEvent("x/n", {"a": 2}, {"b": 2, "taskIds": "t"}, coalesce=True)
    other = events.ExtensionEvent("x/n", {"a": 2}, {"taskIds": "u"}, coalesce=True)
    assert state.key == newer.key != other.key
    assert state != newer
    assert len({state, newer, other, once}) == 4


def test_topics_keep_types_apart() -> None:
    """Test scenario 18 of the catalogue: 1, 1.0, "1" and true differ; objects compare by value."""
    topics = [events.topic_of("f", value) for value in (1, 1.0, "1", True, None, [1], {"a": 1})]
    assert len(set(topics)) == len(topics)
    assert events.topic_of("f", {"a": [1], "b": 2}) == events.topic_of("f", {"b": 2, "a": (1,)})
    assert events.topic_of("f", 1) != events.topic_of("g", 1)
    with pytest.raises(codec.EncodeError):
        events.topic_of("f", float("nan"))


@pytest.mark.parametrize(
    ("uri", "above"),
    [
        ("file:///a/b.txt", ["file:///a/", "file:///a", "file:///"]),
        ("file:///a/", ["file:///a", "file:///"]),
        ("file:///", []),
        ("note://a", []),
        ("note://a/", ["note://a"]),
        ("note://a/b", ["note://a/", "note://a"]),
        ("x://h/a?q=/y/z#/k", ["x://h/", "x://h"]),
        ("x://h?q=/a", []),
        ("x://h/a/#f", ["x://h/a", "x://h/", "x://h"]),
        ("x://h//a", ["x://h//", "x://h/", "x://h"]),
        ("x://h/a:/b", ["x://h/a:/", "x://h/a:", "x://h/", "x://h"]),
        ("test:a/b", ["test:a/", "test:a"]),
        ("test:/a", ["test:/"]),
        ("urn:x:y", []),
        ("no scheme/a/b", []),
        ("x:é/b", ["x:é/", "x:é"]),
    ],
)
def test_what_a_uri_lies_below(uri: str, above: list[str]) -> None:
    """By path segments, as exact strings; never a bare scheme, never the URI itself."""
    assert list(ancestors(uri)) == above


def test_similar_strings_are_not_below() -> None:
    assert "note://a" not in set(ancestors("note://ab/c"))
    assert "note://h/a" not in set(ancestors("note://h/ab"))


def test_looking_upwards_is_bounded() -> None:
    started = time.perf_counter()
    deep = list(ancestors("x://h" + "/a" * 10_000))
    assert len(deep) == 2 * MAX_LEVELS
    assert list(ancestors("x://h" + "/a" * MAX_URI_LENGTH * 2)) == []
    assert time.perf_counter() - started < 1


def test_schemes() -> None:
    assert all(map(has_scheme, ["note://a", "urn:x", "x:é", "a+b-c.d:e"]))
    assert not any(map(has_scheme, ["", "not a uri", "/a", "1a:b", "é:b", ":b"]))
