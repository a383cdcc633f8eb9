"""Handlers that follow all that a server says, beside those it is said to.

A handler has a state: it is given the state with each message, and returns the next one. It
runs in a task of its own, behind a bounded queue, so that however slow it is, and whatever it
raises, it holds up nobody but itself.

Source: specification, basic/index, "Notifications"; basic/patterns/subscriptions.
"""

import logging
import math
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Hashable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, Self, TypeVar

import attrs
import trio

from mcp_trio._causes import one_cause
from mcp_trio.client.observers import Observers, ServerMessage
from mcp_trio.protocol import methods

__all__ = [
    "FanOut",
    "HandlerStatistics",
    "NotificationHandler",
    "RunningHandler",
    "log_notifications",
    "run_handler",
]

logger = logging.getLogger("mcp_trio.client")

S = TypeVar("S")

NotificationHandler = Callable[[ServerMessage, S], Awaitable[S]]
"""Awaited with a message and the state; what it returns is the state from then on."""

MAX_WAITING: Final = 1_024

_TRIGGERS: Final = {
    methods.TOOLS_LIST_CHANGED: None,
    methods.PROMPTS_LIST_CHANGED: None,
    methods.RESOURCES_LIST_CHANGED: None,
    methods.RESOURCE_UPDATED: "uri",
}
"""What says no more than that something has changed, and the param that says what."""


@attrs.frozen
class HandlerStatistics:
    """A snapshot of a running handler.

    Attributes:
        waiting: messages that it has not been given yet.
        handled: messages that it has dealt with, those included with which it failed.
        failed: messages with which it has raised an exception.
        coalesced: changes that were already waiting when they were reported again.
        dropped: messages that were given up since too many were waiting.
    """

    waiting: int
    handled: int
    failed: int
    coalesced: int
    dropped: int


