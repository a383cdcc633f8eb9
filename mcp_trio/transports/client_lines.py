"""The client's end of a connection that carries messages as lines.

Everything that the server sends arrives in one stream. One task reads it and sorts each message
into the inbox of the exchange it belongs to. That task never waits for anybody but the server,
so whoever reads slowly, or not at all, delays only itself.

Source: specification, basic/transports/stdio; basic/patterns/cancellation.
"""

import contextlib
import functools
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import attrs
import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, lines, meta, methods
from mcp_trio.transports import abc
from mcp_trio.transports._service import RateLimitedLog, Services, open_services
from mcp_trio.transports._writer import Line, LineWriter
from mcp_trio.transports.inbox import MAX_WAITING, Inbox

__all__ = ["LineTransport", "LineTransportStatistics", "open_line_transport"]

_REMEMBERED: Final = 1024
"""How many exchanges that have been left are remembered, to pass over what comes late."""
_LAST_WORDS: Final = 0.5
"""Seconds: what was sent before a loss may still arrive, and goodbyes may still be written."""

logger = logging.getLogger("mcp_trio.transports")


@attrs.frozen
class LineTransportStatistics:
    """A snapshot of one connection.

    Attributes:
        open_exchanges: requests, subscriptions included, that have not ended.
        noise: lines that were no message a server may send.
        unrouted: messages that belonged to no open exchange.
    """

    open_exchanges: int
    noise: int
    unrouted: int


@attrs.define(eq=False, slots=True)
class _Route:
    """Where the messages of one exchange go."""

    request_id: jsonrpc.RequestId
    method: str
    token: meta.ProgressToken | None
    wants_log: bool
    inbox: Inbox
    over: bool = False
    """Answered, torn down by the server, or cancelled: there is nothing to say goodbye to."""


