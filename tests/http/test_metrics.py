"""The page of metrics: valid for Prometheus, and harmless whatever happens."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs
import http_kit
import pytest
import trio
from http_kit import LISTEN, FakeHandler, Peer, post, running, until
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from mcp_trio import Hub, ResourceUpdated, Server, asgi_app, serve_http
from mcp_trio.http import metrics
from mcp_trio.http.metrics import CONTENT_TYPE, metrics_text
from mcp_trio.http.monitor import HttpMonitor, HttpStatistics
from mcp_trio.server.statistics import ServerStatistics
from mcp_trio.subscriptions.statistics import HubStatistics

URI = "room://secret/temperature"
GET = b"GET %b HTTP/1.1\r\nhost: %b\r\n\r\n"
WANTED: dict[str, Any] = {"resourceSubscriptions": [URI]}
Samples = dict[str, float]


@pytest.fixture(autouse=True)
def _natively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_kit, "host", "native")


def families(text: str) -> dict[str, Metric]:
    """What a parser makes of the text, checked to be what it should be."""
    assert text.endswith("\n")
    found = list(text_string_to_metric_families(text))
    names = [family.name for family in found]
    assert len(set(names)) == len(names)
    for family in found:
        assert family.documentation
        assert family.name.startswith("mcp_")
        assert family.samples
        series = [(sample.name, *sorted(sample.labels.items())) for sample in family.samples]
        assert len(set(series)) == len(series)
        for sample in family.samples:
            assert sample.name == family.name + "_total" * (family.type == "counter")
        assert family.type in {"counter", "gauge"}
    return {family.name: family for family in found}


def samples(text: str) -> Samples:
    """The value of each series, by its name with its labels."""
    found = {}
    for family in families(text).values():
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def thermometer(**options: Any) -> Server:
    server = Server("thermometer", version="1", **options)

    @server.tool
    async def read() -> str:
        return "21"

    server.add_resource(URI, lambda: "21")
    return server


# The text


def test_every_number_of_the_statistics_is_a_metric() -> None:
    """Those that are added later have to be thought of here."""
    asked: dict[Any, set[str]] = {}
    cls: Any
    for cls in (HttpStatistics, ServerStatistics, HubStatistics):
        seen = asked[cls] = set()

        class Spy:
            def __getattr__(self, name: str, seen: set[str] = seen) -> Any:
                seen.add(name)
                return {} if name == "responses" else 0

        tables = {HttpStatistics: "_HTTP", ServerStatistics: "_SERVER", HubStatistics: "_HUB"}
        for metric in getattr(metrics, tables[cls]):
            metric.value(Spy())
    skipped = {HubStatistics: {"listeners"}, ServerStatistics: {"hub"}}
    for cls, seen in asked.items():
        assert seen == {field.name for field in attrs.fields(cls)} - skipped.get(cls, set())


def test_a_server_that_has_done_nothing() -> None:
    """Every series is there from the start, with 0, so that its first step is seen as one."""
    found = samples(metrics_text(thermometer(hub=Hub()), monitor=HttpMonitor()))
    assert found.pop("mcp_registered{kind=tools}") == 1
    assert found.pop("mcp_registered{kind=resources}") == 1
    assert set(found.values()) == {0}
    for series in (
        "mcp_requests_total{method=subscriptions/listen}",
        "mcp_request_errors_total{code=-32603}",
        "mcp_subscriptions_ended_total{reason=disconnected}",
        "mcp_http_responses_total{code=5xx}",
        "mcp_hub_dropped_total{cause=full}",
        "mcp_hub_oldest_queued_seconds",
        "mcp_http_written_bytes_total",
    ):
        assert series in found


def test_counters_and_gauges_are_told_apart() -> None:
    """By their type, which follows from the name; and units are base units."""
    found = families(metrics_text(thermometer(hub=Hub()), monitor=HttpMonitor()))
    assert found["mcp_hub_published"].type == "counter"
    assert found["mcp_hub_queued_events"].type == "gauge"
    assert not any(re.search(r"_ms|_milli|_kb", name) for name in found)


def test_without_a_hub_and_without_a_monitor() -> None:
    names = {name.split("_")[1] for name in families(metrics_text(thermometer()))}
    assert not names & {"hub", "http"}


def test_several_servers_are_told_apart() -> None:
    """By a label, escaped as the format wants it; a hub that they share is listed once."""
    hub, names = Hub(), ("one", 'a "quoted"\\name\nin two lines')
    shared = metrics_text({name: thermometer(hub=hub) for name in names})
    found = samples(shared)
    for name in names:
        assert found[f"mcp_registered{{kind=tools,server={name}}}"] == 1
    assert found["mcp_hub_published_total"] == 0
    apart = samples(metrics_text({name: thermometer(hub=Hub()) for name in names}))
    assert "mcp_hub_published_total" not in apart
    for name in names:
        assert apart[f"mcp_hub_published_total{{server={name}}}"] == 0


def test_a_hub_behind_a_source() -> None:
    """It is no server's own, and can be named beside it; one that is named twice counts once."""
    hub, own = Hub(), Hub()
    hub.publish(ResourceUpdated(URI))
    found = samples(metrics_text(thermometer(source=hub), hub=hub))
    assert found["mcp_hub_published_total"] == 1
    assert samples(metrics_text(thermometer(hub=hub), hub=hub)) == found
    both = samples(metrics_text({"s": thermometer(hub=own)}, hub=hub))
    assert both["mcp_hub_published_total"] == 1
    assert both["mcp_hub_published_total{server=s}"] == 0


# The page


def get(path: bytes = b"/metrics", host: bytes = b"localhost") -> bytes:
    return GET % (path, host)


