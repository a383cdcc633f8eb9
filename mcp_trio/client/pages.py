"""A list of a server as a channel, of which a page is fetched when it is read.

Source: specification, server/utilities/pagination.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import trio

from mcp_trio import errors

__all__ = ["Page", "Pages"]

MAX_PAGES: Final = 10_000
"""A list that has more pages than this is taken for one that never ends."""

T = TypeVar("T")


class Page(Protocol):
    """One page of whatever list."""

    @property
    def next_cursor(self) -> str | None:
        """Asks for the next page; None if this was the last."""


P = TypeVar("P", bound=Page)


class Pages(trio.abc.ReceiveChannel[T], Generic[T]):
    """The items of a list, page after page: ``async for tool in client.tools()``.

    A page is fetched when the first of its items is asked for, and no sooner: there is no task
    behind it, and nothing is open between two pages, so it need not be closed.
    """

    def __init__(
        self, fetch: Callable[[str | None], Awaitable[P]], items: Callable[[P], Sequence[T]]
    ) -> None:
        async def load(cursor: str | None) -> tuple[Sequence[T], str | None]:
            page = await fetch(cursor)
            return items(page), page.next_cursor

        self._load = load
        self._waiting: deque[T] = deque()
        self._cursor: str | None = None
        self._seen: set[str] = set()
        self._last = False
        self._closed = False
        self._receiving = False

    async def receive(self) -> T:
        """Return the next item.

        Cancelling loses none. After an error the next call asks for the same page again.

        Raises:
            trio.EndOfChannel: that was all.
            trio.ClosedResourceError: it was closed.
            trio.BusyResourceError: another task is receiving.
            errors.RemoteProtocolError: the server leads around in a circle.
            errors.McpError: what any request can raise; see `Client`.
        """
        if self._receiving:
            raise trio.BusyResourceError("another task is receiving")
        await trio.lowlevel.checkpoint_if_cancelled()
        self._receiving = True
        try:
            waited = False
            while True:
                if self._closed:
                    raise trio.ClosedResourceError("this list was closed")
                if self._waiting or self._last:
                    break
                await self._fetch()
                waited = True
            if not waited:
                await trio.lowlevel.cancel_shielded_checkpoint()
            if not self._waiting:
                raise trio.EndOfChannel
            return self._waiting.popleft()
        finally:
            self._receiving = False

    async def aclose(self) -> None:
        """Forget what was fetched and not received; closing twice is fine."""
        self._closed = True
        self._waiting.clear()
        await trio.lowlevel.checkpoint()

    async def receive_all(self) -> list[T]:
        """Return all that is left; raises what `receive` raises but for the end, and loses none."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._last:
            await self._fetch()
        found = list(self._waiting)
        self._waiting.clear()
        return found

    async def _fetch(self) -> None:
        items, cursor = await self._load(self._cursor)
        if cursor is None:
            self._last = True
        elif cursor in self._seen or len(self._seen) == MAX_PAGES:
            raise errors.RemoteProtocolError("the pages of this list never end")
        else:
            self._seen.add(cursor)
        self._cursor = cursor
        self._waiting.extend(items)
