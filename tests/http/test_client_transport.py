"""`HttpTransport` against servers that are nothing but bytes on a loopback socket."""

import json
import math
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from byte_reader import ByteReader

from mcp_trio import errors
from mcp_trio.http import _pool, _target, _wire
from mcp_trio.http.client import HttpTransport
from mcp_trio.protocol import jsonrpc

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
PARAMS: dict[str, Any] = {"_meta": META}
HUGE = {**PARAMS, "arguments": {"text": "x" * 8_000_000}}
DONE = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}'
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Peer(ByteReader):
    """The server's end of one connection."""

    stream: trio.SocketStream

    async def request(self) -> tuple[str, dict[str, str], bytes]:
        """Read a request: its first line, headers in lower case, body."""
        first, lines = await self.read_head()
        headers = dict(lines)
        return first, headers, await self.read_exactly(int(headers["content-length"]))

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def json(self, body: bytes, status: str = "200 OK", extra: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{extra}"
        await self.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, frame: bytes) -> None:
        await self.chunk(b"data: " + frame + b"\n\n")

    async def end_chunks(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def gone(self) -> None:
        """Wait until the client has closed its end."""
        try:
            while await self.stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass

    def reset(self) -> None:
        """Close with RST."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()


Script = Callable[[Peer], Awaitable[None]]


class Server:
    """Runs a script for each connection; remembers what happened."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.url = ""

    async def handle(self, stream: Any) -> None:
        self.connections += 1
        with suppress(EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            await self.script(Peer(stream))


@asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(script)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            serve: Any = partial(trio.serve_tcp, server.handle, 0, host="127.0.0.1")
            if tls is not None:
                serve = partial(trio.serve_ssl_over_tcp, server.handle, 0, tls, host="127.0.0.1")
            listeners = await nursery.start(serve)
            port = listeners[0].socket.getsockname()[1]
            server.url = f"http{'s' if tls else ''}://127.0.0.1:{port}/mcp"
            yield server
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(script: Script, **options: Any) -> AsyncIterator[tuple[HttpTransport, Server]]:
    async with serving(script) as server:
        transport = HttpTransport(server.url, **options)
        try:
            yield transport, server
        finally:
            transport.close()


async def ask(
    transport: HttpTransport,
    method: str = "tools/list",
    params: dict[str, Any] = PARAMS,
    request_id: str | int = 1,
) -> list[jsonrpc.Message]:
    async with transport.open_exchange(request_id, method, params) as messages:
        return [message async for message in messages]


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
        statistics = messages.statistics()
        assert (statistics.waiting, statistics.comments) == (0, 3)
        assert statistics.last_heard <= trio.current_time()


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
        ("302 Found\r\nlocation: http://evil/", 302, "http://evil/.*not followed", None),
    ],
)
async def test_bare_statuses(
    answer: str, status: int, text: str, retry_after: float | None
) -> None:
    """W62: one exception, whose text names the status."""
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
        assert messages.statistics().waiting * len(NOTE) < 70_000
        assert sent * len(NOTE) < 20_000_000


# Endings


async def close_cleanly(peer: Peer) -> None:
    await peer.end_chunks()


async def close_early(peer: Peer) -> None:
    pass


async def close_within_a_chunk(peer: Peer) -> None:
    await peer.send(b"100\r\ndata: ")


async def reset(peer: Peer) -> None:
    peer.reset()


