"""What only HTTP has, over sockets: headers, statuses, methods and bodies.

The rules one by one are the business of the endpoint's own tests. Here a whole server stands
behind the address, and what counts is that none of this ends a stream that is open beside it.
"""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from wire_http import HttpExchange, HttpWire, headers_of, post
from wire_kit import Open, call, listen, text_of, tools_changed

from mcp_trio.testing import request

READ = request(1, "resources/read", {"uri": "note://a"})
TOOLS = request(1, "tools/list")
BOTH = "application/json, text/event-stream"


@asynccontextmanager
async def bystander(connect: Open, **options: Any) -> AsyncIterator[HttpWire]:
    """A server with a stream open, which must be alive in the end."""
    async with connect(**options) as client:
        assert isinstance(client, HttpWire)
        stream = await client.listen("bystander", toolsListChanged=True)
        yield client
        await client.call("touch_tools")
        assert await stream.next() == tools_changed("bystander")


async def status_of(exchange: HttpExchange) -> int:
    """The status of an answer, which is either whole or a stream."""
    status = await exchange.head()
    if exchange.headers.get("content-type") == "application/json":
        frame = await exchange.next()
        assert ("error" in frame) == (status != 200)
        if status in (403, 405, 406, 413, 415, 421):
            assert "id" not in frame, "nobody has read the body"
    if status != 202 and exchange.headers.get("content-type") != "text/event-stream":
        await exchange.over()
    return status


def sentinel(data: bytes) -> str:
    """A header value that stands for bytes."""
    return f"=?base64?{base64.b64encode(data).decode()}?="


async def test_the_name_in_the_headers(connect_by_http: Open) -> None:
    """W51: decoded before it is compared; what is no name, or another one, is -32020."""
    async with bystander(connect_by_http) as client:
        for name in ("note://a", sentinel(b"note://a")):
            assert await status_of(await client.start(READ, mcp_name=name)) == 200
        wrong = [None, "", "note://b", "NOTE://A", sentinel(b"note://b"), "note://测试".encode()]
        wrong += ["=?base64?!!?=", sentinel(b"note://\xff"), "=?base64?=", "n\xf6te://a"]
        wrong += [sentinel(b"note://a").replace("base64", "BASE64"), '"note://a"', "note://a x"]
        for each in wrong:
            header = each.decode("latin-1") if isinstance(each, bytes) else each
            exchange = await client.start(READ, mcp_name=header)
            error = await exchange.next()
            assert (exchange.status, error["error"]["code"], error["id"]) == (400, -32020, 1)
        for name in (" a ", "=?base64?abc?=", "読", "a\nb"):
            # Known or not is another question: the header has passed.
            message = call(1, name)
            exchange = await client.start(message, mcp_name=sentinel(name.encode()))
            assert (await exchange.next())["error"]["code"] == -32602


async def test_the_other_headers_repeat_the_body_too(connect_by_http: Open) -> None:
    """W55: missing, doubled or different, they are -32020 before the method is looked for."""
    changes: list[dict[str, str | None]] = [
        {"mcp_protocol_version": None},
        {"mcp_protocol_version": "2025-11-25"},
        {"mcp_protocol_version": "2026-07-28, 2026-07-28"},
        {"mcp_method": None},
        {"mcp_method": "tools/call"},
        {"mcp_method": "TOOLS/LIST"},
    ]
    async with bystander(connect_by_http) as client:
        for change in changes:
            for message in (TOOLS, request(1, "nope/x")):
                exchange = await client.start(message, **change)
                error = await exchange.next()
                assert (exchange.status, error["error"]["code"], error["id"]) == (400, -32020, 1)


@pytest.mark.parametrize(
    ("accept", "plain", "subscription"),
    [
        (None, 200, 200),
        ("*/*", 200, 200),
        ("application/*, text/*", 200, 200),
        ("text/event-stream,application/json", 200, 200),
        ("application/json;q=0.5, text/event-stream;q=0.1", 200, 200),
        ("text/event-stream", 200, 200),
        ("application/json", 200, 406),
        ("application/json, text/event-stream;q=0", 200, 406),
        ("text/html", 406, 406),
        ("*/*;q=0", 406, 406),
    ],
)
async def test_what_a_client_accepts(
    connect_by_http: Open, accept: str | None, plain: int, subscription: int
) -> None:
    """W52: wildcards, weights, order, no header; a subscription needs a stream."""
    async with bystander(connect_by_http) as client:
        exchange = await client.start(TOOLS, accept=accept)
        assert "result" in await exchange.next() or plain != 200
        assert exchange.status == plain
        exchange = await client.start(listen(2, toolsListChanged=True), accept=accept)
        assert await status_of(exchange) == subscription


