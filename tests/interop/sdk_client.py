"""The official Python SDK's client against our server. Runs in an environment of its own.

    python tests/interop/sdk_client.py http URL
    python tests/interop/sdk_client.py stdio COMMAND ARGUMENTS...

Exit status 0 if everything it does has the outcome that it should.
"""

import sys
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    Root,
    TextContent,
)

REVISION = "2026-07-28"


async def elicit(context: Any, params: Any) -> ElicitResult:
    """Fill in every form with the same."""
    properties = params.requested_schema["properties"]
    answers = {"string": "Alice", "boolean": True}
    content = {name: answers[field["type"]] for name, field in properties.items()}
    return ElicitResult(action="accept", content=content)


async def sample(context: Any, params: Any) -> CreateMessageResult:
    """Be a model that knows one thing."""
    text = TextContent(type="text", text="Paris")
    return CreateMessageResult(role="assistant", content=text, model="m", stop_reason="endTurn")


async def list_roots(context: Any) -> ListRootsResult:
    """Have one root."""
    return ListRootsResult(roots=[Root(uri="file:///tmp")])


def text_of(result: Any) -> str:
    """The text of a tool's result."""
    assert not result.is_error, result
    return str(result.content[0].text)


async def check_requests(client: Client) -> None:
    """Discover, list, call with progress, read, prompts, completion, and questions."""
    assert client.protocol_version == REVISION, client.protocol_version
    assert client.server_info.name == "everything"
    tools = (await client.list_tools()).tools
    assert {"echo", "publish"} <= {tool.name for tool in tools}
    assert text_of(await client.call_tool("echo", {"text": "hello"})) == "hello"
    seen: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(done)

    assert text_of(await client.call_tool("progress", {"steps": 5}, progress_callback=progress))
    assert seen == [1, 2, 3, 4, 5], seen
    assert (await client.call_tool("boom")).is_error
    contents = (await client.read_resource("test://static-text")).contents
    assert contents[0].text == "This is the content of the static text resource."
    contents = (await client.read_resource("test://template/123/data")).contents
    assert "123" in contents[0].text
    assert (await client.list_resource_templates()).resource_templates
    prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
    assert "arg1='a', arg2='b'" in prompt.messages[0].content.text
    reference = PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    found = await client.complete(reference, {"name": "arg1", "value": "test"})
    assert isinstance(found.completion.values, list)
    prefix = "test_input_required_result_"
    assert text_of(await client.call_tool(f"{prefix}elicitation")) == "Hello, Alice!"
    assert "answered" in text_of(await client.call_tool(f"{prefix}multiple_inputs"))
    assert "answered" in text_of(await client.call_tool(f"{prefix}multi_round"))
    assert "Alice" in (await client.get_prompt(f"{prefix}prompt")).messages[0].content.text


async def check_subscriptions(client: Client) -> None:
    """Changes of a resource and of a list arrive, and the end is graceful."""
    async with client.listen(
        tools_list_changed=True, resource_subscriptions=["note://a"]
    ) as changes:
        await client.call_tool("publish", {"uri": "note://other"})
        await client.call_tool("publish", {"uri": "note://a"})
        event = await anext(changes)
        assert getattr(event, "uri", None) == "note://a", event
        await client.call_tool("touch_tools")
        event = await anext(changes)
        assert "Tools" in type(event).__name__, event
        await client.call_tool("hang_up")
        assert [event async for event in changes] == []


async def main(how: str, *where: str) -> None:
    """All of it over one connection."""
    target: Any = where[0]
    if how == "stdio":
        target = StdioServerParameters(command=where[0], args=list(where[1:]))
    with anyio.fail_after(60):
        async with Client(
            target,
            mode=REVISION if "--pinned" in where else "auto",
            elicitation_callback=elicit,
            sampling_callback=sample,
            list_roots_callback=list_roots,
        ) as client:
            await check_requests(client)
            await check_subscriptions(client)
    print(f"{how}: everything had the right outcome")


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
