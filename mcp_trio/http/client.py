"""Streamable HTTP for a client: every request is a POST, and its answer belongs to it alone.

h11 speaks over Trio streams, without an HTTP library between: a subscription is a socket that
is read when its consumer asks, and cancelling anything is closing that socket.

Source: specification, basic/transports/streamable-http.
"""

import re
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import attrs
import trio

from mcp_trio.http import _pool, _target, _wire
from mcp_trio.http._answer import HttpAnswer
from mcp_trio.protocol import headers as protocol_headers
from mcp_trio.protocol import jsonrpc, media, meta, methods, versions
from mcp_trio.transports import abc

__all__ = [
    "DEFAULT_MAX_MESSAGE",
    "HttpAnswer",
    "HttpStatistics",
    "HttpTransport",
]

DEFAULT_MAX_MESSAGE: Final = 16 * 1024 * 1024
"""How many bytes one answer, or one event of a stream, may have."""

_REPEATABLE: Final = frozenset(
    {
        "completion/complete",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)
"""Requests that change nothing, and may be sent again when nobody can say whether they arrived."""

_OURS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        protocol_headers.METHOD_HEADER.lower(),
        protocol_headers.NAME_HEADER.lower(),
        protocol_headers.VERSION_HEADER.lower(),
    }
)
_OUR_PREFIX: Final = protocol_headers.PARAM_PREFIX.lower()
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@attrs.frozen
class HttpStatistics:
    """What a transport holds and has done.

    Attributes:
        open: connections that carry a request or a stream now.
        idle: connections that wait for another request.
        connected: connections made so far.
        requests: requests sent so far, repetitions included.
    """

    open: int
    idle: int
    connected: int
    requests: int


