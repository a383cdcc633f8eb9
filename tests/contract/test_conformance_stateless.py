"""`server-stateless`, the conformance suite's longest scenario, over every transport.

What it says of headers and statuses is asked where there are any. It knows of neither `listen`
that is cancelled nor of one that ends: those are in the other contract tests.
"""

from typing import Any

import pytest
from conformance_kit import (
    CAPABILITIES,
    CLIENT_INFO,
    SERVER_INFO,
    VERSION,
    ask,
    called,
    check_result,
    check_schema,
    check_status,
    error_of,
    metadata,
    result_of,
)
from wire_http import HttpWire
from wire_kit import SUBSCRIPTION_ID, TOOLS_CHANGED, Open, WireClient, acknowledgement, exactly

PROMPTS_CHANGED = "notifications/prompts/list_changed"
UNKNOWN = "v999.0.0"


def without(key: str) -> dict[str, Any]:
    """The usual metadata, but for one key."""
    return {name: value for name, value in metadata().items() if name != key}


@pytest.mark.parametrize("meta", [None, without(VERSION), without(CAPABILITIES)])
async def test_metadata_that_is_not_whole(connect: Open, meta: dict[str, Any] | None) -> None:
    """server-stateless: `-32602` without `_meta`, a version or capabilities; the id is repeated."""
    message = ask(7, "server/discover", _meta=meta)
    if meta is None:
        message["params"] = {}
    async with connect() as client:
        await error_of(client, message, -32602)


async def test_the_client_need_not_say_its_name(connect: Open) -> None:
    """server-stateless: `clientInfo` is optional."""
    async with connect() as client:
        await result_of(client, "server/discover", _meta=without(CLIENT_INFO))


async def test_discovery(connect: Open) -> None:
    """server-stateless: versions, capabilities, and who answers, in the metadata of each result."""
    async with connect() as client:
        found = await result_of(client, "server/discover")
        assert "2026-07-28" in found["supportedVersions"]
        assert isinstance(found["capabilities"], dict)
        for result in (found, await result_of(client, "tools/list")):
            assert {"name", "version"} <= result["_meta"][SERVER_INFO].keys()


LISTS = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
}


@pytest.mark.parametrize("kind", ["everything", "deaf"])
async def test_what_is_declared_is_there(connect: Open, kind: str) -> None:
    """server-stateless: a feature is declared if its methods are served, and only then."""
    async with connect(kind) as client:
        capabilities = (await result_of(client, "server/discover"))["capabilities"]
        assert "tools" in capabilities
        for name, (method, key) in LISTS.items():
            if name in capabilities:
                assert (await result_of(client, method))[key]
            else:
                await error_of(client, ask(2, method), -32601, status=404)
        completed = ask(
            3, "completion/complete", ref={"type": "ref/prompt", "name": "x"}, argument={}
        )
        code = -32602 if "completions" in capabilities else -32601
        await error_of(client, completed, code, status=400 if code == -32602 else 404)


async def test_a_version_that_is_not_served(connect: Open) -> None:
    """server-stateless: `-32022` says which are, and which was asked for."""
    async with connect() as client:
        known = (await result_of(client, "server/discover"))["supportedVersions"]
        message = ask(2, "server/discover", _meta=metadata(**{VERSION: UNKNOWN}))
        if isinstance(client, HttpWire):
            exchange = await client.start(message, mcp_protocol_version=UNKNOWN)
            response = await exchange.next()
            assert (exchange.status, response["id"]) == (400, 2)
            error = response["error"]
            check_schema("JSONRPCErrorResponse", response)
        else:
            error = await error_of(client, message, -32022)
        assert error["code"] == -32022
        assert error["data"]["supported"]
        assert set(error["data"]["supported"]) <= set(known)
        assert error["data"]["requested"] == UNKNOWN


async def test_a_header_that_says_another_version(connect_by_http: Open) -> None:
    """server-stateless: the header and the metadata have to agree."""
    async with connect_by_http() as client:
        await error_of(
            client, ask(1, "server/discover", _meta=metadata(**{VERSION: UNKNOWN})), -32020
        )


async def test_a_capability_that_is_missing(connect: Open) -> None:
    """server-stateless: `-32021` says which, as an object like the declaration itself."""
    message = ask(1, "tools/call", name="test_missing_capability", _meta=metadata({}))
    async with connect() as client:
        error = await error_of(client, message, -32021)
        assert error["data"]["requiredCapabilities"] == {"sampling": {}}
        result = await called(client, "test_missing_capability", _meta=metadata({"sampling": {}}))
        assert not result.get("isError")


REMOVED = [
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "unknown/method",
]


@pytest.mark.parametrize("method", REMOVED)
async def test_methods_that_are_no_more(connect: Open, method: str) -> None:
    """server-stateless: with the metadata of this revision they are as unknown as any other."""
    async with connect() as client:
        await error_of(client, ask("removed", method), -32601, status=404)


async def test_no_requests_by_the_server(connect: Open) -> None:
    """server-stateless: what comes before a response is notifications; the tool does stream."""
    meta = metadata({"elicitation": {}}, progressToken="t")
    async with connect() as client:
        message = ask(1, "tools/call", name="test_streaming_elicitation", _meta=meta)
        frames = await (await client.start(message)).rest()
        assert [frame.get("method") for frame in frames] == ["notifications/progress", None]
        check_schema("ProgressNotification", frames[0])
        check_result("tools/call", frames[1]["result"])


async def test_no_log_messages_without_a_level(connect: Open) -> None:
    """server-stateless: nothing comes but the result, here and on any stream."""
    async with connect() as client:
        stream = await client.listen("open", toolsListChanged=True)
        frames = await (await client.start(ask(1, "tools/call", name="test_logging_tool"))).rest()
        assert [frame.get("method") for frame in frames] == [None]
        await called(client, "test_trigger_tool_change")
        assert (await stream.next())["method"] == TOOLS_CHANGED


async def trigger(client: WireClient, kind: str) -> None:
    """Have a list changed, twice: something comes and goes."""
    await called(client, f"test_trigger_{kind}_change")


@pytest.mark.parametrize(
    ("kind", "wanted", "changed"),
    [
        ("tool", "toolsListChanged", TOOLS_CHANGED),
        ("prompt", "promptsListChanged", PROMPTS_CHANGED),
    ],
)
async def test_a_subscription(connect: Open, kind: str, wanted: str, changed: str) -> None:
    """server-stateless: acknowledged first, each message tagged, and the change arrives."""
    async with connect() as client:
        exchange = await client.start(ask(5, "subscriptions/listen", notifications={wanted: True}))
        frame = await exchange.next()
        assert exactly(frame) == exactly(acknowledgement(5, **{wanted: True}))
        check_schema("SubscriptionsAcknowledgedNotification", frame)
        check_status(client, exchange, 200)
        await trigger(client, kind)
        frame = await exchange.next()
        assert frame["method"] == changed
        assert exactly(frame["params"]["_meta"][SUBSCRIPTION_ID]) == "5"
        await exchange.cancel()
        await client.until_subscriptions(0)


async def test_what_was_not_subscribed_to(connect: Open) -> None:
    """server-stateless: a change of tools is nothing to who asked for prompts."""
    async with connect() as client:
        prompts = await client.listen("prompts", promptsListChanged=True)
        tools = await client.listen("tools", toolsListChanged=True)
        await trigger(client, "tool")
        assert (await tools.next())["method"] == TOOLS_CHANGED
        await trigger(client, "prompt")
        # The first and only thing that comes is the other change.
        assert (await prompts.next())["method"] == PROMPTS_CHANGED
