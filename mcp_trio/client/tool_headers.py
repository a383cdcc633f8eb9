"""Which arguments of which tools are mirrored in headers: what a client learns from `tools/list`.

Source: specification, basic/transports/streamable-http, "Custom Headers from Tool Parameters".
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
import trio

from mcp_trio import errors
from mcp_trio.client.pages import Pages
from mcp_trio.protocol import jsonrpc, methods
from mcp_trio.protocol.param_headers import Paths, header_paths, mirrored_values

__all__ = ["ToolHeaders"]

logger = logging.getLogger("mcp_trio.client")

MAX_CHARACTERS: Final = 2**20
"""How much may be kept of names; whoever has more tools than that is asked again at times."""
_PER_ENTRY: Final = 200
"""What an entry costs beside its text, in characters."""

_NONE: Final[Paths] = {}

Result: TypeAlias = dict[str, Any]
Transmit: TypeAlias = Callable[[Mapping[str, object]], Awaitable[Result]]
"""Sends the request with what its headers are to mirror, and waits for the result."""


@attrs.frozen
class _Known:
    paths: Paths
    wrong: str | None = None
    """Why the tool is left out, if it is."""

    def cost(self, name: str) -> int:
        parts = [name, self.wrong or "", *self.paths]
        parts += [step for path in self.paths.values() for step in path]
        return _PER_ENTRY * len(parts) + sum(map(len, parts))


@attrs.frozen
class _Names:
    names: list[Any]
    next_cursor: str | None


class ToolHeaders:
    """What one client knows of the headers of its server's tools.

    Only those tools are kept that have any; of these as many as fit, those listed last.

    Args:
        list_page: fetches a page of `tools/list`, by its cursor, through `send`.
        max_characters: how much is kept.
    """

    def __init__(
        self,
        list_page: Callable[[str | None], Awaitable[Result]],
        *,
        max_characters: int = MAX_CHARACTERS,
    ) -> None:
        self._list_page = list_page
        self._max_characters = max_characters
        self._characters = 0
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._looking = trio.Lock()

    async def send(self, method: str, params: Mapping[str, Any], transmit: Transmit) -> Result:
        """Send a request of any method with the headers that it needs.

        Of a list of tools those are left out that mark parameters wrongly. A call that the
        server refuses because of its headers has not been served: the tools are listed again,
        and if this one has other headers now, it is called once more.

        Cancelling cancels the request that is under way.
        """
        if method == methods.TOOLS_LIST:
            return self.learn(await transmit(_NONE))
        if method == methods.TOOLS_CALL:
            return await self._call(params, transmit)
        return await transmit(_NONE)

    async def _call(self, params: Mapping[str, Any], transmit: Transmit) -> Result:
        name, arguments = params.get("name"), params.get("arguments")
        used = self._paths(name)
        try:
            return await transmit(mirrored_values(used, arguments))
        except errors.HeaderMismatch as refused:
            mismatch = refused
        if not await self._has_changed(name, used, mismatch):
            raise mismatch
        return await transmit(mirrored_values(self._paths(name), arguments))

    def _paths(self, name: object) -> Paths:
        known = self._known.get(name) if isinstance(name, str) else None
        return _NONE if known is None else known.paths

    async def _has_changed(
        self, name: object, used: Paths, mismatch: errors.HeaderMismatch
    ) -> bool:
        """Whether a tool has other headers than those that were used, says the server now."""
        async with self._looking:
            if self._paths(name) != used:
                return True  # another call has found out meanwhile
            try:
                async for each in Pages(self._fetch_names, lambda page: page.names):
                    if each == name:
                        break
            except errors.McpError as problem:
                mismatch.add_note(f"the tools could not be listed again: {problem}")
            return self._paths(name) != used

    async def _fetch_names(self, cursor: str | None) -> _Names:
        page = await self._list_page(cursor)
        tools, following = page.get("tools"), page.get("nextCursor")
        return _Names(
            [tool.get("name") for tool in tools if isinstance(tool, dict)]
            if isinstance(tools, list)
            else [],
            following if isinstance(following, str) else None,
        )

    def learn(self, page: Result) -> Result:
        """Take note of one page; return it without the tools that clients have to leave out."""
        tools = page.get("tools")
        if not isinstance(tools, list):
            return page  # which whoever reads it will complain of
        return {**page, "tools": [tool for tool in tools if self._note(tool)]}

    def _note(self, tool: object) -> bool:
        """Take note of a tool; whether it is one to be listed."""
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or not isinstance(name, str):
            return True
        try:
            known = _Known(header_paths(tool.get("inputSchema", {})))
        except ValueError as problem:
            known = _Known(_NONE, str(problem))
        before = self._forget(name)
        if known.wrong is not None and (before is None or before.wrong != known.wrong):
            logger.warning("left out the tool %s: %s", jsonrpc.show(name), known.wrong)
        if known.paths or known.wrong is not None:
            self._keep(name, known)
        return known.wrong is None

    def _keep(self, name: str, known: _Known) -> None:
        self._known[name] = known
        self._characters += known.cost(name)
        while self._characters > self._max_characters:
            self._forget(next(iter(self._known)))

    def _forget(self, name: str) -> _Known | None:
        known = self._known.pop(name, None)
        if known is not None:
            self._characters -= known.cost(name)
        return known
