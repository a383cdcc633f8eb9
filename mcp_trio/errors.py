"""The exceptions of `mcp_trio`.

Everything raised on purpose derives from `McpError`. One cause raises one exception: where a
nursery was at work inside the library, its group has been taken apart before you see it.

Two families matter most. `ErrorResponse` is an error that travels: a server raises it to answer
a request with that JSON-RPC error, and a client raises it when such an answer came back. The
others are local: something about the connection or about this program.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

import trio

__all__ = [
    "AcknowledgementTimeout",
    "BusLost",
    "ConnectionLost",
    "ErrorResponse",
    "HeaderMismatch",
    "HttpStatusError",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "ListenNotSupported",
    "LocalProtocolError",
    "McpError",
    "MethodNotFound",
    "MissingRequiredClientCapability",
    "ParseError",
    "ProtocolError",
    "RemoteProtocolError",
    "ServerBusy",
    "SubscriptionLost",
    "UnsupportedProtocolVersion",
    "UseListen",
    "WatchEnded",
]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_REQUIRED_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022

RETRY_AFTER_MS: Final = "retryAfterMs"
LONGEST_DELAY: Final = 1e12
"""Seconds after which to try again that are taken seriously; more is as good as nothing said."""


def delay_of(value: object) -> float | None:
    """The ``retryAfterMs`` of what a peer sent, in seconds; None without one that makes sense."""
    said = value.get(RETRY_AFTER_MS) if isinstance(value, Mapping) else None
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    return said / 1000 if 0 <= said <= LONGEST_DELAY * 1000 else None


class McpError(Exception):
    """The base of every exception this package raises on purpose."""


class ProtocolError(McpError):
    """Somebody broke the protocol; the two subclasses say who."""


class LocalProtocolError(ProtocolError):
    """This program tried to do what the protocol forbids; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol forbids, or what cannot be understood.

    Attributes:
        request_id: the id of a response that cannot be understood, where it could be read:
            the request that waits for it will get no other.
    """

    request_id: str | int | None = None


class ConnectionLost(McpError, trio.BrokenResourceError):
    """The transport ended before the answer came; the message says what is known of the cause.

    Attributes:
        exit_status: how the server has ended that was a child process of ours: its exit status,
            or the negative number of the signal that killed it. None where it is still running,
            or was no child.
        stderr: the end of what that child wrote to standard error.
    """

    def __init__(
        self, message: str = "", *, exit_status: int | None = None, stderr: str = ""
    ) -> None:
        super().__init__(message)
        self.exit_status = exit_status
        self.stderr = stderr

    def again(self) -> "ConnectionLost":
        """The same news for somebody else: whoever raises an exception adds to it."""
        same = ConnectionLost(str(self), exit_status=self.exit_status, stderr=self.stderr)
        same.__cause__ = self.__cause__
        return same


class BusLost(McpError, trio.BrokenResourceError):
    """The connection to the bus between processes is lost, or could not be made.

    A bridge does not let it out: it connects again. See `subscriptions.bus`.
    """


class HttpStatusError(McpError):
    """An HTTP answer whose status says no, without a JSON-RPC error that would say why.

    Where there is such an error as well, that `ErrorResponse` is raised and this is its
    ``__cause__``.

    Attributes:
        status: the HTTP status, for instance 401.
        headers: the answer's headers in lower case; of several with one name, the last.
        retry_after: seconds the server asks to wait before another try; None where it does not.
        www_authenticate: the values of `WWW-Authenticate`, which say what credentials are wanted:
            one for each header of that name.
        body: the beginning of the answer's body as text, up to 1,000 characters; written by
            whoever answered, so fit for people only.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        headers: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        www_authenticate: tuple[str, ...] = (),
        body: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers: Mapping[str, str] = dict(headers or {})
        self.retry_after = retry_after
        self.www_authenticate = www_authenticate
        self.body = body


class AcknowledgementTimeout(McpError, trio.TooSlowError):
    """A subscription was not acknowledged in time; the request has been cancelled."""


class SubscriptionLost(McpError, trio.BrokenResourceError):
    """An open subscription ended with an error, or with its connection.

    Changes may have been missed: read again what the subscription covered. The cause, where
    one is known, is chained as ``__cause__``.
    """


