"""The rules of the endpoint, one by one, without any server."""

import json
from typing import Any

import pytest
import trio
from http_kit import BOTH, LISTEN, FakeHandler, headers_for, message, note
from request_meta import META

from mcp_trio import errors
from mcp_trio.http.endpoint import Answer, Call, Endpoint, HttpRequest
from mcp_trio.http.exchange import HttpExchange, RawHeaders, ResponseWriter
from mcp_trio.protocol import jsonrpc
from mcp_trio.protocol.headers import Headers


class Request(HttpRequest):
    """A request in memory; its body comes in the given pieces."""

    def __init__(
        self, pieces: list[bytes], headers: RawHeaders, method: str = "POST", delay: float = 0
    ) -> None:
        self.method = method
        self.headers = Headers(headers)
        self.pieces = pieces
        self.delay = delay

    async def read(self) -> bytes:
        await trio.sleep(self.delay)
        return self.pieces.pop(0) if self.pieces else b""


class Response(ResponseWriter):
    """Keeps what is written."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.finished = False
        self.exchange: HttpExchange | None = None
        self.takes_nowait = False
        self.gate: trio.Event | None = None

    async def start(self, status: int, headers: RawHeaders) -> None:
        await trio.lowlevel.checkpoint()
        assert not self.status, "started twice"
        self.status = status
        self.headers = {name.decode(): value.decode() for name, value in headers}

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        assert not self.finished, "written after the end"
        self.pieces.append(data)

    async def finish(self, data: bytes = b"") -> None:
        await trio.lowlevel.checkpoint()
        self.pieces.append(data)
        self.finished = True

    def write_nowait(self, data: bytes) -> bool:
        if self.takes_nowait:
            self.pieces.append(data)
        return self.takes_nowait

    def opened(self, exchange: HttpExchange) -> None:
        super().opened(exchange)
        self.exchange = exchange


async def ask(
    body: dict[str, Any] | list[Any] | bytes,
    *,
    handler: FakeHandler | None = None,
    method: str = "POST",
    headers: RawHeaders | None = None,
    **changes: Any,
) -> tuple[int, dict[str, str], Any]:
    """Put a request through the endpoint: status, headers, and the body or its events."""
    if headers is None:
        plain = body if isinstance(body, dict) and "method" in body else {"method": "tools/list"}
        headers = headers_for(plain, **changes)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    endpoint = Endpoint(handler or FakeHandler())
    outcome = await endpoint.admit(Request([data], headers, method))
    if isinstance(outcome, Answer):
        found = {name.decode(): value.decode() for name, value in outcome.headers}
        return outcome.status, found, json.loads(outcome.body) if outcome.body else None
    response = Response()
    await endpoint.serve(outcome, response)
    assert response.finished
    text = b"".join(response.pieces)
    if response.headers["content-type"] == "application/json":
        assert response.headers["content-length"] == str(len(text))
        return response.status, response.headers, json.loads(text)
    events = [json.loads(event.removeprefix(b"data: ")) for event in text.split(b"\n\n")[:-1]]
    return response.status, response.headers, events


def call(name: str = "echo", **arguments: Any) -> dict[str, Any]:
    return message("tools/call", name=name, arguments=arguments)


# Answers


async def test_a_call_that_notifies_of_nothing_is_answered_with_json() -> None:
    status, headers, body = await ask(call())
    assert (status, body["id"]) == (200, 1)
    assert headers["content-type"] == "application/json"


async def test_the_first_notification_opens_a_stream() -> None:
    """W14: no proxy may buffer or transform it."""
    status, headers, events = await ask(call("progress", count=3))
    assert status == 200
    assert headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache, no-transform",
        "x-accel-buffering": "no",
    }
    assert [event.get("method", "result") for event in events] == [
        *["notifications/progress"] * 3,
        "result",
    ]


async def test_a_client_that_takes_json_only_gets_no_notifications() -> None:
    """W52."""
    _, headers, body = await ask(call("progress", count=3), accept="application/json")
    assert headers["content-type"] == "application/json"
    assert body["result"]["resultType"] == "complete"


async def test_a_client_that_takes_streams_only_gets_one() -> None:
    """W52."""
    _, headers, events = await ask(call(), accept="text/event-stream")
    assert headers["content-type"] == "text/event-stream"
    assert [event["id"] for event in events] == [1]


async def test_a_client_that_takes_streams_only_still_reads_the_status_of_an_error() -> None:
    handler = FakeHandler()
    handler.reply = lambda id_: jsonrpc.error_reply(id_, errors.InvalidParams("no"))
    status, headers, _ = await ask(call("reply"), handler=handler, accept="text/event-stream")
    assert (status, headers["content-type"]) == (400, "application/json")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ParseError("x"), 400),
        (errors.InvalidRequest("x"), 400),
        (errors.InvalidParams("x"), 400),
        (errors.HeaderMismatch("x"), 400),
        (errors.MissingRequiredClientCapability("x", required={"extensions": {}}), 400),
        (errors.UnsupportedProtocolVersion(requested="x", supported=("y",)), 400),
        (errors.MethodNotFound("x"), 404),
        (errors.InternalError("x"), 200),
        (errors.ErrorResponse("x", code=-32000), 200),
        (errors.ServerBusy("x", retry_after=1.2), 503),
    ],
)
async def test_the_status_of_an_error_follows_its_code(
    error: errors.ErrorResponse, status: int
) -> None:
    """W55."""
    handler = FakeHandler()
    handler.reply = lambda id_: jsonrpc.error_reply(id_, error)
    found, headers, body = await ask(call("reply"), handler=handler)
    assert (found, body["error"]["code"], body["id"]) == (status, error.code, 1)
    assert headers.get("retry-after") == ("2" if status == 503 else None)


async def test_an_error_after_notifications_goes_into_the_stream() -> None:
    """W55: the status has been sent."""

    class Fails(FakeHandler):
        async def handle(self, request: Any, exchange: Any) -> jsonrpc.Reply:
            await exchange.send(note("notifications/progress", progress=1))
            return jsonrpc.error_reply(request.id, errors.InvalidParams("late"))

    status, _, events = await ask(call(), handler=Fails())
    assert status == 200
    assert events[-1]["error"]["code"] == -32602


async def test_a_handler_that_raises_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    """W63."""
    status, _, body = await ask(call("boom"))
    assert (status, body["error"]["code"], body["id"]) == (200, -32603, 1)
    assert "RuntimeError: boom" in caplog.text
    assert "boom" not in body["error"]["message"]


# The head


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "PUT", "OPTIONS", "PATCH"])
async def test_other_methods_are_not_allowed(method: str) -> None:
    """W54."""
    status, headers, body = await ask(b"", method=method)
    assert (status, headers["allow"]) == (405, "POST")
    assert "id" not in body


@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
@pytest.mark.parametrize("origin", ["null", " ", "http://evil.example", "http://localhost.evil"])
async def test_a_foreign_origin_is_forbidden_on_every_method(method: str, origin: str) -> None:
    """W53."""
    status, _, body = await ask(call(), method=method, origin=origin)
    assert (status, "id" in body) == (403, False)


@pytest.mark.parametrize("origin", [None, "http://localhost", "HTTP://LOCALHOST:3000"])
async def test_an_origin_of_this_machine_is_allowed(origin: str | None) -> None:
    """W53."""
    assert (await ask(call(), origin=origin))[0] == 200


@pytest.mark.parametrize("host", ["evil:8000", "localhost.evil", "", None, "a b", "\xff"])
async def test_a_foreign_host_is_misdirected(host: str | None) -> None:
    """W53."""
    assert (await ask(call(), host=host))[0] == 421


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]:1", "[::1]"]
)
async def test_a_host_of_this_machine_is_served(host: str) -> None:
    """W53."""
    assert (await ask(call(), host=host))[0] == 200


async def test_two_hosts_or_origins_are_none() -> None:
    headers = headers_for(call())
    assert (await ask(call(), headers=[*headers, (b"host", b"localhost")]))[0] == 421
    twice = [(b"origin", b"http://localhost")] * 2
    assert (await ask(call(), headers=[*headers, *twice]))[0] == 403


async def test_hosts_and_origins_can_be_named() -> None:
    endpoint = Endpoint(
        FakeHandler(),
        allowed_hosts=["mcp.example.com"],
        allowed_origins=["https://app.example.com"],
    )
    body = json.dumps(call()).encode()
    fine = headers_for(call(), host="mcp.example.com", origin="https://app.example.com")
    assert isinstance(await endpoint.admit(Request([body], fine)), Call)
    local = await endpoint.admit(Request([body], headers_for(call())))
    assert isinstance(local, Answer)
    assert local.status == 421


@pytest.mark.parametrize("option", ["allowed_hosts", "allowed_origins"])
def test_a_mistake_in_what_is_allowed_is_found_at_once(option: str) -> None:
    with pytest.raises(ValueError, match="http"):
        Endpoint(FakeHandler(), **{option: ["http://a b"]})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Endpoint(FakeHandler(), **{option: "localhost"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ("application/json; v=1", 200),
        ("text/plain", 415),
        ("application/json; charset=latin-1", 415),
        ("application/jsonx", 415),
        ("", 415),
        (None, 415),
    ],
)
async def test_the_content_type_is_json(content_type: str | None, status: int) -> None:
    assert (await ask(call(), content_type=content_type))[0] == status


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("*/*", 200),
        ("application/*, text/*", 200),
        ("text/event-stream, application/json", 200),
        ("application/json;q=0.5", 200),
        ("text/event-stream;q=0", 406),
        ("text/html", 406),
        (None, 200),
    ],
)
async def test_accept_is_read_with_wildcards_and_weights(accept: str | None, status: int) -> None:
    """W52."""
    assert (await ask(call(), accept=accept))[0] == status


async def test_accept_may_stand_on_several_lines() -> None:
    """W52."""
    headers = headers_for(call(), accept="text/html")
    assert (await ask(call(), headers=[*headers, (b"accept", b"*/*")]))[0] == 200


@pytest.mark.parametrize("accept", ["application/json", "text/*;q=0, */*"])
async def test_a_listen_needs_a_stream(accept: str) -> None:
    """W52: refused before anything is opened."""
    handler = FakeHandler()
    status, _, _ = await ask(message(LISTEN, notifications={}), handler=handler, accept=accept)
    assert status == 406
    assert not handler.requests


# The body


async def test_a_declared_body_over_the_limit_is_not_read() -> None:
    """W85."""
    endpoint = Endpoint(FakeHandler(), max_body=100)
    request = Request([b"x" * 101], headers_for(call(), content_length="101"))
    outcome = await endpoint.admit(request)
    assert isinstance(outcome, Answer)
    assert outcome.status == 413
    assert request.pieces


async def test_a_body_is_counted_while_it_comes() -> None:
    """W85."""
    endpoint = Endpoint(FakeHandler(), max_body=100)
    request = Request([b"x" * 60] * 5, headers_for(call()))
    outcome = await endpoint.admit(request)
    assert isinstance(outcome, Answer)
    assert outcome.status == 413
    assert len(request.pieces) == 3


async def test_a_body_at_the_limit_in_pieces_is_fine() -> None:
    body = json.dumps(call()).encode()
    endpoint = Endpoint(FakeHandler(), max_body=len(body))
    request = Request([body[:5], body[5:40], body[40:]], headers_for(call()))
    assert isinstance(await endpoint.admit(request), Call)


async def test_a_body_has_so_much_time(autojump_clock: trio.testing.MockClock) -> None:
    """W85: a slow body is cut, however steadily it drips."""
    endpoint = Endpoint(FakeHandler(), body_timeout=30)
    request = Request([b" "] * 100, headers_for(call()), delay=1)
    begun = trio.current_time()
    outcome = await endpoint.admit(request)
    assert isinstance(outcome, Answer)
    assert outcome.status == 408
    assert trio.current_time() - begun == pytest.approx(30)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a":NaN}', b"[" * 100_000])
async def test_what_is_not_json_has_no_id(body: bytes) -> None:
    """W55."""
    status, _, answer = await ask(body)
    assert (status, answer["error"]["code"], "id" in answer) == (400, -32700, False)


@pytest.mark.parametrize(
    "body",
    [
        [],
        [call()],
        {},
        {"jsonrpc": "2.0", "id": None, "method": "tools/list", "params": {}},
        {"jsonrpc": "2.0", "id": 1.0, "method": "tools/list", "params": {}},
        {"jsonrpc": "2.0", "id": True, "method": "tools/list", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/x", "params": 5},
    ],
)
async def test_what_is_no_request_is_invalid(body: Any) -> None:
    """W55, W56."""
    status, _, answer = await ask(body)
    assert (status, answer["error"]["code"], "id" in answer) == (400, -32600, False)


async def test_a_response_from_a_client_is_refused() -> None:
    """W55."""
    status, _, answer = await ask({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert (status, answer["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize("request_id", [0, "", "1", 2**53, -1])
async def test_an_id_is_kept_with_its_type(request_id: Any) -> None:
    """W05, W06."""
    _, _, body = await ask(message("tools/list", request_id))
    assert body["id"] == request_id
    assert type(body["id"]) is type(request_id)


# Notifications


@pytest.mark.parametrize("extra", [{}, {"mcp_method": None, "mcp_protocol_version": None}])
async def test_a_notification_is_accepted_without_a_body(extra: dict[str, Any]) -> None:
    """W56, W57."""
    handler = FakeHandler()
    body = {"jsonrpc": "2.0", "method": "notifications/x"}
    status, headers, answer = await ask(body, handler=handler, **extra)
    assert (status, headers, answer) == (202, {"content-length": "0"}, None)
    assert [one.method for one in handler.notified] == ["notifications/x"]


async def test_a_notification_that_fails_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    """W57, W63: what goes wrong with it is no concern of the client's."""

    class Failing(FakeHandler):
        def notify(self, notification: jsonrpc.Notification) -> None:
            raise RuntimeError("secret")

    body = {"jsonrpc": "2.0", "method": "notifications/x"}
    status, _, answer = await ask(body, handler=Failing())
    assert (status, answer) == (202, None)
    assert "the handler failed on 'notifications/x'" in caplog.text


