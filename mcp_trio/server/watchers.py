"""What runs while somebody is subscribed to a resource: from the first one to the last.

Source: specification, basic/patterns/subscriptions.
"""

import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import attrs
import trio

from mcp_trio import errors
from mcp_trio.server import failures
from mcp_trio.server.fields import MISSING
from mcp_trio.server.handlers import handler_of
from mcp_trio.server.readers import Mismatch, Reader, read_text
from mcp_trio.server.schema import Builder
from mcp_trio.server.templates import UriTemplate, is_template
from mcp_trio.subscriptions import uris

__all__ = ["Watch", "Watchers"]

logger = logging.getLogger("mcp_trio.server")

FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 30.0
SETTLED: Final = 10.0
"""Seconds after which a watcher that fails begins with the first delay again."""


@attrs.frozen
class _Watcher:
    """A registered function, and how it gets its arguments."""

    function: Callable[..., Any]
    template: UriTemplate | None
    readers: Mapping[str, Reader]
    wants_uri: bool

    def keywords(self, uri: str) -> dict[str, Any] | None:
        """Its arguments for a URI of its template; None if it is none."""
        found: dict[str, Any] = {}
        if self.template is not None:
            texts = self.template.match(uri)
            if texts is None:
                return None
            try:
                found = {n: read_text(self.readers[n], text, n) for n, text in texts.items()}
            except Mismatch:
                return None
        if self.wants_uri:
            found["uri"] = uri
        return found


@attrs.define(eq=False)
class Watch:
    """One URI that is watched.

    Attributes:
        uri: which.
        start: calls the watcher's function.
        subscribers: how many subscriptions there are to it.
        scope: in which the watcher runs.
    """

    uri: str
    start: Callable[[], Any]
    subscribers: int = 0
    scope: trio.CancelScope | None = None

    def release(self) -> None:
        """One subscription less."""
        self.subscribers -= 1
        if not self.subscribers and self.scope is not None:
            self.scope.cancel("nobody watches any more")


class Watchers:
    """The watchers of one server, and those that run.

    Args:
        begun: called with a URI each time its watching has begun.
        limit: how many URIs may be watched at the same time.
    """

    def __init__(self, begun: Callable[[str], object], limit: int) -> None:
        self._begun = begun
        self._limit = limit
        self._exact: dict[str, _Watcher] = {}
        self._templates: dict[str, _Watcher] = {}
        self._watched: dict[str, Watch] = {}
        self._nursery: trio.Nursery | None = None

    def __bool__(self) -> bool:
        return bool(self._exact or self._templates)

    def __len__(self) -> int:
        """How many URIs are watched, or about to be no more."""
        return len(self._watched)

    def add(self, uri: str, function: Callable[..., Any]) -> None:
        """Register a function; `Server.add_watcher` has the contract."""
        if not uris.has_scheme(uri):
            raise ValueError(f"not an absolute URI: {uri!r}")
        if uri in self._exact or uri in self._templates:
            raise ValueError(f"there is already a watcher of {uri!r}")
        template = UriTemplate.parse(uri) if is_template(uri) else None
        names = () if template is None else template.names
        shape = handler_of(function).shape
        if shape.context is not None or shape.dependencies:
            raise TypeError(f"{uri}: a watcher serves no request, and has no context")
        fields = {field.name: field for field in shape.fields}
        for name, field in fields.items():
            if name != "uri" and name not in names and field.default is MISSING:
                raise TypeError(f"{uri}: nothing fills the parameter {name!r}")
            if template is not None and name in template.optional and field.default is MISSING:
                raise TypeError(f"{uri}: {name!r} can be absent, so it needs a default")
        builder = Builder()
        readers: dict[str, Reader] = {}
        for name in names:
            if name not in fields:
                raise TypeError(f"{uri}: the watcher has no parameter {name!r}")
            readers[name] = builder.spec(fields[name].annotation).read
        wants_uri = "uri" in fields and "uri" not in names
        watcher = _Watcher(function, template, readers, wants_uri)
        (self._exact if template is None else self._templates)[uri] = watcher

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let watchers run during the block; in its end they are cancelled and awaited."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                yield
            finally:
                self._nursery = None
                self._watched.clear()
                nursery.cancel_scope.cancel()

    def subscribe(self, subscribed: Iterable[str]) -> list[Watch]:
        """Start to watch what has a watcher, where it is not watched yet.

        Returns:
            What to release, each once, when the subscription ends.

        Raises:
            errors.ServerBusy: too much would be watched; nothing has been started.
        """
        wanted = [watch for uri in subscribed if (watch := self._find(uri)) is not None]
        if not wanted:
            return []
        if self._nursery is None:
            logger.error("watchers do not run: nobody has entered Server.running()")
            return []
        new = [watch for watch in wanted if watch.uri not in self._watched]
        if len(self._watched) + len(new) > self._limit:
            raise errors.ServerBusy("too many resources are watched")
        for watch in new:
            self._watched[watch.uri] = watch
            self._nursery.start_soon(self._run, watch)
        for watch in wanted:
            watch.subscribers += 1
        return wanted

    def _find(self, uri: str) -> Watch | None:
        if (watch := self._watched.get(uri)) is not None:
            return watch
        if (watcher := self._exact.get(uri)) is not None:
            return _watch(uri, watcher, watcher.keywords(uri))
        for watcher in self._templates.values():
            if (keywords := watcher.keywords(uri)) is not None:
                return _watch(uri, watcher, keywords)
        return None

    async def _run(self, watch: Watch) -> None:  # noqa: ASYNC910
        """Watch one URI for as long as it has subscribers, one after the other."""
        delay = FIRST_DELAY
        try:
            while watch.subscribers:
                begun = trio.current_time()
                with trio.CancelScope() as watch.scope:
                    try:
                        await self._watch(watch)
                    except trio.Cancelled:
                        raise
                    except failures.PASSING:
                        raise
                    except BaseException as problem:  # noqa: BLE001
                        _log(watch, problem)
                        failures.take_apart(problem)  # a cancel among it goes on
                    if trio.current_time() - begun >= SETTLED:
                        delay = FIRST_DELAY
                    await trio.sleep(delay * random.uniform(0.5, 1))  # noqa: S311
                    delay = min(2 * delay, LONGEST_DELAY)
            # No checkpoint here: whoever comes now must find either a task or no watch.
        finally:
            if self._watched.get(watch.uri) is watch:
                del self._watched[watch.uri]

    async def _watch(self, watch: Watch) -> None:
        made = watch.start()
        if isinstance(made, AbstractAsyncContextManager):
            async with made:
                self._begun(watch.uri)
                await trio.sleep_forever()
        else:
            await made
        await trio.sleep_forever()  # it has nothing more to do


def _watch(uri: str, watcher: _Watcher, keywords: dict[str, Any] | None) -> Watch:
    return Watch(uri, lambda: watcher.function(**(keywords or {})))


def _log(watch: Watch, problem: BaseException) -> None:
    rest: BaseException | None = problem
    if isinstance(problem, BaseExceptionGroup):
        rest = problem.split(failures.PASSING)[1]
    if rest is not None:
        logger.error("the watcher of %r failed", watch.uri, exc_info=rest)
