"""The answer to one POST as a channel of messages: one JSON object, or a stream of events."""

import datetime
import email.utils
import http
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import h11
import trio

from mcp_trio import codec, errors
from mcp_trio.http import _pool, _wire
from mcp_trio.protocol import jsonrpc, media, sse

__all__ = ["HttpAnswer"]

logger = logging.getLogger("mcp_trio.http")

_MAX_ERROR_BODY: Final = 64 * 1024
_MAX_INTERIM: Final = 20
_FINISH_GRACE: Final = 0.05
"""Seconds that the end of a chunked body may lag behind the response it carried."""


class HttpAnswer(trio.abc.ReceiveChannel[jsonrpc.Message]):
    """What belongs to one request, as it arrives.

    It reads from the socket when its consumer asks, and no further than what one read brought:
    a slow consumer is felt by the server, not by this program's memory.
    """

    def __init__(
        self,
        request_id: jsonrpc.RequestId | None,
        connection: _wire.HttpConnection,
        *,
        peer: str,
        max_message: int,
        resend: Callable[[], Awaitable[_wire.HttpConnection]] | None = None,
    ) -> None:
        self._request_id = request_id
        self._connection = connection
        self._peer = peer
        self._max_message = max_message
        self._resend = resend
        self._head: h11.Response | None = None
        self._interim = 0
        self._events: sse.SSEDecoder | None = None
        self._body = bytearray()
        self._pending: deque[jsonrpc.Message] = deque()
        self._failure: errors.McpError | None = None
        self._receiving = False
        self._ended = False
        self.complete: bool = False
        """Whether the response has arrived; nothing comes after it."""
        self.comments: int = 0
        """How many keep-alive comments have arrived."""
        self.comment_interval: float | None = None
        """The longest time between two of them, in seconds; None before the second."""
        self.last_heard: float = trio.current_time()
        """The moment of `trio.current_time` at which anything was read last."""
        self._last_comment: float | None = None

    async def receive(self) -> jsonrpc.Message:
        """The next message. Cancelling loses none.

        Raises:
            trio.EndOfChannel: the response has been received before.
            errors.ConnectionLost: the connection ended before the response.
            errors.HttpStatusError: the status says no, and no JSON-RPC error says why.
            errors.RemoteProtocolError: what arrived is no answer to the request.
        """
        if self._receiving:
            raise trio.BusyResourceError("another task is receiving from this exchange")
        self._receiving = True
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            waited = False
            while not self._pending:
                if self._failure is not None:
                    raise self._failure
                if self._connection.closed:
                    raise trio.ClosedResourceError("this exchange was closed")
                if self.complete:
                    raise trio.EndOfChannel
                try:
                    if not self._parse():
                        waited = True
                        await self._connection.fill()
                        self.last_heard = trio.current_time()
                except errors.ConnectionLost as lost:
                    self._failure = lost
                    await self._try_again(lost)
                except errors.McpError as problem:
                    # What one read brought along before it comes first.
                    self._failure = problem
                    if not self._pending:
                        raise
            if not waited:
                await trio.lowlevel.cancel_shielded_checkpoint()
            return self._pending.popleft()
        finally:
            self._receiving = False

    async def _try_again(self, lost: errors.ConnectionLost) -> None:
        """Send the request once more if an idle connection was closed as we reached for it.

        This happens once at most: the fresh connection has no such excuse.
        """
        if self._resend is None or self._connection.heard or not self._connection.reused:
            raise lost
        resend, self._resend = self._resend, None
        self._connection.close()
        self._connection = await resend()
        self._failure = None

    @property
    def waiting(self) -> int:
        """How many messages have arrived and were not received yet."""
        return len(self._pending)

    async def aclose(self) -> None:
        """Close the connection; to the server this is the cancellation."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """What `aclose` does, without a checkpoint."""
        self._connection.close()
        self._pending.clear()

    def release(self, pool: _pool.IdlePool | None) -> None:
        """Be done: the connection goes back to the pool if it can carry another request."""
        if pool is not None and self._ended and not self._connection.closed:
            pool.put(self._connection)
        else:
            self.close()

    @property
    def lags(self) -> bool:
        """Whether the response is there, and the end of its body is not but can be expected."""
        try:
            return self.complete and not self._skip() and self._is_delimited()
        except errors.McpError:
            # The response is there; that it was the connection's last one is no one's trouble.
            return False

    async def settle(self) -> None:
        """Wait the moment by which the end of a body may lag behind the response in it.

        After that the connection can carry another request.
        """
        with trio.move_on_after(_FINISH_GRACE), suppress(errors.McpError, trio.ClosedResourceError):
            while True:
                await self._connection.fill()
                if self._skip():
                    break
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _parse(self) -> bool:
        """Take in what has arrived; False if that is not enough to go on."""
        while not self._pending and not self.complete:
            event = self._connection.poll()
            if event is None:
                return False
            if isinstance(event, h11.Data):
                self._take(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._ended = True
                self._take_end()
            elif isinstance(event, h11.Response):
                self._take_head(event)
            else:
                self._interim += 1
                if self._interim > _MAX_INTERIM:
                    raise errors.RemoteProtocolError(f"{self._peer} sends only interim answers")
        return True

    def _skip(self) -> bool:
        """Drop what has arrived behind the response; whether that was the end of the body."""
        while not self._ended:
            event = self._connection.poll()
            if event is None:
                return False
            self._ended = isinstance(event, h11.EndOfMessage)
        return True

    def _is_delimited(self) -> bool:
        """Whether the body ends before the connection does."""
        head = self._head
        if head is None or head.http_version < b"1.1":
            return False
        if (_header(head, b"connection") or "").lower() == "close":
            return False
        return any(_header(head, name) for name in (b"transfer-encoding", b"content-length"))

    def _take_head(self, head: h11.Response) -> None:
        self._head = head
        encoding = _header(head, b"content-encoding") or "identity"
        if encoding.lower() != "identity":
            raise errors.RemoteProtocolError(
                f"{self._peer} answers with Content-Encoding {encoding}, which was not asked for"
            )
        kind = _media_type(head)
        if 200 <= head.status_code < 300:
            if self._request_id is None:
                self.complete = True  # a notification was accepted; nothing is to be read
            elif kind == media.SSE:
                self._events = sse.SSEDecoder(max_event=self._max_message)
            elif kind not in (media.JSON, ""):
                raise errors.RemoteProtocolError(f"{self._peer} answers with {kind}, not with JSON")
        elif kind not in (media.JSON, ""):
            # A page of some gateway, most likely: of no interest but for its status.
            raise self._status_error()

    def _take(self, data: bytes) -> None:
        if self._events is not None:
            for event in self._events.feed(data):
                self._take_event(event)
            return
        self._body += data
        if self._head is not None and not 200 <= self._head.status_code < 300:
            if len(self._body) > _MAX_ERROR_BODY:
                raise self._status_error()
        elif len(self._body) > self._max_message:
            raise errors.RemoteProtocolError(
                f"{self._peer} answers with more than {self._max_message} bytes"
            )

    def _take_event(self, event: sse.ServerSentEvent | sse.Comment) -> None:
        if isinstance(event, sse.Comment):
            self._take_comment()
            return
        if self.complete or event.event != "message" or not event.data.strip():
            return
        try:
            message = jsonrpc.parse_server_message(event.data)
        except errors.RemoteProtocolError:
            if not _is_request(event.data):
                raise
            # Servers of this revision send no requests, and nobody may answer one.
            logger.warning("%s sent a request on a response stream; it is dropped", self._peer)
            return
        self._deliver(message)

    def _take_comment(self) -> None:
        self.comments += 1
        last, self._last_comment = self._last_comment, self.last_heard
        # Those that one read has brought say nothing of the time between them.
        if last is not None and last < self.last_heard:
            self.comment_interval = max(self.comment_interval or 0.0, self.last_heard - last)

    def _take_end(self) -> None:
        head = self._head
        if self._events is not None:
            raise errors.ConnectionLost(f"{self._peer} ended the stream without a response")
        if head is None or not 200 <= head.status_code < 300:
            self._take_error_body()
        elif self._body.strip():
            self._deliver(jsonrpc.parse_server_message(bytes(self._body)))
            if not self.complete:
                raise errors.RemoteProtocolError(
                    f"{self._peer} answers with JSON that is not the response to this request"
                )
        else:
            raise errors.RemoteProtocolError(
                f"{self._peer} answers a request with status {head.status_code} and nothing else"
            )
        self._body.clear()

    def _take_error_body(self) -> None:
        try:
            message = jsonrpc.parse_server_message(bytes(self._body))
        except errors.RemoteProtocolError:
            raise self._status_error() from None
        if not isinstance(message, jsonrpc.ErrorReply):
            raise self._status_error()
        status = self._status_error()
        error = message.error
        if status.retry_after is not None and type(error) is errors.InternalError:
            error = errors.ServerBusy(
                error.message, retry_after=status.retry_after, data=error.data
            )
        error.__cause__ = status
        # Here, whatever id it carries or lacks, it is about the one request of this POST.
        self._finish(jsonrpc.ErrorReply(self._request_id, error))

    def _deliver(self, message: jsonrpc.Message) -> None:
        if isinstance(message, jsonrpc.Notification):
            self._pending.append(message)
        elif isinstance(message, jsonrpc.ErrorReply) and message.id is None:
            self._finish(jsonrpc.ErrorReply(self._request_id, message.error))
        elif jsonrpc.same_id(message.id, self._request_id):
            self._finish(message)
        else:
            logger.warning("%s sent the response to another request; it is dropped", self._peer)

    def _finish(self, message: jsonrpc.Message) -> None:
        self._pending.append(message)
        self.complete = True

    def _status_error(self) -> errors.HttpStatusError:
        head = self._head
        assert head is not None  # noqa: S101 - a body follows its head
        headers = {
            name.decode("ascii").lower(): value.decode("latin-1") for name, value in head.headers
        }
        status = head.status_code
        try:
            phrase = " " + http.HTTPStatus(status).phrase
        except ValueError:
            phrase = ""
        text = f"{self._peer} answers with HTTP status {status}{phrase}"
        if 300 <= status < 400:
            where = headers.get("location", "nowhere")
            text += f": redirected to {where[:200]!r}, and redirects are not followed"
        elif kind := _media_type(head):
            text += f" ({kind})"
        return errors.HttpStatusError(
            text,
            status=status,
            headers=headers,
            retry_after=_retry_after(headers.get("retry-after")),
        )


def _header(head: h11.Response, name: bytes) -> str | None:
    for key, value in head.headers:
        if key == name:
            return value.decode("latin-1").strip()
    return None


def _media_type(head: h11.Response) -> str:
    return (_header(head, b"content-type") or "").partition(";")[0].strip().lower()


def _retry_after(value: str | None) -> float | None:
    """Seconds: the header may hold them, or a date."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        # There may be any number of them.
        return min(float(value[:20]), errors.LONGEST_DELAY)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return max(0.0, (moment - datetime.datetime.now(datetime.UTC)).total_seconds())


def _is_request(data: bytes) -> bool:
    try:
        envelope = codec.decode_json(data)
    except errors.ParseError:
        return False
    return isinstance(envelope, dict) and "method" in envelope and "id" in envelope
