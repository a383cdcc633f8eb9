"""Registries, their pages, and what they announce."""

import functools
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from server_kit import call, error_of, result_of

from mcp_trio import errors
from mcp_trio.server import Server
from mcp_trio.server.registry import Registry
from mcp_trio.subscriptions.events import Event
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.statistics import PublishReport


class Spy(Hub):
    """A hub that remembers what was published."""

    def __init__(self) -> None:
        super().__init__()
        self.published: list[str] = []

    def publish(self, event: Event, *, include_sub_resources: bool = False) -> PublishReport:
        self.published.append(type(event).__name__)
        return super().publish(event, include_sub_resources=include_sub_resources)

    def publish_from_thread(
        self, event: Event, *, include_sub_resources: bool = False
    ) -> PublishReport:
        self.published.append(type(event).__name__)
        return super().publish_from_thread(event, include_sub_resources=include_sub_resources)


def nothing() -> str:
    return ""


def test_names_are_unique_and_removal_is_strict() -> None:
    changes: list[None] = []
    registry: Registry[int] = Registry("tool", lambda: changes.append(None))
    registry.add("a", 1)
    registry.add("b", 2)
    with pytest.raises(ValueError, match="already a tool 'a'"):
        registry.add("a", 3)
    assert registry.get("a") == 1
    assert registry.get("c") is None
    assert list(registry) == [1, 2]
    assert "a" in registry
    assert registry.remove("a") == 1
    with pytest.raises(LookupError, match="no tool 'a'"):
        registry.remove("a")
    assert len(registry) == 1
    assert len(changes) == 3


@given(st.data())
def test_cursors_survive_changes(data: st.DataObject) -> None:
    """What was there all along is listed exactly once, in order, whatever comes and goes."""
    registry: Registry[str] = Registry("tool", lambda: None)
    names = [f"n{i}" for i in range(data.draw(st.integers(0, 12)))]
    for name in names:
        registry.add(name, name)
    stable = set(names)
    seen: list[str] = []
    cursor: str | None = None
    fresh = 0
    while True:
        page = registry.page(cursor, 3)
        seen += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
        assert len(page.items) == 3
        for _ in range(data.draw(st.integers(0, 3))):
            if len(registry) and data.draw(st.booleans()):
                gone = data.draw(st.sampled_from([str(item) for item in registry]))
                registry.remove(gone)
                stable.discard(gone)
            elif fresh < 6:
                fresh += 1
                registry.add(f"f{fresh}", f"f{fresh}")
    assert len(seen) == len(set(seen))
    assert [name for name in seen if name in stable] == [name for name in names if name in stable]


async def test_pages_over_the_wire() -> None:
    server = Server("s", version="1", page_size=2)
    for i in range(5):
        server.add_resource(f"x://{i}", nothing)
    listed: list[str] = []
    params: dict[str, Any] = {}
    for _ in range(3):
        result = await result_of(server, "resources/list", **params)
        assert result["cacheScope"] == "private"
        listed += [resource["uri"] for resource in result["resources"]]
        params = {"cursor": result.get("nextCursor")}
    assert listed == [f"x://{i}" for i in range(5)]
    assert params == {"cursor": None}
    first = await result_of(server, "resources/list")
    server.remove_resource("x://1")  # the one at which the cursor stands
    rest = await result_of(server, "resources/list", cursor=first["nextCursor"])
    assert [resource["uri"] for resource in rest["resources"]] == ["x://2", "x://3"]


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "!!", "dG9vbA==", "dG9vbDox", "cmVzb3VyY2U6OTk=", "cmVzb3VyY2U6MA==", "é",
     "cmVzb3VyY2U6MQ", "cmVzb3VyY2U6MDE=", "cmVzb3VyY2U6wrI=", "/w==", None, 1, ["a"]],
)  # fmt: skip
async def test_a_cursor_that_is_none_is_refused(cursor: Any) -> None:
    server = Server("s", version="1", page_size=1)
    server.add_resource("x://1", nothing)
    server.add_resource("x://2", nothing)
    error = await error_of(server, "resources/list", cursor=cursor)
    assert error["code"] == errors.INVALID_PARAMS


