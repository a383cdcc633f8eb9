"""Answers that are kept for as long as the server allows, and no longer than they are true.

`ResponseCache` stores; what may be stored, for whom, and which change makes it untrue is known
to `client.caching`, which stands between it and one client.

Source: specification, server/utilities/caching.
"""

import bisect
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import trio

from mcp_trio.subscriptions import uris

__all__ = ["CacheStatistics", "Flight", "Key", "ResponseCache", "related"]

_OVERHEAD: Final = 1_000
"""Bytes that an entry is taken to need beside its text: keys, index, clock."""
_MAX_URIS: Final = 64
"""A reading of more resources than that is not kept, and an answer that more of them overtook."""


@attrs.frozen(cache_hash=True)
class Key:
    """What an answer was an answer to.

    Attributes:
        server: which server.
        owner: whose it is; None for an answer that anybody may have.
        variant: what the client said of itself that can make a difference.
        method: the request's method.
        argument: the cursor or the URI it gave, if it gave one.
    """

    server: Hashable
    owner: Hashable
    variant: bytes
    method: str
    argument: str | None


@attrs.define(eq=False)
class Flight:
    """A request that is under way.

    Attributes:
        method: its method.
        uri: the resource that it reads, if it reads one.
        overtaken: whether what it asks for has changed meanwhile: its answer is not to be kept.
    """

    method: str
    uri: str | None
    overtaken: bool = False
    _updated: set[str] = attrs.field(factory=set, init=False)

    def update(self, uri: str) -> None:
        """A resource has changed; that the answer is about it may turn out only at the end."""
        if self.uri is None or self.overtaken:
            return
        if related(self.uri, uri) or len(self._updated) >= _MAX_URIS:
            self.overtaken = True
        else:
            self._updated.add(uri)

    def land(self, contents: Iterable[str]) -> None:
        """The answer has come, and these resources are in it."""
        if self._updated:
            self.overtaken |= any(related(a, b) for a in contents for b in self._updated)


def related(one: str, other: str) -> bool:
    """Whether a change of one resource can be a change of the other.

    A server that says of a folder that it has changed may mean a file in it, and one that says
    it of the file may mean that the folder reads differently now.
    """
    return one == other or one in uris.ancestors(other) or other in uris.ancestors(one)


@attrs.frozen
class CacheStatistics:
    """A snapshot of a cache, and what it has done so far.

    Attributes:
        entries: answers that are kept, those included that are too old by now.
        bytes: what they take, roughly.
        hits: how many requests were answered from it.
        misses: how many were not.
        stored: how many answers were taken in.
        forgotten: how many were given up since what they say may have changed.
        displaced: how many were given up to stay within the bounds.
        overtaken: how many were not taken in since what they say changed on their way.
    """

    entries: int
    bytes: int
    hits: int
    misses: int
    stored: int
    forgotten: int
    displaced: int
    overtaken: int


@attrs.frozen
class _Entry:
    body: bytes
    expires: float
    uris: frozenset[str]
    size: int


@attrs.define(eq=False)
class _Shelf:
    """What is kept of one server, and what is asked of it."""

    by_method: dict[str, set[Key]] = attrs.field(factory=dict)
    by_uri: dict[str, set[Key]] = attrs.field(factory=dict)
    uris: list[str] = attrs.field(factory=list)
    """The keys of `by_uri`, sorted: what lies below a URI stands together, right behind it."""
    flights: set[Flight] = attrs.field(factory=set)

    def add(self, key: Key, entry: _Entry) -> None:
        self.by_method.setdefault(key.method, set()).add(key)
        for uri in entry.uris:
            if uri not in self.by_uri:
                self.by_uri[uri] = set()
                bisect.insort(self.uris, uri)
            self.by_uri[uri].add(key)

    def discard(self, key: Key, entry: _Entry) -> None:
        self.by_method[key.method].discard(key)
        if not self.by_method[key.method]:
            del self.by_method[key.method]
        for uri in entry.uris:
            self.by_uri[uri].discard(key)
            if not self.by_uri[uri]:
                del self.by_uri[uri]
                del self.uris[bisect.bisect_left(self.uris, uri)]

    def about(self, uri: str) -> Iterator[Key]:
        """The answers that a change of this resource can have changed."""
        for name in (uri, *uris.ancestors(uri)):
            yield from self.by_uri.get(name, ())
        for at in range(bisect.bisect_right(self.uris, uri), len(self.uris)):
            name = self.uris[at]
            if not name.startswith(uri):
                return
            if uri in uris.ancestors(name):
                yield from self.by_uri[name]


