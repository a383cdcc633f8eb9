"""OpenTelemetry spans and metrics of a server; needs the extra ``telemetry``.

Only the API package is used: which spans and numbers go where is configured by the program, with
an SDK, before or after the server is made. Without an SDK nothing is recorded.

::

    server = Server("thermometer", version="1.0", hub=hub, telemetry=Telemetry())

Each request is a span of its method's name, with the name of a registered tool or prompt behind
it. Its parent is what the request's `_meta` says (`traceparent`, `tracestate`, and `baggage`); a
span that is current in the transport, as of an HTTP instrumentation, is linked, or the parent
where the client says nothing. It is current while the handler runs. The span of a subscription
lasts until the subscription ends, with an event ``acknowledged``; it is current nowhere, for what
runs as long as that, and for several subscribers, is no part of it.

Names and attributes are those of the semantic conventions for MCP, as far as there are such. No
span and no number has a URI, an id, a principal, a message of an error, or a name in it that a
client has made up: an unknown method is ``_OTHER``. Metrics, durations and ages in seconds:

- ``mcp.server.operation.duration``: histogram, requests other than subscriptions.
- ``mcp_trio.subscription.open``: up-down counter, from the request until the end.
- ``mcp_trio.subscription.acknowledge.duration``: histogram, until it was acknowledged.
- ``mcp_trio.subscription.duration``: histogram, by ``mcp_trio.subscription.end``: the reasons of
  `ServerStatistics.ended`.
- ``mcp_trio.hub.publications``: counter, by method of the notification.
- ``mcp_trio.hub.events``: counter, what became of publications for each listener, by method and
  ``mcp_trio.outcome``: ``delivered``, ``buffered``, ``coalesced``, ``dropped`` or ``closed``, as
  in `PublishReport`.
- ``mcp_trio.hub.event.age``: histogram, how long events have waited for a busy listener.

Source: OpenTelemetry semantic conventions for MCP (in development); specification, basic/index,
"_meta".
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

import trio
from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.propagators.textmap import Getter, TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from mcp_trio import codec, errors, types
from mcp_trio._causes import leaves
from mcp_trio.protocol import jsonrpc, meta, methods
from mcp_trio.protocol.versions import SUPPORTED_VERSIONS
from mcp_trio.server.middleware import Incoming, Middleware, Next
from mcp_trio.server.observer import Target
from mcp_trio.subscriptions.events import Event
from mcp_trio.subscriptions.statistics import PublishReport

__all__ = ["Telemetry"]

_SCOPE: Final = "mcp_trio"
_OTHER: Final = "_OTHER"
_LONGEST: Final = 8192
"""Characters of a field of trace context; more is ignored, for who sends it is up to something."""

_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_AGES: Final = (0.0001, 0.001, 0.01, 0.1, 1, 10, 60, 600)
_LIVES: Final = (0.1, 1, 10, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)

_METHODS: Final = frozenset(types.METHODS) | {methods.INITIALIZE, "ping"}

_NETWORK: Final[dict[str, dict[str, str]]] = {
    "http": {"network.transport": "tcp", "network.protocol.name": "http"},
    "stdio": {"network.transport": "pipe"},
    "memory": {},
}

_REPORTED: Final = ("delivered", "buffered", "coalesced", "dropped", "closed")

Attributes = dict[str, str]


class _MetaGetter(Getter[dict[str, Any]]):
    """Reads trace context from a `_meta`, which a client has written."""

    def get(self, carrier: dict[str, Any], key: str) -> list[str] | None:
        value = carrier.get(key)
        return [value] if isinstance(value, str) and len(value) <= _LONGEST else None

    def keys(self, carrier: dict[str, Any]) -> list[str]:
        return list(carrier)


_GETTER: Final = _MetaGetter()


class Telemetry:
    """Records a server, and its hub, with OpenTelemetry; see this module for what.

    Hand it to `Server`; one may serve several.

    Args:
        tracer_provider: makes the spans; None for the global one.
        meter_provider: makes the metrics; None for the global one.
        propagator: reads the parent from a request's `_meta`; None for the global one, which
            by default knows W3C Trace Context and Baggage.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._propagator = propagator
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._operations = meter.create_histogram(
            "mcp.server.operation.duration",
            unit="s",
            description="From a request to its response.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._instruments = _Instruments(meter)
        self.hub = _HubTelemetry(meter)
        """What a hub tells; for `Hub.observe`, which `Server` calls."""

    def subscription(self) -> "_Subscription":
        """A subscription is asked for; the server calls it."""
        record = _listening.get(None)
        if record is None or record.begun:
            record = _Subscription(trace.INVALID_SPAN, {})
        record.begin(self._instruments)
        return record

    def around(self, target: Target) -> Middleware:
        """What runs around every request; the server calls it."""

        async def observe(call: Incoming, proceed: Next) -> jsonrpc.Reply:
            span, attributes, context = self._begin(call, target)
            if call.method == methods.LISTEN:
                del context
                return await self._listen(call, proceed, span, attributes)
            token = contexts.attach(context)
            del context
            started = trio.current_time()
            error: Attributes = {}
            try:
                reply = await proceed(call)
                error = _error_in(reply, call.method)
                return reply
            except BaseException as problem:
                error = _error_of(problem)
                raise
            finally:
                self._operations.record(trio.current_time() - started, attributes | error)
                _finish(span, error)
                contexts.detach(token)

        return observe

    async def _listen(
        self, call: Incoming, proceed: Next, span: Span, attributes: Attributes
    ) -> jsonrpc.Reply:
        record = _Subscription(span, attributes)
        token = _listening.set(record)
        started = trio.current_time()
        error: Attributes = {}
        try:
            reply = await proceed(call)
            error = _error_in(reply, call.method)
            return reply
        except BaseException as problem:
            error = _error_of(problem)
            raise
        finally:
            _listening.reset(token)
            if not record.begun:  # turned away before it was one
                self._operations.record(trio.current_time() - started, attributes | error)
            # That the client has left is how most of them end.
            _finish(span, {} if record.left else error)

    def _begin(self, call: Incoming, target: Target) -> tuple[Span, Attributes, contexts.Context]:
        """A span for a request; its attributes for metrics, and the context to run it in."""
        name = method = call.method if call.method in _METHODS else _OTHER
        attributes = {"mcp.method.name": method, **_NETWORK.get(call.kind, {})}
        version = meta.read_version(call.params)
        if version in SUPPORTED_VERSIONS:
            attributes["mcp.protocol.version"] = version
        about = target(call.request)
        if about is not None:
            name = f"{method} {about}"
            if method == methods.TOOLS_CALL:
                attributes["gen_ai.tool.name"] = about
                attributes["gen_ai.operation.name"] = "execute_tool"
            else:
                attributes["gen_ai.prompt.name"] = about
        ambient = contexts.get_current()
        parent = self._parent(call, ambient)
        around = trace.get_current_span(ambient).get_span_context()
        apart = around.is_valid and trace.get_current_span(parent).get_span_context() != around
        span = self._tracer.start_span(
            name,
            parent,
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=[trace.Link(around)] if apart else None,
        )
        return span, attributes, trace.set_span_in_context(span, parent)

    def _parent(self, call: Incoming, ambient: contexts.Context) -> contexts.Context:
        carrier = call.params.get("_meta")
        if not isinstance(carrier, dict):
            return ambient
        propagator = self._propagator or propagate.get_global_textmap()
        return propagator.extract(carrier, ambient, _GETTER)


class _Instruments:
    """The metrics of subscriptions."""

    def __init__(self, meter: metrics.Meter) -> None:
        self.open = meter.create_up_down_counter(
            "mcp_trio.subscription.open",
            unit="{subscription}",
            description="Subscriptions that are open, or about to be.",
        )
        self.acknowledgements = meter.create_histogram(
            "mcp_trio.subscription.acknowledge.duration",
            unit="s",
            description="From the request of a subscription to its acknowledgement.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.lives = meter.create_histogram(
            "mcp_trio.subscription.duration",
            unit="s",
            description="From the request of a subscription to its end.",
            explicit_bucket_boundaries_advisory=_LIVES,
        )


class _Subscription:
    """One subscription: its span, and its part of the metrics."""

    __slots__ = ("_attributes", "_instruments", "_span", "_started", "begun", "left")

    _instruments: _Instruments

    def __init__(self, span: Span, attributes: Attributes) -> None:
        self._span = span
        self._attributes = {
            key: value for key, value in attributes.items() if key != "mcp.method.name"
        }
        self._started = 0.0
        self.begun = False
        self.left = False
        """Whether it ended because the client wished so, or has gone."""

    def begin(self, instruments: _Instruments) -> None:
        self.begun = True
        self._started = trio.current_time()
        self._instruments = instruments
        instruments.open.add(1, self._attributes)

    def acknowledged(self) -> None:
        self._span.add_event("acknowledged")
        took = trio.current_time() - self._started
        self._instruments.acknowledgements.record(took, self._attributes)

    def ended(self, how: str, written: int) -> None:
        self.left = how in {"cancelled", "disconnected"}
        end = {"mcp_trio.subscription.end": how}
        self._span.set_attributes({**end, "mcp_trio.subscription.events": written})
        self._instruments.open.add(-1, self._attributes)
        took = trio.current_time() - self._started
        self._instruments.lives.record(took, self._attributes | end)


_listening: ContextVar[_Subscription] = ContextVar("mcp_trio.telemetry")
"""The subscription whose request a task serves."""


class _HubTelemetry:
    """The metrics of a hub: a few numbers for each publication, none for each listener."""

    def __init__(self, meter: metrics.Meter) -> None:
        self._publications = meter.create_counter(
            "mcp_trio.hub.publications",
            unit="{publication}",
            description="Events that were published.",
        )
        self._events = meter.create_counter(
            "mcp_trio.hub.events",
            unit="{event}",
            description="What became of published events, for each listener they are for.",
        )
        ages = meter.create_histogram(
            "mcp_trio.hub.event.age",
            unit="s",
            description="How long events have waited for a busy listener.",
            explicit_bucket_boundaries_advisory=_AGES,
        )
        self.taken: Callable[[float], object] = ages.record

    def published(self, event: Event, report: PublishReport) -> None:
        method = {"mcp.method.name": getattr(event, "method", _OTHER)}  # a Resync has none
        self._publications.add(1, method)
        if report.matched:
            for outcome in _REPORTED:
                if count := getattr(report, outcome):
                    self._events.add(count, {**method, "mcp_trio.outcome": outcome})


def _error_in(reply: jsonrpc.Reply, method: str) -> Attributes:
    """What a response says went wrong; empty if nothing."""
    if reply.error_code is not None:
        return _coded(reply.error_code)
    if method != methods.TOOLS_CALL or b'"isError":true' not in reply.frame:
        return {}
    # It is a member of some object; of the result, most likely.
    failed = codec.decode_json(reply.frame)["result"].get("isError") is True
    return {"error.type": "tool_error"} if failed else {}


def _error_of(problem: BaseException) -> Attributes:
    """What an exception will look like to the client."""
    found = leaves(problem)
    if any(isinstance(leaf, trio.Cancelled) for leaf in found):
        return {"error.type": "cancelled"}
    if len(found) == 1 and isinstance(found[0], errors.ErrorResponse):
        return _coded(found[0].code)
    return _coded(errors.INTERNAL_ERROR)


def _coded(code: int) -> Attributes:
    return {"error.type": str(code), "rpc.response.status_code": str(code)}


def _finish(span: Span, error: Attributes) -> None:
    if error:
        span.set_attributes(error)
        span.set_status(Status(StatusCode.ERROR))
    span.end()
