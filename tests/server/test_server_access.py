"""What a caller may use, and what happens to open subscriptions when that changes."""

import json
import logging
import math
from typing import Annotated, Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from server_kit import Recorder, ask, request

from mcp_trio import errors
from mcp_trio.server import Server
from mcp_trio.server.access import Offered
from mcp_trio.server.completion import Complete
from mcp_trio.subscriptions.events import Event, ResourceUpdated, Resync
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import (
    CloseReason,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)
from mcp_trio.transports.abc import Principal

A, B = "note://a", "note://b"
END = "org.mcp-trio/end"


class Rules:
    """Who may what; `wait` holds the answers back."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = set(allowed)
        self.asked: list[tuple[str, str, str | None]] = []
        self.wait: trio.Event | None = None
        self.fail: Exception | None = None

    async def __call__(self, kind: Offered, name: str, principal: Principal | None) -> bool:
        await trio.lowlevel.checkpoint()
        self.asked.append((kind, name, None if principal is None else principal.name))
        if self.wait is not None:
            await self.wait.wait()
        if self.fail is not None:
            raise self.fail
        return name in self.allowed


async def read_table(table: Annotated[str, Complete(lambda typed: [typed])]) -> str:
    return table


def ref(name: str, *, kind: str = "name") -> dict[str, Any]:
    """What a completion is asked for."""
    if kind == "uri":
        return {"ref": {"type": "ref/resource", "uri": f"{name}://{{table}}"}}
    return {"ref": {"type": "ref/prompt", "name": name}}


def make(rules: Rules, **options: Any) -> Server:
    server = Server("s", version="1", access=rules, **options)
    for name in ("open", "hidden"):
        server.add_tool(lambda: "x", name=name)
        server.add_prompt(lambda: "x", name=name)
    server.add_resource(A, lambda: "a")
    server.add_resource(B, lambda: "b")
    for uri in ("db://{table}", "hidden://{table}"):
        server.add_resource_template(uri, read_table)
    return server


# Requests


@pytest.mark.parametrize(
    ("method", "key", "name", "allowed"),
    [
        ("tools/list", "tools", "name", "open"),
        ("prompts/list", "prompts", "name", "open"),
        ("resources/list", "resources", "uri", A),
        ("resources/templates/list", "resourceTemplates", "uriTemplate", "db://{table}"),
    ],
)
async def test_a_list_has_what_the_caller_may_use(
    method: str, key: str, name: str, allowed: str
) -> None:
    """S-45: and nobody else may have it from a cache."""
    rules = Rules(allowed)
    response = await ask(make(rules), method, exchange=Recorder(principal=Principal("alice")))
    result = response["result"]
    assert [item[name] for item in result[key]] == [allowed]
    assert result["cacheScope"] == "private"
    assert {who for _, _, who in rules.asked} == {"alice"}
    rules.allowed.clear()
    assert (await ask(make(rules), method))["result"][key] == []


async def test_a_page_that_nothing_is_left_of_is_passed_over() -> None:
    rules = Rules("t7", "t9")
    server = Server("s", version="1", access=rules, page_size=2)
    for number in range(10):
        server.add_tool(lambda: "x", name=f"t{number}")
    first = (await ask(server, "tools/list"))["result"]
    assert [tool["name"] for tool in first["tools"]] == ["t7"]
    second = (await ask(server, "tools/list", {"cursor": first["nextCursor"]}))["result"]
    assert [tool["name"] for tool in second["tools"]] == ["t9"]
    assert "nextCursor" not in second


@pytest.mark.parametrize(
    ("method", "hidden", "unknown"),
    [
        ("tools/call", {"name": "hidden"}, {"name": "nidden"}),
        ("tools/call", {"name": "hidden", "arguments": 1}, {"name": "nidden", "arguments": 1}),
        ("prompts/get", {"name": "hidden"}, {"name": "nidden"}),
        ("prompts/get", {"name": "hidden", "arguments": 1}, {"name": "nidden", "arguments": 1}),
        ("resources/read", {"uri": B}, {"uri": "note://n"}),
        ("completion/complete", ref("hidden"), ref("nidden")),
        ("completion/complete", ref("hidden", kind="uri"), ref("nidden", kind="uri")),
    ],
)
async def test_what_is_hidden_looks_unknown(
    method: str, hidden: dict[str, Any], unknown: dict[str, Any]
) -> None:
    """W68: to the letter, whatever else is wrong with the request."""
    server = make(Rules("nidden", "note://n", "nidden://{table}"))
    answers = [await ask(server, method, params) for params in (hidden, unknown)]
    texts = [json.dumps(answer["error"]).replace("nidden", "hidden") for answer in answers]
    assert texts[0] == texts[1].replace("note://n", B)
    assert answers[0]["error"]["code"] == -32602


async def test_what_is_allowed_is_served() -> None:
    server = make(Rules("open", A, "db://users"))
    for method, params in [
        ("tools/call", {"name": "open"}),
        ("prompts/get", {"name": "open"}),
        ("resources/read", {"uri": A}),
        ("resources/read", {"uri": "db://users"}),
        ("server/discover", {}),
    ]:
        assert "result" in await ask(server, method, params)


async def test_rules_that_fail_refuse_the_request(caplog: pytest.LogCaptureFixture) -> None:
    """W63: the cause is in the log only. An error response is the program's own answer."""
    rules = Rules("open")
    rules.fail = OSError("secret-host")
    server = make(rules)
    for method, params in [("tools/call", {"name": "open"}), ("tools/list", {})]:
        with caplog.at_level(logging.ERROR, "mcp_trio.server"):
            error = (await ask(server, method, params))["error"]
        assert error == {"code": -32603, "message": "access could not be decided"}
    assert "secret-host" in caplog.text
    rules.fail = errors.ServerBusy("later")
    assert (await ask(server, "tools/list"))["error"]["message"] == "later"


def test_what_is_not_for_everybody_cannot_be_public() -> None:
    with pytest.raises(ValueError, match="public"):
        make(Rules(), cache_scope="public")


# Subscriptions


class Stream:
    """One subscription of a test."""

    def __init__(self, server: Server, name: str = "alice", expires_at: float = math.inf) -> None:
        self.exchange = Recorder(principal=Principal(name, expires_at))
        self.server = server
        self.result: dict[str, Any] | None = None

    async def run(self, **notifications: Any) -> None:
        asked = request("subscriptions/listen", {"notifications": notifications})
        reply = await self.server.handle(asked, self.exchange)
        self.result = json.loads(reply.frame)

    def start(self, nursery: trio.Nursery, *uris: str, tools: bool = False) -> None:
        wanted: dict[str, Any] = {"resourceSubscriptions": list(uris)}
        if tools:
            wanted["toolsListChanged"] = True

        async def run() -> None:
            await self.run(**wanted)

        nursery.start_soon(run)

    @property
    def granted(self) -> Any:
        return self.exchange.sent[0]["params"]["notifications"]

    @property
    def told(self) -> list[str]:
        return [
            m["params"].get("uri", m["method"].rpartition("/")[2]) for m in self.exchange.sent[1:]
        ]

    @property
    def end(self) -> str | None:
        if self.result is None:
            return None
        reason: str = self.result["result"]["_meta"][END]["reason"]
        return reason


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_who_may_not_read_a_uri_cannot_follow_it(nursery: trio.Nursery) -> None:
    """S-45, W68: left out without a word; the authorizer is asked about the rest."""
    fields: list[tuple[str, str | None]] = []

    async def authorize(field: str, value: str | None, context: SubscriptionContext) -> bool:
        fields.append((field, value))
        return value != "note://c"

    rules = Rules(A, "note://c")
    server = make(rules, hub=Hub(), authorizer=authorize)
    stream = Stream(server)
    stream.start(nursery, A, B, "note://c", tools=True)
    await settle()
    assert stream.granted == {"toolsListChanged": True, "resourceSubscriptions": [A]}
    assert fields == [
        ("toolsListChanged", None),
        ("resourceSubscriptions", A),
        ("resourceSubscriptions", "note://c"),
    ]
    assert rules.asked == [("resource", uri, "alice") for uri in (A, B, "note://c")]
    nursery.cancel_scope.cancel()


async def test_what_was_revoked_ends_and_nothing_more_is_written(nursery: trio.Nursery) -> None:
    """S-45, P-15: from the call on nothing is written until the answers are there."""
    rules, hub = Rules(A, B), Hub()
    server = make(rules, hub=hub)
    alice, bob, carol = Stream(server), Stream(server, "bob"), Stream(server)
    alice.start(nursery, A)
    bob.start(nursery, A)
    carol.start(nursery, A, B)
    await settle()
    hub.publish(ResourceUpdated(A))
    await settle()
    rules.allowed.discard(A)
    rules.wait = trio.Event()
    ended: list[int] = []

    async def recheck() -> None:
        ended.append(await server.recheck("alice"))

    nursery.start_soon(recheck)
    await settle()
    for uri in (A, B):
        hub.publish(ResourceUpdated(uri))
    await settle()
    assert [alice.told, bob.told, carol.told] == [[A], [A, A], [A]]
    rules.wait.set()
    await settle()
    assert [alice.told, bob.told, carol.told] == [[A], [A, A], [A]]
    assert [alice.end, bob.end, carol.end] == ["revoked", None, "complete"]
    assert ended == [2]
    assert server.statistics().ended["revoked"] == 1
    assert await server.recheck() == 1
    await settle()
    assert bob.end == "revoked"


