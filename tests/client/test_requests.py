"""Plain requests of a client, against scripted servers over lines and over HTTP."""

from typing import Any

import pytest
import script_kit as say
import trio
from script_kit import Play

from mcp_trio import codec, errors, types
from mcp_trio.client import pages as pages_module
from mcp_trio.client.client import Client
from mcp_trio.protocol import meta

CAPABILITIES = types.ClientCapabilities()


def answering(*bodies: Any) -> Any:
    """A script that answers one request after the other, and keeps them."""

    async def script(peer: Any) -> None:
        for method, body in bodies:
            request = await peer.expect(method)
            script.requests.append(request)  # type: ignore[attr-defined]
            await peer.send(request, say.answer(request, body))

    script.requests = []  # type: ignore[attr-defined]
    return script


async def test_every_typed_request(play: Play) -> None:
    """Each sends its method with its params and the metadata, and gives its result a type."""
    discovered = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
    script = answering(
        ("server/discover", discovered),
        ("tools/list", {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
        ("tools/call", {"content": [{"type": "text", "text": "hi"}]}),
        ("resources/list", {"resources": [{"name": "a", "uri": "note://a"}]}),
        ("resources/templates/list", {"resourceTemplates": []}),
        ("resources/read", {"contents": [{"uri": "note://a", "text": "x"}]}),
        ("prompts/list", {"prompts": [{"name": "p"}]}),
        ("prompts/get", {"messages": []}),
    )
    async with play(script) as client:
        assert list((await client.discover()).supported_versions) == ["2026-07-28"]
        assert (await client.list_tools()).tools[0].name == "t"
        content = (await client.call_tool("t", {"x": 1})).content[0]
        assert isinstance(content, types.TextContent)
        assert content.text == "hi"
        assert (await client.list_resources("next")).resources[0].uri == "note://a"
        assert list((await client.list_resource_templates()).resource_templates) == []
        assert (await client.read_resource("note://a")).contents[0].uri == "note://a"
        assert (await client.list_prompts()).prompts[0].name == "p"
        assert list((await client.get_prompt("p", {"a": "b"})).messages) == []
    requests = script.requests
    assert [request["id"] for request in requests] == list(range(1, 9))
    for request in requests:
        sent = request["params"].pop("_meta")
        assert sent[meta.META_VERSION] == "2026-07-28"
        assert sent[meta.META_CLIENT_CAPABILITIES] == {}
        assert sent[meta.META_CLIENT_INFO]["name"] == "mcp-trio"
        assert meta.PROGRESS_TOKEN not in sent
    params = [request["params"] for request in requests]
    assert params == [
        {},
        {},
        {"name": "t", "arguments": {"x": 1}},
        {"cursor": "next"},
        {},
        {"uri": "note://a"},
        {},
        {"name": "p", "arguments": {"a": "b"}},
    ]


async def test_generic_request(play: Play) -> None:
    """The result as it came; the caller's own `_meta` is kept, the protocol's keys win."""
    script = answering(("org.example/ask", {"answer": 42, "resultType": "complete"}))
    async with play(script) as client:
        given = {"q": 1, "_meta": {"traceparent": "00-x", meta.META_VERSION: "wrong"}}
        result = await client.request("org.example/ask", given)
    assert result == {"answer": 42, "resultType": "complete"}
    sent = script.requests[0]["params"]["_meta"]
    assert sent["traceparent"] == "00-x"
    assert sent[meta.META_VERSION] == "2026-07-28"


async def test_what_is_said_about_the_client(play: Play) -> None:
    script = answering(("tools/list", {"tools": []}))
    async with play(script) as opened:
        client = Client(
            opened.transport,
            client_info=types.Implementation("me", "2"),
            capabilities=types.ClientCapabilities(experimental={"x": {}}),
        )
        await client.list_tools()
    sent = script.requests[0]["params"]["_meta"]
    assert sent[meta.META_CLIENT_INFO] == {"name": "me", "version": "2"}
    assert sent[meta.META_CLIENT_CAPABILITIES] == {"experimental": {"x": {}}}


async def test_what_is_no_request() -> None:
    """C-07: refused before anything is sent."""
    client = Client(say.Nowhere())
    with pytest.raises(errors.LocalProtocolError, match=r"Client\.listen"):
        await client.request("subscriptions/listen", {"notifications": {}})
    with pytest.raises(errors.LocalProtocolError, match="notification"):
        await client.request("notifications/cancelled", {"requestId": 1})
    assert repr(client) == "<Client over nowhere>"


async def test_params_that_json_cannot_hold(play: Play) -> None:
    """W59: found before anything is written; the next request works."""
    script = answering(("tools/list", {"tools": []}))
    async with play(script) as client:
        with pytest.raises(codec.EncodeError):
            await client.call_tool("t", {"x": float("nan")})
        await client.list_tools()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-32601, errors.MethodNotFound),
        (-32602, errors.InvalidParams),
        (-32603, errors.InternalError),
        (-32022, errors.UnsupportedProtocolVersion),
        (-32002, errors.ErrorResponse),
        (7, errors.ErrorResponse),
    ],
)
async def test_error_responses(play: Play, code: int, kind: type[errors.ErrorResponse]) -> None:
    """W62: the class of its code, with code and message."""

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/list")
        await peer.send(request, say.error(request, code, "because"))

    async with play(script) as client:
        with pytest.raises(kind, match="because") as caught:
            await client.list_tools()
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"resultType": "zzz"}, "tools/list: unknown resultType 'zzz'"),
        ({"resultType": 5}, "unknown resultType '5'"),
        ({"resultType": "input_required", "_meta": {}}, "tools/list: .* must not do for this"),
        ({"resultType": "input_required", "tools": []}, "must not do for this request"),
        ({"tools": [{"name": 5}]}, "tools/list: malformed result: tools"),
        ({}, "malformed result"),
    ],
)
async def test_results_that_are_refused(play: Play, body: Any, text: str) -> None:
    """W84: what is unknown is invalid; a list that asks for input is no list."""
    async with play(answering(("tools/list", body))) as client:
        with pytest.raises(errors.RemoteProtocolError, match=text):
            await client.list_tools()


