"""Envelopes: what is a message, whose it is, and what to do with one that is none."""

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import codec, errors
from mcp_trio.protocol.jsonrpc import (
    ErrorReply,
    Notification,
    Request,
    ResultReply,
    cancelled_request_id,
    encode_cancelled,
    encode_notification,
    encode_request,
    error_reply,
    is_request_id,
    parse_client_message,
    parse_server_message,
    result_reply,
    same_id,
)

ids = (
    st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=64)
    | st.sampled_from([0, 1, "", "0", "1"])
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(string.printable),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(st.text(string.ascii_letters), plain, max_size=4)


NO_IDS: list[object] = [None, 1.0, True, [], {}]


def message(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode()


# --- ids ---


@pytest.mark.parametrize("value", [0, "", 1, "1", -1, 2**63 - 1, -(2**63), "x" * 256, "é" * 128])
def test_what_is_an_id(value: object) -> None:
    """S-08, W05: zero and the empty string are ids; strings of 256 bytes, integers of 64 bits."""
    assert is_request_id(value)


@pytest.mark.parametrize(
    "value",
    [None, True, False, 1.0, 1.5, [], {}, 2**63, -(2**63) - 1, "x" * 257, "é" * 129, "\ud800"],
)
def test_what_is_no_id(value: object) -> None:
    """S-08, W05, W06: null, booleans and floats are not, nor what is too large or has no UTF-8."""
    assert not is_request_id(value)


def test_ids_differ_by_type() -> None:
    """W06: to Python these are equal, and hash alike."""
    values: list[object] = [1, "1", 1.0, True]
    for left, one in enumerate(values):
        for right, other in enumerate(values):
            assert same_id(one, other) == (left == right)


@pytest.mark.parametrize("value", [0, "", 1, "1"])
def test_a_cancellation_finds_its_request(value: str | int) -> None:
    """W05, W06: the id in its own type."""
    sent = parse_client_message(encode_cancelled(value))
    assert isinstance(sent, Notification)
    found = cancelled_request_id(sent.params)
    assert same_id(found, value)


@pytest.mark.parametrize("params", [{}, *({"requestId": bad} for bad in NO_IDS)])
def test_a_malformed_cancellation_finds_none(params: dict[str, Any]) -> None:
    """W06: `1.0` and `true` do not cancel request 1."""
    assert cancelled_request_id(params) is None


def test_a_cancellation_may_give_a_reason() -> None:
    """W43: a text for the peer's log."""
    assert json.loads(encode_cancelled(1, "enough")) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 1, "reason": "enough"},
    }


# --- what a server reads ---


@given(ids, st.text(string.ascii_letters + "/"), objects)
def test_requests_round_trip(request_id: str | int, method: str, params: dict[str, Any]) -> None:
    """W05, W06: id, method and params arrive as they were sent."""
    request = parse_client_message(encode_request(request_id, method, params))
    assert request == Request(request_id, method, params)
    assert isinstance(request, Request)
    assert same_id(request.id, request_id)


@given(st.text(string.ascii_letters + "/"), st.none() | objects)
def test_notifications_round_trip(method: str, params: dict[str, Any] | None) -> None:
    """W57: a message without an id is a notification, in both directions."""
    data = encode_notification(method, params)
    assert parse_client_message(data) == Notification(method, params or {})
    assert parse_server_message(data) == Notification(method, params or {})


def test_params_are_taken_out() -> None:
    """S-23: whoever serves a request for long does not keep its params."""
    request = Request(1, "x", {"a": 1})
    assert request.take_params() == {"a": 1}
    assert request.params == {}
    assert "secret" not in repr(Request(1, "x", {"a": "secret"}))


@pytest.mark.parametrize("bad", ["null", "true", "false", "1.0", "1e2", "[1]", "{}", str(2**63)])
def test_a_request_with_an_unusable_id(bad: str) -> None:
    """W05, W06, STD-6: refused without an id, since there is none to answer to."""
    data = b'{"jsonrpc":"2.0","id":%s,"method":"x"}' % bad.encode()
    with pytest.raises(errors.InvalidRequest, match="id") as caught:
        parse_client_message(data)
    assert caught.value.request_id is None
    assert not caught.value.is_notification
    with pytest.raises(errors.InvalidRequest):
        parse_client_message(message(id="x" * 257, method="x"))


