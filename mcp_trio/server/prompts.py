"""Prompts: messages that a user may choose and fill in.

Source: specification, server/prompts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from mcp_trio import errors, types
from mcp_trio.protocol import jsonrpc
from mcp_trio.server import contents
from mcp_trio.server.completion import Completer, completers_of
from mcp_trio.server.core import (
    Asked,
    Call,
    Core,
    Listing,
    read_arguments,
    read_string,
    run_handler,
)
from mcp_trio.server.entries import check_entry, describe_function, entry, function_name
from mcp_trio.server.fields import MISSING
from mcp_trio.server.handlers import Handler, handler_of
from mcp_trio.server.readers import Mismatch, Reader, read_text
from mcp_trio.server.schema import Builder
from mcp_trio.subscriptions.events import PromptsListChanged

__all__ = ["Prompt", "Prompts"]


@attrs.frozen
class Prompt:
    """A registered prompt."""

    name: str
    wire: dict[str, Any]
    handler: Handler
    readers: Mapping[str, Reader]
    required: frozenset[str]
    completers: Mapping[str, Completer | None]

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The handler's keywords for a client's arguments.

        Raises:
            errors.InvalidParams: with everything that is wrong with them.
        """
        keywords: dict[str, Any] = {}
        problems = [f"{name}: missing" for name in self.required if name not in arguments]
        for name, text in arguments.items():
            read = self.readers.get(name)
            if read is None:
                problems.append(f"{name}: unexpected")
            elif type(text) is not str:
                problems.append(f"{name}: a prompt's argument is a string")
            else:
                try:
                    keywords[name] = read_text(read, text, name)
                except Mismatch as problem:
                    problems.append(str(problem))
        if problems:
            raise errors.InvalidParams(
                f"Invalid arguments for {self.name}: {'; '.join(sorted(problems)[:10])}"
            )
        return keywords


class Prompts:
    """Serves `prompts/list` and `prompts/get`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.listing: Listing[Prompt] = Listing(
            core, "prompt", "prompts", PromptsListChanged(), lambda prompt: prompt.wire
        )
        self.registry = self.listing.registry

    def add(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        title: str | None,
        description: str | None,
        icons: Sequence[types.Icon],
        meta: Mapping[str, Any] | None,
    ) -> None:
        """Register a function; `Server.add_prompt` has the contract."""
        handler = handler_of(function)
        name = function_name(function) if name is None else name
        if handler.shape.extra is not MISSING:
            raise TypeError(f"{name}: a prompt's arguments are named one by one")
        builder = Builder()
        readers: dict[str, Reader] = {}
        arguments: list[dict[str, Any]] = []
        for field in handler.shape.fields:
            try:
                spec = builder.spec(field.annotation)
            except TypeError as problem:
                raise TypeError(f"{name}: {problem}") from problem
            readers[field.name] = spec.read
            argument: dict[str, Any] = {"name": field.name}
            if "description" in spec.schema:
                argument["description"] = spec.schema["description"]
            argument["required"] = field.default is MISSING
            arguments.append(argument)
        completers = completers_of(
            name, {field.name: field.annotation for field in handler.shape.fields}
        )
        wire = entry(
            {"name": name},
            title=title,
            description=describe_function(function) if description is None else description,
            arguments=arguments or None,
            icons=icons,
            meta=meta,
        )
        try:
            check_entry(types.Prompt, wire)
        except TypeError as problem:
            raise TypeError(f"{name}: {problem}") from None
        required = frozenset(a["name"] for a in arguments if a["required"])
        self.registry.add(name, Prompt(name, wire, handler, readers, required, completers))

    async def get(self, call: Call) -> jsonrpc.Reply:
        """Answer `prompts/get`."""
        name = read_string(call.params, "name")
        arguments = read_arguments(call.params)
        prompt = self.registry.get(name)
        if prompt is None:
            raise errors.InvalidParams(f"Unknown prompt: {name[:200]}")
        keywords = prompt.read(arguments)
        value = await run_handler(prompt.handler, keywords, call, self._core)
        if type(value) is Asked:
            return jsonrpc.result_reply(call.request_id, self._core.complete(value.wire))
        result = contents.prompt_result(value, prompt.wire.get("description"))
        return jsonrpc.result_reply(call.request_id, self._core.complete(result))
