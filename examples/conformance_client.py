"""The client that the official conformance suite is shown: one small function a scenario.

    MCP_CONFORMANCE_SCENARIO=tools_call python examples/conformance_client.py URL

The suite starts a server that plays the scenario, runs this against it, and looks at what arrives.
With `MCP_CONFORMANCE_CONTEXT`, a JSON object, it hands on what a scenario needs to know. Exit
status 0 if nothing has gone wrong here; whether all was right is for the suite to say.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from mcp_trio import Client, open_http_client, types
from mcp_trio.client import accept_form

Context = Mapping[str, Any]
Scenario = Callable[[Client, Context], Awaitable[object]]


async def tools_call(client: Client, context: Context) -> None:
    """Add two numbers."""
    await client.all_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def request_metadata(client: Client, context: Context) -> None:
    """Say in each request who is asking; the first is refused for its revision."""
    await client.all_tools()
    await client.call_tool("anything")


async def standard_headers(client: Client, context: Context) -> None:
    """Make a request of each kind that the server has something for."""
    capabilities = (await client.discover()).capabilities
    for tool in await client.all_tools():
        await client.call_tool(tool.name)
    if capabilities.resources is not None:
        for resource in await client.all_resources():
            await client.read_resource(resource.uri)
    if capabilities.prompts is not None:
        for prompt in await client.all_prompts():
            await client.get_prompt(prompt.name)


async def custom_headers(client: Client, context: Context) -> None:
    """Make the calls that the context has, with parameters that are mirrored in headers."""
    await client.all_tools()
    for call in context["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def every_tool(client: Client, context: Context) -> None:
    """Call what is left of the list when malformed tools are out of it."""
    for tool in await client.all_tools():
        await client.call_tool(tool.name, {"region": "us-west1"})


async def request_state(client: Client, context: Context) -> None:
    """Answer questions over several rounds, each call with a state of its own."""
    for name in ("echo_state", "unrelated", "no_state", "no_result_type"):
        await client.call_tool(f"test_mrtr_{name}")


async def only_list(client: Client, context: Context) -> None:
    """List tools, and follow no reference in their schemas."""
    await client.all_tools()


async def echo_schema(client: Client, context: Context) -> None:
    """Give a schema back as it came."""
    tools = {tool.name: tool for tool in await client.all_tools()}
    schema = tools["json_schema_2020_12_tool"].input_schema
    await client.call_tool("json_schema_echo", {"schema": schema})


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "tools_call": tools_call,
    "request-metadata": request_metadata,
    "http-standard-headers": standard_headers,
    "http-custom-headers": custom_headers,
    "http-invalid-tool-headers": every_tool,
    "sep-2322-client-request-state": request_state,
    "json-schema-ref-no-deref": only_list,
    "json-schema-2020-12-preservation": echo_schema,
}


async def fill_in(form: types.ElicitRequestFormParams) -> types.ElicitResult:
    """Confirm what is to be confirmed."""
    asked = form.requested_schema.properties
    return accept_form(form, {"confirmed": True} if "confirmed" in asked else None)


async def sample(params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    """Say something that a model could have said."""
    text = types.TextContent(text="Paris.")
    return types.CreateMessageResult(role="assistant", content=text, model="none")


async def list_roots(params: types.ListRootsRequestParams) -> types.ListRootsResult:
    """Say that there are no files to work with."""
    return types.ListRootsResult(roots=[])


async def main(url: str, scenario: str, context: Context) -> None:
    """Play one scenario."""
    info = types.Implementation(name="mcp-trio-conformance-client", version="1.0.0")
    async with open_http_client(
        url,
        client_info=info,
        on_elicitation=fill_in,
        on_sampling=sample,
        on_roots=list_roots,
    ) as client:
        await SCENARIOS[scenario](client, context)


if __name__ == "__main__":
    trio.run(
        main,
        sys.argv[-1],
        os.environ["MCP_CONFORMANCE_SCENARIO"],
        json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    )