@pytest.mark.parametrize(
    ("data", "request_id"),
    [
        (b"[]", None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"x"}]', None),
        (b"{}", None),
        (b"5", None),
        (b'"x"', None),
        (b"null", None),
        (b'{"id":3,"method":"x"}', 3),
        (b'{"jsonrpc":"1.0","id":"3","method":"x"}', "3"),
        (b'{"jsonrpc":2.0,"id":0,"method":"x"}', 0),
        (message(id=0), 0),
        (message(id="", method=5), ""),
        (message(id=7, method=None), 7),
        (message(id=7, method="x", params=[1]), 7),
        (message(id=7, method="x", params=None), 7),
        (message(id=7, result={}), 7),
        (message(id=7, error={}), 7),
        (message(method=5), None),
    ],
)
def test_what_is_no_request(data: bytes, request_id: object) -> None:
    """W55: batches, responses, other versions and shapes: -32600, with the id where it is read."""
    with pytest.raises(errors.InvalidRequest) as caught:
        parse_client_message(data)
    assert same_id(caught.value.request_id, request_id)
    assert caught.value.code == -32600
    assert not caught.value.is_notification


@pytest.mark.parametrize("params", [None, 5, "x", [1]])
def test_a_malformed_notification_must_not_be_answered(params: object) -> None:
    """W57: the error says so itself."""
    with pytest.raises(errors.InvalidRequest) as caught:
        parse_client_message(message(method="notifications/x", params=params))
    assert caught.value.is_notification
    assert caught.value.request_id is None


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":NaN}', b'"\\ud800"', b"1" * 5000]
)
def test_what_is_no_json(data: bytes) -> None:
    """W22, W55, STD-4, STD-5: -32700 on one side, a protocol error of the peer on the other."""
    with pytest.raises(errors.ParseError):
        parse_client_message(data)
    with pytest.raises(errors.RemoteProtocolError):
        parse_server_message(data)


def test_what_a_client_need_not_know_is_passed_on() -> None:
    """W57: unknown methods and members are no error of the envelope."""
    known = parse_client_message(message(method="window/logMessage", params={}, extra=1))
    assert known == Notification("window/logMessage", {})
    assert parse_client_message(message(id=1, method="x", result=1)) == Request(1, "x", {})


def test_what_is_shown_of_a_bad_message_is_short() -> None:
    """W29: an error does not repeat megabytes."""
    for bad in (["x" * 10_000] * 100, {"a": "x" * 10_000}, "x" * 10_000, 10**4000, 1.5):
        with pytest.raises(errors.InvalidRequest) as caught:
            parse_client_message(message(id=bad, method="x"))
        assert len(str(caught.value)) < 150


# --- what a client reads ---


@given(ids, objects)
def test_results_round_trip(request_id: str | int, result: dict[str, Any]) -> None:
    """W05, W06: a result resolves its own request, `0` and `""` included."""
    reply = result_reply(request_id, result)
    parsed = parse_server_message(reply.frame)
    assert parsed == ResultReply(request_id, result)
    assert isinstance(parsed, ResultReply)
    assert same_id(parsed.id, request_id)
    assert (reply.error_code, reply.retry_after) == (None, None)


@given(st.none() | ids, st.integers(-(2**31), 2**31), st.text(string.printable), plain)
def test_errors_round_trip(
    request_id: str | int | None, code: int, text: str, data: object
) -> None:
    """W05, W55: code, message and data arrive; without an id where it could not be read."""
    reply = error_reply(request_id, errors.ErrorResponse(text, code=code, data=data))
    assert reply.error_code == code
    assert ("id" in json.loads(reply.frame)) == (request_id is not None)
    parsed = parse_server_message(reply.frame)
    assert isinstance(parsed, ErrorReply)
    assert same_id(parsed.id, request_id)
    assert (parsed.error.code, parsed.error.message, parsed.error.data) == (code, text, data)


def test_an_error_is_raised_as_its_own_class() -> None:
    """W46: callers tell errors apart by class."""
    parsed = parse_server_message(message(id=None, error={"code": -32601, "message": "x"}))
    assert isinstance(parsed, ErrorReply)
    assert parsed.id is None
    assert type(parsed.error) is errors.MethodNotFound


def test_a_busy_server_says_when_to_come_back() -> None:
    """W34: transports map it to a header."""
    reply = error_reply(1, errors.ServerBusy("full", retry_after=2.5))
    assert (reply.error_code, reply.retry_after) == (-32603, 2.5)
    parsed = parse_server_message(reply.frame)
    assert isinstance(parsed, ErrorReply)
    assert isinstance(parsed.error, errors.ServerBusy)
    assert (parsed.error.retry_after, parsed.error.data) == (2.5, {"retryAfterMs": 2500})


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (None, {"retryAfterMs": 1000}),
        ({"limit": 5}, {"limit": 5, "retryAfterMs": 1000}),
        ({"retryAfterMs": 5}, {"retryAfterMs": 5}),
        ("words", "words"),
    ],
)
def test_data_of_ones_own_beside_when_to_come_back(data: object, kept: object) -> None:
    given = dict(data) if isinstance(data, dict) else data
    assert errors.ServerBusy("full", data=data).data == kept
    assert data == given


