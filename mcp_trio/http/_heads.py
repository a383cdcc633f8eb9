"""Reading requests: by h11, but for the plain ones that nearly all are.

h11 takes longer over a request than the rest of the server does. So a head that is complete, of
plain bytes and without any of the headers that change what a message is, is read here, by
expressions that accept less than h11's own and give the same. Everything else is h11's.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import h11
import trio

from mcp_trio.http._absolute import in_origin_form
from mcp_trio.http.endpoint import HttpRequest
from mcp_trio.protocol.headers import Headers

__all__ = ["BadRequestError", "Parsed", "Plain", "Request", "read_parsed", "read_plain"]

_LINES: Final = re.compile(
    rb"(POST|GET) (/[\x21-\x7e]*) HTTP/1\.1\r\n"
    rb"(?:[-!#$%&'*+.^_`|~0-9a-zA-Z]++:[\t\x20-\x7e]*+\r\n)++\r\n"
)
_LENGTH: Final = re.compile(r"[0-9]{1,10}")
_NOT_PLAIN: Final = frozenset({"connection", "expect", "transfer-encoding", "upgrade"})

PIECES_PER_YIELD: Final = 50
"""How many chunks of a body are read before others get a turn. A byte each, thousands of them come
in one packet, and h11 takes its time over every one."""

Receive = Callable[[], Awaitable[bytes]]


class BadRequestError(Exception):
    """A request that cannot be read; carries the status to answer with."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Request(HttpRequest):
    """A request on a connection.

    Attributes:
        target: path and query.
        keep_alive: whether another request may follow on the connection.
        is_1_0: whether the client speaks HTTP/1.0.
    """

    target: str
    keep_alive = True
    is_1_0 = False

    @property
    def complete(self) -> bool:
        """Whether the body has been read to its end."""
        raise NotImplementedError

    def leftover(self) -> bytes:
        """What has been read behind the request, when that is `complete`."""
        raise NotImplementedError

    def skip(self) -> None:
        """Pass over what is here of a body that nobody wants."""


class Plain(Request):
    """A request whose body has a length, or that has none."""

    def __init__(self, method: bytes, target: bytes, headers: Headers, length: int) -> None:
        self.method = method.decode("ascii")
        self.target = target.decode("ascii")
        self.headers = headers
        self._left = length
        self._buffer = b""
        self._receive: Receive

    def begin(self, rest: bytes, receive: Receive) -> None:
        """Take what came behind the head, and the way to more."""
        length = self._left
        self._receive = receive
        if len(rest) >= length:
            self.whole = rest[:length]
            self._left = 0
            self._buffer = rest[length:]
        else:
            self._buffer = rest

    @property
    def complete(self) -> bool:
        return not self._left

    def leftover(self) -> bytes:
        return self._buffer

    async def read(self) -> bytes:  # noqa: ASYNC910 (waits if there is something to wait for)
        if not self._left:
            return b""  # noqa: ASYNC910
        data = self._buffer or await self._receive()
        piece = data[: self._left]
        self._left -= len(piece)
        self._buffer = data[len(piece) :]
        return piece  # noqa: ASYNC910


def read_plain(data: bytes, max_head: int, receive: Receive) -> Plain | None:
    """Read a plain request; None if it is none, or its head is not all there."""
    match = _LINES.match(data, 0, max_head)
    if match is None:
        return None
    head = match[0]
    headers = Headers.parse(head[match.end(2) + 11 : -4].decode("ascii"))
    if not _NOT_PLAIN.isdisjoint(headers) or len(headers.get_all("host")) != 1:
        return None
    length = 0
    if lengths := headers.get_all("content-length"):
        if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
            return None
        length = int(lengths[0])
    request = Plain(match[1], match[2], headers, length)
    request.begin(data[len(head) :], receive)
    return request


class Parsed(Request):
    """A request that h11 reads."""

    def __init__(
        self,
        head: h11.Request,
        parser: h11.Connection,
        receive: Receive,
        send_continue: Callable[[], Awaitable[None]],
    ) -> None:
        self.method = head.method.decode("ascii")
        target, headers = in_origin_form(head.target, list(head.headers))
        self.target = target.decode("ascii")
        self.headers = Headers(headers)
        self.is_1_0 = head.http_version == b"1.0"
        closing = "close" in self.headers.get("connection", "").lower()
        # Where one sees a length and another chunks, they disagree about what comes next: RFC 9112,
        # section 6.1, wants that to be the end.
        ambiguous = "transfer-encoding" in self.headers and "content-length" in self.headers
        last = self.is_1_0 or closing or ambiguous or self.method == "CONNECT"
        self.keep_alive = not last
        self._parser = parser
        self._receive = receive
        self._send_continue = send_continue
        self._complete = False
        self._pieces = 0
        if not parser.they_are_waiting_for_100_continue:
            # Most requests without a body end with their head, whether anybody reads or not.
            self._first = _next(parser)
            self._complete = isinstance(self._first, h11.EndOfMessage)
        else:
            self._first = None

    @property
    def complete(self) -> bool:
        return self._complete

    def leftover(self) -> bytes:
        return self._parser.trailing_data[0]

    def skip(self) -> None:
        if self._complete or self._parser.they_are_waiting_for_100_continue:
            return
        event, self._first = self._first, None
        for _ in range(PIECES_PER_YIELD):
            if event is not None and not isinstance(event, h11.Data):
                break
            event = _next(self._parser)
        self._complete = isinstance(event, h11.EndOfMessage)

    async def read(self) -> bytes:  # noqa: ASYNC910 (waits if there is something to wait for)
        while not self._complete:
            event, self._first = self._first or _next(self._parser), None
            if isinstance(event, h11.Data):
                self._pieces += 1
                if not self._pieces % PIECES_PER_YIELD:
                    await trio.lowlevel.checkpoint()
                if event.data:
                    return bytes(event.data)  # noqa: ASYNC910
            elif isinstance(event, h11.EndOfMessage):
                self._complete = True
            else:
                if self._parser.they_are_waiting_for_100_continue:
                    await self._send_continue()
                    # h11 stops asking once a response has been sent, which it does not see.
                    self._parser.send(h11.InformationalResponse(status_code=100, headers=[]))
                self._parser.receive_data(await self._receive())
        return b""  # noqa: ASYNC910


async def read_parsed(
    data: bytes,
    max_head: int,
    receive: Receive,
    send_continue: Callable[[], Awaitable[None]],
) -> Parsed:
    """Read the head of any request.

    Raises:
        BadRequestError: it cannot be read.
        trio.BrokenResourceError: the client has gone.
    """
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=max_head)
    size = len(data)
    parser.receive_data(data)
    while (event := _next(parser)) is h11.NEED_DATA:
        data = await receive()
        size += len(data)
        parser.receive_data(data)
    assert isinstance(event, h11.Request)  # noqa: S101 (h11 knows no other beginning)
    if size - len(parser.trailing_data[0]) > max_head:
        raise BadRequestError(431, "the head of the request is too large")
    if event.http_version not in (b"1.1", b"1.0"):
        raise BadRequestError(505, "HTTP/1 is spoken here")
    return Parsed(event, parser, receive, send_continue)  # noqa: ASYNC910 (it was all there)


def _next(parser: h11.Connection) -> Any:
    try:
        return parser.next_event()
    except h11.RemoteProtocolError as problem:
        raise BadRequestError(problem.error_status_hint, str(problem)) from None
    except h11.LocalProtocolError as problem:  # pragma: no cover (never called out of turn)
        raise trio.BrokenResourceError from problem
