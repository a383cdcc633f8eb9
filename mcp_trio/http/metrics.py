"""What a server, its hub and its listener count, as a page for Prometheus.

`serve_http` has it at `metrics_path`. Elsewhere `metrics_text` makes the text, which is to be
answered as `CONTENT_TYPE`; beside an ASGI application, for instance::

    mcp = asgi_app(server)

    async def app(scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/metrics":
            headers = [(b"content-type", CONTENT_TYPE.encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": metrics_text(server).encode()})
        else:
            await mcp(scope, receive, send)

The numbers are those of one process. Where several workers share a port, whoever asks there gets
one of them, and the next time another: let each have an address of its own for this, such as a
port, or a socket that an exporter reads. A server can be served at both, and one monitor counts
for both::

    monitor = HttpMonitor()
    serve = partial(serve_http, server, monitor=monitor, task_status=worker)
    nursery.start_soon(partial(serve, listeners=worker.listeners))
    nursery.start_soon(
        partial(serve_http, server, port=9100 + worker.number, monitor=monitor,
                metrics_path="/metrics")
    )

There are no URIs, ids or names of callers in it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final, Protocol

import attrs

from mcp_trio.http._heads import Request
from mcp_trio.http._site import Page, text_answer
from mcp_trio.http.endpoint import Answer
from mcp_trio.http.monitor import HttpMonitor, HttpStatistics

__all__ = ["CONTENT_TYPE", "Measured", "metrics_page", "metrics_text"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What the text is, for the header of an answer."""

logger: Final = logging.getLogger("mcp_trio.http")


class Measured(Protocol):
    """A server or a hub: what can be asked for its statistics."""

    def statistics(self) -> Any:
        """The numbers of this moment, as a `ServerStatistics` or a `HubStatistics`."""


_Sample = list[tuple[dict[str, str], Any]]
"""The statistics of several things, each with its labels."""


@attrs.frozen
class _Metric:
    """One metric of each of several things.

    Attributes:
        name: what it is called, without the prefix.
        text: what it means.
        value: takes it out of the statistics; it is a mapping where there is a label.
        label: by what it is divided.
    """

    name: str
    text: str
    value: Callable[[Any], Any]
    label: str | None = None

    def lines(self, measured: _Sample) -> Iterator[str]:
        """The metric with a sample for each of what was measured, beside its own labels."""
        name = f"mcp_{self.name}"
        samples = [
            f"{name}{_labels({**labels, **own})} {value}"
            for labels, statistics in measured
            for own, value in self._values(statistics)
        ]
        if samples:
            yield f"# HELP {name} {self.text}"
            yield f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"
            yield from samples

    def _values(self, statistics: Any) -> Iterator[tuple[dict[str, str], float]]:
        value = self.value(statistics)
        if self.label is None:
            yield {}, value
        else:
            yield from (({self.label: key}, part) for key, part in value.items())


def _responses(statistics: HttpStatistics) -> dict[str, int]:
    return {f"{digit}xx": statistics.responses.get(digit, 0) for digit in range(1, 6)}


def _dropped(hub: Any) -> dict[str, int]:
    return {"full": hub.dropped, "closed": hub.abandoned}


def _registered(server: Any) -> dict[str, int]:
    kinds = ("tools", "prompts", "resources", "resource_templates")
    return {kind: getattr(server, kind) for kind in kinds}


_HTTP: Final = (
    _Metric("http_connections", "Connections that are open.", attrgetter("connections")),
    _Metric("http_streams", "Responses that are streams and open.", attrgetter("streams")),
    _Metric("http_accepted_total", "Connections taken on.", attrgetter("accepted")),
    _Metric(
        "http_refused_total",
        "Connections turned away because there were too many.",
        attrgetter("refused"),
    ),
    _Metric(
        "http_slow_readers_total",
        "Connections closed because their client took too long to read.",
        attrgetter("cut"),
    ),
    _Metric("http_responses_total", "Responses by class of their status.", _responses, "code"),
    _Metric(
        "http_written_bytes_total",
        "Bytes written to clients, without what TLS adds.",
        attrgetter("bytes_written"),
    ),
)

_SERVER: Final = (
    _Metric(
        "requests_in_progress",
        "Requests being served, with open subscriptions.",
        attrgetter("requests"),
    ),
    _Metric("requests_total", "Requests by method.", attrgetter("handled"), "method"),
    _Metric(
        "request_errors_total",
        "Requests answered with an error, by its code.",
        attrgetter("failed"),
        "code",
    ),
    _Metric("subscriptions", "Subscriptions open, or about to be.", attrgetter("subscriptions")),
    _Metric(
        "subscriptions_ended_total",
        "Subscriptions by the reason of their end.",
        attrgetter("ended"),
        "reason",
    ),
    _Metric(
        "subscription_events_written_total",
        "Events written to subscriptions.",
        attrgetter("events_written"),
    ),
    _Metric("handler_threads", "Handlers that run in threads.", attrgetter("threads")),
    _Metric(
        "handler_threads_waiting",
        "Handlers that wait for a thread.",
        attrgetter("threads_waiting"),
    ),
    _Metric("registered", "What can be called or read, by kind.", _registered, "kind"),
)

_HUB: Final = (
    _Metric("hub_listeners", "Listeners, with those being ended.", attrgetter("subscriptions")),
    _Metric(
        "hub_listeners_busy",
        "Listeners to which something is being written.",
        attrgetter("busy"),
    ),
    _Metric("hub_listeners_closing", "Listeners being ended.", attrgetter("closing")),
    _Metric("hub_queued_events", "Events that wait, over all listeners.", attrgetter("queued")),
    _Metric(
        "hub_oldest_queued_seconds",
        "How long the first of the events that wait has waited.",
        attrgetter("oldest_queued_age"),
    ),
    _Metric("hub_published_total", "Publications.", attrgetter("published")),
    _Metric(
        "hub_matched_total",
        "Listeners that publications were for, each time.",
        attrgetter("matched"),
    ),
    _Metric("hub_delivered_total", "Of the matched, those idle, at once.", attrgetter("delivered")),
    _Metric("hub_buffered_total", "Of the matched, those busy, for later.", attrgetter("buffered")),
    _Metric(
        "hub_coalesced_total",
        "Of the matched, those for which the same waited already.",
        attrgetter("coalesced"),
    ),
    _Metric(
        "hub_dropped_total",
        "Events lost because too many waited, or left by listeners that were closed.",
        _dropped,
        "cause",
    ),
    _Metric(
        "hub_overflowed_total",
        "Listeners ended because too many events waited.",
        attrgetter("overflowed"),
    ),
)


def metrics_text(
    server: Measured | Mapping[str, Measured],
    *,
    monitor: HttpMonitor | None = None,
    hub: Measured | None = None,
) -> str:
    """What a server, its hub and its listener count, in the text format of Prometheus.

    It looks at every subscription and every connection, which takes about a millisecond for
    each thousand.

    Args:
        server: whose numbers; or several, each with what the label ``server`` shall say.
        monitor: that of the native listener.
        hub: one that no server has as its own `hub`, because it is behind a `source`.

    Returns:
        The text, in version 0.0.4 of the format. All names begin with ``mcp_``; those of counts
        that only grow end in ``_total``, others in their unit where they have one.
    """
    servers, hubs = _ask(server if isinstance(server, Mapping) else {"": server}, hub)
    listeners: _Sample = [] if monitor is None else [({}, monitor.statistics())]
    return "".join(
        f"{line}\n"
        for metrics, things in ((_HTTP, listeners), (_SERVER, servers), (_HUB, hubs))
        for metric in metrics
        for line in metric.lines(things)
    )


def _ask(servers: Mapping[str, Measured], hub: Measured | None) -> tuple[_Sample, _Sample]:
    """The statistics of the servers and of their hubs; of one that is shared only once."""
    measured: _Sample = []
    hubs: dict[int, tuple[dict[str, str], Any]] = {}
    if hub is not None:
        hubs[id(hub)] = {}, hub.statistics()
    for name, server in servers.items():
        labels = {"server": name} if name else {}
        statistics = server.statistics()
        measured.append((labels, statistics))
        if statistics.hub is not None:
            key = id(getattr(server, "hub", server))
            hubs[key] = {} if key in hubs else labels, statistics.hub
    return measured, list(hubs.values())


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    for character, escaped in (("\\", r"\\"), ('"', r"\""), ("\n", r"\n")):
        value = value.replace(character, escaped)
    return value


def metrics_page(
    handlers: Mapping[str, Any], monitor: HttpMonitor, expected: Callable[[Request], bool]
) -> Page:
    """The text as a page of a listener.

    Args:
        handlers: what it serves, each by its path. Those without statistics are left out.
        monitor: the listener's own.
        expected: whether the listener answers to the host that a request names. What is here is
            nobody's business whose name has been made to lead to this machine.
    """
    servers = {path: each for path, each in handlers.items() if hasattr(each, "statistics")}
    measured = next(iter(servers.values())) if len(handlers) == len(servers) == 1 else servers

    def page(request: Request) -> Answer:
        if not expected(request):
            return text_answer(421, "this server does not answer to that host\n")
        try:
            body = metrics_text(measured, monitor=monitor).encode("utf-8", "replace")
        except Exception:
            logger.exception("the statistics cannot be shown")
            return text_answer(500, "the statistics cannot be shown\n")
        kind = (b"content-type", CONTENT_TYPE.encode())
        size = (b"content-length", b"%d" % len(body))
        return Answer(200, [kind, size, (b"cache-control", b"no-store")], body)

    return page