async def test_a_scrape_of_a_server_at_work() -> None:
    """Subscriptions, requests, errors and bytes; and nothing of who asked for what."""
    hub = Hub()
    server: Any = thermometer(hub=hub)
    async with (
        running(server, metrics_path="/metrics") as native,
        native.connect() as scraper,
        native.connect() as peer,
        native.connect() as other,
    ):
        await peer.stream.send_all(post(LISTEN, 17, notifications=WANTED))
        assert (await peer.head()).status == 200
        await peer.event()
        hub.publish(ResourceUpdated(URI))
        await peer.event()
        await other.request(post("tools/call", name="read"))
        await other.request(post("tools/call", name="nothing-such"))
        response = await scraper.request(get())
        assert response.status == 200
        assert response.headers["content-type"] == CONTENT_TYPE
        found = samples(response.body.decode())
        assert found["mcp_http_connections"] == 3
        assert found["mcp_http_streams"] == found["mcp_subscriptions"] == 1
        assert found["mcp_requests_in_progress"] == found["mcp_hub_listeners"] == 1
        assert found["mcp_subscription_events_written_total"] == 1
        assert found["mcp_hub_delivered_total"] == found["mcp_hub_matched_total"] == 1
        assert found["mcp_requests_total{method=tools/call}"] == 2
        assert found["mcp_request_errors_total{code=-32602}"] == 1
        assert found["mcp_http_responses_total{code=2xx}"] >= 2
        assert found["mcp_http_written_bytes_total"] > 300
        assert not re.search(r"secret|nothing-such|thermometer|17", response.body.decode())
        await peer.stream.aclose()
        await until(lambda: not server.open_subscriptions)
        ended = samples((await scraper.request(get())).body.decode())
        assert ended["mcp_subscriptions_ended_total{reason=disconnected}"] == 1


async def test_get_and_head_of_an_allowed_host_and_nothing_else() -> None:
    """Unlike the health path: what a name leads to that an attacker has made, it does not see."""
    async with running(metrics_path="/metrics") as native, native.connect() as peer:
        await peer.stream.send_all(get().replace(b"GET", b"HEAD"))
        head = await peer.head()
        assert (head.status, head.headers["content-type"]) == (200, CONTENT_TYPE)
        assert int(head.headers["content-length"]) > 100
        response = await peer.request(get().replace(b"GET", b"POST"))
        assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")
        assert (await peer.request(get(host=b"attacker.example"))).status == 421
        assert (await peer.request(get(b"/metrics/?x=1"))).status == 200
    async with (
        running(metrics_path="/m", allowed_hosts=["inside.example"]) as native,
        native.connect() as peer,
    ):
        assert (await peer.request(get(b"/m", b"inside.example"))).status == 200
        assert (await peer.request(get(b"/m"))).status == 421


async def test_there_is_none_by_default() -> None:
    async with running() as native, native.connect() as peer:
        assert (await peer.request(get())).status == 404


@pytest.mark.parametrize("metrics_path", ["metrics", "/mcp", "/health/"])
async def test_a_path_that_makes_no_sense(metrics_path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        await serve_http(FakeHandler(), port=0, health_path="/health", metrics_path=metrics_path)


async def test_handlers_without_statistics_are_left_out() -> None:
    """The listener's numbers are there, and those of the handlers that have some."""
    async with running(metrics_path="/metrics") as native, native.connect() as peer:
        names = families((await peer.request(get())).body.decode())
        assert all(name.startswith("mcp_http_") for name in names)
    handlers = {"/one": thermometer(), "/two": FakeHandler()}
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, port=0, metrics_path="/metrics")
        (url,) = await nursery.start(serve, handlers)
        async with await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])) as stream:
            found = samples((await Peer(stream).request(get())).body.decode())
        assert found["mcp_subscriptions{server=/one}"] == 0
        assert not any("/two" in series for series in found)
        nursery.cancel_scope.cancel()


async def test_a_failure_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever asks is told that it failed, and no more; its connection goes on."""

    class Broken(FakeHandler):
        def statistics(self) -> Any:
            raise RuntimeError("a secret")

    async with running(Broken(), metrics_path="/metrics") as native, native.connect() as peer:
        response = await peer.request(get())
        assert response.status == 500
        assert b"secret" not in response.body
        assert (await peer.request(post("tools/list"))).status == 200
    assert "a secret" in caplog.text


async def test_beside_an_asgi_application() -> None:
    """As the documentation of the module shows it."""
    documented = (metrics.__doc__ or "").split("for instance::")[1].split("The numbers are")[0]
    names = {"asgi_app": asgi_app, "CONTENT_TYPE": CONTENT_TYPE, "metrics_text": metrics_text}
    scope: dict[str, Any] = {**names, "server": thermometer()}
    exec("if True:\n" + documented, scope)  # noqa: S102
    sent: list[Mapping[str, Any]] = []

    async def send(part: Mapping[str, Any]) -> None:
        sent.append(part)

    await scope["app"]({"type": "http", "path": "/metrics"}, None, send)
    assert sent[0]["headers"] == [(b"content-type", CONTENT_TYPE.encode())]
    assert samples(sent[1]["body"].decode())["mcp_subscriptions"] == 0


async def test_one_monitor_for_two_listeners_of_one_server() -> None:
    """How a worker has an address of its own, where the port of the others is shared."""
    server: Any = thermometer()
    monitor = HttpMonitor()
    async with (
        running(server, monitor=monitor) as public,
        running(server, monitor=monitor, metrics_path="/metrics") as private,
        public.connect() as peer,
        private.connect() as scraper,
    ):
        await peer.request(post("tools/call", name="read"))
        found = samples((await scraper.request(get())).body.decode())
        assert found["mcp_http_connections"] == found["mcp_http_accepted_total"] == 2
        assert found["mcp_requests_total{method=tools/call}"] == 1
