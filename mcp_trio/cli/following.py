"""The commands that follow changes."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from mcp_trio import errors
from mcp_trio.cli.asking import answer, fetch
from mcp_trio.cli.display import End, Listing
from mcp_trio.cli.session import Session, end_of
from mcp_trio.client.client import Client
from mcp_trio.client.subscription import Subscription
from mcp_trio.client.watch import Snapshot, Watcher, WatchOptions
from mcp_trio.subscriptions.events import (
    Event,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter

__all__ = ["listen", "watch"]

ACK_TIMEOUT: Final = 10.0


async def listen(
    client: Client,
    session: Session,
    *,
    wanted: SubscriptionFilter,
    seconds: float | None,
    reread: bool,
) -> End:
    """Follow one subscription until it ends.

    Args:
        client: the client.
        session: where to show it.
        wanted: what to follow.
        seconds: how long, from the acknowledgement on; None for as long as it lasts.
        reread: whether to read again what has changed.
    """
    async with client.listen(wanted, ack_timeout=session.timeout or ACK_TIMEOUT) as changes:
        session.end_after(seconds)
        try:
            # One that has ended before it began was never acknowledged.
            await _follow(client, session, changes, reread, opened=changes.end is None)
        except errors.SubscriptionLost as problem:
            return end_of(problem, None if changes.end is None else changes.end.reason)
    return End("graceful", None if changes.end is None else changes.end.reason)


async def watch(
    client: Client,
    session: Session,
    *,
    wanted: SubscriptionFilter,
    seconds: float | None,
    reread: bool,
    options: WatchOptions,
) -> End:
    """Follow changes over any number of losses.

    Args:
        client: the client.
        session: where to show it.
        wanted: what to follow.
        seconds: how long, from the acknowledgement on, and for as long as there is none from
            the start; None for no limit.
        reread: whether to read again what has changed.
        options: of the watch.

    Raises:
        errors.WatchEnded: why it cannot go on.
    """
    if session.timeout is not None:
        options = {**options, "ack_timeout": session.timeout}
    session.end_after(seconds)
    async with client.watch(wanted, **options) as changes:
        session.end_after(seconds)
        await _follow(client, session, changes, reread)
    raise AssertionError("unreachable: a watch does not end by itself")


async def _follow(
    client: Client,
    session: Session,
    changes: Subscription | Watcher,
    reread: bool,
    *,
    opened: bool = True,
) -> None:
    """Show what comes until nothing comes any more."""
    write, display = session.out.write, session.display
    covered = changes.acknowledged
    if opened:
        await write(display.acknowledged(covered, changes.declined))
    again = Rereader(client, session, covered) if reread else None
    if again is not None:
        await again.begin()
    async for change in changes:
        if isinstance(change, Snapshot):
            continue  # nobody has asked for one
        await write(display.changed(change))
        if isinstance(change, Resync) and changes.acknowledged != covered:
            covered = changes.acknowledged
            await write(display.acknowledged(covered, changes.declined))
        if again is not None:
            again.covered = covered
            await again.read(change)


_LISTS: Final[dict[type[Event], Sequence[str]]] = {
    ToolsListChanged: ("tools",),
    PromptsListChanged: ("prompts",),
    ResourcesListChanged: ("resources", "templates"),
}
"""What to list again, by the event that says so."""


class Rereader:
    """Reads again what has changed, and shows it.

    Args:
        client: the client.
        session: where to show it.
        covered: what the subscription covers.

    Attributes:
        covered: the same, as it is now.
    """

    def __init__(self, client: Client, session: Session, covered: SubscriptionFilter) -> None:
        self._client = client
        self._session = session
        self.covered = covered
        self._lists: dict[type[Event], Listing] = {}

    async def begin(self) -> None:
        """Learn what the lists are now, so that what changes in them can be shown."""
        for event in self.covered.cues():
            if type(event) in _LISTS:
                try:
                    self._lists[type(event)] = await self._list(event)
                except (errors.McpError, trio.TooSlowError):
                    continue  # then it is not known what has changed in it, when it has

    async def read(self, event: Event) -> None:
        """Read again what an event is about: one thing, or after a gap everything."""
        write, display = self._session.out.write, self._session.display
        if isinstance(event, Resync):
            for cue in self.covered.cues():
                await write(display.rereading(cue))
                await self.read(cue)
            return
        try:
            if isinstance(event, ResourceUpdated):
                request = partial(self._client.read_resource, event.uri)
                shown = display.reread(await answer(self._session, request))
            elif type(event) in _LISTS:
                before, after = self._lists.get(type(event)), await self._list(event)
                self._lists[type(event)] = after
                shown = display.relisted(before, after)
            else:
                return
        except (errors.McpError, trio.TooSlowError) as problem:
            shown = display.not_reread(problem)
        await write(shown)

    async def _list(self, event: Event) -> Listing:
        return await fetch(self._client, self._session, _LISTS[type(event)])
