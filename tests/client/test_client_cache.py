"""Clients with a cache, over each transport."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import pytest
import script_kit as say
import trio
import trio.testing
from script_kit import Play, play_http, play_lines, play_memory, play_stdio
from wire_kit import LISTEN, TOOLS_CHANGED, UPDATED

from mcp_trio import (
    Client,
    Hub,
    ResourceUpdated,
    Server,
    SubscriptionFilter,
    ToolsListChanged,
    errors,
    open_http_client,
    serve_http,
    types,
)
from mcp_trio.client import ResponseCache
from mcp_trio.protocol.credentials import AuthRequest
from mcp_trio.server import Header
from mcp_trio.testing import open_memory_client

WANTED = SubscriptionFilter(tools_list_changed=True, resource_subscriptions=("note://a",))


def tools(request: dict[str, Any], *names: str, **more: Any) -> dict[str, Any]:
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return say.result(request, tools=listed, ttlMs=300_000, **more)


async def answer(peer: Any, *names: str, **more: Any) -> dict[str, Any]:
    """Answer the next request, which has to be for the tools."""
    request: dict[str, Any] = await peer.expect("tools/list")
    await peer.send(request, tools(request, *names, **more))
    return request


async def names(client: Client, **options: Any) -> list[str]:
    return [tool.name for tool in await client.all_tools(**options)]


@pytest.mark.parametrize("play", [play_memory, play_lines, play_stdio, play_http])
async def test_change_is_heard(play: Play) -> None:
    """W80, C-28: a list that has changed is not served from the cache; the event finds it gone."""
    cache = ResponseCache()

    async def script(peer: Any) -> None:
        await answer(peer, "old")
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        go = await peer.expect("prompts/list")
        await peer.send(go, say.result(go, prompts=[]))
        await peer.send(listen, say.tagged(listen, TOOLS_CHANGED))
        await answer(peer, "new")
        await answer(peer, "newest")

    async with play(script, cache=cache) as client:
        assert await names(client) == ["old"]
        forgotten: list[int] = []

        async def before(_: object) -> None:
            forgotten.append(cache.statistics().forgotten)
            await trio.lowlevel.checkpoint()

        async with client.listen(WANTED, before_event=before) as changes:
            assert await names(client) == ["old"]
            await client.list_prompts()
            await changes.receive()
            assert forgotten == [1]
            assert await names(client) == ["new"]
            assert await names(client) == ["new"]
            assert await names(client, fresh=True) == ["newest"]
            assert await names(client) == ["newest"]


async def test_unsolicited_change() -> None:
    """W80: a server of an older revision does not wait for a subscription."""

    async def script(peer: Any) -> None:
        first = await answer(peer, "old")
        await peer.send(first, {"jsonrpc": "2.0", "method": TOOLS_CHANGED})
        go = await peer.expect("prompts/list")
        await peer.send(go, say.result(go, prompts=[]))
        await answer(peer, "new")

    async with play_lines(script, cache=ResponseCache()) as client:
        assert await names(client) == ["old"]
        await client.list_prompts()
        assert await names(client) == ["new"]


async def test_answer_that_is_overtaken(play: Play) -> None:
    """C-28: what was on its way when the change came is given to who asked, and not kept."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        asked = await peer.expect("tools/list")
        await peer.send(listen, say.tagged(listen, TOOLS_CHANGED))
        go = await peer.expect("prompts/list")
        await peer.send(asked, tools(asked, "old"))
        await peer.send(go, say.result(go, prompts=[]))
        await answer(peer, "new")

    async with (
        play(script, cache=ResponseCache()) as client,
        client.listen(WANTED) as changes,
        trio.open_nursery() as nursery,
    ):
        got: list[str] = []

        async def ask() -> None:
            got.extend(await names(client))

        nursery.start_soon(ask)
        await changes.receive()
        await client.list_prompts()
        while not got:
            await trio.sleep(0.001)
        assert got == ["old"]
        assert await names(client) == ["new"]


@pytest.mark.parametrize("how", ["lost", "closed", "graceful"])
async def test_end_of_a_subscription(how: str) -> None:
    """After a loss, or if nobody has read to the end, anything may have changed."""
    cache = ResponseCache()

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        await answer(peer, "old")
        read = await peer.expect("resources/read")
        await peer.send(read, say.result(read, contents=[], ttlMs=300_000))
        if how == "lost":
            await peer.crash(listen)
        elif how == "graceful":
            await peer.send(listen, say.done(listen))
        await trio.sleep_forever()

    async with play_http(script, cache=cache) as client:
        async with client.listen(WANTED) as changes:
            await names(client)
            await client.read_resource("note://a/b")
            assert cache.statistics().entries == 2
            if how == "lost":
                with pytest.raises(errors.SubscriptionLost):
                    await changes.receive()
                assert cache.statistics().entries == 0
            elif how == "graceful":
                with pytest.raises(trio.EndOfChannel):
                    await changes.receive()
        assert cache.statistics().entries == (2 if how == "graceful" else 0)


async def test_only_what_the_subscription_covers() -> None:
    """What was declined is not known to be old after a loss."""
    cache = ResponseCache()

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen, {"resourceSubscriptions": ["note://a"]}))
        await answer(peer, "old")
        await peer.crash(listen)
        await trio.sleep_forever()

    async with play_http(script, cache=cache) as client, client.listen(WANTED) as changes:
        await names(client)
        with pytest.raises(errors.SubscriptionLost):
            await changes.receive()
        assert await names(client) == ["old"]


async def test_rounds_of_input_are_not_kept(play: Play) -> None:
    """A result that took input is for who gave the input; nor is the question kept."""

    async def script(peer: Any) -> None:
        for _ in range(2):
            asked = await peer.expect("resources/read")
            assert "requestState" not in asked["params"]
            question = {"resultType": "input_required", "requestState": "s", "ttlMs": 300_000}
            await peer.send(asked, say.answer(asked, question))
            again = await peer.expect("resources/read")
            assert again["params"]["requestState"] == "s"
            contents = [{"uri": "note://a", "text": "secret"}]
            await peer.send(again, say.result(again, contents=contents, ttlMs=300_000))

    cache = ResponseCache()
    async with play(script, cache=cache) as client:
        for _ in range(2):
            await client.read_resource("note://a")
    assert cache.statistics().stored == 0


async def test_errors_are_not_kept(play: Play) -> None:
    async def script(peer: Any) -> None:
        for _ in range(2):
            asked = await peer.expect("resources/read")
            await peer.send(asked, say.error(asked, -32602))

    async with play(script, cache=ResponseCache()) as client:
        for _ in range(2):
            with pytest.raises(errors.InvalidParams):
                await client.read_resource("note://a")


async def test_cursor_that_is_not_valid_any_more(play: Play) -> None:
    """All pages that are kept are discarded, and the list is fetched from the beginning."""

    async def script(peer: Any) -> None:
        await answer(peer, "a", nextCursor="2")
        second = await peer.expect("tools/list")
        assert second["params"]["cursor"] == "2"
        listed = [{"name": "b", "inputSchema": {"type": "object"}}]
        await peer.send(second, say.result(second, tools=listed, ttlMs=0))
        refused = await peer.expect("tools/list")
        assert refused["params"]["cursor"] == "2"
        await peer.send(refused, say.error(refused, -32602, "no such cursor"))
        first = await answer(peer, "c", nextCursor="3")
        assert "cursor" not in first["params"]
        third = await answer(peer, "d")
        assert third["params"]["cursor"] == "3"
        failing = await peer.expect("tools/list")
        await peer.send(failing, say.error(failing, -32602))

    async with play(script, cache=ResponseCache()) as client:
        assert await names(client) == ["a", "b"]
        assert await names(client) == ["c", "d"]
        assert await names(client) == ["c", "d"]
        with pytest.raises(errors.InvalidParams):
            await names(client, fresh=True)


async def test_without_a_cache_a_refusal_is_final(play: Play) -> None:
    async def script(peer: Any) -> None:
        asked = await peer.expect("tools/list")
        await peer.send(asked, say.error(asked, -32602))

    async with play(script) as client:
        with pytest.raises(errors.InvalidParams):
            await names(client)


async def test_a_hit_is_a_checkpoint(play: Play) -> None:
    """Also what takes no time lets others run, and can be cancelled."""

    async def script(peer: Any) -> None:
        await answer(peer, "a")

    async with play(script, cache=ResponseCache()) as client:
        await client.list_tools()
        with trio.testing.assert_checkpoints():
            await client.list_tools()
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.list_tools()
        assert scope.cancelled_caught


def thermometer(hub: Hub, **options: Any) -> Server:
    server = Server("thermometer", version="1.0", hub=hub, ttl_ms=300_000, **options)

    @server.tool
    async def measure(room: Annotated[str, Header("Room")]) -> str:
        """Measure."""
        return room

    @server.resource("room://{name}")
    async def room(name: str) -> str:
        """A room."""
        return name

    return server


