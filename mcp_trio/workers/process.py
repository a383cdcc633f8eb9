"""One worker process, as its parent sees it."""

import json
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import trio

from mcp_trio.transports._process_group import ProcessGroup, fate_of
from mcp_trio.workers.inherited import VARIABLE

__all__ = ["WorkerProcess", "start_worker"]

logger: Final = logging.getLogger("mcp_trio.workers")

_LONGEST: Final = 64 * 1024


class WorkerProcess:
    """A worker that runs.

    Attributes:
        ready: set when it serves.
        urls: where, as it says, once it does.
        ready_at: since when, as a moment of `trio.current_time`.
        exited: set when it has ended.
        gone: set when what it left behind has ended, too.
    """

    def __init__(self, process: trio.Process, control: socket.socket, name: str) -> None:
        self.ready = trio.Event()
        self.ready_at = 0.0
        self.urls: list[str] = []
        self.exited = trio.Event()
        self.gone = trio.Event()
        self._process = process
        self._group = ProcessGroup(process.pid)
        self._control = control
        self._name = name
        self._stopping = False

    def __str__(self) -> str:
        return f"worker {self._name} (process {self._process.pid})"

    @property
    def fate(self) -> str:
        """How it has ended."""
        status = self._process.returncode
        return "is running" if status is None else fate_of(status)

    @property
    def crashed(self) -> bool:
        """Whether it has ended otherwise than by itself, and well."""
        return bool(self._process.returncode)

    async def run(self) -> None:
        """Watch it until it has ended, and end what it leaves behind."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hear)
                await self._process.wait()
                nursery.cancel_scope.cancel()
            self.exited.set()
            await self._group.sweep()
        finally:
            self._control.close()
            self.exited.set()
            self.gone.set()

    async def wait_ready(self, seconds: float) -> bool:
        """Wait until it serves; False if it has ended before, or that takes too long."""
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:

                async def wait_for(event: trio.Event) -> None:
                    await event.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(wait_for, self.ready)
                nursery.start_soon(wait_for, self.exited)
        return self.ready.is_set() and not self.exited.is_set()

    def stop(self) -> None:
        """Ask it to stop. Once it serves it does so gracefully."""
        if self._stopping or self.exited.is_set():
            return
        self._stopping = True
        if self.ready.is_set():
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
        else:
            self.hurry()

    def hurry(self) -> None:
        """Ask it to stop at once: SIGTERM, which cuts a drain short."""
        if not self.exited.is_set():
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it, and all that it has started."""
        if not self.exited.is_set():
            logger.error("%s does not stop, and is killed", self)
            self._group.signal(signal.SIGKILL)

    async def stop_within(self, seconds: float) -> None:
        """Ask it to stop, and wait; when the time is over it is killed."""
        self.stop()
        with trio.move_on_after(seconds):
            await self.exited.wait()
        self.kill()
        await trio.lowlevel.checkpoint()

    async def _hear(self) -> None:  # noqa: ASYNC910 (it waits)
        """Read the one line that it has to say."""
        heard = b""
        while b"\n" not in heard and len(heard) < _LONGEST:
            await trio.lowlevel.wait_readable(self._control)
            try:
                data = self._control.recv(4096)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not data:
                return
            heard += data
        with suppress(ValueError):
            self.urls = [str(each) for each in json.loads(heard)]
        self.ready_at = trio.current_time()
        self.ready.set()


async def start_worker(
    command: Sequence[str],
    number: int,
    listeners: Sequence[socket.socket],
    after_crash: bool,
    *,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
) -> WorkerProcess:
    """Start a worker. Cancelling starts none.

    Raises:
        OSError: it cannot be started.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            ours.setblocking(False)
            fds = [theirs.fileno(), *(listener.fileno() for listener in listeners)]
            environment = dict(os.environ if env is None else env)
            environment[VARIABLE] = " ".join(map(str, (number, int(after_crash), *fds)))
            process = await trio.lowlevel.open_process(
                list(command),
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                # Its group then is its own, and a Ctrl-C at our terminal is ours alone.
                start_new_session=True,
                env=environment,
                cwd=cwd,
            )
    except BaseException:
        ours.close()
        raise
    return WorkerProcess(process, ours, str(number))
