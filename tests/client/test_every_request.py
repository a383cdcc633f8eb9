"""What holds for each of a client's requests: deadlines, answers, what comes in between."""

import inspect
from typing import Any

import pytest
import script_kit as say
import trio
from script_kit import PLAYS, Play
from wire_kit import Frame

from mcp_trio import errors, types
from mcp_trio.client import ClientOptions
from mcp_trio.client.client import Client
from mcp_trio.protocol import meta

TOOL = {"name": "t", "inputSchema": {"type": "object"}}
ARGUMENT = types.CompletionArgument(name="a", value="x")
REQUESTS: dict[str, tuple[Any, Frame]] = {
    "server/discover": (
        lambda client: client.discover(),
        {"supportedVersions": ["2026-07-28"], "capabilities": {}},
    ),
    "tools/list": (lambda client: client.list_tools(), {"tools": [TOOL]}),
    "tools/call": (lambda client: client.call_tool("t"), {"content": []}),
    "resources/list": (lambda client: client.list_resources(), {"resources": []}),
    "resources/templates/list": (
        lambda client: client.list_resource_templates(),
        {"resourceTemplates": []},
    ),
    "resources/read": (lambda client: client.read_resource("x:y"), {"contents": []}),
    "prompts/list": (lambda client: client.list_prompts(), {"prompts": []}),
    "prompts/get": (lambda client: client.get_prompt("p"), {"messages": []}),
    "completion/complete": (
        lambda client: client.complete(types.PromptReference("p"), ARGUMENT),
        {"completion": {"values": []}},
    ),
    "org.example/ask": (lambda client: client.request("org.example/ask"), {"x": 1}),
}


CACHEABLE = frozenset(REQUESTS) - {
    "tools/call",
    "prompts/get",
    "completion/complete",
    "org.example/ask",
}


@pytest.fixture(params=["memory", "lines", "stdio", "http"])
def play_all(request: pytest.FixtureRequest) -> Play:
    """Every transport in turn."""
    return PLAYS[request.param]


@pytest.mark.parametrize("method", REQUESTS)
async def test_deadline(play_all: Play, method: str) -> None:
    """W43: the cancel goes out as the transport does it, and the client can go on."""
    call, answer = REQUESTS[method]

    async def script(peer: Any) -> None:
        request = await peer.expect(method)
        arrived.set()
        await peer.until_cancelled(request)
        cancelled.set()
        request = await peer.expect(method)
        await peer.send(request, say.answer(request, answer))

    async def give_up(scope: trio.CancelScope) -> None:
        await arrived.wait()
        scope.cancel()

    arrived, cancelled = trio.Event(), trio.Event()
    async with play_all(script) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(give_up, scope)
                await call(client)
        assert scope.cancelled_caught
        await cancelled.wait()
        await call(client)


@pytest.mark.parametrize("method", REQUESTS)
async def test_extra_fields(play: Play, method: str) -> None:
    """What a later revision adds is kept, in the value or as it came."""
    call, answer = REQUESTS[method]

    async def script(peer: Any) -> None:
        request = await peer.expect(method)
        more = {"later": {"x": None}, "_meta": {"org.example/x": 1}}
        await peer.send(request, say.answer(request, {**answer, **more}))

    async with play(script) as client:
        result = await call(client)
    if isinstance(result, dict):
        assert result["later"] == {"x": None}
    else:
        assert result.extra == {"later": {"x": None}}
        assert result.meta == {"org.example/x": 1}


@pytest.mark.parametrize("method", [name for name in REQUESTS if name != "org.example/ask"])
async def test_hints_and_type_may_be_missing_or_senseless(play: Play, method: str) -> None:
    """W84: without a `resultType` it is complete; a hint that cannot be read is none."""
    call, answer = REQUESTS[method]

    async def script(peer: Any) -> None:
        for hints in (
            {},
            {"resultType": "complete", "ttlMs": -1, "cacheScope": "everybody"},
            {"ttlMs": "soon", "cacheScope": None},
        ):
            request = await peer.expect(method)
            await peer.send(request, say.answer(request, {**answer, **hints}))

    async with play(script) as client:
        for _ in range(3):
            result = await call(client)
            assert result.result_type == "complete"
            if method in CACHEABLE:
                assert (result.ttl_ms, result.cache_scope) == (0, "private")


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("kind", ["zzz", 5, None, "Complete", "task"])
async def test_unknown_kind_of_result(play: Play, method: str, kind: object) -> None:
    """W84: invalid, whatever else it holds."""
    call, answer = REQUESTS[method]

    async def script(peer: Any) -> None:
        request = await peer.expect(method)
        await peer.send(request, say.answer(request, {**answer, "resultType": kind}))

    async with play(script) as client:
        with pytest.raises(errors.RemoteProtocolError, match=f"{method}: unknown resultType"):
            await call(client)


