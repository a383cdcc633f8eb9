"""The requests that a client can make, each with the type of its result.

Source: specification, basic/index; server/discover, server/tools, server/resources,
server/prompts, server/utilities/completion.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from mcp_trio import codec, errors, types
from mcp_trio.client import requests
from mcp_trio.client.calls import Calls
from mcp_trio.client.pages import Pages
from mcp_trio.protocol import methods

__all__ = ["TypedRequests"]

T = TypeVar("T")


class TypedRequests:
    """What of a `Client` makes requests; all of them through its `Calls`."""

    _calls: Calls

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        progress: requests.ProgressHandler | None = None,
        log: requests.LogStream | None = None,
        fresh: bool = False,
    ) -> dict[str, Any]:
        """Send any request and return its result as it came, a plain JSON object.

        The protocol's own `_meta` is added to what `params` has there. If the server asks for
        input first, it is given, as for the other methods.

        Args:
            method: for instance one of an extension.
            params: plain JSON.
            progress: as for `call_tool`.
            log: as for `call_tool`.
            fresh: whether to ask the server even if a cache knows the answer.

        Raises:
            ValueError: there is no such log level.
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
        streams = requests.Streams(progress, log)
        return await self._calls.make(method, params or {}, streams, fresh=fresh)

    async def discover(self, *, fresh: bool = False) -> types.DiscoverResult:
        """Ask what the server is, which revisions it speaks and what it can do."""
        return await self._typed(types.DiscoverResult, "server/discover", {}, fresh=fresh)

    async def list_tools(
        self, cursor: str | None = None, *, fresh: bool = False
    ) -> types.ListToolsResult:
        """One page of the tools; `next_cursor` of one page asks for the next."""
        return await self._typed(types.ListToolsResult, "tools/list", _page(cursor), fresh=fresh)

    async def all_tools(self, *, fresh: bool = False) -> list[types.Tool]:
        """The tools of all pages."""
        return await self._all(self.tools, fresh)

    def tools(self, *, fresh: bool = False) -> Pages[types.Tool]:
        """The tools as a channel: ``async with client.tools() as found``."""
        fetch = functools.partial(self.list_tools, fresh=fresh)
        return Pages(fetch, lambda page: page.tools)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: requests.ProgressHandler | None = None,
        log: requests.LogStream | None = None,
    ) -> types.CallToolResult:
        """Call a tool. A tool that failed is a result too, with `is_error`.

        Args:
            name: the tool.
            arguments: plain JSON.
            progress: awaited with each progress notification, one after the other; a memory
                channel's `send` will do. What it raises ends the call. Without it none is asked
                for.
            log: a level and a handler, such as ``("info", send_channel.send)``: the handler is
                awaited with each log message of this call that is at least so grave, as
                `progress` is. Without it none is asked for.

        Raises:
            ValueError: there is no such log level.
            errors.McpError: see the class.
        """
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments or {})}
        return await self._typed(types.CallToolResult, "tools/call", params, progress, log)

    async def list_resources(
        self, cursor: str | None = None, *, fresh: bool = False
    ) -> types.ListResourcesResult:
        """One page of the resources."""
        return await self._typed(
            types.ListResourcesResult, "resources/list", _page(cursor), fresh=fresh
        )

    async def all_resources(self, *, fresh: bool = False) -> list[types.Resource]:
        """The resources of all pages."""
        return await self._all(self.resources, fresh)

    def resources(self, *, fresh: bool = False) -> Pages[types.Resource]:
        """The resources as a channel: ``async with client.resources() as found``."""
        fetch = functools.partial(self.list_resources, fresh=fresh)
        return Pages(fetch, lambda page: page.resources)

    async def list_resource_templates(
        self, cursor: str | None = None, *, fresh: bool = False
    ) -> types.ListResourceTemplatesResult:
        """One page of the resource templates."""
        return await self._typed(
            types.ListResourceTemplatesResult,
            "resources/templates/list",
            _page(cursor),
            fresh=fresh,
        )

    async def all_resource_templates(self, *, fresh: bool = False) -> list[types.ResourceTemplate]:
        """The resource templates of all pages."""
        return await self._all(self.resource_templates, fresh)

    def resource_templates(self, *, fresh: bool = False) -> Pages[types.ResourceTemplate]:
        """The resource templates as a channel, as `resources` gives the resources."""
        fetch = functools.partial(self.list_resource_templates, fresh=fresh)
        return Pages(fetch, lambda page: page.resource_templates)

    async def read_resource(
        self,
        uri: str,
        *,
        progress: requests.ProgressHandler | None = None,
        log: requests.LogStream | None = None,
        fresh: bool = False,
    ) -> types.ReadResourceResult:
        """Read a resource; the URI is sent exactly as given. For the rest see `call_tool`."""
        return await self._typed(
            types.ReadResourceResult,
            "resources/read",
            {"uri": uri},
            progress,
            log,
            fresh=fresh,
        )

    async def list_prompts(
        self, cursor: str | None = None, *, fresh: bool = False
    ) -> types.ListPromptsResult:
        """One page of the prompts."""
        return await self._typed(
            types.ListPromptsResult, "prompts/list", _page(cursor), fresh=fresh
        )

    async def all_prompts(self, *, fresh: bool = False) -> list[types.Prompt]:
        """The prompts of all pages."""
        return await self._all(self.prompts, fresh)

    def prompts(self, *, fresh: bool = False) -> Pages[types.Prompt]:
        """The prompts as a channel: ``async with client.prompts() as found``."""
        fetch = functools.partial(self.list_prompts, fresh=fresh)
        return Pages(fetch, lambda page: page.prompts)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        progress: requests.ProgressHandler | None = None,
        log: requests.LogStream | None = None,
    ) -> types.GetPromptResult:
        """Get a prompt with its arguments filled in. For the rest see `call_tool`."""
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments or {})}
        return await self._typed(types.GetPromptResult, "prompts/get", params, progress, log)

    async def complete(
        self,
        ref: types.PromptReference | types.ResourceTemplateReference,
        argument: types.CompletionArgument,
        *,
        context: Mapping[str, str] | None = None,
    ) -> types.CompleteResult:
        """Ask for values that an argument could have, given how it begins.

        Args:
            ref: the prompt or the resource template that has the argument.
            argument: its name, and what has been typed of it.
            context: the arguments that are settled already.
        """
        params = {"ref": codec.unstructure(ref), "argument": codec.unstructure(argument)}
        if context is not None:
            params["context"] = {"arguments": dict(context)}
        return await self._typed(types.CompleteResult, "completion/complete", params)

    async def _all(self, pages: Callable[..., Pages[T]], fresh: bool) -> list[T]:
        """All of a list, whose first pages may come from a cache."""
        try:
            return await pages(fresh=fresh).receive_all()
        except errors.InvalidParams:
            if fresh or not self._calls.caches:
                raise
        # The cursor of a page that was kept is of no use any more: from the beginning, then.
        return await pages(fresh=True).receive_all()

    async def _typed(
        self,
        cls: type[T],
        method: str,
        params: Mapping[str, Any],
        progress: requests.ProgressHandler | None = None,
        log: requests.LogStream | None = None,
        *,
        fresh: bool = False,
    ) -> T:
        streams = requests.Streams(progress, log)
        result = await self._calls.make(method, params, streams, fresh=fresh)
        return requests.structure_result(cls, method, result)


def _page(cursor: str | None) -> dict[str, Any]:
    return {} if cursor is None else {"cursor": cursor}
