"""Lists as channels, whose pages are fetched as they are read."""

from typing import Any

import pytest
import script_kit as say
import trio
import trio.testing
from script_kit import Play

from mcp_trio import errors, types
from mcp_trio.client import Pages
from mcp_trio.client import pages as pages_module

TOOL = {"inputSchema": {"type": "object"}}


def page(names: str, cursor: str | None = None) -> dict[str, Any]:
    wire: dict[str, Any] = {"tools": [{"name": name, **TOOL} for name in names]}
    return wire if cursor is None else {**wire, "nextCursor": cursor}


class Book:
    """Pages that are counted as they are fetched, with failures in between."""

    def __init__(self, *pages: dict[str, Any] | Exception) -> None:
        self.pages = list(pages)
        self.cursors: list[str | None] = []

    async def fetch(self, cursor: str | None) -> types.ListToolsResult:
        await trio.lowlevel.checkpoint()
        self.cursors.append(cursor)
        found = self.pages.pop(0)
        if isinstance(found, Exception):
            raise found
        tools = [types.Tool(name=tool["name"], input_schema={}) for tool in found["tools"]]
        return types.ListToolsResult(tools=tools, next_cursor=found.get("nextCursor"))

    def open(self) -> Pages[types.Tool]:
        return Pages(self.fetch, lambda page: page.tools)


async def test_a_page_is_fetched_when_it_is_read(play: Play) -> None:
    """Back-pressure: no request goes out before its first item is asked for; a cursor is opaque."""

    async def script(peer: Any) -> None:
        for answer in (page("ab", ""), page("", "2"), page("c")):
            request = await peer.expect("tools/list")
            cursors.append(request["params"].get("cursor"))
            await peer.send(request, say.answer(request, answer))

    cursors: list[Any] = []
    async with play(script) as client, client.tools() as tools:
        await trio.testing.wait_all_tasks_blocked()
        assert cursors == []
        assert (await tools.receive()).name == "a"
        assert (await tools.receive()).name == "b"
        assert cursors == [None]
        assert (await tools.receive()).name == "c"
        assert cursors == [None, "", "2"]
        for _ in range(2):
            with pytest.raises(trio.EndOfChannel):
                await tools.receive()


async def test_every_list(play: Play) -> None:
    """Each in a block, or without one; leaving early costs nothing."""

    async def script(peer: Any) -> None:
        for method, answer in (
            ("tools/list", page("ab", "more")),
            ("resources/list", {"resources": [{"name": "r", "uri": "x:r"}]}),
            (
                "resources/templates/list",
                {"resourceTemplates": [{"name": "t", "uriTemplate": "x"}]},
            ),
            ("prompts/list", {"prompts": [{"name": "p"}]}),
        ):
            request = await peer.expect(method)
            await peer.send(request, say.answer(request, answer))

    async with play(script) as client:
        async with client.tools() as tools:
            async for tool in tools:
                assert tool.name == "a"
                break
        assert [one.uri async for one in client.resources()] == ["x:r"]
        assert [one.uri_template async for one in client.resource_templates()] == ["x"]
        assert [one.name async for one in client.prompts()] == ["p"]


async def test_cancelled_between_two_items() -> None:
    """W43: nothing is lost, and nothing is asked twice that has come."""
    book = Book(page("ab", "2"), page("c"))
    tools = book.open()
    with trio.CancelScope() as scope:
        scope.cancel()
        await tools.receive()
    assert book.cursors == []
    assert (await tools.receive()).name == "a"
    with trio.CancelScope() as scope:
        scope.cancel()
        await tools.receive()
    assert [tool.name async for tool in tools] == ["b", "c"]
    assert book.cursors == [None, "2"]


async def test_error_in_the_middle() -> None:
    """The same page is asked for again, if the caller wishes; what came before is not lost."""
    book = Book(page("a", "2"), errors.ConnectionLost("gone"), page("b"))
    tools = book.open()
    assert (await tools.receive()).name == "a"
    with pytest.raises(errors.ConnectionLost):
        await tools.receive()
    assert (await tools.receive()).name == "b"
    assert book.cursors == [None, "2", "2"]
    book = Book(page("a", "2"), errors.ConnectionLost("gone"), page("b"))
    tools = book.open()
    with pytest.raises(errors.ConnectionLost):
        await tools.receive_all()
    assert [tool.name for tool in await tools.receive_all()] == ["a", "b"]
    assert await tools.receive_all() == []


@pytest.mark.parametrize("cursors", [("a", "b", "a"), ("1", "2", "3")])
async def test_pages_that_never_end(
    cursors: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a circle, or for ever: it is the server's fault, and the client does not hang."""
    monkeypatch.setattr(pages_module, "MAX_PAGES", 2)
    tools = Book(*[page("x", cursor) for cursor in cursors]).open()
    assert [(await tools.receive()).name for _ in range(2)] == ["x", "x"]
    with pytest.raises(errors.RemoteProtocolError, match="never end"):
        await tools.receive()


async def test_closed() -> None:
    """As every channel; twice is fine."""
    tools = Book(page("ab")).open()
    await tools.receive()
    await tools.aclose()
    await tools.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await tools.receive()


async def test_two_receivers() -> None:
    """W61: the second is told so at once, and the first goes on."""

    async def fetch(_: str | None) -> types.ListToolsResult:
        await go_on.wait()
        return types.ListToolsResult(tools=[types.Tool(name="a", input_schema={})])

    go_on = trio.Event()
    tools: Pages[types.Tool] = Pages(fetch, lambda page: page.tools)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tools.receive)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await tools.receive()
        go_on.set()


async def test_each_receive_is_a_checkpoint() -> None:
    """Items that are there already let others run all the same."""
    tools = Book(page("ab")).open()
    await tools.receive()
    with trio.testing.assert_checkpoints():
        await tools.receive()
    with trio.testing.assert_checkpoints(), pytest.raises(trio.EndOfChannel):
        await tools.receive()