class HttpTransport(abc.Transport):
    """Reaches a server at an HTTP or HTTPS URL.

    Plain requests share a few kept-alive connections; each subscription has one of its own.
    An idle connection is used again for up to four seconds, and eight of them are kept. Should
    the server have closed one just then, the request goes out once more on a fresh connection,
    if it certainly did not arrive (it could not be written) or can do no harm (it only reads).
    A `tools/call` whose fate is unknown is not repeated: it fails with `errors.ConnectionLost`.

    There are no deadlines but for connecting: put a cancel scope around a request. Redirects
    are refused, as they would take the request, and its credentials, elsewhere.

    Closing is synchronous and leaves no socket open. There are no tasks behind it.

    Args:
        url: the server's endpoint.
        ssl_context: for HTTPS; made by `ssl.create_default_context` if not given, which trusts
            what the system trusts.
        headers: sent with every request; those of the protocol itself cannot be set.
        connect_timeout: seconds for a connection to be made, TLS included.
        max_message: bytes that one answer, or one event of a stream, may have.

    Raises:
        ValueError: the URL or a header cannot be used.
    """

    kind = "http"
    mirrors_params = True

    def __init__(
        self,
        url: str,
        *,
        ssl_context: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        connect_timeout: float = 10.0,
        max_message: int = DEFAULT_MAX_MESSAGE,
    ) -> None:
        self._target = _target.parse_url(url)
        self.server = self._target
        self._headers = _check_headers(headers)
        if not connect_timeout > 0:
            raise ValueError("connect_timeout must be positive")
        if max_message < 1:
            raise ValueError("max_message must be positive")
        if ssl_context is None and self._target.secure:
            ssl_context = ssl.create_default_context()
            ssl_context.set_alpn_protocols(["http/1.1"])
        self._ssl_context = ssl_context
        self._connect_timeout = connect_timeout
        self._max_message = max_message
        self._idle = _pool.IdlePool()
        self._busy: set[HttpAnswer] = set()
        self._sending: set[trio.CancelScope] = set()
        self._connected = 0
        self._requests = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<HttpTransport {self._target}>"

    @asynccontextmanager
    async def open_exchange(
        self,
        request_id: jsonrpc.RequestId,
        method: str,
        params: Mapping[str, Any],
        *,
        mirrored: Mapping[str, object] = abc.NOTHING_MIRRORED,
    ) -> AsyncGenerator[HttpAnswer]:
        """Send a request and open the channel of its answer.

        See `transports.abc.Transport.open_exchange`. Leaving the block before the response has
        come closes the socket, and touches no other request's. That takes no time, so there is
        no good-bye to shield. The block may be left in any order with others, and from another
        task.

        Raises:
            errors.ConnectionLost: nobody answers at the address, or TLS failed.
            errors.LocalProtocolError: the request cannot be expressed in HTTP headers.
            codec.EncodeError: the params hold what JSON cannot.
            trio.ClosedResourceError: the transport was closed.
        """
        frame = jsonrpc.encode_request(request_id, method, dict(params))
        headers = protocol_headers.build_param_headers(mirrored)
        async with self._post(request_id, method, params, frame, headers) as answer:
            yield answer

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, and wait until the server has accepted it.

        The protocol itself has none over HTTP; extensions may. Cancelling may leave it sent or
        not sent.

        Raises:
            errors.McpError: as for a request; for instance `errors.HttpStatusError`.
        """
        frame = jsonrpc.encode_notification(method, dict(params))
        async with self._post(None, method, params, frame) as answer:
            try:
                message = await answer.receive()
            except trio.EndOfChannel:
                return
            if isinstance(message, jsonrpc.ErrorReply):
                raise message.error

    def statistics(self) -> HttpStatistics:
        """What it holds and has done."""
        return HttpStatistics(
            open=len(self._busy),
            idle=len(self._idle),
            connected=self._connected,
            requests=self._requests,
        )

    def close(self) -> None:
        """Close every connection, those of open exchanges too, and those not yet open."""
        self._closed = True
        self._idle.close()
        for answer in list(self._busy):
            answer.close()
        for sending in self._sending:
            sending.cancel()

    @asynccontextmanager
    async def _post(
        self,
        request_id: jsonrpc.RequestId | None,
        method: str,
        params: Mapping[str, Any],
        frame: bytes,
        mirrored: Sequence[tuple[str, str]] = (),
    ) -> AsyncGenerator[HttpAnswer]:
        version = meta.read_version(params) or versions.LATEST
        headers = self._request_headers(method, params, version, len(frame))
        headers += mirrored
        listening = method == methods.LISTEN

        async def send_afresh() -> _wire.HttpConnection:
            return await self._send(headers, frame, reuse=False)

        connection = await self._send(headers, frame, reuse=not listening)
        answer = HttpAnswer(
            request_id,
            connection,
            peer=str(self._target),
            max_message=self._max_message,
            resend=send_afresh if method in _REPEATABLE else None,
        )
        self._busy.add(answer)
        try:
            yield answer
            if answer.lags and not listening:
                await answer.settle()
        finally:
            self._busy.discard(answer)
            answer.release(None if listening or self._closed else self._idle)

    async def _send(
        self, headers: list[tuple[str, str]], frame: bytes, *, reuse: bool
    ) -> _wire.HttpConnection:
        """Write a request on an idle connection or a fresh one, unless `close` is called."""
        if not self._closed:
            with trio.CancelScope() as sending:
                self._sending.add(sending)
                try:
                    connection = await self._send_request(headers, frame, reuse=reuse)
                finally:
                    self._sending.discard(sending)
                if not sending.cancel_called:
                    return connection
                connection.close()
        raise trio.ClosedResourceError("the transport was closed")

    async def _send_request(
        self, headers: list[tuple[str, str]], frame: bytes, *, reuse: bool
    ) -> _wire.HttpConnection:
        idle = self._idle.take() if reuse else None
        if idle is not None:
            try:
                await self._write(idle, headers, frame)
                return idle
            except trio.BrokenResourceError:
                # Not all of it was handed to the system, so the server cannot have acted on it.
                idle.close()
        fresh = await _target.connect(
            self._target, self._ssl_context, timeout=self._connect_timeout
        )
        self._connected += 1
        # If this fails, the server may have answered before it had read everything, say with
        # status 413. That answer is worth more than the broken pipe; reading finds either.
        with suppress(trio.BrokenResourceError):
            await self._write(fresh, headers, frame)
        return fresh

    async def _write(
        self, connection: _wire.HttpConnection, headers: list[tuple[str, str]], frame: bytes
    ) -> None:
        self._requests += 1
        try:
            await connection.send(headers, self._target.path, frame)
        except trio.BrokenResourceError:
            raise
        except BaseException:
            connection.close()
            raise

    def _request_headers(
        self, method: str, params: Mapping[str, Any], version: str, length: int
    ) -> list[tuple[str, str]]:
        return [
            ("Host", self._target.authority),
            ("Accept", f"{media.JSON}, {media.SSE}"),
            ("Accept-Encoding", "identity"),
            ("Content-Type", media.JSON),
            ("Content-Length", str(length)),
            *protocol_headers.build_headers(method, params, version),
            *self._headers,
        ]


def _check_headers(
    given: Mapping[str, str] | Iterable[tuple[str, str]],
) -> list[tuple[str, str]]:
    headers = list(given.items()) if isinstance(given, Mapping) else list(given)
    for name, value in headers:
        if not protocol_headers.is_token(name):
            raise ValueError(f"not a header name: {name!r}")
        if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIX):
            raise ValueError(f"the header {name} is the protocol's own")
        # Not shown: it may be a secret with a newline at its end.
        if not _VALUE.fullmatch(value) or value != value.strip():
            raise ValueError(f"the value of the header {name} has characters no header may have")
    if not any(name.lower() == "user-agent" for name, _ in headers):
        headers.append(("User-Agent", "mcp-trio"))
    return headers
