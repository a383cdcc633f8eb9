"""Tool parameters that a client mirrors in headers, and the tools it has to leave out."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

import pytest
import trio
from client_peer import Peer, serving
from script_kit import LineStage, play_lines, result

from mcp_trio import Client, Server, errors, open_http_client, serve_http
from mcp_trio.client import tool_headers
from mcp_trio.client.tool_headers import ToolHeaders
from mcp_trio.http.client import HttpTransport
from mcp_trio.server import Header

Headers = dict[str, str]
Schema = dict[str, Any]


def marked(name: object, of: object = "string", **more: Any) -> Schema:
    """The schema of a parameter that is mirrored."""
    return {"type": of, "x-mcp-header": name, **more}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


class ToolServer:
    """Lists tools, and refuses a call until its headers are what it wants.

    Attributes:
        pages: of tools; may be changed at any time.
        wants: the `Mcp-Param-*` headers that a call must have; None for any.
        calls: those that each call had.
        lists: how often a page was asked for.
        fails: whether listing fails.
    """

    def __init__(self, *tools: dict[str, Any]) -> None:
        self.pages: list[list[Any]] = [list(tools)]
        self.wants: Headers | None = None
        self.calls: list[Headers] = []
        self.lists = 0
        self.fails = False

    async def script(self, peer: Peer) -> None:
        """Serve a connection."""
        while True:
            _, headers, body = await peer.request()
            request = json.loads(body)
            answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
            status = "200 OK"
            if request["method"] == "tools/list" and self.fails:
                answer["error"] = {"code": -32603, "message": "no list today"}
            elif request["method"] == "tools/list":
                self.lists += 1
                number = int(request["params"].get("cursor", 0))
                answer["result"] = {"tools": self.pages[number], "ttlMs": 0, "cacheScope": "public"}
                if number + 1 < len(self.pages):
                    answer["result"]["nextCursor"] = str(number + 1)
            else:
                mirrored = {
                    name.removeprefix("mcp-param-"): value
                    for name, value in headers.items()
                    if name.startswith("mcp-param-")
                }
                self.calls.append(mirrored)
                if self.wants is None or mirrored == self.wants:
                    answer["result"] = {"content": [], "resultType": "complete"}
                else:
                    status = "400 Bad Request"
                    answer["error"] = {"code": -32020, "message": "Header mismatch"}
            await peer.json(json.dumps(answer).encode(), status)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A client of it."""
        async with serving(self.script) as server, open_http_client(server.url) as client:
            yield client


