"""Serve over HTTP/1.1 on Trio's own listeners, with nothing in between.

Source: specification, basic/transports/streamable-http.
"""

import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Unpack

import attrs
import trio

from mcp_trio._causes import one_cause
from mcp_trio.http._bound import closing, open_listeners, unlinking, url_of
from mcp_trio.http._connection import serve_connection
from mcp_trio.http._connections import notice_absence
from mcp_trio.http._heads import Request
from mcp_trio.http._keepalive import take_keepalive
from mcp_trio.http._running import Host, gc_thresholds_set
from mcp_trio.http._site import ConnectionLimits, Page, PrincipalOf, Site, text_answer
from mcp_trio.http.endpoint import Answer, Endpoint, EndpointOptions
from mcp_trio.http.metrics import metrics_page
from mcp_trio.http.monitor import HttpMonitor
from mcp_trio.transports.abc import Handler
from mcp_trio.transports.lifespan import while_running

__all__ = ["ListenerOptions", "serve_http"]

logger: Final = logging.getLogger("mcp_trio.http.listener")


class ListenerOptions(EndpointOptions, total=False):
    """What `serve_http` can be told about its connections; each has a default."""

    max_connections: int
    """How many may be open at once; others are answered with 503. By default 20,000, or 100 fewer
    than this process may have files open."""
    max_head: int
    """How large the head of a request may be, in bytes; by default 32 KiB."""
    head_timeout: float
    """How long it may take to arrive, and a TLS handshake may take, in seconds; by default 10."""
    idle_timeout: float
    """How long a connection may be open without a request, in seconds; by default 60."""


