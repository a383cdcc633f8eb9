"""The MCP endpoint as an ASGI application, for hosts that run on Trio.

An ASGI application learns that its client has left only by waiting in `receive`. So beside each
request that is being served stands one task that waits there. It also sends the comments that
keep a quiet stream open.

Source: specification, basic/transports/streamable-http.
"""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Unpack

import trio

from mcp_trio.http._keepalive import KeptAlive, Streams, take_keepalive
from mcp_trio.http.endpoint import Answer, Endpoint, EndpointOptions, HttpRequest
from mcp_trio.http.exchange import HttpExchange, RawHeaders
from mcp_trio.protocol.headers import Headers
from mcp_trio.transports.abc import Handler, end_exchange
from mcp_trio.transports.lifespan import running

__all__ = ["asgi_app"]

logger = logging.getLogger("mcp_trio.http")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

STREAMS: Final = "mcp_trio.streams"
"""The ASGI extension by which a host of ours knows the streams that it carries."""

FAREWELL: Final = 1.0
"""Seconds that a subscription gets to send its result when the host cancels it."""

_KEPT_HEADERS: Final = frozenset({b"host", b"user-agent", b"referer"})


def asgi_app(
    handler: Handler, *, path: str = "/mcp", **options: Unpack[EndpointOptions]
) -> ASGIApp:
    """Make an ASGI application that serves a handler at one path.

    The host must run on Trio, as Hypercorn does with its Trio worker. Mount the application
    where you like; what it serves is its `path` below the mount point, and any other path is
    answered with 404. For a port that strangers can reach, `serve_hypercorn` is the safer host.

    A client that leaves cancels its request. A host that cancels a request although its client
    is there is shutting down: then a subscription gets a second to end with its result.

    Args:
        handler: the server.
        path: where the MCP endpoint is.
        options: `allowed_hosts` and `allowed_origins` (sequences of str; by default this
            machine's own names), `max_body` (bytes; by default 4 MiB), `max_arriving` (bytes of
            all bodies that are arriving; by default 256 MiB), `body_timeout` (seconds; by
            default 30), `keepalive` (seconds without a write after which a stream gets a
            comment; by default 15, and `math.inf` for never) and `authenticate` (who tells for
            whom a request stands; see `http.authentication`).

    Raises:
        ValueError: a host or origin to be allowed is malformed, or `keepalive` is not positive.
    """
    keepalive = take_keepalive(options)
    endpoint = Endpoint(handler, **options)  # type: ignore[misc]
    place = path.rstrip("/")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if _path_below_mount(scope) == place:
                await _serve_request(endpoint, keepalive, scope, receive, send)
            else:
                await _send_answer(send, Answer(404, [(b"content-length", b"0")]))
        elif scope["type"] == "lifespan":
            await _live(handler, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})
        else:
            raise NotImplementedError(f"ASGI scope {scope['type']!r}")

    return app


def _path_below_mount(scope: Scope) -> str:
    whole: str = scope["path"]
    return whole.removeprefix(scope.get("root_path", "")).rstrip("/")


async def _live(handler: Handler, receive: Receive, send: Send) -> None:
    await receive()
    stage = "startup"
    try:
        async with running(handler):
            await send({"type": "lifespan.startup.complete"})
            stage = "shutdown"
            await receive()
    except Exception as problem:
        # How a host hears of it, and stops; the traceback goes to the log, not to the wire.
        logger.exception("the lifespan failed on %s", stage)
        await send({"type": f"lifespan.{stage}.failed", "message": str(problem)})
    else:
        await send({"type": "lifespan.shutdown.complete"})


async def _send_answer(send: Send, answer: Answer) -> None:
    start = {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
    await send(start)
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


async def _serve_request(
    endpoint: Endpoint, keepalive: float, scope: Scope, receive: Receive, send: Send
) -> None:
    try:
        outcome = await endpoint.admit(_Request(scope, receive))
    except trio.BrokenResourceError:
        return  # noqa: ASYNC910 (the client has gone; there is nobody to answer)
    if isinstance(outcome, Answer):
        await _send_answer(send, outcome)
        return  # noqa: ASYNC910 (sending is as quick as the host makes it)
    async with trio.open_nursery() as nursery:
        # Not cancelled by the host but by the watcher, which is, and sets a deadline then.
        with trio.CancelScope(shield=True) as serving:
            response = _Response(scope, send, serving, nursery.cancel_scope, keepalive)
            nursery.start_soon(response.watch, receive)
            try:
                await endpoint.serve(outcome, response)
            finally:
                response.served()
        nursery.cancel_scope.cancel()


class _Request(HttpRequest):
    """The request that an ASGI scope describes."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method = scope["method"]
        self.headers = Headers(scope["headers"])
        self._receive = receive
        self._complete = False

    async def read(self) -> bytes:
        while not self._complete:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise trio.BrokenResourceError("the client has gone")
            self._complete = not message.get("more_body", False)
            piece: bytes = message.get("body", b"")
            if piece:
                return piece
        return b""  # noqa: ASYNC910 (all has been read)


class _Response(KeptAlive):
    """Writes to ASGI's `send`, and watches for what happens meanwhile."""

    __slots__ = (
        "_finishing",
        "_scope",
        "_send",
        "_serving",
        "_watching",
    )

    def __init__(
        self,
        scope: Scope,
        send: Send,
        serving: trio.CancelScope,
        watching: trio.CancelScope,
        keepalive: float,
    ) -> None:
        streams: Streams | None = scope.get("extensions", {}).get(STREAMS)
        super().__init__(keepalive, streams)
        self._scope = scope
        self._send = send
        self._serving = serving
        self._watching = watching
        self._finishing = False

    async def start(self, status: int, headers: RawHeaders) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        # The last piece itself makes a host report a disconnect, so nobody may be listening.
        self._finishing = True
        self._watching.cancel()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def opened(self, exchange: HttpExchange) -> None:
        super().opened(exchange)
        # The host keeps the scope as long as the stream; only an access log still wants this.
        self._scope["headers"] = [
            item for item in self._scope["headers"] if item[0].lower() in _KEPT_HEADERS
        ]

    async def watch(self, receive: Receive) -> None:
        """Cancel the request when its client leaves; until then, keep its stream open."""

        async def gone() -> bool:
            return bool((await receive())["type"] == "http.disconnect")

        try:
            await self.wait_gone(gone)
        except trio.Cancelled:
            if not self._finishing:
                self._host_leaves()
            raise
        except BaseException:
            self._serving.cancel()
            raise
        if not self._finishing:
            self._serving.cancel("disconnected")

    def _host_leaves(self) -> None:
        if self._exchange is not None and end_exchange(self._exchange, "shutdown"):
            self._serving.deadline = trio.current_time() + FAREWELL
        else:
            self._serving.cancel()