async def test_arguments_are_mirrored() -> None:
    """W86: strings, integers and booleans, at any depth; null and absent send no header."""
    inner = {"type": "object", "properties": {"limit": marked("Limit", "integer")}}
    server = ToolServer(
        tool("q", region=marked("Region"), dry=marked("Dry", "boolean"), options=inner, n={}),
        tool("plain", region={"type": "string"}),
    )
    async with server.client() as client:
        await client.call_tool("q", {"region": "not yet known"})
        await client.all_tools()
        for arguments in (
            {"region": "us-west1", "dry": False, "options": {"limit": 42}, "n": 3.14159},
            {"region": "Hello, 世界", "dry": True, "options": {"limit": -7.0}},
            {"region": " padded ", "options": {"limit": None}},
            {"region": "line1\nline2", "options": {}},
            {"region": "=?base64?literal?=", "dry": None, "options": None},
            {"region": "", "options": []},
            {"region": "a\tb"},
            {},
        ):
            await client.call_tool("q", arguments)
        await client.call_tool("plain", {"region": "x"})
        await client.call_tool("unknown", {"region": "x"})
        await client.request("tools/call", {"name": "q", "arguments": {"region": "raw"}})
        await client.request("tools/call", {"name": ["q"], "arguments": 5})
    assert server.calls == [
        {},
        {"region": "us-west1", "dry": "false", "limit": "42"},
        {"region": "=?base64?SGVsbG8sIOS4lueVjA==?=", "dry": "true", "limit": "-7"},
        {"region": "=?base64?IHBhZGRlZCA=?="},
        {"region": "=?base64?bGluZTEKbGluZTI=?="},
        {"region": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
        {"region": ""},
        {"region": "a\tb"},
        {},
        {},
        {},
        {"region": "raw"},
        {},
    ]


@pytest.mark.parametrize("value", [2**53, 3.5, {"a": 1}, ["x"], "\ud800"])
async def test_argument_that_no_header_can_mirror(value: object) -> None:
    """W86: it is refused before anything is sent."""
    server = ToolServer(tool("q", n=marked("N", "integer")))
    async with server.client() as client:
        await client.all_tools()
        with pytest.raises(errors.McpError) as caught:
            await client.call_tool("q", {"n": value})
        assert not isinstance(caught.value, errors.ErrorResponse)
    assert server.calls == []


INVALID = {
    "empty": {"p": marked("")},
    "object": {"p": marked({"a": 1})},
    "array": {"p": marked(["A"])},
    "null": {"p": marked(None)},
    "number": {"p": marked("P", "number")},
    "several types": {"p": marked("P", ["string", "null"])},
    "no type": {"p": {"x-mcp-header": "P"}},
    "same": {"p": marked("Same"), "q": marked("Same")},
    "same but for case": {"p": marked("Same"), "q": marked("sAME")},
    "space": {"p": marked("A B")},
    "colon": {"p": marked("A:B")},
    "not ASCII": {"p": marked("Ä")},
    "control": {"p": marked("A\r\nB: c")},
    "below items": {"p": {"type": "array", "items": marked("P")}},
}


async def test_tools_that_mark_parameters_wrongly_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """W86: the others stay; there is one warning for each, however often they are listed."""
    wrong = [tool(name, **properties) for name, properties in INVALID.items()]
    server = ToolServer(*wrong[:7], tool("fine", p=marked("P")), *wrong[7:], tool("plain"))
    async with server.client() as client:
        with caplog.at_level(logging.WARNING, "mcp_trio.client"):
            for _ in range(2):
                assert [each.name for each in await client.all_tools()] == ["fine", "plain"]
        raw = await client.request("tools/list")
        assert [each["name"] for each in raw["tools"]] == ["fine", "plain"]
        for name in INVALID:
            await client.call_tool(name, {"p": "x"})
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(INVALID)
    for name, text in zip(INVALID, said, strict=True):
        assert f"left out the tool {name!r}: x-mcp-header" in text
    assert server.calls == [{}] * len(INVALID)


async def test_only_where_there_are_headers() -> None:
    """W86: over lines nothing is left out."""

    async def script(stage: LineStage) -> None:
        request = await stage.expect("tools/list")
        tools = [tool("wrong", p=marked(""))]
        await stage.send(request, result(request, tools=tools, ttlMs=0, cacheScope="public"))

    async with play_lines(script) as client:
        assert [each.name for each in await client.all_tools()] == ["wrong"]


async def test_malformed_lists_are_for_who_reads_them() -> None:
    """W86: what cannot be understood is neither left out nor learnt from."""
    server = ToolServer()
    server.pages = [[5, {"name": 7}, {"name": "x", "inputSchema": 5}]]
    async with server.client() as client:
        assert (await client.request("tools/list"))["tools"] == server.pages[0]
        server.pages = [None]  # type: ignore[list-item]
        assert (await client.request("tools/list"))["tools"] is None
        with pytest.raises(errors.RemoteProtocolError, match="tools"):
            await client.all_tools()


async def test_refused_for_its_headers() -> None:
    """W86: one list and one retry, whether the tool was unknown, changed or no longer marks."""
    server = ToolServer(tool("q", region=marked("Region")))
    server.pages.insert(0, [tool("other")])
    server.pages.append([tool("not reached")])
    async with server.client() as client:
        server.wants = {"region": "x"}
        await client.call_tool("q", {"region": "x"})
        assert server.lists == 2
        server.pages[1] = [tool("q", region=marked("Where"))]
        server.wants = {"where": "x"}
        await client.call_tool("q", {"region": "x"})
        assert server.lists == 4
        server.pages[1] = [tool("q")]
        server.wants = {}
        await client.call_tool("q", {"region": "x"})
        assert server.lists == 6
    assert server.calls == [
        {}, {"region": "x"}, {"region": "x"}, {"where": "x"}, {"where": "x"}, {},
    ]  # fmt: skip


@pytest.mark.parametrize("gone", [False, True])
async def test_refused_although_nothing_has_changed(gone: bool) -> None:
    """W86: then the refusal stands, and there is no second call."""
    server = ToolServer(tool("q", region=marked("Region")))
    async with server.client() as client:
        await client.all_tools()
        server.wants = {"never": "so"}
        if gone:
            server.pages = [[]]
        with pytest.raises(errors.HeaderMismatch):
            await client.call_tool("q", {"region": "x"})
    assert (server.calls, server.lists) == ([{"region": "x"}], 2)


async def test_refused_again() -> None:
    """W86: other headers, and still refused: that is the end of it."""
    server = ToolServer(tool("q", region=marked("Region")))
    server.wants = {"never": "so"}
    async with server.client() as client:
        with pytest.raises(errors.HeaderMismatch):
            await client.call_tool("q", {"region": "x"})
    assert (server.calls, server.lists) == ([{}, {"region": "x"}], 1)


async def test_refused_and_the_list_fails() -> None:
    """W86: what is raised is the refusal; a note says what became of the list."""
    server = ToolServer()
    server.wants = {"never": "so"}
    server.fails = True
    async with server.client() as client:
        with pytest.raises(errors.HeaderMismatch) as caught:
            await client.call_tool("q", {"region": "x"})
    assert "no list today" in caught.value.__notes__[0]
    assert server.calls == [{}]


async def test_several_calls_refused_at_once() -> None:
    """W86: one of them lists the tools, for all."""
    server = ToolServer(tool("q", region=marked("Region")))
    server.wants = {"region": "x"}
    async with server.client() as client, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(client.call_tool, "q", {"region": "x"})
    assert server.calls.count({"region": "x"}) == 5
    assert server.lists == 1


async def test_what_is_known_is_bounded() -> None:
    """W86: those listed last are kept; the others are found out about again when they are used."""

    async def list_page(cursor: str | None) -> dict[str, Any]:
        asked.append(cursor)
        await trio.lowlevel.checkpoint()
        return await known.send("tools/list", {}, transmit)

    async def transmit(mirrored: Any) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"tools": tools}

    async def call(mirrored: Any) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        seen.append(mirrored)
        return {}

    asked: list[Any] = []
    seen: list[Any] = []
    tools = [tool(f"t{number}" + "x" * 100, p=marked(f"P{number}")) for number in range(100)]
    known = ToolHeaders(list_page, max_characters=10_000)
    for _ in range(3):
        await known.send("tools/list", {}, transmit)
        assert known._characters <= 10_000
        assert 10 < len(known._known) < 50
    for each in (tools[0], tools[-1]):
        await known.send("tools/call", {"name": each["name"], "arguments": {"p": "v"}}, call)
    assert seen == [{}, {"P99": "v"}]
    tools[:] = [tool(each["name"]) for each in tools]
    await known.send("tools/list", {}, transmit)
    assert (known._characters, len(known._known)) == (0, 0)
    assert tool_headers.MAX_CHARACTERS >= 10_000


