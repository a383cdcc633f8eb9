"""The way back to an HTTP client: one JSON answer, or a stream of server-sent events.

Which of the two is decided as late as it can be: the first notification opens a stream, and
what has sent none by the time it returns is answered with JSON.

Source: specification, basic/transports/streamable-http, "Receiving Messages".
"""

import abc
import math
from collections.abc import Mapping
from typing import Final, Literal

import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, media, sse
from mcp_trio.transports.abc import Exchange, Principal

__all__ = ["HttpExchange", "RawHeaders", "ResponseWriter", "json_headers", "status_of"]

RawHeaders = list[tuple[bytes, bytes]]

HEAD_DEADLINE: Final = 30.0
"""Seconds that sending the head of a stream may take; it is small, and the first thing sent."""

_STATUSES: Final = {
    errors.PARSE_ERROR: 400,
    errors.INVALID_REQUEST: 400,
    errors.METHOD_NOT_FOUND: 404,
    errors.INVALID_PARAMS: 400,
    errors.HEADER_MISMATCH: 400,
    errors.MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    errors.UNSUPPORTED_PROTOCOL_VERSION: 400,
}
_STREAM_HEADERS: Final[RawHeaders] = [
    (b"content-type", media.SSE.encode()),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_COMMENT: Final = sse.encode_comment()
_UNUSED: Final = trio.Lock()
"""Stands for the lock of an exchange that has sent nothing yet; nobody takes it."""


def status_of(reply: jsonrpc.Reply) -> int:
    """The HTTP status of an answer that is not a stream."""
    if reply.retry_after is not None:
        return 503
    return 200 if reply.error_code is None else _STATUSES.get(reply.error_code, 200)


def json_headers(reply: jsonrpc.Reply) -> RawHeaders:
    """The headers of an answer that is a JSON-RPC response."""
    headers = [
        (b"content-type", media.JSON.encode()),
        (b"content-length", b"%d" % len(reply.frame)),
    ]
    if reply.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(reply.retry_after))))
    return headers


class ResponseWriter(abc.ABC):
    """Where one response goes: what a server lends to the endpoint.

    Calls come one at a time and in order: `start`, any number of `write`, `finish`.
    """

    @abc.abstractmethod
    async def start(self, status: int, headers: RawHeaders) -> None:
        """Send the head of the response, without delay if a stream follows."""

    @abc.abstractmethod
    async def write(self, data: bytes) -> None:
        """Send a piece of the body, without delay. Never leaves half of it sent if cancelled.

        Raises:
            trio.BrokenResourceError: the client has gone, as far as the server can tell.
        """

    @abc.abstractmethod
    async def finish(self, data: bytes = b"") -> None:
        """Send the last piece of the body, which may be empty, and end the response."""

    def write_nowait(self, data: bytes) -> bool:
        """Send a piece of the body if the kernel takes it at once; whether it did."""
        return False

    def opened(self, exchange: "HttpExchange") -> None:  # noqa: B027
        """The response has become a stream.

        From now on the server calls `HttpExchange.keep_alive` whenever nothing has been written
        for a while (see `HttpExchange.last_write`).
        """


class HttpExchange(Exchange):
    """One request over HTTP, from the handler's side.

    Attributes:
        last_write: when the stream was last written to (`trio.current_time`), in seconds.
    """

    kind: Literal["http"] = "http"

    def __init__(
        self,
        response: ResponseWriter,
        accepts: media.Accepts,
        headers: Mapping[str, str],
        principal: Principal | None = None,
    ) -> None:
        self.headers = headers
        self.principal = principal
        self.last_write = -math.inf
        self._accepts = accepts
        self._response = response
        self._lock = _UNUSED
        self._open = False
        self._finished = False
        self._idle = False  # a stream is open, not finished, and nobody writes or waits for it

    async def send(self, frame: bytes) -> None:  # noqa: ASYNC910 (as the writer does)
        """Write a notification, and open the stream if this is the first.

        A client that takes no stream does not get it.

        Raises:
            trio.BrokenResourceError: the client has gone, as far as the server can tell.
            trio.ClosedResourceError: the request has been answered.
        """
        if not self._accepts.sse:
            await trio.lowlevel.checkpoint()
            return
        # The server need not yield where the kernel takes the bytes; it is cancelled here.
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._take_turn()
        try:
            if self._finished:
                raise trio.ClosedResourceError("the request has been answered")
            if not self._open:
                await self._open_stream()
            self.last_write = trio.current_time()
            await self._response.write(sse.encode_event(frame))
        finally:
            self._give_back_turn()

    def send_nowait(self, frame: bytes, now: float | None = None) -> bool:
        """Write a notification if the stream is open and idle, and needs no waiting."""
        # Called for each listener of each event, so one function and nothing that can be spared.
        if not self._idle or not self._response.write_nowait(b"data: %b\n\n" % frame):
            return False
        self.last_write = trio.current_time() if now is None else now
        return True

    async def keep_alive(self) -> None:  # noqa: ASYNC910 (as the writer does)
        """Write a comment, unless a write is under way or the stream has ended."""
        self.last_write = trio.current_time()
        if self._idle:
            await self._take_turn()
            try:
                await self._response.write(_COMMENT)
            finally:
                self._give_back_turn()

    def keep_alive_nowait(self) -> bool:
        """Write a comment if that needs no waiting; whether it was written."""
        self.last_write = trio.current_time()
        return self._idle and self._response.write_nowait(_COMMENT)

    async def finish(self, reply: jsonrpc.Reply) -> None:  # noqa: ASYNC910 (as the writer does)
        """Write the response and end the exchange."""
        if self._lock.locked():
            async with self._lock:
                pass
        self._finished, self._idle = True, False  # from here on nobody else writes
        status = status_of(reply)
        if self._open or (status == 200 and not self._accepts.json):
            if not self._open:
                await self._open_stream()
            await self._response.finish(sse.encode_event(reply.frame))
        else:
            await self._response.start(status, json_headers(reply))
            await self._response.finish(reply.frame)

    def release(self) -> None:
        """Forget the request's headers."""
        self.headers = {}

    async def _open_stream(self) -> None:  # noqa: ASYNC910 (as the writer does)
        # A head must not go out twice because a handler gave up on its first notification.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + HEAD_DEADLINE):
            await self._response.start(200, _STREAM_HEADERS)
        self._open = True
        self.last_write = trio.current_time()
        self._response.opened(self)

    async def _take_turn(self) -> None:  # noqa: ASYNC910 (nearly always at once)
        if self._lock is _UNUSED:
            self._lock = trio.Lock()
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()
        self._idle = False

    def _give_back_turn(self) -> None:
        self._lock.release()
        self._idle = self._open and not self._finished and not self._lock.locked()
