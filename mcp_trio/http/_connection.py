"""One connection of the native listener: requests in, one after the other, and responses out.

A request is served in the task of its connection. Only when its handler begins to wait does a
second task start, which reads on: so a client that leaves is noticed at once, whatever it has
sent behind its request, and a quiet stream gets its comments.
"""

import functools
import logging
import math
import os
import select
from contextlib import suppress
from typing import Any, Final

import trio

from mcp_trio.http._connections import (
    GONE,
    LINGER,
    MAX_LINGER,
    MAX_RECEIVE,
    MAX_WAITING,
    forget_frames,
)
from mcp_trio.http._heads import BadRequestError, Request, read_parsed, read_plain
from mcp_trio.http._lazily import run_lazily
from mcp_trio.http._outlet import Outlet, socket_of
from mcp_trio.http._response import Response, encode_head
from mcp_trio.http._site import Site, text_answer
from mcp_trio.http.endpoint import Answer, Call
from mcp_trio.transports.abc import Principal

__all__ = ["serve_connection"]

MAX_REFUSED: Final = 100
"""How many connections over the limit are told so, at one time; more are just closed."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

logger: Final = logging.getLogger("mcp_trio.http.listener")
access_logger: Final = logging.getLogger("mcp_trio.http.access")


async def serve_connection(site: Site, stream: Any) -> None:
    """Serve one connection to its end. Whatever goes wrong in it goes wrong there alone."""
    connection = Connection(site, stream)
    surplus = site.add(connection)
    try:
        if surplus > 0:
            site.monitor.refused += 1
        else:
            site.monitor.accepted += 1
        if surplus > MAX_REFUSED:
            await trio.aclose_forcefully(stream)
        else:
            await connection.run(refuse=surplus > 0)
    finally:
        site.discard(connection)


class Connection:
    """One connection.

    Attributes:
        streaming: whether it carries a stream at the moment.
    """

    __slots__ = (
        "_begun",
        "_buffer",
        "_fd",
        "_gone",
        "_idle",
        "_life",
        "_linger",
        "_principal",
        "_socket",
        "_stream",
        "_watch_ended",
        "_watching",
        "outlet",
        "site",
        "streaming",
    )

    def __init__(self, site: Site, stream: Any) -> None:
        self.site = site
        self._stream = stream
        self._socket = socket_of(stream)
        self._fd = None if self._socket is None else self._socket.fileno()
        start_soon = site.nursery.start_soon
        deadline = site.limits.send_deadline
        self.outlet = Outlet(stream, self._fd, deadline, start_soon, self._on_death)
        self.streaming = False
        self._principal: Principal | None = None
        self._life = trio.CancelScope()
        self._buffer = b""
        self._idle = True
        self._begun = False
        self._gone = False
        self._linger = False
        self._watching: trio.CancelScope | None = None
        self._watch_ended: trio.Event | None = None

    async def run(self, *, refuse: bool = False) -> None:
        """Serve until the connection ends."""
        try:
            with self._life:
                if isinstance(self._stream, trio.SSLStream):
                    with trio.fail_after(self.site.limits.head_timeout):
                        await self._stream.do_handshake()
                    self._principal = self._identify()
                if refuse:
                    await self._refuse(503, "too many connections", (b"retry-after", b"1"))
                else:
                    while await self._serve_one():
                        pass
                if self._linger or self._buffer:
                    await self._wait_for_agreement()
        except GONE as problem:
            logger.debug("a connection ended: %r", problem)
        except Exception as problem:  # nobody else's trouble
            logger.warning("a connection failed: %r", problem)
            logger.debug("the connection failed here", exc_info=problem)
        finally:
            grace = 0.0 if self._gone or self.outlet.dead else LINGER
            self._gone = True
            self.outlet.close()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + grace):
                await self._stream.aclose()

    def close_if_idle(self) -> None:
        """Close the connection if it carries no request, and none has begun to come.

        One that has gets a second to be a request.
        """
        if not self._idle:
            return
        if self._begun or self._has_come():
            self._life.deadline = trio.current_time() + LINGER
        else:
            self._life.cancel()

    def _has_come(self) -> bool:
        """Whether there is something to read."""
        sock = socket_of(getattr(self._stream, "transport_stream", self._stream))
        if sock is None:
            return False
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def bytes_written(self) -> int:
        """How many bytes have been written."""
        return self.outlet.written

    def _on_death(self, *, slow: bool) -> None:
        self.site.monitor.cut += slow
        self.cut()

    def _identify(self) -> Principal | None:
        """Whom the client's certificate stands for, if it has shown one."""
        if self.site.principal_of is None:
            return None
        certificate = self._stream.getpeercert()
        return self.site.principal_of(certificate) if certificate else None

    def cut(self) -> None:
        """Close the connection, whatever it is doing; a handler sees a disconnect."""
        self._gone = True
        self.outlet.abandon()
        self._life.cancel("disconnected")

    # Requests

    async def _serve_one(self) -> bool:  # noqa: ASYNC910 (reading waits, or yields)
        """Serve the next request; whether there can be another."""
        try:
            request = await self._read_request()
            if request is None:
                return False
            self._idle = False
            request.principal = self._principal
            endpoint = self.site.endpoint_for(request)
            if endpoint is None:
                outcome: Answer | Call = self.site.page_for(request)
            else:
                if endpoint.asks_who:
                    self._life.deadline = math.inf  # that of an idle connection still stood
                outcome = await endpoint.admit(request)
            if isinstance(outcome, Answer):
                request.skip()
        except BadRequestError as bad:
            self._life.deadline = math.inf
            await self._refuse(bad.status, str(bad))
            return False  # noqa: ASYNC910 (writing is as quick as the kernel)
        method, target = request.method, request.target
        if endpoint is None or isinstance(outcome, Answer):
            assert isinstance(outcome, Answer)  # noqa: S101 (a page is nothing else)
            keep = request.keep_alive and request.complete and not self.site.closing
            await self._answer(outcome, keep_alive=keep, body=method != "HEAD")
            self._log(method, target, outcome.status)
            # A client that is still sending must be let finish, or it does not see the answer.
            self._linger = not request.complete
            if request.complete:
                self._buffer = request.leftover()
            return keep  # noqa: ASYNC910 (writing is as quick as the kernel)
        self._buffer = request.leftover()
        response = Response(self, keep_alive=request.keep_alive, is_1_0=request.is_1_0)
        # A stream must not keep alive what opened it.
        del request
        serving = endpoint.serve(outcome, response)
        del outcome
        try:
            await run_lazily(serving, functools.partial(self._start_watching, response))
        finally:
            self.streaming = False
            response.served()
            if self._watching is not None and self._watch_ended is not None:
                self._watching.cancel()
                # It waits for nothing but bytes, so this takes one turn.
                with trio.CancelScope(shield=True, deadline=trio.current_time() + LINGER):
                    await self._watch_ended.wait()
                self._watching = self._watch_ended = None
        self._log(method, target, response.status)
        return response.keep_alive  # noqa: ASYNC910

    async def _read_request(self) -> Request | None:
        """The next request; None if there is none."""
        site = self.site
        data = self._buffer
        self._buffer = b""
        if data[:2] == b"\r\n":
            data = data.lstrip(b"\r\n")
        if data:
            # Whoever has sent many requests at once shares the time with the others.
            await trio.lowlevel.checkpoint()
        else:
            self._idle = True
            if site.closing:
                return None  # noqa: ASYNC910 (after a response)
            self._expect_within(site.limits.idle_timeout)
            while not data:
                data = await self._receive()
                if not data:
                    return None
                data = data.lstrip(b"\r\n")
        request: Request | None = read_plain(data, site.limits.max_head, self._need)
        if request is None:
            seconds = LINGER if site.closing else site.limits.head_timeout
            self._life.deadline = trio.current_time() + seconds
            self._begun = True
            request = await read_parsed(data, site.limits.max_head, self._need, self._send_continue)
            self._begun = False
        if request.whole is None:
            self._life.deadline = math.inf
        return request  # noqa: ASYNC910

    def _expect_within(self, seconds: float) -> None:
        # To set a deadline costs as much as to read the head of a request. So that one is kept
        # which has most of its time to go; it stands while a request is served without waiting.
        now = trio.current_time()
        left = self._life.deadline - now
        if not 0.9 * seconds < left <= seconds:
            self._life.deadline = now + seconds

    async def _answer(  # noqa: ASYNC910 (as the outlet does)
        self, answer: Answer, *, keep_alive: bool, body: bool = True
    ) -> None:
        self.site.monitor.responses[answer.status // 100] += 1
        head = encode_head(answer.status, answer.headers, keep_alive=keep_alive)
        await self.outlet.write(head + answer.body if body else head)

    async def _refuse(  # noqa: ASYNC910 (as the outlet does)
        self, status: int, why: str, *headers: tuple[bytes, bytes]
    ) -> None:
        self._linger = True
        await self._answer(text_answer(status, why + "\n", *headers), keep_alive=False)
        self._log("-", "-", status)

    def _log(self, method: str, target: str, status: int) -> None:
        if self.site.access_log:
            peer: object = "-"
            if self._socket is not None:
                with suppress(OSError):
                    peer = self._socket.getpeername()
            access_logger.info("%s %s %s %d", peer, method, target.partition("?")[0], status)

    # Reading

    async def _receive(self) -> bytes:  # noqa: ASYNC910 (always waits)
        """What has arrived; empty at the end of the connection."""
        if self._fd is None:
            try:
                return bytes(await self._stream.receive_some(MAX_RECEIVE))  # noqa: ASYNC910
            except trio.BrokenResourceError as problem:
                forget_frames(problem)
                return b""  # noqa: ASYNC910
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                return os.read(self._fd, MAX_RECEIVE)  # noqa: ASYNC910 (after a wait)
            except BlockingIOError:
                continue
            except OSError:
                return b""

    async def _need(self) -> bytes:
        data = await self._receive()
        if not data:
            raise trio.BrokenResourceError("the client has gone")
        return data

    async def _send_continue(self) -> None:  # noqa: ASYNC910 (as the outlet does)
        await self.outlet.write(_CONTINUE)

    async def _wait_for_agreement(self) -> None:  # noqa: ASYNC910 (always waits)
        """Say that nothing more will be written, and wait a little for the client to agree.

        Closing with bytes unread resets the connection, and the client would lose what it has
        been told last.
        """
        self._life.deadline = trio.current_time() + LINGER
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(trio.socket.SHUT_WR)
        left = MAX_LINGER
        while left > 0 and (data := await self._receive()):
            left -= len(data)

    # Watching

    def _start_watching(self, response: "Response") -> None:
        self._life.deadline = math.inf
        self._watching = trio.CancelScope()
        self._watch_ended = trio.Event()
        self.site.nursery.start_soon(self._watch, response, self._watching, self._watch_ended)

    async def _watch(  # noqa: ASYNC910 (a task)
        self, response: "Response", scope: trio.CancelScope, ended: trio.Event
    ) -> None:
        try:
            with scope:
                await response.wait_gone(self._read_ahead)
                self.cut()
        except Exception as problem:  # noqa: BLE001 (nobody else's trouble)
            logger.warning("a connection failed: %r", problem)
            self.cut()
        finally:
            ended.set()

    async def _read_ahead(self) -> bool:
        """Keep what comes behind a request; whether the client has gone, or sends too much."""
        data = await self._receive()
        self._buffer += data
        return not data or len(self._buffer) > MAX_WAITING