async def test_pages_are_encoded_once_until_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("s", version="1", page_size=1)
    for i in range(100):
        server.add_tool(nothing, name=f"t{i}")
    listing = server._tools.listing
    made: list[Any] = []
    encode = listing._encode

    def counting(cursor: str | None, method: str) -> bytes:
        made.append(cursor)
        return encode(cursor, method)

    monkeypatch.setattr(listing, "_encode", counting)
    cursor: dict[str, str] = {}
    for _ in range(100):
        result = await result_of(server, "tools/list", **cursor)
        cursor = {"cursor": result["nextCursor"]} if "nextCursor" in result else {}
    assert len(made) == 100
    assert len(listing._pages) <= 64
    await result_of(server, "tools/list")
    assert len(made) == 101  # there had to be made room
    for _ in range(3):
        await result_of(server, "tools/list")
    assert len(made) == 101
    server.remove_tool("t0")
    result = await result_of(server, "tools/list")
    assert result["tools"][0]["name"] == "t1"


def test_each_change_is_announced_once() -> None:
    """P-13: registries publish their own changes."""
    hub = Spy()
    server = Server("s", version="1", hub=hub)
    server.add_tool(nothing)
    server.remove_tool("nothing")
    server.add_prompt(nothing)
    server.remove_prompt("nothing")
    server.add_resource("x://a", nothing)
    server.remove_resource("x://a")
    server.add_resource_template("x://{+a}", lambda a: a)
    server.remove_resource_template("x://{+a}")
    resource = ["ResourcesListChanged", "ResourceUpdated"] * 2
    assert hub.published == (
        ["ToolsListChanged"] * 2
        + ["PromptsListChanged"] * 2
        + resource
        + ["ResourcesListChanged"] * 2
    )
    for remove in (
        server.remove_tool,
        server.remove_prompt,
        server.remove_resource,
        server.remove_resource_template,
    ):
        with pytest.raises(LookupError):
            remove("x")
    with pytest.raises(TypeError):
        server.add_tool(5)  # type: ignore[arg-type]
    assert len(hub.published) == 10


def test_a_batch_announces_once_at_its_end() -> None:
    """P-13: a batch scope emits one change of each kind, nested or left by an exception."""
    hub = Spy()
    server = Server("s", version="1", hub=hub)
    with server.batch():
        server.add_resource("x://a", nothing)
        with server.batch():
            server.add_tool(nothing, name="a")
            server.add_tool(nothing, name="b")
        assert hub.published == []
        server.add_resource("x://b", nothing)
        server.remove_resource("x://a")
    assert hub.published == ["ToolsListChanged", "ResourcesListChanged", *["ResourceUpdated"] * 2]
    with pytest.raises(ZeroDivisionError), server.batch():
        server.remove_tool("a")
        raise ZeroDivisionError
    assert hub.published[4:] == ["ToolsListChanged"]
    with server.batch():
        pass
    assert len(hub.published) == 5
    server.remove_tool("b")
    assert len(hub.published) == 6


async def test_lists_keep_the_order_of_registration() -> None:
    server = Server("s", version="1")
    for name in ("z", "a", "m"):
        server.add_tool(nothing, name=name)
        server.add_prompt(nothing, name=name)
    for method, key in (("tools/list", "tools"), ("prompts/list", "prompts")):
        result = await result_of(server, method)
        assert [item["name"] for item in result[key]] == ["z", "a", "m"]


async def test_changes_without_a_hub_and_publishing_without_one() -> None:
    server = Server("s", version="1")
    with server.batch():
        server.add_tool(nothing)
    with pytest.raises(RuntimeError, match="no hub"):
        server.publish(object())  # type: ignore[arg-type]


async def test_registering_from_threads() -> None:
    """Handlers that run in threads change registries while others list and batch."""
    server = Server("s", version="1", hub=Spy(), page_size=7)

    @server.tool
    def add(start: int) -> None:
        for i in range(start, start + 50):
            with server.batch():
                server.add_resource(f"x://{i}", nothing)
            server.add_resource(f"y://{i}", nothing)
            server.remove_resource(f"y://{i}")

    async with trio.open_nursery() as nursery:
        for start in range(0, 400, 50):
            nursery.start_soon(functools.partial(call, server, "add", start=start))
        for _ in range(20):
            await result_of(server, "resources/list")
            await trio.sleep(0.001)
    listed: list[str] = []
    cursor: dict[str, str] | None = {}
    while cursor is not None:
        result = await result_of(server, "resources/list", **cursor)
        listed += [resource["uri"] for resource in result["resources"]]
        cursor = {"cursor": result["nextCursor"]} if "nextCursor" in result else None
    assert sorted(listed) == sorted(f"x://{i}" for i in range(400))
