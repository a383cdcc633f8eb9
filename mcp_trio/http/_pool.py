"""Connections of a client that wait for their next request."""

from typing import Final

import trio

from mcp_trio.http import _wire

__all__ = ["IdlePool"]

MAX_IDLE: Final = 8
MAX_IDLE_TIME: Final = 4.0
"""Seconds. Common servers cut an idle connection after five: be gone before that."""


class IdlePool:
    """A few idle connections, the one used last on top.

    Nothing runs in the background: what has become too old is closed when the pool is touched
    the next time, and all of it by `close`.
    """

    def __init__(self, *, max_idle: int = MAX_IDLE, max_idle_time: float = MAX_IDLE_TIME) -> None:
        self._max_idle = max_idle
        self._max_idle_time = max_idle_time
        self._idle: list[_wire.HttpConnection] = []

    def __len__(self) -> int:
        return len(self._idle)

    def take(self) -> _wire.HttpConnection | None:
        """A connection that looks alive, or None."""
        self._sweep()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return None

    def put(self, connection: _wire.HttpConnection) -> None:
        """Keep a connection if its last answer is complete; close it otherwise."""
        self._sweep()
        if not connection.recycle(trio.current_time()):
            connection.close()
            return
        self._idle.append(connection)
        if len(self._idle) > self._max_idle:
            self._idle.pop(0).close()

    def close(self) -> None:
        """Close all of them."""
        while self._idle:
            self._idle.pop().close()

    def _sweep(self) -> None:
        oldest = trio.current_time() - self._max_idle_time
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.pop(0).close()