class LineTransport(abc.Transport):
    """One connection to a server over a pair of byte streams; see `open_line_transport`."""

    def __init__(
        self,
        receive_stream: trio.abc.ReceiveStream,
        send_stream: trio.abc.SendStream,
        *,
        kind: Literal["memory", "stdio", "http"] = "stdio",
        explain: Callable[[], Awaitable[errors.ConnectionLost]] | None = None,
        max_line: int = lines.DEFAULT_MAX_LINE,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self.kind = kind
        self._receive_stream = receive_stream
        self._writer = LineWriter(send_stream)
        self._explain = explain
        self._max_line = max_line
        self._max_waiting = max_waiting
        self._routes: dict[jsonrpc.RequestId, _Route] = {}
        self._tokens: dict[meta.ProgressToken, _Route] = {}
        self._left: OrderedDict[jsonrpc.RequestId, None] = OrderedDict()
        self._lost: errors.ConnectionLost | None = None
        self._lost_event = trio.Event()
        self._read_all = trio.Event()
        self._noise = 0
        self._unrouted = 0
        self._log = RateLimitedLog(logger)

    def statistics(self) -> LineTransportStatistics:
        """How many exchanges are open, and what had to be passed over so far."""
        return LineTransportStatistics(len(self._routes), self._noise, self._unrouted)

    @property
    def ended(self) -> bool:
        """Whether the connection is over, and so is this transport, which has no other."""
        return self._lost is not None

    async def wait_ended(self) -> errors.ConnectionLost:
        """Wait until the connection is over, and return what is known of the cause."""
        await self._lost_event.wait()
        return self._connection_lost()

    @asynccontextmanager
    async def open_exchange(
        self,
        request_id: jsonrpc.RequestId,
        method: str,
        params: dict[str, Any],
        *,
        mirrored: Mapping[str, object] = abc.NOTHING_MIRRORED,
    ) -> AsyncIterator[trio.abc.ReceiveChannel[jsonrpc.Message]]:
        """Send a request and open the channel on which everything that belongs to it arrives.

        See `Transport.open_exchange`. Leaving the block before the response sends
        ``notifications/cancelled``, without waiting for it: a server that does not read cannot
        hold the caller. What arrives for the exchange later is passed over.

        Raises:
            errors.ConnectionLost: on entering, the request could not be sent.
            errors.LocalProtocolError: the id or the progress token is already in use.
        """
        data = lines.encode_line(jsonrpc.encode_request(request_id, method, params))
        route = self._add_route(request_id, method, params)
        line = self._writer.put(data)
        del data, params
        try:
            with contextlib.suppress(trio.BrokenResourceError):
                await self._writer.wait(line)
            if line.failed:
                await self._lost_event.wait()  # why is being found out, and soon known
                raise self._connection_lost()
            route.inbox.on_close = functools.partial(self._leave, route, line)
            yield route.inbox
        finally:
            self._leave(route, line)

    def start(self, services: Services) -> None:
        """Start the two tasks of the connection."""
        services.start_soon(self._read)
        services.start_soon(self._write)

    async def flush(self) -> None:
        """Wait until what has been queued is written: goodbyes, most of all."""
        await self._writer.flush()

    def close(self) -> None:
        """Nothing is sent or received any more; whoever still waits gets `ConnectionLost`."""
        self._declare_lost(errors.ConnectionLost("the connection has been closed"))

    def _add_route(
        self, request_id: jsonrpc.RequestId, method: str, params: dict[str, Any]
    ) -> _Route:
        if self._lost is not None:
            raise self._connection_lost()
        if request_id in self._routes:
            raise errors.LocalProtocolError(f"request id {request_id!r} is already in flight")
        request_meta = params.get("_meta")
        if not isinstance(request_meta, dict):
            request_meta = {}
        token = request_meta.get(meta.PROGRESS_TOKEN)
        if not meta.is_progress_token(token):
            token = None
        elif token in self._tokens:
            raise errors.LocalProtocolError(f"progress token {token!r} is already in use")
        listens = method == methods.LISTEN
        wants_log = not listens and request_meta.get(meta.META_LOG_LEVEL) is not None
        inbox = Inbox(coalescing=listens, max_waiting=self._max_waiting)
        route = _Route(request_id, method, token, wants_log, inbox)
        self._routes[request_id] = route
        if token is not None:
            self._tokens[token] = route
        self._left.pop(request_id, None)
        return route

    def _remove_route(self, route: _Route) -> None:
        if self._routes.get(route.request_id) is route:
            del self._routes[route.request_id]
        if route.token is not None and self._tokens.get(route.token) is route:
            del self._tokens[route.token]

    def _leave(self, route: _Route, line: Line) -> None:
        """The block has been left: tell the server if it believes the request to be open."""
        self._remove_route(route)
        route.inbox.on_close = None
        route.inbox.close()
        if line.started and not route.over:
            self._cancel(route)
        self._remember(route)

    def _cancel(self, route: _Route) -> None:
        route.over = True
        # `initialize` is the one request that must not be cancelled.
        if route.method != methods.INITIALIZE and self._lost is None:
            self._writer.put(lines.encode_line(jsonrpc.encode_cancelled(route.request_id)))

    def _remember(self, route: _Route) -> None:
        self._left[route.request_id] = None
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)

    async def _write(self) -> None:
        await self._writer.run()
        # What the server wrote before it stopped reading may still be on its way.
        with trio.move_on_after(_LAST_WORDS):
            await self._read_all.wait()
        await self._lose(self._writer.cause)

    async def _read(self) -> None:
        decoder = lines.LineDecoder(self._max_line, report_ends=True)
        cause: BaseException | None = None
        ended = False
        while not ended:
            try:
                data = await self._receive_stream.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                data, cause = b"", error
            ended = not data
            for line in decoder.eof() if ended else decoder.feed(bytes(data)):
                self._sort(line)
        self._read_all.set()
        await self._lose(cause)

    async def _lose(self, cause: BaseException | None) -> None:
        """The connection is of no use any more: say why, to everybody who waits."""
        why = errors.ConnectionLost("the server has ended the connection")
        if self._lost is None and self._explain is not None:
            why = await self._explain()
        why.__cause__ = cause
        self._declare_lost(why)
        await trio.lowlevel.checkpoint()

    def _declare_lost(self, why: errors.ConnectionLost) -> None:
        if self._lost is not None:
            return
        self._lost = why
        self._lost_event.set()
        self._writer.fail(why.__cause__)
        for route in list(self._routes.values()):
            route.over = True
            route.inbox.fail(self._connection_lost())

    def _connection_lost(self) -> errors.ConnectionLost:
        if self._lost is None:
            raise AssertionError("unreachable: it is asked for once it is lost")
        return self._lost.again()

    def _sort(self, line: bytes | lines.OversizedLine) -> None:
        """Put what arrived where it belongs. What belongs nowhere is passed over."""
        if self._lost is not None:
            return  # it is read only so that the server can finish what it has to say
        if isinstance(line, lines.OversizedLine):
            self._sort_oversized(line)
            return
        try:
            message = jsonrpc.parse_server_message(line)
        except errors.RemoteProtocolError as error:
            if not self._fail(error.request_id, error):
                self._skip_noise(error)
            return
        if isinstance(message, jsonrpc.Notification):
            self._sort_notification(message)
        else:
            self._sort_response(message)

    def _sort_oversized(self, line: lines.OversizedLine) -> None:
        """If it is an answer, somebody waits for it; there will not be another."""
        what = f"a line of more than {line.limit} bytes"
        if line.end is None:
            self._skip_noise(what)
        request_id = jsonrpc.oversized_response_id(line.start, line.end)
        self._fail(request_id, errors.RemoteProtocolError(f"the server answers with {what}"))

    def _fail(
        self, request_id: jsonrpc.RequestId | None, error: errors.RemoteProtocolError
    ) -> bool:
        """The answer to a request has come and makes no sense; whether it is one of ours."""
        route = None if request_id is None else self._routes.get(request_id)
        if route is None:
            return False
        self._remove_route(route)
        route.over = True
        route.inbox.fail(error)
        return True

    def _sort_response(self, response: jsonrpc.ResultReply | jsonrpc.ErrorReply) -> None:
        if response.id is None:
            self._log.warning("the server reports an error of no particular request", response)
            return
        route = self._routes.get(response.id)
        if route is None:
            self._skip_unrouted(response.id, "a response")
            return
        self._remove_route(route)
        self._remember(route)
        route.over = True
        route.inbox.finish(response)

    def _sort_notification(self, notification: jsonrpc.Notification) -> None:
        request_id = self._subject(notification)
        route = None if request_id is None else self._routes.get(request_id)
        if route is None:
            self._skip_unrouted(request_id, notification.method)
            if request_id is None and notification.method != methods.PROGRESS:
                self._report_unrouted(notification)
            return
        if notification.method == methods.CANCELLED:
            route.over = True
        was_open = not route.inbox.ended
        route.inbox.put(notification)
        if was_open and route.inbox.ended and not route.over:
            self._cancel(route)  # it has overflowed, and the server need not go on

    def _subject(self, notification: jsonrpc.Notification) -> jsonrpc.RequestId | None:
        """The request that a notification is about, if there is such a request."""
        method, params = notification.method, notification.params
        if method == methods.PROGRESS:
            token = params.get(meta.PROGRESS_TOKEN)
            route = self._tokens.get(token) if meta.is_progress_token(token) else None
            return None if route is None else route.request_id
        if method == methods.CANCELLED:
            return self._subscription(jsonrpc.cancelled_request_id(params))
        if (request_id := meta.subscription_id(params)) is not None:
            return self._subscription(request_id)
        if method == methods.LOG_MESSAGE:
            # It does not say whose it is; with one request that asked for such, it is clear.
            candidates = [route for route in self._routes.values() if route.wants_log]
            return candidates[0].request_id if len(candidates) == 1 else None
        return None

    def _subscription(self, request_id: jsonrpc.RequestId | None) -> jsonrpc.RequestId | None:
        """The id, unless it is that of a request which is no subscription."""
        route = None if request_id is None else self._routes.get(request_id)
        return request_id if route is None or route.method == methods.LISTEN else None

    def _skip_unrouted(self, request_id: jsonrpc.RequestId | None, what: str) -> None:
        self._unrouted += 1
        late = request_id is not None and request_id in self._left
        if late or what == methods.PROGRESS:
            return  # any race allows that
        self._log.warning("dropped what belongs to no open request", what[:100])

    def _report_unrouted(self, notification: jsonrpc.Notification) -> None:
        """Tell what names no request that it could be late for."""
        if self.on_unrouted is not None:
            self.on_unrouted(notification)

    def _skip_noise(self, what: object) -> None:
        self._noise += 1
        self._log.warning("skipped a line that is no message of a server", what)


@asynccontextmanager
async def open_line_transport(
    receive_stream: trio.abc.ReceiveStream,
    send_stream: trio.abc.SendStream,
    *,
    max_line: int = lines.DEFAULT_MAX_LINE,
) -> AsyncIterator[LineTransport]:
    """Speak to a server over a pair of byte streams, such as the two halves of a Unix socket.

    Both streams belong to the block and are closed at its end. Leaving it ends the connection,
    after the cancellations of exchanges that were left have been written, for which there is
    half a second; that holds under cancellation too.

    Args:
        receive_stream: where the server's messages come from.
        send_stream: where ours go; nothing else may write to it.
        max_line: how many bytes a message may have; a longer one is passed over.
    """
    async with open_services() as services:
        transport = LineTransport(receive_stream, send_stream, max_line=max_line)
        transport.start(services)
        try:
            yield transport
        finally:
            with trio.move_on_after(_LAST_WORDS, shield=True):
                await transport.flush()
            transport.close()
            with trio.move_on_after(_LAST_WORDS, shield=True):
                await trio.aclose_forcefully(send_stream)
                await trio.aclose_forcefully(receive_stream)
