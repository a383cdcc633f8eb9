"""The writing of one response on a connection of the native listener."""

import email.utils
import functools
import http
import time
from contextlib import suppress
from typing import Final, Protocol

import trio

from mcp_trio.http._keepalive import KeptAlive
from mcp_trio.http._outlet import Outlet
from mcp_trio.http._site import Site
from mcp_trio.http.exchange import HttpExchange, RawHeaders

__all__ = ["Response", "encode_head"]

_LAST_CHUNK: Final = b"0\r\n\r\n"


class Carrier(Protocol):
    """What a response needs of its connection."""

    site: Site
    outlet: Outlet
    streaming: bool


class Response(KeptAlive):
    """Writes one response.

    Attributes:
        keep_alive: whether another request may follow.
        status: of the response, 0 before it is known.
    """

    __slots__ = ("_connection", "_framed", "_head", "_is_1_0", "_outlet", "keep_alive", "status")

    def __init__(self, connection: Carrier, *, keep_alive: bool, is_1_0: bool) -> None:
        super().__init__(connection.site.keepalive, connection.site.streams)
        self.keep_alive = keep_alive
        self.status = 0
        self._connection = connection
        self._outlet = connection.outlet
        self._framed = False
        self._is_1_0 = is_1_0
        self._head = b""

    async def start(self, status: int, headers: RawHeaders) -> None:  # noqa: ASYNC910
        # Head and body leave in one piece: whoever starts goes on at once.
        self.status = status
        self._connection.site.monitor.responses[status // 100] += 1
        self.keep_alive = self.keep_alive and not self._connection.site.closing
        sized = any(name == b"content-length" for name, _ in headers)
        if not sized and not self._is_1_0:
            self._framed = True
            headers = [*headers, (b"transfer-encoding", b"chunked")]
        self._head = encode_head(status, headers, keep_alive=self.keep_alive)

    async def write(self, data: bytes) -> None:  # noqa: ASYNC910 (as the outlet does)
        await self._outlet.write(self._piece(data))
        self._head = b""

    def write_nowait(self, data: bytes) -> bool:
        # The head goes with the first notification, which is never written this way.
        if self._framed:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        return self._outlet.write_nowait(data)

    async def finish(self, data: bytes = b"") -> None:  # noqa: ASYNC910 (as the outlet does)
        piece = self._piece(data) if data else self._head
        await self._outlet.write(piece + _LAST_CHUNK if self._framed else piece)

    def opened(self, exchange: HttpExchange) -> None:
        super().opened(exchange)
        self._connection.streaming = True

    async def comment(self, exchange: HttpExchange) -> None:
        """Write a comment; in a task of its own if it waits, for who watches must read on."""
        if not exchange.keep_alive_nowait():
            self._connection.site.nursery.start_soon(self._comment, exchange)
        await trio.lowlevel.checkpoint()

    async def _comment(self, exchange: HttpExchange) -> None:  # noqa: ASYNC910 (a task)
        with suppress(trio.BrokenResourceError):
            await exchange.keep_alive()

    def _piece(self, data: bytes) -> bytes:
        if self._framed:
            return b"%b%x\r\n%b\r\n" % (self._head, len(data), data)
        return self._head + data


def encode_head(status: int, headers: RawHeaders, *, keep_alive: bool) -> bytes:
    """The head of a response."""
    lines = [_status_line(status), _date_line(int(time.time()))]
    lines += [b"%b: %b\r\n" % header for header in headers]
    lines.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    return b"".join(lines)


@functools.lru_cache(maxsize=64)
def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b\r\n" % (status, http.HTTPStatus(status).phrase.encode("ascii"))


@functools.lru_cache(maxsize=1)
def _date_line(now: int) -> bytes:
    return b"date: %b\r\n" % email.utils.formatdate(now, usegmt=True).encode("ascii")
