"""Messages as lines over a pair of byte streams: pipes, a Unix socket, a TCP connection.

`serve_lines` is the server's end; the client's end, `LineTransport`, is in `client_lines`. All
requests share one connection, so each end has a reader that waits for nobody, and one task that
writes.

Source: specification, basic/transports/stdio.
"""

import logging
from collections import deque
from typing import Final, Literal

import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, lines, methods
from mcp_trio.transports import abc
from mcp_trio.transports._service import RateLimitedLog, Services, open_services
from mcp_trio.transports._writer import Line, LineWriter
from mcp_trio.transports.client_lines import LineTransport, open_line_transport
from mcp_trio.transports.lifespan import while_running

__all__ = [
    "DEFAULT_GRACE",
    "DEFAULT_MAX_IN_FLIGHT",
    "LineTransport",
    "open_line_transport",
    "serve_lines",
]

DEFAULT_GRACE: Final = 0.5
"""Seconds that requests still get when the client has ended its side, or the server must end.

A process is to be gone within one second, and an interpreter needs a good part of that to end.
"""
DEFAULT_MAX_IN_FLIGHT: Final = 1000
"""How many requests of one connection are served at once."""

logger = logging.getLogger("mcp_trio.transports")


@while_running
async def serve_lines(
    handler: abc.Handler,
    receive_stream: trio.abc.ReceiveStream,
    send_stream: trio.abc.SendStream,
    *,
    kind: Literal["memory", "stdio", "http"] = "stdio",
    principal: abc.Principal | None = None,
    drain: trio.Event | None = None,
    grace: float = DEFAULT_GRACE,
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
    max_line: int = lines.DEFAULT_MAX_LINE,
) -> None:
    """Serve one client that speaks lines, until it or we end the connection.

    * When the client ends its stream, open subscriptions end without a word, and requests that
      were read before get up to `grace` seconds to be answered.
    * When `drain` is set nothing more is read, each subscription gets its result followed by
      ``notifications/cancelled``, and requests get up to `grace` seconds.
    * When the client no longer takes what is written, everything ends at once.

    The streams are not closed. Cancelling ends the requests; this client's subscriptions get
    their results first, for which there are up to `grace` seconds if the client does not read.
    At every end but the client's own the last line may be left half written.

    Args:
        handler: the server.
        receive_stream: where the client's messages come from.
        send_stream: where ours go; nothing else may write to it.
        kind: what `Exchange.kind` says.
        principal: who the client is, where the connection knows.
        drain: set it to end the connection gracefully.
        grace: seconds that the end may take.
        max_in_flight: how many requests are served at once; one more is answered with an
            error. A subscription does not count once the server has acknowledged it: the
            server has a limit of its own for these.
        max_line: how many bytes a message may have; a longer one is answered with an error.
    """
    connection = _Connection(handler, send_stream, kind, principal, max_in_flight)
    await connection.run(receive_stream, max_line, drain, grace)


class _LineExchange(abc.Exchange):
    """One request of a connection, and its way back."""

    def __init__(self, connection: "_Connection", request: jsonrpc.Request) -> None:
        self.kind = connection.kind
        self.connection = connection
        self.principal = connection.principal
        self.request_id = request.id
        self.is_listen = request.method == methods.LISTEN
        self.scope = trio.CancelScope()
        self.acknowledged = False
        self._connection = connection
        self.is_open = True

    async def send(self, frame: bytes) -> None:
        if not self.is_open:
            await trio.lowlevel.checkpoint()  # too late, and no harm in it
            return
        await self._connection.writer.write(lines.encode_line(frame), self._may_send)

    def _may_send(self) -> bool:
        """Asked when it is a notification's turn: nothing is written after a cancellation."""
        if self.is_open and self.is_listen and not self.acknowledged:
            self.acknowledged = True
            self._connection.admitted -= 1
            if self._connection.ending:
                abc.end_exchange(self, "shutdown")
        return self.is_open

    def may_reply(self) -> bool:
        """Asked when it is the response's turn; from then on the id is free again."""
        was_open = self.is_open
        self.end()
        return was_open

    def reply_bytes(self, reply: jsonrpc.Reply) -> bytes:
        """The response, with what has to follow it."""
        data = lines.encode_line(reply.frame)
        if self.is_listen and (reply.error_code is None or self.acknowledged):
            # A stream that was open has been torn down by the server, and must be called so.
            data += lines.encode_line(jsonrpc.encode_cancelled(self.request_id))
        return data

    def end(self) -> None:
        """Nothing more may be written for it."""
        self.is_open = False
        if self._connection.open.get(self.request_id) is self:
            del self._connection.open[self.request_id]
            self._connection.changed.set()


