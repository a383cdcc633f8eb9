"""The lists of a server as a value: what becomes of it, whatever the server does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import pytest
import trio
import trio.testing

from mcp_trio import (
    Client,
    Hub,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    Server,
    SubscriptionFilter,
    ToolsListChanged,
    errors,
    open_memory_client,
    types,
)
from mcp_trio._backoff import Backoff
from mcp_trio.client.views import FollowedLists, ListKind, Lists, follow_lists

ALL: frozenset[ListKind] = frozenset({"tools", "prompts", "resources"})
EVERYTHING = SubscriptionFilter(True, True, True)
BACKOFF = Backoff(initial=1.0, maximum=4.0)


def tool(name: str) -> types.Tool:
    return types.Tool(name=name, input_schema={"type": "object"})


class Changes(trio.abc.ReceiveChannel[Any]):
    """What a watcher gives."""

    def __init__(self, events: trio.MemoryReceiveChannel[Any], acknowledged: Any) -> None:
        self.events = events
        self.acknowledged = acknowledged

    async def receive(self) -> Any:
        event = await self.events.receive()
        if isinstance(event, Exception):
            raise event
        return event

    async def aclose(self) -> None:
        await self.events.aclose()


@attrs.define(eq=False)
class Fake:
    """A client whose server has what a test gives it.

    Attributes:
        has: what each method returns, or raises.
        granted: what the server reports; an exception where it reports nothing.
        asked: the calls so far.
        gate: what a list waits for before it is returned.
    """

    has: dict[str, Any] = attrs.field(factory=dict)
    granted: Any = EVERYTHING
    asked: list[str] = attrs.field(factory=list)
    gate: trio.Event | None = None
    channel: Any = attrs.field(factory=lambda: trio.open_memory_channel[Any](100))

    def __getattr__(self, name: str) -> Any:
        async def fetch(*, fresh: bool) -> Any:
            assert fresh
            self.asked.append(name)
            found = self.has.get(name, [])
            if self.gate is not None:
                await self.gate.wait()
            await trio.lowlevel.checkpoint()
            if isinstance(found, Exception):
                raise found
            return list(found)

        return fetch

    def say(self, event: Any) -> None:
        self.channel[0].send_nowait(event)

    @asynccontextmanager
    async def watch(self, wanted: SubscriptionFilter, *, backoff: Backoff) -> AsyncIterator[Any]:
        assert not wanted.resource_subscriptions
        if isinstance(self.granted, Exception):
            raise self.granted
        yield Changes(self.channel[1], self.granted.intersection(wanted))

    @asynccontextmanager
    async def follow(
        self, *, kinds: frozenset[ListKind] = ALL, poll: float | None = None
    ) -> AsyncIterator[FollowedLists]:
        client = cast("Client", self)
        with trio.fail_after(1_000):
            async with follow_lists(client, kinds, BACKOFF, poll) as lists:
                yield lists


async def test_it_is_current(autojump_clock: trio.abc.Clock) -> None:
    """It is whole when the block is entered, and follows each kind of change."""
    fake = Fake({"all_tools": [tool("a")]})
    async with fake.follow() as lists:
        assert lists.current == Lists(tools=(tool("a"),))
        assert lists.live == ALL
        assert (lists.stale, lists.error) == (frozenset(), None)
        for event, method, item in [
            (ToolsListChanged(), "all_tools", tool("b")),
            (PromptsListChanged(), "all_prompts", types.Prompt(name="p")),
            (ResourcesListChanged(), "all_resources", types.Resource(name="r", uri="r:r")),
            (
                ResourcesListChanged(),
                "all_resource_templates",
                types.ResourceTemplate(name="t", uri_template="t:{x}"),
            ),
        ]:
            seen = lists.current
            fake.has[method] = [item]
            fake.say(event)
            assert await lists.wait_changed(seen) is lists.current
            assert getattr(lists, method.removeprefix("all_")) == (item,)
        # What was seen is as it was.
        assert seen.resource_templates == ()
        assert repr(lists) == "<FollowedLists live=['prompts', 'resources', 'tools'] stale=[]>"
    assert fake.asked.count("all_tools") == 2
    assert fake.asked.count("all_resources") == 3


async def test_only_what_is_asked_for(autojump_clock: trio.abc.Clock) -> None:
    fake = Fake({"all_tools": [tool("a")], "all_prompts": [types.Prompt(name="p")]})
    async with fake.follow(kinds=frozenset({"prompts"})) as lists:
        assert lists.live == {"prompts"}
        assert lists.current == Lists(prompts=(types.Prompt(name="p"),))
        await lists.refresh()
    assert fake.asked == ["all_prompts", "all_prompts"]


async def test_a_change_that_changes_nothing(autojump_clock: trio.abc.Clock) -> None:
    """The value stays the same one, and nobody is woken."""
    fake = Fake({"all_tools": [tool("a")]})
    async with fake.follow() as lists:
        seen = lists.current
        fake.say(ToolsListChanged())
        fake.say(ResourceUpdated("a:b"))
        with trio.move_on_after(10) as waiting:
            await lists.wait_changed(seen)
        assert waiting.cancelled_caught
        assert fake.asked.count("all_tools") == 2
        assert lists.current is seen


async def test_nothing_is_missed_between_two_waits(autojump_clock: trio.abc.Clock) -> None:
    fake = Fake()
    async with fake.follow() as lists:
        seen = lists.current
        fake.has["all_tools"] = [tool("a")]
        fake.say(ToolsListChanged())
        await trio.sleep(1)
        assert (await lists.wait_changed(seen)).tools == (tool("a"),)
        with trio.testing.assert_checkpoints():
            await lists.wait_changed(seen)


async def test_a_change_while_it_is_listed(autojump_clock: trio.abc.Clock) -> None:
    """It is listed once more: the answer may have been made before the change."""
    fake = Fake()
    async with fake.follow() as lists:
        fake.gate = trio.Event()
        fake.has["all_tools"] = [tool("old")]
        fake.say(ToolsListChanged())
        await trio.testing.wait_all_tasks_blocked()
        assert lists.stale == {"tools"}
        fake.has["all_tools"] = [tool("new")]
        fake.say(ToolsListChanged())
        await trio.testing.wait_all_tasks_blocked()
        fake.gate.set()
        assert (await lists.wait_current()).tools == (tool("new"),)
        assert lists.stale == frozenset()


async def test_resync(autojump_clock: trio.abc.Clock) -> None:
    """After a gap all that is followed is listed again."""
    fake = Fake(granted=SubscriptionFilter(tools_list_changed=True, resources_list_changed=True))
    async with fake.follow() as lists:
        assert lists.live == {"tools", "resources"}
        before = len(fake.asked)
        fake.say(Resync("lost"))
        await trio.testing.wait_all_tasks_blocked()
        await lists.wait_current()
        assert sorted(fake.asked[before:]) == [
            "all_resource_templates",
            "all_resources",
            "all_tools",
        ]


async def test_failures(autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture) -> None:
    """The last value stays, the failure shows, and it is tried again with pauses."""
    fake = Fake({"all_tools": [tool("a")]})
    async with fake.follow() as lists:
        fake.has["all_tools"] = errors.ConnectionLost("no luck")
        fake.has["all_prompts"] = [types.Prompt(name="p")]
        before = len(fake.asked)
        fake.say(ToolsListChanged())
        fake.say(PromptsListChanged())
        await trio.sleep(60)
        assert lists.tools == (tool("a"),)
        assert lists.prompts == (types.Prompt(name="p"),), "the other list is none the worse"
        assert lists.stale == {"tools"}
        assert str(lists.error) == "no luck"
        # A pause is 2 s on average; in no case are there more than that.
        assert 10 < len(fake.asked) - before < 90
        fake.has["all_tools"] = [tool("b")]
        assert (await lists.wait_changed()).tools == (tool("b"),)
        await trio.testing.wait_all_tasks_blocked()
        assert (lists.stale, lists.error) == (frozenset(), None)
    assert "the tools could not be listed again: no luck" in caplog.text


async def test_retry_after(autojump_clock: trio.abc.Clock) -> None:
    fake = Fake()
    async with fake.follow() as lists:
        fake.has["all_tools"] = errors.ServerBusy("later", retry_after=100)
        before = len(fake.asked)
        fake.say(ToolsListChanged())
        await trio.sleep(99)
        assert len(fake.asked) - before == 1
        fake.has["all_tools"] = [tool("a")]
        await lists.wait_current()
        assert len(fake.asked) - before == 2


async def test_failure_on_entering() -> None:
    """There is no value yet, so the block is not entered; the cause comes out as itself."""
    fake = Fake({"all_prompts": errors.InternalError("broken")})
    with pytest.raises(errors.InternalError, match="broken"):
        async with fake.follow():
            raise AssertionError("unreachable")


async def test_features_that_the_server_lacks(autojump_clock: trio.abc.Clock) -> None:
    fake = Fake({"all_prompts": errors.MethodNotFound("no"), "all_tools": [tool("a")]})
    async with fake.follow() as lists:
        assert lists.current == Lists(tools=(tool("a"),))


@pytest.mark.parametrize(
    "granted",
    [
        errors.MethodNotFound("no"),
        errors.ListenNotSupported("no"),
        errors.WatchEnded("nothing", reason="nothing-granted"),
    ],
)
async def test_server_that_reports_nothing(granted: Any, autojump_clock: trio.abc.Clock) -> None:
    """There is a value all the same; it is another when it is asked for."""
    fake = Fake({"all_tools": [tool("a")]}, granted=granted)
    async with fake.follow() as lists:
        assert lists.tools == (tool("a"),)
        assert lists.live == frozenset()
        assert lists.error is None
        fake.has["all_tools"] = [tool("b")]
        with trio.move_on_after(1_000 / 2) as waiting:
            await lists.wait_changed()
        assert waiting.cancelled_caught
        assert (await lists.refresh()).tools == (tool("b"),)


async def test_polling(autojump_clock: trio.abc.Clock) -> None:
    """What is not reported is asked for from time to time, and no more than that."""
    fake = Fake(granted=SubscriptionFilter(tools_list_changed=True))
    async with fake.follow(poll=10) as lists:
        fake.has["all_prompts"] = [types.Prompt(name="p")]
        start = trio.current_time()
        await lists.wait_changed()
        assert 5 <= trio.current_time() - start <= 15
        await trio.sleep(150)
        assert 10 < fake.asked.count("all_prompts") < 33
        assert fake.asked.count("all_tools") == 1


async def test_polling_when_all_is_reported(autojump_clock: trio.abc.Clock) -> None:
    fake = Fake()
    async with fake.follow(poll=1):
        before = len(fake.asked)
        await trio.sleep(100)
        assert len(fake.asked) == before


async def test_end_for_good(autojump_clock: trio.abc.Clock) -> None:
    """Whoever waits is told, and does not wait for what cannot come any more."""
    problem = errors.HttpStatusError("who are you?", status=401)
    fake = Fake({"all_tools": [tool("a")]})
    async with fake.follow() as lists, trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(errors.SubscriptionLost) as caught:
                await lists.wait_changed()
            assert caught.value.__cause__ is problem

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        fake.say(problem)
        await trio.sleep(10)
        assert lists.live == frozenset()
        assert lists.error is problem
        # It can still be asked for.
        fake.has["all_tools"] = [tool("b")]
        assert (await lists.refresh()).tools == (tool("b"),)


async def test_end_for_good_with_polling(autojump_clock: trio.abc.Clock) -> None:
    fake = Fake()
    async with fake.follow(poll=10) as lists:
        fake.channel[0].close()
        await trio.sleep(1)
        fake.has["all_tools"] = [tool("a")]
        assert (await lists.wait_changed()).tools == (tool("a"),)


async def test_after_the_block(autojump_clock: trio.abc.Clock) -> None:
    """The last value can still be looked at; waiting for another makes no sense."""
    fake = Fake({"all_tools": [tool("a")]})
    async with trio.open_nursery() as nursery:

        async def wait(lists: FollowedLists) -> None:
            with pytest.raises(trio.ClosedResourceError):
                await lists.wait_changed()

        async with fake.follow() as lists:
            nursery.start_soon(wait, lists)  # noqa: ASYNC111 - it is to outlive the block
            await trio.testing.wait_all_tasks_blocked()
    assert lists.tools == (tool("a"),)
    with pytest.raises(trio.ClosedResourceError):
        await lists.refresh()


async def test_over_a_real_server(autojump_clock: trio.abc.Clock) -> None:
    """With a client, a server and a hub as they are; a change while nobody is connected counts."""
    hub = Hub()
    server = Server("s", version="1", hub=hub)

    @server.tool
    async def first() -> None:
        """The first."""

    async def second() -> None:
        """The second."""

    def names(lists: Lists) -> list[str]:
        return [tool.name for tool in lists.tools]

    async with open_memory_client(server) as client, client.follow_lists(["tools"]) as lists:
        seen = lists.current
        assert names(seen) == ["first"]
        assert lists.live == frozenset({"tools"})
        server.add_tool(second)
        seen = await lists.wait_changed(seen)
        assert names(seen) == ["first", "second"]
        server.end_subscriptions("shutdown")
        await trio.testing.wait_all_tasks_blocked()
        server.remove_tool("first")
        assert names(await lists.wait_changed(seen)) == ["second"]


async def test_what_cannot_be_followed() -> None:
    """Said wrongly, it is refused at once."""
    async with open_memory_client(Server("s", version="1")) as client:
        with pytest.raises(ValueError, match="kinds are among"):
            client.follow_lists(["templates"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="kinds are among"):
            client.follow_lists([])
        with pytest.raises(ValueError, match="poll must be positive"):
            client.follow_lists(poll=0)
