"""`subscriptions/listen` at the server: admission, limits, endings."""

import gc
import json
import logging
import math
import weakref
from typing import Any

import pytest
import trio
from request_meta import META
from server_kit import Recorder, ask, call, request

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.server import Limits, Server
from mcp_trio.server.limits import SubscriptionSlots
from mcp_trio.subscriptions.events import Event, ResourceUpdated, ToolsListChanged
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import (
    CloseReason,
    SourceHandle,
    SubscriptionContext,
    SubscriptionSource,
)
from mcp_trio.transports.abc import Principal

ID = "io.modelcontextprotocol/subscriptionId"
ACK = "notifications/subscriptions/acknowledged"
TOOLS = {"toolsListChanged": True}


class Listener:
    """One open subscription of a test."""

    def __init__(
        self,
        server: Server,
        notifications: Any,
        *,
        request_id: str | int = 1,
        exchange: Recorder | None = None,
        **meta: Any,
    ) -> None:
        self.exchange = Recorder() if exchange is None else exchange
        self.scope = trio.CancelScope()
        self.reply: jsonrpc.Reply | None = None
        self.ended = trio.Event()
        self._server = server
        self._request = request(
            "subscriptions/listen", {"notifications": notifications}, request_id=request_id, **meta
        )

    async def run(self) -> None:
        try:
            with self.scope:
                self.reply = await self._server.handle(self._request, self.exchange)
        finally:
            self.ended.set()

    @property
    def sent(self) -> list[dict[str, Any]]:
        return self.exchange.sent

    @property
    def granted(self) -> Any:
        return self.sent[0]["params"]["notifications"]

    async def response(self) -> dict[str, Any]:
        with trio.fail_after(5):
            await self.ended.wait()
        assert self.reply is not None
        found: dict[str, Any] = json.loads(self.reply.frame)
        return found

    async def end_reason(self) -> Any:
        response = await self.response()
        meta = response["result"]["_meta"]
        assert meta[ID] == response["id"]
        assert type(meta[ID]) is type(response["id"])
        assert meta["io.modelcontextprotocol/serverInfo"]["name"] == "s"
        return meta["org.mcp-trio/end"]["reason"]


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def server(hub: Hub) -> Server:
    return Server("s", version="1", hub=hub)


async def opened(nursery: trio.Nursery, listener: Listener) -> Listener:
    """Start a listener and wait for its acknowledgement."""
    nursery.start_soon(listener.run)
    await listener.exchange.wait_for(1)
    assert listener.sent[0]["method"] == ACK
    return listener


@pytest.mark.parametrize("request_id", [0, "", 1, "1"])
async def test_every_message_carries_the_id(
    server: Server, hub: Hub, nursery: trio.Nursery, request_id: str | int
) -> None:
    """W05, W06, W39, S-04: verbatim, on acknowledgement, event and result."""
    listener = await opened(nursery, Listener(server, TOOLS, request_id=request_id))
    hub.publish(ToolsListChanged())
    sent = await listener.exchange.wait_for(2)
    assert [message["method"] for message in sent] == [ACK, ToolsListChanged.method]
    for message in sent:
        assert message["params"]["_meta"] == {ID: request_id}
        assert type(message["params"]["_meta"][ID]) is type(request_id)
    assert server.end_subscriptions() == 1
    assert await listener.end_reason() == "complete"


async def test_only_what_was_asked_for_arrives(
    server: Server, hub: Hub, nursery: trio.Nursery
) -> None:
    """W36: and nothing on a connection that listens to nothing."""
    empty = [{}, {"toolsListChanged": False}, {"resourceSubscriptions": []}, {"futureThing": True}]
    for notifications in empty:
        nothing = Listener(server, notifications)
        nursery.start_soon(nothing.run)
        assert await nothing.end_reason() == "nothing-granted"
        assert nothing.granted == {}
    listener = await opened(nursery, Listener(server, TOOLS, request_id=4))
    server.add_tool(lambda: "", name="t")
    server.add_prompt(lambda: "", name="p")
    hub.publish(ResourceUpdated("note://a"))
    await listener.exchange.wait_for(2)
    await trio.testing.wait_all_tasks_blocked()
    assert [message["method"] for message in listener.sent] == [ACK, ToolsListChanged.method]
    nursery.cancel_scope.cancel()


