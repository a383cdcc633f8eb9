"""The lists of a server as a value that is always the current one.

Source: specification, basic/patterns/subscriptions; server/utilities/caching.
"""

import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import attrs
import trio

from mcp_trio import errors, types
from mcp_trio._backoff import Backoff, Delays
from mcp_trio._causes import one_cause
from mcp_trio.client.watch.backlog import Change
from mcp_trio.subscriptions.events import (
    PromptsListChanged,
    ResourcesListChanged,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter

if TYPE_CHECKING:
    from mcp_trio.client.client import Client

__all__ = ["KINDS", "FollowedLists", "ListKind", "Lists", "follow_lists"]

logger = logging.getLogger("mcp_trio.client")

ListKind = Literal["tools", "prompts", "resources"]
"""What changes together: the resource templates belong to the resources."""

KINDS: Final[frozenset[ListKind]] = frozenset(get_args(ListKind))

_KINDS: Final[dict[type[Any], ListKind]] = {
    ToolsListChanged: "tools",
    PromptsListChanged: "prompts",
    ResourcesListChanged: "resources",
}


@attrs.frozen
class Lists:
    """What a server has, as it was when it was last asked; empty where it has no such feature.

    Attributes:
        tools: its tools.
        prompts: its prompts.
        resources: its resources.
        resource_templates: its resource templates.
    """

    tools: tuple[types.Tool, ...] = ()
    prompts: tuple[types.Prompt, ...] = ()
    resources: tuple[types.Resource, ...] = ()
    resource_templates: tuple[types.ResourceTemplate, ...] = ()


class FollowedLists:
    """The lists of a server, kept up to date; `Client.follow_lists` opens it.

    Example:
        ::

            async with client.follow_lists() as lists:
                seen = lists.current
                while True:
                    show(seen.tools)
                    seen = await lists.wait_changed(seen)
    """

    def __init__(
        self, client: "Client", kinds: frozenset[ListKind], backoff: Backoff, poll: float | None
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._backoff = backoff
        self._poll = poll
        self._chance = random.Random()  # noqa: S311 - no secret
        self._current = Lists()
        self._live: frozenset[ListKind] = frozenset()
        self._stale: dict[ListKind, int] = {}
        self._marks = 0
        self._error: errors.McpError | None = None
        self._end: errors.McpError | None = None
        """Why nothing will change any more by itself."""
        self._closed = False
        self._changed = trio.lowlevel.ParkingLot()
        self._wanted = trio.Event()
        self._acknowledged = trio.Event()
        """It is known what the server reports."""

    def __repr__(self) -> str:
        return f"<FollowedLists live={sorted(self._live)} stale={sorted(self._stale)}>"

    @property
    def current(self) -> Lists:
        """The lists; a new value whenever one of them is another."""
        return self._current

    @property
    def tools(self) -> tuple[types.Tool, ...]:
        """The tools."""
        return self._current.tools

    @property
    def prompts(self) -> tuple[types.Prompt, ...]:
        """The prompts."""
        return self._current.prompts

    @property
    def resources(self) -> tuple[types.Resource, ...]:
        """The resources."""
        return self._current.resources

    @property
    def resource_templates(self) -> tuple[types.ResourceTemplate, ...]:
        """The resource templates."""
        return self._current.resource_templates

    @property
    def live(self) -> frozenset[ListKind]:
        """What the server reports changes of. The rest changes by `refresh` alone, or polling."""
        return self._live

    @property
    def stale(self) -> frozenset[ListKind]:
        """What is known to have changed, or may have, and has not been listed again yet."""
        return frozenset(self._stale)

    @property
    def error(self) -> errors.McpError | None:
        """Why it could not be listed again the last time, or is followed no more; else None."""
        return self._error

    async def wait_changed(self, seen: Lists | None = None) -> Lists:
        """Wait until `current` is another value than `seen`, and return it.

        Args:
            seen: a value of `current`; by default what it is now. A loop gives what this has
                returned the last time, and misses nothing.

        Raises:
            errors.SubscriptionLost: the server's changes are heard of no more, for the reason in
                ``__cause__``. `refresh` still works, if the server does.
            trio.ClosedResourceError: the block of this view has been left.
        """
        seen = self._current if seen is None else seen
        await trio.lowlevel.checkpoint()
        while self._current is seen:
            if self._end is not None and not self._closed:
                raise errors.SubscriptionLost(f"followed no more: {self._end}") from self._end
            await self._park()
        return self._current

    async def wait_current(self) -> Lists:
        """Wait until nothing is `stale`, and return `current`.

        Raises:
            trio.ClosedResourceError: the block of this view has been left.
        """
        await trio.lowlevel.checkpoint()
        while self._stale:
            await self._park()
        return self._current

    async def refresh(self) -> Lists:
        """List everything again; return it once that is done. Raises as `wait_current` does."""
        self._mark(self._kinds)
        return await self.wait_current()

    async def _park(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("the block of this view has been left")
        await self._changed.park()

    def _mark(self, kinds: frozenset[ListKind]) -> None:
        """These may have changed."""
        if kinds:
            self._marks += 1
            self._stale |= dict.fromkeys(kinds, self._marks)
            self._wanted.set()

    def _close(self) -> None:
        self._closed = True
        self._changed.unpark_all()

    async def _follow(self) -> None:
        """Take note of what changes."""
        wanted = SubscriptionFilter(
            "tools" in self._kinds, "prompts" in self._kinds, "resources" in self._kinds
        )
        try:
            async with self._client.watch(wanted, backoff=self._backoff) as changes:
                self._live = _kinds_of(changes.acknowledged)
                self._acknowledged.set()
                async for event in changes:
                    self._note(event, changes.acknowledged)
        except errors.McpError as problem:
            if not self._acknowledged.is_set() and _reports_nothing(problem):
                logger.debug("the server reports no changes: %s", problem)
            else:
                self._lose(problem)
        self._live = frozenset()
        self._acknowledged.set()
        await trio.lowlevel.checkpoint()

    def _lose(self, problem: errors.McpError) -> None:
        """The server's changes are not heard of any more."""
        logger.warning("the server's lists are followed no more: %s", problem)
        self._error = problem
        self._mark(self._live)
        if self._poll is None or not self._acknowledged.is_set():
            self._end = problem
            self._changed.unpark_all()

    def _note(self, event: Change, granted: SubscriptionFilter) -> None:
        if isinstance(event, Resync):
            self._mark(self._live)
            self._live = _kinds_of(granted)
        elif type(event) in _KINDS:
            self._mark(frozenset({_KINDS[type(event)]}))

    async def _open(self, nursery: trio.Nursery) -> None:
        """List everything for the first time, and have it followed."""
        nursery.start_soon(self._follow)
        await self._acknowledged.wait()
        if self._end is not None:
            raise self._end
        # What changes from now on is heard of.
        self._mark(self._kinds)
        for kind, mark in list(self._stale.items()):
            await self._list_again(kind, mark)
        nursery.start_soon(self._keep)

    async def _keep(self) -> None:
        """List again what has changed, one list at a time, and again after failures."""
        delays = Delays(self._backoff)
        while True:
            await trio.lowlevel.checkpoint()
            if not self._stale:
                await self._wait_for_marks()
            problem: errors.McpError | None = None
            for kind, mark in list(self._stale.items()):
                try:
                    await self._list_again(kind, mark)
                except errors.McpError as failure:
                    logger.warning("the %s could not be listed again: %s", kind, failure)
                    problem = failure
            if problem is None:
                delays.reset()
                self._error = self._end
            else:
                self._error = problem
                asked = getattr(problem, "retry_after", None) or 0.0
                await trio.sleep(delays.next(at_least=asked))

    async def _wait_for_marks(self) -> None:
        self._wanted = trio.Event()
        if self._poll is None:
            await self._wanted.wait()
            return
        # Not all that were opened at once come at once.
        with trio.move_on_after(self._poll * self._chance.uniform(0.5, 1.5)) as waiting:
            await self._wanted.wait()
        if waiting.cancelled_caught:
            self._mark(self._kinds - self._live)

    async def _list_again(self, kind: ListKind, mark: int) -> None:
        client = self._client
        found: dict[str, Any] = {}
        if kind == "tools":
            found["tools"] = await _all(client.all_tools)
        elif kind == "prompts":
            found["prompts"] = await _all(client.all_prompts)
        else:
            found["resources"] = await _all(client.all_resources)
            found["resource_templates"] = await _all(client.all_resource_templates)
        changed = attrs.evolve(self._current, **found)
        if changed != self._current:
            self._current = changed
        if self._stale.get(kind) == mark:  # otherwise it has changed again
            del self._stale[kind]
        self._changed.unpark_all()


def _kinds_of(granted: SubscriptionFilter) -> frozenset[ListKind]:
    return frozenset(_KINDS[type(event)] for event in granted.cues() if type(event) in _KINDS)


def _reports_nothing(problem: errors.McpError) -> bool:
    """Whether it has lists and does not report their changes, which is no fault."""
    if isinstance(problem, errors.WatchEnded):
        return problem.reason == "nothing-granted"
    return isinstance(problem, errors.ListenNotSupported | errors.MethodNotFound)


async def _all(fetch: Callable[..., Awaitable[Sequence[Any]]]) -> tuple[Any, ...]:
    """A whole list as the server has it now; empty if it has no such feature."""
    try:
        return tuple(await fetch(fresh=True))
    except errors.MethodNotFound:
        await trio.lowlevel.checkpoint()
        return ()


@asynccontextmanager
async def follow_lists(
    client: "Client", kinds: frozenset[ListKind], backoff: Backoff, poll: float | None
) -> AsyncGenerator[FollowedLists]:
    """Keep lists up to date as long as the block lasts; see `Client.follow_lists`."""
    view = FollowedLists(client, kinds, backoff, poll)
    with one_cause(1):
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            try:
                await view._open(nursery)  # noqa: SLF001
                yield view
            finally:
                view._close()  # noqa: SLF001
                nursery.cancel_scope.cancel()
