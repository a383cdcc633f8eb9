"""Pages of the four lists, while what they list comes and goes."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from server_kit import Recorder, error_of, request, result_of

from mcp_trio import errors
from mcp_trio.server import Server
from mcp_trio.subscriptions.hub import Hub


def nothing() -> str:
    return ""


def any_of(a: str) -> str:
    return a


Add = Callable[[Server, str], None]

LISTS: dict[str, tuple[str, Callable[[dict[str, Any]], str], Add, Add]] = {
    "tools/list": (
        "tools",
        lambda item: item["name"],
        lambda server, name: server.add_tool(nothing, name=name),
        lambda server, name: server.remove_tool(name),
    ),
    "prompts/list": (
        "prompts",
        lambda item: item["name"],
        lambda server, name: server.add_prompt(nothing, name=name),
        lambda server, name: server.remove_prompt(name),
    ),
    "resources/list": (
        "resources",
        lambda item: item["uri"].removeprefix("x://"),
        lambda server, name: server.add_resource(f"x://{name}", nothing),
        lambda server, name: server.remove_resource(f"x://{name}"),
    ),
    "resources/templates/list": (
        "resourceTemplates",
        lambda item: item["uriTemplate"].removeprefix("x://{a}/"),
        lambda server, name: server.add_resource_template(f"x://{{a}}/{name}", any_of),
        lambda server, name: server.remove_resource_template(f"x://{{a}}/{name}"),
    ),
}


async def everything(server: Server, method: str) -> list[str]:
    key, name, _, _ = LISTS[method]
    found: list[str] = []
    params: dict[str, Any] = {}
    while True:
        result = await result_of(server, method, **params)
        found += map(name, result[key])
        if "nextCursor" not in result:
            return found
        params = {"cursor": result["nextCursor"]}


@pytest.mark.parametrize("method", LISTS)
@settings(max_examples=40)
@given(
    size=st.integers(1, 4),
    count=st.integers(0, 12),
    changes=st.lists(
        st.lists(st.tuples(st.sampled_from(["add", "remove", "again"]), st.integers(0, 30))),
        max_size=12,
    ),
)
def test_what_stays_is_listed_once(
    method: str, size: int, count: int, changes: list[list[tuple[str, int]]]
) -> None:
    """Whatever comes and goes between two pages, nothing else is missed or listed twice.

    A cursor survives the removal of the item at which it stands, and an item that is removed
    and registered again is a new one, at the end.
    """

    async def list_while_changing() -> None:
        key, name_of, add, remove = LISTS[method]
        server = Server("s", version="1", page_size=size, hub=Hub())
        names = [f"n{i}" for i in range(count)]
        for name in names:
            add(server, name)
        present, untouched = list(names), set(names)
        seen: list[str] = []
        late: list[str] = []
        again: set[str] = set()
        params: dict[str, Any] = {}
        pending = list(changes)
        while True:
            result = await result_of(server, method, **params)
            page = [name_of(item) for item in result[key]]
            seen += page
            if "nextCursor" not in result:
                break
            assert len(page) == size
            params = {"cursor": result["nextCursor"]}
            for what, which in pending.pop(0) if pending else []:
                if what == "add":
                    late.append(f"late{len(late)}")
                    add(server, late[-1])
                    present.append(late[-1])
                elif present:
                    name = present.pop(which % len(present))
                    untouched.discard(name)
                    remove(server, name)
                    if what == "again":
                        again.add(name)
                        add(server, name)
                        present.append(name)
        stayed = [name for name in names if name in untouched]
        assert [name for name in seen if name in untouched] == stayed
        once = [name for name in seen if name not in again]
        assert len(once) == len(set(once))
        assert await everything(server, method) == present

    trio.run(list_while_changing)


@pytest.mark.parametrize("method", LISTS)
async def test_a_cursor_of_another_list_or_of_nobody_is_refused(method: str) -> None:
    """-32602, also for one that was altered; one that was given stays good."""
    server = Server("s", version="1", page_size=1)
    cursors = {}
    for listing, (_, _, add, _) in LISTS.items():
        for letter in "abc":
            add(server, letter)
        cursors[listing] = (await result_of(server, listing))["nextCursor"]
    assert len(set(cursors.values())) == 4
    own = cursors.pop(method)
    for cursor in [*cursors.values(), own[:-1], own + "A", own.lower(), "", "1", " "]:
        if cursor != own:
            error = await error_of(server, method, cursor=cursor)
            assert error["code"] == errors.INVALID_PARAMS
    key, name, _, remove = LISTS[method]
    for gone in "ac":
        remove(server, gone)
    result = await result_of(server, method, cursor=own)
    assert list(map(name, result[key])) == ["b"]
    assert "nextCursor" not in result
    remove(server, "b")
    result = await result_of(server, method, cursor=own)
    assert result[key] == []


async def test_every_page_says_where_to_go_on_only_if_there_is_more() -> None:
    """An exact multiple of the page size leaves no empty page; an empty list is one page."""
    for count, pages in ((0, 1), (1, 1), (2, 1), (3, 2), (4, 2)):
        server = Server("s", version="1", page_size=2)
        server.add_tool(nothing)
        server.remove_tool("nothing")
        for i in range(count):
            server.add_tool(nothing, name=str(i))
        params: dict[str, Any] = {}
        for page in range(1, pages + 1):
            result = await result_of(server, "tools/list", **params)
            assert ("nextCursor" in result) == (page < pages)
            params = {"cursor": result.get("nextCursor")}


async def test_subscribers_of_a_uri_hear_when_it_comes_and_goes(nursery: trio.Nursery) -> None:
    """P-13: who waits for a resource that is not there yet is told when it is, and when it goes.

    In a batch each is announced once, and after the list in which it stands.
    """
    server = Server("s", version="1", hub=Hub())
    exchange = Recorder()
    wanted = {"resourcesListChanged": True, "resourceSubscriptions": ["x://a"]}
    nursery.start_soon(
        server.handle, request("subscriptions/listen", {"notifications": wanted}), exchange
    )
    await exchange.wait_for(1)

    def heard() -> list[tuple[str, Any]]:
        return [
            (frame["method"].removeprefix("notifications/resources/"), frame["params"].get("uri"))
            for frame in exchange.sent[1:]
        ]

    expected = [("list_changed", None), ("updated", "x://a")]
    server.add_resource("x://a", nothing)
    server.add_resource("x://b", nothing)
    await exchange.wait_for(3)
    await trio.testing.wait_all_tasks_blocked()
    assert heard() == expected
    server.remove_resource("x://a")
    await exchange.wait_for(5)
    assert heard() == expected * 2
    with server.batch():
        for _ in range(3):
            server.add_resource("x://a", nothing)
            server.remove_resource("x://a")
        server.add_resource("x://a", nothing)
        await trio.testing.wait_all_tasks_blocked()
        assert len(heard()) == 4
    await exchange.wait_for(7)
    await trio.testing.wait_all_tasks_blocked()
    assert heard() == expected * 3
    nursery.cancel_scope.cancel()


async def test_resources_come_and_go_in_threads() -> None:
    """The same from handlers that are not async."""
    hub = Hub()
    server = Server("s", version="1", hub=hub)

    @server.tool
    def change() -> None:
        server.add_resource("x://a", nothing)
        with server.batch():
            server.remove_resource("x://a")

    exchange = Recorder()
    async with trio.open_nursery() as nursery:
        filter_ = {"notifications": {"resourceSubscriptions": ["x://a"]}}
        nursery.start_soon(server.handle, request("subscriptions/listen", filter_), exchange)
        await exchange.wait_for(1)
        await functools.partial(result_of, server, "tools/call", name="change")()
        sent = await exchange.wait_for(2)
        assert sent[1]["params"]["uri"] == "x://a"
        nursery.cancel_scope.cancel()