async def test_with_a_server_of_ours() -> None:
    """W86: whatever the client mirrors, the server accepts, and it gets what was sent."""
    server = Server("mirrors", version="1")

    @server.tool
    async def ask(
        text: Annotated[str, Header("Text")],
        count: Annotated[int, Header("Count")] = 0,
        sure: Annotated[bool | None, Header("Sure")] = None,
    ) -> str:
        return json.dumps([text, count, sure])

    async with trio.open_nursery() as nursery:
        [origin] = await nursery.start(partial(serve_http, server, port=0))
        async with open_http_client(f"{origin}/mcp") as client:
            for text in ("x", "", " x ", "Zürich", "=?base64?eA==?=", "a\r\nMcp-Param-Count: 7"):
                arguments = {"text": text, "count": -len(text), "sure": bool(text)}
                called = await client.call_tool("ask", arguments)
                assert [json.loads(each.text) for each in called.content] == [  # type: ignore[union-attr]
                    [text, -len(text), bool(text)]
                ]
            assert (await client.call_tool("ask", {"text": "x", "sure": None})).is_error is not True
            transport = client.transport
            assert isinstance(transport, HttpTransport)
            # One refusal, one list, and then the calls.
            assert transport.statistics().requests == 9
        nursery.cancel_scope.cancel()
