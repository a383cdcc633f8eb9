"""What a server offers, by name and in the order in which it was registered.

A page of a list ends at an item's number, and numbers are never given twice. So a cursor stays
good while items come and go: what was on an earlier page does not return, and nothing that was
there all along is skipped.

Handlers that run in threads may register things, so what belongs together is done under a lock.

Source: specification, server/utilities/pagination.
"""

import base64
import binascii
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import attrs

from mcp_trio import errors

__all__ = ["Page", "Registry"]

T = TypeVar("T")


@attrs.frozen
class Page(Generic[T]):
    """Some items of a list and, where there are more, the cursor to go on with."""

    items: tuple[T, ...]
    next_cursor: str | None


class Registry(Generic[T]):
    """Named items in order of registration, and a word to somebody at each change.

    Args:
        kind: what an item is called in messages ("tool").
        changed: called after each change, once.

    Attributes:
        generation: another number after each change.
    """

    def __init__(self, kind: str, changed: Callable[[], None]) -> None:
        self._kind = kind
        self._changed = changed
        self._items: dict[str, tuple[int, T]] = {}
        self._lock = threading.Lock()
        self._given = 0
        self.generation = 0
        self._ordered: tuple[list[int], list[T]] | None = None

    def add(self, name: str, item: T) -> None:
        """Register an item at the end.

        Raises:
            ValueError: the name is taken.
        """
        with self._lock:
            if name in self._items:
                raise ValueError(f"there is already a {self._kind} {name!r}")
            self._given += 1
            self._items[name] = (self._given, item)
            self._note_change()
        self._changed()

    def remove(self, name: str) -> T:
        """Take an item out and return it.

        Raises:
            LookupError: there is none of that name.
        """
        with self._lock:
            if name not in self._items:
                raise LookupError(f"there is no {self._kind} {name!r}")
            item = self._items.pop(name)[1]
            self._note_change()
        self._changed()
        return item

    def _note_change(self) -> None:
        self._ordered = None
        self.generation += 1

    def get(self, name: str) -> T | None:
        """The item of that name, if there is one."""
        entry = self._items.get(name)
        return None if entry is None else entry[1]

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(self._in_order()[1])

    def page(self, cursor: str | None, size: int) -> Page[T]:
        """The items that follow a cursor, at most `size` of them.

        Raises:
            errors.InvalidParams: the cursor is none of this list's.
        """
        numbers, items = self._in_order()
        start = 0 if cursor is None else bisect_right(numbers, self._number(cursor))
        end = start + size
        more = self._cursor(numbers[end - 1]) if end < len(items) else None
        return Page(tuple(items[start:end]), more)

    def _in_order(self) -> tuple[list[int], list[T]]:
        with self._lock:
            if self._ordered is None:
                entries = list(self._items.values())
                self._ordered = ([number for number, _ in entries], [item for _, item in entries])
            return self._ordered

    def _cursor(self, number: int) -> str:
        return base64.urlsafe_b64encode(f"{self._kind}:{number}".encode()).decode()

    def _number(self, cursor: str) -> int:
        try:
            kind, _, digits = base64.urlsafe_b64decode(cursor.encode()).decode().partition(":")
        except (binascii.Error, UnicodeError):
            kind = digits = ""
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0
        if kind != self._kind or not 0 < number <= self._given or self._cursor(number) != cursor:
            raise errors.InvalidParams("not a cursor of this list")
        return number