async def test_accept_on_several_lines(connect_by_http: Open) -> None:
    """W52."""
    async with bystander(connect_by_http) as client:
        exchange = await client.connect(listen(1, toolsListChanged=True))
        message = listen(1, toolsListChanged=True)
        lines = [*headers_of(message, accept="application/json"), ("accept", "text/event-stream")]
        await exchange.stream.send_all(post(json.dumps(message).encode(), lines))
        assert await exchange.head() == 200


@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS", "DELETE"])
async def test_who_may_ask(connect_by_http: Open, method: str) -> None:
    """W53: a foreign Origin is forbidden and a foreign Host is not served, on every method."""
    body = json.dumps(listen(1, toolsListChanged=True)).encode()
    ours = 200 if method == "POST" else 405
    cases: list[tuple[dict[str, str | None], int]] = [
        ({"origin": None}, ours),
        ({"origin": "http://localhost:3000"}, ours),
        ({"origin": "HTTP://LOCALHOST"}, ours),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "http://evil.example/localhost"}, 403),
        ({"host": "evil:8000"}, 421),
        ({"host": "localhost.evil"}, 421),
        ({"host": "[::1]"}, ours),
        ({"host": "127.0.0.1"}, ours),
        ({"host": ""}, 421),
    ]
    async with bystander(connect_by_http) as client:
        for change, status in cases:
            exchange = await client.connect(listen(1))
            headers = headers_of(listen(1), **change)
            await exchange.stream.send_all(post(body, headers, method=method))
            assert await status_of(exchange) == status, change
            if status == 200:
                await exchange.cancel()
        await client.until_subscriptions(1)
        exchange = await client.connect(TOOLS)
        await exchange.stream.send_all(post(body, headers_of(listen(1), host=None), method=method))
        assert await exchange.head() in (400, 421)


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "PUT", "OPTIONS", "PATCH"])
async def test_other_methods(connect_by_http: Open, method: str) -> None:
    """W54: 405, and what is allowed instead; no session is begun or named."""
    async with bystander(connect_by_http) as client:
        headers = headers_of(TOOLS, mcp_session_id="x", last_event_id="5")
        exchange = await client.connect(TOOLS)
        await exchange.stream.send_all(post(b"", headers, method=method))
        assert await exchange.head() == 405
        assert exchange.headers["allow"] == "POST"
        assert "mcp-session-id" not in exchange.headers
        assert not exchange.headers["content-type"].startswith("text/event-stream")


async def test_headers_of_older_revisions_mean_nothing(connect_by_http: Open) -> None:
    """W54, W75: a session is not echoed, and there is nothing to resume."""
    async with bystander(connect_by_http) as client:
        old = {"mcp_session_id": "x", "last_event_id": "5"}
        exchange = await client.start(TOOLS, **old)
        assert await status_of(exchange) == 200
        assert "mcp-session-id" not in exchange.headers
        stream = await client.start(listen(1, toolsListChanged=True), **old)
        assert (await stream.next())["params"]["notifications"] == {"toolsListChanged": True}
        assert "mcp-session-id" not in stream.headers


async def test_other_places(connect_by_http: Open) -> None:
    """W55: the endpoint is at its path and nowhere else."""
    async with bystander(connect_by_http) as client:
        for target, status in (
            ("/", 404),
            ("/mcp/x", 404),
            ("/mcpx", 404),
            ("//mcp", 404),
            ("/mcp/", 200),
            ("/mcp?a=b", 200),
        ):
            exchange = await client.connect(TOOLS)
            body = json.dumps(TOOLS).encode()
            await exchange.stream.send_all(post(body, headers_of(TOOLS), target=target))
            assert await exchange.head() == status, target


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ("text/plain", 415),
        ("application/json; charset=latin-1", 415),
        ("", 415),
        (None, 415),
    ],
)
async def test_what_a_body_is_called(
    connect_by_http: Open, content_type: str | None, status: int
) -> None:
    """W85: JSON, whatever its case and parameters, and nothing else."""
    async with bystander(connect_by_http) as client:
        exchange = await client.start(TOOLS, content_type=content_type)
        assert await status_of(exchange) == status


async def test_a_notification_that_is_refused(connect_by_http: Open) -> None:
    """W56: it is a 4xx, and still has no id."""
    async with bystander(connect_by_http) as client:
        bad: list[Any] = [[], 5, None]
        for params in bad:
            message = {"jsonrpc": "2.0", "method": "notifications/x", "params": params}
            exchange = await client.post(json.dumps(message).encode(), TOOLS)
            error = await exchange.next()
            assert (exchange.status, error["error"]["code"]) == (400, -32600)
            assert "id" not in error


