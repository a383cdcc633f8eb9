"""What the features of one server share: how a request reaches them and how they answer."""

import functools
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from mcp_trio import codec, errors
from mcp_trio.protocol import jsonrpc, meta
from mcp_trio.server.access import Guard
from mcp_trio.server.caching import Caching
from mcp_trio.server.context import Context
from mcp_trio.server.dependencies import provide
from mcp_trio.server.handlers import Handler, Threads
from mcp_trio.server.inputs import Asked, Inputs, NeedsInput, came_with_inputs
from mcp_trio.server.questions import InputRequired
from mcp_trio.server.registry import Registry
from mcp_trio.server.state import StateSeal
from mcp_trio.subscriptions.events import Event
from mcp_trio.transports.abc import Exchange

if TYPE_CHECKING:
    from mcp_trio.server.server import Server

__all__ = [
    "Asked",
    "Call",
    "Core",
    "Listing",
    "encoded_reply",
    "read_arguments",
    "read_string",
    "run_handler",
]

T = TypeVar("T")

_CACHED_PAGES = 64


@attrs.frozen
class Call:
    """One request on its way to a feature."""

    server: "Server"
    request_id: jsonrpc.RequestId
    method: str
    params: dict[str, Any]
    meta: meta.RequestMeta
    exchange: Exchange


@attrs.frozen
class Core:
    """What a feature needs of its server.

    Attributes:
        result_meta: the `_meta` of every result; shared, so never written to.
        page_size: how many items one page of a list holds.
        caching: how long and for whom clients may cache its results.
        threads: bounds the threads of handlers that are not async.
        changed: called with the event of each change of a registry.
        seal: seals what travels between the rounds of a request.
        input_rounds: how often one request may ask for input.
        guard: asks what a caller may use; None: everything.
        encoded_meta: the `_meta` of every result as a member of a JSON object.
    """

    result_meta: Mapping[str, Any]
    page_size: int
    caching: Caching
    threads: Threads
    changed: Callable[[Event], None]
    seal: StateSeal
    input_rounds: int
    guard: Guard | None = None
    encoded_meta: bytes = attrs.field(
        init=False,
        repr=False,
        default=attrs.Factory(
            lambda self: b'"_meta":' + codec.encode_json(self.result_meta), takes_self=True
        ),
    )

    def complete(self, result: dict[str, Any]) -> dict[str, Any]:
        """Add what every result carries, to one just made."""
        result.setdefault("resultType", "complete")
        own = result.get("_meta")
        result["_meta"] = {**self.result_meta, **own} if own else self.result_meta
        return result


class Listing(Generic[T]):
    """Serves the pages of one registry, each encoded once until the registry changes."""

    def __init__(
        self, core: Core, kind: str, key: str, event: Event, wire: Callable[[T], dict[str, Any]]
    ) -> None:
        self._core = core
        self._key = key
        self._wire = wire
        self._pages: dict[str | None, bytes] = {}
        self._generation = 0
        self.registry: Registry[T] = Registry(kind, functools.partial(core.changed, event))

    async def reply(self, call: Call) -> jsonrpc.Reply:
        """Answer a list request."""
        cursor = read_string(call.params, "cursor") if "cursor" in call.params else None
        if self._core.guard is not None:
            return await self._reply_to_one(call, cursor, self._core.guard)
        generation = self.registry.generation
        if generation != self._generation or len(self._pages) >= _CACHED_PAGES:
            self._pages.clear()
            self._generation = generation
        encoded = self._pages.get(cursor)
        if encoded is None:
            encoded = self._encode(cursor, call.method)
            self._pages[cursor] = encoded
        return encoded_reply(call.request_id, encoded)  # noqa: ASYNC910

    async def _reply_to_one(self, call: Call, cursor: str | None, guard: Guard) -> jsonrpc.Reply:
        """Answer with what this caller may see: a page can be short, and no other may have it."""
        while True:
            page = self.registry.page(cursor, self._core.page_size)
            entries = await guard.select(self._key, map(self._wire, page.items), call)
            cursor = page.next_cursor
            if entries or cursor is None:
                break
        encoded = self._encode_page(entries, cursor, call.method)
        return encoded_reply(call.request_id, encoded)

    def _encode(self, cursor: str | None, method: str) -> bytes:
        page = self.registry.page(cursor, self._core.page_size)
        entries = [self._wire(item) for item in page.items]
        return self._encode_page(entries, page.next_cursor, method)

    def _encode_page(
        self, entries: list[dict[str, Any]], next_cursor: str | None, method: str
    ) -> bytes:
        core = self._core
        result: dict[str, Any] = {self._key: entries}
        if next_cursor is not None:
            result["nextCursor"] = next_cursor
        return codec.encode_json(core.complete(core.caching.mark(result, method)))


async def run_handler(handler: Handler, keywords: dict[str, Any], call: Call, core: Core) -> Any:
    """Run a handler for a request, with its context if it asks for it.

    Returns what the handler does; an `Asked` if the client has to answer something first.

    Raises whatever the handler does. Cancelling cancels the handler, or abandons its thread.
    """
    shape = handler.shape
    if shape.context is None and not shape.dependencies:
        inputs = Inputs(call, core) if came_with_inputs(call.params) else None
        value = await handler.run(keywords, core.threads)
    else:
        inputs = Inputs(call, core)
        context = Context(call.server, call.request_id, call.meta, call.exchange, inputs)
        if shape.context is not None:
            keywords[shape.context] = context
        try:
            if shape.dependencies:
                async with AsyncExitStack() as stack:
                    await provide(handler, keywords, context, stack, {})
                    value = await handler.run(keywords, core.threads)
            else:
                value = await handler.run(keywords, core.threads)
        except NeedsInput:
            return inputs.required()  # noqa: ASYNC910
        except BaseExceptionGroup as group:
            # A handler can ask from several tasks; if one of them failed, that is what counts.
            rest = group.split(NeedsInput)[1]
            if rest is None:
                return inputs.required()  # noqa: ASYNC910
            if rest is group:
                raise
            raise rest from None
        finally:
            context.close()
    if type(value) is InputRequired:
        return (inputs or Inputs(call, core)).explicit(value)
    return value


def encoded_reply(request_id: jsonrpc.RequestId, result: bytes) -> jsonrpc.Reply:
    """A response around a result that is encoded already."""
    return jsonrpc.Reply(
        b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (codec.encode_json(request_id), result)
    )


def read_string(params: Mapping[str, Any], name: str) -> str:
    """A member of params that must be a string.

    Raises:
        errors.InvalidParams: it is missing or something else.
    """
    value = params.get(name)
    if type(value) is not str:
        raise errors.InvalidParams(f"params.{name}: a string is required")
    return value


def read_arguments(params: Mapping[str, Any]) -> dict[str, Any]:
    """The `arguments` of params; they may be absent.

    Raises:
        errors.InvalidParams: they are not an object.
    """
    arguments = params.get("arguments", _NONE)
    if type(arguments) is not dict:
        raise errors.InvalidParams("params.arguments: an object is required")
    return arguments


_NONE: dict[str, Any] = {}