class _Connection:
    """The server's end of one connection."""

    def __init__(
        self,
        handler: abc.Handler,
        send_stream: trio.abc.SendStream,
        kind: Literal["memory", "stdio", "http"],
        principal: abc.Principal | None,
        max_in_flight: int,
    ) -> None:
        self.kind = kind
        self.principal = principal
        self.writer = LineWriter(send_stream)
        # Only str and int are ids, no bool and no float: keys that are equal are the same id.
        self.open: dict[jsonrpc.RequestId, _LineExchange] = {}
        self.admitted = 0
        self.ending = False
        self.changed = trio.Event()
        self._handler = handler
        self._max_in_flight = max_in_flight
        self._tasks = 0
        self._refusals: deque[Line] = deque()
        self._reading = trio.CancelScope()
        self._everything = trio.CancelScope()
        self._log = RateLimitedLog(logger)

    async def run(
        self,
        receive_stream: trio.abc.ReceiveStream,
        max_line: int,
        drain: trio.Event | None,
        grace: float,
    ) -> None:
        async with open_services() as services:
            services.start_soon(self._write)
            if drain is not None:
                services.start_soon(self._stop_reading, drain)
            with self._everything:
                try:
                    with self._reading:
                        await self._read(receive_stream, max_line, services)
                except trio.Cancelled:
                    if not self._everything.cancel_called:
                        with trio.move_on_after(grace, shield=True):
                            await self._end_gracefully()
                    raise
                if drain is not None and drain.is_set():
                    with trio.move_on_after(grace):
                        await self._end_gracefully()
                        await self._finish()
                else:
                    self._end_subscriptions()
                    with trio.move_on_after(grace):
                        await self._finish()

    async def _write(self) -> None:
        await self.writer.run()
        # The client takes nothing any more. There is nobody left to serve.
        self._everything.cancel()

    async def _stop_reading(self, drain: trio.Event) -> None:
        await drain.wait()
        self._reading.cancel()

    async def _read(
        self, stream: trio.abc.ReceiveStream, max_line: int, services: Services
    ) -> None:
        """Read, parse, dispatch, and nothing else, until the stream ends."""
        decoder = lines.LineDecoder(max_line)
        while True:
            try:
                data = await stream.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            ended = not data
            # A subscription may be open for days; nothing here may keep what opened it.
            self._take(decoder.eof() if ended else decoder.feed(bytes(data)), services)
            del data
            await self._await_room_for_refusals()
            if ended:
                return

    def _take(self, received: list[bytes | lines.OversizedLine], services: Services) -> None:
        for line in received:
            if isinstance(line, lines.OversizedLine):
                self._refuse(
                    None, errors.ParseError(f"a message has at most {line.limit} bytes here")
                )
                continue
            try:
                message = jsonrpc.parse_client_message(line)
            except errors.InvalidRequest as error:
                if error.is_notification:
                    self._log.warning("ignored a malformed notification", error.message)
                else:
                    self._refuse(error.request_id, error)
            except errors.ParseError as error:
                self._refuse(None, error)
            else:
                if isinstance(message, jsonrpc.Request):
                    self._start(message, services)
                else:
                    self._notify(message)

    def _start(self, request: jsonrpc.Request, services: Services) -> None:
        if request.id in self.open:
            self._refuse(request.id, errors.InvalidRequest("a request with this id is in flight"))
        elif self.admitted >= self._max_in_flight:
            self._refuse(
                request.id, errors.ServerBusy(f"{self._max_in_flight} requests are in flight")
            )
        else:
            line_exchange = _LineExchange(self, request)
            self.open[request.id] = line_exchange
            self.admitted += 1
            self._tasks += 1
            services.start_soon(self._serve, request, line_exchange)

    def _notify(self, notification: jsonrpc.Notification) -> None:
        if notification.method != methods.CANCELLED:
            abc.notify_handler(self._handler, notification)
            return
        request_id = jsonrpc.cancelled_request_id(notification.params)
        cancelled = None if request_id is None else self.open.get(request_id)
        if cancelled is not None:
            reason = notification.params.get("reason")
            text = reason if isinstance(reason, str) else "no reason given"
            logger.debug("the client cancelled a request: %.200s", text)
            cancelled.end()
            cancelled.scope.cancel(f"cancelled by the client: {text[:200]}")

    async def _serve(self, request: jsonrpc.Request, line_exchange: _LineExchange) -> None:
        try:
            with line_exchange.scope:
                reply = await abc.call_handler(self._handler, request, line_exchange)
                data = line_exchange.reply_bytes(reply)
                await self.writer.write(data, line_exchange.may_reply)
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint()  # the writer knows, and ends the connection
        finally:
            line_exchange.end()
            self._tasks -= 1
            if not line_exchange.acknowledged:
                self.admitted -= 1
            self.changed.set()

    def _refuse(self, request_id: jsonrpc.RequestId | None, error: errors.ErrorResponse) -> None:
        reply = jsonrpc.error_reply(request_id, error)
        self._refusals.append(self.writer.put(lines.encode_line(reply.frame)))

    async def _await_room_for_refusals(self) -> None:
        """Wait while a client that does not read keeps on sending what is refused."""
        while self._refusals and self._refusals[0].settled.is_set():
            self._refusals.popleft()
        while len(self._refusals) > self._max_in_flight:
            await self._refusals.popleft().settled.wait()
        await trio.lowlevel.checkpoint()

    def _end_subscriptions(self) -> None:
        for line_exchange in list(self.open.values()):
            if line_exchange.is_listen:
                line_exchange.end()
                line_exchange.scope.cancel("the client has ended the connection")

    async def _end_gracefully(self) -> None:
        """End the subscriptions of this connection with their results, and write these."""
        self.ending = True
        exchanges = list(self.open.values())
        ending = [each for each in exchanges if abc.end_exchange(each, "shutdown")]
        while any(line_exchange.is_open for line_exchange in ending):
            await self._wait_for_change()
        await self.writer.flush()

    async def _finish(self) -> None:
        """Wait until every request has been answered and every answer written."""
        while self._tasks:
            await self._wait_for_change()
        await self.writer.flush()

    async def _wait_for_change(self) -> None:
        self.changed = trio.Event()
        await self.changed.wait()
