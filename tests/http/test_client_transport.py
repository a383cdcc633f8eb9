"""`HttpTransport` and what a server can answer: requests, messages, statuses, sizes."""

import json
import math
from typing import Any

import pytest
import trio
import trio.testing
from client_peer import DONE, NOTE, PARAMS, SSE_HEAD, Peer, ask, connected

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc

# Requests


async def test_request_headers_and_body() -> None:
    """W51, W52: Accept lists both kinds; the mirrored headers, encoded where they must be."""
    seen: list[Any] = []

    async def script(peer: Peer) -> None:
        while True:
            seen.append(await peer.request())
            await peer.json(DONE)

    async with connected(script, headers={"Authorization": "Bearer x"}) as (transport, server):
        await ask(transport)
        await ask(transport, "resources/read", {**PARAMS, "uri": "note://测试"})
        await ask(transport, "tools/call", {**PARAMS, "name": "=?base64?abc?="})
    first, headers, body = seen[0]
    assert first == "POST /mcp HTTP/1.1"
    assert headers["host"] == server.url.split("/")[2]
    assert headers["accept"] == "application/json, text/event-stream"
    assert headers["content-type"] == "application/json"
    assert headers["mcp-protocol-version"] == "2026-07-28"
    assert headers["mcp-method"] == "tools/list"
    assert "mcp-name" not in headers
    assert headers["authorization"] == "Bearer x"
    assert json.loads(body) == {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": PARAMS}
    assert seen[1][1]["mcp-name"] == "=?base64?bm90ZTovL+a1i+ivlQ==?="
    assert seen[2][1]["mcp-name"].startswith("=?base64?PT9iYXNl")


async def test_header_value_beyond_ascii() -> None:
    """A header may hold Latin-1; what the constructor accepts can be sent."""
    seen = []

    async def script(peer: Peer) -> None:
        _, headers, _ = await peer.request()
        seen.append(headers["x-name"])
        await peer.json(DONE)

    async with connected(script, headers={"X-Name": "Zo\xeb"}) as (transport, _):
        await ask(transport)
    assert seen == ["Zo\xeb"]


async def test_json_answer() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(DONE)

    async with connected(script) as (transport, _):
        assert await ask(transport) == [jsonrpc.ResultReply(1, {"resultType": "complete"})]


async def test_stream_answer_in_single_bytes() -> None:
    """W09, W11, W12, W22: whatever the pieces; comments and empty events mean nothing."""
    stream = (
        b"\xef\xbb\xbf:\r\n\r\nid: 1\ndata:\n\ndata: " + NOTE[:20] + b"\n: x\r\ndata: " + NOTE[20:]
    )
    # The data lines are joined by a line feed, which JSON allows only between tokens.
    stream = stream.replace(NOTE[:20], NOTE[:17]).replace(NOTE[20:], NOTE[17:])
    stream += b"\r\r: alive\n\nevent: ping\ndata: {}\n\nretry: 1000\n\ndata: " + DONE + b"\r\n\r\n"

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(SSE_HEAD)
        for byte in stream:
            await peer.chunk(bytes([byte]))
        await peer.end_chunks()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        first = await messages.receive()
        assert isinstance(first, jsonrpc.Notification)
        assert isinstance(await messages.receive(), jsonrpc.ResultReply)
        with pytest.raises(trio.EndOfChannel):
            await messages.receive()
        assert messages.comments == 3
        assert messages.last_heard <= trio.current_time()


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("kind", ["json", "events"])
async def test_line_ends_and_what_looks_like_them(kind: str, end: bytes) -> None:
    """W09, W10: a line ends in three ways, and in no other; in JSON none of them matters."""
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1eh"
    body = jsonrpc.result_reply(1, {"text": text}).frame
    for plain in ("\u2028", "\u2029", "\x85"):
        escaped = json.dumps(plain).strip('"').encode()
        assert escaped in body
        body = body.replace(escaped, plain.encode())

    async def script(peer: Peer) -> None:
        await peer.request()
        if kind == "json":
            await peer.json(end + body + end)
        else:
            await peer.send(SSE_HEAD)
            await peer.chunk(b"event: message" + end + b"data: " + body + end + end)

    async with connected(script) as (transport, _):
        [reply] = await ask(transport)
        assert isinstance(reply, jsonrpc.ResultReply)
        assert reply.result["text"] == text


async def test_times_of_comments(mock_clock: trio.testing.MockClock) -> None:
    """P-10: the longest time between comments is known; what one read brings has none between."""
    go_on = trio.Event()

    async def script(peer: Peer) -> None:
        nonlocal go_on
        await peer.request()
        await peer.send(SSE_HEAD)
        for seconds in (0.25, 3.0, 2.0, 0.0):
            await peer.chunk(b": x\n\n: y\n\ndata: " + NOTE + b"\n\n")
            await go_on.wait()
            go_on = trio.Event()
            mock_clock.jump(seconds)
        await peer.event(DONE)

    seen: list[Any] = []
    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        begun = messages.last_heard
        while isinstance(await messages.receive(), jsonrpc.Notification):
            seen.append((messages.comments, messages.last_heard - begun, messages.comment_interval))
            go_on.set()
    assert seen == [(2, 0.0, None), (4, 0.25, 0.25), (6, 3.25, 3.0), (8, 5.25, 3.0)]


async def test_foreign_and_late_messages_on_a_stream() -> None:
    """W06, W58: another type of id is another id; requests of a server are dropped."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(SSE_HEAD)
        await peer.event(DONE.replace(b'"id":1', b'"id":"1"'))
        await peer.event(b'{"jsonrpc":"2.0","id":5,"method":"ping"}')
        await peer.event(DONE)
        await peer.event(DONE)
        await peer.gone()

    async with connected(script) as (transport, _):
        assert len(await ask(transport)) == 1


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (DONE.replace(b'"id":1', b'"id":"1"'), "not the response to this request"),
        (NOTE, "not the response to this request"),
        (b"<html>", "not valid JSON"),
        (b"[]", "batches"),
        (b"", "nothing else"),
    ],
)
async def test_json_that_is_no_answer(body: bytes, text: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(body)

    async with connected(script) as (transport, _):
        with pytest.raises(errors.RemoteProtocolError, match=text):
            await ask(transport)


async def test_what_came_before_invalid_json_comes_first() -> None:
    """C-25: one read brings two events and nonsense; the loss comes after the events."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(SSE_HEAD)
        await peer.chunk(b"data: " + NOTE + b"\n\ndata: " + NOTE + b"\n\ndata: {\n\n")
        await peer.gone()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/list", PARAMS) as messages,
    ):
        for _ in range(2):
            assert isinstance(await messages.receive(), jsonrpc.Notification)
        with pytest.raises(errors.RemoteProtocolError, match="not valid JSON"):
            await messages.receive()


