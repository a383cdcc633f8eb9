"""The MCP endpoint: every rule of Streamable HTTP for servers, free of any HTTP server.

A server hands a request to `Endpoint.admit`, which reads the body and makes all checks in their
order. What comes back is either an `Answer`, ready to be written, or a `Call`, which
`Endpoint.serve` takes to its end. Between the two the request's body is gone.

Source: specification, basic/transports/streamable-http.
"""

import abc
import functools
from collections.abc import Sequence
from typing import Final, TypedDict

import attrs
import trio

from mcp_trio import errors
from mcp_trio.http.authentication import AccessDenied, Authenticate, identify
from mcp_trio.http.exchange import (
    HttpExchange,
    RawHeaders,
    ResponseWriter,
    json_headers,
    status_of,
)
from mcp_trio.protocol import hosts, jsonrpc, media, meta, methods
from mcp_trio.protocol.headers import (
    VERSION_HEADER,
    Headers,
    verify_params,
    verify_standard,
    verify_version,
)
from mcp_trio.transports.abc import Handler, Principal, call_handler, notify_handler

__all__ = ["Answer", "Call", "Endpoint", "EndpointOptions", "HttpRequest"]

MAX_BODY: Final = 4 * 1024 * 1024
MAX_ARRIVING: Final = 256 * 1024 * 1024
BODY_TIMEOUT: Final = 30.0
MAX_DIGITS: Final = 20
"""Of a length; Python refuses to read thousands, and would take its time over hundreds."""

FAILED: Final = 500

NO_HEADERS: Final = Headers()


class EndpointOptions(TypedDict, total=False):
    """What an endpoint can be told; each has a default."""

    allowed_hosts: Sequence[str]
    """Hosts that requests may name, without a port for any port; ``*`` for all. By default the
    names of this machine for itself, so that no web page can reach a local server by rebinding
    its own name."""
    allowed_origins: Sequence[str]
    """Origins whose web pages may call, or hosts of such; by default those of this machine."""
    max_body: int
    """How large a request's body may be, in bytes; by default 4 MiB."""
    max_arriving: int
    """How large all bodies together may be that are still arriving, in bytes; by default 256 MiB.
    A request over it is answered with 503."""
    body_timeout: float
    """How long a request's body may take to arrive, in seconds; by default 30."""
    keepalive: float
    """After how many seconds without a write a stream gets a comment; by default 15."""
    authenticate: Authenticate | None
    """Tells for whom a request stands, by its headers and its client's certificate, or refuses
    it; by default the certificate alone tells."""


class HttpRequest(abc.ABC):
    """A request whose head has been read: what a server lends to the endpoint.

    Attributes:
        method: as it stands in the request.
        headers: all of them.
        principal: who asks, if the server knows.
        whole: the whole body, if it has arrived together with the head; then nobody reads.
    """

    method: str
    headers: Headers
    principal: Principal | None = None
    whole: bytes | None = None

    @abc.abstractmethod
    async def read(self) -> bytes:
        """The next piece of the body; empty at its end.

        Raises:
            trio.BrokenResourceError: the client has gone.
        """


@attrs.frozen
class Answer:
    """A whole response."""

    status: int
    headers: RawHeaders = attrs.field(factory=list)
    body: bytes = b""


@attrs.define
class Call:
    """A request that has passed every check and waits to be served, once."""

    request: jsonrpc.Request
    accepts: media.Accepts
    headers: Headers
    principal: Principal | None