async def test_progress(play: Play) -> None:
    """C-27: what carries its token, in order; nothing else."""

    def progress(token: object, value: object) -> dict[str, Any]:
        params = {"progressToken": token, "progress": value, "message": "on it"}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/call")
        token = request["params"]["_meta"]["progressToken"]
        log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}
        await peer.send(
            request,
            progress(token, 1),
            progress(str(token), 2),
            log,
            progress(token, "half"),
            progress(token, 2.5),
            say.answer(request, {"content": []}),
        )
        request = await peer.expect("tools/call")
        assert "progressToken" not in request["params"]["_meta"]
        await peer.send(request, progress(1, 1), say.answer(request, {"content": []}))

    send, receive = trio.open_memory_channel[types.ProgressNotificationParams](10)
    async with play(script) as client:
        await client.call_tool("slow", progress=send.send)
        send.close()
        reports = [report async for report in receive]
        assert [report.progress for report in reports] == [1, 2.5]
        assert reports[0].message == "on it"
        await client.call_tool("slow")


async def test_failing_progress_handler_ends_the_call(play: Play) -> None:
    async def script(peer: Any) -> None:
        request = await peer.expect("tools/call")
        params = {"progressToken": request["params"]["_meta"]["progressToken"], "progress": 1}
        await peer.send(
            request, {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        )
        await peer.until_cancelled(request)
        cancelled.set()

    async def fail(_: types.ProgressNotificationParams) -> None:
        raise KeyError("mine")

    cancelled = trio.Event()
    async with play(script) as client:
        with pytest.raises(KeyError, match="mine"):
            await client.call_tool("slow", progress=fail)
        await cancelled.wait()


async def test_deadline_cancels_on_the_wire(play: Play) -> None:
    """W43: as the transport does it, and only that request."""

    async def script(peer: Any) -> None:
        slow = await peer.expect("tools/call")
        await peer.until_cancelled(slow)
        request = await peer.expect("tools/list")
        await peer.send(request, say.answer(request, {"tools": []}))

    async with play(script) as client:
        with trio.move_on_after(0.05) as scope:
            await client.call_tool("slow")
        assert scope.cancelled_caught
        await client.list_tools()


async def test_no_answer(play: Play) -> None:
    """W62: one exception."""

    async def script(peer: Any) -> None:
        await peer.cut(await peer.expect("tools/list"))

    async with play(script) as client:
        with pytest.raises(errors.ConnectionLost):
            await client.list_tools()


async def test_messages_of_others(play: Play) -> None:
    """W05, W06: an id of another type is another id; a change belongs to a subscription."""

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/list")
        await peer.send(
            request,
            say.answer({"id": str(request["id"])}, {"tools": 1}),
            say.tagged({"id": "listen-9"}, "notifications/tools/list_changed"),
            say.answer(request, {"tools": []}),
        )

    async with play(script) as client:
        assert list((await client.list_tools()).tools) == []


async def test_all_pages(play: Play) -> None:
    """A cursor is opaque, and may be empty."""
    tool = {"inputSchema": {"type": "object"}}
    script = answering(
        ("tools/list", {"tools": [{"name": "a", **tool}], "nextCursor": ""}),
        ("tools/list", {"tools": [{"name": "b", **tool}], "nextCursor": "2"}),
        ("tools/list", {"tools": []}),
        ("resources/list", {"resources": [{"name": "r", "uri": "x:r"}]}),
        (
            "resources/templates/list",
            {"resourceTemplates": [{"name": "t", "uriTemplate": "x:{a}"}]},
        ),
        ("prompts/list", {"prompts": [{"name": "p"}]}),
    )
    async with play(script) as client:
        assert [tool.name for tool in await client.all_tools()] == ["a", "b"]
        assert [resource.name for resource in await client.all_resources()] == ["r"]
        assert [template.name for template in await client.all_resource_templates()] == ["t"]
        assert [prompt.name for prompt in await client.all_prompts()] == ["p"]
    assert [request["params"].get("cursor") for request in script.requests[:3]] == [None, "", "2"]


@pytest.mark.parametrize("cursors", [("a", "b", "a"), ("1", "2", "3")])
async def test_pages_that_never_end(
    play: Play, cursors: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_module, "MAX_PAGES", 2)
    pages = [("tools/list", {"tools": [], "nextCursor": cursor}) for cursor in cursors]
    async with play(answering(*pages)) as client:
        with pytest.raises(errors.RemoteProtocolError, match="never end"):
            await client.all_tools()
