"""What a process inherits from the one that has started it: sockets that listen already."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Final

import trio

__all__ = ["VARIABLE", "Worker", "inherited_listeners", "inherited_worker"]

VARIABLE: Final = "MCP_TRIO_WORKER"
"""The environment variable by which a parent tells a worker its number, whether the one before
has crashed (1 or 0), and the numbers of its descriptors: first the one that leads to the parent,
then those that listen."""

_FIRST: Final = 3
"""The first descriptor that a service manager passes on."""


class Worker:
    """What a worker process has from its parent.

    Hand it to a server as its `task_status`: the parent waits for that.

    Attributes:
        number: which of the workers this is, from 0 up. A successor has the number of the
            worker whose place it takes.
        listeners: what to listen on; None for a program that was started by itself.
        after_crash: whether this one takes the place of one that has crashed. What that one
            published last may have reached nobody: hand it to `subscriptions.bridge.open_bridge`.
    """

    def __init__(
        self,
        number: int,
        listeners: Sequence[socket.socket] | None,
        control: socket.socket | None = None,
        *,
        after_crash: bool = False,
    ) -> None:
        self.number = number
        self.listeners = listeners
        self.after_crash = after_crash
        self._control = control
        self._told_to_stop = False
        self._lock = trio.Lock()

    def started(self, value: Sequence[str] | None = None) -> None:
        """Tell the parent that this worker serves. Once is enough.

        Args:
            value: the addresses, which the parent reports.
        """
        if self._control is not None:
            # If it has gone, `wait_stop` knows.
            with contextlib.suppress(OSError):
                self._control.send(json.dumps(list(value or ())).encode() + b"\n")

    async def wait_stop(self) -> None:
        """Wait until the parent wants this worker to stop, or is there no more.

        Without a parent this waits for ever. Cancelling stops the waiting.
        """
        if self._control is None:
            await trio.sleep_forever()
            raise AssertionError("unreachable: it sleeps forever")
        await trio.lowlevel.checkpoint()
        async with self._lock:
            while not self._told_to_stop:
                await trio.lowlevel.wait_readable(self._control)
                try:
                    self._told_to_stop = not self._control.recv(1024)
                except BlockingIOError:
                    continue
                except OSError:
                    self._told_to_stop = True


@contextlib.contextmanager
def inherited_worker() -> Iterator[Worker]:
    """Take over what `serve_workers` has left to this process, and close it in the end.

    A program that is not a worker gets one all the same: it has no parent, so nothing tells it
    to stop, and its listeners are those of a service manager, or None. So the same program can
    run by itself.

    Raises:
        RuntimeError: what is inherited is not what it should be.
    """
    given = os.environ.pop(VARIABLE, None)
    if given is None:
        number, crashed, control, listeners = 0, 0, None, inherited_listeners()
    else:
        try:
            number, crashed, control_fd, *fds = map(int, given.split())
            control = _adopt(control_fd)
            listeners = [_adopt(fd) for fd in fds]
        except (ValueError, OSError) as problem:
            raise RuntimeError(f"this worker has not inherited its sockets: {problem}") from problem
    try:
        yield Worker(number, listeners, control, after_crash=bool(crashed))
    finally:
        for sock in (control, *(listeners or ())):
            if sock is not None:
                sock.close()


def inherited_listeners() -> list[socket.socket] | None:
    """The sockets that a service manager has opened for this process, as systemd does it.

    Give them to `serve_http`, or to `serve_workers`, as `listeners`: that of a program which was
    started without any are None, and then these listen where they are told to.

    The sockets are handed out once; the variables that name them (``LISTEN_FDS`` and
    ``LISTEN_PID``) are taken out of the environment.

    Raises:
        RuntimeError: what is inherited is not what it should be.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = os.environ.get("LISTEN_FDS", "")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(name, None)
    try:
        listeners = [_adopt(fd) for fd in range(_FIRST, _FIRST + int(count))]
        for listener in listeners:
            if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                raise ValueError(f"{listener} does not listen")
    except (ValueError, OSError) as problem:
        raise RuntimeError(f"this process has not inherited its sockets: {problem}") from problem
    return listeners or None


def _adopt(fd: int) -> socket.socket:
    """The socket behind a descriptor, which the children of this process do not inherit."""
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock
