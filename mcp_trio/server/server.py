"""The server: what an application registers, and what a transport hands its requests to."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import trio

from mcp_trio import codec, errors, types
from mcp_trio.protocol import jsonrpc, meta, methods
from mcp_trio.protocol.versions import SUPPORTED_VERSIONS
from mcp_trio.server import failures
from mcp_trio.server.access import Access, Guard
from mcp_trio.server.announcer import Announcer
from mcp_trio.server.caching import CachedMethod, CacheHints, CacheScope, Caching
from mcp_trio.server.capabilities import capabilities, emitted_kinds
from mcp_trio.server.core import Call, Core, encoded_reply
from mcp_trio.server.entries import check_entry
from mcp_trio.server.handlers import Threads
from mcp_trio.server.lifespan import Lifespan
from mcp_trio.server.limits import Limits
from mcp_trio.server.listen import Subscriptions
from mcp_trio.server.middleware import Incoming, Middleware, chain
from mcp_trio.server.observer import Observer
from mcp_trio.server.offers import Offers
from mcp_trio.server.registry import Registry
from mcp_trio.server.state import StateSeal
from mcp_trio.server.statistics import RequestCounts, ServerStatistics
from mcp_trio.server.watchers import Watchers
from mcp_trio.subscriptions.authorize import Authorizer
from mcp_trio.subscriptions.events import Event, ResourceUpdated
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.source import SubscriptionSource
from mcp_trio.subscriptions.statistics import PublishReport
from mcp_trio.transports.abc import Exchange

__all__ = ["Server", "ServerStatistics"]

logger = logging.getLogger("mcp_trio.server")

_REMEMBERED: Final = 100

F = TypeVar("F", bound=Callable[..., Any])
_COMPLETE: Final = "completion/complete"


class Server(Offers):
    """An MCP server: tools, resources and prompts, and subscriptions to their changes.

    A server is an object without I/O of its own. Hand it to as many transports as you like
    (`serve_stdio`, `serve_hypercorn`, `asgi_app`, `open_memory_client`), at the same time or one
    after another, though within one thread; it holds no state of a connection.

    What is registered can change at any time, also from handlers that run in threads. If there
    is a hub, each change is announced on it; `batch` makes one announcement of many changes.

    Args:
        name: what programs call it.
        version: of the server, in whatever scheme it has.
        title: what people call it.
        description: what it is, in a sentence.
        instructions: how to use it, for a model.
        website_url: where to read more.
        icons: pictures for display.
        hub: where changes are published. Clients can subscribe if there is one.
        source: opens subscriptions instead of the hub, for one that is written by hand. With a
            hub beside it, the hub still gets what is published.
        limits: how much it takes on.
        authorizer: asked for each part of each subscription's filter whether the caller may
            have it.
        access: asked which tools, prompts and resources a caller may use; the others are not
            listed for this caller, and look unknown. Lists are then cached by nobody but the
            caller they were made for, and a URI that may not be read cannot be subscribed to.
        page_size: how many items a page of a list holds.
        ttl_ms: how long clients may cache lists and what they read, in milliseconds, where
            `cache_hints` or a resource do not say otherwise.
        cache_scope: whether what they cache may be shared between callers; likewise.
        cache_hints: the same for single methods, as ``{"tools/list": CacheHints(60_000,
            "public")}``. For ``"resources/read"`` it is where a resource says nothing.
        state_keys: the secrets that seal what a request for input hands to the client, each at
            least 32 random bytes. The first seals, all open; to replace one, put the new one in
            front. Several processes that serve the same clients need the same. None makes one
            for this process.
        state_ttl: for how many seconds a client may take to answer.
        lifespan: called with the server, gives an async context manager that is entered before
            the first request and left after the last: for a database, a pool of connections, a
            nursery for background tasks. What it gives is `Context.lifespan`.
        middleware: async functions around every request, the outermost first; see
            `server.middleware`.
        telemetry: who measures requests, subscriptions and the hub, such as
            `server.telemetry.Telemetry`. A hub tells one: that of the last server it was given.

    Raises:
        ValueError: an argument makes no sense.
        TypeError: a state key is not bytes.
        codec.EncodeError: a text cannot be sent as JSON.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Sequence[types.Icon] = (),
        hub: Hub | None = None,
        source: SubscriptionSource | None = None,
        limits: Limits | None = None,
        authorizer: Authorizer | None = None,
        access: Access | None = None,
        page_size: int = 250,
        ttl_ms: int = 0,
        cache_scope: CacheScope = "private",
        cache_hints: Mapping[CachedMethod, CacheHints] | None = None,
        state_keys: Sequence[bytes] | None = None,
        state_ttl: float = 3600.0,
        lifespan: Callable[["Server"], AbstractAsyncContextManager[Any]] | None = None,
        middleware: Sequence[Middleware] = (),
        telemetry: Observer | None = None,
    ) -> None:
        if type(page_size) is not int or page_size < 1:
            raise ValueError(f"page_size must be a positive integer, got {page_size!r}")
        if not isinstance(instructions, str | None):
            raise TypeError(f"instructions are text, not {instructions!r}")
        caching = Caching(ttl_ms, cache_scope, cache_hints or {})
        if access is not None and caching.is_public():
            raise ValueError("what not everybody may use cannot be public to caches")
        guard = self._guard = None if access is None else Guard(access)
        self.info = types.Implementation(
            name,
            version,
            title=title,
            description=description,
            website_url=website_url,
            icons=tuple(icons) or None,
        )
        """Who this server says it is. Results other than of discovery leave out the pictures."""
        self.hub = hub
        """Where changes are published, if anywhere."""
        self.limits = Limits() if limits is None else limits
        """How much it takes on."""
        check_entry(types.Implementation, codec.unstructure(self.info))
        codec.encode_json(instructions)
        server_info = {"name": name, "version": version}
        if title is not None:
            server_info["title"] = title
        self._instructions = instructions
        self._lifespan = Lifespan(None if lifespan is None else lambda: lifespan(self))
        self._announcer = Announcer(self._publish_change)
        self._watchers = Watchers(self._watch_begun, self.limits.watched_uris)
        self._watching = Lifespan(self._watchers.running)
        core = self._core = Core(
            result_meta={meta.META_SERVER_INFO: server_info},
            page_size=page_size,
            caching=caching,
            threads=Threads(self.limits.threads),
            changed=self._announcer.announce,
            seal=StateSeal(state_keys, ttl=state_ttl, max_size=self.limits.request_state),
            input_rounds=self.limits.input_rounds,
            guard=guard,
        )
        super().__init__(core)
        source = hub if source is None else source
        self._kinds = emitted_kinds(source)
        self._subscriptions = None
        if source is not None:
            self._subscriptions = Subscriptions(
                source,
                self._kinds,
                self.limits,
                authorizer,
                server_info,
                SUPPORTED_VERSIONS,
                own_source=source is not hub,
                guard=guard,
                watchers=self._watchers,
                observer=telemetry,
            )
        self._methods: dict[str, Callable[[Call], Awaitable[jsonrpc.Reply]]] = {
            "server/discover": self._discover,
            "tools/list": self._tools.listing.reply,
            "tools/call": self._tools.call,
            "prompts/list": self._prompts.listing.reply,
            "prompts/get": self._prompts.get,
            "resources/list": self._resources.listing.reply,
            "resources/templates/list": self._resources.templates.reply,
            "resources/read": self._resources.read,
            _COMPLETE: self._completions.reply,
        }
        self._registries: tuple[Registry[Any], ...] = (
            self._tools.registry,
            self._prompts.registry,
            self._resources.listing.registry,
            self._resources.templates.registry,
        )
        self._features: dict[str, tuple[Registry[Any], ...]] = {
            "tools": self._registries[:1],
            "prompts": self._registries[1:2],
            "resources": self._registries[2:],
        }
        self._discovery: tuple[tuple[int, ...], bytes] | None = None
        listening = () if self._subscriptions is None else (methods.LISTEN,)
        self._counts = RequestCounts((*self._methods, *listening))
        self._ignored: set[str] = set()
        if telemetry is not None:
            middleware = (telemetry.around(self._target), *middleware)
            if hub is not None:
                hub.observe(telemetry.hub)
        self._chain = chain(middleware, self._enter) if middleware else None

    # Changes

    def batch(self) -> AbstractContextManager[None]:
        """Announce what is registered and removed in the block once, at its end.

        Blocks may be nested; the outermost announces, even if it is left by an exception, for
        what changed has changed. Do not wait for anything in the block: changes that other
        tasks make meanwhile are held back with yours.
        """
        return self._announcer.batch()

    def publish(self, event: Event) -> PublishReport:
        """Publish an event on the hub, from a task or from a thread that runs a handler.

        Returns:
            What became of it.

        Raises:
            RuntimeError: the server has no hub.
        """
        if self.hub is None:
            raise RuntimeError("the server has no hub to publish on")
        if trio.lowlevel.in_trio_run():
            return self.hub.publish(event)
        return self.hub.publish_from_thread(event)

    def _publish_change(self, event: Event) -> None:
        if self.hub is not None:
            self.publish(event)

    def _watch_begun(self, uri: str) -> None:
        # What changed before it watched, it has not seen.
        self._publish_change(ResourceUpdated(uri))

    def watcher(self, uri: str) -> Callable[[F], F]:
        """Register a function that runs while somebody is subscribed: ``@server.watcher(uri)``.

        The function stays what it is. `add_watcher` has the arguments and the rules.
        """

        def register(function: F) -> F:
            self.add_watcher(uri, function)
            return function

        return register

    def add_watcher(self, uri: str, function: Callable[..., Any]) -> None:
        """Register a function that runs while there is a subscription to a URI.

        It is called with the first subscriber of each URI, and what it started is cancelled,
        and awaited, with the last; never is it running twice for one URI. It is either an async
        function, which polls or listens and publishes what it sees, or gives an async context
        manager, which is entered with the first and left with the last. Each time it has been
        entered, an update of the URI is published, for nobody watched before.

        If it fails, that is logged, and it is started again after 0.1 s, then twice as long, up
        to 30 s. An async function that returns is not started again for these subscribers.

        Watchers run in a nursery of `running`, inside of the lifespan; register the first one
        before that. Their own children are theirs: open a nursery in the function.

        Example:
            ::

                @server.watcher("db://{table}")
                async def poll(table: str, uri: str) -> None:
                    last = None
                    while True:
                        if (now := await version_of(table)) != last:
                            hub.publish(ResourceUpdated(uri))
                        last = now
                        await trio.sleep(1)

        Args:
            uri: an absolute URI, or a template, as for `add_resource_template`. An exact URI
                takes precedence; among templates the one registered first does.
            function: it gets the variables of the template by name, and the URI if it has a
                parameter ``uri``.

        Raises:
            ValueError: it has a watcher already, or is no absolute URI, or is not understood.
            TypeError: the parameters of the function do not fit the variables.
        """
        self._watchers.add(uri, function)

    # Subscriptions

    @property
    def open_subscriptions(self) -> int:
        """How many subscriptions are open, or about to be."""
        return 0 if self._subscriptions is None else self._subscriptions.count

    def end_subscriptions(
        self, reason: str = "complete", *, retry_after: float | None = None
    ) -> int:
        """End every open subscription gracefully: what waits for it is sent, then its result.

        Returns at once. New ones may be opened.

        Args:
            reason: what the clients are told.
            retry_after: after how many seconds they may try again, if that is known.

        Returns:
            How many there were.

        Raises:
            ValueError: the reason is no text, or the seconds are no number.
        """
        if self._subscriptions is None:
            return 0
        return self._subscriptions.end_all(reason, retry_after)

    async def recheck(self, principal: str | None = None) -> int:
        """Ask again about every open subscription whether its caller may have it.

        Call it when what somebody may use has changed. From the call on no event is written to
        these subscriptions until `authorizer` and `access` have answered; then they go on. One
        that has lost something ends, without what waited for it: with the reason ``"revoked"``
        if nothing is left, else with ``"complete"``, and its client gets the rest when it
        subscribes again. If the asking fails, or is cancelled, it ends in that way, too.

        This is about the subscriptions of this process, and not about calls in progress. To let
        clients see their lists anew, publish that these have changed.

        Args:
            principal: the name of the principal whose subscriptions are meant; None for all.

        Returns:
            How many have been ended.
        """
        if self._subscriptions is None:
            await trio.lowlevel.checkpoint()
            return 0
        return await self._subscriptions.recheck(principal)

    async def drain(self, deadline: float, *, stagger: float = 0.0) -> None:
        """End every open subscription with its result and refuse new ones.

        This is about the whole server, on whatever hosts it is served; everything else goes on.
        Refusing lasts as long as this `trio.run`, for who drains is about to stop. To stop one
        host needs no drain: each ends its own streams. To end all of them once and go on, use
        `end_subscriptions`.

        Args:
            deadline: a moment of `trio.current_time`, in seconds.
            stagger: over how many seconds the clients are spread that come back. As far as the
                deadline leaves room for it, so are the ends; for the rest each client is told
                when to come back.

        Returns when all have ended, or at the deadline. Cancelling stops the waiting.
        """
        if self._subscriptions is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._subscriptions.drain(deadline, stagger)

    def statistics(self) -> ServerStatistics:
        """Counts of this moment. It looks at every subscription; see `Hub.statistics`."""
        threads, waiting = self._core.threads.in_use()
        subscriptions = self._subscriptions
        return ServerStatistics(
            requests=self._counts.in_progress,
            handled=self._counts.handled,
            failed=self._counts.failed,
            subscriptions=self.open_subscriptions,
            ended={} if subscriptions is None else dict(subscriptions.ended),
            events_written=0 if subscriptions is None else subscriptions.written,
            threads=threads,
            threads_waiting=waiting,
            tools=len(self._tools.registry),
            prompts=len(self._prompts.registry),
            resources=len(self._resources.listing.registry),
            resource_templates=len(self._resources.templates.registry),
            hub=None if self.hub is None else self.hub.statistics(),
        )

    # What a transport calls

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Hold the server's lifespan open for a block.

        Whatever serves the server does this by itself (`serve_stdio`, `serve_http`,
        `serve_hypercorn`, `asgi_app`, `open_memory_client`), and all of them share one: the
        first opens it, in its own task, and stays until the others have left before it closes
        it. Enter it yourself around several of them to decide who that is, or to be ready before
        they begin.

        If the first is cancelled while others are inside, they get 30 s to leave.

        Example:
            ::

                async with server.running() as state, trio.open_nursery() as nursery:
                    nursery.start_soon(serve_http, server)
                    nursery.start_soon(serve_stdio, server)

        Returns:
            The context manager; it gives what the lifespan gives, or None without one.

        Raises:
            Exception: whatever opening or closing the lifespan does.
        """
        return self._running() if self._watchers else self._lifespan.running()

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[Any]:
        async with self._lifespan.running() as state, self._watching.running():
            yield state

    @property
    def lifespan(self) -> Any:
        """What the lifespan gave; None for a server without one.

        Raises:
            RuntimeError: it is not open; nobody serves the server.
        """
        return self._lifespan.state

    @property
    def supported_versions(self) -> tuple[str, ...]:
        """The revisions this server speaks, newest first."""
        return SUPPORTED_VERSIONS

    def mirrored(self, request: jsonrpc.Request) -> Mapping[str, object]:
        """What the `Mcp-Param-*` headers of a request have to say; see `Header`."""
        return self._tools.mirrored(request.params) if request.method == methods.TOOLS_CALL else {}

    def _target(self, request: jsonrpc.Request) -> str | None:
        """The registered tool or prompt that a request is about."""
        if request.method == methods.TOOLS_CALL:
            known: Registry[Any] = self._tools.registry
        elif request.method == "prompts/get":
            known = self._prompts.registry
        else:
            return None
        name = request.params.get("name")
        return name if isinstance(name, str) and known.get(name) is not None else None

    def knows(self, method: str) -> bool:
        """Whether there is a handler for the method: not if it is of a feature not declared."""
        if method == methods.LISTEN:
            return self._subscriptions is not None
        if method == _COMPLETE:
            return self._completions.available
        feature = method.partition("/")[0]
        registries = self._features.get(feature)
        if registries and not _used(registries) and feature not in self.capabilities():
            return False
        return method in self._methods

    def notify(self, notification: jsonrpc.Notification) -> None:
        """Take note of a notification: no method of this revision means anything here.

        It is named in the log once, and never answered.
        """
        method = notification.method
        if method not in self._ignored and len(self._ignored) < _REMEMBERED:
            self._ignored.add(method)
            logger.info("ignoring notifications of the method %.200r", method)

    async def handle(self, request: jsonrpc.Request, exchange: Exchange) -> jsonrpc.Reply:
        """Serve one request and return its response.

        Raises nothing but `trio.Cancelled`, `KeyboardInterrupt` and `SystemExit`: what goes
        wrong becomes an error response. Cancelling cancels the handler and ends the request
        without a response. It need not be a checkpoint: the transport's write of the response,
        which follows, is one.
        """
        self._counts.begin(request.method)
        try:
            if self._chain is not None:
                return await self._chain(Incoming(request, exchange))
            if request.method == methods.LISTEN and self._subscriptions is not None:
                return await self._subscriptions.listen(request, exchange)
            return await self._serve(request, exchange)
        except errors.ErrorResponse as error:
            return self._error(request.id, error)  # noqa: ASYNC910
        except trio.Cancelled:
            raise
        except failures.PASSING:
            raise
        except BaseException as problem:
            cause = failures.take_apart(problem)
            if isinstance(cause, errors.ErrorResponse):
                return self._error(request.id, cause)  # noqa: ASYNC910
            logger.error("%s failed", request.method, exc_info=problem)
            return self._error(request.id, errors.InternalError("Internal error"))  # noqa: ASYNC910
        finally:
            self._counts.in_progress -= 1

    def _error(self, request_id: jsonrpc.RequestId, error: errors.ErrorResponse) -> jsonrpc.Reply:
        self._counts.fail(error.code)
        return jsonrpc.error_reply(request_id, error)

    async def _enter(self, call: Incoming) -> jsonrpc.Reply:
        """What `handle` does where there is no middleware."""
        if call.method == methods.LISTEN and self._subscriptions is not None:
            return await self._subscriptions.listen(call.request, call.exchange)
        return await self._serve(call.request, call.exchange)

    async def _serve(self, request: jsonrpc.Request, exchange: Exchange) -> jsonrpc.Reply:
        if request.method == methods.INITIALIZE:
            raise _no_handshake(request.params)
        params = request.params
        about = meta.meta_of(request, SUPPORTED_VERSIONS)
        if not self.knows(request.method):
            raise errors.MethodNotFound(f"Method not found: {request.method[:200]}")
        method = self._methods[request.method]
        call = Call(self, request.id, request.method, params, about, exchange)
        if self._guard is not None:
            await self._guard.check(call)
        return await method(call)

    async def _discover(self, call: Call) -> jsonrpc.Reply:
        generations = tuple(registry.generation for registry in self._registries)
        if self._discovery is None or self._discovery[0] != generations:
            result: dict[str, Any] = {
                "supportedVersions": list(SUPPORTED_VERSIONS),
                "capabilities": self.capabilities(),
                "_meta": {meta.META_SERVER_INFO: codec.unstructure(self.info)},
            }
            if self._instructions is not None:
                result["instructions"] = self._instructions
            core = self._core
            core.complete(core.caching.mark(result, call.method))
            self._discovery = generations, codec.encode_json(result)
        return encoded_reply(call.request_id, self._discovery[1])  # noqa: ASYNC910

    def capabilities(self) -> dict[str, Any]:
        """What the server says it can do, as the wire has it."""
        return capabilities(
            self._kinds,
            **{feature: _used(registries) for feature, registries in self._features.items()},
            completions=self._completions.available,
        )


def _used(registries: Iterable[Registry[Any]]) -> bool:
    """Whether anything was ever registered: who supports a feature may have nothing just now."""
    return any(registry.generation for registry in registries)


def _no_handshake(params: Mapping[str, Any]) -> errors.ErrorResponse:
    """What a client of an earlier era gets to see; its user may read nothing but the message."""
    requested = params.get("protocolVersion")
    speaks = f"this server speaks {', '.join(SUPPORTED_VERSIONS)}, without an initialize handshake"
    if not isinstance(requested, str) or requested in SUPPORTED_VERSIONS:
        return errors.MethodNotFound(
            f"Method not found: {speaks}", data={"supported": list(SUPPORTED_VERSIONS)}
        )
    error = errors.UnsupportedProtocolVersion(
        requested=requested[:64], supported=SUPPORTED_VERSIONS
    )
    error.message = f"{error.message}: {speaks}"
    return error