@pytest.mark.parametrize(
    ("method", "missing"),
    [
        ("server/discover", "supportedVersions"),
        ("server/discover", "capabilities"),
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("resources/read", "contents"),
        ("prompts/list", "prompts"),
        ("prompts/get", "messages"),
        ("completion/complete", "completion"),
    ],
)
async def test_what_must_not_be_missing(play: Play, method: str, missing: str) -> None:
    """W84: a list without its items is not an empty list."""
    call, answer = REQUESTS[method]

    async def script(peer: Any) -> None:
        request = await peer.expect(method)
        rest = {name: value for name, value in answer.items() if name != missing}
        await peer.send(request, say.answer(request, rest))

    async with play(script) as client:
        with pytest.raises(errors.RemoteProtocolError, match=f"malformed result: {missing}"):
            await call(client)


@pytest.mark.parametrize("content", [{}, {"content": None}])
async def test_tool_result_without_content(play: Play, content: Frame) -> None:
    """Some servers leave it out beside structured content."""

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/call")
        await peer.send(request, say.answer(request, {**content, "structuredContent": {"x": 1}}))

    async with play(script) as client:
        result = await client.call_tool("t")
    assert list(result.content) == []
    assert result.structured_content == {"x": 1}


@pytest.mark.parametrize("transport", ["lines", "stdio", "http"])
async def test_requests_of_the_server(transport: str) -> None:
    """W58: dropped without an answer, whatever their id; the client's own goes on."""

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/list")
        asked: list[Frame] = [
            {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {}}
            for request_id in (request["id"], str(request["id"]), 99)
            for method in ("ping", "sampling/createMessage", "roots/list", "elicitation/create")
        ]
        await peer.send(request, *asked, say.answer(request, {"tools": []}))
        request = await peer.expect("prompts/list")  # and nothing before it
        await peer.send(request, say.answer(request, {"prompts": []}))

    async def never(_: object) -> Any:
        raise AssertionError("nobody was to be asked")

    options: Any = {"on_elicitation": never, "on_sampling": never, "on_roots": never}
    async with PLAYS[transport](script, **options) as client:
        assert list((await client.list_tools()).tools) == []
        assert list((await client.list_prompts()).prompts) == []


async def test_completion(play: Play) -> None:
    """A prompt's argument or a template's, with those that are settled."""

    async def script(peer: Any) -> None:
        for _ in range(2):
            request = await peer.expect("completion/complete")
            sent.append(
                {name: value for name, value in request["params"].items() if name != "_meta"}
            )
            values = {"values": ["xa", "xb"], "total": 5, "hasMore": True}
            await peer.send(request, say.answer(request, {"completion": values}))

    sent: list[Frame] = []
    async with play(script) as client:
        found = await client.complete(types.PromptReference("p"), ARGUMENT)
        template = types.ResourceTemplateReference("x:{a}")
        await client.complete(template, ARGUMENT, context={"b": "y"})
    assert list(found.completion.values) == ["xa", "xb"]
    assert (found.completion.total, found.completion.has_more) == (5, True)
    argument = {"name": "a", "value": "x"}
    assert sent == [
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": argument},
        {
            "ref": {"type": "ref/resource", "uri": "x:{a}"},
            "argument": argument,
            "context": {"arguments": {"b": "y"}},
        },
    ]


def log(level: object, data: object = "x", **more: object) -> Frame:
    params = {"level": level, "data": data, **more}
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": params}


STREAMED = {
    "tools/call": lambda client, **streams: client.call_tool("t", **streams),
    "resources/read": lambda client, **streams: client.read_resource("x:y", **streams),
    "prompts/get": lambda client, **streams: client.get_prompt("p", **streams),
    "org.example/ask": lambda client, **streams: client.request("org.example/ask", **streams),
}


