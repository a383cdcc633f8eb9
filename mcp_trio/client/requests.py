"""One plain request from a client: send it, pass its notifications on, return its result.

Source: specification, basic/index, "Responses"; basic/patterns/progress.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import trio

from mcp_trio import codec, errors, types
from mcp_trio.client.observers import Observers
from mcp_trio.protocol import exchange, jsonrpc, methods
from mcp_trio.transports import abc

__all__ = ["ProgressHandler", "check_result", "perform", "structure_result"]

logger = logging.getLogger("mcp_trio.client")

T = TypeVar("T")

ProgressHandler = Callable[[types.ProgressNotificationParams], Awaitable[object]]
"""Awaited with each progress notification of a request; `MemorySendChannel.send` is one."""


async def perform(
    transport: abc.Transport,
    request_id: jsonrpc.RequestId,
    method: str,
    params: dict[str, Any],
    *,
    progress: ProgressHandler | None = None,
    observers: Observers | None = None,
) -> dict[str, Any]:
    """Send a request and wait for its result, which is checked to be a complete one.

    Progress is passed on if the caller wants it; its token must be the request's id then.
    Messages that belong to something else are dropped. Cancelling cancels the request on the
    wire.
    """
    life = exchange.ClientExchange(
        request_id, method, progress_token=None if progress is None else request_id
    )
    async with transport.open_exchange(request_id, method, params) as messages:
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
                if observers is not None:
                    observers.observe(message, request_id=request_id)
                if progress is not None and message.method == methods.PROGRESS:
                    await _report(progress, message)
    # The block has been left in peace, so the transport can use the connection again.
    if isinstance(message, jsonrpc.ErrorReply):
        raise message.error
    return check_result(method, message.result)


async def _report(progress: ProgressHandler, message: jsonrpc.Notification) -> None:
    try:
        params = codec.structure(types.ProgressNotificationParams, message.params)
    except codec.DecodeError as problem:
        logger.warning("dropped a malformed progress notification: %s", problem)
        await trio.lowlevel.checkpoint()
        return
    await progress(params)


def check_result(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Let through what is complete.

    Raises:
        errors.RemoteProtocolError: the server asks for input, which this client has not said it
            could give, or it names a kind of result that nobody has defined.
    """
    kind = result.get("resultType", "complete")
    if kind == "complete":
        return result
    if kind == "input_required":
        raise errors.RemoteProtocolError(
            f"{method}: the server asks for input ({_asked_for(result)}), "
            "and this client has nobody to ask"
        )
    raise errors.RemoteProtocolError(f"{method}: unknown resultType {str(kind)[:60]!r}")


def _asked_for(result: Mapping[str, Any]) -> str:
    requests = result.get("inputRequests")
    if isinstance(requests, dict):
        methods = {
            request["method"]
            for request in requests.values()
            if isinstance(request, dict) and isinstance(request.get("method"), str)
        }
        if methods:
            return ", ".join(sorted(methods))[:200]
    return "unspecified"


def structure_result(cls: type[T], method: str, result: dict[str, Any]) -> T:
    """Give a result its type.

    Raises:
        errors.RemoteProtocolError: it is not of that type; the message says where.
    """
    try:
        return codec.structure(cls, result)
    except codec.DecodeError as problem:
        raise errors.RemoteProtocolError(f"{method}: malformed result: {problem}") from problem
