"""Serve over Hypercorn's HTTP, hardened against strangers.

Source: specification, basic/transports/streamable-http.
"""

import contextlib
import copy
import logging
import socket
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Unpack

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config, Sockets
from hypercorn.trio.lifespan import Lifespan
from hypercorn.utils import repr_socket_addr

from mcp_trio._causes import one_cause
from mcp_trio.http._connections import notice_absence
from mcp_trio.http._hypercorn_connection import Shared
from mcp_trio.http._keepalive import Streams
from mcp_trio.http._running import Host, gc_thresholds_set
from mcp_trio.http.asgi import STREAMS, ASGIApp, Receive, Scope, Send, asgi_app
from mcp_trio.http.endpoint import EndpointOptions
from mcp_trio.transports.abc import Handler
from mcp_trio.transports.lifespan import while_running

__all__ = ["serve_hypercorn"]

BACKLOG: Final = 1024
"""How many connections may wait to be accepted where the configuration leaves Hypercorn's 100."""

logger = logging.getLogger("mcp_trio.http.hypercorn")


@while_running
async def serve_hypercorn(
    handler: Handler,
    config: Config | None = None,
    *,
    path: str = "/mcp",
    app: ASGIApp | None = None,
    listeners: Sequence[socket.socket] | None = None,
    handle_signals: bool = False,
    shutdown_trigger: Callable[[], Awaitable[object]] | None = None,
    drain_grace: float = 2.0,
    drain_stagger: float = 0.0,
    send_deadline: float = 30.0,
    upgrades: bool = False,
    gc_thresholds: tuple[int, int, int] | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[EndpointOptions],
) -> None:
    """Serve a handler over HTTP on Hypercorn's Trio worker until told to stop.

    It is Hypercorn as its configuration says (addresses, TLS, limits, logs), but that

    * what one connection does to itself ends that connection and no other;
    * a client that stops reading is cut after `send_deadline`;
    * a client that leaves is noticed at once;
    * connections speak HTTP/1.1 and are not upgraded, unless `upgrades` is given;
    * stopping is graceful and bounded.

    To stop is to accept no more connections, to end every subscription here with its result, to
    let requests that are being served finish, and to close what is left after `drain_grace`. A
    handler that is served elsewhere, too, goes on there, and can be served again. Stopping
    happens when `shutdown_trigger` returns, on SIGTERM and SIGINT if `handle_signals` is set (a
    second signal cuts the drain short), and when this call is cancelled: then in a shielded
    scope with that same deadline.

    Args:
        handler: the server.
        config: Hypercorn's configuration; by default it listens on 127.0.0.1:8000. Its settings
            for workers, QUIC and reloading have no effect here, nor has `read_timeout`.
        path: where the MCP endpoint is.
        app: an ASGI application that mounts `asgi_app(handler)` among other things, to serve
            instead; then `path` and `options` have no effect.
        listeners: sockets to listen on, instead of what the configuration binds; they have to be
            bound, and are closed in the end. With a certificate all of them speak TLS.
        handle_signals: whether SIGTERM and SIGINT stop the server. Only in the main thread.
        shutdown_trigger: what to wait for before stopping.
        drain_grace: how long stopping may take, in seconds.
        drain_stagger: over how many seconds the clients of the streams are spread that come back.
            As far as `drain_grace` leaves room for it, so are the ends; for the rest each client
            is told when to come back.
        send_deadline: how long a client may take to read 64 KiB, in seconds.
        upgrades: allow HTTP/2 and WebSocket, as Hypercorn speaks them. Its HTTP/2 knows no
            back-pressure: have a proxy in front that you trust.
        gc_thresholds: thresholds for the garbage collector while serving; with thousands of
            streams (20000, 20, 100) nearly doubles throughput. They hold for the whole process.
        task_status: reports the bound addresses, each as ``http://host:port``.
        options: as in `asgi_app`.

    Raises:
        OSError: an address cannot be bound.
        ValueError: the configuration asks for QUIC.
    """
    settings = copy.copy(config) if config is not None else Config()
    if settings.quic_bind:
        raise ValueError("QUIC cannot be served here")
    if settings.backlog == Config.backlog:
        settings.backlog = BACKLOG
    if not upgrades:
        settings.alpn_protocols = ["http/1.1"]
    served: Any = app if app is not None else asgi_app(handler, path=path, **options)
    streams = Streams()
    wrapped = ASGIWrapper(_lending(served, streams))
    shared = Shared(wrapped, settings, send_deadline=send_deadline, upgrades=upgrades)
    with contextlib.ExitStack() as stack:
        stack.enter_context(one_cause())
        stack.enter_context(gc_thresholds_set(gc_thresholds))
        bound = stack.enter_context(contextlib.closing(_Listeners(settings, listeners)))
        with_lifespan = app is not None
        worker = _Worker(bound, shared, streams, with_lifespan, drain_grace, drain_stagger)
        async with worker.serving(handle_signals=handle_signals, shutdown_trigger=shutdown_trigger):
            for address in bound.addresses:
                logger.info("serving on %s", address)
            task_status.started(bound.addresses)