async def test_who_keeps_everything_misses_nothing(nursery: trio.Nursery) -> None:
    rules, hub = Rules(A, B), Hub()
    server = make(rules, hub=hub)
    stream = Stream(server)
    stream.start(nursery, A, B)
    await settle()
    rules.wait = trio.Event()
    nursery.start_soon(server.recheck)
    nursery.start_soon(server.recheck, "alice")
    await settle()
    hub.publish(Resync())
    hub.publish(ResourceUpdated(B))
    await settle()
    assert stream.told == []
    rules.wait.set()
    await settle()
    assert (stream.told, stream.end) == ([A, B], None)
    hub.publish(ResourceUpdated(A))
    assert await server.recheck("nobody") == 0
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_without_an_answer_it_ends_too(how: str, nursery: trio.Nursery) -> None:
    """The door is closed, and the client may ask again by subscribing anew."""
    rules, hub = Rules(A), Hub()
    server = make(rules, hub=hub)
    streams = [Stream(server, f"p{number}") for number in range(40)]
    for stream in streams:
        stream.start(nursery, A)
    await settle()
    if how == "fails":
        rules.fail = OSError("x")
        assert await server.recheck() == 40
    else:
        rules.wait = trio.Event()
        with trio.move_on_after(0.01):
            await server.recheck()
    hub.publish(ResourceUpdated(A))
    await settle()
    assert {stream.end for stream in streams} == {"complete"}
    assert not any(stream.told for stream in streams)


async def test_one_that_is_being_opened_asks_again(nursery: trio.Nursery) -> None:
    rules = Rules(A, B)
    server = make(rules, hub=Hub())
    rules.wait = trio.Event()
    stream = Stream(server)
    stream.start(nursery, A, B)
    await settle()
    rules.allowed.discard(A)
    assert await server.recheck() == 0
    rules.allowed.add(A)  # an answer of before may have been either
    rules.wait.set()
    rules.allowed.discard(A)
    await settle()
    assert stream.granted == {"resourceSubscriptions": [B]}
    assert [name for _, name, _ in rules.asked] == [A, B, A, B]
    nursery.cancel_scope.cancel()


async def test_what_waits_for_a_slow_client_is_dropped(nursery: trio.Nursery) -> None:
    """Also when the subscription was about to end with what is queued."""
    rules, hub = Rules(A, B), Hub()
    server = make(rules, hub=hub)
    stream = Stream(server)
    stream.start(nursery, A, B)
    await settle()
    stream.exchange.hold = trio.Event()
    for uri in (A, B):
        hub.publish(ResourceUpdated(uri))
    await settle()
    server.end_subscriptions("complete")
    rules.allowed.clear()
    assert await server.recheck() == 1
    stream.exchange.hold.set()
    await settle()
    assert (stream.told, stream.end) == ([A], "revoked")  # A was being written


async def test_credentials_that_expire_while_it_is_asked_end_it(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """P-15, W68: whatever takes its time, nothing is written after that moment."""
    rules, hub = Rules(A), Hub()
    server = make(rules, hub=hub)
    stream = Stream(server, expires_at=trio.current_time() + 5)
    stream.start(nursery, A)
    await trio.sleep(1)
    rules.wait = trio.Event()
    nursery.start_soon(server.recheck)
    await trio.sleep(1)
    hub.publish(ResourceUpdated(A))
    await trio.sleep(10)
    assert (stream.told, stream.end) == ([], "expired")
    nursery.cancel_scope.cancel()


class Feed(SubscriptionSource):
    """A source written by hand, whose handles cannot end by themselves."""

    def __init__(self) -> None:
        self.send, self.events = trio.open_memory_channel[Event](math.inf)
        self.closed: list[CloseReason] = []
        self.opening: trio.Event | None = None

    async def open(self, wanted: SubscriptionFilter, context: SubscriptionContext) -> SourceHandle:
        await trio.lowlevel.checkpoint()
        if self.opening is not None:
            await self.opening.wait()
        return FeedHandle(self, wanted)


class FeedHandle(SourceHandle):
    """One of its subscriptions."""

    def __init__(self, feed: Feed, accepted: SubscriptionFilter) -> None:
        self.feed = feed
        self._accepted = accepted

    @property
    def accepted(self) -> SubscriptionFilter:
        return self._accepted

    async def receive(self) -> Event:
        return await self.feed.events.receive()

    async def aclose(self, reason: CloseReason) -> None:
        await trio.lowlevel.checkpoint()
        self.feed.closed.append(reason)


async def test_a_source_that_does_not_end_by_itself_is_cut(nursery: trio.Nursery) -> None:
    rules, feed = Rules(A), Feed()
    server = make(rules, source=feed)
    stream = Stream(server)
    stream.start(nursery, A)
    await settle()
    feed.send.send_nowait(ResourceUpdated(A))
    await settle()
    rules.allowed.clear()
    assert await server.recheck() == 1
    feed.send.send_nowait(ResourceUpdated(A))
    await settle()
    assert (stream.told, stream.end) == ([A], "revoked")
    assert feed.closed == [CloseReason("complete", "revoked")]


async def test_one_whose_source_is_being_opened_is_refused(nursery: trio.Nursery) -> None:
    rules, feed = Rules(A), Feed()
    feed.opening = trio.Event()
    server = make(rules, source=feed)
    stream = Stream(server)
    stream.start(nursery, A)
    await settle()
    rules.allowed.clear()
    assert await server.recheck() == 1
    await settle()
    assert stream.result is not None
    assert stream.result["error"]["data"]["retryAfterMs"] > 0


async def test_without_anybody_to_ask_there_is_nothing_to_do(nursery: trio.Nursery) -> None:
    assert await Server("s", version="1").recheck() == 0
    hub = Hub()
    server = Server("s", version="1", hub=hub)
    stream = Stream(server)
    stream.start(nursery, A)
    await settle()
    assert await server.recheck() == 0
    hub.publish(ResourceUpdated(A))
    await settle()
    assert (stream.told, stream.end) == ([A], None)
    nursery.cancel_scope.cancel()


Step = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from([A, B])),
    st.tuples(st.just("revoke"), st.sampled_from([A, B])),
    st.tuples(st.just("allow"), st.sampled_from([A, B])),
    st.tuples(
        st.sampled_from(["recheck", "yield", "block", "unblock", "fast", "slow"]), st.just("")
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(Step, max_size=25))
def test_nothing_is_written_after_its_permission_was_revoked(steps: list[tuple[str, str]]) -> None:
    """S-45, P-15: whatever is published, revoked, asked again and written when.

    What counts is the moment in which a recheck begins: what is forbidden then, and stays so
    until its answers are there, is not written any more, by the task or by the publisher.
    """

    class Fast(Recorder):
        fast = True

        def send_nowait(self, frame: bytes, now: float | None = None) -> bool:
            if self.fast and self.hold is None:
                self.written(frame)
            return self.fast and self.hold is None

        async def send(self, frame: bytes) -> None:
            self.begun(frame)
            await super().send(frame)

        def written(self, frame: bytes) -> None:
            self.begun(frame)
            self.sent.append(json.loads(frame))

        def begun(self, frame: bytes) -> None:
            uri = json.loads(frame)["params"].get("uri")
            if uri in forbidden:
                wrong.append(uri)

    forbidden: set[str] = set()
    wrong: list[str] = []

    async def main() -> None:
        rules, hub = Rules(A, B), Hub()
        server = make(rules, hub=hub)

        async def recheck() -> None:
            forbidden.update({A, B} - rules.allowed)
            await server.recheck()

        async with trio.open_nursery() as nursery:
            stream = Stream(server)
            exchange = Fast(principal=Principal("alice"))
            stream.exchange = exchange
            stream.start(nursery, A, B)
            await settle()
            for what, uri in steps:
                match what:
                    case "publish":
                        hub.publish(ResourceUpdated(uri))
                    case "revoke":
                        rules.allowed.discard(uri)
                    case "allow":
                        if stream.end is None and not forbidden:
                            rules.allowed.add(uri)
                    case "recheck":
                        nursery.start_soon(recheck)
                        await trio.lowlevel.checkpoint()
                    case "yield":
                        await settle()
                    case "block":
                        exchange.hold = trio.Event() if exchange.hold is None else exchange.hold
                    case "unblock" if exchange.hold is not None:
                        exchange.hold.set()
                        exchange.hold = None
                    case "fast" | "slow":
                        exchange.fast = what == "fast"
            if exchange.hold is not None:
                exchange.hold.set()
                exchange.hold = None
            await settle()
            assert not wrong
            assert stream.end is not None or not forbidden
            nursery.cancel_scope.cancel()

    trio.run(main)
