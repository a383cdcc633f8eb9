"""What the tests after the official conformance suite share: its client, its checks of a message.

The suite speaks HTTP only. Here the same is asked over every transport, of the same server.
"""

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
from wire_http import HttpWire
from wire_kit import Frame, WireClient, WireExchange, exactly

from mcp_trio import types

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
TOKEN = "progressToken"  # noqa: S105

EVERYTHING = {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}}
"""The capabilities that the suite declares where it does not say otherwise."""

SCHEMA = (
    Path(__file__).parents[3] / "shared" / "schema" / types.REVISION / "schema.json"
).resolve()
"""The protocol's, where it lies beside the repository."""
RESULTS = {
    "completion/complete": "CompleteResult",
    "prompts/get": "GetPromptResult",
    "prompts/list": "ListPromptsResult",
    "resources/list": "ListResourcesResult",
    "resources/read": "ReadResourceResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "tools/call": "CallToolResult",
    "tools/list": "ListToolsResult",
}


def metadata(capabilities: dict[str, Any] | None = None, /, **more: Any) -> dict[str, Any]:
    """The `_meta` of a request of the suite."""
    return {
        VERSION: types.REVISION,
        CAPABILITIES: EVERYTHING if capabilities is None else capabilities,
        CLIENT_INFO: {"name": "conformance-test-client", "version": "1.0.0"},
        **more,
    }


def ask(request_id: Any, method: str, /, **params: Any) -> Frame:
    """A request of the suite; `_meta` is its usual one unless there is another."""
    params.setdefault("_meta", metadata())
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


@functools.cache
def _validator(name: str) -> jsonschema_rs.Validator | None:
    if not SCHEMA.exists():
        return None
    schema = json.loads(SCHEMA.read_text("utf-8"))
    # It has lost two things that the TypeScript which it is made from has.
    schema["$defs"]["JSONValue"] = {}
    answers = schema["$defs"]["ElicitResult"]["properties"]["content"]["additionalProperties"]
    answers["anyOf"][-1]["type"] = ["string", "number", "boolean"]
    return jsonschema_rs.Draft202012Validator({**schema, "$ref": f"#/$defs/{name}"})


def check_schema(name: str, value: Any) -> None:
    """The suite's check `wire-schema-valid`, where the schema is at hand."""
    validator = _validator(name)
    if validator is not None:
        validator.validate(value)


def check_result(method: str, result: dict[str, Any]) -> None:
    """A result of a method is one, by the schema, and says which kind it is."""
    if result["resultType"] == "input_required":
        assert method in ("tools/call", "prompts/get", "resources/read")
        check_schema("InputRequiredResult", result)
    else:
        assert result["resultType"] == "complete"
        check_schema(RESULTS[method], result)


async def respond(client: WireClient, message: Frame, *, status: int = 200) -> Frame:
    """Ask, and return the response, of which the form and the id are right.

    Args:
        client: whom to ask.
        message: what.
        status: what the status is where there is one.
    """
    exchange = await client.start(message)
    response = await exchange.response()
    await exchange.over()
    assert exactly(response["id"]) == exactly(message["id"])
    check_status(client, exchange, status)
    if "result" in response:
        check_schema("JSONRPCResultResponse", response)
        check_result(message["method"], response["result"])
    else:
        check_schema("JSONRPCErrorResponse", response)
    return response


def check_status(client: WireClient, exchange: WireExchange, status: int) -> None:
    """Check the status of a response, over HTTP."""
    if isinstance(client, HttpWire):
        assert exchange.status == status  # type: ignore[attr-defined]


async def result_of(client: WireClient, method: str, /, **params: Any) -> dict[str, Any]:
    """Ask for what there is a result for, and return that."""
    response = await respond(client, ask(1, method, **params))
    assert "result" in response, response
    result: dict[str, Any] = response["result"]
    return result


async def called(client: WireClient, name: str, /, **params: Any) -> dict[str, Any]:
    """Call a tool, and return its result."""
    return await result_of(client, "tools/call", name=name, **params)


async def error_of(
    client: WireClient, message: Frame, code: int, *, status: int = 400
) -> dict[str, Any]:
    """Ask for what there is an error for, and return that."""
    response = await respond(client, message, status=status)
    assert "error" in response, response
    error: dict[str, Any] = response["error"]
    assert error["code"] == code
    return error