async def test_acknowledgement_and_capabilities_say_the_same(nursery: trio.Nursery) -> None:
    """W34, W35: one function derives both."""
    everything = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["x://a"],
    }
    for kinds in ({"tools"}, {"prompts", "updated"}, {"resources"}, set()):
        server = Server("s", version="1", hub=Hub(kinds=kinds))  # type: ignore[arg-type]
        listener = Listener(server, everything)
        nursery.start_soon(listener.run)
        await listener.exchange.wait_for(1)
        promised = server.capabilities()
        granted = listener.granted
        for feature in ("tools", "prompts", "resources"):
            advertised = promised.get(feature, {}).get("listChanged", False)
            assert granted.get(f"{feature}ListChanged", False) == advertised
        subscribe = promised.get("resources", {}).get("subscribe", False)
        assert ("resourceSubscriptions" in granted) == subscribe
        if not kinds:
            assert await listener.end_reason() == "nothing-granted"
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "notifications",
    [
        None,
        [],
        "x",
        {"resourceSubscriptions": "note://a"},
        {"resourceSubscriptions": [1]},
        {"resourceSubscriptions": ["not a uri"]},
        {"toolsListChanged": "yes"},
        {"resourceSubscriptions": [f"x://{i}" for i in range(1001)]},
        {"resourceSubscriptions": [0] * 100_000},
    ],
)
async def test_bad_filters(server: Server, notifications: Any) -> None:
    """W37, S-01, S-41: an error, no acknowledgement, no slot taken."""
    exchange = Recorder()
    params = {"notifications": notifications}
    response = await ask(server, "subscriptions/listen", params, exchange=exchange)
    assert response["error"]["code"] == errors.INVALID_PARAMS
    assert exchange.sent == []
    assert server.open_subscriptions == 0
    response = await ask(server, "subscriptions/listen", exchange=exchange)
    assert response["error"]["code"] == errors.INVALID_PARAMS


async def test_a_thousand_uris_are_fine_and_the_limit_is_configurable(
    nursery: trio.Nursery,
) -> None:
    many = [f"x://{i}" for i in range(1000)]
    server = Server("s", version="1", hub=Hub(), limits=Limits(filter_uris=3))
    response = await ask(
        server, "subscriptions/listen", {"notifications": {"resourceSubscriptions": many[:4]}}
    )
    assert response["error"]["code"] == errors.INVALID_PARAMS
    server = Server("s", version="1", hub=Hub())
    listener = await opened(nursery, Listener(server, {"resourceSubscriptions": many}))
    assert listener.granted["resourceSubscriptions"] == many
    nursery.cancel_scope.cancel()


async def test_task_ids_need_the_extension(server: Server, nursery: trio.Nursery) -> None:
    """S-46, T-02: -32021 names it; with it, what the server does not serve is left out."""
    response = await ask(server, "subscriptions/listen", {"notifications": {"taskIds": [5]}})
    assert response["error"]["code"] == errors.INVALID_PARAMS  # types come first
    response = await ask(server, "subscriptions/listen", {"notifications": {"taskIds": ["t"]}})
    assert response["error"]["code"] == errors.MISSING_REQUIRED_CLIENT_CAPABILITY
    tasks = "io.modelcontextprotocol/tasks"
    assert response["error"]["data"] == {"requiredCapabilities": {"extensions": {tasks: {}}}}
    declared: dict[str, Any] = {
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {tasks: {}}}
    }
    listener = await opened(nursery, Listener(server, {"taskIds": ["t"], **TOOLS}, **declared))
    assert listener.granted == TOOLS
    nursery.cancel_scope.cancel()


class Source(SubscriptionSource):
    """Counts what happens to it; each handle waits for ever, or fails, or ends."""

    def __init__(self, *, fail: Exception | None = None) -> None:
        self.opened: list[SubscriptionContext] = []
        self.closed: list[CloseReason] = []
        self.fail = fail
        self.drained: float | None = None
        self.drain_fails = False
        self.gate: trio.Event | None = None

    async def open(self, wanted: SubscriptionFilter, context: SubscriptionContext) -> SourceHandle:
        self.opened.append(context)
        if self.gate is not None:
            await self.gate.wait()
        if self.fail is not None:
            raise self.fail
        return Handle(self, wanted)

    async def drain(self, deadline: float) -> None:
        self.drained = deadline
        if self.drain_fails:
            raise ValueError("cannot drain")


class Handle(SourceHandle):
    """Never has an event."""

    def __init__(self, source: Source, wanted: SubscriptionFilter) -> None:
        self._source = source
        self._wanted = wanted

    @property
    def accepted(self) -> SubscriptionFilter:
        return self._wanted

    async def receive(self) -> Event:
        await trio.sleep_forever()
        raise AssertionError

    async def aclose(self, reason: CloseReason) -> None:
        self._source.closed.append(reason)


async def test_limits_come_before_the_source(nursery: trio.Nursery) -> None:
    """W34, P-22: busy before the acknowledgement and before the source is opened."""
    limits = Limits(
        subscriptions_per_connection=2, subscriptions_per_principal=3, subscriptions_per_server=5
    )
    source = Source()
    server = Server("s", version="1", source=source, limits=limits)

    def listener(connection: str | None, name: str | None) -> Listener:
        principal = None if name is None else Principal(name)
        return Listener(
            server, TOOLS, exchange=Recorder(connection=connection, principal=principal)
        )

    async def refused(connection: str | None, name: str | None, why: str) -> None:
        busy = listener(connection, name)
        await busy.run()
        response = await busy.response()
        assert response["error"]["code"] == errors.INTERNAL_ERROR
        assert why in response["error"]["message"]
        assert busy.reply is not None
        assert busy.reply.retry_after == 1.0
        assert busy.sent == []

    first = await opened(nursery, listener("a", "ann"))
    second = await opened(nursery, listener("a", "ann"))
    await refused("a", "bob", "this connection")
    await opened(nursery, listener("b", "ann"))
    await refused("b", "ann", "this caller")
    await refused(None, "ann", "this caller")
    await opened(nursery, listener(None, None))
    await opened(nursery, listener(None, None))
    await refused(None, None, "this server")
    assert len(source.opened) == server.open_subscriptions == server.statistics().subscriptions == 5
    # A slot is free again however its subscription ends.
    first.scope.cancel()
    await first.ended.wait()
    await opened(nursery, listener("a", "ann"))
    second.exchange.gone = True
    server.end_subscriptions()
    await trio.testing.wait_all_tasks_blocked()
    assert server.open_subscriptions == 0
    assert len(source.closed) == 6
    await opened(nursery, listener("a", "ann"))
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fail", [errors.ServerBusy("full"), ValueError("broken"), None])
async def test_slots_are_given_back_when_opening_fails(fail: Exception | None) -> None:
    source = Source(fail=fail)
    server = Server("s", version="1", source=source, limits=Limits(subscriptions_per_server=1))
    for _ in range(3):
        exchange = Recorder()
        exchange.gone = fail is None  # the acknowledgement cannot be written
        response = await ask(
            server, "subscriptions/listen", {"notifications": TOOLS}, exchange=exchange
        )
        assert response["error"]["code"] == errors.INTERNAL_ERROR
        assert "broken" not in str(response)
        assert server.open_subscriptions == 0
    assert len(source.opened) == 3
    assert len(source.closed) == (3 if fail is None else 0)


def test_counting_leaves_nothing_behind() -> None:
    """W19: connections come and go for ever."""
    slots = SubscriptionSlots(Limits())
    for i in range(1000):
        with slots.slot(i, f"p{i}"), slots.slot(i, f"p{i}"), slots.slot(None, None):
            assert slots.taken == 3
    assert slots.taken == 0
    assert not slots._by_connection
    assert not slots._by_principal


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "5"])
def test_limits_are_positive_integers(value: Any) -> None:
    with pytest.raises(ValueError, match="positive integer"):
        Limits(filter_uris=value)


async def test_cancelling_ends_without_an_answer(
    server: Server, hub: Hub, nursery: trio.Nursery
) -> None:
    """W08, W19: no result, no event after it, nothing left."""
    for i in range(100):
        listener = await opened(nursery, Listener(server, TOOLS, request_id=i))
        listener.scope.cancel()
        await listener.ended.wait()
        assert hub.publish(ToolsListChanged()).matched == 0
        assert listener.reply is None
        assert len(listener.sent) == 1
        assert listener.exchange.end_gracefully is None
    assert server.open_subscriptions == 0
    assert hub.statistics().subscriptions == 0


async def test_drain_ends_everything_and_refuses_the_rest(
    server: Server, hub: Hub, nursery: trio.Nursery
) -> None:
    """S-86, W32: each gets its result; other requests are served as before."""
    listeners = [await opened(nursery, Listener(server, TOOLS, request_id=i)) for i in range(100)]
    hub.publish(ToolsListChanged())
    await server.drain(trio.current_time() + 5)
    assert server.open_subscriptions == 0
    for listener in listeners:
        assert await listener.end_reason() == "shutdown"
        assert len(listener.sent) == 2  # what was published before is not lost
    late = Listener(server, TOOLS)
    await late.run()
    assert late.reply is not None
    assert late.reply.retry_after == 1.0
    assert "shutting down" in (await late.response())["error"]["message"]
    server.add_tool(lambda: "hi", name="t")
    assert "isError" not in await call(server, "t")
    await server.drain(trio.current_time() + 5)


