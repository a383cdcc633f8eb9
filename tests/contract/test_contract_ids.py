"""Request ids, over every transport: what is an id, and that it comes back as it was."""

from typing import Any

import pytest
from wire_http import HttpWire
from wire_kit import (
    LineExchange,
    LineWire,
    Open,
    call,
    cancelled,
    end_of,
    exactly,
    listen,
    text_of,
    tools_changed,
    updated,
)

IDS = [
    pytest.param(0, id="zero"),
    pytest.param("", id="empty"),
    pytest.param(-1, id="negative"),
    pytest.param(2**53 + 1, id="beyond-double"),
    pytest.param(2**63 - 1, id="largest"),
    pytest.param("1", id="digits"),
    pytest.param('ä\u2028🎉\n\\"', id="odd-characters"),
    pytest.param("x" * 256, id="longest"),
]


@pytest.mark.parametrize("request_id", IDS)
async def test_every_frame_carries_the_id_as_it_was(connect: Open, request_id: Any) -> None:
    """W05, W06, W39, S-04: acknowledgement, events, result; and after a cancellation nothing."""
    async with connect() as client:
        stream = await client.listen(request_id, toolsListChanged=True)
        await client.call("touch_tools")
        assert exactly(await stream.next()) == exactly(tools_changed(request_id))
        await client.call("hang_up")
        [result] = await stream.rest()
        assert exactly(end_of(result)[0]) == exactly(request_id)

        stream = await client.listen(request_id, toolsListChanged=True)
        witness = await client.listen("witness", toolsListChanged=True)
        await client.call("touch_tools")
        assert exactly(await stream.next()) == exactly(tools_changed(request_id))
        await witness.next()
        await stream.cancel()
        await client.until_subscriptions(1)
        await client.call("touch_tools")
        assert await witness.next() == tools_changed("witness")
        if isinstance(stream, LineExchange):
            await client.call("echo", text="x")
            assert not stream.frames


@pytest.mark.parametrize("request_id", IDS)
async def test_a_response_carries_the_id_as_it_was(connect: Open, request_id: Any) -> None:
    """W05, W06: of a result and of an error; `ask` compares them."""
    async with connect() as client:
        assert text_of(await client.ask(call(request_id, "echo", text="x"))) == "x"
        assert (await client.ask(call(request_id, "nobody")))["error"]["code"] == -32602
        assert (await client.ask(listen(request_id) | {"params": {}}))["error"]["code"] == -32602


async def test_ids_that_look_alike_are_different(connect: Open) -> None:
    """W06: `1` and `"1"` in flight at once; cancelling one leaves the other alone."""
    async with connect() as client:
        number = await client.listen(1, toolsListChanged=True)
        string = await client.listen("1", toolsListChanged=True)
        await string.cancel()
        await client.until_subscriptions(1)
        for _ in range(2):
            await client.call("touch_tools")
            assert exactly(await number.next()) == exactly(tools_changed(1))
        if isinstance(client, LineWire):
            for other in ("1", 1.0, True, None, [1], {"id": 1}):
                await client.send(cancelled(other))
            await client.call("touch_tools")
            assert exactly(await number.next()) == exactly(tools_changed(1))


@pytest.mark.parametrize(
    "request_id",
    [
        "1.0",
        "1e0",
        "null",
        "true",
        "[]",
        "{}",
        str(2**63),
        str(-(2**63) - 1),
        '"' + "x" * 257 + '"',
    ],
)
async def test_what_is_no_id(connect_by_bytes: Open, request_id: str) -> None:
    """W06, W55, S-08: refused without an id, so it is nobody's answer; what follows is served."""
    line = (
        b'{"jsonrpc":"2.0","id":%s,"method":"tools/list","params":{"_meta":'
        b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        b'"io.modelcontextprotocol/clientCapabilities":{}}}}\n'
    ) % request_id.encode()
    async with connect_by_bytes() as client:
        if isinstance(client, HttpWire):
            exchange = await client.post(line, {"method": "tools/list"})
            error = await exchange.next()
            assert exchange.status == 400
            await exchange.over()
        else:
            assert isinstance(client, LineWire)
            await client.send(line)
            error = await client.next_error()
        assert error["error"]["code"] == -32600
        assert error.keys() == {"jsonrpc", "error"}
        assert await client.call("echo", text="next") == "next"


async def test_a_duplicate_id_is_refused_on_one_channel(connect_by_lines: Open) -> None:
    """W07, S-07: the second gets an error; the first, call or subscription, is left alone."""
    async with connect_by_lines() as client:
        first = await client.start(call(7, "slow", seconds=0.2))
        assert isinstance(client, LineWire)
        await client.send(call(7, "echo", text="second"), listen(7, toolsListChanged=True))
        for _ in range(2):
            refusal = await first.next()
            assert (refusal["id"], refusal["error"]["code"]) == (7, -32600)
        assert text_of(await first.next()) == "slept 0.2 s"

        stream = await client.listen(8, toolsListChanged=True)
        await client.send(listen(8, promptsListChanged=True), call(8, "echo", text="second"))
        for _ in range(2):
            assert (await stream.next())["error"]["code"] == -32600
        await client.call("touch_tools")
        assert await stream.next() == tools_changed(8)
        # The id is free again as soon as its answer is out.
        assert text_of(await client.ask(call(7, "echo", text="third"))) == "third"


async def test_ids_belong_to_their_client(connect_twice: Open) -> None:
    """W07: the same id in flight at two clients; each gets its own answers and events."""
    async with connect_twice() as one, one.another() as other:
        slow = await one.start(call(1, "slow", seconds=0.1))
        assert text_of(await other.ask(call(1, "echo", text="other"))) == "other"
        streams = [
            await client.listen(2, resourceSubscriptions=[uri])
            for client, uri in ((one, "x:one"), (other, "x:other"))
        ]
        await one.call("publish", uri="x:other")
        await one.call("publish", uri="x:one")
        assert await streams[0].next() == updated(2, "x:one")
        assert await streams[1].next() == updated(2, "x:other")
        assert text_of(await slow.next()) == "slept 0.1 s"


async def test_two_posts_with_one_id_are_two_requests(connect_by_http: Any) -> None:
    """W07: from one client too, and both are subscriptions of their own."""
    async with connect_by_http() as client:
        one = await client.listen(1, toolsListChanged=True)
        two = await client.listen(1, toolsListChanged=True)
        await one.cancel()
        await client.until_subscriptions(1)
        await client.call("touch_tools")
        assert await two.next() == tools_changed(1)