@pytest.mark.parametrize("method", STREAMED)
async def test_log_stream(play: Play, method: str) -> None:
    """W83: asked for with the request, from that level on, in order; else nothing arrives."""

    async def script(peer: Any) -> None:
        request = await peer.expect(method)
        assert request["params"]["_meta"][meta.META_LOG_LEVEL] == "warning"
        assert "progressToken" not in request["params"]["_meta"]
        await peer.send(
            request,
            log("info", "too little"),
            log("warning", {"a": [1]}, logger="l"),
            log("loud"),
            log(None),
            {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error"}},
            log("emergency", None),
            say.answer(request, REQUESTS[method][1]),
        )
        request = await peer.expect(method)
        assert meta.META_LOG_LEVEL not in request["params"]["_meta"]
        await peer.send(request, log("error"), say.answer(request, REQUESTS[method][1]))

    send, receive = trio.open_memory_channel[types.LoggingMessageNotificationParams](10)
    async with play(script) as client:
        await STREAMED[method](client, log=("warning", send.send))
        await STREAMED[method](client)
    send.close()
    heard = [(said.level, said.data, said.logger) async for said in receive]
    assert heard == [("warning", {"a": [1]}, "l"), ("emergency", None, None)]


async def test_slow_log_handler(play: Play) -> None:
    """Each message is dealt with before the next, and all of them before the result."""

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/call")
        messages = [log("info", number) for number in range(3)]
        await peer.send(request, *messages, say.answer(request, {"content": []}))

    async def handle(said: types.LoggingMessageNotificationParams) -> None:
        steps.append(f"begin {said.data}")
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        steps.append(f"end {said.data}")

    steps: list[str] = []
    async with play(script) as client:
        await client.call_tool("t", log=("debug", handle))
        steps.append("result")
    assert steps == ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2", "result"]


async def test_failing_log_handler(play: Play) -> None:
    """What it raises ends the call, on the wire as well."""

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/call")
        await peer.send(request, log("info"))
        await peer.until_cancelled(request)
        cancelled.set()

    async def fail(_: object) -> None:
        raise KeyError("mine")

    cancelled = trio.Event()
    async with play(script) as client:
        with pytest.raises(KeyError, match="mine"):
            await client.call_tool("t", log=("info", fail))
        await cancelled.wait()


async def test_logs_of_concurrent_calls(play: Play) -> None:
    """W83: each call's level is its own, and so is what it hears."""

    async def script(peer: Any) -> None:
        calls = {}
        for _ in range(2):
            request = await peer.expect("tools/call")
            calls[request["params"]["name"]] = request
        levels = {
            name: request["params"]["_meta"].get(meta.META_LOG_LEVEL)
            for name, request in calls.items()
        }
        assert levels == {"loud": "debug", "quiet": None}
        if peer.transport == "http":  # where each has a channel of its own
            await peer.send(calls["quiet"], log("error", "not asked for"))
            await peer.send(calls["loud"], log("debug", "asked for"))
        for request in calls.values():
            await peer.send(request, say.answer(request, {"content": []}))
        over.append(peer.transport)

    send, receive = trio.open_memory_channel[Any](10)
    over: list[str] = []
    async with play(script) as client, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: client.call_tool("loud", log=("debug", send.send)))
        nursery.start_soon(client.call_tool, "quiet")
    send.close()
    heard = [said.data async for said in receive]
    assert heard == (["asked for"] if over == ["http"] else [])


@pytest.mark.parametrize("call", STREAMED.values())
async def test_no_such_level(play: Play, call: Any) -> None:
    """Found before anything is sent."""

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/list")
        await peer.send(request, say.answer(request, {"tools": []}))

    async with play(script) as client:
        with pytest.raises(ValueError, match="one of debug, info"):
            await call(client, log=("loud", Client.discover))
        await client.list_tools()


def test_one_list_of_options() -> None:
    """What is documented for all who open a client is what a client takes."""
    taken = inspect.signature(Client).parameters.values()
    keywords = {one.name for one in taken if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keywords == ClientOptions.__annotations__.keys()
