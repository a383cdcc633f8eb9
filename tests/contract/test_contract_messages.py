"""Messages, right and wrong: JSON-RPC shapes, results of all kinds, and framing."""

import json
import subprocess
from typing import Any

import contract_server
import pytest
import trio
from wire_http import HttpWire, headers_of, post
from wire_kit import (
    PATIENCE,
    Frame,
    LineWire,
    Open,
    StdioWire,
    WireClient,
    call,
    exactly,
    listen,
    text_of,
    tools_changed,
    updated,
)

from mcp_trio.testing import request

LIMIT = 4 * 1024 * 1024
TOOLS = request(1, "tools/list")
META = TOOLS["params"]["_meta"]
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


async def refused(client: WireClient, body: bytes, message: Frame, **headers: str) -> Frame:
    """Send what is no good message, and return the one error that comes for it."""
    if isinstance(client, HttpWire):
        exchange = await client.post(body, message, **headers)
        [error] = await _one_error(exchange)
        assert exchange.status == (404 if error["error"]["code"] == -32601 else 400)
        return error
    assert isinstance(client, LineWire)
    expected = client.expect(TOOLS)
    await client.send(body + b"\n", call("next", "nobody"))
    client.expect(call("next", "nobody"))
    await client.wait_for(lambda: bool(client.errors or expected.frames))
    if client.errors:
        return client.errors.popleft()
    return await expected.next()


async def _one_error(exchange: Any) -> list[Frame]:
    error = await exchange.next()
    await exchange.over()
    return [error]


NOT_JSON = [
    b"x",
    b"{",
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list"',
    b"\xff\xfe",
    b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    b'{"jsonrpc":"2.0","id":1,"method":"\\udc80"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"a":NaN}}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"'single'",
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list",}',
]


@pytest.mark.parametrize("body", NOT_JSON, ids=range(len(NOT_JSON)))
async def test_what_is_not_json(connect_by_bytes: Open, body: bytes) -> None:
    """W55, W60: `-32700` without an id, once, and the next request is served."""
    async with connect_by_bytes() as client:
        error = await refused(client, body, TOOLS)
        assert error["error"]["code"] == -32700
        assert error.keys() == {"jsonrpc", "error"}
        assert await client.call("echo", text="next") == "next"


NO_MESSAGES: list[tuple[Any, bool]] = [
    ([], False),
    ([TOOLS], False),
    ({}, False),
    (None, False),
    (42, False),
    ("tools/list", False),
    (True, False),
    ({**TOOLS, "jsonrpc": "1.0"}, True),
    ({"id": 1, "method": "tools/list"}, True),
    ({**TOOLS, "method": 5}, True),
    ({**TOOLS, "method": None}, True),
    ({**TOOLS, "params": []}, True),
    ({**TOOLS, "params": "x"}, True),
    ({**TOOLS, "params": None}, True),
    ({"jsonrpc": "2.0", "id": 1}, True),
    ({"jsonrpc": "2.0", "id": 1, "result": {}}, True),
    ({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}, True),
    ({"jsonrpc": "2.0", "result": {}}, False),
]


@pytest.mark.parametrize(("message", "with_id"), NO_MESSAGES, ids=range(len(NO_MESSAGES)))
async def test_json_that_is_no_message(connect_by_bytes: Open, message: Any, with_id: bool) -> None:
    """W55: `-32600`, with the id where there is one; a response is none of a client's business."""
    async with connect_by_bytes() as client:
        error = await refused(client, json.dumps(message).encode(), TOOLS)
        assert error["error"]["code"] == -32600
        assert error.get("id", "none") == (1 if with_id else "none")
        assert await client.call("echo", text="next") == "next"


BAD_PARAMS: list[tuple[str, dict[str, Any], int]] = [
    ("nope/x", {}, -32601),
    ("", {}, -32601),
    ("sampling/createMessage", {}, -32601),
    ("tools/list", {"_meta": {}}, -32602),
    ("tools/list", {"_meta": []}, -32602),
    ("tools/list", {"_meta": {VERSION: "2026-07-28"}}, -32602),
    ("tools/list", {"_meta": {**META, CAPABILITIES: []}}, -32602),
    ("tools/list", {"_meta": {**META, VERSION: 2026}}, -32602),
    ("tools/list", {"cursor": "made up"}, -32602),
    ("tools/call", {}, -32602),
    ("tools/call", {"name": 5}, -32602),
    ("tools/call", {"name": "nobody"}, -32602),
    ("tools/call", {"name": "echo", "arguments": []}, -32602),
    ("resources/read", {"uri": "note://nothing"}, -32602),
    ("prompts/get", {"name": "nobody"}, -32602),
]


