"""One request in, one response out: checks, versions, errors."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
from request_meta import META
from server_kit import Recorder, ask, call, error_of, request, result_of, text_of

from mcp_trio import codec, errors, types
from mcp_trio.protocol import jsonrpc
from mcp_trio.server import Server
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.transports.abc import Handler


async def echo(text: str) -> str:
    return text


def make(**options: Any) -> Server:
    server = Server("s", version="1", **options)
    server.add_tool(echo)
    return server


def test_a_server_is_a_handler() -> None:
    handler: Handler = make()
    assert handler.supported_versions == ("2026-07-28",)
    assert handler.knows("tools/call")
    assert not handler.knows("nope/x")


async def test_discover() -> None:
    server = Server(
        "s",
        version="1",
        title="S",
        description="a server",
        instructions="use it — well",
        website_url="https://example.com",
        icons=[types.Icon("https://example.com/i.png", mime_type="image/png")],
        ttl_ms=5000,
        cache_scope="public",
    )
    result = await result_of(server, "server/discover")
    assert result == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {},
        "instructions": "use it — well",
        "ttlMs": 5000,
        "cacheScope": "public",
        "_meta": {
            "io.modelcontextprotocol/serverInfo": {
                "name": "s",
                "version": "1",
                "title": "S",
                "description": "a server",
                "websiteUrl": "https://example.com",
                "icons": [{"src": "https://example.com/i.png", "mimeType": "image/png"}],
            }
        },
    }
    codec.structure(types.DiscoverResult, result)
    # Pictures can be large: they do not travel with every result.
    server.add_tool(echo)
    result = await result_of(server, "tools/list")
    assert result["_meta"] == {
        "io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1", "title": "S"}
    }


async def test_capabilities_tell_what_will_be_sent() -> None:
    """W35: without a source nothing is promised, with one what it can emit."""
    server = Server("s", version="1")
    assert server.capabilities() == {}
    server.add_tool(echo)
    assert (await result_of(server, "server/discover"))["capabilities"] == {
        "logging": {},
        "tools": {},
    }
    server.add_prompt(echo)
    server.add_resource_template("x://{text}", echo)
    assert (await result_of(server, "server/discover"))["capabilities"] == {
        "logging": {},
        "tools": {},
        "prompts": {},
        "resources": {},
    }
    server = Server("s", version="1", hub=Hub(kinds={"resources"}))
    assert server.capabilities() == {"resources": {"listChanged": True}}
    server.add_tool(echo)
    assert server.capabilities()["tools"] == {}
    assert Server("s", version="1", hub=Hub(kinds={"updated"})).capabilities() == {
        "resources": {"subscribe": True}
    }
    assert Server("s", version="1", hub=Hub()).capabilities() == {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
    }


FEATURES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "tools": [("tools/list", {}), ("tools/call", {"name": "echo", "arguments": {"text": "x"}})],
    "prompts": [("prompts/list", {}), ("prompts/get", {"name": "echo", "arguments": {"text": ""}})],
    "resources": [
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "x://a"}),
    ],
}


@pytest.mark.parametrize("feature", FEATURES)
async def test_a_feature_is_served_if_and_only_if_it_is_declared(feature: str) -> None:
    """W55: its methods are -32601 until there is something; they stay when it is gone again."""

    async def a() -> str:
        return "a"

    add: dict[str, Callable[[Server], None]] = {
        "tools": lambda server: server.add_tool(echo),
        "prompts": lambda server: server.add_prompt(echo),
        "resources": lambda server: server.add_resource("x://a", a),
    }
    remove: dict[str, Callable[[Server], None]] = {
        "tools": lambda server: server.remove_tool("echo"),
        "prompts": lambda server: server.remove_prompt("echo"),
        "resources": lambda server: server.remove_resource("x://a"),
    }
    server = Server("s", version="1")
    for method, params in FEATURES[feature]:
        assert (await error_of(server, method, **params))["code"] == errors.METHOD_NOT_FOUND
        assert not server.knows(method)
    add[feature](server)
    assert set(server.capabilities()) == {feature, "logging"}
    for name, asked in FEATURES.items():
        for method, params in asked:
            if name == feature:
                await result_of(server, method, **params)
            else:
                error = await error_of(server, method, **params)
                assert error["code"] == errors.METHOD_NOT_FOUND
            assert server.knows(method) == (name == feature)
    remove[feature](server)
    assert feature in server.capabilities()
    await result_of(server, FEATURES[feature][0][0])
    # Who would announce it has it from the start.
    server = Server("s", version="1", hub=Hub())
    await result_of(server, FEATURES[feature][0][0])


@pytest.mark.parametrize("request_id", [0, "", 1, "1", -(2**63), "é" * 100])
async def test_ids_come_back_verbatim(request_id: str | int) -> None:
    """W05, W06: 0 and "" are ids, and 1 is not "1"; on results, cached lists and errors."""
    server = make()
    for method in ("tools/list", "server/discover", "tools/call", "nope/x", "prompts/get"):
        response = await ask(
            server, method, {"name": "echo", "arguments": {"text": "a"}}, request_id=request_id
        )
        assert response["id"] == request_id
        assert type(response["id"]) is type(request_id)


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        (None, errors.INVALID_PARAMS),
        ({}, errors.INVALID_PARAMS),
        ({**META, "io.modelcontextprotocol/protocolVersion": 5}, errors.INVALID_PARAMS),
        (
            {"io.modelcontextprotocol/protocolVersion": "2025-11-25"},
            errors.UNSUPPORTED_PROTOCOL_VERSION,
        ),
        ({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, errors.INVALID_PARAMS),
        ({**META, "progressToken": 1.5}, errors.INVALID_PARAMS),
    ],
)
@pytest.mark.parametrize("method", ["tools/list", "nope/x", "subscriptions/listen"])
async def test_meta_is_checked_before_the_method(method: str, meta: Any, code: int) -> None:
    for server in (make(), make(hub=Hub())):
        asked = jsonrpc.Request(1, method, {} if meta is None else {"_meta": meta})
        reply = await server.handle(asked, Recorder())
        assert reply.error_code == code
        if code == errors.UNSUPPORTED_PROTOCOL_VERSION:
            assert json.loads(reply.frame)["error"]["data"] == {
                "supported": ["2026-07-28"],
                "requested": "2025-11-25",
            }


async def test_handle_leaves_the_request_as_it_was() -> None:
    """A transport may have checked it before, and looks at it after."""
    server = make()
    asked = request("tools/list")
    first = await server.handle(asked, Recorder())
    assert asked.params == {"_meta": META}
    assert (await server.handle(asked, Recorder())).frame == first.frame


async def test_unknown_methods() -> None:
    error = await error_of(make(), "nope/" + "x" * 5000)
    assert error["code"] == errors.METHOD_NOT_FOUND
    assert len(error["message"]) < 300


async def test_listen_without_a_source_is_unknown() -> None:
    """S-09."""
    server = make()
    assert not server.knows("subscriptions/listen")
    error = await error_of(server, "subscriptions/listen", notifications={})
    assert error["code"] == errors.METHOD_NOT_FOUND
    assert make(hub=Hub()).knows("subscriptions/listen")


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"protocolVersion": "2025-11-25", "capabilities": {}}, -32022),
        ({"protocolVersion": "2026-07-28", "_meta": META}, -32601),
        ({}, -32601),
        ({"protocolVersion": 5}, -32601),
        ({"protocolVersion": "x" * 9999}, -32022),
    ],
)
async def test_initialize_names_the_versions(params: dict[str, Any], code: int) -> None:
    """W79: the message of the error is all that a user of an older client may see."""
    reply = await make().handle(jsonrpc.Request(0, "initialize", params), Recorder())
    error = json.loads(reply.frame)["error"]
    assert error["code"] == code
    assert "2026-07-28" in error["message"]
    assert error["data"]["supported"] == ["2026-07-28"]
    assert len(reply.frame) < 500


async def test_notifications_are_never_answered(caplog: pytest.LogCaptureFixture) -> None:
    """W57: unknown ones are ignored, and named in the log once."""
    server = make()
    with caplog.at_level(logging.INFO, "mcp_trio.server"):
        for _ in range(3):
            server.notify(jsonrpc.Notification("window/logMessage"))
            server.notify(jsonrpc.Notification("notifications/initialized", {"x": 1}))
        assert len(caplog.records) == 2
        for i in range(1000):
            server.notify(jsonrpc.Notification(f"n/{i}"))
    assert len(caplog.records) == 100


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": 5}),
        ("tools/call", {"name": "echo", "arguments": None}),
        ("tools/call", {"name": "echo", "arguments": []}),
        ("tools/call", {"name": "nope"}),
        ("prompts/get", {}),
        ("prompts/get", {"name": "nope"}),
        ("resources/read", {}),
        ("resources/read", {"uri": 5}),
        ("resources/read", {"uri": "x://nope"}),
    ],
)
async def test_bad_params(method: str, params: dict[str, Any]) -> None:
    server = make()
    server.add_prompt(echo)
    server.add_resource_template("y://{text}", echo)
    error = await error_of(server, method, **params)
    assert error["code"] == errors.INVALID_PARAMS
    if params.get("uri") == "x://nope":
        assert error["data"] == {"uri": "x://nope"}


async def test_failures_do_not_leak(caplog: pytest.LogCaptureFixture) -> None:
    """What goes wrong inside is -32603 without a word of why; the log has the traceback."""
    server = make()

    @server.prompt
    async def boom() -> str:
        raise ValueError("the password is swordfish")

    @server.resource("x://boom")
    def read() -> str:
        raise OSError("/etc/secret")

    @server.resource("x://odd")
    def odd() -> object:
        return object()

    for method, params in (
        ("prompts/get", {"name": "boom"}),
        ("resources/read", {"uri": "x://boom"}),
    ):
        error = await error_of(server, method, **params)
        assert error == {"code": errors.INTERNAL_ERROR, "message": "Internal error"}
    assert "swordfish" in caplog.text
    error = await error_of(server, "resources/read", uri="x://odd")
    assert error["code"] == errors.INTERNAL_ERROR


async def test_an_error_response_that_a_handler_raises_is_the_answer() -> None:
    server = make()

    @server.prompt
    async def busy() -> str:
        raise errors.ServerBusy("later", retry_after=7)

    @server.prompt
    async def nested() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(busy)
            nursery.start_soon(trio.sleep_forever)
        raise AssertionError

    for name in ("busy", "nested"):
        reply = await server.handle(request("prompts/get", {"name": name}), Recorder())
        assert reply.retry_after == 7
        assert json.loads(reply.frame)["error"]["message"] == "later"


class Odd(BaseException):
    """What no `except Exception` catches."""


async def test_no_handler_takes_its_neighbours_down(nursery: trio.Nursery) -> None:
    """W63: not even with an exception that is no `Exception`."""
    server = make()

    @server.tool
    async def odd() -> str:
        raise Odd("odd")

    @server.prompt(name="odd")
    async def odd_prompt() -> str:
        raise Odd("odd")

    release = trio.Event()
    answers: list[dict[str, Any]] = []

    @server.tool
    async def slow() -> str:
        await release.wait()
        return "still here"

    async def ask_slow() -> None:
        answers.append(await call(server, "slow"))

    nursery.start_soon(ask_slow)
    await trio.testing.wait_all_tasks_blocked()
    assert text_of(await call(server, "odd")) == "Odd: odd"
    assert (await error_of(server, "prompts/get", name="odd"))["code"] == errors.INTERNAL_ERROR
    assert server.statistics().requests == 1
    release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert text_of(answers[0]) == "still here"
    assert server.statistics().requests == 0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
async def test_what_ends_the_program_passes(
    kind: type[BaseException], grouped: bool, method: str
) -> None:
    async def stop() -> str:
        if grouped:
            raise BaseExceptionGroup("", [ValueError(), BaseExceptionGroup("", [kind("x")])])
        raise kind("x")

    server = make()
    server.add_tool(stop)
    server.add_prompt(stop)
    with pytest.raises(kind):
        await server.handle(request(method, {"name": "stop"}), Recorder())


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
async def test_cancelling_cancels_the_handler_without_an_answer(method: str) -> None:
    """W08, W18, W63: also where a task of the handler fails while it is cancelled."""
    ended: list[str] = []

    async def slow(fail: bool = False) -> str:
        async def child() -> None:
            try:
                await trio.sleep_forever()
            finally:
                ended.append("child")
                if fail:
                    raise ValueError("while cancelled")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            nursery.start_soon(trio.sleep_forever)
        raise AssertionError

    server = make()
    server.add_tool(slow)
    server.add_prompt(slow)
    for fail in (False, True):
        value: Any = fail if method == "tools/call" else ("true" if fail else "false")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def ask_it(value: Any = value) -> None:
                    params = {"name": "slow", "arguments": {"fail": value}}
                    await server.handle(request(method, params), Recorder())
                    raise AssertionError("answered")

                nursery.start_soon(ask_it)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
    assert ended == ["child", "child"]
    assert server.statistics().requests == 0


async def test_statistics() -> None:
    server = make()
    server.add_prompt(echo)
    server.add_resource("x://a", lambda: "")
    server.add_resource_template("x://{text}", echo)
    numbers = server.statistics()
    assert (numbers.tools, numbers.prompts, numbers.resources) == (1, 1, 1)
    assert (numbers.resource_templates, numbers.subscriptions, numbers.hub) == (1, 0, None)
    assert make(hub=Hub()).statistics().hub is not None


async def test_a_server_without_a_source_drains_at_once() -> None:
    server = make()
    await server.drain(trio.current_time() + 5)
    assert server.end_subscriptions() == 0
    assert server.open_subscriptions == 0


def test_arguments_that_make_no_sense() -> None:
    for options in (
        {"page_size": 0},
        {"ttl_ms": -1},
        {"cache_scope": "shared"},
        {"instructions": "\udcaf"},
    ):
        with pytest.raises(ValueError, match=r"page_size|ttl_ms|cache_scope|surrogate"):
            Server("s", version="1", **options)
