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
from mcp_trio.protocol.param_headers import Paths, header_paths, mirrored_values
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
from mcp_trio.server.entries import check_entry, describe_function, entry, function_name
from mcp_trio.server.handlers import Handler, handler_of
from mcp_trio.server.outputs import Output, output_of
from mcp_trio.server.raw_schema import raw_spec
from mcp_trio.server.readers import Mismatch, TypeSpec
from mcp_trio.server.schema import Builder
from mcp_trio.server.writing import to_json
from mcp_trio.subscriptions.events import ToolsListChanged

__all__ = ["Tool", "Tools", "input_spec"]

logger = logging.getLogger("mcp_trio.server")

_TEXT_RESULT: Final = b'{"content":[{"type":"text","text":%b}],"resultType":"complete",%b}'
_STRUCTURED_RESULT: Final = (
    b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"resultType":"complete",%b}'
)
_USUAL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


@attrs.frozen
class Tool:
    """A registered tool: how it is listed, how its arguments are read, and what runs.

    Attributes:
        headers: the arguments that HTTP clients repeat in headers.
        output: what it promises about its structured content, if anything.
    """

    name: str
    wire: dict[str, Any]
    read: Callable[[dict[str, Any]], dict[str, Any]]
    handler: Handler
    headers: Paths = attrs.field(factory=dict)
    output: Output | None = None


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
        output_schema: Mapping[str, Any] | bool | None = None,
    ) -> None:
        """Register a function; `Server.add_tool` has the contract."""
        if not isinstance(annotations, types.ToolAnnotations | None):
            raise TypeError(f"annotations are ToolAnnotations, not {annotations!r}")
        handler = handler_of(function)
        name = function_name(function) if name is None else name
        if not isinstance(name, str):
            raise TypeError(f"the name of a tool is a string, not {name!r}")
        if not name:
            raise ValueError("a tool needs a name")
        if not _USUAL_NAME.match(name):
            logger.warning("the tool name %r is unusual; clients may refuse it", name)
        try:
            if input_schema is None:
                spec = input_spec(handler)
            else:
                spec = raw_spec(input_schema, handler.shape)
            headers = header_paths(spec.schema)
            output = output_of(function, output_schema)
            wire = entry(
                {"name": name},
                title=title,
                description=describe_function(function) if description is None else description,
                inputSchema=spec.schema,
                outputSchema=None if output is None else output.schema,
                annotations=annotations,
                icons=icons,
                meta=meta,
            )
            check_entry(types.Tool, wire)
        except TypeError as problem:
            raise TypeError(f"{name}: {problem}") from problem
        read = spec.read
        self.registry.add(
            name, Tool(name, wire, lambda values: read(values, ""), handler, headers, output)
        )

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
        if isinstance(result, bytes):
            return encoded_reply(call.request_id, result)
        return jsonrpc.result_reply(call.request_id, self._core.complete(result))

    def _encode_text(self, text: str) -> dict[str, Any] | bytes:
        # What most tools return, so it is written at once. The other way says what is wrong.
        try:
            return _TEXT_RESULT % (codec.encode_json(text), self._core.encoded_meta)
        except codec.EncodeError:
            return contents.tool_result(text)

    def _encode_structured(self, tool: Tool, value: Any) -> bytes:
        """A value, once as it is and once as text for clients that look at the blocks only."""
        output = tool.output
        structured = to_json(value) if output is None else output.to_json(value)
        encoded = codec.encode_json(structured)
        if output is not None:
            output.check(structured)
        text = codec.encode_json(encoded.decode())
        return _STRUCTURED_RESULT % (text, encoded, self._core.encoded_meta)

    async def _run(
        self, tool: Tool, keywords: dict[str, Any], call: Call
    ) -> dict[str, Any] | bytes:
        """Run a tool; returns its result, or all of it that is sent."""
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
        if type(value) is Asked:
            return value.wire
        try:
            return self._result(tool, value)
        except errors.InternalError as problem:
            logger.error("the tool %r: %s", tool.name, problem)
            raise
        except codec.EncodeError as problem:
            logger.error("the tool %r returned what JSON cannot hold: %s", tool.name, problem)
            raise errors.InternalError(f"the result cannot be sent as JSON: {problem}") from None

    def _result(self, tool: Tool, value: Any) -> dict[str, Any] | bytes:
        output = tool.output
        if isinstance(value, types.CallToolResult):
            result = contents.tool_result(value)
            if output is not None and not value.is_error:
                structured = result.get("structuredContent")
                codec.encode_json(structured)
                output.check(structured)
            return result
        if output is not None:
            return self._encode_structured(tool, value)
        if type(value) is str:
            return self._encode_text(value)
        if contents.is_content(value):
            return contents.tool_result(value)
        return self._encode_structured(tool, value)


def input_spec(handler: Handler) -> TypeSpec:
    """The schema of a handler's arguments, and what reads them into keywords.

    Raises:
        TypeError: a parameter has a type without a JSON form.
    """
    builder = Builder()
    return builder.root(builder.object(handler.shape.fields, dict, handler.shape.extra))
