"""Standard input and output: a server that is a child process of its client.

`serve_stdio` makes this program the server; `open_stdio_transport` starts one and talks to it.

Source: specification, basic/transports/stdio.
"""

import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Final

import trio

from mcp_trio.protocol import lines
from mcp_trio.transports import abc
from mcp_trio.transports._child import start_child
from mcp_trio.transports._service import open_services
from mcp_trio.transports._standard_streams import claim_standard_streams
from mcp_trio.transports.client_lines import LineTransport
from mcp_trio.transports.lifespan import while_running
from mcp_trio.transports.lines import DEFAULT_GRACE, DEFAULT_MAX_IN_FLIGHT, serve_lines

__all__ = ["open_stdio_transport", "serve_stdio"]

_GOODBYES: Final = 0.25
"""Seconds for the cancellations that are still to be written when a client's block is left."""


@while_running
async def serve_stdio(
    handler: abc.Handler,
    *,
    handle_signals: bool = True,
    grace: float = DEFAULT_GRACE,
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
    max_line: int = lines.DEFAULT_MAX_LINE,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the client that has started this program, until it closes our standard input.

    Meanwhile the streams are the protocol's alone: what is printed, here or by a child process,
    goes to standard error, and standard input is empty to everybody else. They are given back at
    the end.

    Returns within `grace` seconds after standard input has ended, after standard output has been
    closed by the client, and after SIGTERM or SIGINT. The signals are a drain: every open
    subscription gets its result. Being cancelled is one too, and may take as long.

    Args:
        handler: the server.
        handle_signals: take SIGTERM and SIGINT for a request to end. Outside of the main thread
            there is no way to do so, and nothing is done.
        grace: seconds that requests get to finish in the end.
        max_in_flight: how many requests are served at once; see `serve_lines`.
        max_line: how many bytes a message may have.
        task_status: started when the first message can be read.

    Raises:
        errors.LocalProtocolError: standard input and output are already in use, or closed.
    """
    drain = trio.Event()
    with claim_standard_streams() as (stdin, stdout), _signals(handle_signals) as signals:
        async with open_services() as services:
            if signals is not None:
                services.start_soon(_drain_on_signal, signals, drain)
            task_status.started()
            await serve_lines(
                handler,
                stdin,
                stdout,
                drain=drain,
                grace=grace,
                max_in_flight=max_in_flight,
                max_line=max_line,
            )


def _signals(wanted: bool) -> AbstractContextManager[AsyncIterator[int] | None]:
    if wanted and threading.current_thread() is threading.main_thread():
        return trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT)
    return nullcontext()


async def _drain_on_signal(signals: AsyncIterator[int], drain: trio.Event) -> None:
    async for _ in signals:
        drain.set()


@asynccontextmanager
async def open_stdio_transport(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stderr: Callable[[bytes], object] | None = None,
    grace: float = 1.0,
    max_line: int = lines.DEFAULT_MAX_LINE,
) -> AsyncIterator[LineTransport]:
    """Start a server and talk to it over its standard input and output.

    The server runs in a session of its own. What it writes to standard error is read all the
    time; the last 64 KiB are kept, and the error that says it has gone quotes their end.

    Leaving the block, however that happens, ends the server: standard input is closed; if it has
    not exited after `grace` seconds its process group gets SIGTERM, and after as many again
    SIGKILL. Helper processes in that group do not outlive it. Cancelling does not cut this
    short; all in all it takes at most ``2 * grace`` + 2 seconds.

    Args:
        command: the program and its arguments.
        env: the whole environment of the server; None for a copy of ours.
        cwd: its working directory; None for ours.
        stderr: called with each piece of what the server writes to standard error, such as
            ``sys.stderr.buffer.write``. It must not block.
        grace: seconds between the steps of ending the server.
        max_line: how many bytes a message of the server may have; a longer one is passed over.

    Raises:
        errors.ConnectionLost: the server could not be started.
        TypeError: the command is a string, or empty.
    """
    child = await start_child(command, env=env, cwd=cwd, on_stderr=stderr)
    try:
        async with open_services() as services:
            transport = LineTransport(
                child.stdout, child.stdin, explain=child.explain, max_line=max_line
            )
            services.start_soon(child.drain_stderr)
            transport.start(services)
            try:
                yield transport
            finally:
                with trio.move_on_after(_GOODBYES, shield=True):
                    await transport.flush()
                transport.close()
                # While this waits, the services go on reading: the server may have much to say.
                with trio.move_on_after(2 * grace + 1.5, shield=True):
                    await child.stop(grace)
    finally:
        with trio.move_on_after(0.1, shield=True):
            await child.close()
