"""OpenTelemetry: what becomes a span or a number, and what must not."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from opentelemetry import baggage, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from server_kit import Recorder, ask, request

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.server import Server
from mcp_trio.server.middleware import Incoming, Next
from mcp_trio.server.telemetry import Telemetry
from mcp_trio.subscriptions.events import (
    ExtensionEvent,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import SubscriptionContext
from mcp_trio.transports.abc import Principal

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
URI = "note://secret"


class Lab:
    """A telemetry of its own, and what it has recorded."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(tracer_provider=self.tracers, meter_provider=self.meters)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    @property
    def span(self) -> ReadableSpan:
        [span] = self.spans
        return span

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in ([] if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def everything(self) -> str:
        """All that would leave the process, as text."""
        data = self._reader.get_metrics_data()
        return "".join(span.to_json() for span in self.spans) + (
            "" if data is None else data.to_json()
        )


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.tracers.shutdown()
    lab.meters.shutdown()


def make(lab: Lab, **options: Any) -> Server:
    server = Server("s", version="1", telemetry=lab.telemetry, **options)

    @server.tool
    async def hello(how: str = "well") -> str:
        if how == "raise":
            raise ValueError("secret")
        if how == "error":
            raise errors.ErrorResponse("secret", code=7)
        if how == "wait":
            await trio.sleep_forever()
        return "hello"

    @server.prompt
    async def greet() -> str:
        return "hello"

    @server.resource(URI)
    async def broken() -> str:
        raise OSError("secret")

    return server


def call(server: Server, how: str = "well", **meta: Any) -> Any:
    return ask(server, "tools/call", {"name": "hello", "arguments": {"how": how}}, **meta)


async def test_a_request_is_a_span_and_a_duration(lab: Lab) -> None:
    await call(make(lab))
    span = lab.span
    assert (span.name, span.kind) == ("tools/call hello", SpanKind.SERVER)
    assert span.status.status_code is StatusCode.UNSET
    expected = {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "gen_ai.tool.name": "hello",
        "gen_ai.operation.name": "execute_tool",
    }
    assert dict(span.attributes or {}) == expected
    [point] = lab.points("mcp.server.operation.duration")
    assert (dict(point.attributes), point.count) == (expected, 1)
    assert span.parent is None
    assert not span.links


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("http", {"network.transport": "tcp", "network.protocol.name": "http"}),
        ("stdio", {"network.transport": "pipe"}),
    ],
)
async def test_the_transport(lab: Lab, kind: Any, expected: dict[str, str]) -> None:
    exchange = Recorder()
    exchange.kind = kind
    await ask(make(lab), "prompts/get", {"name": "greet"}, exchange=exchange)
    assert lab.span.name == "prompts/get greet"
    assert expected.items() <= dict(lab.span.attributes or {}).items()
    assert (lab.span.attributes or {})["gen_ai.prompt.name"] == "greet"


@pytest.mark.parametrize(
    ("method", "params", "name", "error"),
    [
        ("tools/call", {"name": "hello", "arguments": {"how": "raise"}}, "hello", "tool_error"),
        ("tools/call", {"name": "hello", "arguments": {"how": 5}}, "hello", "tool_error"),
        ("tools/call", {"name": "hello", "arguments": {"how": "error"}}, "hello", "7"),
        ("tools/call", {"name": "secret"}, "", "-32602"),
        ("tools/call", {"name": ["secret"]}, "", "-32602"),
        ("resources/read", {"uri": URI}, "", "-32603"),
        ("resources/read", {"uri": "note://none/secret"}, "", "-32602"),
        ("secret/method", {}, "", "-32601"),
        ("tools/list", {"_meta": "secret"}, "", "-32602"),
        ("subscriptions/listen", {}, "", "-32601"),
    ],
)
async def test_an_error_has_a_type_and_no_words(
    lab: Lab, method: str, params: dict[str, Any], name: str, error: str
) -> None:
    """W63: what went wrong, by its code, without a text that may say too much."""
    await ask(make(lab), method, params)
    known = "_OTHER" if method == "secret/method" else method
    span = lab.span
    attributes = dict(span.attributes or {})
    assert span.name == f"{known} {name}".strip()
    assert attributes["mcp.method.name"] == known
    assert attributes["error.type"] == error
    assert attributes.get("rpc.response.status_code") == (None if error == "tool_error" else error)
    assert span.status.status_code is StatusCode.ERROR
    [point] = lab.points("mcp.server.operation.duration")
    assert point.attributes["error.type"] == error
    assert "secret" not in lab.everything()