@pytest.mark.parametrize("end", [close_cleanly, close_early, close_within_a_chunk, reset])
@pytest.mark.parametrize("method", ["tools/call", "subscriptions/listen"])
async def test_stream_that_ends_without_a_response(end: Script, method: str) -> None:
    """W17: (a) clean end, (b) RST, (c) truncated body."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(SSE_HEAD)
        await peer.event(NOTE)
        await end(peer)

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, method, PARAMS) as messages,
    ):
        await messages.receive()
        with pytest.raises(errors.ConnectionLost, match="127"):
            await messages.receive()
        with pytest.raises(errors.ConnectionLost):
            await messages.receive()


async def test_end_before_any_answer() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()

    async with connected(script) as (transport, server):
        with pytest.raises(errors.ConnectionLost, match="before the response"):
            await ask(transport)
        assert server.connections == 1  # a fresh connection is no reason to try again


async def test_what_is_not_http() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"SSH-2.0-OpenSSH\r\n\r\n")
        await peer.gone()

    async with connected(script) as (transport, _):
        with pytest.raises(errors.RemoteProtocolError, match="does not answer in HTTP"):
            await ask(transport)


async def test_interim_answers() -> None:
    """W85: they are passed over, but not for ever."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 3)
        await peer.json(DONE)
        await peer.request()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 30)
        await peer.gone()

    async with connected(script) as (transport, _):
        await ask(transport)
        with pytest.raises(errors.RemoteProtocolError, match="interim"):
            await ask(transport)


async def test_answer_before_the_body_was_read() -> None:
    """W85: a 413 counts even though writing the request failed."""

    async def script(peer: Peer) -> None:
        await peer.stream.receive_some(100)
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await peer.stream.send_eof()
        with trio.move_on_after(0.2):
            await trio.sleep_forever()  # while the client finds out that nobody reads

    async with connected(script) as (transport, _):
        with pytest.raises((errors.HttpStatusError, errors.ConnectionLost)):
            await ask(transport, "tools/call", HUGE)
        assert transport.statistics().idle == 0


async def test_leaving_the_block_closes_the_socket() -> None:
    """W43, C-40: that is the cancellation; other requests do not notice."""
    left = trio.Event()
    other = trio.Event()

    async def script(peer: Peer) -> None:
        *_, body = await peer.request()
        await peer.send(SSE_HEAD)
        await peer.event(NOTE)
        if b'"id":1,' in body:
            await peer.gone()
            left.set()
        else:
            await other.wait()
            await peer.event(DONE.replace(b'"id":1', b'"id":2'))

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(2, "tools/call", PARAMS) as second,
    ):
        await second.receive()
        with trio.move_on_after(0.05) as scope:
            async with transport.open_exchange(1, "tools/call", PARAMS) as first:
                await first.receive()
                await first.receive()
        assert scope.cancelled_caught
        await left.wait()
        assert transport.statistics().open == 1
        other.set()
        assert isinstance(await second.receive(), jsonrpc.ResultReply)


async def test_cancelled_receive_loses_nothing() -> None:
    """C-23: whenever it is cancelled."""
    count = 50

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(SSE_HEAD)
        for number in range(count):
            data = b"data: " + NOTE.replace(b'"progress":1', b'"progress":%d' % number) + b"\n\n"
            await peer.chunk(data[:30])
            await trio.sleep(0.001)
            await peer.chunk(data[30:])
        await peer.event(DONE)
        await peer.gone()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        received: list[jsonrpc.Message] = []
        while len(received) <= count:
            with trio.move_on_after(0.0007):
                received.append(await messages.receive())
            with trio.CancelScope() as scope:
                scope.cancel()
                received.append(await messages.receive())
        progress = [
            m.params["progress"] for m in received[:-1] if isinstance(m, jsonrpc.Notification)
        ]
        assert progress == list(range(count))


async def test_two_receivers() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_closed_while_receiving, messages)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await messages.receive()
            await messages.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await messages.receive()


async def _closed_while_receiving(messages: trio.abc.ReceiveChannel[jsonrpc.Message]) -> None:
    with pytest.raises(trio.ClosedResourceError):
        await messages.receive()


async def test_closing_the_transport_closes_everything() -> None:
    gone = 0
    both_gone = trio.Event()

    async def script(peer: Peer) -> None:
        nonlocal gone
        *_, body = await peer.request()
        if b"tools/list" in body:
            await peer.json(DONE)
        await peer.gone()
        gone += 1
        if gone == 2:
            both_gone.set()

    async with connected(script) as (transport, _):
        await ask(transport)
        async with transport.open_exchange(1, "subscriptions/listen", PARAMS) as messages:
            assert transport.statistics().open == 1
            transport.close()
            with pytest.raises(trio.ClosedResourceError):
                await messages.receive()
        with pytest.raises(trio.ClosedResourceError):
            await ask(transport)
        await both_gone.wait()
        assert (transport.statistics().open, transport.statistics().idle) == (0, 0)


