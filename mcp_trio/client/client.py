"""The client: typed requests to one server, and subscriptions to its changes.

Source: specification, basic/index; server/tools, server/resources, server/prompts.
"""

import importlib.metadata
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeVar

from mcp_trio import codec, errors, types
from mcp_trio.client import requests
from mcp_trio.client.observers import Observers
from mcp_trio.client.subscription import EventHook, Subscription, open_subscription
from mcp_trio.protocol import meta, methods, versions
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.transports import abc

__all__ = ["Client"]

ACK_TIMEOUT: Final = 10.0
MAX_PAGES: Final = 10_000
"""A list that has more pages than this is taken for one that never ends."""

T = TypeVar("T")


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=_Page)


class Client:
    """Talks to one server, over whatever transport.

    `open_http_client`, `open_stdio_client` and `open_memory_client` make one; it lives as long
    as their block. All methods may be called from any number of tasks at once. None has a
    timeout: put a cancel scope around a call. Cancelling a call cancels the request on the wire,
    as its transport does it.

    Each call raises what has gone wrong, and nothing else: the subclass of
    `errors.ErrorResponse` that the server answered with; `errors.ConnectionLost` where there
    will be no answer; `errors.HttpStatusError` where a status says no;
    `errors.RemoteProtocolError` where the answer cannot be understood.

    Args:
        transport: how to reach the server.
        client_info: name and version that the server is told.
        capabilities: what this client can do, as the server is told. This client answers no
            requests for input yet, so it declares nothing unless told to.
    """

    def __init__(
        self,
        transport: abc.Transport,
        *,
        client_info: types.Implementation | None = None,
        capabilities: types.ClientCapabilities | None = None,
    ) -> None:
        self._transport = transport
        self._client_info = _wire_object(client_info or _default_info())
        self._capabilities = {} if capabilities is None else _wire_object(capabilities)
        self._request_ids = itertools.count(1)
        self._listen_ids = itertools.count(1)
        self._observers = Observers()

    def __repr__(self) -> str:
        return f"<Client over {self._transport!r}>"

    @property
    def transport(self) -> abc.Transport:
        """How it reaches the server; for statistics, for instance."""
        return self._transport

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        progress: requests.ProgressHandler | None = None,
    ) -> dict[str, Any]:
        """Send any request and return its result as it came, a plain JSON object.

        The method's own `_meta` is added to what `params` has there.

        Args:
            method: for instance one of an extension.
            params: plain JSON.
            progress: awaited with each progress notification; without it none is asked for.

        Raises:
            errors.LocalProtocolError: `subscriptions/listen` does not fit here, use `listen`;
                nor do notifications.
            codec.EncodeError: the params hold what JSON cannot.
            errors.McpError: see the class.
        """
        if method == methods.LISTEN:
            raise errors.LocalProtocolError(
                "subscriptions/listen is a stream, not a request with one answer; use Client.listen"
            )
        if method.startswith("notifications/"):
            raise errors.LocalProtocolError(f"{method} is a notification; it has no answer")
        request_id = next(self._request_ids)
        return await requests.perform(
            self._transport,
            request_id,
            method,
            self._params(params or {}, None if progress is None else request_id),
            progress=progress,
            observers=self._observers,
        )

    async def discover(self) -> types.DiscoverResult:
        """Ask what the server is, which revisions it speaks and what it can do."""
        return await self._typed(types.DiscoverResult, "server/discover", {})

    async def list_tools(self, cursor: str | None = None) -> types.ListToolsResult:
        """One page of the tools; `next_cursor` of one page asks for the next."""
        return await self._typed(types.ListToolsResult, "tools/list", _page(cursor))

    async def all_tools(self) -> list[types.Tool]:
        """The tools of all pages."""
        return await _collect(self.list_tools, lambda page: page.tools)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: requests.ProgressHandler | None = None,
    ) -> types.CallToolResult:
        """Call a tool. A tool that failed is a result too, with `is_error`.

        Args:
            name: the tool.
            arguments: plain JSON.
            progress: awaited with each progress notification, one after the other; a memory
                channel's `send` will do. What it raises ends the call.
        """
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments or {})}
        return await self._typed(types.CallToolResult, "tools/call", params, progress=progress)

    async def list_resources(self, cursor: str | None = None) -> types.ListResourcesResult:
        """One page of the resources."""
        return await self._typed(types.ListResourcesResult, "resources/list", _page(cursor))

    async def all_resources(self) -> list[types.Resource]:
        """The resources of all pages."""
        return await _collect(self.list_resources, lambda page: page.resources)

    async def list_resource_templates(
        self, cursor: str | None = None
    ) -> types.ListResourceTemplatesResult:
        """One page of the resource templates."""
        return await self._typed(
            types.ListResourceTemplatesResult, "resources/templates/list", _page(cursor)
        )

    async def all_resource_templates(self) -> list[types.ResourceTemplate]:
        """The resource templates of all pages."""
        return await _collect(self.list_resource_templates, lambda page: page.resource_templates)

    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        """Read a resource; the URI is sent exactly as given."""
        return await self._typed(types.ReadResourceResult, "resources/read", {"uri": uri})

    async def list_prompts(self, cursor: str | None = None) -> types.ListPromptsResult:
        """One page of the prompts."""
        return await self._typed(types.ListPromptsResult, "prompts/list", _page(cursor))

    async def all_prompts(self) -> list[types.Prompt]:
        """The prompts of all pages."""
        return await _collect(self.list_prompts, lambda page: page.prompts)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> types.GetPromptResult:
        """Get a prompt with its arguments filled in."""
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments or {})}
        return await self._typed(types.GetPromptResult, "prompts/get", params)

    def listen(
        self,
        wanted: SubscriptionFilter,
        *,
        ack_timeout: float = ACK_TIMEOUT,
        before_event: EventHook | None = None,
    ) -> AbstractAsyncContextManager[Subscription]:
        """Follow changes: ``async with client.listen(wanted) as changes``.

        The block is entered once the server has acknowledged the subscription; what it granted
        is then in `Subscription.acknowledged`. A server may also end a subscription at once,
        granting nothing: then the block is entered all the same, and the first `receive` raises
        ``trio.EndOfChannel``. Leaving the block cancels the subscription on the wire. Any number
        may be open at once; leave their blocks in reverse order, as ``async with`` does by
        itself.

        Args:
            wanted: what to follow. It may be narrowed by the server, never widened.
            ack_timeout: seconds to wait for the acknowledgement, from when the request is out;
                `math.inf` waits for ever. An open subscription has no timeout.
            before_event: awaited with each event before it is returned by `receive`, so that,
                say, a cache forgets a resource before anybody hears that it has changed. If it
                is cancelled or raises, the event stays and is given to the next `receive`.

        Raises:
            TypeError: `wanted` is not a `SubscriptionFilter`.
            ValueError: it asks for nothing, or `ack_timeout` is not positive.
            errors.ListenNotSupported: the transport cannot carry subscriptions.
            errors.AcknowledgementTimeout: on entering; the request has been cancelled.
            errors.SubscriptionLost: on entering; the connection ended before the
                acknowledgement.
            errors.RemoteProtocolError: on entering; the acknowledgement is malformed or grants
                more than was asked for. The request has been cancelled.
            errors.McpError: on entering, what any request can raise; see the class.
        """
        if not isinstance(wanted, SubscriptionFilter):
            raise TypeError(f"expected a SubscriptionFilter, got {type(wanted).__name__}")
        if not wanted:
            raise ValueError("the filter asks for nothing")
        if not ack_timeout > 0:
            raise ValueError("ack_timeout must be positive")
        if not self._transport.can_listen:
            raise errors.ListenNotSupported("this transport cannot carry subscriptions")
        # A string, so that it can never be taken for the id of a plain request, nor for "no id".
        subscription_id = f"listen-{next(self._listen_ids)}"
        params = self._params({"notifications": wanted.to_wire()}, None)
        return open_subscription(
            self._transport,
            subscription_id,
            wanted,
            params,
            ack_timeout=ack_timeout,
            before_event=before_event,
            observers=self._observers,
        )

    async def _typed(
        self,
        cls: type[T],
        method: str,
        params: dict[str, Any],
        *,
        progress: requests.ProgressHandler | None = None,
    ) -> T:
        result = await self.request(method, params, progress=progress)
        return requests.structure_result(cls, method, result)

    def _params(
        self, params: Mapping[str, Any], progress_token: meta.ProgressToken | None
    ) -> dict[str, Any]:
        """The params with the `_meta` that every request carries."""
        own = meta.build_meta(
            version=versions.LATEST,
            client_capabilities=self._capabilities,
            client_info=self._client_info,
            progress_token=progress_token,
        )
        given = params.get("_meta")
        return {**params, "_meta": {**given, **own} if isinstance(given, Mapping) else own}


def _page(cursor: str | None) -> dict[str, Any]:
    return {} if cursor is None else {"cursor": cursor}


async def _collect(
    list_page: Callable[[str | None], Awaitable[P]], items: Callable[[P], Sequence[T]]
) -> list[T]:
    """All items of all pages.

    Raises:
        errors.RemoteProtocolError: the server leads around in a circle.
    """
    collected: list[T] = []
    cursor: str | None = None
    seen: set[str] = set()
    while True:
        page = await list_page(cursor)
        collected += items(page)
        cursor = page.next_cursor
        if cursor is None:
            return collected
        if cursor in seen or len(seen) == MAX_PAGES:
            raise errors.RemoteProtocolError("the pages of this list never end")
        seen.add(cursor)


def _wire_object(value: types.Implementation | types.ClientCapabilities) -> dict[str, Any]:
    wire = codec.unstructure(value)
    assert isinstance(wire, dict)  # noqa: S101 - for the type checker
    return wire


def _default_info() -> types.Implementation:
    try:
        version = importlib.metadata.version("mcp-trio")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return types.Implementation("mcp-trio", version)
