"""The server process that a client owns: started in a session of its own, and ended for good.

Source: specification, basic/transports/stdio, "Shutdown".
"""

import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import trio

from mcp_trio import errors
from mcp_trio.transports._process_group import ProcessGroup, fate_of

__all__ = ["STDERR_TAIL", "Child", "StderrTail", "start_child"]

STDERR_TAIL: Final = 64 * 1024
"""How many bytes of the child's standard error are kept, for error messages."""
_SHOWN: Final = 2000
"""How many of them an error message shows."""
_REAPED: Final = 1.0
"""Seconds to wait for a process to vanish that has been killed."""

logger = logging.getLogger("mcp_trio.transports")


class StderrTail:
    """The last bytes that were written to standard error."""

    def __init__(self, limit: int = STDERR_TAIL) -> None:
        self._limit = limit
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Take more; forget what is too old."""
        self._kept += data
        if len(self._kept) > self._limit:
            del self._kept[: -self._limit]

    @property
    def value(self) -> bytes:
        """What is kept."""
        return bytes(self._kept)

    def summary(self) -> str:
        """The end of it, for an error message; empty if there is nothing."""
        return bytes(self._kept[-_SHOWN:]).decode(errors="replace").strip()


class Child:
    """A running server process and its process group."""

    def __init__(
        self, process: trio.Process, name: str, on_stderr: Callable[[bytes], object] | None
    ) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError("unreachable: all three are pipes")
        self.stdin: trio.abc.SendStream = process.stdin
        self.stdout: trio.abc.ReceiveStream = process.stdout
        self.tail = StderrTail()
        self._stderr: trio.abc.ReceiveStream = process.stderr
        self._process = process
        self._group = ProcessGroup(process.pid)
        self._name = name
        self._on_stderr = on_stderr
        self._stderr_ended = trio.Event()

    async def drain_stderr(self) -> None:
        """Read standard error until it ends: a process blocks on a full pipe."""
        try:
            async for data in self._stderr:
                self.tail.add(bytes(data))
                if self._on_stderr is not None:
                    try:
                        self._on_stderr(bytes(data))
                    except Exception:
                        logger.exception("the receiver of the server's stderr failed")
                        self._on_stderr = None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await trio.lowlevel.checkpoint()
        finally:
            self._stderr_ended.set()

    async def explain(self) -> errors.ConnectionLost:
        """Say why its output has ended, as far as that can be found out within half a second."""
        with trio.move_on_after(0.3):
            await self._process.wait()
        with trio.move_on_after(0.1):
            await self._stderr_ended.wait()
        what = f"the server {self._name} {self._fate()}"
        words = self.tail.summary()
        return errors.ConnectionLost(
            f"{what}; the end of its stderr:\n{words}" if words else what,
            exit_status=self._process.poll(),
            stderr=words,
        )

    def _fate(self) -> str:
        status = self._process.poll()
        if status is None:
            return "has closed its output, though it is still running"
        return fate_of(status)

    async def stop(self, grace: float) -> None:
        """End the process and all that it started, and wait until it has gone.

        Standard input is closed; after `grace` seconds the group gets SIGTERM, after as many
        again SIGKILL. What waits here is the end of the process, not that of its pipes: a helper
        may hold those open. The caller shields this; it takes at most `2 * grace` + 1.5 s.
        """
        await trio.aclose_forcefully(self.stdin)
        with trio.move_on_after(grace):
            await self._process.wait()
        if self._process.poll() is None:
            self._group.signal(signal.SIGTERM)
            with trio.move_on_after(grace):
                await self._process.wait()
        if self._process.poll() is None:
            self._group.signal(signal.SIGKILL)
            with trio.move_on_after(_REAPED):
                await self._process.wait()
        if self._process.poll() is None:
            pid = self._process.pid
            logger.error("the server %s cannot be killed (process %d)", self._name, pid)
        else:
            await self._group.sweep()

    async def close(self) -> None:
        """Close the pipes that are read. To be called when nothing is to be read any more."""
        await trio.aclose_forcefully(self.stdout)
        await trio.aclose_forcefully(self._stderr)


async def start_child(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    on_stderr: Callable[[bytes], object] | None,
) -> Child:
    """Start a server.

    Raises:
        errors.ConnectionLost: it cannot be started; the cause is the `OSError`.
    """
    if isinstance(command, str) or not command:
        raise TypeError("a command is a sequence of strings: the program and its arguments")
    try:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Its group then is its own, and a Ctrl-C at our terminal is ours alone.
            start_new_session=True,
            env=None if env is None else dict(env),
            cwd=cwd,
        )
    except OSError as error:
        raise errors.ConnectionLost(f"cannot start the server {command[0]!r}: {error}") from error
    return Child(process, repr(command[0]), on_stderr)
