"""The generated classes as their users meet them."""

import copy
import pickle

import attrs
import pytest

from mcp_trio import types


def test_a_text_needs_nothing_but_its_text() -> None:
    """Tags and defaults are filled in."""
    text = types.TextContent("hello")
    assert text == types.TextContent(text="hello")
    assert text.type == "text"
    assert text.annotations is None
    result = types.CallToolResult(content=[text])
    assert result.result_type == "complete"


def test_a_cacheable_result_is_stale_and_private_unless_said() -> None:
    """The careful defaults, as the specification has them for what is absent."""
    result = types.ListToolsResult(tools=[])
    assert (result.ttl_ms, result.cache_scope) == (0, "private")


def test_values_are_frozen() -> None:
    """They can be shared; a change makes a new one."""
    text = types.TextContent("hello")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        text.text = "other"  # type: ignore[misc]
    assert attrs.evolve(text, text="other") == types.TextContent("other")
    with pytest.raises(TypeError, match="unhashable"):
        hash(text)


def test_lists_and_tuples_are_equal() -> None:
    """What is received has tuples; what users write has lists. JSON has one kind of array."""
    texts = [types.TextContent("a"), types.TextContent("b")]
    assert types.CallToolResult(content=texts) == types.CallToolResult(content=tuple(texts))
    assert types.CallToolResult(content=texts) != types.CallToolResult(content=texts[:1])
    assert types.CallToolResult(content=texts) != types.CallToolResult(content=texts[::-1])
    answers = types.ElicitResult(action="accept", content={"colours": ["red"]})
    assert answers == types.ElicitResult(action="accept", content={"colours": ("red",)})
    assert answers != types.ElicitResult(action="accept", content={"colors": ["red"]})


def test_values_of_two_classes_differ() -> None:
    """Even where their fields agree."""
    assert types.RequestParams() != types.NotificationParams()
    assert types.RequestParams() != {}


def test_extra_counts() -> None:
    """What came beside the known fields is part of the value."""
    assert types.Result(extra={"a": 1}) != types.Result()


def test_the_repr_shows_what_is_set() -> None:
    """And leaves defaults and tags out."""
    assert repr(types.TextContent("a")) == "TextContent(text='a')"
    tool = types.Tool(name="t", input_schema={"type": "object"}, extra={"x": 1})
    assert repr(tool) == "Tool(name='t', input_schema={'type': 'object'}, extra={'x': 1})"


def test_values_can_be_copied_and_pickled() -> None:
    """They are plain data."""
    tool = types.Tool(name="t", input_schema={}, icons=[types.Icon("data:,")], extra={"x": [1]})
    assert copy.deepcopy(tool) == tool
    assert pickle.loads(pickle.dumps(tool)) == tool  # noqa: S301


def test_the_methods_have_their_types() -> None:
    """Requests have a result, notifications have none."""
    call = types.METHODS["tools/call"]
    assert call == types.MethodInfo(
        types.CallToolRequestParams, types.CallToolResult, input_required=True
    )
    listen = types.METHODS["subscriptions/listen"]
    assert (listen.params, listen.result) == (
        types.SubscriptionsListenRequestParams,
        types.SubscriptionsListenResult,
    )
    assert not listen.input_required
    for method, info in types.METHODS.items():
        assert (info.result is None) == method.startswith("notifications/")


def test_everything_named_is_there() -> None:
    """`__all__` is written by the generator too."""
    for name in types.__all__:
        assert hasattr(types, name), name