@pytest.mark.parametrize("mcp_method", [None, "notifications/cancelled", "other"])
async def test_a_cancellation_is_accepted_and_ignored(mcp_method: str | None) -> None:
    """W88: over HTTP it means nothing, whoever sends it."""
    handler = FakeHandler()
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    status, _, _ = await ask(body, handler=handler, mcp_method=mcp_method)
    assert status == 202
    assert not handler.notified


# Headers that mirror the body


async def test_the_version_header_is_required_beside_a_modern_body() -> None:
    status, _, body = await ask(call(), mcp_protocol_version=None)
    assert (status, body["error"]["code"], body["id"]) == (400, -32020, 1)


async def test_the_version_header_repeats_the_body() -> None:
    status, _, body = await ask(call(), mcp_protocol_version="2025-11-25")
    assert (status, body["error"]["code"]) == (400, -32020)


async def test_an_unsupported_version_names_those_that_are() -> None:
    """W79."""
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    status, _, body = await ask(
        message("tools/list", _meta=meta), mcp_protocol_version="2099-01-01"
    )
    assert (status, body["error"]["code"]) == (400, -32022)
    assert body["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


async def test_a_request_of_an_older_revision_is_told_what_is_supported() -> None:
    """W79: it names its version in the header alone, or nowhere."""
    old = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    status, _, body = await ask(old, mcp_protocol_version="2025-11-25")
    assert (status, body["error"]["code"]) == (400, -32022)
    assert body["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}
    initialize = {**old, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    status, _, body = await ask(initialize, mcp_protocol_version=None, mcp_method=None)
    assert (status, body["error"]["code"]) == (400, -32020)
    assert "2026-07-28" in body["error"]["message"]


async def test_the_required_meta_is_checked() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    status, _, body = await ask(message("tools/list", _meta=meta))
    assert (status, body["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize(
    "changes",
    [
        {"mcp_method": None},
        {"mcp_method": "tools/list"},
        {"mcp_method": "Tools/Call"},
        {"mcp_name": None},
        {"mcp_name": "other"},
        {"mcp_name": "=?base64?!!?="},
    ],
)
async def test_method_and_name_headers_repeat_the_body(changes: dict[str, Any]) -> None:
    """W51."""
    status, _, body = await ask(call(), **changes)
    assert (status, body["error"]["code"]) == (400, -32020)


async def test_an_encoded_name_is_decoded_before_it_is_compared() -> None:
    """W51."""
    read = message("resources/read", uri="note://测试")
    encoded = "=?base64?bm90ZTovL+a1i+ivlQ==?="
    assert (await ask(read, mcp_name=encoded))[0] == 200


async def test_an_unknown_method_is_not_found() -> None:
    """W55."""
    status, _, body = await ask(message("nope/x", "a"))
    assert (status, body["error"]["code"], body["id"]) == (404, -32601, "a")


async def test_sessions_and_event_ids_of_older_revisions_are_ignored() -> None:
    """W54, W75."""
    status, headers, _ = await ask(call(), mcp_session_id="x", last_event_id="5")
    assert status == 200
    assert "mcp-session-id" not in headers


async def test_the_checks_come_in_the_ruled_order() -> None:
    """Each repair lets the next check speak, from the first to the last."""
    body: Any = {"jsonrpc": "2.0", "id": 1.5, "method": "nope/x", "params": {}}
    data = b"{" + b" " * 5_000_000
    wrong: dict[str, str | None] = {
        "host": "evil",
        "origin": "http://evil",
        "content_type": "text/plain",
        "accept": "text/html",
        "mcp_protocol_version": None,
        "mcp_method": None,
    }
    method = "GET"
    seen: list[tuple[int, int]] = []

    async def step() -> None:
        source = body if data is None else data
        headers = headers_for({"method": "nope/x"}, **wrong)
        status, _, answer = await ask(source, headers=headers, method=method)
        seen.append((status, answer["error"]["code"]))

    await step()
    wrong["host"] = "localhost"
    await step()
    wrong["origin"] = None
    await step()
    method = "POST"
    await step()
    wrong["content_type"] = "application/json"
    await step()
    wrong["accept"] = BOTH
    await step()
    data = b"{"
    await step()
    data = None  # type: ignore[assignment]
    await step()
    body["id"] = 1
    await step()
    wrong["mcp_protocol_version"] = "1999"
    body["params"] = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2099"}}
    await step()
    wrong["mcp_protocol_version"] = "2099"
    await step()
    wrong["mcp_protocol_version"] = "2026-07-28"
    body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28"
    await step()
    body["params"]["_meta"] = META
    await step()
    wrong["mcp_method"] = "nope/x"
    await step()
    assert seen == [
        (421, -32600),
        (403, -32600),
        (405, -32600),
        (415, -32600),
        (406, -32600),
        (413, -32600),
        (400, -32700),
        (400, -32600),
        (400, -32020),
        (400, -32020),
        (400, -32022),
        (400, -32602),
        (400, -32020),
        (404, -32601),
    ]


# The exchange


async def open_exchange(response: Response | None = None) -> tuple[HttpExchange, Response]:
    response = response or Response()
    headers = Headers([(b"X-One", b"1")])
    accepts = (await admitted()).accepts
    return HttpExchange(response, accepts, headers), response


async def admitted() -> Call:
    outcome = await Endpoint(FakeHandler()).admit(
        Request([json.dumps(call()).encode()], headers_for(call()))
    )
    assert isinstance(outcome, Call)
    return outcome


async def test_nothing_follows_the_response() -> None:
    """S-12."""
    exchange, response = await open_exchange()
    await exchange.send(b"1")
    await exchange.finish(jsonrpc.Reply(b"2"))
    with pytest.raises(trio.ClosedResourceError):
        await exchange.send(b"3")
    response.takes_nowait = True
    assert not exchange.send_nowait(b"4")
    await exchange.keep_alive()
    assert response.pieces == [b"data: 1\n\n", b"data: 2\n\n"]


async def test_a_comment_goes_between_events_and_never_before_the_stream() -> None:
    """W13."""
    exchange, response = await open_exchange()
    await exchange.keep_alive()
    assert not response.status
    await exchange.send(b"1")
    await exchange.keep_alive()
    assert response.pieces == [b"data: 1\n\n", b":\n\n"]


async def test_a_comment_is_not_written_while_a_write_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    exchange, response = await open_exchange()
    await exchange.send(b"1")
    response.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exchange.send, b"2")
        await trio.sleep(1)
        await exchange.keep_alive()
        assert exchange.last_write == trio.current_time()
        response.takes_nowait = True
        assert not exchange.send_nowait(b"3")
        response.gate.set()
    assert response.pieces == [b"data: 1\n\n", b"data: 2\n\n"]


async def test_writes_from_many_tasks_take_turns() -> None:
    exchange, response = await open_exchange()
    response.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(exchange.send, b"%d" % number)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(exchange.finish, jsonrpc.Reply(b"end"))
        await trio.testing.wait_all_tasks_blocked()
        response.gate.set()
    assert len(response.pieces) == 6
    assert response.pieces[-1] == b"data: end\n\n"


async def test_send_nowait_needs_an_open_stream_and_a_willing_writer() -> None:
    exchange, response = await open_exchange()
    response.takes_nowait = True
    assert not exchange.send_nowait(b"1")
    await exchange.send(b"1")
    assert exchange.send_nowait(b"2")
    response.takes_nowait = False
    assert not exchange.send_nowait(b"3")
    assert response.pieces == [b"data: 1\n\n", b"data: 2\n\n"]


async def test_a_writer_need_not_write_at_once() -> None:
    class Plain(Response):
        def write_nowait(self, data: bytes) -> bool:
            return ResponseWriter.write_nowait(self, data)

    exchange, _ = await open_exchange(Plain())
    await exchange.send(b"1")
    assert not exchange.send_nowait(b"2")


async def test_giving_up_on_the_first_notification_does_not_send_two_heads() -> None:
    exchange, response = await open_exchange()
    with trio.CancelScope() as scope:
        scope.cancel()
        await exchange.send(b"1")
    await exchange.send(b"2")
    await exchange.finish(jsonrpc.Reply(b"3"))
    assert response.pieces == [b"data: 2\n\n", b"data: 3\n\n"]


async def test_released_headers_are_gone() -> None:
    """S-23."""
    exchange, _ = await open_exchange()
    assert exchange.headers["x-one"] == "1"
    assert (exchange.kind, exchange.connection) == ("http", None)
    exchange.release()
    assert not exchange.headers


async def test_serving_a_call_takes_the_headers_out_of_it() -> None:
    """S-23."""
    outcome = await admitted()
    await Endpoint(FakeHandler()).serve(outcome, Response())
    assert not outcome.headers
    assert not outcome.request.params
