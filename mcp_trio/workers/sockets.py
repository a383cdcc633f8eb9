"""The listening sockets of many workers on one port.

Each worker has one of its own, and the kernel spreads the connections over them. They are the
parent's: what waits on the socket of a worker that has died is served by its successor.
"""

import contextlib
import socket
import sys
from collections.abc import Sequence
from typing import Any, Final

import trio

__all__ = ["GivenPort", "SharedPort", "url_of"]

BACKLOG: Final = 1024
"""How many connections may wait to be accepted by one worker."""


class SharedPort:
    """A port that several processes listen on, each with a socket of its own.

    Args:
        reserved: a bound socket for each address, which does not listen. They keep the port
            while nobody else does.
    """

    def __init__(self, reserved: Sequence[socket.socket]) -> None:
        self._reserved = reserved

    @classmethod
    async def open(cls, host: str | None, port: int) -> "SharedPort":
        """Find the addresses and reserve the port.

        Raises:
            OSError: an address does not exist, or is in use; also by another set of workers.
        """
        if sys.platform == "win32" or not hasattr(socket, "SO_REUSEPORT"):
            raise OSError("processes cannot share a port on this system")
        found = await trio.socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        reserved: list[socket.socket] = []
        try:
            for family, _, _, _, address in found:
                if port:
                    # Whoever shares its port would share it with us, unasked.
                    _bind(family, address, shared=False).close()
                reserved.append(_bind(family, address, shared=True))
        except BaseException:
            for sock in reserved:
                sock.close()
            raise
        return cls(reserved)

    @property
    def names(self) -> list[tuple[int, Any]]:
        """Family and address of each socket."""
        return [(sock.family, sock.getsockname()) for sock in self._reserved]

    def listen(self) -> list[socket.socket]:
        """Sockets for one more worker; connections begin to wait on them."""
        listening: list[socket.socket] = []
        try:
            for family, address in self.names:
                listening.append(_bind(family, address, shared=True))
                listening[-1].listen(BACKLOG)
        except BaseException:
            for sock in listening:
                sock.close()
            raise
        return listening

    def close(self) -> None:
        """Give the port up."""
        for sock in self._reserved:
            sock.close()


class GivenPort:
    """Sockets that the caller has made, of which each worker gets the same."""

    def __init__(self, listeners: Sequence[socket.socket]) -> None:
        for listener in listeners:
            listener.listen(BACKLOG)
        self._listeners = listeners

    @property
    def names(self) -> list[tuple[int, Any]]:
        """Family and address of each socket."""
        return [(sock.family, sock.getsockname()) for sock in self._listeners]

    def listen(self) -> list[socket.socket]:
        """The sockets once more."""
        return [sock.dup() for sock in self._listeners]

    def close(self) -> None:
        """Close them."""
        for sock in self._listeners:
            sock.close()


def url_of(family: int, address: Any) -> str:
    """An address as the servers report theirs, as far as one can know without them."""
    if family == socket.AF_INET6:
        return f"http://[{address[0]}]:{address[1]}"
    if family == socket.AF_INET:
        return f"http://{address[0]}:{address[1]}"
    return f"http://unix:{address if isinstance(address, str) else address.decode()}"


def _bind(family: int, address: Any, *, shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock
