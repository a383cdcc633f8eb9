"""The server's end of a connection of lines, driven in raw messages in virtual time."""

import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mcp_trio import codec, errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.testing import RawClient, memory_pipe, open_raw_client, request
from mcp_trio.transports import abc
from mcp_trio.transports.lines import serve_lines

Answer = dict[str, Any]
Method = Callable[[jsonrpc.Request, abc.Exchange], Awaitable[Answer]]


class FakeServer:
    """A handler whose subscriptions hear what `publish` says."""

    supported_versions = ("2026-07-28",)

    def __init__(self) -> None:
        self.methods: dict[str, Method] = {
            "echo": self.echo,
            "slow": self.slow,
            "subscriptions/listen": self.listen,
        }
        self.cancelled = 0
        self.listeners: dict[object, trio.MemorySendChannel[bytes | None]] = {}
        self.notified: list[str] = []
        self.exchanges: list[abc.Exchange] = []

    def mirrored(self, request: jsonrpc.Request) -> dict[str, object]:
        return {}

    def knows(self, method: str) -> bool:
        return method in self.methods

    async def handle(self, message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        self.exchanges.append(exchange)
        try:
            result = await self.methods[message.method](message, exchange)
        except errors.ErrorResponse as error:
            return jsonrpc.error_reply(message.id, error)
        except trio.Cancelled:
            self.cancelled += 1
            raise
        return jsonrpc.result_reply(message.id, result)

    def notify(self, notification: jsonrpc.Notification) -> None:
        self.notified.append(notification.method)
        if notification.method == "boom":
            raise RuntimeError(notification.method)

    def publish(self, text: bytes = b"changed") -> None:
        for request_id, listener in self.listeners.items():
            params = {"text": text.decode(), "of": request_id}
            listener.send_nowait(jsonrpc.encode_notification("changed", params))

    async def echo(self, message: jsonrpc.Request, exchange: abc.Exchange) -> Answer:
        return message.params

    async def slow(self, message: jsonrpc.Request, exchange: abc.Exchange) -> Answer:
        await trio.sleep(message.params.get("seconds", 1000))
        return {"slept": True}

    async def listen(self, message: jsonrpc.Request, exchange: abc.Exchange) -> Answer:
        message.take_params()
        send, receive = trio.open_memory_channel[bytes | None](100)
        self.listeners[message.id] = send
        exchange.end_gracefully = lambda _reason, **_: send.send_nowait(None)
        try:
            await exchange.send(jsonrpc.encode_notification("ack", {"of": message.id}))
            while (frame := await receive.receive()) is not None:
                await exchange.send(frame)
        finally:
            del self.listeners[message.id]
        return {"done": True}


async def receive_within(wire: RawClient, seconds: float = 1.0) -> dict[str, Any]:
    with trio.fail_after(seconds):
        return await wire.receive()


async def expect_silence(wire: RawClient, seconds: float = 10.0) -> None:
    with trio.move_on_after(seconds) as scope:
        pytest.fail(f"unexpected: {await wire.receive()}")
    assert scope.cancelled_caught


def cancel(request_id: object, **more: object) -> dict[str, Any]:
    params = {"requestId": request_id, **more}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def listen(request_id: jsonrpc.RequestId) -> dict[str, Any]:
    return request(request_id, "subscriptions/listen", {"notifications": {}})


async def test_a_subscription_does_not_hold_up_the_reader(autojump_clock: MockClock) -> None:
    """W01: requests and cancellations are seen while a subscription is open."""
    server = FakeServer()
    async with open_raw_client(server) as wire:
        await wire.send(listen(1), request(2, "echo"), cancel(1), request(3, "echo"))
        received = [await receive_within(wire) for _ in range(2)]
        assert {message["id"] for message in received} == {2, 3}
        assert not server.listeners
        await wire.send(listen(1))
        assert (await receive_within(wire))["method"] == "ack"
        await wire.send(request(4, "echo"))
        assert (await receive_within(wire))["id"] == 4
        server.publish()
        assert (await receive_within(wire))["params"]["text"] == "changed"


async def test_a_cancelled_request_is_not_answered(autojump_clock: MockClock) -> None:
    """W08, W18, S-80: a call that runs is cancelled at once, and nothing is sent for it."""
    server = FakeServer()
    async with open_raw_client(server) as wire:
        await wire.send(request(1, "slow"))
        await trio.testing.wait_all_tasks_blocked()
        await wire.send(cancel(1, reason="changed my mind"))
        await trio.testing.wait_all_tasks_blocked()
        assert server.cancelled == 1
        await wire.send(request(2, "slow", {"seconds": 3}), cancel(2, reason=5))
        await expect_silence(wire)
        assert server.cancelled == 2


async def test_nothing_follows_the_cancellation_of_a_subscription(
    autojump_clock: MockClock,
) -> None:
    """W08, S-80: events that wait to be written are withdrawn with the subscription."""
    server = FakeServer()
    async with open_raw_client(server, capacity=300) as wire:
        await wire.send(listen(1), listen(2))
        assert {(await wire.receive())["params"]["of"] for _ in range(2)} == {1, 2}
        server.publish(b"x" * 200)
        server.publish(b"y" * 200)
        await trio.testing.wait_all_tasks_blocked()  # the pipe is full, the rest waits
        await wire.send(cancel(2))
        await trio.testing.wait_all_tasks_blocked()
        seen = [await receive_within(wire) for _ in range(3)]
        # One event for 2 was half written when the cancellation came; the other is withdrawn.
        assert sorted(message["params"]["of"] for message in seen) == [1, 1, 2]
        await expect_silence(wire)


async def test_a_cancelled_writer_leaves_no_half_line(autojump_clock: MockClock) -> None:
    """A line whose writing has begun is written whole, though its request is cancelled."""
    server = FakeServer()
    async with open_raw_client(server, capacity=100) as wire:
        await wire.send(listen(1))
        assert (await wire.receive())["method"] == "ack"
        server.publish(b"x" * 500)
        await trio.testing.wait_all_tasks_blocked()
        await wire.send(cancel(1))
        await wire.send(request(2, "echo", {"a": 1}))
        await trio.testing.wait_all_tasks_blocked()
        assert not server.listeners
        assert (await receive_within(wire))["params"]["text"] == "x" * 500
        assert (await receive_within(wire))["id"] == 2


@pytest.mark.parametrize("request_id", [0, "", "1", -5, 2**63 - 1, "ü" * 128])
async def test_ids_come_back_as_they_were(
    autojump_clock: MockClock, request_id: jsonrpc.RequestId
) -> None:
    """W05, W06: only an absent id is no id, and its type is kept."""
    server = FakeServer()
    async with open_raw_client(server) as wire:
        await wire.send(listen(1), listen(request_id) if request_id != 1 else b"\n")
        for _ in range(2):
            await receive_within(wire)
        await wire.send(cancel(request_id))
        await trio.testing.wait_all_tasks_blocked()
        assert list(server.listeners) == [1]
        await wire.send(request(request_id, "echo"))
        answer = await receive_within(wire)
        assert answer["id"] == request_id
        assert type(answer["id"]) is type(request_id)


async def test_equal_looking_ids_do_not_cancel_each_other(autojump_clock: MockClock) -> None:
    """W06: `1`, `"1"`, `1.0` and `true` are different things."""
    server = FakeServer()
    async with open_raw_client(server) as wire:
        await wire.send(listen(1), listen("1"))
        for _ in range(2):
            await receive_within(wire)
        for other in (1.0, True, None, [1], {"id": 1}, "2", 2):
            await wire.send(cancel(other))
        await wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled"})
        await trio.testing.wait_all_tasks_blocked()
        assert set(server.listeners) == {1, "1"}
        await wire.send(cancel("1"))
        await trio.testing.wait_all_tasks_blocked()
        assert list(server.listeners) == [1]


async def test_a_duplicate_id_is_refused_and_the_first_left_alone(
    autojump_clock: MockClock,
) -> None:
    """W07, S-07: the second request with an id in flight gets -32600."""
    server = FakeServer()
    async with open_raw_client(server) as wire:
        await wire.send(request(7, "slow", {"seconds": 5}), request(7, "echo"), listen(7))
        for _ in range(2):
            refusal = await receive_within(wire)
            assert (refusal["id"], refusal["error"]["code"]) == (7, -32600)
        assert (await receive_within(wire, 6))["result"] == {"slept": True}
        # Answered, so the id is free again.
        await wire.send(request(7, "echo"))
        assert (await receive_within(wire))["result"].keys() == {"_meta"}


async def test_an_id_is_free_as_soon_as_its_answer_is_read(autojump_clock: MockClock) -> None:
    """W07: there is no moment at which an answered id still counts as in flight."""
    async with open_raw_client(FakeServer()) as wire:
        for number in range(200):
            await wire.send(request(1, "echo", {"n": number}))
            assert (await receive_within(wire))["result"]["n"] == number


async def test_what_is_no_message_is_refused_and_the_connection_goes_on(
    autojump_clock: MockClock,
) -> None:
    """W23, W28, W29, STD-1 to STD-7: one error each, without an id unless it can be read."""
    server = FakeServer()
    async with open_raw_client(server, max_line=1000) as wire:
        await wire.send(
            b"\xef\xbb\xbf" + codec.encode_json(request(1, "echo")) + b"\r\n",
            b"\n\n \r\n\t\n",
            b"nonsense\n",
            b"\xff\xfe\n",
            b"[" * 900 + b"\n",
            b"[]\n",
            b"x" * 5000 + b"\n",
            codec.encode_json({"jsonrpc": "2.0", "id": 1.5, "method": "echo"}) + b"\n",
            codec.encode_json({"jsonrpc": "2.0", "id": 4, "method": 5}) + b"\n",
            codec.encode_json(request(9, "echo")),  # and no line end
        )
        await wire.end()
        received = await wire.receive_all()
        assert {message["id"] for message in received if "result" in message} == {1, 9}
        refused = [message for message in received if "error" in message]
        assert [message["error"]["code"] for message in refused] == [
            *(-32700, -32700, -32700, -32600, -32700, -32600, -32600)
        ]
        assert [message.get("id") for message in refused] == [None] * 6 + [4]
        assert all("id" not in message for message in refused[:6])


async def test_a_message_in_single_bytes_and_one_of_a_mebibyte(autojump_clock: MockClock) -> None:
    """W22, W23: characters in pieces, and long lines, in whatever pieces they come."""
    async with open_raw_client(FakeServer()) as wire:
        text = '"読🎉\u2028\u0085"'
        for byte in codec.encode_json(request(1, "echo", {"text": text})) + b"\n":
            await wire.send(bytes([byte]))
        assert (await receive_within(wire))["result"]["text"] == text
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, request(2, "echo", {"text": "a" * 2**20}))
            assert len((await receive_within(wire))["result"]["text"]) == 2**20


async def test_notifications_are_never_answered(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """W57: not when they are unknown, malformed, or fail."""
    server = FakeServer()
    async with open_raw_client(server) as wire:
        for method in ("window/logMessage", "notifications/initialized", "boom"):
            await wire.send({"jsonrpc": "2.0", "method": method, "params": {}})
        await wire.send({"jsonrpc": "2.0", "method": "x", "params": 5})
        await expect_silence(wire)
    assert server.notified == ["window/logMessage", "notifications/initialized", "boom"]
    assert "the handler failed on 'boom'" in caplog.text


async def test_the_end_of_input_lets_requests_finish(autojump_clock: MockClock) -> None:
    """W27: what was read before the end of input is answered; then the connection ends."""
    server = FakeServer()
    async with open_raw_client(server, grace=1.0) as wire:
        await wire.send(request(1, "echo"), request(2, "slow", {"seconds": 0.5}))
        await wire.end()
        assert [message["id"] for message in await wire.receive_all()] == [1, 2]
        assert wire.ended.is_set()
        assert trio.current_time() < 1 + server.cancelled


async def test_the_end_of_input_ends_subscriptions_without_a_word(
    autojump_clock: MockClock,
) -> None:
    """W26, S-84: nothing is written for them, and a call that is too slow holds up nothing."""
    server = FakeServer()
    async with open_raw_client(server, grace=1.0) as wire:
        await wire.send(listen(1), request(2, "slow"))
        assert (await receive_within(wire))["method"] == "ack"
        start = trio.current_time()
        await wire.send(listen(3))  # S-85: it is just opening
        await wire.end()
        assert [message.get("method") for message in await wire.receive_all()] == ["ack"]
        assert trio.current_time() - start == pytest.approx(1.0)
        assert server.cancelled == 3
        assert not server.listeners


async def test_a_broken_input_is_the_end_of_input(autojump_clock: MockClock) -> None:
    """W26: a connection that breaks ends like one that is closed."""
    send, receive = memory_pipe()
    to_client, from_server = memory_pipe()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, FakeServer(), receive, to_client)
        send.break_pipe()
    await to_client.aclose()
    assert await from_server.receive_some() == b""


async def test_a_client_that_takes_nothing_more_ends_the_connection(
    autojump_clock: MockClock,
) -> None:
    """W26: a write that fails means that the client has gone, with all its requests."""
    server = FakeServer()
    with trio.fail_after(1):
        async with open_raw_client(server) as wire:
            await wire.send(listen(1), request(2, "slow"))
            assert (await receive_within(wire))["method"] == "ack"
            await wire._receive_stream.aclose()
            server.publish()
            await wire.ended.wait()
            assert not server.listeners
            assert server.cancelled == 1


async def test_sending_to_a_client_that_has_gone_raises(autojump_clock: MockClock) -> None:
    """The server's side learns of it by the exception that `Exchange.send` names."""
    server = FakeServer()
    raised = trio.Event()

    async def talk(message: jsonrpc.Request, exchange: abc.Exchange) -> Answer:
        with trio.CancelScope(shield=True), pytest.raises(trio.BrokenResourceError):
            while True:
                await exchange.send(b"{}")
        raised.set()
        with trio.CancelScope(shield=True), pytest.raises(trio.BrokenResourceError):
            await exchange.send(b"{}")
        return {}

    server.methods["talk"] = talk
    with trio.fail_after(1):
        async with open_raw_client(server) as wire:
            await wire.send(request(1, "talk"))
            await wire.receive()
            await wire._receive_stream.aclose()
            await raised.wait()
            await wire.ended.wait()


async def test_a_drain_gives_each_subscription_its_result(autojump_clock: MockClock) -> None:
    """W32, W33, S-82: the result, then `notifications/cancelled`; calls get the grace."""
    server = FakeServer()
    async with open_raw_client(server, grace=1.0) as wire:
        await wire.send(*(listen(number) for number in range(20)))
        await wire.send(request("slow", "slow"), request("quick", "slow", {"seconds": 0.5}))
        for _ in range(20):
            await receive_within(wire)
        start = trio.current_time()
        wire.drain.set()
        received = await wire.receive_all()
        assert trio.current_time() - start == pytest.approx(1.0)
        quick = received.pop()
        assert quick["id"] == "quick"
        for number in range(20):
            answer = next(m for m in received if m.get("id") == number)
            after = received[received.index(answer) + 1]
            assert answer["result"] == {"done": True}
            assert after["method"] == "notifications/cancelled"
            assert after["params"] == {"requestId": number}
        assert len(received) == 40
        assert server.cancelled == 1


async def test_a_drain_ends_in_time_though_the_client_does_not_read(
    autojump_clock: MockClock,
) -> None:
    """W31, W32: nothing waits for a client that has stopped reading."""
    server = FakeServer()
    async with open_raw_client(server, capacity=200, grace=1.0) as wire:
        await wire.send(listen(1))
        await receive_within(wire)
        server.publish(b"x" * 1000)
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        wire.drain.set()
        await wire.ended.wait()
        assert trio.current_time() - start == pytest.approx(1.0)


async def test_a_drain_that_fails_is_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """W63: whatever goes wrong, the connection ends."""

    def broken(reason: str, *, retry_after: float | None = None) -> None:
        raise RuntimeError("cannot")

    server = FakeServer()
    async with open_raw_client(server) as wire:
        await wire.send(listen(1))
        await receive_within(wire)
        server.exchanges[0].end_gracefully = broken
        wire.drain.set()
        await wire.ended.wait()
    assert "could not be ended" in caplog.text


async def test_a_subscription_that_opens_during_a_drain_ends_at_once(
    autojump_clock: MockClock,
) -> None:
    """S-81: its request was read before, so it is acknowledged and gets its result."""
    server = FakeServer()
    async with open_raw_client(server) as wire:
        opening = trio.Event()

        async def late(message: jsonrpc.Request, exchange: abc.Exchange) -> Answer:
            await opening.wait()
            return await server.listen(message, exchange)

        server.methods["subscriptions/listen"] = late
        await wire.send(listen(1))
        await trio.testing.wait_all_tasks_blocked()
        wire.drain.set()
        await trio.testing.wait_all_tasks_blocked()
        opening.set()
        assert (await receive_within(wire))["method"] == "ack"
        assert (await receive_within(wire))["id"] == 1


async def test_a_cancelled_connection_ends_its_subscriptions_gracefully(
    autojump_clock: MockClock,
) -> None:
    """W32: an application that cancels the server still ends streams with their results."""
    server = FakeServer()
    to_server, server_receives = memory_pipe()
    server_sends, from_server = memory_pipe()
    wire = RawClient(from_server, to_server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, server, server_receives, server_sends)
        await wire.send(listen(1), request(2, "slow"))
        await receive_within(wire)
        nursery.cancel_scope.cancel()
    assert server.cancelled == 1
    await server_sends.aclose()
    received = await wire.receive_all()
    assert [message.get("id") for message in received] == [1, None]


async def test_a_cancelled_connection_does_not_wait_for_a_client_that_does_not_read(
    autojump_clock: MockClock,
) -> None:
    """W31: the shield around the results has a deadline."""
    server = FakeServer()
    to_server, server_receives = memory_pipe()
    server_sends, from_server = memory_pipe(50)
    wire = RawClient(from_server, to_server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_lines, server, server_receives, server_sends)
        await wire.send(listen(1))
        await trio.testing.wait_all_tasks_blocked()
        await receive_within(wire)
        server.publish(b"x" * 100)
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - start == pytest.approx(0.5)


async def test_a_subscription_that_is_refused_is_not_torn_down(autojump_clock: MockClock) -> None:
    """W33: `notifications/cancelled` is about streams that were open, and those only."""
    server = FakeServer()

    async def refuse(message: jsonrpc.Request, exchange: abc.Exchange) -> Answer:
        if message.id == 2:
            await exchange.send(b'{"ack":true}')
        raise errors.InvalidParams("no")

    server.methods["subscriptions/listen"] = refuse
    async with open_raw_client(server) as wire:
        await wire.send(listen(1))
        assert (await receive_within(wire))["error"]["code"] == -32602
        await wire.send(listen(2))
        assert "ack" in await receive_within(wire)
        assert (await receive_within(wire))["id"] == 2  # S-87: it fails after it was open
        assert (await receive_within(wire))["params"] == {"requestId": 2}
        await expect_silence(wire)


async def test_a_handler_that_raises_is_answered_for(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """W63: it has promised not to, but nobody else pays if it does."""
    server = FakeServer()

    async def fail(message: jsonrpc.Request, exchange: abc.Exchange) -> Answer:
        raise ExceptionGroup("secret", [ValueError("secret")])

    server.methods["boom"] = fail
    async with open_raw_client(server) as wire:
        await wire.send(request(1, "boom"), request(2, "echo"))
        answers = {message["id"]: message for message in [await receive_within(wire) for _ in "ab"]}
        assert answers[1]["error"] == {"code": -32603, "message": "the server failed"}
        assert "result" in answers[2]
    assert "the handler failed on 'boom'" in caplog.text


async def test_a_keyboard_interrupt_comes_out_as_itself(autojump_clock: MockClock) -> None:
    """W62: not in a group, and not as an answer."""
    server = FakeServer()

    async def interrupt(message: jsonrpc.Request, exchange: abc.Exchange) -> Answer:
        raise KeyboardInterrupt

    server.methods["interrupt"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        async with open_raw_client(server) as wire:
            await wire.send(request(1, "interrupt"))
            await wire.receive()


async def test_what_is_sent_too_late_is_dropped(autojump_clock: MockClock) -> None:
    """W82, S-12: after the response nothing is written for a request."""
    server = FakeServer()
    async with open_raw_client(server) as wire:
        await wire.send(request(1, "echo"))
        await receive_within(wire)
        await server.exchanges[0].send(b'{"late":true}')
        await expect_silence(wire)
        assert not server.exchanges[0].send_nowait(b"{}")


async def test_the_exchange_says_whose_it_is(autojump_clock: MockClock) -> None:
    """What limits and authorisation look at."""
    server = FakeServer()
    principal = abc.Principal("ada")
    async with open_raw_client(server, principal=principal) as wire:
        await wire.send(request(1, "echo"), request(2, "echo"))
        await receive_within(wire)
        await receive_within(wire)
    one, two = server.exchanges
    assert one.connection is two.connection
    assert one.connection is not None
    assert (one.principal, one.kind) == (principal, "stdio")


async def test_requests_in_flight_are_bounded(autojump_clock: MockClock) -> None:
    """Beyond the bound a request is turned away; acknowledged subscriptions do not count."""
    server = FakeServer()
    async with open_raw_client(server, max_in_flight=3) as wire:
        for number in range(10):
            await wire.send(listen(number))
            assert (await receive_within(wire))["method"] == "ack"
        await wire.send(*(request(f"r{number}", "slow", {"seconds": 5}) for number in range(5)))
        for number in (3, 4):
            refusal = await receive_within(wire)
            assert (refusal["id"], refusal["error"]["code"]) == (f"r{number}", -32603)
        answered = [await receive_within(wire, 6) for _ in range(3)]
        assert all("result" in message for message in answered)
        await wire.send(request("again", "echo"))
        assert "result" in await receive_within(wire)


async def test_a_flood_of_refusals_waits_for_the_client_to_read(autojump_clock: MockClock) -> None:
    """W20, W21: what is refused does not pile up; a client that reads gets every answer."""
    server = FakeServer()
    total = 2000
    async with open_raw_client(server, max_in_flight=10, capacity=1000) as wire:
        written = 0

        async def write() -> None:
            nonlocal written
            for _ in range(total):
                await wire.send(b"nonsense\n")
                written += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            assert written < 400
            for _ in range(total):
                assert (await receive_within(wire))["error"]["code"] == -32700
        await wire.send(request(1, "echo"))
        assert (await receive_within(wire))["id"] == 1


async def test_a_client_that_reads_only_after_it_has_written(autojump_clock: MockClock) -> None:
    """W21: two hundred answers of 64 KiB, and none of them read before the last request."""
    server = FakeServer()

    async def big(message: jsonrpc.Request, exchange: abc.Exchange) -> Answer:
        for _ in range(10):
            await exchange.send(jsonrpc.encode_notification("progress"))
        return {"data": "x" * 65536}

    server.methods["big"] = big
    async with open_raw_client(server) as wire:
        with trio.fail_after(5):
            for number in range(200):
                await wire.send(request(number, "big"))
        answered: set[int] = set()
        while len(answered) < 200:
            message = await receive_within(wire)
            if "id" in message:
                assert len(message["result"]["data"]) == 65536
                answered.add(message["id"])


async def test_a_stuck_subscriber_stalls_nobody_but_its_connection(
    autojump_clock: MockClock,
) -> None:
    """W20, S-65: another connection of the same server hears everything."""
    server = FakeServer()
    async with (
        open_raw_client(server, capacity=64) as stuck,
        open_raw_client(server) as other,
    ):
        await stuck.send(listen(1))
        await trio.testing.wait_all_tasks_blocked()
        await other.send(listen(2))
        assert (await receive_within(other))["method"] == "ack"
        for number in range(50):
            server.publish(str(number).encode())
            assert (await receive_within(other))["params"]["text"] == str(number)


async def test_what_waits_for_a_subscriber_does_not_wait_before_a_response(
    autojump_clock: MockClock,
) -> None:
    """P-11: of a subscription one message at a time is in the way of the others."""
    server = FakeServer()
    async with open_raw_client(server, capacity=64) as wire:
        await wire.send(listen(1))
        assert (await receive_within(wire))["method"] == "ack"
        for number in range(50):
            server.publish(str(number).encode())
        await trio.testing.wait_all_tasks_blocked()
        await wire.send(request(2, "echo"))
        await trio.testing.wait_all_tasks_blocked()
        before = 0
        while "id" not in await receive_within(wire):
            before += 1
        assert before <= 2
        for _ in range(50 - before):
            await receive_within(wire)


async def test_a_subscription_keeps_nothing_of_what_opened_it(autojump_clock: MockClock) -> None:
    """S-23: a body of three megabytes is gone when the subscription is open."""
    server = FakeServer()
    async with open_raw_client(server) as wire:
        await wire.send(request(0, "echo"))
        await receive_within(wire)
        gc.collect()
        tracemalloc.start()
        try:
            padded = listen(1)
            padded["params"]["padding"] = "x" * 3_000_000
            await wire.send(padded)
            assert (await receive_within(wire))["method"] == "ack"
            await trio.testing.wait_all_tasks_blocked()
            del padded
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 500_000
        finally:
            tracemalloc.stop()


async def test_a_thousand_subscriptions_leave_nothing_behind(autojump_clock: MockClock) -> None:
    """W19: tables are empty again, whether they were cancelled or answered."""
    server = FakeServer()
    async with open_raw_client(server) as wire:
        for number in range(1000):
            await wire.send(listen(number), cancel(number))
        await wire.send(request("last", "echo"))
        while (await receive_within(wire)).get("id") != "last":
            pass
        await trio.testing.wait_all_tasks_blocked()
        connection: Any = server.exchanges[0].connection
        assert (connection.open, connection.admitted, connection._tasks) == ({}, 0, 0)
