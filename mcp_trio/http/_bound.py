"""Where a native listener listens: addresses, a Unix socket, or sockets that it is given."""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from typing import Final

import trio

__all__ = ["closing", "open_listeners", "unlinking", "url_of"]

BACKLOG: Final = 1024
"""How many connections may wait to be accepted."""


async def open_listeners(
    host: str | None,
    port: int,
    unix_socket: str | os.PathLike[str] | None,
    given: Sequence[trio.SocketListener | socket.socket] | None,
) -> list[trio.SocketListener]:
    """Listen at the first of these that there is: those given, the path, the host and port.

    Raises:
        OSError: the address cannot be bound.
    """
    if given is not None:
        return [_listener(each) for each in given]  # noqa: ASYNC910 (nothing to wait for)
    if unix_socket is not None:
        return [_bind_unix(unix_socket)]  # noqa: ASYNC910
    return await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)


def _listener(given: trio.SocketListener | socket.socket) -> trio.SocketListener:
    if isinstance(given, trio.SocketListener):
        return given
    given.listen(BACKLOG)
    return trio.SocketListener(trio.socket.from_stdlib_socket(given))


def _bind_unix(path: str | os.PathLike[str]) -> trio.SocketListener:
    sock = socket.socket(socket.AF_UNIX)
    try:
        _remove_dead(path)
        sock.bind(os.fspath(path))
        return _listener(sock)
    except BaseException:
        sock.close()
        raise


def _remove_dead(path: str | os.PathLike[str]) -> None:
    """Remove a socket that nobody listens on any more."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116
            with socket.socket(socket.AF_UNIX) as probe:
                probe.setblocking(False)  # one that is busy may have no room for us
                try:
                    probe.connect(os.fspath(path))
                except BlockingIOError:
                    pass
                except ConnectionRefusedError:
                    os.unlink(path)  # noqa: PTH108


@contextlib.contextmanager
def unlinking(path: str | os.PathLike[str]) -> Iterator[None]:
    """Remove the path of a Unix socket after a block, unless another has taken it since.

    While this one drains it does not listen any more, so its successor may have.
    """
    ours = os.lstat(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(path), ours):
                os.unlink(path)  # noqa: PTH108


@contextlib.contextmanager
def closing(listeners: list[trio.SocketListener]) -> Iterator[None]:
    """Close the sockets after a block."""
    try:
        yield
    finally:
        for listener in listeners:
            listener.socket.close()


def url_of(listener: trio.SocketListener, *, secure: bool) -> str:
    """The address that a listener has bound, as a URL."""
    scheme = "https" if secure else "http"
    name = listener.socket.getsockname()
    if listener.socket.family == socket.AF_INET6:
        return f"{scheme}://[{name[0]}]:{name[1]}"
    if listener.socket.family == socket.AF_INET:
        return f"{scheme}://{name[0]}:{name[1]}"
    return f"{scheme}://unix:{name if isinstance(name, str) else name.decode(errors='replace')}"
