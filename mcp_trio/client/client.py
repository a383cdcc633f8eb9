"""The client: requests to one server, and subscriptions to its changes.

Source: specification, basic/index; basic/patterns/subscriptions.
"""

import functools
import itertools
from collections.abc import AsyncGenerator, Collection, Hashable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final, TypeVar, Unpack

from mcp_trio import errors, types
from mcp_trio._backoff import Backoff
from mcp_trio.client import notifications, options, views
from mcp_trio.client.cache import ResponseCache
from mcp_trio.client.calls import Calls
from mcp_trio.client.inputs import Inputs
from mcp_trio.client.subscription import EventHook, Subscription, open_subscription
from mcp_trio.client.typed import TypedRequests
from mcp_trio.client.watch.policy import Policy, WatchOptions
from mcp_trio.client.watch.sharing import SharedWatch
from mcp_trio.client.watch.supervisor import Supervisor, open_supervisor
from mcp_trio.client.watch.watcher import Watcher, check_filter
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.transports import abc

__all__ = ["Client"]

ACK_TIMEOUT: Final = 10.0

S = TypeVar("S")


class Client(TypedRequests):
    """Talks to one server, over whatever transport.

    `open_http_client`, `open_stdio_client` and `open_memory_client` make one; it lives as long
    as their block. All methods may be called from any number of tasks at once. None has a
    timeout: put a cancel scope around a call. Cancelling a call cancels the request on the wire,
    as its transport does it.

    Each call raises what has gone wrong, and nothing else: the subclass of
    `errors.ErrorResponse` that the server answered with; `errors.ConnectionLost` where there
    will be no answer; `errors.HttpStatusError` where a status says no;
    `errors.RemoteProtocolError` where the answer cannot be understood; and where the server asked
    for input, what the handler for it has raised.

    A server that does not speak the revision a request declares is asked once more, in one that
    both speak; if there is none, `errors.UnsupportedProtocolVersion` says so.

    With a cache, what only reads may be answered from it. Where a method has ``fresh``, ``True``
    asks the server in any case, and the cache keeps the new answer.

    Args:
        transport: how to reach the server.
        options: what `ClientOptions` describes; all can be left out.
    """

    def __init__(
        self,
        transport: abc.Transport,
        *,
        client_info: types.Implementation | None = None,
        capabilities: types.ClientCapabilities | None = None,
        on_elicitation: options.ElicitationHandler | None = None,
        on_elicitation_url: options.ElicitationUrlHandler | None = None,
        on_sampling: options.SamplingHandler | None = None,
        on_roots: options.RootsHandler | None = None,
        max_rounds: int = options.MAX_ROUNDS,
        cache: ResponseCache | None = None,
        cache_context: Hashable = None,
    ) -> None:
        inputs = Inputs(
            on_elicitation=on_elicitation,
            on_elicitation_url=on_elicitation_url,
            on_sampling=on_sampling,
            on_roots=on_roots,
        )
        self._calls = Calls(
            transport, client_info, capabilities, inputs, max_rounds, cache, cache_context
        )
        self._transport = transport
        self._observers = self._calls.observers
        transport.on_unrouted = self._observers.observe
        self._listen_ids = itertools.count(1)

    def __repr__(self) -> str:
        return f"<Client over {self._transport!r}>"

    @property
    def transport(self) -> abc.Transport:
        """How it reaches the server; for statistics, for instance."""
        return self._transport

    def listen(
        self,
        wanted: SubscriptionFilter,
        *,
        ack_timeout: float = ACK_TIMEOUT,
        before_event: EventHook | None = None,
    ) -> AbstractAsyncContextManager[Subscription]:
        """Follow changes: ``async with client.listen(wanted) as changes``.

        The block is entered once the server has acknowledged the subscription; what it granted
        is then in `Subscription.acknowledged`. A server may also end a subscription at once,
        granting nothing: then the block is entered all the same, and the first `receive` raises
        ``trio.EndOfChannel``. Leaving the block cancels the subscription on the wire. Any number
        may be open at once; leave their blocks in reverse order, as ``async with`` does by
        itself.

        Args:
            wanted: what to follow. It may be narrowed by the server, never widened.
            ack_timeout: seconds to wait for the acknowledgement, from when the request is out;
                `math.inf` waits for ever. An open subscription has no timeout.
            before_event: awaited with each event before it is returned by `receive`, so that,
                say, a cache forgets a resource before anybody hears that it has changed. If it
                is cancelled or raises, the event stays and is given to the next `receive`.

        Raises:
            TypeError: `wanted` is not a `SubscriptionFilter`.
            ValueError: it asks for nothing, or `ack_timeout` is not positive.
            errors.ListenNotSupported: the transport cannot carry subscriptions.
            errors.AcknowledgementTimeout: on entering; the request has been cancelled.
            errors.SubscriptionLost: on entering; the connection ended before the
                acknowledgement.
            errors.RemoteProtocolError: on entering; the acknowledgement is malformed or grants
                more than was asked for. The request has been cancelled.
            errors.McpError: on entering, what any request can raise; see the class.
        """
        if not isinstance(wanted, SubscriptionFilter):
            raise TypeError(f"expected a SubscriptionFilter, got {type(wanted).__name__}")
        if not wanted:
            raise ValueError("the filter asks for nothing")
        if not ack_timeout > 0:
            raise ValueError("ack_timeout must be positive")
        if not self._transport.can_listen:
            raise errors.ListenNotSupported("this transport cannot carry subscriptions")
        return self._listen(wanted, ack_timeout, before_event)

    @asynccontextmanager
    async def _listen(
        self, wanted: SubscriptionFilter, ack_timeout: float, before_event: EventHook | None
    ) -> AsyncGenerator[Subscription]:
        def attempt() -> AbstractAsyncContextManager[Subscription]:
            return open_subscription(
                self._transport,
                # A string, so that it is never taken for the id of a plain request or for none.
                f"listen-{next(self._listen_ids)}",
                wanted,
                self._calls.params({"notifications": wanted.to_wire()}),
                ack_timeout=ack_timeout,
                before_event=before_event,
                observers=self._observers,
            )

        async with AsyncExitStack() as stack:
            try:
                subscription = await stack.enter_async_context(attempt())
            except errors.UnsupportedProtocolVersion as refused:
                self._calls.adopt_version(refused)
                subscription = await stack.enter_async_context(attempt())
            yield subscription

    def watch(
        self,
        wanted: SubscriptionFilter,
        *,
        snapshot: bool = False,
        **options: Unpack[WatchOptions],
    ) -> AbstractAsyncContextManager[Watcher]:
        """Follow changes over any number of losses: ``async with client.watch(wanted) as changes``.

        What `listen` does, and it goes on: a stream that ends, in whatever way, is opened again,
        after a pause that grows with each failure; what the server asks for by ``Retry-After``
        is honoured, up to an hour. After each gap a `Resync` says so, and what of the filter is
        not granted any more. All that was received before a gap comes before its `Resync`, and
        all that comes after it was received from the new stream. (A consumer that has not taken
        one `Resync` when the next is due gets one for both gaps.)

        The block is entered once the server has acknowledged the first stream. What will pass is
        waited for, then as later: no connection, no acknowledgement in time, HTTP status 408,
        425, 429 or 5xx, `-32603` and codes that the protocol does not define. So put a cancel
        scope around it. What will not pass ends the watch: 401 and 403, what the protocol defines
        as the requester's fault (`-32601`, say), a subscription that was revoked or that nothing
        was granted of, and a child process that has ended and is not started again; as long as
        nothing was ever acknowledged, also any other HTTP status and any answer that is not the
        protocol's, for then the address is wrong.

        Args:
            wanted: what to follow; `Watcher.update` changes it.
            snapshot: whether to read everything that is granted once the stream is open, and
                what a gap concerns after each gap. It comes as a `Snapshot`; changes that came
                before a value was asked for are left out, and later ones follow it.
            options: what `client.watch.WatchOptions` describes.

        Raises:
            TypeError: `wanted` is not a `SubscriptionFilter`.
            ValueError: it asks for nothing, or an option is not positive.
            errors.ListenNotSupported: the transport cannot carry subscriptions.
            errors.McpError: on entering, why the server will not have it, as for `listen`.
            errors.WatchEnded: on entering, nothing was granted, or it took too long. Later on it
                is what `Watcher.receive` raises, whatever has put an end to the watch.
        """
        check_filter(wanted)
        return self._watch(wanted, snapshot, self._policy(options))

    @asynccontextmanager
    async def _watch(
        self, wanted: SubscriptionFilter, snapshot: bool, policy: Policy
    ) -> AsyncGenerator[Watcher]:
        async with (
            self._supervise(policy) as supervisor,
            supervisor.join(wanted, snapshot=snapshot) as watcher,
        ):
            yield watcher

    def open_shared_watch(
        self, **options: Unpack[WatchOptions]
    ) -> AbstractAsyncContextManager[SharedWatch]:
        """A watch for several consumers: ``async with client.open_shared_watch() as shared``.

        They share one stream, of which each receives what it has asked for: see
        `SharedWatch.watch`. Nothing is sent before the first of them comes.

        Args:
            options: what `client.watch.WatchOptions` describes.

        Raises:
            ValueError: an option is not positive.
            errors.ListenNotSupported: the transport cannot carry subscriptions.
        """
        return self._open_shared_watch(self._policy(options))

    @asynccontextmanager
    async def _open_shared_watch(self, policy: Policy) -> AsyncGenerator[SharedWatch]:
        async with self._supervise(policy) as supervisor:
            yield SharedWatch(supervisor)

    def _policy(self, options: WatchOptions) -> Policy:
        policy = Policy(**options)
        if not self._transport.can_listen:
            raise errors.ListenNotSupported("this transport cannot carry subscriptions")
        return policy

    def _supervise(self, policy: Policy) -> AbstractAsyncContextManager[Supervisor]:
        return open_supervisor(
            functools.partial(self.listen, ack_timeout=policy.ack_timeout),
            self,
            policy,
            transport_ended=lambda: self._transport.ended,
        )

    def follow_lists(
        self,
        kinds: Collection[views.ListKind] = ("tools", "prompts", "resources"),
        *,
        backoff: Backoff | None = None,
        poll: float | None = None,
    ) -> AbstractAsyncContextManager[views.FollowedLists]:
        """The server's lists, always current: ``async with client.follow_lists() as lists``.

        The block is entered once they are complete. What the server reports to have changed, and
        what it may have changed unheard, is listed again; `FollowedLists.wait_changed` waits for
        that. While it cannot be listed, the lists stay as they were, and it is tried again. Where
        a server does not report changes, they are listed once, and again when `refresh` is
        called or `poll` says so.

        Args:
            kinds: which lists; the resource templates belong to the resources.
            backoff: how long to wait before another attempt; by default `Backoff()`.
            poll: list again what the server does not report changes of, after about so many
                seconds each time; by default never.

        Raises:
            ValueError: there is no such kind, none at all, or `poll` is not positive.
            errors.McpError: on entering, the lists could not be had; see the class.
        """
        chosen = frozenset(kinds)
        if not chosen or not chosen <= views.KINDS:
            raise ValueError(f"kinds are among {', '.join(sorted(views.KINDS))}: got {kinds!r}")
        if poll is not None and not poll > 0:
            raise ValueError("poll must be positive")
        return views.follow_lists(self, chosen, backoff or Backoff(), poll)

    def notifications(
        self,
        handler: notifications.NotificationHandler[S],
        state: S,
        *,
        only: Collection[str] | None = None,
        max_waiting: int = notifications.MAX_WAITING,
    ) -> AbstractAsyncContextManager[notifications.RunningHandler[S]]:
        """Follow all that the server says: ``async with client.notifications(handler, 0)``.

        As long as the block lasts, the handler is awaited with each notification that any
        request or subscription of this client takes in, with what a server says over stdio on
        its own account, and with each question that the server asks (which is answered by the
        client's own handlers, and only observed here). It gets one at a time, in order, in a
        task of its own, and returns the state that it will be given with the next.

        It holds up nobody, however slow it is. A change that is reported again while it waits
        to be handled counts once; otherwise, when too many wait, the oldest is dropped, and the
        next message says so (`ServerMessage.missed`). An exception is logged, and the state
        stays as it was. Leaving the block cancels the handler, and forgets what waits.

        Args:
            handler: an async function of a `ServerMessage` and the state; `log_notifications`
                makes one, and a `FanOut` is one.
            state: what it is given first.
            only: the methods that it is interested in; None for all.
            max_waiting: how many messages may wait for it.

        Raises:
            TypeError: `only` is a string.
            ValueError: `max_waiting` is not positive.
        """
        running = notifications.RunningHandler(handler, state, only=only, max_waiting=max_waiting)
        return notifications.run_handler(self._observers, running)
