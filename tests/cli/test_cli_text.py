"""What becomes of a server's texts and values when people look at them."""

from typing import Any

import pytest
from rich.console import Console

from mcp_trio import codec, errors, types
from mcp_trio.cli import contents, fields, tables
from mcp_trio.cli.display import JsonDisplay
from mcp_trio.cli.human import HumanDisplay
from mcp_trio.cli.text import beginning, first_line, harmless, size
from mcp_trio.subscriptions.events import (
    Event,
    EventsDropped,
    ExtensionEvent,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand é", "two\nlines\tand é"),
        ("dos\r\nline", "dos\nline"),
        ("back\rover", "back\\rover"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202edef", "abc\\u202edef"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_steers_a_terminal_is_shown(text: str, shown: str) -> None:
    """Nothing but line ends and tabs gets through."""
    assert harmless(text) == shown


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_500_000, "1.5 MB"),
        (2 * 10**12, "2000.0 GB"),
    ],
)
def test_sizes(count: int, said: str) -> None:
    """As people say them."""
    assert size(count) == said


def test_the_first_line() -> None:
    """The first that says something."""
    assert first_line("\n\n  first \nsecond") == "first"
    assert first_line(None) == ""


def test_the_beginning() -> None:
    """So many lines, none too long, and how many there are beside."""
    assert beginning("a\nb", 2, 5) == ["a", "b"]
    assert beginning("abcdef\nb\nc", 2, 5) == ["abcd…", "b", "… 1 more line"]


def tool(schema: dict[str, Any]) -> types.Tool:
    return types.Tool(name="t", input_schema=schema)


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({}, ""),
        ({"properties": 5}, ""),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, "a: string"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "[a: string|null]"),
        ({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}}, "[a: integer[]]"),
        ({"properties": {"a": {"type": "array"}}}, "[a: any[]]"),
        ({"properties": {"a": {"enum": [1, "x"]}, "b": True}}, "[a: 1|x], [b]"),
        ({"properties": {"a": {"$ref": "#/x"}}}, "[a]"),
        ({"properties": {"a": {}}, "required": 5}, "[a]"),
    ],
)
def test_the_arguments_of_a_tool(schema: dict[str, Any], shown: str) -> None:
    """Their types where they are said plainly; whatever else a server sends does no harm."""
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(tables.table("tools", [tool(schema)], plain=True))
    row = captured.get().splitlines()[1].rstrip()
    assert row.split(maxsplit=1)[1:] == ([shown] if shown else [])


def test_differences() -> None:
    """What is gone, what is not as it was, what is new."""
    before = {"tools": [types.Tool(name=name, input_schema={}) for name in "abc"]}
    after = {
        "tools": [
            types.Tool(name="b", input_schema={}),
            types.Tool(name="c", input_schema={}, description="now\nwith words"),
            types.Tool(name="d", input_schema={}, title="Title"),
        ]
    }
    assert [
        (each.sign, each.name, each.description) for each in tables.differences(before, after)
    ] == [("-", "a", ""), ("~", "c", "now"), ("+", "d", "Title")]


def result(*texts: str, structured: Any = None) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text) for text in texts], structured_content=structured
    )


@pytest.mark.parametrize(
    ("called", "shown"),
    [
        (result("a", "b"), ["a", "b"]),
        (result('{"a": 1}', structured={"a": 1}), ['{"a": 1}']),
        (result("5", structured={"result": 5}), ["5"]),
        (result("x", structured={"result": "x"}), ["x"]),
        (result("x", "y", structured={"result": ["x", "y"]}), ["x", "y"]),
        (result("x", structured={"a": "é"}), ["x", '{\n  "a": "é"\n}']),
        (result(structured=[1]), ["[\n  1\n]"]),
    ],
)
def test_what_a_tool_returned_is_said_once(called: types.CallToolResult, shown: list[str]) -> None:
    """Structured content is shown where the texts do not say the same."""
    assert [text.plain for text in contents.tool_output(called)] == shown


def test_content_that_is_no_text() -> None:
    """It is named."""
    link = types.ResourceLink(name="n", uri="x://y", mime_type="text/plain")
    assert contents.block(link).plain == "[link, x://y, n, text/plain]"
    assert (
        contents.block(types.ImageContent("AAAA", "image/png")).plain == "[image, image/png, 3 B]"
    )
    blob = types.EmbeddedResource(types.BlobResourceContents("x://y", "AAA="))
    assert contents.block(blob).plain == "[resource, x://y]\n[bytes, 2 B]"
    assert contents.data_of(types.BlobResourceContents("x://y", "no base64")) is None


EVENTS: list[tuple[Event, dict[str, Any], str]] = [
    (Resync("lost"), {"event": "resync", "reason": "lost"}, "resync              lost"),
    (
        Resync("lost", narrowed=("toolsListChanged",)),
        {"event": "resync", "reason": "lost", "narrowed": ["toolsListChanged"]},
        "resync              lost",
    ),
    (
        EventsDropped(1),
        {"event": "resync", "reason": "1 event dropped"},
        "resync              1 event dropped",
    ),
    (
        EventsDropped(2),
        {"event": "resync", "reason": "2 events dropped"},
        "resync              2 events dropped",
    ),
    (
        ExtensionEvent("notifications/tasks", {"taskId": "t"}),
        {
            "event": "change",
            "kind": "tasks",
            "uri": None,
            "method": "notifications/tasks",
            "params": {"taskId": "t"},
        },
        'task                notifications/tasks {"taskId":"t"}',
    ),
    (
        ExtensionEvent("notifications/other"),
        {
            "event": "change",
            "kind": "extension",
            "uri": None,
            "method": "notifications/other",
            "params": {},
        },
        "extension           notifications/other {}",
    ),
]


