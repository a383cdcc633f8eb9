"""What of one client's requests a cache may answer, and which changes make its answers untrue.

Source: specification, server/utilities/caching.
"""

import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs

from mcp_trio import codec, errors, types
from mcp_trio.client.cache import Flight, Key, ResponseCache
from mcp_trio.client.observers import ServerMessage
from mcp_trio.protocol import meta, methods
from mcp_trio.subscriptions import uris
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.transports import abc

__all__ = ["Asking", "ClientCache", "use_cache"]

_READ: Final = "resources/read"
_ARGUMENTS: Final = {
    "server/discover": None,
    "tools/list": "cursor",
    "prompts/list": "cursor",
    "resources/list": "cursor",
    "resources/templates/list": "cursor",
    _READ: "uri",
}
"""The requests whose answers can be kept, and the one member of their params that counts."""

_LISTS: Final = {
    methods.TOOLS_LIST_CHANGED: ("tools/list",),
    methods.PROMPTS_LIST_CHANGED: ("prompts/list",),
    methods.RESOURCES_LIST_CHANGED: ("resources/list", "resources/templates/list"),
}
"""Which lists have changed when a notification says so."""

_INDIFFERENT: Final = frozenset(
    {
        "baggage",
        "traceparent",
        "tracestate",
        meta.META_CLIENT_CAPABILITIES,
        meta.META_CLIENT_INFO,
        meta.META_LOG_LEVEL,
        meta.META_VERSION,
        meta.PROGRESS_TOKEN,
    }
)
"""What a caller may put into `_meta` without changing the answer: it is about the messages, or
the client puts its own there."""


class Asking:
    """One request that a cache may answer, and to which it may keep the answer.

    Attributes:
        found: the answer, if it is known.
    """

    def __init__(
        self, cache: ResponseCache, flight: Flight, public: Key, private: Key | None
    ) -> None:
        self.found: dict[str, Any] | None = None
        self._cache = cache
        self._flight = flight
        self._public = public
        self._private = private
        self._keys = (public,) if private is None else (private, public)

    def look(self) -> None:
        """See whether the answer is known."""
        found = self._cache.find(*self._keys)
        self.found = None if found is None else codec.decode_json(found)

    def answered(self, result: dict[str, Any]) -> None:
        """The server has answered; the answer is kept if it may be, and is one."""
        method = self._public.method
        if not self._flight.overtaken:
            # What comes now is newer, even if it is not to be kept.
            self._cache.forget(*self._keys)
        try:
            codec.structure(types.METHODS[method].result, result)
        except codec.DecodeError:
            return  # kept, it would fail the next requests without a word to the server
        key = self._public if result.get("cacheScope") == "public" else self._private
        if key is None:
            return
        self._cache.land(
            self._flight,
            key,
            codec.encode_json(result),
            ttl=_seconds(result.get("ttlMs")),
            contents=_contents(key.argument, result) if method == _READ else (),
        )


class ClientCache:
    """One client's use of a cache.

    Args:
        cache: which may serve other clients as well.
        server: which server the client talks to: equal values, same server. None: one of its own.
        owner: for whom it asks: equal values, same person. None: that can change from request to
            request, so that private answers are not kept.
        variant: what the client says of itself that can make a difference to the answers.
    """

    def __init__(
        self, cache: ResponseCache, *, server: Hashable, owner: Hashable, variant: bytes
    ) -> None:
        self._cache = cache
        self._server = object() if server is None else server
        self._owner = owner
        self._variant = variant

    @contextmanager
    def asking(
        self, method: str, params: Mapping[str, Any], version: str, *, fresh: bool
    ) -> Iterator[Asking | None]:
        """Ask for something; None if it is not for the cache.

        Args:
            method: the request's method.
            params: its params, as the caller gave them.
            version: the revision in which it is asked.
            fresh: whether to ask the server even if the answer is known.
        """
        if not _can_be_kept(method, params):
            yield None
            return
        argument = params.get(_ARGUMENTS[method] or "")
        variant = version.encode() + b" " + self._variant
        public = Key(self._server, None, variant, method, argument)
        private = None if self._owner is None else attrs.evolve(public, owner=self._owner)
        uri = argument if method == _READ else None
        with self._cache.flight(self._server, method, uri) as flight:
            asking = Asking(self._cache, flight, public, private)
            if not fresh:
                asking.look()
            try:
                yield asking
            except errors.ErrorResponse:
                # A page that is refused may belong to a list that has been made anew.
                if argument is not None and method != _READ:
                    self._cache.forget_list(self._server, method)
                raise

    def forget(self, message: ServerMessage, granted: SubscriptionFilter | None) -> None:
        """Something may have changed; see `observers.Memory`.

        An update about none of the resources that the subscription covers is about a part of
        one of them, and only the server knows of which.
        """
        for method in _LISTS.get(message.method, ()):
            self._cache.forget_list(self._server, method)
        uri = message.params.get("uri")
        if message.method != methods.RESOURCE_UPDATED or not isinstance(uri, str):
            return
        self._cache.forget_resource(self._server, uri)
        if granted is not None and not _is_covered(uri, granted):
            self._forget_resources(granted)

    def forget_covered(self, covered: SubscriptionFilter) -> None:
        """Anything of this may have changed without a word; see `observers.Memory`."""
        for event in covered.cues():
            for method in _LISTS.get(event.method, ()):
                self._cache.forget_list(self._server, method)
        self._forget_resources(covered)

    def _forget_resources(self, covered: SubscriptionFilter) -> None:
        for uri in covered.resource_subscriptions:
            self._cache.forget_resource(self._server, uri)


def use_cache(
    cache: ResponseCache, transport: abc.Transport, context: Hashable, capabilities: Any
) -> ClientCache:
    """A client's use of a cache, as its options want it.

    Args:
        cache: the cache.
        transport: how the client reaches the server.
        context: for whom it asks, if it was told.
        capabilities: what it declares, plain JSON.
    """
    if context is None and transport.one_principal:
        context = object()
    return ClientCache(
        cache, server=transport.server, owner=context, variant=codec.encode_json(capabilities)
    )


def _can_be_kept(method: str, params: Mapping[str, Any]) -> bool:
    """Whether all that the answer depends on is known to be in the key.

    What carries the input that the server has asked for is a member like any other here.
    """
    if method not in _ARGUMENTS:
        return False
    argument = _ARGUMENTS[method]
    for name, value in params.items():
        if name != "_meta" and (name != argument or not isinstance(value, str)):
            return False
    given = params.get("_meta")
    return not isinstance(given, Mapping) or given.keys() <= _INDIFFERENT


def _contents(uri: str | None, result: Mapping[str, Any]) -> set[str]:
    """The resources that the answer to a reading is about: it may hold parts of the one asked."""
    found = {content["uri"] for content in result["contents"]}
    if uri is not None:
        found.add(uri)
    return found


def _is_covered(uri: str, granted: SubscriptionFilter) -> bool:
    return granted.covers(uri) or any(granted.covers(above) for above in uris.ancestors(uri))


def _seconds(ttl_ms: object) -> float:
    """The time that a server allows, or 0 if it allows none, or names none."""
    if type(ttl_ms) is not int or ttl_ms <= 0:
        return 0.0
    return math.inf if ttl_ms > 2**53 else ttl_ms / 1000
