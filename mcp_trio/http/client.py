"""Streamable HTTP for a client: every request is a POST, and its answer belongs to it alone.

h11 speaks over Trio streams, without an HTTP library between: a subscription is a socket that
is read when its consumer asks, and cancelling anything is closing that socket.

Source: specification, basic/transports/streamable-http.
"""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from mcp_trio.http import _outgoing, _proxy, _target
from mcp_trio.http._answer import HttpAnswer
from mcp_trio.http._connecting import Connecting
from mcp_trio.http._sender import Sender
from mcp_trio.protocol import jsonrpc
from mcp_trio.protocol.credentials import Auth
from mcp_trio.transports import abc

__all__ = [
    "DEFAULT_MAX_CONNECTIONS",
    "DEFAULT_MAX_MESSAGE",
    "HttpAnswer",
    "HttpStatistics",
    "HttpTransport",
]

DEFAULT_MAX_MESSAGE: Final = 16 * 1024 * 1024
"""How many bytes one answer, or one event of a stream, may have."""

DEFAULT_MAX_CONNECTIONS: Final = 100
"""How many plain requests may be under way at a time."""


@attrs.frozen
class HttpStatistics:
    """What a transport holds and has done.

    Attributes:
        open: connections that carry a request or a stream now.
        idle: connections that wait for another request.
        waiting: requests that wait for one of the others to be over.
        connected: connections made so far.
        requests: requests sent so far, repetitions included.
    """

    open: int
    idle: int
    waiting: int
    connected: int
    requests: int


class HttpTransport(abc.Transport):
    """Reaches a server at an HTTP or HTTPS URL.

    Plain requests share a few kept-alive connections; each subscription has one of its own.
    An idle connection is used again for up to four seconds, and eight of them are kept. Should
    the server have closed one just then, the request goes out once more on a fresh connection,
    if it certainly did not arrive (it could not be written) or can do no harm (it only reads).
    A `tools/call` whose fate is unknown is not repeated: it fails with `errors.ConnectionLost`.

    There are no deadlines but for connecting: put a cancel scope around a request. A redirection
    is followed if it repeats the request (status 307 or 308) within the origin, five times at
    most; any other is refused, as it would take the request, and its credentials, elsewhere.

    Closing is synchronous and leaves no socket open. There are no tasks behind it.

    Args:
        url: the server's endpoint.
        ssl_context: for HTTPS; made by `ssl.create_default_context` if not given, which trusts
            what the system trusts. One with a certificate loaded shows it to the server.
        headers: sent with every request; those of the protocol itself cannot be set.
        auth: gives further headers for each request; see `protocol.credentials.Auth`.
        proxy: the URL of an HTTP proxy, with a user name and password if it wants them; True for
            what `http_proxy`, `https_proxy` and `no_proxy` say in the environment now; None for
            no proxy.
        connect_timeout: seconds for a connection to be made, TLS included.
        max_connections: how many plain requests may be under way at a time; others wait for
            their turn. Subscriptions do not count, and are not limited.
        max_message: bytes that one answer, or one event of a stream, may have, once it is
            decompressed.

    Raises:
        ValueError: the URL, a header or the proxy cannot be used.
    """

    kind = "http"
    mirrors_params = True

    def __init__(
        self,
        url: str,
        *,
        ssl_context: ssl.SSLContext | None = None,
        headers: _outgoing.Given = (),
        auth: Auth | None = None,
        proxy: _proxy.ProxyOption = True,
        connect_timeout: float = 10.0,
        max_connections: int = DEFAULT_MAX_CONNECTIONS,
        max_message: int = DEFAULT_MAX_MESSAGE,
    ) -> None:
        self._target = _target.parse_url(url)
        self.server = self._target
        self._headers = _outgoing.check_headers(headers)
        if not any(name.lower() == "user-agent" for name, _ in self._headers):
            self._headers.append(("User-Agent", "mcp-trio"))
        if not connect_timeout > 0:
            raise ValueError("connect_timeout must be positive")
        if max_connections < 1:
            raise ValueError("max_connections must be positive")
        if max_message < 1:
            raise ValueError("max_message must be positive")
        if ssl_context is None and self._target.secure:
            ssl_context = ssl.create_default_context()
            ssl_context.set_alpn_protocols(["http/1.1"])
        self._auth = auth
        self.one_principal = auth is None
        self._max_message = max_message
        self._connecting = Connecting(
            self._target,
            ssl_context,
            proxy=_proxy.choose_proxy(proxy, self._target),
            timeout=connect_timeout,
            max_connections=max_connections,
        )
        self._busy: set[HttpAnswer] = set()

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
        sender = self._sender(method, params, frame, mirrored)
        del params, frame, mirrored
        async with self._post(request_id, sender) as answer:
            yield answer

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, and wait until the server has accepted it.

        The protocol itself has none over HTTP; extensions may. Cancelling may leave it sent or
        not sent.

        Raises:
            errors.McpError: as for a request; for instance `errors.HttpStatusError`.
        """
        frame = jsonrpc.encode_notification(method, dict(params))
        sender = self._sender(method, params, frame, abc.NOTHING_MIRRORED)
        async with self._post(None, sender) as answer:
            try:
                message = await answer.receive()
            except trio.EndOfChannel:
                return
            if isinstance(message, jsonrpc.ErrorReply):
                raise message.error

    def statistics(self) -> HttpStatistics:
        """What it holds and has done."""
        connecting = self._connecting
        return HttpStatistics(
            open=len(self._busy),
            idle=len(connecting.idle),
            waiting=connecting.slots.statistics().tasks_waiting,
            connected=connecting.connected,
            requests=connecting.requests,
        )

    def close(self) -> None:
        """Close every connection, those of open exchanges too, and those not yet open."""
        self._connecting.close()
        for answer in list(self._busy):
            answer.close()

    def _sender(
        self,
        method: str,
        params: Mapping[str, Any],
        frame: bytes,
        mirrored: Mapping[str, object],
    ) -> Sender:
        headers = _outgoing.request_headers(self._target, method, params, mirrored, len(frame))
        headers += self._headers
        return Sender(self._connecting, self._target, method, headers, frame, self._auth)

    @asynccontextmanager
    async def _post(
        self, request_id: jsonrpc.RequestId | None, sender: Sender
    ) -> AsyncGenerator[HttpAnswer]:
        try:
            connection = await sender.start()
            answer = HttpAnswer(
                request_id,
                connection,
                sender,
                max_message=self._max_message,
                pool=None if sender.listening else self._connecting.idle,
            )
            self._busy.add(answer)
            try:
                yield answer
                if answer.lags and not sender.listening:
                    await answer.settle()
            finally:
                self._busy.discard(answer)
                answer.release()
        finally:
            sender.release()