class _RefusedError(Exception):
    """A check has failed; carries what is answered."""

    def __init__(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        kind = errors.InternalError if status == FAILED else errors.InvalidRequest
        reply = jsonrpc.error_reply(None, kind(message.encode(errors="replace").decode()))
        self.answer = _json_answer(status, reply, *headers)


class Endpoint:
    """The rules of one MCP endpoint in front of a handler."""

    def __init__(
        self,
        handler: Handler,
        *,
        allowed_hosts: Sequence[str] = hosts.LOOPBACK,
        allowed_origins: Sequence[str] = hosts.LOOPBACK,
        max_body: int = MAX_BODY,
        max_arriving: int = MAX_ARRIVING,
        body_timeout: float = BODY_TIMEOUT,
        authenticate: Authenticate | None = None,
    ) -> None:
        for option in (allowed_hosts, allowed_origins):
            if isinstance(option, str):
                raise TypeError("allowed_hosts and allowed_origins are lists of strings")
        self._handler = handler
        self._allowed_hosts = tuple(allowed_hosts)
        self._allowed_origins = tuple(allowed_origins)
        self._max_body = max_body
        self._max_arriving = max_arriving
        self._arriving = 0
        self._body_timeout = body_timeout
        self._authenticate = authenticate
        # A mistake in what is allowed is found here, not with the first request.
        hosts.allowed_host("localhost", self._allowed_hosts)
        hosts.allowed_origin("http://localhost", self._allowed_origins)

    @property
    def asks_who(self) -> bool:
        """Whether `admit` may wait for more than the body."""
        return self._authenticate is not None

    async def admit(self, request: HttpRequest) -> Answer | Call:
        """Read a request and check it, in the order in which the design rules.

        Cancelling leaves the body partly read; the connection is of no more use then.

        Raises:
            trio.BrokenResourceError: the client has gone.
        """
        request_id: jsonrpc.RequestId | None = None
        try:
            accepts = self._check_head(request)
            principal = request.principal
            if self._authenticate is not None:
                principal = await self._identify(self._authenticate, request)
            message = jsonrpc.parse_client_message(await self._read_body(request))
            if isinstance(message, jsonrpc.Notification):
                # Over HTTP a request is cancelled by closing its response.
                if message.method != methods.CANCELLED:
                    notify_handler(self._handler, message)
                return Answer(202, [(b"content-length", b"0")])
            request_id = message.id
            self._check_request(message, request.headers)
            if message.method == methods.LISTEN and not accepts.sse:
                raise _RefusedError(406, f"{methods.LISTEN} is answered with {media.SSE} only")
            return Call(message, accepts, request.headers, principal)
        except _RefusedError as refused:
            return refused.answer  # noqa: ASYNC910 (refused by its head alone)
        except errors.InvalidRequest as error:
            reply = jsonrpc.error_reply(error.request_id, error)
        except errors.ErrorResponse as error:
            reply = jsonrpc.error_reply(request_id, error)
        return _json_answer(status_of(reply), reply)  # noqa: ASYNC910 (the body was read)

    async def serve(self, call: Call, response: ResponseWriter) -> None:
        """Have a call handled, and write what comes of it.

        Cancelling is how a server says that the client has gone: the handler is cancelled and
        nothing more is written.

        Raises:
            trio.BrokenResourceError: the client has gone.
        """
        # The stream of a subscription must not keep alive what opened it, nor may its caller:
        # the handler takes the params out of the request, and has the exchange drop the headers.
        exchange = HttpExchange(response, call.accepts, call.headers, call.principal)
        call.headers = NO_HEADERS
        await exchange.finish(await call_handler(self._handler, call.request, exchange))

    def _check_head(self, request: HttpRequest) -> media.Accepts:
        headers = request.headers
        if not self.answers_to(headers):
            raise _RefusedError(421, "this server does not answer to that host")
        if not self._origin_allowed(headers.get_all("origin")):
            raise _RefusedError(403, "requests from that origin are not allowed")
        if request.method != "POST":
            raise _RefusedError(405, "the MCP endpoint takes POST", (b"allow", b"POST"))
        types = headers.get_all("content-type")
        if len(types) != 1 or not _is_json(types[0]):
            raise _RefusedError(415, f"the body must be {media.JSON}")
        accepts = _accepts(headers.get_all("accept"))
        if not accepts.json and not accepts.sse:
            raise _RefusedError(406, f"answers are {media.JSON} or {media.SSE}")
        return accepts

    async def _identify(self, authenticate: Authenticate, request: HttpRequest) -> Principal | None:
        try:
            return await identify(authenticate, request.headers, request.principal)
        except AccessDenied as denied:
            header = denied.challenge
            lines = () if header is None else ((b"www-authenticate", header.encode("ascii")),)
            raise _RefusedError(denied.status, str(denied), *lines) from None
        except errors.InternalError as failed:
            raise _RefusedError(FAILED, failed.message) from None

    def answers_to(self, headers: Headers) -> bool:
        """Whether a request names a host that is allowed, and names one only."""
        lines = headers.get_all("host")
        return len(lines) == 1 and _host_allowed(lines[0], self._allowed_hosts)

    def _origin_allowed(self, lines: tuple[str, ...]) -> bool:
        return not lines or (
            len(lines) == 1 and hosts.allowed_origin(lines[0], self._allowed_origins)
        )

    async def _read_body(self, request: HttpRequest) -> bytes:
        if request.whole is not None and len(request.whole) <= self._max_body:
            return request.whole  # noqa: ASYNC910 (it is all here)
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:MAX_DIGITS]) > self._max_body:
            raise _RefusedError(413, f"the body has more than {self._max_body} bytes")
        body: bytes | bytearray = b""
        try:
            with trio.move_on_after(self._body_timeout) as scope:
                while piece := await request.read():
                    self._arriving += len(piece)
                    # Most come in one piece, and some in thousands.
                    if not body:
                        body = piece
                    elif isinstance(body, bytes):
                        body = bytearray(body + piece)
                    else:
                        body += piece
                    if len(body) > self._max_body:
                        raise _RefusedError(413, f"the body has more than {self._max_body} bytes")
                    if self._arriving > self._max_arriving:
                        retry = (b"retry-after", b"1")
                        raise _RefusedError(503, "too much is arriving at once", retry)
        finally:
            self._arriving -= len(body)
        if scope.cancelled_caught:
            raise _RefusedError(408, f"the body took more than {self._body_timeout} seconds")
        return bytes(body)

    def _check_request(self, request: jsonrpc.Request, headers: Headers) -> None:
        supported = self._handler.supported_versions
        verify_version(headers, request.params, supported=supported)
        try:
            meta.meta_of(request, supported)
        except errors.InvalidParams:
            requested = headers[VERSION_HEADER]
            if meta.read_version(request.params) is None and requested not in supported:
                # A client of an older revision, which says its version only here.
                raise errors.UnsupportedProtocolVersion(
                    requested=requested, supported=supported
                ) from None
            raise
        verify_standard(headers, request.method, request.params)
        verify_params(headers, self._handler.mirrored(request))
        if not self._handler.knows(request.method):
            raise errors.MethodNotFound(f"Method not found: {request.method}")


# What clients say of themselves is nearly always the same.
_host_allowed = functools.lru_cache(maxsize=64)(hosts.allowed_host)
_is_json = functools.lru_cache(maxsize=64)(media.is_json)


@functools.lru_cache(maxsize=64)
def _accepts(lines: tuple[str, ...]) -> media.Accepts:
    return media.accepts(Headers([(b"accept", line.encode("latin-1")) for line in lines]))


def _json_answer(status: int, reply: jsonrpc.Reply, *headers: tuple[bytes, bytes]) -> Answer:
    return Answer(status, [*json_headers(reply), *headers], reply.frame)