async def test_everything_that_may_be_kept() -> None:
    """Six requests, of which each is served once; and the change of a resource."""
    hub, cache = Hub(), ResponseCache()
    async with open_memory_client(thermometer(hub), cache=cache) as client:
        asked: list[Callable[[], Awaitable[object]]] = [
            client.discover,
            client.list_tools,
            client.list_prompts,
            client.list_resources,
            client.list_resource_templates,
            partial(client.read_resource, "room://kitchen"),
            partial(client.request, "resources/read", {"uri": "room://bath"}),
        ]
        for ask in asked:
            assert await ask() == await ask()
        assert (cache.statistics().misses, cache.statistics().hits) == (7, 7)
        await client.discover(fresh=True)
        await client.list_tools(fresh=True)
        await client.list_prompts(fresh=True)
        await client.list_resources(fresh=True)
        await client.list_resource_templates(fresh=True)
        await client.read_resource("room://kitchen", fresh=True)
        await client.request("resources/read", {"uri": "room://bath"}, fresh=True)
        assert (cache.statistics().misses, cache.statistics().hits) == (7, 7)
        assert cache.statistics().stored == 14
        wanted = SubscriptionFilter(resource_subscriptions=("room://kitchen",))
        async with client.listen(wanted) as changes:
            hub.publish(ResourceUpdated("room://kitchen"))
            await changes.receive()
            before = cache.statistics()
            await client.read_resource("room://bath")
            await client.read_resource("room://kitchen")
            after = cache.statistics()
            assert (after.hits - before.hits, after.misses - before.misses) == (1, 1)


@pytest.mark.parametrize("scope", ["public", "private"])
@pytest.mark.parametrize("same", [True, False])
async def test_sharing_over_http(scope: Any, same: bool) -> None:
    """Clients of one URL share what is public, and what is private if they say they may.

    A client that has got the tools from the cache mirrors their parameters in headers, too.
    """
    hub, cache = Hub(), ResponseCache()
    contexts = ("alice", "alice" if same else "bob")
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, thermometer(hub, cache_scope=scope), port=0)
        [origin] = await nursery.start(serve)
        open_client = partial(open_http_client, f"{origin}/mcp", cache=cache)
        async with (
            open_client(cache_context=contexts[0]) as first,
            open_client(cache_context=contexts[1]) as second,
        ):
            await first.list_tools()
            await second.list_tools()
            shared = scope == "public" or same
            assert cache.statistics().hits == (1 if shared else 0)
            called = await second.call_tool("measure", {"room": "bath"})
            assert list(called.content) == [types.TextContent("bath")]
            assert cache.statistics().stored == (1 if shared else 2)
            async with first.listen(SubscriptionFilter(tools_list_changed=True)) as changes:
                hub.publish(ToolsListChanged())
                await changes.receive()
            assert cache.statistics().entries == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("context", [None, "alice"])
async def test_credentials_on_demand(context: str | None) -> None:
    """A hook can give another person's with each request; `cache_context` says that it does not."""

    async def auth(_: AuthRequest) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        return {"Authorization": "Bearer x"}

    cache = ResponseCache()
    async with trio.open_nursery() as nursery:
        [origin] = await nursery.start(partial(serve_http, thermometer(Hub()), port=0))
        async with open_http_client(
            f"{origin}/mcp", auth=auth, cache=cache, cache_context=context
        ) as client:
            await client.list_tools()
            await client.list_tools()
        nursery.cancel_scope.cancel()
    assert cache.statistics().hits == (0 if context is None else 1)


async def test_clients_share_nothing_unasked() -> None:
    """Without `cache_context` what is private is the client's own; other servers are others."""
    cache = ResponseCache()
    server = thermometer(Hub())
    async with (
        open_memory_client(server, cache=cache) as first,
        open_memory_client(server, cache=cache) as second,
        open_memory_client(thermometer(Hub()), cache=cache, cache_context="x") as third,
    ):
        for client in (first, second, third):
            await client.list_tools()
        assert cache.statistics().hits == 0
        assert cache.statistics().entries == 3


async def test_what_the_client_can_do_is_in_the_key() -> None:
    """A server may list other tools to a client that can do more."""

    async def roots(_: types.ListRootsRequestParams) -> types.ListRootsResult:
        raise AssertionError("nobody asks")

    cache = ResponseCache()
    server = thermometer(Hub(), cache_scope="public")
    async with (
        open_memory_client(server, cache=cache) as first,
        open_memory_client(server, cache=cache, on_roots=roots) as second,
        open_memory_client(server, cache=cache) as third,
    ):
        await first.list_tools()
        await second.list_tools()
        assert cache.statistics().hits == 0
        await third.list_tools()
        assert cache.statistics().hits == 1


async def test_update_of_an_unknown_part(play: Play) -> None:
    """C-21: the URI is none that was asked for, nor below one; the server knows why it says so."""

    async def script(peer: Any) -> None:
        listen = await peer.expect(LISTEN)
        await peer.send(listen, say.ack(listen))
        for text in ("old", "new"):
            read = await peer.expect("resources/read")
            contents = [{"uri": "note://a", "text": text}]
            await peer.send(read, say.result(read, contents=contents, ttlMs=300_000))
            if text == "old":
                await peer.send(listen, say.tagged(listen, UPDATED, {"uri": "row://1"}))

    async with play(script, cache=ResponseCache()) as client, client.listen(WANTED) as changes:
        await client.read_resource("note://a")
        assert await changes.receive() == ResourceUpdated("row://1")
        [content] = (await client.read_resource("note://a")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "new"
