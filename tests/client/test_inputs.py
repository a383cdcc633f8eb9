"""A client that answers what servers ask, against a server of this package."""

from typing import Any

import pytest
import trio
from asking_server import open_asking
from patience import at_most

from mcp_trio import errors, types
from mcp_trio.client import ClientOptions, accept_form
from mcp_trio.client.client import Client

pytestmark = pytest.mark.parametrize("transport", ["memory", "stdio", "http"])


def text_of(result: types.CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def fill_in(params: types.ElicitRequestFormParams) -> types.ElicitResult:
    return accept_form(params, {"name": "Ada"})


async def answer_value(params: types.ElicitRequestFormParams) -> types.ElicitResult:
    [name] = params.requested_schema.properties
    return accept_form(params, {name: params.message})


async def sample(params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    content = params.messages[0].content
    assert isinstance(content, types.TextContent)
    said = types.TextContent(f"re {content.text}, {params.max_tokens}")
    return types.CreateMessageResult(role="assistant", content=said, model="m")


async def roots(_: types.ListRootsRequestParams) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root("file:///home"), types.Root("file:///srv")])


async def test_form(transport: str) -> None:
    """A form is filled in, and what it does not say is the form's default."""
    with trio.fail_after(at_most(10)):
        async with open_asking(transport, on_elicitation=fill_in) as client:
            assert text_of(await client.call_tool("greet")) == "Ada, 18"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_question_that_is_not_answered(transport: str, action: Any) -> None:
    """A user may say no, or nothing; the server decides what becomes of it."""

    async def refuse(_: types.ElicitRequestFormParams) -> types.ElicitResult:
        return types.ElicitResult(action=action)

    with trio.fail_after(at_most(10)):
        async with open_asking(transport, on_elicitation=refuse) as client:
            assert text_of(await client.call_tool("greet")) == action


async def test_page(transport: str) -> None:
    """A page to visit is asked of another handler than a form."""

    async def visit(params: types.ElicitRequestURLParams) -> types.ElicitResult:
        seen.append((params.url, params.message))
        return types.ElicitResult(action="accept")

    seen: list[tuple[str, str]] = []
    with trio.fail_after(at_most(10)):
        async with open_asking(transport, on_elicitation_url=visit) as client:
            assert text_of(await client.call_tool("visit")) == "accept"
            assert seen == [("https://example.com/pay", "Pay, please")]
            with pytest.raises(errors.MissingRequiredClientCapability) as caught:
                await client.call_tool("greet")
            assert caught.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_model_and_roots(transport: str) -> None:
    """The model answers, and the roots are told."""
    with trio.fail_after(at_most(10)):
        async with open_asking(transport, on_sampling=sample, on_roots=roots) as client:
            assert text_of(await client.call_tool("think", {"about": "it"})) == "m: re it, 10"
            found = await client.call_tool("look")
            assert found.structured_content == ["file:///home", "file:///srv"]


async def test_three_questions_in_one_round(transport: str) -> None:
    """All handlers of a round run at the same time: each waits for all of them."""
    running = 0
    together = trio.Event()

    async def all_run() -> None:
        nonlocal running
        running += 1
        if running == 3:
            together.set()
        await together.wait()

    async def on_elicitation(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        await all_run()
        return await answer_value(params)

    async def on_sampling(params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        await all_run()
        return await sample(params)

    async def on_roots(params: types.ListRootsRequestParams) -> types.ListRootsResult:
        await all_run()
        return await roots(params)

    handlers = ClientOptions(
        on_elicitation=on_elicitation, on_sampling=on_sampling, on_roots=on_roots
    )
    with trio.fail_after(at_most(10)):
        async with open_asking(transport, **handlers) as client:
            assert text_of(await client.call_tool("all_at_once")) == "accept m 2"


async def test_streams_over_all_rounds(transport: str) -> None:
    """C-27, W83: progress and log messages arrive in each round, under its own token."""
    send, receive = trio.open_memory_channel[Any](100)
    with trio.fail_after(at_most(10)):
        async with open_asking(transport, on_elicitation=answer_value) as client:
            result = await client.call_tool(
                "interview", {"questions": 3}, progress=send.send, log=("debug", send.send)
            )
    assert text_of(result) == "Question 0? Question 1? Question 2?"
    send.close()
    heard = [message async for message in receive]
    reports = [said for said in heard if isinstance(said, types.ProgressNotificationParams)]
    # The handler begins anew in each round.
    assert [report.progress for report in reports] == [1, 1, 2, 1, 2, 3, 1, 2, 3]
    assert len({report.progress_token for report in reports}) == 4
    logs = [said for said in heard if isinstance(said, types.LoggingMessageNotificationParams)]
    assert [said.data for said in logs][-3:] == ["question 0", "question 1", "question 2"]


async def test_prompt_and_resource(transport: str) -> None:
    """They may ask as well, and so may what is asked without types."""
    with trio.fail_after(at_most(10)):
        async with open_asking(transport, on_elicitation=answer_question) as client:
            content = (await client.get_prompt("letter")).messages[0].content
            assert isinstance(content, types.TextContent)
            assert content.text == "Dear To whom?"
            [text] = (await client.read_resource("note://diary")).contents
            assert isinstance(text, types.TextResourceContents)
            assert text.text == "accept"
            result = await client.request(
                "tools/call", {"name": "interview", "arguments": {"questions": 1}}
            )
            assert result["content"][0]["text"] == "Question 0?"


async def answer_question(params: types.ElicitRequestFormParams) -> types.ElicitResult:
    names = params.requested_schema.properties
    return accept_form(params, dict.fromkeys(names, params.message))


async def test_rounds_are_bounded(transport: str) -> None:
    """As many as were allowed are answered, and not one more."""
    with trio.fail_after(at_most(10)):
        async with open_asking(transport, on_elicitation=answer_value, max_rounds=2) as client:
            await client.call_tool("interview", {"questions": 2})
            with pytest.raises(errors.RemoteProtocolError, match="again, after 2 rounds"):
                await client.call_tool("interview", {"questions": 3})


async def test_failing_handler(transport: str) -> None:
    """W62: the call raises what the handler has raised; the next call is not the worse for it."""

    async def on_elicitation(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        if fail:
            raise KeyError("mine")
        return await fill_in(params)

    fail = True
    with trio.fail_after(at_most(10)):
        async with open_asking(transport, on_elicitation=on_elicitation) as client:
            with pytest.raises(KeyError, match="mine") as caught:
                await client.call_tool("greet")
            assert caught.value.__context__ is None
            fail = False
            assert text_of(await client.call_tool("greet")) == "Ada, 18"


async def test_deadline_while_somebody_thinks(transport: str) -> None:
    """W43: cancelling the call cancels the handler; nothing is sent any more."""
    asked = trio.Event()
    cancelled = trio.Event()

    async def think(_: types.ElicitRequestFormParams) -> types.ElicitResult:
        asked.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async def give_up(scope: trio.CancelScope) -> None:
        await asked.wait()
        scope.cancel()

    with trio.fail_after(at_most(10)):
        async with open_asking(transport, on_elicitation=think) as client:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(give_up, scope)
                    await client.call_tool("greet")
            assert scope.cancelled_caught
            assert cancelled.is_set()
            assert await works(client)


async def works(client: Client) -> bool:
    return len((await client.list_tools()).tools) == 6