def _lending(app: ASGIApp, streams: Streams) -> Any:
    """Offer the application a place to note its streams in."""

    def lending(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            scope.setdefault("extensions", {})[STREAMS] = streams
        return app(scope, receive, send)

    return lending


class _Worker(Host):
    """An application on its listeners, with its lifespan around it if it has one."""

    def __init__(
        self,
        listeners: "_Listeners",
        shared: Shared,
        streams: Streams,
        with_lifespan: bool,
        drain_grace: float,
        drain_stagger: float,
    ) -> None:
        super().__init__(shared.open, streams, drain_grace, drain_stagger)
        self._listeners = listeners
        self._shared = shared
        self._with_lifespan = with_lifespan

    async def _live(self) -> None:
        with trio.CancelScope() as life:
            async with trio.open_nursery() as nursery:
                lifespan = Lifespan(self._shared.app, self._shared.config, self._shared.state)
                if self._with_lifespan:
                    await nursery.start(lifespan.handle_lifespan)
                    # The application may as well return at once, and care for no lifespan.
                    with contextlib.suppress(trio.ClosedResourceError):
                        await lifespan.wait_for_startup()
                # Until here it can be cancelled.
                life.shield = True
                await self._accept(self._listeners.listeners)
                if self._with_lifespan:
                    gone = contextlib.suppress(trio.ClosedResourceError)
                    with gone, trio.move_on_after(self._grace):
                        await lifespan.wait_for_shutdown()
                nursery.cancel_scope.cancel()

    def _handler(self, nursery: trio.Nursery) -> Callable[[Any], Awaitable[None]]:
        return self._shared.handle

    def _close_listeners(self) -> None:
        self._listeners.close()

    async def _begin_to_stop(self) -> None:
        await self._shared.context.terminated.set()
        self._connections.close_idle()


class _Listeners:
    """The sockets that the configuration names, or those given, listening."""

    def __init__(self, config: Config, given: Sequence[socket.socket] | None) -> None:
        context = config.create_ssl_context()
        if given is None:
            sockets = _bind(config)
            self._sockets = [*sockets.secure_sockets, *sockets.insecure_sockets]
            secure = sockets.secure_sockets
        else:
            self._sockets = secure = list(given)
        self.listeners: list[trio.abc.Listener[Any]] = []
        self.addresses: list[str] = []
        try:
            for sock in self._sockets:
                sock.listen(config.backlog)
                notice_absence(sock)
                plain = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
                name, scheme = repr_socket_addr(sock.family, sock.getsockname()), "http"
                if context is not None and sock in secure:
                    scheme = "https"
                    self.listeners.append(trio.SSLListener(plain, context, https_compatible=True))
                else:
                    self.listeners.append(plain)
                self.addresses.append(f"{scheme}://{name}")
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Stop listening."""
        for sock in self._sockets:
            sock.close()


def _bind(config: Config) -> Sockets:
    try:
        return config.create_sockets()
    except OSError as problem:
        # Hypercorn leaves those it has made so far to the garbage collector.
        for frame, _ in traceback.walk_tb(problem.__traceback__):
            for made in (frame.f_locals.get("sock"), *frame.f_locals.get("sockets", ())):
                if isinstance(made, socket.socket):
                    made.close()
        raise
