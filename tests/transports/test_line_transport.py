"""The client's end of a connection of lines, against a server that a test plays."""

import contextlib
import logging
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mcp_trio import codec, errors
from mcp_trio.protocol import jsonrpc, meta, methods
from mcp_trio.testing import ScriptedPeer, Wire, memory_pipe, open_scripted_peer, request
from mcp_trio.transports.client_lines import LineTransportStatistics
from mcp_trio.transports.lines import LineTransport, open_line_transport

Messages = trio.abc.ReceiveChannel[jsonrpc.Message]
LISTEN: dict[str, Any] = {"notifications": {"toolsListChanged": True}}
TOOLS_CHANGED = "notifications/tools/list_changed"


def token(value: object) -> dict[str, Any]:
    return {"_meta": {meta.PROGRESS_TOKEN: value}}


def log_level(level: str) -> dict[str, Any]:
    return {"_meta": {meta.META_LOG_LEVEL: level}}


async def next_of(messages: Messages, seconds: float = 1.0) -> Any:
    with trio.fail_after(seconds):
        return await messages.receive()


async def expect_nothing(peer: Wire) -> None:
    with trio.move_on_after(10) as scope:
        pytest.fail(f"unexpected: {await peer.receive()}")
    assert scope.cancelled_caught


async def test_responses_find_their_requests(autojump_clock: MockClock) -> None:
    """W05, W06: by the id and its type, in whatever order they come."""
    ids: list[jsonrpc.RequestId] = [0, "", 1, "1", 2]
    async with open_scripted_peer() as peer, contextlib.AsyncExitStack() as stack:
        opened = {}
        for request_id in ids:
            block = peer.transport.open_exchange(request_id, "x", {"n": 1})
            opened[request_id] = await stack.enter_async_context(block)
            sent = await peer.expect("x")
            assert (sent["id"], type(sent["id"])) == (request_id, type(request_id))
        for wrong in (1.0, True, "0", None, [1], 2**70):
            await peer.answer({"id": wrong}, {"wrong": True})
        for request_id in reversed(ids):
            await peer.answer({"id": request_id}, {"to": repr(request_id)})
        for request_id in ids:
            reply = await next_of(opened[request_id])
            assert reply.result["to"] == repr(request_id)
            with pytest.raises(trio.EndOfChannel):
                await opened[request_id].receive()


async def test_a_consumer_that_does_not_read_delays_nobody(autojump_clock: MockClock) -> None:
    """W41: a thousand changes wait in one place, and the next answer arrives."""
    async with (
        open_scripted_peer() as peer,
        peer.transport.open_exchange("listen-1", methods.LISTEN, LISTEN) as changes,
        peer.transport.open_exchange(2, "tools/list", {}) as messages,
    ):
        listen = await peer.expect(methods.LISTEN)
        await peer.acknowledge(listen)
        for _ in range(1000):
            await peer.notify(TOOLS_CHANGED, of=listen)
        await peer.answer({"id": 2})
        assert isinstance(await next_of(messages), jsonrpc.ResultReply)
        assert (await next_of(changes)).method == methods.ACKNOWLEDGED
        assert (await next_of(changes)).method == TOOLS_CHANGED
        await peer.complete(listen)
        assert isinstance(await next_of(changes), jsonrpc.ResultReply)
        with pytest.raises(trio.EndOfChannel):
            await changes.receive()


async def test_leaving_early_cancels_once_on_the_wire(autojump_clock: MockClock) -> None:
    """W43, C-40, C-41: one cancellation with that id; what comes late is passed over."""
    async with open_scripted_peer() as peer:
        with trio.move_on_after(0.1):
            async with peer.transport.open_exchange(5, "slow", token("t")) as messages:
                await messages.receive()
        assert (await peer.expect("slow"))["id"] == 5
        assert (await peer.expect(methods.CANCELLED))["params"] == {"requestId": 5}
        await peer.answer({"id": 5})
        await peer.notify("notifications/progress", {"progressToken": "t", "progress": 1})
        async with peer.transport.open_exchange(6, "next", {}) as messages:
            await peer.answer(await peer.expect("next"))
            await next_of(messages)
            with pytest.raises(trio.ClosedResourceError):
                await messages.aclose()
                await messages.receive()
        await expect_nothing(peer)
        assert peer.transport.statistics() == LineTransportStatistics(0, noise=0, unrouted=2)


async def test_leaving_after_the_response_says_nothing(autojump_clock: MockClock) -> None:
    """W44: what has been answered is not cancelled, read or not."""
    async with open_scripted_peer() as peer:
        async with peer.transport.open_exchange(1, "x", {}):
            await peer.answer(await peer.expect("x"))
            await trio.testing.wait_all_tasks_blocked()
        async with peer.transport.open_exchange(2, "x", {}) as messages:
            await peer.refuse(await peer.expect("x"), -32601)
            reply = await next_of(messages)
            assert isinstance(reply.error, errors.MethodNotFound)
        await expect_nothing(peer)


async def test_initialize_is_not_cancelled(autojump_clock: MockClock) -> None:
    """W44: the one request that must not be, whatever becomes of it."""
    async with open_scripted_peer() as peer:
        async with peer.transport.open_exchange(1, "initialize", {}):
            await peer.expect("initialize")
        await expect_nothing(peer)


async def test_leaving_does_not_wait_for_a_server_that_does_not_read(
    autojump_clock: MockClock,
) -> None:
    """W31, W43: the goodbye is written when the server reads again."""
    async with open_scripted_peer(capacity=80) as peer:
        block = peer.transport.open_exchange(1, "x" * 30, {})
        await block.__aenter__()
        with trio.move_on_after(1):
            async with peer.transport.open_exchange(2, "y" * 200, {}):
                pytest.fail("not reached: it is half written")
        with trio.move_on_after(1):
            async with peer.transport.open_exchange(3, "z", {}):
                pytest.fail("not reached: it is not written at all")
        with trio.fail_after(0.1):
            await block.__aexit__(None, None, None)
        received = [await peer.receive() for _ in range(4)]
        assert [message.get("id") for message in received] == [1, 2, None, None]
        assert [message["params"].get("requestId") for message in received[2:]] == [2, 1]
        await expect_nothing(peer)  # request 3 was never sent, so it is not cancelled


async def test_an_id_or_a_token_may_be_in_flight_once(autojump_clock: MockClock) -> None:
    """W07, W81: this side must not use one again too early, and is told so."""
    async with open_scripted_peer() as peer:
        open_exchange = peer.transport.open_exchange
        async with open_exchange(1, "x", token(0)):
            with pytest.raises(errors.LocalProtocolError, match="request id 1 is already"):
                async with open_exchange(1, "x", {}):
                    pytest.fail("not reached")
            with pytest.raises(errors.LocalProtocolError, match="progress token 0 is already"):
                async with open_exchange(2, "x", token(0)):
                    pytest.fail("not reached")
            async with open_exchange("1", "x", token("0")):
                assert peer.transport.statistics().open_exchanges == 2
        async with open_exchange(1, "x", token(0)):
            pass
        with pytest.raises(errors.LocalProtocolError, match="not a usable request id"):
            async with open_exchange(1.5, "x", {}):  # type: ignore[arg-type]
                pytest.fail("not reached")
        with pytest.raises(codec.EncodeError):
            async with open_exchange(3, "x", {"a": float("nan")}):
                pytest.fail("not reached")
        assert peer.transport.statistics().open_exchanges == 0


async def test_progress_goes_by_its_token(autojump_clock: MockClock) -> None:
    """W81, C-27: to the request that gave the token, and to no other."""
    async with open_scripted_peer() as peer:
        open_exchange = peer.transport.open_exchange
        async with (
            open_exchange(1, "x", token(0)) as one,
            open_exchange(2, "x", token("")) as two,
            open_exchange(3, "x", token(True)) as three,
            open_exchange("listen-1", methods.LISTEN, LISTEN) as changes,
        ):
            for value in ("", 0, "unknown", 1, True, None, [0]):
                params = {"progressToken": value, "progress": 1}
                await peer.notify("notifications/progress", params)
            for number in (1, 2, 3, "listen-1"):
                await peer.answer({"id": number})
            assert (await next_of(one)).params["progressToken"] == 0
            assert (await next_of(two)).params["progressToken"] == ""
            for messages in (one, two, three, changes):
                assert isinstance(await next_of(messages), jsonrpc.ResultReply)


async def test_a_log_message_goes_to_the_only_request_that_wants_one(
    autojump_clock: MockClock,
) -> None:
    """W83: it does not say whose it is, so in doubt nobody gets it."""
    async with open_scripted_peer() as peer:
        open_exchange = peer.transport.open_exchange
        message = {"level": "info", "data": 1}
        async with open_exchange(1, "x", log_level("info")) as one, open_exchange(2, "x", {}):
            await peer.notify("notifications/message", message)
            assert (await next_of(one)).params == message
            async with open_exchange(3, "x", log_level("info")) as three:
                await peer.notify("notifications/message", message)
                await peer.answer({"id": 3})
                assert isinstance(await next_of(three), jsonrpc.ResultReply)
        assert peer.transport.statistics().unrouted == 1


