"""From JSON values to the classes of `mcp_trio.types` and back."""

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_trio import codec, errors, types

TEXT = {"type": "text", "text": "hello"}


def refusal(cls: Any, value: Any, **options: str) -> str:
    with pytest.raises(codec.DecodeError) as caught:
        codec.structure(cls, value, **options)
    assert isinstance(caught.value, errors.McpError)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


# --- scalars -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "value", "complaint"),
    [
        (types.Root, {"uri": 5}, "uri: expected a string, got 5"),
        (types.Root, {"uri": None}, "uri: expected a string, got null"),
        (types.Root, {"uri": True}, "uri: expected a string, got true"),
        (types.Root, {"uri": ["a"]}, "uri: expected a string, got an array"),
        (types.Root, {"uri": {"a": 1}}, "uri: expected a string, got an object"),
        (types.Root, {}, "uri: missing"),
        (types.Root, [], "expected an object, got an array"),
        (types.Root, "x" * 100, "expected an object, got '" + "x" * 56 + "..."),
        (types.ListToolsResult, {"tools": [], "ttlMs": 1.0}, "ttlMs: expected an integer, got 1.0"),
        (
            types.ListToolsResult,
            {"tools": [], "ttlMs": True},
            "ttlMs: expected an integer, got true",
        ),
        (
            types.ListToolsResult,
            {"tools": [], "cacheScope": "shared"},
            "cacheScope: expected one of 'private', 'public', got 'shared'",
        ),
        (types.ListToolsResult, {"tools": {}}, "tools: expected an array, got an object"),
        (types.Annotations, {"priority": "1"}, "priority: expected a number, got '1'"),
        (types.Annotations, {"priority": True}, "priority: expected a number, got true"),
        (types.Annotations, {"audience": ["user", "x"]}, "audience[1]: expected one of "),
        (types.PromptArgument, {"name": "a", "required": 0}, "required: expected true or false"),
        (types.Result, {"_meta": []}, "_meta: expected an object, got an array"),
        (types.TextContent, {"text": "a"}, "type: missing"),
        (types.TextContent, {"type": "image", "text": "a"}, "type: expected 'text', got 'image'"),
        (types.RequestId, 1.0, "expected a string or an integer, got 1.0"),
        (types.RequestId, True, "expected a string or an integer, got true"),
        (types.CompletionContext, {"arguments": {"a": 1}}, "arguments.a: expected a string, got 1"),
        (
            types.CompletionContext,
            {"arguments": ["a"]},
            "arguments: expected an object, got an array",
        ),
        (
            types.GetPromptResult,
            {"messages": [{"role": "user", "content": TEXT}, {"role": "user"}]},
            "messages[1].content: missing",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(cls: Any, value: Any, complaint: str) -> None:
    """W77: nothing is converted, and the message says where and why."""
    assert refusal(cls, value).startswith(complaint)


def test_the_path_can_begin_where_the_caller_stands() -> None:
    """So that an answer names `params.name`, which its reader knows."""
    assert refusal(types.CallToolRequestParams, {"name": 5}, at="params") == (
        "params.name: expected a string, got 5"
    )
    assert refusal(types.CallToolRequestParams, [], at="params") == (
        "params: expected an object, got an array"
    )
    assert refusal(types.InputRequests, {"a": 1}, at="x") == "x.a: expected an object, got 1"


def test_a_refusal_has_its_parts() -> None:
    """For who wants to put it differently."""
    with pytest.raises(codec.DecodeError) as caught:
        codec.structure(types.Prompt, {"name": "p", "arguments": [{"name": 1}]})
    assert caught.value.path == "arguments[0].name"
    assert caught.value.reason == "expected a string, got 1"


def test_numbers_keep_their_type() -> None:
    """A progress of 1 goes on as 1, and one of 1.0 as 1.0."""
    for number in (1, 1.0, 2**70):
        params = codec.structure(
            types.ProgressNotificationParams, {"progressToken": "t", "progress": number}
        )
        assert repr(codec.unstructure(params)["progress"]) == repr(number)


# --- what is new, what is missing ----------------------------------------------------------


def test_unknown_fields_are_kept_wherever_they_stand() -> None:
    """A newer peer's fields survive, also those called like something of ours."""
    wire = {
        "resultType": "complete",
        "content": [{**TEXT, "novelty": [1], "extra": {"a": 1}, "<extra>": 2, "mime_type": 3}],
        "x-vendor": None,
    }
    result = codec.structure(types.CallToolResult, wire)
    assert result.extra == {"x-vendor": None}
    (text,) = result.content
    assert text.extra == {"novelty": [1], "extra": {"a": 1}, "<extra>": 2, "mime_type": 3}
    assert codec.unstructure(result) == wire


def test_null_reads_as_none_and_is_kept() -> None:
    """Peers that write null for absent are understood; a null that means something survives."""
    wire: dict[str, Any] = {
        "resultType": "complete",
        "content": [],
        "structuredContent": None,
        "isError": None,
    }
    result = codec.structure(types.CallToolResult, wire)
    assert result.structured_content is None
    assert result.is_error is None
    assert codec.unstructure(result) == wire
    assert codec.unstructure(attrs.evolve(result, structured_content=1, is_error=True)) == {
        **wire,
        "structuredContent": 1,
        "isError": True,
    }
    assert "structuredContent" not in codec.unstructure(types.CallToolResult(content=[]))


def test_null_where_any_value_must_be_is_a_value() -> None:
    """A log message may have null as its data."""
    wire = {"level": "info", "data": None}
    params = codec.structure(types.LoggingMessageNotificationParams, wire)
    assert params.data is None
    assert params.extra == {}
    assert codec.unstructure(params) == wire
    assert refusal(types.LoggingMessageNotificationParams, {"level": "info"}) == "data: missing"


def test_a_result_of_an_older_server_has_the_defaults() -> None:
    """W84: no resultType is complete, no ttlMs is 0; no scope is the careful one."""
    result = codec.structure(types.ListToolsResult, {"tools": []})
    assert result == types.ListToolsResult(
        tools=(), result_type="complete", ttl_ms=0, cache_scope="private"
    )
    assert codec.structure(types.SubscriptionsListenResult, {}).result_type == "complete"
    negative = codec.structure(types.ListToolsResult, {"tools": [], "ttlMs": -1})
    assert negative.ttl_ms == -1  # to be treated as 0, which is for the cache to do


def test_the_kind_of_a_result_is_open_but_for_the_one_that_asks() -> None:
    """Extensions add kinds; only an InputRequiredResult is known by its own."""
    assert codec.structure(types.Result, {"resultType": "task"}).result_type == "task"
    assert refusal(types.InputRequiredResult, {"requestState": "s"}) == "resultType: missing"
    asked = codec.structure(
        types.InputRequiredResult, {"resultType": "input_required", "requestState": "s"}
    )
    assert asked == types.InputRequiredResult(request_state="s")


# --- unions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "cls"),
    [
        (TEXT, types.TextContent),
        ({"type": "image", "data": "", "mimeType": "image/png"}, types.ImageContent),
        ({"type": "audio", "data": "", "mimeType": "audio/wav"}, types.AudioContent),
        ({"type": "resource_link", "name": "n", "uri": "u"}, types.ResourceLink),
        ({"type": "resource", "resource": {"uri": "u", "blob": ""}}, types.EmbeddedResource),
    ],
)
def test_content_is_known_by_its_type(wire: dict[str, Any], cls: type) -> None:
    """Other fields do not matter: a text with data is a text."""
    assert type(codec.structure(types.ContentBlock, wire)) is cls
    assert type(codec.structure(types.ContentBlock, {**wire, "blob": "", "uri": "u"})) is cls


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ({"text": "a"}, "content[0].type: missing"),
        ({"type": "video"}, "content[0].type: expected one of 'text', 'image', 'audio', "),
        ({"type": ["text"]}, "content[0].type: expected one of "),
        ({"type": "text"}, "content[0].text: missing"),
        ("text", "content[0]: expected an object, got 'text'"),
        ({"type": "resource", "resource": {"uri": "u"}}, "content[0].resource: fits none of "),
        (
            {"type": "resource", "resource": {"uri": "u", "text": "", "blob": ""}},
            "content[0].resource: fits more than one of TextResourceContents (text, uri), Blob",
        ),
        (
            {"type": "resource", "resource": {"uri": "u", "text": 1}},
            "content[0].resource.text: expected a string, got 1",
        ),
    ],
)
def test_a_member_is_never_guessed(block: Any, complaint: str) -> None:
    """What fits none, or more than one, is refused."""
    assert refusal(types.CallToolResult, {"content": [block]}).startswith(complaint)