@pytest.mark.parametrize(("method", "params", "code"), BAD_PARAMS, ids=range(len(BAD_PARAMS)))
async def test_requests_that_make_no_sense(
    connect: Open, method: str, params: dict[str, Any], code: int
) -> None:
    """W55: an error with the id of the request; over HTTP its status says it too."""
    async with connect() as client:
        message = request(1, method, params)
        if isinstance(client, HttpWire):
            name = params.get("name", params.get("uri"))
            named = isinstance(name, str)
            exchange = await client.start(message, mcp_name=name if named else None)
            response = await exchange.next()
            await exchange.over()
            if method == "tools/call" and not named:
                code = -32020  # no header can repeat what the body does not have
            assert exchange.status == (404 if code == -32601 else 400)
        else:
            response = await client.ask(message)
        assert response["error"]["code"] == code
        assert response["id"] == 1
        assert await client.call("echo", text="next") == "next"


async def test_a_revision_that_is_not_spoken(connect: Open) -> None:
    """W55, W79: the error names those that are; `initialize` gets as good an answer."""
    async with connect() as client:
        message = request(1, "tools/list", {"_meta": {**META, VERSION: "1999-01-01"}})
        if isinstance(client, HttpWire):
            exchange = await client.start(message, mcp_protocol_version="1999-01-01")
            response = await exchange.next()
            assert exchange.status == 400
        else:
            response = await client.ask(message)
        assert response["error"]["code"] == -32022
        assert response["error"]["data"] == {"supported": ["2026-07-28"], "requested": "1999-01-01"}


NOTIFICATIONS: list[Frame] = [
    {"method": "window/logMessage", "params": {}},
    {"method": "notifications/initialized"},
    {"method": "notifications/x", "params": {"a": [1]}},
    {"method": "notifications/progress", "params": {"progressToken": {}}},
    {"method": "tools/list", "params": {"_meta": META}},
]


@pytest.mark.parametrize("message", NOTIFICATIONS, ids=range(len(NOTIFICATIONS)))
async def test_notifications_are_not_answered(connect_by_bytes: Open, message: Frame) -> None:
    """W56, W57: known or not, good or not; over HTTP they are accepted without a body."""
    message = {"jsonrpc": "2.0", **message}
    async with connect_by_bytes() as client:
        for _ in range(3):
            if isinstance(client, HttpWire):
                exchange = await client.start(message)
                assert await exchange.head() == 202
                await exchange.over()
                assert exchange.headers["content-length"] == "0"
            else:
                assert isinstance(client, LineWire)
                await client.send(message)
                # `leave` and `check` find what should not have come.
                assert await client.call("echo", text="next") == "next"


# What tools return, and how they fail


@pytest.mark.parametrize(
    "text",
    ["a\u2028b\u0085c\u000bd", "読🎉é", "\r\n\n\r", "data: x\n\n", '"\\\u0000\u001f', "", "\ufeff"],
)
async def test_any_text_comes_back_as_it_was(connect: Open, text: str) -> None:
    """W09, W10, W22: whatever a line, an event or a string ends with elsewhere."""
    async with connect() as client:
        assert exactly(await client.call("echo", text=text)) == exactly(text)


@pytest.mark.parametrize("kind", ["surrogate", "nan"])
async def test_what_json_cannot_hold(connect: Open, kind: str) -> None:
    """W59: an error for the request that asked for it; a stream beside it does not notice."""
    async with connect() as client:
        stream = await client.listen(1, toolsListChanged=True)
        for _ in range(3):
            response = await client.ask(call(2, "unencodable", kind=kind))
            assert response["error"]["code"] == -32603
        await client.call("touch_tools")
        assert await stream.next() == tools_changed(1)


async def test_what_cannot_be_asked_or_published(connect_by_bytes: Open) -> None:
    """W59: a lone surrogate in an argument is no JSON; a number too large is no number."""
    async with connect_by_bytes() as client:
        for value in (b'"\\udcaf"', b"1e400", b"-1e400"):
            body = json.dumps(call(1, "echo", text="VALUE")).encode().replace(b'"VALUE"', value)
            error = await refused(client, body, call(1, "echo"))
            assert error["error"]["code"] in (-32700, -32602)
        assert await client.call("echo", text="next") == "next"


@pytest.mark.parametrize("how", ["group", "base", "none", "set", "bytes"])
async def test_a_tool_that_fails(connect: Open, how: str) -> None:
    """W63: in whatever way: the call has its answer, and nobody else notices."""
    async with connect("more") as client:
        stream = await client.listen(1, toolsListChanged=True)
        slow = await client.start(call(2, "slow", seconds=0.05))
        response = await client.ask(call(3, "fail", how=how))
        failed = "error" in response or response["result"].get("isError", False)
        assert failed == (how != "none")
        assert (await client.ask(call(4, "boom")))["result"]["isError"]
        await client.call("touch_tools")
        assert await stream.next() == tools_changed(1)
        assert text_of(await slow.next()) == "slept 0.05 s"


async def test_a_stream_whose_client_has_gone_disturbs_no_publisher(connect: Open) -> None:
    """W63, S-65: its connection breaks just when something is published."""
    async with connect() as client:
        for number in range(10):
            stays = await client.listen(f"stays-{number}", resourceSubscriptions=["x:a"])
            goes = await client.listen(f"goes-{number}", resourceSubscriptions=["x:a"])
            if isinstance(client, HttpWire):
                goes.reset()  # type: ignore[attr-defined]
            else:
                await goes.cancel()
            await client.call("publish", uri="x:a")
            assert await stays.next() == updated(f"stays-{number}", "x:a")
            await stays.cancel()
        await client.until_subscriptions(0)


