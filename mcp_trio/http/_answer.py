"""The answer to one POST as a channel of messages: one JSON object, or a stream of events."""

import logging
from collections import deque
from contextlib import suppress
from typing import Final

import h11
import trio

from mcp_trio import errors
from mcp_trio.http import _pool, _sender, _wire
from mcp_trio.http._encodings import BodyDecoder
from mcp_trio.http._refusal import MAX_BODY, header_of, is_refusal, media_type, status_error
from mcp_trio.protocol import jsonrpc, media, sse

__all__ = ["HttpAnswer"]

logger = logging.getLogger("mcp_trio.http")

_MAX_INTERIM: Final = 20
_FINISH_GRACE: Final = 0.05
"""Seconds that the end of a chunked body may lag behind the response it carried."""
_REFUSAL_GRACE: Final = 5.0
"""Seconds that the body of an answer may take whose status has said no."""


class HttpAnswer(trio.abc.ReceiveChannel[jsonrpc.Message]):
    """What belongs to one request, as it arrives.

    It reads from the socket when its consumer asks, and no further than what one read brought:
    a slow consumer is felt by the server, not by this program's memory.
    """

    def __init__(
        self,
        request_id: jsonrpc.RequestId | None,
        connection: _wire.HttpConnection,
        sender: _sender.Sender,
        *,
        max_message: int,
        pool: _pool.IdlePool | None,
    ) -> None:
        self._request_id = request_id
        self._sender: _sender.Sender | None = sender
        self._peer = sender.peer
        self._max_message = max_message
        self._pool = pool
        self._closed = False
        self._pending: deque[jsonrpc.Message] = deque()
        self._failure: errors.McpError | None = None
        self._receiving = False
        self.complete: bool = False
        """Whether the response has arrived; nothing comes after it."""
        self.comments: int = 0
        """How many keep-alive comments have arrived."""
        self.comment_interval: float | None = None
        """The longest time between two of them, in seconds; None before the second."""
        self.last_heard: float = trio.current_time()
        """The moment of `trio.current_time` at which anything was read last."""
        self._last_comment: float | None = None
        self._begin(connection)

    def _begin(self, connection: _wire.HttpConnection) -> None:
        """Wait for an answer on a connection, whatever came on another."""
        self._connection = connection
        self._given_back = False
        self._head: h11.Response | None = None
        self._interim = 0
        self._decoder: BodyDecoder | None = None
        self._events: sse.SSEDecoder | None = None
        self._body = bytearray()
        self._ended = False
        self._refused: errors.HttpStatusError | None = None
        self._refused_by: float | None = None

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
                if self._closed:
                    raise trio.ClosedResourceError("this exchange was closed")
                if self.complete:
                    raise trio.EndOfChannel
                try:
                    if self._refused is not None:
                        await self._take_refusal(self._refused)
                    elif not self._parse():
                        waited = True
                        await self._fill()
                except errors.McpError as problem:
                    await self._take_failure(problem)
            if not waited:
                await trio.lowlevel.cancel_shielded_checkpoint()
            return self._pending.popleft()
        finally:
            self._receiving = False

    async def _fill(self) -> None:
        """Wait until more has arrived."""
        if self._refused_by is None:
            await self._connection.fill()
        else:
            with trio.move_on_at(self._refused_by) as waiting:
                await self._connection.fill()
            if waiting.cancelled_caught:
                self._refuse()
        self.last_heard = trio.current_time()

    async def _take_failure(self, problem: errors.McpError) -> None:
        """Something has gone wrong while an answer was read."""
        if self._refused is None and self._head is not None and is_refusal(self._head):
            self._refuse()  # whatever it is: the answer was no
            return  # noqa: ASYNC910 - reading has yielded
        self._failure = problem
        if self._pending:
            return  # noqa: ASYNC910 - what one read brought along before it comes first
        if self._sender is None or not self._sender.makes_good(problem, self._connection):
            raise problem
        self._connection.close()
        self._resume(await self._sender.send_again())
        self._failure = None

    async def _take_refusal(self, refused: errors.HttpStatusError) -> None:  # noqa: ASYNC910
        """Send the request again if that is the answer to the refusal, or accept it."""
        if self._sender is not None and self._sender.has_answer(refused):
            self._give_back()
            connection = await self._sender.answer(refused)
            if connection is not None:
                self._resume(connection)
                return
        self._refused = None
        error = self._read_error(refused)
        if error is None:
            self._failure = refused
            raise refused
        # Here, whatever id it carries or lacks, it is about the one request of this POST.
        self._finish(jsonrpc.ErrorReply(self._request_id, error))

    def _resume(self, connection: _wire.HttpConnection) -> None:
        if self._closed:
            connection.close()
            raise trio.ClosedResourceError("this exchange was closed")
        self._begin(connection)

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
        if not self._given_back:
            self._connection.close()
        self._closed = True
        self._pending.clear()

    def release(self) -> None:
        """Be done: another request may have the connection, if it can carry one."""
        if not self._given_back and not self._closed:
            self._give_back()
        self.close()

    def _give_back(self) -> None:
        self._given_back = True
        if self._ended and self._pool is not None:
            self._pool.put(self._connection)
        else:
            self._connection.close()

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
        while not self._pending and not self.complete and self._refused is None:
            if self._decoder is not None and (piece := self._decoder.piece()):
                self._take(piece)
                continue
            event = self._connection.poll()
            if event is None:
                return False
            if isinstance(event, h11.Data):
                if self._decoder is None:
                    self._take(bytes(event.data))
                else:
                    self._decoder.feed(bytes(event.data))
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
        if (header_of(head, b"connection") or "").lower() == "close":
            return False
        return any(header_of(head, name) for name in (b"transfer-encoding", b"content-length"))

    def _take_head(self, head: h11.Response) -> None:
        self._head = head
        kind = media_type(head)
        encoding = header_of(head, b"content-encoding") or "identity"
        if encoding.lower() != "identity":
            self._decoder = BodyDecoder(encoding, self._peer)
        if is_refusal(head):
            self._refused_by = trio.current_time() + _REFUSAL_GRACE
            return
        if self._sender is not None:
            self._sender.forget()
            self._sender = None
        if self._request_id is None:
            self.complete = True  # a notification was accepted; nothing is to be read
        elif kind == media.SSE:
            self._events = sse.SSEDecoder(max_event=self._max_message)
        elif kind not in (media.JSON, ""):
            raise errors.RemoteProtocolError(f"{self._peer} answers with {kind}, not with JSON")

    def _take(self, data: bytes) -> None:
        if self._events is not None:
            for event in self._events.feed(data):
                self._take_event(event)
            return
        self._body += data
        if self._refused_by is not None:
            if len(self._body) > MAX_BODY:
                self._refuse()
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
            if not jsonrpc.is_request(event.data):
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
        if head is None or is_refusal(head):
            self._refuse()
            return
        if self._decoder is not None:
            self._decoder.end()
        if self._events is not None:
            raise errors.ConnectionLost(f"{self._peer} ended the stream without a response")
        if self._body.strip():
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

    def _refuse(self) -> None:
        """No more is read of an answer whose status says no."""
        assert self._head is not None  # noqa: S101 - a body follows its head
        self._refused = status_error(self._peer, self._head, self._body)

    def _read_error(self, status: errors.HttpStatusError) -> errors.ErrorResponse | None:
        """The JSON-RPC error in the body of a refusal, if there is one."""
        try:
            message = jsonrpc.parse_server_message(bytes(self._body))
        except errors.RemoteProtocolError:
            return None
        if not isinstance(message, jsonrpc.ErrorReply):
            return None
        error = message.error
        if status.retry_after is not None and type(error) is errors.InternalError:
            error = errors.ServerBusy(
                error.message, retry_after=status.retry_after, data=error.data
            )
        error.__cause__ = status
        return error

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