async def test_a_structure_that_says_isError_is_no_error(lab: Lab) -> None:  # noqa: N802
    server = make(lab)

    @server.tool
    async def inner() -> dict[str, bool]:
        return {"isError": True}

    await ask(server, "tools/call", {"name": "inner"})
    assert "error.type" not in (lab.span.attributes or {})


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_cancelled_request(
    lab: Lab, grouped: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async def group(given: Incoming, proceed: Next) -> jsonrpc.Reply:
        if not grouped:
            return await proceed(given)
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            nursery.start_soon(trio.sleep_forever)
            reply = await proceed(given)
        return reply  # noqa: RET504 (not inside of a nursery)

    server = make(lab, middleware=[group])
    with trio.move_on_after(3):
        await call(server, "wait")
    assert (lab.span.attributes or {})["error.type"] == "cancelled"
    [point] = lab.points("mcp.server.operation.duration")
    assert point.sum == 3


async def test_the_parent_is_in_the_meta(lab: Lab) -> None:
    """The span of the client is the parent, and the handler's spans are children of ours."""
    server = make(lab)
    seen: list[Any] = []

    @server.tool
    async def look() -> str:
        seen.append(baggage.get_baggage("who"))
        with lab.tracers.get_tracer("own").start_as_current_span("inside"):
            return ""

    @server.tool
    def look_in_thread() -> str:
        with lab.tracers.get_tracer("own").start_as_current_span("in a thread"):
            return ""

    for name in ("look", "look_in_thread"):
        params = {"name": name}
        await ask(server, "tools/call", params, traceparent=PARENT, baggage="who=me")
    inside, outer, threaded, other = lab.spans
    assert (inside.parent, threaded.parent) == (outer.context, other.context)
    assert seen == ["me"]
    for span in (outer, other):
        assert span.parent is not None
        assert format(span.parent.span_id, "x") == "f067aa0ba902b7"
        assert span.parent.is_remote
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_what_is_current_is_linked_or_the_parent(lab: Lab) -> None:
    server = make(lab)
    with lab.tracers.get_tracer("own").start_as_current_span("POST") as post:
        await call(server)
        await call(server, traceparent=PARENT)
    alone, remote, _ = lab.spans
    assert alone.parent == post.get_span_context()
    assert not alone.links
    assert [link.context for link in remote.links] == [post.get_span_context()]


@pytest.mark.parametrize("parent", [5, ["x"], None, "junk", "00-" + "a" * 9000, {}])
async def test_a_parent_that_is_none(lab: Lab, parent: Any) -> None:
    await call(make(lab), traceparent=parent, tracestate=parent, baggage=parent)
    assert lab.span.parent is None


async def listening(
    server: Server,
    notifications: Any,
    exchange: Recorder,
    scope: trio.CancelScope | None = None,
    **meta: Any,
) -> None:
    params = {"notifications": notifications}
    with scope or trio.CancelScope():
        await server.handle(request("subscriptions/listen", params, **meta), exchange)


async def test_a_subscription(
    lab: Lab, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Open, acknowledged, published, ended: one span, and numbers for each."""
    hub = Hub()
    server = make(lab, hub=hub)
    exchange = Recorder(principal=Principal("secret"))
    wanted = {"toolsListChanged": True, "resourceSubscriptions": [URI]}
    nursery.start_soon(listening, server, wanted, exchange)
    await exchange.wait_for(1)
    await trio.testing.wait_all_tasks_blocked()
    [open_now] = lab.points("mcp_trio.subscription.open")
    assert open_now.value == 1
    assert lab.spans == ()

    exchange.hold = trio.Event()  # the client stops reading
    hub.publish(ToolsListChanged())
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(3):
        hub.publish(ResourceUpdated(URI))
    hub.publish(Resync("secret"))
    hub.publish(ResourceUpdated("note://nobody/secret"))
    await trio.sleep(5)
    exchange.hold.set()
    exchange.hold = None
    await exchange.wait_for(4)
    server.end_subscriptions()
    await trio.testing.wait_all_tasks_blocked()

    updated, tools = "notifications/resources/updated", "notifications/tools/list_changed"
    published = {
        p.attributes["mcp.method.name"]: p.value for p in lab.points("mcp_trio.hub.publications")
    }
    registered = {"notifications/prompts/list_changed", "notifications/resources/list_changed"}
    assert registered <= published.keys()
    assert (published[tools], published[updated], published["_OTHER"]) == (1 + 1, 1 + 4, 1)
    outcomes = {
        (p.attributes["mcp.method.name"], p.attributes["mcp_trio.outcome"]): p.value
        for p in lab.points("mcp_trio.hub.events")
    }
    assert outcomes == {
        (tools, "delivered"): 1,
        (updated, "buffered"): 1,
        (updated, "coalesced"): 2,
        ("_OTHER", "buffered"): 1,
        ("_OTHER", "coalesced"): 1,
    }
    [age] = lab.points("mcp_trio.hub.event.age")
    assert (age.count, age.max) == (3, 5)
    [open_now] = lab.points("mcp_trio.subscription.open")
    assert open_now.value == 0
    [acknowledged] = lab.points("mcp_trio.subscription.acknowledge.duration")
    assert (acknowledged.count, acknowledged.sum) == (1, 0)
    [life] = lab.points("mcp_trio.subscription.duration")
    assert (life.attributes["mcp_trio.subscription.end"], life.sum) == ("complete", 5)
    assert lab.points("mcp.server.operation.duration") == []

    span = lab.span
    assert span.name == "subscriptions/listen"
    assert [event.name for event in span.events] == ["acknowledged"]
    assert (span.attributes or {})["mcp_trio.subscription.end"] == "complete"
    assert (span.attributes or {})["mcp_trio.subscription.events"] == 3
    assert span.status.status_code is StatusCode.UNSET
    assert "secret" not in lab.everything()


async def test_a_client_that_leaves_is_no_error(lab: Lab, nursery: trio.Nursery) -> None:
    server = make(lab, hub=Hub())
    cancelled, broken = Recorder(), Recorder()
    scope = trio.CancelScope()
    nursery.start_soon(listening, server, {"toolsListChanged": True}, cancelled, scope)
    nursery.start_soon(listening, server, {"toolsListChanged": True}, broken)
    await cancelled.wait_for(1)
    await broken.wait_for(1)
    broken.gone = True
    scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    server.publish(ToolsListChanged())
    await trio.testing.wait_all_tasks_blocked()
    ends = {(span.attributes or {})["mcp_trio.subscription.end"] for span in lab.spans}
    assert ends == {"cancelled", "disconnected"}
    assert all(span.status.status_code is StatusCode.UNSET for span in lab.spans)


async def test_a_subscription_that_is_refused(lab: Lab) -> None:
    await listening(make(lab, hub=Hub()), "secret", Recorder())
    attributes = dict(lab.span.attributes or {})
    assert attributes["mcp_trio.subscription.end"] == "refused"
    assert attributes["error.type"] == "-32602"
    [life] = lab.points("mcp_trio.subscription.duration")
    assert life.attributes["mcp_trio.subscription.end"] == "refused"
    assert lab.points("mcp_trio.subscription.acknowledge.duration") == []


async def test_nothing_granted_is_acknowledged_too(lab: Lab) -> None:
    await listening(make(lab, hub=Hub()), {}, Recorder())
    assert [event.name for event in lab.span.events] == ["acknowledged"]
    end = (lab.span.attributes or {})["mcp_trio.subscription.end"]
    assert end == "nothing-granted"


async def test_a_middleware_turns_a_subscription_away(lab: Lab) -> None:
    """It never was one: an operation that failed."""

    async def refuse(given: Incoming, proceed: Next) -> jsonrpc.Reply:
        raise errors.ServerBusy("secret")

    server = make(lab, hub=Hub(), middleware=[refuse])
    await listening(server, {"toolsListChanged": True}, Recorder())
    assert (lab.span.attributes or {})["error.type"] == "-32603"
    assert lab.points("mcp_trio.subscription.duration") == []
    [point] = lab.points("mcp.server.operation.duration")
    assert point.attributes["error.type"] == "-32603"


async def test_a_middleware_that_tries_twice(lab: Lab) -> None:
    """The second time has numbers, and no span of its own."""

    async def twice(given: Incoming, proceed: Next) -> jsonrpc.Reply:
        with pytest.raises(errors.ErrorResponse):
            await proceed(given)
        return await proceed(given)

    await listening(make(lab, hub=Hub(), middleware=[twice]), "secret", Recorder())
    assert sum(point.count for point in lab.points("mcp_trio.subscription.duration")) == 2
    assert len(lab.spans) == 1


async def test_a_subscription_keeps_nothing_of_its_request(lab: Lab, nursery: trio.Nursery) -> None:
    """S-23: the span of a stream is there for days, its request's params are not."""

    class Params(dict[str, Any]):
        pass

    params = Params(request("x", traceparent=PARENT).params, notifications={})
    params["notifications"] = {"toolsListChanged": True}
    dead = weakref.ref(params)
    exchange, scope = Recorder(), trio.CancelScope()
    asked = [jsonrpc.Request(1, "subscriptions/listen", params)]
    del params

    async def run() -> None:
        with scope:
            await make(lab, hub=Hub()).handle(asked.pop(), exchange)

    nursery.start_soon(run)
    await exchange.wait_for(1)
    gc.collect()
    assert dead() is None
    scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert lab.span.parent is not None
    assert format(lab.span.parent.span_id, "x") == "f067aa0ba902b7"


async def test_losses_are_counted(lab: Lab) -> None:
    """An event that carries data and is dropped; the age of what is taken counts once."""
    hub = Hub(max_data_events=1)
    hub.observe(lab.telemetry.hub)
    wanted = SubscriptionFilter(task_ids=("t",))
    handle = await hub.open(wanted, SubscriptionContext(1, "memory"))
    for number in range(3):
        hub.publish(ExtensionEvent("x/y", {"n": number}, {"taskIds": "t"}))
    await handle.receive()  # what was lost
    assert lab.points("mcp_trio.hub.event.age") == []
    await handle.receive()
    [age] = lab.points("mcp_trio.hub.event.age")
    assert age.count == 1
    outcomes = {
        p.attributes["mcp_trio.outcome"]: p.value for p in lab.points("mcp_trio.hub.events")
    }
    assert outcomes == {"buffered": 3, "dropped": 2}
    hub.observe(None)
    hub.publish(ExtensionEvent("x/y", {}, {"taskIds": "t"}))
    [published] = lab.points("mcp_trio.hub.publications")
    assert published.value == 3


async def test_without_an_sdk_nothing_happens() -> None:
    server = Server("s", version="1", hub=Hub(), telemetry=Telemetry())

    @server.tool
    async def hello() -> str:
        return "hello"

    await ask(server, "tools/call", {"name": "hello"}, traceparent=PARENT)
    await listening(server, {}, Recorder())