@while_running
async def serve_http(
    handler: Handler | Mapping[str, Handler],
    host: str | None = "127.0.0.1",
    port: int = 8000,
    *,
    path: str = "/mcp",
    health_path: str | None = None,
    metrics_path: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    unix_socket: str | os.PathLike[str] | None = None,
    listeners: Sequence[trio.SocketListener | socket.socket] | None = None,
    handle_signals: bool = False,
    shutdown_trigger: Callable[[], Awaitable[object]] | None = None,
    drain_grace: float = 2.0,
    send_deadline: float = 30.0,
    drain_stagger: float = 0.0,
    access_log: bool = False,
    monitor: HttpMonitor | None = None,
    principal_of: PrincipalOf | None = None,
    gc_thresholds: tuple[int, int, int] | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[ListenerOptions],
) -> None:
    """Serve a handler over HTTP/1.1 until told to stop.

    What one connection does to itself ends that connection and no other; a client that leaves is
    noticed at once, and one that stops reading is cut after `send_deadline`. Requests that are
    sent ahead are answered in order.

    To stop is to accept no more connections, to end every subscription here with its result, to
    let requests that are being served finish, and to close what is left after `drain_grace`. A
    handler that is served elsewhere, too, goes on there, and can be served again. Stopping
    happens when `shutdown_trigger` returns, on SIGTERM and SIGINT if `handle_signals` is set (a
    second signal cuts the drain short), and when this call is cancelled: then in a shielded
    scope with that same deadline.

    Args:
        handler: the server; or several, each with the path of its own endpoint.
        host: the name or address to listen on; None for all of this machine.
        port: the port; 0 for any that is free, and `task_status` tells which.
        path: where the MCP endpoint is, if there is one.
        health_path: where GET is answered with 200, without a look at the `Host`; nowhere by
            default. Who stops accepts no more connections, so that is how it looks.
        metrics_path: where GET is answered with what `http.metrics.metrics_text` says of the
            handlers and of this listener, for Prometheus; nowhere by default. The `Host` has to
            be allowed; who else may read it is for you to see to.
        ssl_context: speak TLS. A certificate that is loaded into the same context later holds
            for new connections, and open ones go on.
        unix_socket: a path to listen at, instead of a host and a port. What a dead server has
            left there is replaced.
        listeners: listen on these, instead; a socket has to be bound. They are closed in the end.
        handle_signals: whether SIGTERM and SIGINT stop the server. Only in the main thread.
        shutdown_trigger: what to wait for before stopping.
        drain_grace: how long stopping may take, in seconds.
        send_deadline: how long a client may take to read 64 KiB, in seconds.
        drain_stagger: over how many seconds the clients of the streams are spread that come back.
            As far as `drain_grace` leaves room for it, so are the ends; for the rest each client
            is told when to come back.
        access_log: whether each response is logged, to the logger ``mcp_trio.http.access``.
        monitor: counts what goes on here, to be asked at any time.
        principal_of: says for whom a client certificate stands, given what
            `ssl.SSLSocket.getpeercert` returns of it; the `ssl_context` decides which are
            accepted. An exception closes the connection.
        gc_thresholds: thresholds for the garbage collector while serving. With thousands of
            streams (20000, 20, 100) gave up to 1.4 times the throughput, and with fewer nothing
            that could be told from chance. They hold for the whole process.
        task_status: reports the bound addresses, each as ``http://host:port``.
        options: as in `asgi_app`, and `max_connections` (by default 20,000, or 100 fewer than
            this process may have files open), `max_head` (bytes; by default 32 KiB),
            `head_timeout` (seconds; by default 10) and `idle_timeout` (seconds; by default 60).

    Raises:
        OSError: an address cannot be bound.
        ValueError: an option makes no sense.
    """
    pages: dict[str, Page] = {} if health_path is None else {health_path: _health}
    monitor = monitor or HttpMonitor()
    site = _make_site(
        handler,
        path,
        pages,
        metrics_path=metrics_path,
        send_deadline=send_deadline,
        access_log=access_log,
        principal_of=principal_of,
        monitor=monitor,
        options=options,
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(one_cause())
        stack.enter_context(gc_thresholds_set(gc_thresholds))
        bound = await open_listeners(host, port, unix_socket, listeners)
        stack.enter_context(closing(bound))
        for listener in bound:
            notice_absence(listener.socket)
        if unix_socket is not None and listeners is None:
            stack.enter_context(unlinking(unix_socket))
        stack.enter_context(_counting(monitor, site))
        listening = _Listening(bound, ssl_context, site, drain_grace, drain_stagger)
        urls = [url_of(listener, secure=ssl_context is not None) for listener in bound]
        async with listening.serving(
            handle_signals=handle_signals, shutdown_trigger=shutdown_trigger
        ):
            for url in urls:
                logger.info("serving on %s", url)
            task_status.started(urls)


class _Listening(Host):
    """A site on its listeners."""

    def __init__(
        self,
        listeners: list[trio.SocketListener],
        ssl_context: ssl.SSLContext | None,
        site: Site,
        drain_grace: float,
        drain_stagger: float,
    ) -> None:
        super().__init__(site.open, site.streams, drain_grace, drain_stagger)
        self._bound = listeners
        self._listeners: list[trio.abc.Listener[Any]] = [*listeners]
        if ssl_context is not None:
            self._listeners = [
                trio.SSLListener(listener, ssl_context, https_compatible=True)
                for listener in listeners
            ]
        self._site = site

    async def _live(self) -> None:
        with trio.CancelScope(shield=True):  # noqa: ASYNC912 (see `Host`)
            await self._accept(self._listeners)

    def _handler(self, nursery: trio.Nursery) -> Callable[[Any], Awaitable[None]]:
        self._site.nursery = nursery
        return partial(serve_connection, self._site)

    def _close_listeners(self) -> None:
        for listener in self._bound:
            listener.socket.close()

    async def _begin_to_stop(self) -> None:  # noqa: ASYNC910 (nothing to wait for)
        self._site.close_idle()


def _make_site(
    handler: Handler | Mapping[str, Handler],
    path: str,
    pages: dict[str, Page],
    *,
    metrics_path: str | None,
    send_deadline: float,
    access_log: bool,
    principal_of: PrincipalOf | None,
    monitor: HttpMonitor,
    options: ListenerOptions,
) -> Site:
    handlers = handler if isinstance(handler, Mapping) else {path: handler}
    if not handlers:
        raise ValueError("there is nothing to serve")
    paths = [*handlers, *pages] if metrics_path is None else [*handlers, *pages, metrics_path]
    taken = [each.rstrip("/") for each in paths]
    if not all(each.startswith("/") for each in paths):
        raise ValueError("a path begins with a slash")
    if len(set(taken)) < len(taken):
        raise ValueError("two things cannot be at one path")
    keepalive = take_keepalive(options)
    limits = {field.name for field in attrs.fields(ConnectionLimits)} & options.keys()
    taken_out = {name: options.pop(name) for name in limits}  # type: ignore[misc]
    endpoints = {each: Endpoint(its, **options) for each, its in handlers.items()}  # type: ignore[misc]
    if metrics_path is not None:
        answers_to = next(iter(endpoints.values())).answers_to  # all of them have the same hosts
        page = metrics_page(handlers, monitor, lambda request: answers_to(request.headers))
        pages[metrics_path] = page
    return Site(
        endpoints,
        ConnectionLimits(send_deadline=send_deadline, **taken_out),
        pages=pages,
        keepalive=keepalive,
        monitor=monitor,
        principal_of=principal_of,
        access_log=access_log,
    )


def _health(_: Request) -> Answer:
    return text_answer(200, "ok\n", (b"cache-control", b"no-store"))


@contextlib.contextmanager
def _counting(monitor: HttpMonitor, site: Site) -> Iterator[None]:
    monitor.watch(site.open)
    try:
        yield
    finally:
        monitor.forget(site.open)
