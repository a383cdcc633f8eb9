"""Tools: functions that a model may call.

Source: specification, server/tools.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from mcp_trio import codec, errors, types
from mcp_trio.protocol import jsonrpc
from mcp_trio.server import contents, failures
from mcp_trio.server.core import (
    Asked,
    Call,
    Core,
    Listing,
    encoded_reply,
    read_arguments,
    read_string,
    run_handler,
)
from mcp_trio.server.entries import describe_function, entry, function_name
from mcp_trio.server.handlers import Handler, handler_of
from mcp_trio.server.param_headers import Paths, header_paths, mirrored_values
from mcp_trio.server.raw_schema import raw_spec
from mcp_trio.server.readers import Mismatch, TypeSpec
from mcp_trio.server.schema import Builder
from mcp_trio.subscriptions.events import ToolsListChanged

__all__ = ["Tool", "Tools", "input_spec"]

logger = logging.getLogger("mcp_trio.server")

_TEXT_RESULT: Final = b'{"content":[{"type":"text","text":%b}],"resultType":"complete",%b}'
_USUAL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


@attrs.frozen
class Tool:
    """A registered tool: how it is listed, how its arguments are read, and what runs."""

    name: str
    wire: dict[str, Any]
    read: Callable[[dict[str, Any]], dict[str, Any]]
    handler: Handler
    headers: Paths = attrs.field(factory=dict)


class Tools:
    """Serves `tools/list` and `tools/call`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.listing: Listing[Tool] = Listing(
            core, "tool", "tools", ToolsListChanged(), lambda tool: tool.wire
        )
        self.registry = self.listing.registry

    def add(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        title: str | None,
        description: str | None,
        annotations: types.ToolAnnotations | None,
        icons: Sequence[types.Icon],
        meta: Mapping[str, Any] | None,
        input_schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Register a function; `Server.add_tool` has the contract."""
        handler = handler_of(function)
        name = function_name(function) if name is None else name
        if not name:
            raise ValueError("a tool needs a name")
        if not _USUAL_NAME.match(name):
            logger.warning("the tool name %r is unusual; clients may refuse it", name)
        if input_schema is None:
            spec = input_spec(name, handler)
        else:
            spec = raw_spec(input_schema, handler.shape)
        headers = header_paths(spec.schema)
        wire = entry(
            {"name": name},
            title=title,
            description=describe_function(function) if description is None else description,
            inputSchema=spec.schema,
            annotations=annotations,
            icons=icons,
            meta=meta,
        )
        codec.encode_json(wire)  # what cannot be listed is found here, not by a client
        read = spec.read
        self.registry.add(name, Tool(name, wire, lambda values: read(values, ""), handler, headers))

    def mirrored(self, params: Mapping[str, Any]) -> dict[str, object]:
        """What the headers of a `tools/call` have to say about its arguments."""
        name = params.get("name")
        tool = self.registry.get(name) if isinstance(name, str) else None
        if tool is None or not tool.headers:
            return {}
        return mirrored_values(tool.headers, params.get("arguments"))

    async def call(self, call: Call) -> jsonrpc.Reply:
        """Answer `tools/call`."""
        name = read_string(call.params, "name")
        arguments = read_arguments(call.params)
        tool = self.registry.get(name)
        if tool is None:
            raise errors.InvalidParams(f"Unknown tool: {name[:200]}")
        try:
            keywords = tool.read(arguments)
        except Mismatch as problem:
            wrong = contents.tool_error(f"Invalid arguments for {name}: {problem}")
            return jsonrpc.result_reply(call.request_id, self._core.complete(wrong))  # noqa: ASYNC910
        result = await self._run(tool, keywords, call)
        if isinstance(result, str):
            return self._text_reply(call.request_id, result)
        return jsonrpc.result_reply(call.request_id, self._core.complete(result))

    def _text_reply(self, request_id: jsonrpc.RequestId, text: str) -> jsonrpc.Reply:
        # What most tools return, so it is written at once. The other way says what is wrong.
        core = self._core
        try:
            result = _TEXT_RESULT % (codec.encode_json(text), core.encoded_meta)
        except codec.EncodeError:
            return jsonrpc.result_reply(request_id, core.complete(contents.tool_result(text)))
        return encoded_reply(request_id, result)

    async def _run(self, tool: Tool, keywords: dict[str, Any], call: Call) -> dict[str, Any] | str:
        """Run a tool; returns its result, or its text where that is all."""
        try:
            value = await run_handler(tool.handler, keywords, call, self._core)
        except errors.ErrorResponse:
            raise
        except trio.Cancelled:
            raise
        except failures.PASSING:
            raise
        except BaseException as problem:
            cause = failures.take_apart(problem)
            if isinstance(cause, errors.ErrorResponse):
                raise cause from problem
            logger.error("the tool %r failed", tool.name, exc_info=problem)
            return contents.tool_error(failures.describe(cause))  # noqa: ASYNC910
        if type(value) is str:
            return value
        if type(value) is Asked:
            return value.wire
        try:
            return contents.tool_result(value)
        except codec.EncodeError as problem:
            logger.error("the tool %r returned what JSON cannot hold: %s", tool.name, problem)
            raise errors.InternalError(f"the result cannot be sent as JSON: {problem}") from None


def input_spec(name: str, handler: Handler) -> TypeSpec:
    """The schema of a handler's arguments, and what reads them into keywords.

    Raises:
        TypeError: a parameter has a type without a JSON form.
    """
    builder = Builder()
    try:
        spec = builder.object(handler.shape.fields, dict, handler.shape.extra)
    except TypeError as problem:
        raise TypeError(f"{name}: {problem}") from problem
    if builder.definitions:
        return TypeSpec({**spec.schema, "$defs": builder.definitions}, spec.read)
    return spec
