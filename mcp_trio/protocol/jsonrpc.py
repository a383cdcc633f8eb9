"""JSON-RPC 2.0 envelopes: parse, classify, build.

The revision of 2026-07-28 knows three kinds of message. A client sends requests and
notifications; a server sends notifications and responses. Batches do not exist.

An envelope that arrives is parsed once, strictly: an id is a string or an integer and keeps its
type, `1`, `"1"`, `1.0` and `true` are four different things, and only an absent id means that
there is none. What leaves is built as bytes at once, so that a value JSON cannot hold is found
before a stream is touched.

Source: specification, basic/index, "Messages".
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import attrs

from mcp_trio import codec, errors
from mcp_trio.protocol import methods

if TYPE_CHECKING:
    from mcp_trio.protocol.meta import RequestMeta

__all__ = [
    "MAX_STRING_ID_BYTES",
    "ErrorReply",
    "Message",
    "Notification",
    "Reply",
    "Request",
    "RequestId",
    "ResultReply",
    "cancelled_request_id",
    "encode_cancelled",
    "encode_notification",
    "encode_request",
    "error_reply",
    "is_request_id",
    "oversized_response_id",
    "parse_client_message",
    "parse_server_message",
    "result_reply",
    "same_id",
    "show",
]

RequestId = str | int
"""A JSON-RPC id. A `bool` is an `int` to Python but never an id."""

MAX_STRING_ID_BYTES: Final = 256
"""An id is echoed on every message of a subscription, so its length is bounded."""

_INT64 = range(-(2**63), 2**63)
_ABSENT: Final = object()

_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID: Final = rb'"id"\s*:\s*(-?[0-9]{1,19}|"(?:[^"\\]|\\.)*")'
_ID_FIRST: Final = re.compile(
    rb"\s*\{\s*(?:%b\s*,\s*)?%b\s*,\s*\"(?:result|error)\"" % (_VERSION, _ID)
)
_RESULT_FIRST: Final = re.compile(rb"\s*\{\s*(?:%b\s*,\s*)?\"(?:result|error)\"" % _VERSION)
_ID_LAST: Final = re.compile(rb",\s*%b\s*(?:,\s*%b\s*)?\}\s*\Z" % (_ID, _VERSION))


@attrs.define(slots=True)
class Request:
    """A request as the server sees it.

    `params` is taken out, not copied, by whoever serves the request (`take_params`): a
    subscription can stay open for days and must not keep the body that opened it.
    """

    id: RequestId
    method: str
    params: dict[str, Any] = attrs.field(factory=dict, repr=False)
    checked_meta: "RequestMeta | None" = attrs.field(default=None, init=False, eq=False, repr=False)
    """What `meta.meta_of` has found in the params."""

    def take_params(self) -> dict[str, Any]:
        """Return the params and forget them, and what was read of them."""
        params, self.params = self.params, {}
        self.checked_meta = None
        return params


@attrs.frozen(slots=True)
class Notification:
    """A one-way message, in either direction. It is never answered."""

    method: str
    params: dict[str, Any] = attrs.field(factory=dict)


@attrs.frozen(slots=True)
class ResultReply:
    """A successful response as the client sees it."""

    id: RequestId
    result: dict[str, Any]


@attrs.frozen(slots=True)
class ErrorReply:
    """An error response as the client sees it; `id` is None where the server could not read it."""

    id: RequestId | None
    error: errors.ErrorResponse


Message = Notification | ResultReply | ErrorReply
"""What a client can receive."""


@attrs.frozen(slots=True)
class Reply:
    """A response as the server hands it to a transport: encoded, with what a transport maps.

    Attributes:
        frame: the whole JSON-RPC response, UTF-8, without a line end.
        error_code: the code of the error it carries; None for a result.
        retry_after: seconds; set where the server turned the request away because it is full
            or shutting down.
    """

    frame: bytes
    error_code: int | None = None
    retry_after: float | None = None


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """Whether a value may stand as an id: a short string, or an integer of 64 bits."""
    if type(value) is str:
        if value.isascii():
            return len(value) <= MAX_STRING_ID_BYTES
        try:
            return len(value.encode()) <= MAX_STRING_ID_BYTES
        except UnicodeEncodeError:
            return False
    return type(value) is int and value in _INT64


def same_id(one: object, other: object) -> bool:
    """Whether two ids are the same, type included: to Python `1`, `1.0` and `True` are equal."""
    return type(one) is type(other) and one == other


def parse_client_message(data: bytes) -> Request | Notification:
    """Parse what a client sent to a server.

    Raises:
        errors.ParseError: it is not JSON.
        errors.InvalidRequest: it is JSON, but not one request or notification. Its
            `request_id` attribute has the id where one could be read, and `is_notification`
            says that it must not be answered.
    """
    envelope = _object(codec.decode_json(data))
    request_id = envelope.get("id", _ABSENT)
    known_id = request_id if is_request_id(request_id) else None
    if envelope.get("jsonrpc") != "2.0":
        raise _invalid('"jsonrpc" must be "2.0"', known_id)
    if request_id is not _ABSENT and known_id is None:
        raise _invalid(f"not a usable request id: {show(request_id)}", None)
    method = envelope.get("method", _ABSENT)
    if method is _ABSENT and ("result" in envelope or "error" in envelope):
        raise _invalid("a client does not send responses", known_id)
    if not isinstance(method, str):
        raise _invalid('"method" must be a string', known_id)
    params = envelope.get("params", _ABSENT)
    if params is _ABSENT:
        params = {}
    elif not isinstance(params, dict):
        raise _invalid('"params" must be an object', known_id, is_notification=known_id is None)
    if known_id is None:
        return Notification(method, params)
    return Request(known_id, method, params)


def parse_server_message(data: bytes) -> Message:
    """Parse what a server sent to a client.

    Raises:
        errors.RemoteProtocolError: it is not a notification or a response. A request is one
            such thing: servers of this revision do not send them. For a response that makes no
            sense, its `request_id` attribute has the id where one could be read.
    """
    try:
        envelope = _object(codec.decode_json(data))
    except errors.ErrorResponse as error:
        raise errors.RemoteProtocolError(f"from the server: {error.message}") from error
    request_id = envelope.get("id", _ABSENT)
    if "method" in envelope:
        return _server_notification(envelope, request_id)
    known_id = request_id if is_request_id(request_id) else None
    if envelope.get("jsonrpc") != "2.0":
        raise _remote('"jsonrpc" is not "2.0"', known_id)
    if known_id is None and request_id is not _ABSENT and request_id is not None:
        raise _remote(f"unusable response id {show(request_id)}", None)
    if "error" in envelope:
        return ErrorReply(known_id, _error_object(envelope["error"], known_id))
    result = envelope.get("result", _ABSENT)
    if result is _ABSENT or known_id is None:
        raise _remote("neither a notification nor a response", known_id)
    if not isinstance(result, dict):
        raise _remote("a result is an object", known_id)
    return ResultReply(known_id, result)


def is_request(data: bytes) -> bool:
    """Whether what a server has sent is a request, for which a client of this revision is deaf."""
    try:
        envelope = codec.decode_json(data)
    except errors.ParseError:
        return False
    return isinstance(envelope, dict) and "method" in envelope and "id" in envelope


def _server_notification(envelope: dict[str, Any], request_id: object) -> Notification:
    method = envelope["method"]
    params = envelope.get("params", {})
    # The id of a request is one of the server's own ids: it says nothing about ours.
    if request_id is not _ABSENT:
        raise _remote(f"servers do not send requests ({show(method)})", None)
    if (
        envelope.get("jsonrpc") != "2.0"
        or not isinstance(method, str)
        or not isinstance(params, dict)
    ):
        raise _remote("a malformed notification", None)
    return Notification(method, params)


def _error_object(error: object, request_id: RequestId | None) -> errors.ErrorResponse:
    if isinstance(error, dict):
        code, message = error.get("code"), error.get("message")
        if type(code) is int and isinstance(message, str):
            return errors.ErrorResponse.from_wire(code, message, error.get("data"))
    raise _remote("a malformed error object", request_id)


def oversized_response_id(start: bytes, end: bytes | None) -> RequestId | None:
    """The id of a response of which only the start, and perhaps the end, could be kept.

    It is found where servers put it: before the result, or after it at the very end. None where
    there is none, or where this is no response.
    """
    found = _ID_FIRST.match(start)
    if found is None and end is not None and _RESULT_FIRST.match(start):
        found = _ID_LAST.search(end)
    if found is None:
        return None
    try:
        request_id = codec.decode_json(found[1])
    except errors.ParseError:
        return None
    return request_id if is_request_id(request_id) else None


def cancelled_request_id(params: Mapping[str, Any]) -> RequestId | None:
    """The request that the params of a `notifications/cancelled` refer to.

    None where they refer to none: a malformed cancellation is ignored, and `1.0` or `true` do
    not find request 1.
    """
    request_id = params.get("requestId")
    return request_id if is_request_id(request_id) else None


def encode_request(request_id: RequestId, method: str, params: Mapping[str, Any]) -> bytes:
    """The bytes of a request.

    Raises:
        errors.LocalProtocolError: the id cannot be one.
        codec.EncodeError: the params hold what JSON cannot.
    """
    if not is_request_id(request_id):
        raise errors.LocalProtocolError(f"not a usable request id: {show(request_id)}")
    return codec.encode_json(
        {"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params)}
    )


def encode_notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of a notification.

    Raises:
        codec.EncodeError: the params hold what JSON cannot.
    """
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = dict(params)
    return codec.encode_json(message)