async def test_what_belongs_nowhere_is_dropped(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """C-20, W36, W39, W58: unknown ids, a plain request's id, no id, requests of the server."""
    async with open_scripted_peer() as peer:
        open_exchange = peer.transport.open_exchange
        async with (
            open_exchange(1, "x", {}) as plain,
            open_exchange(2, methods.LISTEN, LISTEN) as changes,
        ):
            for of in (1, 3, "2", 2.0, True, None):
                await peer.notify(TOOLS_CHANGED, of={"id": of})
                await peer.tear_down({"id": of})
            await peer.notify(TOOLS_CHANGED)
            await peer.notify(methods.ACKNOWLEDGED, {"notifications": {}})
            await peer.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            await peer.send({"jsonrpc": "2.0", "id": 2, "method": "sampling/createMessage"})
            await peer.send({"jsonrpc": "2.0", "error": {"code": -32700, "message": "what?"}})
            await peer.answer({"id": 1})
            await peer.complete({"id": 2})
            assert isinstance(await next_of(plain), jsonrpc.ResultReply)
            assert isinstance(await next_of(changes), jsonrpc.ResultReply)
        assert [(await peer.receive())["id"] for _ in range(2)] == [1, 2]
        await expect_nothing(peer)  # W58: nor is any of it answered
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 3  # of each kind one, the rest is counted
    assert "an error of no particular request" in caplog.text


@pytest.mark.parametrize("order", ["DC", "CD", "C", "D", "aDC", "aCD", "aC", "aD", "-", "a-"])
async def test_every_way_a_server_ends_a_subscription(
    autojump_clock: MockClock, order: str
) -> None:
    """W33, S-82: its result, its `cancelled`, both in any order, before or after the ack, EOF."""
    async with open_scripted_peer() as peer:
        async with peer.transport.open_exchange(1, methods.LISTEN, LISTEN) as changes:
            listen = await peer.expect(methods.LISTEN)
            for step in order:
                if step == "a":
                    await peer.acknowledge(listen)
                    assert (await next_of(changes)).method == methods.ACKNOWLEDGED
                elif step == "D":
                    await peer.complete(listen)
                elif step == "C":
                    await peer.tear_down(listen)
                else:
                    await peer.cut()
            first = order.removeprefix("a")[0]
            if first == "D":
                assert isinstance(await next_of(changes), jsonrpc.ResultReply)
            elif first == "C":
                assert (await next_of(changes)).method == methods.CANCELLED
            else:
                with pytest.raises(errors.ConnectionLost):
                    await next_of(changes)
        if first != "-":
            await expect_nothing(peer)  # it has ended, so there is nothing to cancel
            assert peer.transport.statistics().noise == 0


async def test_a_flood_of_different_uris_costs_the_subscription(autojump_clock: MockClock) -> None:
    """W40: it fails, the server is told to stop, and the connection goes on."""
    async with open_scripted_peer() as peer:
        async with peer.transport.open_exchange(1, methods.LISTEN, LISTEN) as changes:
            listen = await peer.expect(methods.LISTEN)
            await peer.acknowledge(listen)
            for number in range(2000):
                uri = {"uri": f"x://{number}"}
                await peer.notify("notifications/resources/updated", uri, of=listen)
            assert (await peer.expect(methods.CANCELLED))["params"] == {"requestId": 1}
            with pytest.raises(errors.SubscriptionLost):
                await next_of(changes)
        async with peer.transport.open_exchange(2, "x", {}) as messages:
            await peer.answer(await peer.expect("x"))
            assert isinstance(await next_of(messages), jsonrpc.ResultReply)
        await expect_nothing(peer)


async def test_noise_is_skipped(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """W29, W58, W60: what is no message, fifty thousand lines of it, costs one log line."""
    noise = [b"Starting...", b"{", b'  "ok": false', b"}", b"42", b"null", b'"x"', b"[]", b"\x97"]
    async with open_scripted_peer() as peer:
        async with peer.transport.open_exchange(1, "x", {}) as messages:
            await peer.send(b"\xef\xbb\xbf", *(line + b"\r\n" for line in noise), b"\n\n")
            for _ in range(50):
                await peer.send(b"bad\n" * 1000)
            await peer.send(b"x" * 5_000_000 + b"\n")
            await peer.answer({"id": 1})
            assert isinstance(await next_of(messages), jsonrpc.ResultReply)
        assert peer.transport.statistics().noise == 50_010
    assert len(caplog.records) == 1
    caplog.clear()


async def test_the_rate_of_log_messages_is_limited(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """W29: later messages say how many there were in between."""
    async with open_scripted_peer() as peer:
        for _ in range(3):
            for _ in range(10):
                await peer.send(b"noise\n")
            await trio.sleep(11)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert "(9 more since" in caplog.text


async def test_an_answer_without_sense_ends_its_request(autojump_clock: MockClock) -> None:
    """W29: it names the request, so the request does not wait for ever."""
    async with open_scripted_peer() as peer:
        for body in ({"result": 5}, {"error": "no"}, {}):
            async with peer.transport.open_exchange(1, "x", {}) as messages:
                sent = await peer.expect("x")
                await peer.send({"jsonrpc": "2.0", "id": sent["id"]} | body)
                with pytest.raises(errors.RemoteProtocolError):
                    await next_of(messages)
        await expect_nothing(peer)


@pytest.mark.parametrize(
    "answer",
    [
        '{"jsonrpc":"2.0","id":ID,"result":{"text":"TEXT"}}',
        ' { "id" : ID, "error" : "TEXT"}',
        '{"result":{"text":"TEXT"},"jsonrpc":"2.0","id":ID}',
        '{"jsonrpc": "2.0", "result":{"text":"TEXT"}, "id": ID}',
        '{"result":{"text":"TEXT"},"id":ID,"jsonrpc":"2.0"}',
    ],
)
@pytest.mark.parametrize("request_id", [1, "one"])
async def test_an_answer_too_long_ends_its_request(
    autojump_clock: MockClock, answer: str, request_id: str | int
) -> None:
    """W23: wherever the server puts the id; the others are not disturbed."""
    line = answer.replace("ID", codec.encode_json(request_id).decode())
    async with open_scripted_peer() as peer:
        open_exchange = peer.transport.open_exchange
        async with open_exchange(request_id, "x", {}) as long, open_exchange(2, "y", {}) as other:
            await peer.expect("x")
            await peer.send(line.replace("TEXT", "x" * 5_000_000).encode(), b"\n")
            with pytest.raises(errors.RemoteProtocolError, match="more than 4194304 bytes"):
                await next_of(long)
            await peer.answer({"id": 2})
            await next_of(other)
        assert peer.transport.statistics().noise == 1
        await peer.expect("y")
        await expect_nothing(peer)


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":1,"method":"x","params":"TEXT"}',
        '{"jsonrpc":"2.0","method":"x","params":"TEXT","id":1}',
        '{"jsonrpc":"2.0","id":1.0,"result":"TEXT"}',
        '{"result":"TEXT","id":99999999999999999999}',
        '{"result":{"text":"TEXT","id":1}}',
        '{"result":"TEXT","id":"\\x"}',
        "TEXT",
    ],
)
async def test_what_is_too_long_and_no_answer(autojump_clock: MockClock, line: str) -> None:
    """W23, W58: the server's own requests, say; whoever waits goes on waiting."""
    async with open_scripted_peer() as peer:
        async with peer.transport.open_exchange(1, "x", {}) as messages:
            await peer.send(line.replace("TEXT", "x" * 5_000_000).encode(), b"\n")
            await peer.answer({"id": 1})
            assert isinstance(await next_of(messages), jsonrpc.ResultReply)
        assert peer.transport.statistics().noise == 1


@pytest.mark.parametrize("broken", [False, True])
async def test_a_lost_connection_wakes_everybody(autojump_clock: MockClock, broken: bool) -> None:
    """W17: every open exchange fails within a second, after what had arrived before."""
    async with open_scripted_peer() as peer:
        open_exchange = peer.transport.open_exchange
        async with (
            open_exchange(1, "x", {}) as one,
            open_exchange(2, methods.LISTEN, LISTEN) as two,
        ):
            await peer.acknowledge(await _listen_of(peer))
            await trio.testing.wait_all_tasks_blocked()
            await peer.cut(broken=broken)
            assert (await next_of(two)).method == methods.ACKNOWLEDGED
            for messages in (one, two, one):
                with pytest.raises(errors.ConnectionLost, match="ended the connection") as caught:
                    await next_of(messages)
                assert (caught.value.__cause__ is not None) == broken
        with trio.fail_after(1), pytest.raises(errors.ConnectionLost, match="ended"):
            async with open_exchange(3, "x", {}):
                pytest.fail("not reached")


async def _listen_of(peer: ScriptedPeer) -> dict[str, Any]:
    while (message := await peer.receive())["method"] != methods.LISTEN:
        pass
    return message


async def test_a_server_that_takes_no_requests_any_more(autojump_clock: MockClock) -> None:
    """W87: what it has sent before still counts; then the connection is lost."""
    async with (
        open_scripted_peer() as peer,
        peer.transport.open_exchange(1, "x", {}) as one,
        trio.open_nursery() as nursery,
    ):
        await trio.aclose_forcefully(peer._receive_stream)
        nursery.start_soon(_answer_later, peer)
        with trio.fail_after(1), pytest.raises(errors.ConnectionLost):
            async with peer.transport.open_exchange(2, "x", {}):
                pytest.fail("not reached")
        assert isinstance(await next_of(one), jsonrpc.ResultReply)


async def _answer_later(peer: ScriptedPeer) -> None:
    await trio.sleep(0.1)
    await peer.answer({"id": 1})


async def test_leaving_the_transport_fails_what_is_still_open(autojump_clock: MockClock) -> None:
    """W67: whoever goes on using a transport that has been left gets an error, and soon."""
    async with open_scripted_peer() as peer:
        block = peer.transport.open_exchange(1, "x", {})
        messages = await block.__aenter__()
    with pytest.raises(errors.ConnectionLost, match="has been closed"):
        await next_of(messages)
    await block.__aexit__(None, None, None)
    with pytest.raises(errors.ConnectionLost, match="has been closed"):
        async with peer.transport.open_exchange(2, "x", {}):
            pytest.fail("not reached")


async def test_answers_of_all_sizes_at_once(autojump_clock: MockClock) -> None:
    """W21: two hundred requests and answers of 64 KiB each way, in pipes that hold less."""

    async def play(peer: ScriptedPeer) -> None:
        while True:
            sent = await peer.receive()
            await peer.answer(sent, {"data": sent["params"]["data"]})

    async def ask(transport: LineTransport, number: int) -> None:
        params = {"data": "x" * 65536}
        async with transport.open_exchange(number, "big", params) as messages:
            assert len((await next_of(messages, 30)).result["data"]) == 65536

    async with open_scripted_peer(capacity=4096) as peer, trio.open_nursery() as nursery:
        nursery.start_soon(play, peer)
        async with trio.open_nursery() as requests:
            for number in range(200):
                requests.start_soon(ask, peer.transport, number)
        nursery.cancel_scope.cancel()


async def test_a_transport_over_any_streams(autojump_clock: MockClock) -> None:
    """P-20: the block owns the streams; its goodbyes are written before they are closed."""
    to_server, server_receives = memory_pipe()
    server_sends, from_server = memory_pipe()
    server = Wire(server_receives, server_sends)
    with trio.CancelScope() as scope:
        async with open_line_transport(from_server, to_server) as transport:
            assert transport.kind == "stdio"
            async with transport.open_exchange(1, "x", {}):
                scope.cancel()
                await trio.lowlevel.checkpoint()
    assert [message["method"] for message in await server.receive_all()] == [
        "x",
        "notifications/cancelled",
    ]
    with pytest.raises(trio.BrokenResourceError):
        await server.send(request(1, "x"))


async def test_errors_of_the_block_come_out_as_they_are(autojump_clock: MockClock) -> None:
    """W62: no group around an exception that the user raised, and its origin is kept."""
    cause = KeyError("cause")
    with pytest.raises(ValueError, match="mine") as caught:
        async with open_scripted_peer() as peer, peer.transport.open_exchange(1, "x", {}):
            raise ValueError("mine") from cause
    assert caught.value.__cause__ is cause
    with pytest.RaisesGroup(ValueError, KeyError):
        async with open_scripted_peer():
            raise ExceptionGroup("two", [ValueError(), KeyError()])


async def test_leaving_forgets_old_exchanges(autojump_clock: MockClock) -> None:
    """W19: a thousand of them are remembered, to pass over what comes late; no more."""
    async with open_scripted_peer() as peer:
        for number in range(1100):
            async with peer.transport.open_exchange(number, "x", {}):
                pass
            await peer.receive()
            await peer.receive()
        assert len(peer.transport._left) == 1024
        assert peer.transport.statistics().open_exchanges == 0