async def test_drain_waits_no_longer_than_its_deadline(
    server: Server, hub: Hub, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """S-86, P-12: a client that has stopped reading holds nobody up."""
    stuck = await opened(nursery, Listener(server, TOOLS))
    fine = await opened(nursery, Listener(server, TOOLS))
    stuck.exchange.hold = trio.Event()
    hub.publish(ToolsListChanged())
    await trio.testing.wait_all_tasks_blocked()
    start = trio.current_time()
    await server.drain(start + 2)
    assert trio.current_time() - start == 2
    assert await fine.end_reason() == "shutdown"
    assert server.open_subscriptions == 1
    stuck.exchange.hold.set()
    assert await stuck.end_reason() == "shutdown"


def test_a_server_that_was_drained_can_be_run_again() -> None:
    server = Server("s", version="1", hub=Hub())

    async def once() -> None:
        async with trio.open_nursery() as nursery:
            listener = await opened(nursery, Listener(server, TOOLS))
            await server.drain(trio.current_time() + 5)
            assert await listener.end_reason() == "shutdown"

    trio.run(once)
    trio.run(once)


@pytest.mark.parametrize("drain", [False, True])
async def test_a_subscription_that_is_still_opening_is_told_to_come_back(
    nursery: trio.Nursery, drain: bool
) -> None:
    """S-85: nothing was acknowledged yet, so there is nothing to end."""
    source = Source()
    source.gate = trio.Event()
    server = Server("s", version="1", source=source)
    listener = Listener(server, TOOLS)
    nursery.start_soon(listener.run)
    await trio.testing.wait_all_tasks_blocked()
    assert server.open_subscriptions == 1
    if drain:
        await server.drain(trio.current_time() + 5)
    else:
        server.end_subscriptions()
    assert (await listener.response())["error"]["code"] == errors.INTERNAL_ERROR
    assert listener.sent == []


async def test_a_source_of_its_own_drains_with_the_server(
    caplog: pytest.LogCaptureFixture, nursery: trio.Nursery
) -> None:
    source = Source()
    server = Server("s", version="1", source=source)
    listener = await opened(nursery, Listener(server, TOOLS))
    source.drain_fails = True
    with caplog.at_level(logging.ERROR):
        await server.drain(trio.current_time() + 5)
    assert "failed to drain" in caplog.text
    assert source.drained is not None
    assert await listener.end_reason() == "shutdown"
    assert [reason.kind for reason in source.closed] == ["complete"]


async def test_a_hub_outlives_the_servers_that_share_it(hub: Hub, nursery: trio.Nursery) -> None:
    one, other = (Server("s", version="1", hub=hub) for _ in range(2))
    first = await opened(nursery, Listener(one, TOOLS))
    second = await opened(nursery, Listener(other, TOOLS))
    await one.drain(trio.current_time() + 5)
    assert await first.end_reason() == "shutdown"
    assert hub.publish(ToolsListChanged()).delivered == 1
    await second.exchange.wait_for(2)
    other.end_subscriptions("revoked", retry_after=2)
    response = await second.response()
    assert response["result"]["_meta"]["org.mcp-trio/end"] == {
        "reason": "revoked",
        "retryAfterMs": 2000,
    }


async def test_a_source_beside_a_hub_opens_and_the_hub_gets_what_is_published(
    hub: Hub, nursery: trio.Nursery
) -> None:
    source = Source()
    source.kinds = frozenset({"tools"})
    server = Server("s", version="1", hub=hub, source=source)
    assert server.capabilities() == {"tools": {"listChanged": True}}
    await opened(nursery, Listener(server, TOOLS))
    assert len(source.opened) == 1
    server.add_tool(lambda: "", name="t")
    assert hub.statistics().published == 1
    nursery.cancel_scope.cancel()


async def test_the_source_learns_who_asks(nursery: trio.Nursery) -> None:
    source = Source()
    server = Server("s", version="1", source=source)
    who = Recorder(principal=Principal("ann", expires_at=trio.current_time() + 99))
    info = {"name": "c", "version": "2", "title": "x" * 10_000}
    await opened(
        nursery,
        Listener(
            server,
            TOOLS,
            request_id="i",
            exchange=who,
            **{"io.modelcontextprotocol/clientInfo": info},
        ),
    )
    await opened(nursery, Listener(server, TOOLS))
    first, second = source.opened
    assert (first.subscription_id, first.kind, first.principal_name) == ("i", "memory", "ann")
    assert first.expires_at == who.principal.expires_at if who.principal else False
    assert first.client_info == {"name": "c", "version": "2"}
    assert (second.principal_name, second.expires_at, second.client_info) == (None, math.inf, None)
    nursery.cancel_scope.cancel()


async def test_a_subscription_does_not_outlive_its_credentials(
    server: Server, autojump_clock: trio.testing.MockClock
) -> None:
    """W68, P-15."""
    start = trio.current_time()
    who = Recorder(principal=Principal("ann", expires_at=start + 30))
    listener = Listener(server, TOOLS, exchange=who)
    await listener.run()
    assert trio.current_time() - start == 30
    assert await listener.end_reason() == "expired"


async def test_the_authorizer_narrows_silently(nursery: trio.Nursery) -> None:
    """S-40, S-45, W68: what is refused looks like what was never asked for."""

    async def authorize(field: str, value: str | None, context: SubscriptionContext) -> bool:
        await trio.lowlevel.checkpoint()
        assert context.principal_name == "ann"
        return field == "resourceSubscriptions" and value != "x://secret"

    server = Server("s", version="1", hub=Hub(), authorizer=authorize)
    wanted = {**TOOLS, "resourceSubscriptions": ["x://secret", "x://nobody-has-it"]}
    who = Recorder(principal=Principal("ann"))
    listener = await opened(nursery, Listener(server, wanted, exchange=who))
    assert listener.granted == {"resourceSubscriptions": ["x://nobody-has-it"]}
    nursery.cancel_scope.cancel()


class Tracked(dict[str, Any]):
    """A dict that can be watched for being let go."""


async def test_a_stream_keeps_nothing_of_its_request(server: Server, nursery: trio.Nursery) -> None:
    """S-23: not the params, not their `_meta`, not the client's capabilities."""
    filler = Tracked(x="y" * 100_000)
    capabilities = Tracked(experimental={"x": filler})
    meta = Tracked(META, **{"io.modelcontextprotocol/clientCapabilities": capabilities})
    params = Tracked(_meta=meta, notifications=Tracked(TOOLS, filler=filler), filler=filler)
    kept = [weakref.ref(o) for o in (filler, capabilities, meta, params, params["notifications"])]
    exchange = Recorder()
    nursery.start_soon(server.handle, jsonrpc.Request(1, "subscriptions/listen", params), exchange)
    del filler, capabilities, meta, params
    await exchange.wait_for(1)
    await trio.testing.wait_all_tasks_blocked()
    gc.collect()
    assert [ref() for ref in kept] == [None] * 5
    assert exchange.released
    nursery.cancel_scope.cancel()


async def test_a_client_that_has_gone_is_no_failure_of_the_server(
    server: Server, hub: Hub, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await opened(nursery, Listener(server, TOOLS))
    bystander = await opened(nursery, Listener(server, TOOLS, request_id=2))
    listener.exchange.gone = True
    hub.publish(ToolsListChanged())
    assert (await listener.response())["error"]["code"] == errors.INTERNAL_ERROR
    await bystander.exchange.wait_for(2)
    assert caplog.records == []
    assert server.open_subscriptions == 1
    nursery.cancel_scope.cancel()


async def test_a_transport_can_end_one_subscription_gracefully(
    server: Server, nursery: trio.Nursery
) -> None:
    listener = await opened(nursery, Listener(server, TOOLS))
    assert listener.exchange.end_gracefully is not None
    listener.exchange.end_gracefully("shutdown")
    assert await listener.end_reason() == "shutdown"
    assert listener.exchange.end_gracefully is None


async def test_a_tool_can_end_every_subscription(server: Server, nursery: trio.Nursery) -> None:
    """W32: called from inside a handler."""

    @server.tool
    async def hang_up() -> int:
        return server.end_subscriptions()

    listeners = [await opened(nursery, Listener(server, TOOLS, request_id=i)) for i in range(3)]
    assert (await call(server, "hang_up"))["structuredContent"] == 3
    for listener in listeners:
        assert await listener.end_reason() == "complete"
    await opened(nursery, Listener(server, TOOLS))
    nursery.cancel_scope.cancel()