def encode_cancelled(request_id: RequestId, reason: str | None = None) -> bytes:
    """The bytes of the notification that cancels a request, or tears a subscription down."""
    params: dict[str, Any] = {"requestId": request_id}
    if reason is not None:
        params["reason"] = reason
    return encode_notification(methods.CANCELLED, params)


def result_reply(request_id: RequestId, result: dict[str, Any]) -> Reply:
    """Encode a result. One that JSON cannot hold becomes an internal error instead."""
    try:
        return Reply(codec.encode_json({"jsonrpc": "2.0", "id": request_id, "result": result}))
    except codec.EncodeError as problem:
        return error_reply(
            request_id, errors.InternalError(f"the result cannot be sent as JSON: {problem}")
        )


_MAX_CODE: Final = 2**53
"""Beyond this some peers read another number."""


def error_reply(request_id: RequestId | None, error: errors.ErrorResponse) -> Reply:
    """Encode an error response; without an id where the request's could not be read."""
    message: dict[str, Any] = {"jsonrpc": "2.0"}
    if request_id is not None:
        message["id"] = request_id
    # The application made the error, of whatever it liked.
    code = error.code if _is_code(error.code) else errors.INTERNAL_ERROR
    body: dict[str, Any] = {"code": code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    message["error"] = body
    try:
        if not isinstance(error.message, str):
            raise codec.EncodeError("the message is not a string")
        frame = codec.encode_json(message)
    except codec.EncodeError:
        # Something in it cannot be sent; its code still can.
        message["error"] = {"code": code, "message": "the error cannot be sent as JSON"}
        frame = codec.encode_json(message)
    return Reply(frame, code, getattr(error, "retry_after", None))


def _is_code(code: object) -> bool:
    return isinstance(code, int) and not isinstance(code, bool) and abs(code) < _MAX_CODE


def _object(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        raise errors.InvalidRequest("batches are not part of this revision")
    raise errors.InvalidRequest("a JSON-RPC message is an object")


def _invalid(
    message: str, request_id: RequestId | None, *, is_notification: bool = False
) -> errors.InvalidRequest:
    error = errors.InvalidRequest(message)
    error.request_id = request_id
    error.is_notification = is_notification
    return error


def _remote(message: str, request_id: RequestId | None) -> errors.RemoteProtocolError:
    error = errors.RemoteProtocolError(f"from the server: {message}")
    error.request_id = request_id
    return error


def show(value: object) -> str:
    """A short form of what a peer sent, which can be of any size and shape."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() <= 200 else "a very large integer"
    return f"of type {type(value).__name__}"
