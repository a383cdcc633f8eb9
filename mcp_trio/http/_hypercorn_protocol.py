"""What Hypercorn's HTTP/1.1 needs in order to be left alone with strangers.

Hypercorn 0.18 upgrades to WebSocket and HTTP/2 without being asked; it stops reading, so that it
sees no disconnect, once any byte follows a request; it takes a target in absolute form for a
path; and it waits for room in an application's inbox even where nobody will ever read from it
again. The classes here put that right. They lean
on internals, which is why the release is pinned.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import h11
import trio
from hypercorn.config import Config
from hypercorn.protocol.events import Event, Response
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup, _handle

from mcp_trio.http._absolute import in_origin_form

__all__ = ["Http1", "Inbox", "Tasks", "Wire"]


class Inbox:
    """What an application's `receive` waits on: bounded, and a disconnect always finds room."""

    __slots__ = ("_arrived", "_last", "_limit", "_messages", "_room")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: deque[Any] = deque()
        self._last: Any = None
        self._arrived: trio.Event | None = None
        self._room: trio.Event | None = None

    async def put(self, message: Any) -> None:  # noqa: ASYNC910 (waits only for room)
        """Add a message; what comes after a disconnect is dropped."""
        leaving = message["type"].endswith(".disconnect")
        while not leaving and self._last is None and len(self._messages) >= self._limit:
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()
        if self._last is not None:
            return  # noqa: ASYNC910
        self._messages.append(message)
        if leaving:
            self._last = message
            self._make_room()
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None

    async def receive(self) -> Any:
        """The next message; the disconnect again and again once it has come."""
        while not self._messages:
            if self._last is not None:
                await trio.lowlevel.checkpoint()  # for an application that asks in a loop
                return self._last
            if self._arrived is None:
                self._arrived = trio.Event()
            await self._arrived.wait()
        self._make_room()
        return self._messages.popleft()  # noqa: ASYNC910 (waits only for a message)

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None


class Tasks(TaskGroup):
    """Hypercorn's task group around a nursery that is already open."""

    _nursery: trio.Nursery

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Any) -> Any:
        """Start the application for one request; returns what puts messages into its inbox."""
        inbox = Inbox(config.max_app_queue_size)
        self._nursery.start_soon(
            _handle,
            app,
            config,
            scope,
            inbox.receive,
            send,
            trio.to_thread.run_sync,
            trio.from_thread.run,
        )
        return inbox.put  # noqa: ASYNC910 (the signature is Hypercorn's)


class Wire(h11.Connection):
    """h11 as it is, but that an upgrade is none, and that reading never pauses.

    Attributes:
        waiting: the number of bytes that have come behind the request being answered.
    """

    waiting = 0

    def receive_data(self, data: bytes) -> None:
        """Take what has been read."""
        super().receive_data(data)
        if self.their_state not in (h11.IDLE, h11.SEND_BODY):
            self.waiting += len(data)

    def next_event(self) -> Any:
        """The next event of the client."""
        event = super().next_event()
        if event is h11.PAUSED:
            # Hypercorn would wait here until the response is through, without reading.
            self.waiting = max(self.waiting, 1)
            return h11.NEED_DATA
        if type(event) is h11.Request:
            return _without_upgrade(event)
        return event

    def start_next_cycle(self) -> None:
        """Turn to the next request on this connection."""
        super().start_next_cycle()
        self.waiting = 0


def _without_upgrade(request: h11.Request) -> h11.Request:
    if request.http_version not in (b"1.1", b"1.0"):
        raise h11.RemoteProtocolError("HTTP/1 is spoken here", error_status_hint=505)
    headers = [item for item in request.headers if item[0] != b"upgrade"]
    target, headers = in_origin_form(request.target, headers)
    if target == request.target and len(headers) == len(list(request.headers)):
        return request
    return h11.Request(
        method=request.method, target=target, headers=headers, http_version=request.http_version
    )


class Http1(H11Protocol):
    """Hypercorn's HTTP/1.1 without upgrades, whose reader never waits for a response.

    Args:
        on_recycled: called when the next request can be read and part of it is here already.
        on_head: called before the head of a response whose length is known is sent: more will
            follow at once.
        arguments: Hypercorn's own.
    """

    def __init__(
        self, on_recycled: Callable[[], None], on_head: Callable[[], None], *arguments: Any
    ) -> None:
        super().__init__(*arguments)
        self.connection: Wire = Wire(
            h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size
        )
        self._on_recycled = on_recycled
        self._on_head = on_head

    @property
    def waiting(self) -> int:
        """The number of bytes that wait behind the request being answered."""
        return self.connection.waiting

    @property
    def all_read(self) -> bool:
        """Whether the request has been read to its end, and nothing behind it."""
        done = self.connection.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
        return done and not self.connection.waiting

    async def resume(self) -> None:  # noqa: ASYNC910 (as far as the bytes at hand go)
        """Go on with what came behind the last request."""
        await self._handle_events()

    async def stream_send(self, event: Event) -> None:  # noqa: ASYNC910 (as Hypercorn's)
        """Send what the application has to say."""
        if type(event) is Response and any(name == b"content-length" for name, _ in event.headers):
            self._on_head()
        await super().stream_send(event)

    async def _maybe_recycle(self) -> None:  # noqa: ASYNC910 (the signature is Hypercorn's)
        waiting = self.connection.waiting
        await super()._maybe_recycle()
        if waiting and not self.connection.waiting:
            self._on_recycled()
