"""Who makes a request over HTTP, and what is answered to who may not."""

import json
import logging
import math
from typing import Any

import http_kit
import pytest
import trio
from http_kit import FakeHandler, headers_for, message, running

from mcp_trio.http.authentication import AccessDenied, Authenticate
from mcp_trio.http.endpoint import Answer, Call, Endpoint, HttpRequest
from mcp_trio.protocol.headers import Headers
from mcp_trio.transports.abc import Principal

BODY = message("tools/list")


class Request(HttpRequest):
    """A request that says whether its body has been read."""

    def __init__(self, *more: tuple[bytes, bytes], **changes: Any) -> None:
        self.method = changes.pop("method", "POST")
        self.principal = changes.pop("principal", None)
        self.headers = Headers([*headers_for(BODY, **changes), *more])
        self.read_at_all = False
        self.pieces = [json.dumps(BODY).encode(), b""]

    async def read(self) -> bytes:
        await trio.lowlevel.checkpoint()
        self.read_at_all = True
        return self.pieces.pop(0)


async def by_token(headers: Headers, certified: Principal | None) -> Principal | None:
    await trio.lowlevel.checkpoint()
    scheme, _, sent = headers.get("authorization", "").partition(" ")
    if not sent:
        return certified
    if scheme.lower() != "bearer" or sent == "bad":
        raise AccessDenied("no such token", challenge='Bearer error="invalid_token"')
    if sent == "narrow":
        raise AccessDenied("not with this scope", status=403, challenge=None)
    expires = trio.current_time() - 1 if sent == "old" else math.inf
    return Principal(sent, expires)


def token(text: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Bearer " + text.encode()


async def admit(request: Request, authenticate: Authenticate = by_token) -> Answer | Call:
    return await Endpoint(FakeHandler(), authenticate=authenticate).admit(request)


async def test_the_principal_is_who_the_headers_say() -> None:
    """P-15: the exchange knows who asks."""
    outcome = await admit(Request(token("alice")))
    assert isinstance(outcome, Call)
    assert outcome.principal == Principal("alice")


async def test_the_certificate_counts_where_the_function_says_so() -> None:
    outcome = await admit(Request(principal=Principal("by-certificate")))
    assert isinstance(outcome, Call)
    assert outcome.principal == Principal("by-certificate")
    outcome = await admit(Request())
    assert isinstance(outcome, Call)
    assert outcome.principal is None


@pytest.mark.parametrize(
    ("sent", "status", "challenge"),
    [
        ("bad", 401, b'Bearer error="invalid_token"'),
        ("old", 401, b'Bearer error="invalid_token"'),
        ("narrow", 403, None),
    ],
)
async def test_who_is_refused_hears_how_to_come_back(
    sent: str, status: int, challenge: bytes | None
) -> None:
    """W68: refused by the head; the body is not read, whatever it is."""
    request = Request(token(sent))
    outcome = await admit(request)
    assert isinstance(outcome, Answer)
    assert outcome.status == status
    assert dict(outcome.headers).get(b"www-authenticate") == challenge
    assert json.loads(outcome.body)["error"]["code"] == -32600
    assert not request.read_at_all


async def test_what_needs_nobodys_help_is_checked_before() -> None:
    """No credentials are looked at for a foreign page, or for what is no request at all."""
    asked = []

    async def authenticate(headers: Headers, certified: Principal | None) -> Principal | None:
        asked.append(headers)
        raise AccessDenied

    for request, status in [
        (Request((b"origin", b"https://evil.example")), 403),
        (Request(method="GET"), 405),
        (Request(content_type="text/plain"), 415),
    ]:
        outcome = await admit(request, authenticate)
        assert isinstance(outcome, Answer)
        assert outcome.status == status
    assert not asked
    outcome = await admit(Request(), authenticate)
    assert isinstance(outcome, Answer)
    assert (outcome.status, dict(outcome.headers)[b"www-authenticate"]) == (401, b"Bearer")


@pytest.mark.parametrize("result", ["raises", "a name", 0])
async def test_a_function_that_fails_lets_nobody_in(
    result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """W63: the log gets the traceback, the client nothing of it."""

    async def authenticate(headers: Headers, certified: Principal | None) -> Any:
        if result == "raises":
            raise OSError("secret-host unreachable")
        return result

    with caplog.at_level(logging.ERROR, "mcp_trio.http"):
        outcome = await admit(Request(), authenticate)
    assert isinstance(outcome, Answer)
    assert outcome.status == 500
    assert b"secret" not in outcome.body
    assert json.loads(outcome.body)["error"]["code"] == -32603
    assert "could not be authenticated" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"status": 200},
        {"challenge": None},
        {"challenge": "Bearer\r\nX-Evil: 1"},
        {"challenge": ""},
        {"challenge": "Bearer é"},
    ],
)
def test_a_denial_that_cannot_be_sent_cannot_be_made(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"status|challenge|header"):
        AccessDenied(**arguments)


@pytest.mark.parametrize("name", ["native", "hypercorn"])
async def test_both_hosts_ask(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_kit, "host", name)
    async with running(authenticate=by_token) as server:
        statuses = []
        for sent in ("bad", "alice"):
            with trio.fail_after(10):
                stream = await trio.open_tcp_stream("127.0.0.1", server.port)
                async with stream:
                    body = json.dumps(BODY).encode()
                    lines = [b"%b: %b" % line for line in [*headers_for(BODY), token(sent)]]
                    lines += [b"content-length: %d" % len(body), b"connection: close"]
                    head = b"\r\n".join([b"POST /mcp HTTP/1.1", *lines])
                    await stream.send_all(head + b"\r\n\r\n" + body)
                    answer = b"".join([piece async for piece in stream])
            statuses.append(answer.split()[1])
            assert (b"www-authenticate" in answer.lower()) is (sent == "bad")
        assert statuses == [b"401", b"200"]


async def test_who_asks_late_and_takes_its_time_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a connection may be idle does not bound what comes on it."""

    async def slowly(headers: Headers, certified: Principal | None) -> None:
        await trio.sleep(0.4)

    monkeypatch.setattr(http_kit, "host", "native")
    async with (
        running(authenticate=slowly, idle_timeout=0.5) as server,
        server.connect() as peer,
    ):
        await trio.sleep(0.3)
        assert (await peer.request(http_kit.post("tools/list"))).status == 200