@pytest.mark.parametrize("retry_after", [-1, float("inf"), float("nan")])
def test_no_time_to_come_back(retry_after: float) -> None:
    with pytest.raises(ValueError, match="retry_after"):
        errors.ServerBusy("full", retry_after=retry_after)


@pytest.mark.parametrize(
    "data", [None, [], {}, *({"retryAfterMs": x} for x in (-1, "1", True, None, 10**400, 1e300))]
)
def test_an_internal_error_is_not_a_busy_server(data: object) -> None:
    """Only one that says when to come back, in a way that makes sense."""
    parsed = parse_server_message(
        message(id=1, error={"code": -32603, "message": "x", "data": data})
    )
    assert isinstance(parsed, ErrorReply)
    assert type(parsed.error) is errors.InternalError
    assert parsed.error.data == data


@pytest.mark.parametrize(
    "data",
    [
        *(b"Starting...", b"{", b'  "ok": false', b"}", b"42", b"null", b'"x"', b"[]", b"{}"),
        *(message(), message(result={}), message(result={}, id=None)),
        *(message(result={}, id=1.0), message(error={"code": 1, "message": "x"}, id=True)),
        *(message(id=5, method="ping"), message(id=None, method="ping")),
        *(message(id=5, method="sampling/createMessage", params={}), message(method=5)),
        *(message(method="x", params=[]), b'{"method":"x"}'),
    ],
)
def test_what_no_server_may_send(data: bytes) -> None:
    """W29, W58: noise and requests are errors of the peer that name no request of ours."""
    with pytest.raises(errors.RemoteProtocolError) as caught:
        parse_server_message(data)
    assert caught.value.request_id is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"result": 5},
        {"result": None},
        {"error": None},
        {"error": "no"},
        {"error": {"code": "x", "message": "no"}},
        {"error": {"code": True, "message": "no"}},
        {"error": {"code": 1}},
        {"result": {}, "jsonrpc": "1.0"},
    ],
)
@pytest.mark.parametrize("request_id", [0, "", 5])
def test_a_senseless_response_names_the_request_that_waits(
    fields: dict[str, Any], request_id: str | int
) -> None:
    """W29, W05: nothing better will come, so the wait must end."""
    with pytest.raises(errors.RemoteProtocolError) as caught:
        parse_server_message(message(**{"id": request_id, **fields}))
    assert same_id(caught.value.request_id, request_id)


# --- what cannot be written ---


@pytest.mark.parametrize("value", ["\udcaf", float("nan"), {1, 2}, b"x", {1: 2}, object()])
def test_a_result_that_is_no_json_becomes_an_error(value: object) -> None:
    """W59: found before a stream is touched, and answered."""
    reply = result_reply(1, {"value": value})
    assert reply.error_code == -32603
    parsed = parse_server_message(reply.frame)
    assert isinstance(parsed, ErrorReply)
    assert parsed.id == 1
    with pytest.raises(codec.EncodeError):
        encode_notification("x", {"value": value})
    with pytest.raises(codec.EncodeError):
        encode_request(1, "x", {"value": value})


def test_an_error_that_is_no_json_keeps_its_code() -> None:
    """W59: the data or the text is lost, the answer is not."""
    for error in (
        errors.InvalidParams("x", data={1, 2}),
        errors.InvalidParams("\udcaf"),
    ):
        parsed = parse_server_message(error_reply("a", error).frame)
        assert isinstance(parsed, ErrorReply)
        assert (parsed.id, parsed.error.code) == ("a", -32602)


@pytest.mark.parametrize("bad", [None, True, 1.0, "x" * 300])
def test_a_request_is_not_sent_with_an_unusable_id(bad: Any) -> None:
    """S-08, W05: a local mistake, and nothing is written."""
    with pytest.raises(errors.LocalProtocolError):
        encode_request(bad, "x", {})


def test_line_breaks_are_escaped() -> None:
    """W10: what weaker peers would split at does not occur in what is written."""
    text = "a\u2028b\u2029c\u0085d\u000be\n\r\u001c"
    frame = encode_notification("x", {"text": text})
    for line_break in ("\u2028", "\u2029", "\u0085", "\v", "\n", "\r", "\x1c"):
        assert line_break.encode() not in frame
    assert parse_server_message(frame) == Notification("x", {"text": text})
