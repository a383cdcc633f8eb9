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
from mcp_trio.subscriptions.events import (
    Event,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter

__all__ = ["listen"]

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
    display = session.display
    async with client.listen(wanted, ack_timeout=session.timeout or ACK_TIMEOUT) as changes:
        session.end_after(seconds)
        if changes.end is None:
            shown = display.acknowledged(changes.acknowledged, changes.declined)
            await session.out.write(shown)
        again = Rereader(client, session, changes.acknowledged) if reread else None
        try:
            if again is not None:
                await again.begin()
            async for change in changes:
                await session.out.write(display.changed(change))
                if again is not None:
                    await again.read(change)
        except errors.SubscriptionLost as problem:
            return end_of(problem, None if changes.end is None else changes.end.reason)
    end = changes.end
    return End("graceful", None if end is None else end.reason)


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
    """

    def __init__(self, client: Client, session: Session, covered: SubscriptionFilter) -> None:
        self._client = client
        self._session = session
        self._covered = covered
        self._lists: dict[type[Event], Listing] = {}

    async def begin(self) -> None:
        """Learn what the lists are now, so that what changes in them can be shown."""
        for event in self._covered.cues():
            if type(event) in _LISTS:
                try:
                    self._lists[type(event)] = await self._list(event)
                except (errors.McpError, trio.TooSlowError):
                    continue  # then the whole list is shown when it has changed

    async def read(self, event: Event) -> None:
        """Read again what an event is about: one thing, or after a gap everything."""
        write, display = self._session.out.write, self._session.display
        if isinstance(event, Resync):
            for cue in self._covered.cues():
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
                shown = display.listed(after) if before is None else display.relisted(before, after)
            else:
                return
        except (errors.McpError, trio.TooSlowError) as problem:
            shown = display.not_reread(problem)
        await write(shown)

    async def _list(self, event: Event) -> Listing:
        return await fetch(self._client, self._session, _LISTS[type(event)])
