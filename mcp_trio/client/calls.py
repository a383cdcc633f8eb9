"""How a client's requests are made: what they carry, and in how many messages they are served.

Source: specification, basic/index, "_meta"; basic/versioning; basic/patterns/mrtr.
"""

import functools
import importlib.metadata
import itertools
from collections.abc import Hashable, Mapping
from typing import Any, Final

import trio

from mcp_trio import codec, errors, types
from mcp_trio.client import requests
from mcp_trio.client.cache import ResponseCache
from mcp_trio.client.caching import Asking, use_cache
from mcp_trio.client.inputs import Inputs, next_round
from mcp_trio.client.observers import Observers
from mcp_trio.client.tool_headers import ToolHeaders
from mcp_trio.protocol import meta, methods, versions
from mcp_trio.transports import abc

__all__ = ["Calls"]

_OF_A_ROUND: Final = frozenset({"inputResponses", "requestState"})


class Calls:
    """All requests of one client but those that open a subscription run through `make`.

    Attributes:
        transport: how they reach the server.
        version: the revision they declare.
        observers: who hears what the server says.
    """

    def __init__(
        self,
        transport: abc.Transport,
        client_info: types.Implementation | None,
        capabilities: types.ClientCapabilities | None,
        inputs: Inputs,
        max_rounds: int,
        cache: ResponseCache | None = None,
        cache_context: Hashable = None,
    ) -> None:
        if max_rounds < 0:
            raise ValueError("max_rounds must not be negative")
        self.transport = transport
        self.version: str = versions.LATEST
        self._client_info = codec.unstructure(client_info or _default_info())
        self._capabilities = inputs.declared(codec.unstructure(capabilities or _NOTHING))
        self._cached = (
            None
            if cache is None
            else use_cache(cache, transport, cache_context, self._capabilities)
        )
        self.observers = Observers(self._cached)
        self._inputs = inputs
        self._max_rounds = max_rounds
        self._ids = itertools.count(1)
        self._tool_headers = ToolHeaders(self._list_tools) if transport.mirrors_params else None

    @property
    def caches(self) -> bool:
        """Whether there is a cache."""
        return self._cached is not None

    def params(
        self,
        params: Mapping[str, Any],
        progress_token: meta.ProgressToken | None = None,
        log_level: str | None = None,
    ) -> dict[str, Any]:
        """The params with the `_meta` that every request carries."""
        own = meta.build_meta(
            version=self.version,
            client_capabilities=self._capabilities,
            client_info=self._client_info,
            progress_token=progress_token,
            log_level=log_level,
        )
        given = params.get("_meta")
        return {**params, "_meta": {**given, **own} if isinstance(given, Mapping) else own}

    async def make(
        self,
        method: str,
        params: Mapping[str, Any],
        streams: requests.Streams,
        *,
        fresh: bool = False,
    ) -> dict[str, Any]:
        """Get the result of a request: from the cache if it is there, or from the server.

        Args:
            method: of the request.
            params: of the request, as the caller gave them.
            streams: where its notifications go.
            fresh: whether to ask the server in any case.

        Cancelling cancels whichever message or handler is under way.
        """
        if self._cached is None:
            return await self._serve(method, params, streams, None)
        await trio.lowlevel.checkpoint()  # before the cache is looked at: nothing is between
        with self._cached.asking(method, params, self.version, fresh=fresh) as asking:
            if asking is not None and asking.found is not None:
                return self._learn(method, asking.found)
            return await self._serve(method, params, streams, asking)

    async def _serve(
        self,
        method: str,
        params: Mapping[str, Any],
        streams: requests.Streams,
        asking: Asking | None,
    ) -> dict[str, Any]:
        """Send a request, and again with the input it needs, until there is a result."""
        result = await self._once(method, params, streams)
        if asking is not None and not requests.needs_input(result):
            asking.answered(result)
        for _ in range(self._max_rounds):
            if not requests.needs_input(result):
                return result
            given = await next_round(self._inputs, method, result)
            kept = {name: value for name, value in params.items() if name not in _OF_A_ROUND}
            result = await self._once(method, {**kept, **given}, streams)
        if requests.needs_input(result):
            raise errors.RemoteProtocolError(
                f"{method}: the server asks for input again, after {self._max_rounds} rounds of it"
            )
        return result

    async def _once(
        self, method: str, params: Mapping[str, Any], streams: requests.Streams
    ) -> dict[str, Any]:
        """One round, in a revision that the server speaks if there is one."""
        try:
            return await self._send(method, params, streams)
        except errors.UnsupportedProtocolVersion as refused:
            self.adopt_version(refused)
        return await self._send(method, params, streams)

    async def _send(
        self, method: str, params: Mapping[str, Any], streams: requests.Streams
    ) -> dict[str, Any]:
        transmit = functools.partial(self._transmit, method, params, streams)
        if self._tool_headers is None:
            return await transmit()
        return await self._tool_headers.send(method, params, transmit)

    def _learn(self, method: str, found: dict[str, Any]) -> dict[str, Any]:
        """What came from the cache may be what another client has put there."""
        if self._tool_headers is None or method != methods.TOOLS_LIST:
            return found
        return self._tool_headers.learn(found)

    async def _list_tools(self, cursor: str | None) -> dict[str, Any]:
        params = {} if cursor is None else {"cursor": cursor}
        return await self.make(methods.TOOLS_LIST, params, requests.Streams(), fresh=True)

    async def _transmit(
        self,
        method: str,
        params: Mapping[str, Any],
        streams: requests.Streams,
        mirrored: Mapping[str, object] = abc.NOTHING_MIRRORED,
    ) -> dict[str, Any]:
        request_id = next(self._ids)
        token = None if streams.progress is None else request_id
        level = None if streams.log is None else streams.log[0]
        return await requests.perform(
            self.transport,
            request_id,
            method,
            self.params(params, token, level),
            streams,
            self.observers,
            mirrored,
        )

    def adopt_version(self, refused: errors.UnsupportedProtocolVersion) -> None:
        """Use another revision from now on, of those that the server says it speaks.

        Raises:
            errors.UnsupportedProtocolVersion: there is none, or the server did not say.
        """
        named = refused.data.get("supported") if isinstance(refused.data, Mapping) else None
        if not isinstance(named, list):
            raise refused
        chosen = versions.choose(versions.MODERN, named)
        if chosen is None:
            raise _no_common_version(refused, named) from refused
        self.version = chosen


def _no_common_version(
    refused: errors.UnsupportedProtocolVersion, named: list[Any]
) -> errors.ErrorResponse:
    theirs = ", ".join(str(version)[:20] for version in named[:10]) or "none"
    return errors.ErrorResponse.from_wire(
        refused.code,
        f"no revision of the protocol in common: the server speaks {theirs}, "
        f"this client {', '.join(versions.MODERN)}",
        refused.data,
    )


def _default_info() -> types.Implementation:
    try:
        version = importlib.metadata.version("mcp-trio")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return types.Implementation("mcp-trio", version)


_NOTHING: Final = types.ClientCapabilities()
