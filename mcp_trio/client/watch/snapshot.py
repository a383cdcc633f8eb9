"""The state of what is watched, read as a whole.

Source: specification, server/tools, server/prompts, server/resources.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs
import trio

from mcp_trio import types
from mcp_trio._causes import one_cause
from mcp_trio.subscriptions.events import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter

__all__ = ["Fetched", "Reads", "Snapshot", "fetch_snapshot"]

AT_ONCE: Final = 8
"""How many requests of one snapshot are under way at the same time."""

T = TypeVar("T")


@attrs.frozen
class Fetched(Generic[T]):
    """One value of a snapshot, or why it could not be had.

    Attributes:
        value: the value.
        error: what went wrong instead; `trio.TooSlowError` if it took too long.
    """

    value: T | None = None
    error: Exception | None = None

    def get(self) -> T:
        """The value.

        Raises:
            Exception: `error`, if there is one.
        """
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


@attrs.frozen(kw_only=True)
class Snapshot:
    """What a watch covers, as it was at some time after the stream had been acknowledged.

    What has changed since comes after it. One value that could not be had does not hinder the
    others; nothing is tried again before the next change of it, or the next gap.

    Attributes:
        tools: the list of tools; None if it is not among what this snapshot is about.
        prompts: the list of prompts, likewise.
        resources: the list of resources, likewise.
        resource_templates: the list of resource templates, likewise.
        contents: what the resources hold that are watched, by URI.
    """

    tools: Fetched[list[types.Tool]] | None = None
    prompts: Fetched[list[types.Prompt]] | None = None
    resources: Fetched[list[types.Resource]] | None = None
    resource_templates: Fetched[list[types.ResourceTemplate]] | None = None
    contents: Mapping[str, Fetched[types.ReadResourceResult]] = attrs.field(factory=dict)


class Reads(Protocol):
    """What a snapshot is made with: a `Client`."""

    async def all_tools(self, *, fresh: bool = False) -> list[types.Tool]:
        """The tools of all pages."""

    async def all_prompts(self, *, fresh: bool = False) -> list[types.Prompt]:
        """The prompts of all pages."""

    async def all_resources(self, *, fresh: bool = False) -> list[types.Resource]:
        """The resources of all pages."""

    async def all_resource_templates(self, *, fresh: bool = False) -> list[types.ResourceTemplate]:
        """The resource templates of all pages."""

    async def read_resource(self, uri: str, *, fresh: bool = False) -> types.ReadResourceResult:
        """What a resource holds."""


async def fetch_snapshot(
    client: Reads,
    part: SubscriptionFilter,
    cover: Callable[[Hashable], object],
    read_timeout: float,
) -> Snapshot:
    """Read what a filter asks for, no more than `AT_ONCE` requests at a time.

    Args:
        client: reads, and always from the server.
        part: what to read.
        cover: called with the key of a change when the request begins that makes earlier
            changes of that key old news.
        read_timeout: seconds for each request, or each list with all its pages.

    Cancelling cancels the requests.
    """
    lists: dict[str, Fetched[Any]] = {}
    contents: dict[str, Fetched[types.ReadResourceResult]] = {}
    jobs = iter([*_lists(client, part, lists), *_contents(client, part, contents)])

    async def work() -> None:  # noqa: ASYNC910 - who finds no work is done
        for key, into, reads in jobs:
            cover(key)
            for name, read in reads.items():
                into[name] = await _fetch(read, read_timeout)

    with one_cause():
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(work)
    ordered = {uri: contents[uri] for uri in part.resource_subscriptions}
    return Snapshot(**lists, contents=ordered)


Read = Callable[[], Awaitable[object]]
Job = tuple[Hashable, dict[str, Fetched[Any]], Mapping[str, Read]]


async def _fetch(read: Callable[[], Awaitable[Any]], timeout: float) -> Fetched[Any]:  # noqa: ASYNC109
    try:
        with trio.fail_after(timeout):
            return Fetched(await read())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is about this value alone
        await trio.lowlevel.checkpoint()
        return Fetched(error=error)


def _lists(client: Reads, part: SubscriptionFilter, into: dict[str, Fetched[Any]]) -> Iterator[Job]:
    if part.tools_list_changed:
        yield ToolsListChanged().key, into, {"tools": partial(client.all_tools, fresh=True)}
    if part.prompts_list_changed:
        yield PromptsListChanged().key, into, {"prompts": partial(client.all_prompts, fresh=True)}
    if part.resources_list_changed:
        # One kind of change is about both, so it is covered when the first of them begins.
        reads: dict[str, Read] = {
            "resources": partial(client.all_resources, fresh=True),
            "resource_templates": partial(client.all_resource_templates, fresh=True),
        }
        yield ResourcesListChanged().key, into, reads


def _contents(
    client: Reads, part: SubscriptionFilter, into: dict[str, Fetched[Any]]
) -> Iterator[Job]:
    for uri in part.resource_subscriptions:
        yield ResourceUpdated(uri).key, into, {uri: partial(client.read_resource, uri, fresh=True)}