# Framing


@pytest.mark.parametrize("size", [1, 3, 4096])
async def test_messages_in_pieces(connect_by_bytes: Open, size: int) -> None:
    """W22, W23: a character cut in two, a long line: pieces mean nothing."""
    text = "読🎉é" * (20 if size < 4096 else 100_000)
    message = call(1, "echo", text=text)
    body = json.dumps(message, ensure_ascii=False).encode()
    async with connect_by_bytes() as client:
        if isinstance(client, HttpWire):
            exchange: Any = await client.connect(message)
            data = post(body, headers_of(message))
            send = exchange.stream.send_all
        else:
            assert isinstance(client, LineWire)
            exchange, data, send = client.expect(message), body + b"\n", client.send
        for start in range(0, len(data), size):
            await send(data[start : start + size])
        assert text_of(await exchange.next()) == text
        await exchange.over()


async def test_many_messages_in_one_piece(connect_by_lines: Open) -> None:
    """W21, W28: with blank lines, CRLF and a byte order mark between them."""
    async with connect_by_lines() as client:
        assert isinstance(client, LineWire)
        messages = [call(number, "echo", text=str(number)) for number in range(50)]
        exchanges = [client.expect(message) for message in messages]
        ends = (b"\n", b"\r\n", b"\n\n \t\r\n\r\n")
        data = [json.dumps(m).encode() + ends[n % 3] for n, m in enumerate(messages)]
        await client.send(b"\n\r\n" + b"".join(data))
        for number, exchange in enumerate(exchanges):
            assert text_of(await exchange.next()) == str(number)


async def test_a_line_that_is_too_long(connect_by_lines: Open) -> None:
    """W23: what was complete before it is answered; it is refused once; what follows is served."""
    async with connect_by_lines() as client:
        assert isinstance(client, LineWire)
        before = call(1, "echo", text="before")
        exchange = client.expect(before)
        await client.send(json.dumps(before).encode() + b"\n" + b"x" * 100_000)
        assert text_of(await exchange.next()) == "before"
        for _ in range(2 * LIMIT // 100_000):
            await client.send(b"x" * 100_000)
        await client.send(b"\n")
        assert (await client.next_error())["error"]["code"] == -32700
        assert await client.call("echo", text="after") == "after"
        assert len(await client.call("echo", text="y" * (LIMIT - 1000))) == LIMIT - 1000


def run(data: bytes) -> list[bytes]:
    """What a server process writes when it gets all its input at once; it ends by itself."""
    command = contract_server.command("everything")
    process = subprocess.run(command, input=data, capture_output=True, timeout=PATIENCE, check=True)
    assert process.stdout.endswith(b"\n") or not process.stdout
    assert b"\r" not in process.stdout
    return process.stdout.split(b"\n")[:-1]


def test_bytes_of_a_process_on_stdio() -> None:
    """W10, W27, W28: all requests are answered although the input has ended, the last without LF.

    What is written is one message a line and nothing else: no byte order mark, no CRLF, and
    none of the characters that some take for the end of a line.
    """
    odd = "a\u2028b\u2029c\u0085d\u000be\u000cf"
    messages = [call(1, "echo", text=odd), call(2, "noisy"), listen(3, toolsListChanged=True)]
    data = b"\n".join(json.dumps(message).encode() for message in messages)
    lines = run(b"\xef\xbb\xbf" + data + b"\n" + json.dumps(TOOLS | {"id": 4}).encode())
    assert all(line.startswith(b"{") and line.endswith(b"}") for line in lines)
    frames = {frame.get("id"): frame for frame in map(json.loads, lines)}
    assert text_of(frames[1]) == odd
    assert {1, 2, 4} <= frames.keys() <= {1, 2, 4, None}
    assert not any(mark in b"".join(lines) for mark in ("\u2028".encode(), "\u0085".encode()))
    assert run(b"") == []


async def test_what_a_tool_writes_is_not_the_protocol(connect_by_stdio: Open) -> None:
    """W30: `print`, a write to descriptor 1, a child process; and standard input is empty."""
    async with connect_by_stdio("more") as client:
        stream = await client.listen(1, toolsListChanged=True)
        assert await client.call("noisy") == "printed"
        assert await client.call("scribble") == "''"
        await client.call("touch_tools")
        assert await stream.next() == tools_changed(1)
        assert isinstance(client, StdioWire)


async def test_nothing_is_written_to_a_channel_that_is_quiet(connect_by_lines: Open) -> None:
    """W13: a comment, or anything else that is no message, is for HTTP alone."""
    async with connect_by_lines() as client:
        await client.listen(1, toolsListChanged=True)
        await trio.sleep(0.1)
        await client.call("echo", text="x")
