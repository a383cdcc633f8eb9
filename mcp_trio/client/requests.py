"""One plain request from a client: send it, pass its notifications on, return its result.

Source: specification, basic/index, "Responses"; basic/patterns/progress.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import trio

from mcp_trio import codec, errors, types
from mcp_trio.client.observers import Observers
from mcp_trio.protocol import exchange, jsonrpc, meta, methods
from mcp_trio.transports import abc

__all__ = [
    "LogHandler",
    "LogStream",
    "ProgressHandler",
    "Streams",
    "check_result",
    "needs_input",
    "perform",
    "structure_result",
]

logger = logging.getLogger("mcp_trio.client")

T = TypeVar("T")

ProgressHandler: TypeAlias = Callable[[types.ProgressNotificationParams], Awaitable[object]]
"""Awaited with each progress notification of a request; `MemorySendChannel.send` is one."""

LogHandler: TypeAlias = Callable[[types.LoggingMessageNotificationParams], Awaitable[object]]
"""Awaited with each log message of a request; `MemorySendChannel.send` is one."""

LogStream: TypeAlias = tuple[types.LoggingLevel, LogHandler]
"""The least grave level that is wanted, and who is given the messages."""


@attrs.frozen
class Streams:
    """Where a request's notifications go; what there is no handler for is not asked for.

    Raises:
        ValueError: there is no such log level.
    """

    progress: ProgressHandler | None = None
    log: LogStream | None = None

    def __attrs_post_init__(self) -> None:
        if self.log is not None and self.log[0] not in meta.LOG_LEVELS:
            raise ValueError(f"a log level is one of {', '.join(meta.LOG_LEVELS)}")

    def read(self, message: jsonrpc.Notification) -> "_Heard | None":
        """Who is to be given what, of a notification; None for one that nobody waits for."""
        if message.method == methods.PROGRESS and self.progress is not None:
            report = _read(types.ProgressNotificationParams, message)
            return None if report is None else (self.progress, report)
        if message.method == methods.LOG_MESSAGE and self.log is not None:
            level, handler = self.log
            said = _read(types.LoggingMessageNotificationParams, message)
            if said is not None and _gravity(said.level) >= _gravity(level):
                return handler, said
        return None


_Heard: TypeAlias = tuple[Callable[[Any], Awaitable[object]], types.Value]


async def perform(
    transport: abc.Transport,
    request_id: jsonrpc.RequestId,
    method: str,
    params: dict[str, Any],
    streams: Streams,
    observers: Observers,
    mirrored: Mapping[str, object] = abc.NOTHING_MIRRORED,
) -> dict[str, Any]:
    """Send a request and wait for its result, whose kind is checked to be one we know.

    If progress is asked for, its token must be the request's id. Messages that belong to
    something else are dropped. Cancelling cancels the request on the wire.
    """
    life = exchange.ClientExchange(
        request_id, method, progress_token=None if streams.progress is None else request_id
    )
    async with transport.open_exchange(request_id, method, params, mirrored=mirrored) as messages:
        while True:
            try:
                message = await messages.receive()
            except trio.EndOfChannel:
                raise errors.ConnectionLost(f"{method}: there will be no response") from None
            except trio.ClosedResourceError as closed:
                # The exchange is ours alone, so it was the client's own block that was left.
                raise errors.ConnectionLost(f"{method}: the client has been closed") from closed
            if life.receive(message) is not exchange.Disposition.DELIVER:
                logger.debug("%s: dropped what is not its own", method)
            elif not isinstance(message, jsonrpc.Notification):
                break
            else:
                observers.observe(message, request_id=request_id)
                if (heard := streams.read(message)) is not None:
                    handler, said = heard
                    await handler(said)
    # The block has been left in peace, so the transport can use the connection again.
    if isinstance(message, jsonrpc.ErrorReply):
        raise message.error
    result = check_result(method, message.result)
    if needs_input(result):
        _show_questions(observers, result.get("inputRequests"), request_id)
    return result


def _show_questions(observers: Observers, asked: object, request_id: jsonrpc.RequestId) -> None:
    """Let those see who follow what the server says; what makes no sense is refused elsewhere."""
    for question in asked.values() if isinstance(asked, dict) else ():
        if isinstance(question, dict) and isinstance(question.get("method"), str):
            params = question.get("params")
            shown = params if isinstance(params, dict) else {}
            observers.observe_request(question["method"], shown, request_id=request_id)


def _read(cls: type[T], message: jsonrpc.Notification) -> T | None:
    try:
        return codec.structure(cls, message.params)
    except codec.DecodeError as problem:
        logger.warning("dropped a malformed %s: %s", message.method, problem)
        return None


def _gravity(level: str) -> int:
    return meta.LOG_LEVELS.index(level)


def check_result(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Let through what is complete, and what asks for input where that is allowed.

    Raises:
        errors.RemoteProtocolError: the server asks for input for a request that cannot carry
            any, or it names a kind of result that nobody has defined.
    """
    kind = result.get("resultType", _COMPLETE)
    if kind == _COMPLETE:
        return result
    if kind != _INPUT_REQUIRED:
        raise errors.RemoteProtocolError(f"{method}: unknown resultType {str(kind)[:60]!r}")
    info = types.METHODS.get(method)
    if info is None or not info.input_required:
        raise errors.RemoteProtocolError(
            f"{method}: the server asks for input, which it must not do for this request"
        )
    return result


def needs_input(result: Mapping[str, Any]) -> bool:
    """Whether a checked result is none yet."""
    return result.get("resultType") == _INPUT_REQUIRED


def structure_result(cls: type[T], method: str, result: dict[str, Any]) -> T:
    """Give a result its type.

    What tells about a result, and is not it, may be missing or make no sense: how long it may be
    kept, and for whom. So may the `content` of a tool's result, which some servers leave out
    beside structured content. What was asked for itself has to be there: a list without its
    items is malformed, and not empty.

    Raises:
        errors.RemoteProtocolError: it is not of that type; the message says where.
    """
    try:
        return codec.structure(cls, _tolerated(cls, result))
    except codec.DecodeError as problem:
        raise errors.RemoteProtocolError(f"{method}: malformed result: {problem}") from problem


def _tolerated(cls: type[Any], result: dict[str, Any]) -> dict[str, Any]:
    """The result without hints that cannot be read, and with what may be left out."""
    if cls is types.CallToolResult and result.get("content") is None:
        result = {**result, "content": []}
    senseless = {
        hint for hint, reads in _HINTS.items() if hint in result and not reads(result[hint])
    }
    if senseless:
        logger.warning("ignored hints of a result that make no sense: %s", sorted(senseless))
        result = {name: value for name, value in result.items() if name not in senseless}
    return result


def _is_ttl(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_scope(value: object) -> bool:
    return value in ("private", "public")


_COMPLETE: Final = "complete"
_INPUT_REQUIRED: Final = "input_required"
_HINTS: Final[Mapping[str, Callable[[object], bool]]] = {"ttlMs": _is_ttl, "cacheScope": _is_scope}