class WatchEnded(McpError, trio.BrokenResourceError):
    """A watch will not go on: to open its stream again would not help, or has not.

    The failure that decided it, where there was one, is chained as ``__cause__``.

    Attributes:
        reason: ``"refused"``: the server will not have it, or is none. ``"revoked"``: the
            server has withdrawn what it had granted. ``"nothing-granted"``: it grants nothing of
            what is asked for. ``"gave-up"``: there was no stream for as long as the caller had
            said.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: Literal["refused", "revoked", "nothing-granted", "gave-up"],
    ) -> None:
        super().__init__(message)
        self.reason = reason


class ListenNotSupported(McpError):
    """`subscriptions/listen` was asked of a peer or transport that cannot carry it.

    Raised before anything is written.
    """


class UseListen(McpError):
    """A call for older servers was made on a modern peer; use `Client.listen` instead."""


class ErrorResponse(McpError):
    """A JSON-RPC error response, with its `code`, `message` and `data`.

    Raise it, or a subclass, in a handler to answer with that error. A client raises the
    subclass that belongs to the code it received, or this class where the code is not one that
    the specification defines.

    Source: specification, basic/index, "Error Codes".
    """

    default_code: ClassVar[int] = INTERNAL_ERROR
    _by_code: ClassVar[dict[int, type["ErrorResponse"]]] = {}

    def __init__(self, message: str, *, code: int | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.code: int = self.default_code if code is None else code
        self.message: str = message
        self.data: Any = data

    def __init_subclass__(cls) -> None:
        # ServerBusy shares -32603 with InternalError; the first class of a code speaks for it.
        ErrorResponse._by_code.setdefault(cls.default_code, cls)

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"

    @staticmethod
    def from_wire(code: int, message: str, data: Any) -> "ErrorResponse":
        """The exception for an error object that arrived."""
        if code == INTERNAL_ERROR and (delay := delay_of(data)) is not None:
            return ServerBusy(message, retry_after=delay, data=data)
        cls = ErrorResponse._by_code.get(code, ErrorResponse)
        error = cls.__new__(cls)
        ErrorResponse.__init__(error, message, code=code, data=data)
        return error


class ParseError(ErrorResponse):
    """The message is not JSON (-32700)."""

    default_code = PARSE_ERROR


class InvalidRequest(ErrorResponse):
    """The JSON is not a JSON-RPC message this side accepts (-32600).

    Attributes:
        request_id: the id of the refused message, where one could be read.
        is_notification: whether it was a notification, which is never answered. Over HTTP the
            status still says that it was refused.
    """

    default_code = INVALID_REQUEST
    request_id: str | int | None = None
    is_notification: bool = False


class MethodNotFound(ErrorResponse):
    """The peer does not implement the method (-32601)."""

    default_code = METHOD_NOT_FOUND


class InvalidParams(ErrorResponse):
    """The params are malformed, or name something that does not exist (-32602)."""

    default_code = INVALID_PARAMS


class InternalError(ErrorResponse):
    """The peer failed while it served the request (-32603)."""

    default_code = INTERNAL_ERROR


class ServerBusy(ErrorResponse):
    """A limit of the server is reached, or it is shutting down (-32603).

    Its `data` has ``retryAfterMs``, in milliseconds, and by that a client knows it from an
    `InternalError`, which has the same code. Over HTTP the status is 503, with ``Retry-After``.

    Attributes:
        retry_after: seconds after which another try makes sense.
    """

    default_code = INTERNAL_ERROR

    def __init__(self, message: str, *, retry_after: float = 1.0, data: Any = None) -> None:
        if not 0 <= retry_after <= LONGEST_DELAY:
            raise ValueError(f"retry_after is a number of seconds, got {retry_after!r}")
        if data is None or (isinstance(data, Mapping) and RETRY_AFTER_MS not in data):
            data = {**(data or {}), RETRY_AFTER_MS: round(retry_after * 1000)}
        super().__init__(message, data=data)
        self.retry_after = retry_after


class HeaderMismatch(ErrorResponse):
    """HTTP headers are missing, malformed, or differ from the body they mirror (-32020)."""

    default_code = HEADER_MISMATCH


class MissingRequiredClientCapability(ErrorResponse):
    """The request needs a capability that the client did not declare (-32021).

    ``data["requiredCapabilities"]`` has what is missing.
    """

    default_code = MISSING_REQUIRED_CLIENT_CAPABILITY

    def __init__(self, message: str, *, required: Mapping[str, Any]) -> None:
        super().__init__(message, data={"requiredCapabilities": dict(required)})


class UnsupportedProtocolVersion(ErrorResponse):
    """The peer does not speak the revision the request declares (-32022).

    ``data`` has ``supported`` (a list of revisions) and ``requested``.
    """

    default_code = UNSUPPORTED_PROTOCOL_VERSION

    def __init__(self, *, requested: str, supported: tuple[str, ...]) -> None:
        super().__init__(
            f"Unsupported protocol version {requested!r}",
            data={"supported": list(supported), "requested": requested},
        )