@pytest.mark.parametrize(("event", "line", "text"), EVENTS)
def test_rare_events(event: Event, line: dict[str, Any], text: str) -> None:
    """Gaps and what extensions say, for programs and for people."""
    assert codec.decode_json(JsonDisplay().changed(event)) == line
    assert HumanDisplay(Console(color_system=None)).changed(event).decode().endswith(f"{text}\n")


def test_lists_that_have_changed() -> None:
    """Their difference, if it is known what they were; for programs the list."""
    lists = {"tools": [tool({})], "resourceTemplates": []}
    display = HumanDisplay(Console(color_system=None))
    assert display.relisted(None, lists).decode().endswith("│ 1 tools, 0 resource templates\n")
    assert display.relisted(lists, lists).decode().endswith("│ nothing that can be seen\n")
    assert JsonDisplay().relisted(lists, lists) == JsonDisplay().listed(lists)


def test_a_reason_does_not_quote_what_was_passed_on() -> None:
    """What a server has written to standard error has been seen."""
    shown = HumanDisplay(Console(color_system=None)).changed(
        Resync("gone; the end of its stderr:\nx")
    )
    assert shown.decode().endswith("resync              gone\n")


def test_what_is_read_again_after_a_gap() -> None:
    """People are told what follows; programs see it."""
    display = HumanDisplay(Console(color_system=None))
    assert display.rereading(ToolsListChanged()).decode().endswith("│ the list of tools\n")
    assert display.rereading(ResourceUpdated("x://y")).decode().endswith("│ x://y\n")
    assert JsonDisplay().rereading(ToolsListChanged()) == b""
    line = codec.decode_json(JsonDisplay().not_reread(errors.InvalidParams("no", data=1)))
    wrong = {"type": "InvalidParams", "code": -32602, "message": "no", "data": 1}
    assert line == {"event": "result", "value": None, "error": wrong}


def test_filters_for_people() -> None:
    """Each part of a filter has a line."""
    wanted = SubscriptionFilter(True, True, True, ["x://y"], ["t1"], {"other": [1]})
    shown = HumanDisplay(Console(color_system=None)).acknowledged(wanted, SubscriptionFilter())
    assert [line[30:] for line in shown.decode().splitlines()] == [
        "the lists of tools, prompts and resources",
        "x://y",
        "task t1",
        "other: [1]",
    ]
    nothing = SubscriptionFilter()
    shown = HumanDisplay(Console(color_system=None)).acknowledged(nothing, nothing)
    assert shown.decode().endswith("listening           to nothing\n")


STRING = types.StringSchema()
FIELDS: list[tuple[types.PrimitiveSchemaDefinition, str, object, str]] = [
    (STRING, "x y", "x y", "  f: "),
    (types.StringSchema(title="T", description="D", format="email"), "x", "x", "  T (D) <email>: "),
    (types.BooleanSchema(default=True), "No", False, "  f <yes or no> [True]: "),
    (types.NumberSchema(type="integer", default=3), "4", 4, "  f <integer> [3]: "),
    (types.NumberSchema(type="number"), "4.5", 4.5, "  f <number>: "),
    (types.UntitledSingleSelectEnumSchema(enum=["a", "b"]), "b", "b", "  f <one of them>: "),
    (
        types.UntitledMultiSelectEnumSchema(
            items=types.UntitledItems(enum=["a", "b"]), default=["a"]
        ),
        "b, a",
        ["b", "a"],
        "  f <several, with commas between> [a]: ",
    ),
]


@pytest.mark.parametrize(("field", "typed", "value", "prompt"), FIELDS)
def test_fields_of_a_form(
    field: types.PrimitiveSchemaDefinition, typed: str, value: object, prompt: str
) -> None:
    """What is typed becomes a value of the field's type; the prompt says what that is."""
    parsed = fields.parse(typed, field, [choice for choice, _ in fields.choices(field)])
    assert (parsed, type(parsed)) == (value, type(value))
    assert fields.prompt("f", field) == prompt


@pytest.mark.parametrize(
    ("field", "typed", "complaint"),
    [
        (types.BooleanSchema(), "maybe", "yes or no?"),
        (types.NumberSchema(type="integer"), "1.5", "that is no integer"),
        (types.NumberSchema(type="number"), "x", "that is no number"),
        (types.UntitledSingleSelectEnumSchema(enum=["a"]), "b", "b is not among them"),
    ],
)
def test_what_does_not_fit_is_asked_again(
    field: types.PrimitiveSchemaDefinition, typed: str, complaint: str
) -> None:
    """With the reason."""
    with pytest.raises(ValueError, match=complaint.replace("?", r"\?")):
        fields.parse(typed, field, [choice for choice, _ in fields.choices(field)])
