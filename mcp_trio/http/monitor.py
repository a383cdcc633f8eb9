"""What a native listener can say of itself."""

from collections.abc import Iterable, Iterator
from typing import Protocol

import attrs

__all__ = ["HttpMonitor", "HttpStatistics"]


@attrs.frozen
class HttpStatistics:
    """A listener at one moment; counts are since it began.

    Attributes:
        connections: open now.
        streams: responses that are streams and open now, subscriptions among them.
        accepted: connections taken on so far.
        refused: connections turned away because there were too many.
        cut: connections closed because their client took too long to read.
        responses: answers so far by the first digit of their status.
        bytes_written: to clients, so far, without what TLS adds.
    """

    connections: int
    streams: int
    accepted: int
    refused: int
    cut: int
    responses: dict[int, int]
    bytes_written: int


class Countable(Protocol):
    """What a monitor asks of an open connection."""

    @property
    def streaming(self) -> bool:
        """Whether it carries a stream at the moment."""

    @property
    def bytes_written(self) -> int:
        """How many bytes have been written to it."""


class HttpMonitor:
    """Counts what a listener does: make one, hand it to `serve_http`, and ask it.

    It can be handed to several listeners, and then counts for all of them.
    """

    def __init__(self) -> None:
        self.accepted = self.refused = self.cut = self.written = 0
        self.responses = dict.fromkeys(range(1, 6), 0)
        self._open: list[Iterable[Countable]] = []

    def watch(self, connections: Iterable[Countable]) -> None:
        """Take a listener's connections into account from now on."""
        self._open.append(connections)

    def forget(self, connections: Iterable[Countable]) -> None:
        """A listener has ended."""
        self._open = [each for each in self._open if each is not connections]

    def statistics(self) -> HttpStatistics:
        """Everything at this moment. Looks at each open connection."""
        connections = streams = 0
        written = self.written
        for connection in self._connections():
            connections += 1
            streams += connection.streaming
            written += connection.bytes_written
        return HttpStatistics(
            connections=connections,
            streams=streams,
            accepted=self.accepted,
            refused=self.refused,
            cut=self.cut,
            responses={digit: n for digit, n in self.responses.items() if n},
            bytes_written=written,
        )

    def _connections(self) -> Iterator[Countable]:
        for connections in self._open:
            yield from connections
