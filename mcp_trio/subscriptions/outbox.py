"""What a bridge still has to tell the others: bounded, and no core event is ever lost.

Core events wait as keys, each once. If there are too many, they collapse into "anything may have
changed", which is true of any number. Events that carry data have no such way out; when there are
too many, the oldest are dropped, and counted.
"""

import itertools
from collections.abc import Hashable
from typing import Final

import attrs

from mcp_trio.subscriptions import bus_messages
from mcp_trio.subscriptions.events import Event, EventsDropped, ExtensionEvent, Resync

__all__ = ["Batch", "Outbox"]

_COMMA: Final = 1


@attrs.define
class Batch:
    """What goes into one message.

    Attributes:
        anything: whether it says that anything may have changed.
        changes: core events by their keys, encoded.
        states: extension events of which only the newest counts, by their keys, encoded.
        data: other extension events, encoded.
    """

    anything: bool = False
    changes: dict[Hashable, bytes] = attrs.Factory(dict)
    states: dict[Hashable, bytes] = attrs.Factory(dict)
    data: list[bytes] = attrs.Factory(list)

    def encode(self, sender: str, number: int) -> bytes:
        """The message."""
        events = itertools.chain(self.changes.values(), self.states.values(), self.data)
        return bus_messages.encode_message(sender, number, events, anything=self.anything)


class Outbox:
    """The events that have not been sent.

    Args:
        limit: bytes of encoded core events; beyond it they collapse. As much again may be taken
            by events of extensions; beyond it the oldest are dropped.
        max_event: bytes of one encoded event. A longer core event collapses as well; a longer
            event of an extension is dropped.
    """

    __slots__ = (
        "_anything",
        "_changes",
        "_changes_size",
        "_data_keys",
        "_extension",
        "_extension_size",
        "collapsed",
        "dropped",
        "limit",
        "max_event",
    )

    def __init__(self, *, limit: int, max_event: int) -> None:
        self.limit = limit
        self.max_event = max_event
        self._anything = False
        self._changes: dict[Hashable, bytes] = {}
        self._changes_size = 0
        # The keys of states are the events' own (tuples), those of data are numbers.
        self._extension: dict[Hashable, bytes] = {}
        self._extension_size = 0
        self._data_keys = itertools.count()
        self.collapsed = 0
        """How often too much was waiting, so far."""
        self.dropped = 0
        """How many events of extensions were dropped, so far."""

    def __len__(self) -> int:
        """How many things wait; "anything may have changed" is one."""
        return self._anything + len(self._changes) + len(self._extension)

    @property
    def size(self) -> int:
        """How much waits, in bytes."""
        return self._changes_size + self._extension_size

    def put(self, event: Event, include_sub_resources: bool = False) -> None:
        """Take an event in. Never fails with what a hub has published."""
        if isinstance(event, Resync):
            self.put_anything()
        elif isinstance(event, ExtensionEvent):
            key = event.key
            self._put_extension(
                next(self._data_keys) if key is None else key, bus_messages.encode_event(event)
            )
        elif isinstance(event, EventsDropped):
            raise TypeError("EventsDropped is for one listener")
        elif not self._anything:
            key = event.key
            if include_sub_resources or key not in self._changes:
                self._put_change(key, bus_messages.encode_event(event, include_sub_resources))

    def put_anything(self) -> None:
        """Anything may have changed; no core event can add to that."""
        self._anything = True
        self._changes.clear()
        self._changes_size = 0

    def take(self, room: int) -> Batch:
        """Take out, in order, what fits into a message.

        Args:
            room: bytes for the encoded events.
        """
        batch = Batch(anything=self._anything)
        self._anything = False
        room = self._move(self._changes, batch.changes, room)
        self._changes_size = sum(map(len, self._changes.values())) if self._changes else 0
        extension: dict[Hashable, bytes] = {}
        self._move(self._extension, extension, room)
        self._extension_size -= sum(map(len, extension.values()))
        for key, encoded in extension.items():
            if isinstance(key, int):
                batch.data.append(encoded)
            else:
                batch.states[key] = encoded
        return batch

    def put_back(self, batch: Batch) -> None:
        """Take in again what may not have arrived, except where there is newer news.

        Events that carry data are not sent twice: if they have arrived, they would count twice.
        """
        self.dropped += len(batch.data)
        if batch.anything:
            self.put_anything()
        if not self._anything:
            for key, encoded in batch.changes.items():
                if not self._anything:
                    self._put_change(key, encoded)
        newer, self._extension, self._extension_size = self._extension, {}, 0
        for key, encoded in itertools.chain(batch.states.items(), newer.items()):
            self._put_extension(key, newer.get(key, encoded))

    @staticmethod
    def _move(source: dict[Hashable, bytes], target: dict[Hashable, bytes], room: int) -> int:
        for key in list(source):
            needed = len(source[key]) + _COMMA
            if needed > room:
                return 0  # what comes after it must not overtake it
            target[key] = source.pop(key)
            room -= needed
        return room

    def _put_change(self, key: Hashable, encoded: bytes) -> None:
        waiting = self._changes.get(key)
        if waiting is not None and len(waiting) >= len(encoded):
            return  # the longer one includes listeners above the URI
        self._changes[key] = encoded
        self._changes_size += len(encoded) - len(waiting or b"")
        if self._changes_size > self.limit or len(encoded) > self.max_event:
            self.collapsed += 1
            self.put_anything()

    def _put_extension(self, key: Hashable, encoded: bytes) -> None:
        if len(encoded) > self.max_event:
            self.dropped += 1
            return
        waiting = self._extension.get(key)
        if waiting is not None:
            self._extension_size -= len(waiting)
        self._extension[key] = encoded
        self._extension_size += len(encoded)
        while self._extension_size > self.limit:
            oldest = next(iter(self._extension))
            self._extension_size -= len(self._extension.pop(oldest))
            self.dropped += 1