async def test_invalid_json_in_a_stream() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(SSE_HEAD)
        await peer.event(b"{nonsense")
        await peer.gone()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/list", PARAMS) as messages,
    ):
        for _ in range(2):  # and it stays that way
            with pytest.raises(errors.RemoteProtocolError, match="not valid JSON"):
                await messages.receive()


# Statuses


@pytest.mark.parametrize(
    ("status", "id_part"),
    [
        (status, id_part)
        for status in ("400 Bad Request", "404 Not Found", "200 OK", "503 X")
        for id_part in (b'"id":1,', b"", b'"id":null,', b'"id":"other",')
        # With status 200 another id is another request's.
        if not (status == "200 OK" and b"other" in id_part)
    ],
)
async def test_json_rpc_error_with_any_status(status: str, id_part: bytes) -> None:
    """W55: the body says what is wrong, whatever the status and whatever id it managed."""
    body = b'{"jsonrpc":"2.0",' + id_part + b'"error":{"code":-32601,"message":"no such"}}'

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(body, status)

    async with connected(script) as (transport, _):
        [reply] = await ask(transport)
        assert isinstance(reply, jsonrpc.ErrorReply)
        assert reply.id == 1
        assert isinstance(reply.error, errors.MethodNotFound)
        cause = reply.error.__cause__
        if status == "200 OK":
            assert cause is None
        else:
            assert isinstance(cause, errors.HttpStatusError)
            assert cause.status == int(status[:3])


async def test_busy_server() -> None:
    """P-22: a limit of the server is an error of its own."""
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"full","data":{"a":1}}}'

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(body, "503 Service Unavailable", "retry-after: 7\r\n")

    async with connected(script) as (transport, _):
        [reply] = await ask(transport)
        assert isinstance(reply, jsonrpc.ErrorReply)
        assert isinstance(reply.error, errors.ServerBusy)
        assert reply.error.retry_after == 7
        assert reply.error.data == {"a": 1, "retryAfterMs": 7000}


async def test_busy_server_that_says_it_twice() -> None:
    """The error itself is more exact than the header, which has whole seconds."""
    body = jsonrpc.error_reply(1, errors.ServerBusy("full", retry_after=1.5)).frame

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(body, "503 Service Unavailable", "retry-after: 2\r\n")

    async with connected(script) as (transport, _):
        [reply] = await ask(transport)
        assert isinstance(reply, jsonrpc.ErrorReply)
        assert isinstance(reply.error, errors.ServerBusy)
        assert reply.error.retry_after == 1.5
        assert isinstance(reply.error.__cause__, errors.HttpStatusError)