async def test_an_error_once_the_stream_is_open(connect_by_http: Open) -> None:
    """W55: a call that has reported progress cannot change its status any more."""
    async with bystander(connect_by_http, kind="more") as client:
        message = call(1, "count", to=1)
        message["params"]["_meta"]["progressToken"] = "t"
        exchange = await client.start(message)
        assert await exchange.next()
        assert (exchange.status, exchange.headers["content-type"]) == (200, "text/event-stream")
        assert text_of(await exchange.next()) == "counted"
        await exchange.over()


# Bodies


def chunked(*pieces: bytes) -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


async def test_a_body_in_chunks(connect_by_http: Open) -> None:
    """W85: cut anywhere, and after `Expect: 100-continue`."""
    async with bystander(connect_by_http) as client:
        message = call(1, "echo", text="読🎉")
        body = json.dumps(message, ensure_ascii=False).encode()
        headers = [*headers_of(message), ("transfer-encoding", "chunked")]
        exchange = await client.connect(message)
        pieces = [body[at : at + 1] for at in range(len(body))]
        await exchange.stream.send_all(post(chunked(*pieces), headers))
        assert text_of(await exchange.next()) == "読🎉"

        exchange = await client.connect(message)
        head = post(b"", [*headers, ("expect", "100-continue")])
        await exchange.stream.send_all(head)
        with trio.fail_after(10):
            assert (await exchange.stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await exchange.stream.send_all(chunked(body))
        assert text_of(await exchange.next()) == "読🎉"


@pytest.mark.parametrize("length", [10 * 2**30, 4 * 2**20 + 1, 10**30])
async def test_a_body_that_says_it_is_too_large(connect_by_http: Open, length: int) -> None:
    """W85: it is refused before it comes."""
    async with bystander(connect_by_http) as client:
        exchange = await client.connect(TOOLS)
        await exchange.stream.send_all(post(b"", headers_of(TOOLS), length=length))
        assert await exchange.head() in (400, 413)


async def test_a_body_that_turns_out_too_large(connect_by_http: Open) -> None:
    """W85: in chunks without an end; it is refused while it comes, and not kept."""
    async with bystander(connect_by_http, max_body=100_000) as client:
        exchange = await client.connect(TOOLS)
        headers = [*headers_of(TOOLS), ("transfer-encoding", "chunked")]
        await exchange.stream.send_all(post(b"", headers))
        piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"

        async def go_on() -> None:
            try:
                while True:
                    await exchange.stream.send_all(piece)
            except trio.BrokenResourceError:
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on)
            assert await exchange.head() == 413
            nursery.cancel_scope.cancel()


async def test_a_body_shorter_or_longer_than_it_says(connect_by_http: Open) -> None:
    """W85: what is short is waited for and then cut; what is long is the next request."""
    body = json.dumps(TOOLS).encode()
    async with bystander(connect_by_http, body_timeout=0.1) as client:
        short = await client.connect(TOOLS)
        await short.stream.send_all(post(body, headers_of(TOOLS), length=len(body) + 1))
        assert await short.head() == 408

        leaving = await client.connect(TOOLS)
        await leaving.stream.send_all(post(body, headers_of(TOOLS), length=len(body) + 1))
        await leaving.stream.send_eof()
        assert not (await leaving.stream.receive_some()).startswith(b"HTTP/1.1 200")

        long = await client.connect(TOOLS)
        await long.stream.send_all(post(body + b"}}", headers_of(TOOLS), length=len(body)))
        assert (await long.next())["id"] == 1
        assert long.status == 200

        empty = await client.post(b"", TOOLS)
        error = await empty.next()
        assert (empty.status, error["error"]["code"]) == (400, -32700)


async def test_a_body_that_drips(connect_by_http: Open) -> None:
    """W85: the time for the whole body is bounded; that for its answer is not."""
    async with bystander(connect_by_http, body_timeout=0.2) as client:
        slow = await client.start(call(1, "slow", seconds=0.4))
        exchange = await client.connect(TOOLS)
        await exchange.stream.send_all(post(b"", headers_of(TOOLS), length=1000))

        async def drip() -> None:
            while True:
                await exchange.stream.send_all(b" ")
                await trio.sleep(0.02)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            assert await exchange.head() == 408
            nursery.cancel_scope.cancel()
        assert text_of(await slow.next()) == "slept 0.4 s"


async def test_bytes_that_are_no_http(connect_by_http: Open) -> None:
    """W63: whatever they are, they end their own connection."""
    async with bystander(connect_by_http) as client:
        for data in (b"\0" * 1000, b"\x16\x03\x01", b"GET\r\n\r\n", b"x" * 100_000, b"\r\n\r\n"):
            exchange = await client.connect()
            await exchange.stream.send_all(data)
            await exchange.stream.send_eof()
            with trio.fail_after(10):
                received = await exchange.stream.receive_some()
            assert not received or received.startswith(b"HTTP/1.1 4")