class ResponseCache:
    """Keeps answers of servers for the clients it is given to.

    Give it to ``open_http_client(..., cache=ResponseCache())`` and the others. `server/discover`,
    the lists and `resources/read` are then answered from it, for as long as the server's `ttlMs`
    allows; without `ttlMs` nothing is kept. What the server reports to have changed is forgotten
    before anybody else hears of the change, and an answer that was on its way at that moment is
    not kept. Errors are not kept, nor results that took rounds of input to get.

    Several clients may share one cache. They share the answers that the server marks as public
    if they have the same URL (or the same server in memory, for a child process is a server of
    its own), and those it marks as private only if they were also opened with the same
    `cache_context`.

    It belongs to one call of `trio.run`, whose clock it goes by: in another it is empty.

    Args:
        max_entries: how many answers to keep; the least recently used one goes first.
        max_bytes: how many bytes they may take, roughly. A larger answer is not kept.

    Raises:
        ValueError: a bound is not positive.
    """

    def __init__(self, *, max_entries: int = 1_000, max_bytes: int = 16 * 2**20) -> None:
        if max_entries < 1 or max_bytes < 1:
            raise ValueError("max_entries and max_bytes must be positive")
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._shelves: dict[Hashable, _Shelf] = {}
        self._run: trio.lowlevel.TrioToken | None = None
        self._bytes = 0
        self._hits = 0
        self._misses = 0
        self._stored = 0
        self._forgotten = 0
        self._displaced = 0
        self._overtaken = 0

    def __repr__(self) -> str:
        return f"<ResponseCache of {len(self._entries)} entries, {self._bytes} bytes>"

    def statistics(self) -> CacheStatistics:
        """What it holds and has done."""
        return CacheStatistics(
            entries=len(self._entries),
            bytes=self._bytes,
            hits=self._hits,
            misses=self._misses,
            stored=self._stored,
            forgotten=self._forgotten,
            displaced=self._displaced,
            overtaken=self._overtaken,
        )

    def clear(self) -> None:
        """Forget everything; answers that are on their way are not kept either."""
        for shelf in self._shelves.values():
            for flight in shelf.flights:
                flight.overtaken = True
        self._forget(self._entries)

    # What follows is for `client.caching`.

    def find(self, *keys: Key) -> bytes | None:
        """The answer to a request, if it is known under one of these keys."""
        self._check_run()
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                continue
            if trio.current_time() < entry.expires:
                self._entries.move_to_end(key)
                self._hits += 1
                return entry.body
            self._discard(key)
        self._misses += 1
        return None

    @contextmanager
    def flight(self, server: Hashable, method: str, uri: str | None) -> Iterator[Flight]:
        """A request is under way as long as the block lasts."""
        self._check_run()
        flight = Flight(method, uri)
        shelf = self._shelves.setdefault(server, _Shelf())
        shelf.flights.add(flight)
        try:
            yield flight
        finally:
            shelf.flights.discard(flight)
            self._tidy(server, shelf)

    def land(
        self, flight: Flight, key: Key, body: bytes, *, ttl: float, contents: Iterable[str] = ()
    ) -> None:
        """Keep the answer to a request that is under way, unless it has been overtaken.

        Args:
            flight: the request.
            key: whose answer it is, and to what.
            body: the answer as JSON.
            ttl: for how many seconds it may be used.
            contents: the URIs of the resources in it.
        """
        names = frozenset(contents)
        flight.land(names)
        if flight.overtaken:
            self._overtaken += 1
            return
        size = _OVERHEAD + len(body) + sum(map(len, names)) + len(key.argument or "")
        if not ttl > 0 or size > self._max_bytes or len(names) > _MAX_URIS:
            return
        self._discard(key)
        entry = _Entry(body, trio.current_time() + ttl, names, size)
        self._entries[key] = entry
        self._shelves[key.server].add(key, entry)
        self._bytes += size
        self._stored += 1
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._discard(next(iter(self._entries)))
            self._displaced += 1

    def forget(self, *keys: Key) -> None:
        """Forget these."""
        self._forget(keys)

    def forget_list(self, server: Hashable, method: str) -> None:
        """Forget all pages of a list."""
        shelf = self._shelves.get(server)
        if shelf is None:
            return
        for flight in shelf.flights:
            flight.overtaken |= flight.method == method
        self._forget(shelf.by_method.get(method, ()))

    def forget_resource(self, server: Hashable, uri: str) -> None:
        """Forget what has been read of a resource, or of one above or below it."""
        shelf = self._shelves.get(server)
        if shelf is None:
            return
        for flight in shelf.flights:
            flight.update(uri)
        self._forget(shelf.about(uri))

    def _forget(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self._forgotten += self._discard(key)

    def _discard(self, key: Key) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._bytes -= entry.size
        shelf = self._shelves[key.server]
        shelf.discard(key, entry)
        self._tidy(key.server, shelf)
        return True

    def _tidy(self, server: Hashable, shelf: _Shelf) -> None:
        if not shelf.flights and not shelf.by_method and self._shelves.get(server) is shelf:
            del self._shelves[server]

    def _check_run(self) -> None:
        token = trio.lowlevel.current_trio_token()
        if self._run is not token:
            self._run = token
            self.clear()