@pytest.mark.parametrize(
    ("answer", "status", "text", "retry_after"),
    [
        ("401 Unauthorized\r\nwww-authenticate: Bearer", 401, "401 Unauthorized", None),
        ("403 Forbidden\r\nretry-after: soon", 403, "403 Forbidden", None),
        ("429 Slow\r\nretry-after: 12", 429, "429 Too Many Requests", 12),
        (f"429 Slow\r\nretry-after: {'9' * 400}", 429, "429 Too Many Requests", 1e12),
        (f"429 Slow\r\nretry-after: 1{'0' * 19}", 429, "429 Too Many Requests", 1e12),
        ("503 x\r\nretry-after: Fri, 31 Dec 1999 23:59:59 GMT", 503, "503", 0),
        ("502 Bad Gateway\r\ncontent-type: text/html", 502, r"502 Bad Gateway \(text/html\)", None),
        ("500 Oh\r\ncontent-type: application/json", 500, "500 Internal Server Error", None),
        ("599 What", 599, "status 599", None),
        ("405 No\r\nallow: GET", 405, "405 Method Not Allowed", None),
        ("302 Found\r\nlocation: http://evil/", 302, "http://evil/.*not followed", None),
    ],
)
async def test_bare_statuses(
    answer: str, status: int, text: str, retry_after: float | None
) -> None:
    """W48, W54, W62: one exception, whose text names the status."""
    body = "<html>sorry</html>"

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(f"HTTP/1.1 {answer}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        await peer.gone()

    async with connected(script) as (transport, _):
        with pytest.raises(errors.HttpStatusError, match=text) as caught:
            await ask(transport)
        assert caught.value.status == status
        assert caught.value.retry_after == retry_after
        assert "sorry" not in str(caught.value)
        assert caught.value.headers["content-length"] == "18"


async def test_error_status_with_other_json() -> None:
    for body in (b'{"error":"nope"}', DONE, b"x" * 70_000):

        async def script(peer: Peer, body: bytes = body) -> None:
            await peer.request()
            await peer.json(body, "500 Oops")

        async with connected(script) as (transport, _):
            with pytest.raises(errors.HttpStatusError, match="500"):
                await ask(transport)


async def test_retry_after_as_a_date_to_come() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(
            b"HTTP/1.1 429 x\r\nretry-after: Fri, 31 Dec 9999 23:59:59 -0000\r\n"
            b"content-length: 0\r\n\r\n"
        )

    async with connected(script) as (transport, _):
        with pytest.raises(errors.HttpStatusError) as caught:
            await ask(transport)
        assert caught.value.retry_after is not None
        assert 1e9 < caught.value.retry_after < math.inf


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"content-type: text/html\r\n", "text/html, not with JSON"),
        (b"content-type: application/json\r\ncontent-encoding: gzip\r\n", "gzip"),
    ],
)
async def test_answers_of_a_kind_not_asked_for(head: bytes, text: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n" + head + b"content-length: 1\r\n\r\n1")

    async with connected(script) as (transport, _):
        with pytest.raises(errors.RemoteProtocolError, match=text):
            await ask(transport)


@pytest.mark.parametrize("status", ["202 Accepted", "204 No Content", "200 OK"])
async def test_notification_is_accepted(status: str) -> None:
    """W56: any of these, with an empty body."""

    async def script(peer: Peer) -> None:
        while True:
            _, headers, body = await peer.request()
            assert headers["mcp-method"] == "notifications/x"
            assert "id" not in json.loads(body)
            length = "" if status.startswith("204") else "content-length: 0\r\n"
            await peer.send(f"HTTP/1.1 {status}\r\n{length}\r\n".encode())

    async with connected(script) as (transport, server):
        await transport.notify("notifications/x", PARAMS)
        await transport.notify("notifications/x", PARAMS)
        assert server.connections == 1


async def test_answer_to_a_notification_is_not_read() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(b"{nonsense")
        await peer.request()
        await peer.send(SSE_HEAD)
        await peer.gone()

    async with connected(script) as (transport, server):
        await transport.notify("notifications/x", PARAMS)
        await transport.notify("notifications/x", PARAMS)
        assert server.connections == 1
        assert transport.statistics().idle == 0


async def test_notification_is_refused() -> None:
    body = b'{"jsonrpc":"2.0","error":{"code":-32602,"message":"bad"}}'

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(body, "400 Bad Request")
        await peer.request()
        await peer.send(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")

    async with connected(script) as (transport, _):
        with pytest.raises(errors.InvalidParams):
            await transport.notify("notifications/x", {})
        with pytest.raises(errors.HttpStatusError, match="403"):
            await transport.notify("notifications/x", {})


# Sizes


async def test_oversized_answers() -> None:
    """A bound on a body and on an event of a stream."""

    async def script(peer: Peer) -> None:
        *_, body = await peer.request()
        if b"tools/list" in body:
            await peer.json(b" " * 2000)
        else:
            await peer.send(SSE_HEAD)
            await peer.chunk(b"data: " + b"x" * 2000)
        await peer.gone()

    async with connected(script, max_message=1000) as (transport, _):
        with pytest.raises(errors.RemoteProtocolError, match="more than 1000 bytes"):
            await ask(transport)
        with pytest.raises(errors.RemoteProtocolError, match="more than 1000 bytes"):
            await ask(transport, "tools/call")


async def test_slow_consumer_is_felt_by_the_server() -> None:
    """W20, W40: nothing is read that nobody has asked for."""
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(SSE_HEAD)
        while True:
            await peer.event(NOTE)
            sent += 1

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        await messages.receive()
        before = -1
        while before != sent:
            before = sent
            await trio.sleep(0.1)
        assert messages.waiting * len(NOTE) < 70_000
        assert sent * len(NOTE) < 20_000_000