@pytest.mark.parametrize("at", ["connecting", "writing"])
async def test_closing_the_transport_ends_what_is_not_open_yet(
    at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is left has no socket, also where another task is only sending."""

    async def script(peer: Peer) -> None:
        sending.set()
        await closed.wait()
        await peer.gone()
        gone.set()

    async def connect(*_: Any, **__: Any) -> None:
        sending.set()
        await trio.sleep_forever()

    async def call() -> None:
        with pytest.raises(trio.ClosedResourceError, match="transport was closed"):
            await ask(transport, "tools/call", HUGE)
        refused.set()

    sending, closed, gone, refused = (trio.Event() for _ in range(4))
    if at == "connecting":
        monkeypatch.setattr(_target, "connect", connect)
    async with connected(script) as (transport, _), trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await sending.wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        transport.close()
        await refused.wait()
        closed.set()
        if at == "writing":
            await gone.wait()


async def test_closed_just_as_a_request_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is out when the transport is closed takes its connection with it."""

    async def connect(*args: Any, **options: Any) -> _wire.HttpConnection:
        connections.append(await real(*args, **options))
        return connections[0]

    async def send(*_: Any) -> None:
        transport.close()

    connections: list[_wire.HttpConnection] = []
    real = _target.connect
    monkeypatch.setattr(_target, "connect", connect)
    monkeypatch.setattr(_wire.HttpConnection, "send", send)
    async with connected(Peer.gone) as (transport, _):
        with pytest.raises(trio.ClosedResourceError):
            await ask(transport)
        assert connections[0].closed


async def test_blocks_left_in_any_order_and_from_another_task() -> None:
    """W61: there is no scope in it that could get out of order."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with connected(script) as (transport, _):
        first = transport.open_exchange(1, "subscriptions/listen", PARAMS)
        second = transport.open_exchange(2, "subscriptions/listen", PARAMS)
        await first.__aenter__()
        await second.__aenter__()
        await first.__aexit__(None, None, None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.__aexit__, None, None, None)
            await trio.lowlevel.checkpoint()
        assert transport.statistics().open == 0


# Reuse


async def test_connections_are_reused() -> None:
    async def script(peer: Peer) -> None:
        while True:
            *_, body = await peer.request()
            if b"tools/list" in body:
                await peer.json(DONE)
            else:
                await peer.send(SSE_HEAD)
                await peer.event(NOTE)
                await peer.event(DONE)
                await trio.sleep(0.005)  # the end of the body lags behind the response
                await peer.end_chunks()

    async with connected(script) as (transport, server):
        for method in ("tools/list", "tools/call", "tools/list", "subscriptions/listen"):
            await ask(transport, method)
        # The subscription has one of its own, which is not kept.
        assert server.connections == 2
        statistics = transport.statistics()
        assert (statistics.idle, statistics.connected, statistics.requests) == (1, 2, 4)


@pytest.mark.parametrize("lag", [0.2, None])
async def test_stream_that_does_not_end_is_not_waited_for(lag: float | None) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(SSE_HEAD)
            await peer.event(DONE)
            if lag is None:
                return
            await trio.sleep(lag)
            await peer.end_chunks()

    async with connected(script) as (transport, server):
        await ask(transport, "tools/call")
        assert transport.statistics().idle == 0
        await ask(transport, "tools/call")
        assert server.connections == 2


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n",
    ],
)
async def test_stream_whose_end_ends_the_connection_is_not_waited_for(head: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head + b"content-type: text/event-stream\r\n\r\n")
        event = b"data: " + DONE + b"\n\n"
        await (peer.chunk(event) if b"chunked" in head else peer.send(event))
        await peer.gone()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        assert isinstance(await messages.receive(), jsonrpc.ResultReply)
        assert not messages.lags


async def test_connection_with_more_than_the_answer_is_not_reused() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(
            DONE + b"HTTP/1.1 200 OK\r\n\r\n", extra=f"x: y\r\ncontent-length: {len(DONE)}\r\n"
        )
        await peer.gone()

    async def script_2(peer: Peer) -> None:
        await peer.request()
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(DONE)}\r\n\r\n".encode()
        await peer.send(head + DONE + b"HTTP/1.1 200 OK\r\n\r\n")
        await peer.gone()

    async with connected(script) as (transport, _):
        with pytest.raises(errors.RemoteProtocolError):
            await ask(transport)
    async with connected(script_2) as (transport, _):
        await ask(transport)
        assert transport.statistics().idle == 0


async def test_broken_end_of_a_body_spoils_no_answer() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        event = b"data: " + DONE + b"\n\n"
        await peer.send(SSE_HEAD + b"%x\r\n%s\r\nnonsense\r\n" % (len(event), event))
        await peer.gone()

    async with connected(script) as (transport, _):
        assert len(await ask(transport)) == 1
        assert transport.statistics().idle == 0


async def test_cancelled_while_writing() -> None:
    """W43: half a request is on its way, and its connection is gone."""

    async def script(peer: Peer) -> None:
        await peer.stream.receive_some(100)
        scope.cancel()
        await peer.gone()
        gone.set()

    gone = trio.Event()
    async with connected(script, headers={"User-Agent": "test"}) as (transport, _):
        with trio.CancelScope() as scope:
            await ask(transport, "tools/call", HUGE)
        assert scope.cancelled_caught
        assert transport.statistics().open == 0
        await gone.wait()


async def test_connection_close_is_obeyed() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(DONE, extra="connection: close\r\n")

    async with connected(script) as (transport, server):
        await ask(transport)
        assert transport.statistics().idle == 0
        await ask(transport)
        assert server.connections == 2


async def test_idle_connection_that_was_closed_is_noticed() -> None:
    closed = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(DONE)
        await peer.stream.aclose()
        closed.set()

    async with connected(script) as (transport, server):
        await ask(transport, "tools/call")
        await closed.wait()
        await trio.sleep(0.01)
        await ask(transport, "tools/call")
        assert server.connections == 2
        assert transport.statistics().requests == 2


async def test_closed_as_we_reached_for_it() -> None:
    """What only reads is sent again, once; a call is not."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(DONE)
        await peer.request()

    async with connected(script) as (transport, server):
        await ask(transport)
        await ask(transport)
        assert server.connections == 2
        with pytest.raises(errors.ConnectionLost):
            await ask(transport, "tools/call")
        assert server.connections == 2


async def test_sending_again_can_fail() -> None:
    async def script(peer: Peer) -> None:
        if server.connections == 1:
            await peer.request()
            await peer.json(DONE)
        await peer.request()

    async with connected(script) as (transport, server):
        await ask(transport)
        with pytest.raises(errors.ConnectionLost):
            await ask(transport)
        assert server.connections == 2


async def test_request_that_cannot_be_written_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever it is: not all of it was handed to the system, so it cannot have been served."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.json(DONE)

    async with connected(script) as (transport, server):
        await ask(transport)
        [idle] = transport._idle._idle
        with socket.fromfd(idle._socket.fileno(), socket.AF_INET, socket.SOCK_STREAM) as twin:
            twin.shutdown(socket.SHUT_WR)
        monkeypatch.setattr(idle, "is_stale", lambda: False)
        await ask(transport, "tools/call")
        assert server.connections == 2


class IdleConnection(_wire.HttpConnection):
    """One that has nothing below it."""

    def __init__(self) -> None:
        self.closed = False

    def recycle(self, now: float) -> bool:
        self.idle_since = now
        return True

    def is_stale(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


async def test_pool_is_bounded_and_forgets(autojump_clock: trio.testing.MockClock) -> None:
    pool = _pool.IdlePool(max_idle=2, max_idle_time=4)
    a, b, c = IdleConnection(), IdleConnection(), IdleConnection()
    for each in (a, b, c):
        pool.put(each)
        await trio.sleep(1)
    assert (a.closed, len(pool)) == (True, 2)
    assert pool.take() is c
    await trio.sleep(3)
    assert pool.take() is None
    assert b.closed
    pool.put(c)
    pool.close()
    assert c.closed