class RunningHandler(Generic[S]):
    """A handler at work; `Client.notifications` starts it.

    Attributes:
        state: what the handler has returned last, or what it was started with.
    """

    def __init__(
        self,
        handler: NotificationHandler[S],
        state: S,
        *,
        only: Collection[str] | None = None,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        if isinstance(only, str):
            raise TypeError("expected the names of several methods, got one string")
        if max_waiting < 1:
            raise ValueError("max_waiting must be positive")
        self.state: S = state
        self._handler = handler
        self._methods = None if only is None else frozenset(only)
        self._max_waiting = max_waiting
        self._waiting: OrderedDict[Hashable, ServerMessage] = OrderedDict()
        self._arrived = trio.lowlevel.ParkingLot()
        self._settled = trio.lowlevel.ParkingLot()
        self._busy = False
        self._serial = 0
        self._missed = 0
        self._handled = 0
        self._failed = 0
        self._coalesced = 0
        self._dropped = 0

    def __repr__(self) -> str:
        return f"<RunningHandler {self._handler!r}, {len(self._waiting)} waiting>"

    def statistics(self) -> HandlerStatistics:
        """What waits for it, and what it has done so far."""
        return HandlerStatistics(
            waiting=len(self._waiting),
            handled=self._handled,
            failed=self._failed,
            coalesced=self._coalesced,
            dropped=self._dropped,
        )

    async def wait_settled(self) -> None:
        """Wait until the handler has dealt with all that has been observed so far.

        Cancelling this cancels nothing else.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if not (self._busy or self._waiting):
            await trio.lowlevel.cancel_shielded_checkpoint()
        while self._busy or self._waiting:
            await self._settled.park()

    def put(self, message: ServerMessage) -> None:
        """Have the handler deal with a message, in its turn."""
        if self._methods is not None and message.method not in self._methods:
            return
        key = self._key(message)
        if key in self._waiting:
            self._coalesced += 1
            self._waiting[key] = message
            return
        if len(self._waiting) >= self._max_waiting:
            self._waiting.popitem(last=False)
            self._dropped += 1
            self._missed += 1
        self._waiting[key] = message
        self._arrived.unpark()

    async def run(self) -> None:
        """Deal with one message after the other."""
        while True:
            while not self._waiting:
                await self._arrived.park()
            _, message = self._waiting.popitem(last=False)
            if self._missed:
                message = attrs.evolve(message, missed=self._missed)
                self._missed = 0
            self._busy = True
            try:
                self.state = await self._handler(message, self.state)
            except Exception:
                self._failed += 1
                logger.exception("the notification handler failed on %r", message.method[:100])
                await trio.lowlevel.checkpoint()  # it may fail at once each time
            finally:
                self._busy = False
            self._handled += 1
            if not self._waiting:
                self._settled.unpark_all()

    def _key(self, message: ServerMessage) -> Hashable:
        if message.method in _TRIGGERS and message.kind == "notification":
            name = _TRIGGERS[message.method]
            subject = None if name is None else message.params.get(name)
            if name is None or isinstance(subject, str):
                return (message.method, subject, message.subscription_id)
        self._serial += 1
        return self._serial


@asynccontextmanager
async def run_handler(
    observers: Observers, running: RunningHandler[S]
) -> AsyncGenerator[RunningHandler[S]]:
    """Run a handler as long as the block lasts; see `Client.notifications`."""
    with one_cause(1):
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            nursery.start_soon(running.run)
            observers.add(running)
            try:
                yield running
            finally:
                observers.remove(running)
                nursery.cancel_scope.cancel()


# Handlers that are ready for use


_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}
_MAX_TEXT: Final = 2_000


def log_notifications(
    target: logging.Logger | None = None, level: int = logging.INFO
) -> NotificationHandler[Any]:
    """A handler that writes to a log what the server says.

    The server's own log messages keep their level, of which Python has fewer; all else is
    written at the level given. Long texts are cut.

    Args:
        target: where to; by default the logger ``mcp_trio.notifications``.
        level: one of those of `logging`.
    """
    log = logging.getLogger("mcp_trio.notifications") if target is None else target

    async def handler(message: ServerMessage, state: Any) -> Any:
        if message.missed:
            log.warning("%d messages were dropped before this one", message.missed)
        log.log(_level_of(message, level), "%s", _in_words(message))
        await trio.lowlevel.checkpoint()
        return state

    return handler


def _level_of(message: ServerMessage, level: int) -> int:
    if message.method != methods.LOG_MESSAGE:
        return level
    said = message.params.get("level")
    return _LEVELS.get(said, level) if isinstance(said, str) else level


def _in_words(message: ServerMessage) -> str:
    params = message.params
    if message.kind == "request":
        text = f"the server asks for {message.method}"
    elif message.method == methods.LOG_MESSAGE:
        origin = params.get("logger")
        text = f"{origin}: {params.get('data')!r}" if origin else f"{params.get('data')!r}"
    elif message.method == methods.PROGRESS:
        total = params.get("total")
        text = f"progress {params.get('progress')!r}"
        text += "" if total is None else f" of {total!r}"
        text += f": {params['message']!r}" if "message" in params else ""
    elif message.method == methods.RESOURCE_UPDATED:
        text = f"updated: {params.get('uri')!r}"
    elif message.method in _TRIGGERS:
        text = f"changed: the list of {message.method.split('/')[1]}"
    else:
        shown = {name: value for name, value in params.items() if name != "_meta"}
        text = f"{message.method} {shown!r}"
    where = message.subscription_id if message.request_id is None else message.request_id
    text = text if where is None else f"{text} ({where})"
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…"


@attrs.define(eq=False)
class _Reader:
    channel: trio.MemorySendChannel[ServerMessage]
    missed: int = 0


class FanOut:
    """A handler that passes on what the server says to any number of readers.

    None of them holds up another: a message for which a reader has no room is dropped for that
    reader, and the next that it gets says how many were (`ServerMessage.missed`).

    Example:
        ::

            with FanOut() as fan_out:
                async with client.notifications(fan_out, None):
                    reader = fan_out.open_reader(100)
                    ...

    Leaving its block ends all readers: they still get what is in their channels.
    """

    def __init__(self) -> None:
        self._readers: dict[_Reader, None] = {}
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        for reader in self._readers:
            reader.channel.close()
        self._readers.clear()

    async def __call__(self, message: ServerMessage, state: S) -> S:
        """Pass on a message; the state is left as it is."""
        for reader in list(self._readers):
            missed = message.missed + reader.missed
            try:
                reader.channel.send_nowait(attrs.evolve(message, missed=missed))
            except trio.WouldBlock:
                reader.missed = missed + 1
            except trio.BrokenResourceError:
                del self._readers[reader]
            else:
                reader.missed = 0
        await trio.lowlevel.checkpoint()
        return state

    def open_reader(self, max_buffer_size: int) -> trio.MemoryReceiveChannel[ServerMessage]:
        """A channel of all messages from now on; close it to get no more.

        Args:
            max_buffer_size: how many messages may wait in it.

        Raises:
            ValueError: there would be no room for any.
            trio.ClosedResourceError: the fan-out's own block has been left.
        """
        if not max_buffer_size >= 1 or max_buffer_size == math.inf:
            raise ValueError("max_buffer_size must be positive and finite")
        if self._closed:
            raise trio.ClosedResourceError("the block of this fan-out has been left")
        send, receive = trio.open_memory_channel[ServerMessage](max_buffer_size)
        self._readers[_Reader(send)] = None
        return receive