@pytest.mark.parametrize(
    ("wire", "cls"),
    [
        ({"type": "string"}, types.StringSchema),
        ({"type": "integer"}, types.NumberSchema),
        ({"type": "number", "default": 0.5}, types.NumberSchema),
        ({"type": "boolean"}, types.BooleanSchema),
        ({"type": "string", "enum": ["a"]}, types.UntitledSingleSelectEnumSchema),
        (
            {"type": "string", "enum": ["a"], "enumNames": ["A"]},
            types.LegacyTitledEnumSchema,
        ),
        (
            {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
            types.TitledSingleSelectEnumSchema,
        ),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a"]}},
            types.UntitledMultiSelectEnumSchema,
        ),
        (
            {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
            types.TitledMultiSelectEnumSchema,
        ),
    ],
)
def test_a_form_field_is_known_by_what_it_must_have(wire: dict[str, Any], cls: type) -> None:
    """Of two that fit, the one that requires more."""
    value = codec.structure(types.PrimitiveSchemaDefinition, wire)
    assert type(value) is cls
    assert codec.unstructure(value) == wire


def test_two_kinds_of_form_field_at_once_are_refused() -> None:
    """Neither requires more than the other."""
    both = {"type": "string", "enum": ["a"], "oneOf": []}
    assert "more than one" in refusal(types.PrimitiveSchemaDefinition, both)
    assert "none" in refusal(types.PrimitiveSchemaDefinition, {"type": "array", "items": 5})


def test_a_question_is_a_form_unless_it_says_otherwise() -> None:
    """`mode` may be left out for forms, and stays out."""
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    value = codec.structure(types.ElicitRequestParams, form)
    assert type(value) is types.ElicitRequestFormParams
    assert codec.unstructure(value) == form
    page = {"mode": "url", "message": "?", "url": "https://example.org"}
    assert type(codec.structure(types.ElicitRequestParams, page)) is types.ElicitRequestURLParams
    assert "none" in refusal(types.ElicitRequestParams, {**form, "mode": "carrier pigeon"})


def test_input_responses_are_known_by_what_they_must_have() -> None:
    """They have no tag."""
    wire: dict[str, Any] = {
        "a": {"action": "decline"},
        "b": {"roots": [{"uri": "file:///a"}]},
        "c": {"role": "assistant", "model": "m", "content": [TEXT, TEXT]},
        "d": {"role": "assistant", "model": "m", "content": TEXT},
    }
    value = codec.structure(types.InputResponses, wire)
    assert [type(item).__name__ for item in value.values()] == [
        "ElicitResult",
        "ListRootsResult",
        "CreateMessageResult",
        "CreateMessageResult",
    ]
    assert codec.unstructure(value) == wire
    wire["c"]["content"] = [TEXT, {"type": "text"}]
    assert refusal(types.InputResponses, wire) == "c.content[1].text: missing"


def test_answers_may_be_fractions() -> None:
    """The schema lost the numbers that the specification has."""
    wire = {"action": "accept", "content": {"a": 1.5, "b": 1, "c": True, "d": "x", "e": ["y"]}}
    assert codec.unstructure(codec.structure(types.ElicitResult, wire)) == wire
    refused: tuple[Any, ...] = (None, {}, [1])
    for odd in refused:
        assert "content.a" in refusal(
            types.ElicitResult, {"action": "accept", "content": {"a": odd}}
        )


# --- the way out ---------------------------------------------------------------------------


def test_unset_fields_are_left_out_and_tags_are_not() -> None:
    """`null` is never written for what is not there."""
    result = types.CallToolResult(content=[types.TextContent("a"), types.Icon("x")])  # type: ignore[list-item]
    assert codec.unstructure(result) == {
        "resultType": "complete",
        "content": [{"type": "text", "text": "a"}, {"src": "x"}],
    }
    assert codec.unstructure(types.ListRootsRequest()) == {"method": "roots/list"}


def test_names_on_the_wire() -> None:
    """camelCase, `_meta`, `$schema`."""
    schema = types.ElicitationSchema(
        properties={"a": types.StringSchema(min_length=1)}, schema="https://example.org"
    )
    assert codec.unstructure(schema) == {
        "$schema": "https://example.org",
        "type": "object",
        "properties": {"a": {"type": "string", "minLength": 1}},
    }
    assert codec.unstructure(types.Result(meta={"a": 1}))["_meta"] == {"a": 1}


def test_extra_does_not_override_a_field() -> None:
    """A field that is set is what its owner meant."""
    text = types.TextContent("a", extra={"text": "b", "type": "image", "x": 1})
    assert codec.unstructure(text) == {"text": "a", "type": "text", "x": 1}


def test_values_are_found_in_plain_containers() -> None:
    """What a tool returns may mix both; plain values go through as they are."""
    mixed = {"a": [types.TextContent("a"), 1, (types.Icon("x"),)], "b": None}
    assert codec.unstructure(mixed) == {"a": [TEXT | {"text": "a"}, 1, [{"src": "x"}]], "b": None}
    plain = {"a": 1}
    assert codec.unstructure(types.Result(meta=plain))["_meta"] is plain


def test_a_string_is_no_sequence_of_strings() -> None:
    """The type checker cannot tell; the peer would get its letters."""
    wanted = types.SubscriptionFilter(resource_subscriptions="note://a")
    with pytest.raises(TypeError, match="note://a"):
        codec.unstructure(wanted)


def test_what_was_received_can_be_sent_after_a_change() -> None:
    """Plain dicts in the place of values, and lists, are fine too."""
    result = codec.structure(types.CallToolResult, {"content": [TEXT]})
    blocks: list[Any] = [*result.content, {"type": "future"}]
    result = attrs.evolve(result, content=blocks)
    assert codec.unstructure(result)["content"] == [TEXT, {"type": "future"}]
    message = types.SamplingMessage("user", [types.TextContent("hello")])
    assert codec.unstructure(message) == {"role": "user", "content": [TEXT]}


# --- every class ---------------------------------------------------------------------------

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)
OBJECTS = st.dictionaries(st.text(max_size=3), PLAIN, max_size=2)
UNKNOWN = st.dictionaries(st.sampled_from(["x-a", "x-b", "<extra>"]), PLAIN, max_size=2)
SIMPLE: Mapping[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=4),
    int: st.integers(),
    float: st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type of `mcp_trio.types`, as a user might construct them."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    if kind is Any:
        return PLAIN
    if attrs.has(kind):
        return st.deferred(lambda: objects_of(kind))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of([values_of(member) for member in arguments])
    if origin is Sequence:
        return st.lists(values_of(arguments[0]), max_size=2)
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=3), values_of(arguments[1]), max_size=2)
    assert origin is dict
    return OBJECTS


def objects_of(cls: Any) -> st.SearchStrategy[Any]:
    given_fields = {
        field.name: UNKNOWN if field.name == "extra" else values_of(field.type)
        for field in attrs.fields(cls)
    }
    return st.builds(cls, **given_fields)


CLASSES = sorted(
    (
        found
        for name in types.__all__
        if attrs.has(found := getattr(types, name)) and issubclass(found, types.Value)
    ),
    key=lambda cls: str(cls.__name__),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(CLASSES).flatmap(values_of))
def test_every_value_comes_back(value: types.Value) -> None:
    """Through bytes, with whatever is in it; and the wire form comes back the same too."""
    wire = codec.decode_json(codec.encode_json(codec.unstructure(value)))
    back = codec.structure(type(value), wire)
    assert back == value
    assert codec.unstructure(back) == wire
