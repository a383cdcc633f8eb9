"""The parent of many workers: it keeps them running on one port."""

import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import trio

from mcp_trio.transports._service import open_services
from mcp_trio.workers.group import Group
from mcp_trio.workers.sockets import GivenPort, SharedPort

__all__ = ["serve_workers"]


async def serve_workers(
    command: Sequence[str],
    host: str | None = "127.0.0.1",
    port: int = 8000,
    *,
    workers: int | None = None,
    listeners: Sequence[socket.socket] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    handle_signals: bool = False,
    shutdown_trigger: Callable[[], Awaitable[object]] | None = None,
    drain_grace: float = 2.0,
    start_timeout: float = 60.0,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep worker processes running that serve together on one port, until told to stop.

    Each worker runs `command`, a program that serves what `inherited_worker` hands it. It has a
    listening socket of its own on the port, and the kernel spreads new connections over them.
    The sockets belong to this process. So nothing is refused when a worker dies: what has
    connected to it and was not accepted yet waits for the next.

    A worker that dies is restarted, after 0.1 s; one that keeps on dying later and later, up to
    30 s. The others do not notice. If this process dies, the workers notice, and stop as if
    they had been told to.

    To stop is to accept no more connections, and to have every worker drain. It happens when
    `shutdown_trigger` returns, on SIGTERM and SIGINT if `handle_signals` is set (a second signal
    cuts the drain short), and when this call is cancelled: then in a shielded scope with that
    same deadline. A worker that is still there 3 s after `drain_grace` is killed.

    On SIGHUP, with `handle_signals`, each worker is replaced in turn: a new one is started on
    the same socket, and when it serves the old one drains. If it does not start, the old one
    stays, and so do those that have not had their turn.

    Every worker runs in a session of its own, with the output of this process, and no input;
    helper processes in its group do not outlive it.

    Args:
        command: the program and its arguments.
        host: the name or address to listen on; None for all of this machine.
        port: the port; 0 for any that is free, and `task_status` tells which.
        workers: how many; by default as many as this process may use processors.
        listeners: share these sockets among all workers, instead; they have to be bound, and
            are closed in the end. `inherited_listeners` gives those of a service manager.
        env: the whole environment of the workers; None for a copy of ours.
        cwd: their working directory; None for ours.
        handle_signals: whether SIGTERM, SIGINT and SIGHUP mean something. Only in the main
            thread.
        shutdown_trigger: what to wait for before stopping.
        drain_grace: how long stopping takes the workers, in seconds: what they give to
            `serve_http` or `serve_hypercorn`.
        start_timeout: how long a worker may take until it serves, in seconds.
        task_status: reports the addresses, as the workers do, when all of them serve.

    Raises:
        OSError: an address cannot be bound, or the program cannot be started.
        WorkersFailed: a worker has failed to start three times, before all had started once.
        TypeError: the command is a string, or empty.
        ValueError: there would be no workers.
    """
    if isinstance(command, str) or not command:
        raise TypeError("a command is a sequence of strings: the program and its arguments")
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if workers < 1:
        raise ValueError(f"workers must be positive, got {workers!r}")
    used = await SharedPort.open(host, port) if listeners is None else GivenPort(listeners)
    try:
        group = Group(
            command,
            used,
            workers,
            env=env,
            cwd=cwd,
            drain_grace=drain_grace,
            start_timeout=start_timeout,
        )
        with _signals(handle_signals) as signals:
            async with open_services() as services:
                services.start_soon(group.run)
                try:
                    if signals is not None:
                        services.start_soon(group.obey_signals, signals)
                    if shutdown_trigger is not None:
                        services.start_soon(group.stopping.stop_after, shutdown_trigger)
                    await group.started.wait()
                    if not group.stopping.wanted.is_set():
                        task_status.started(group.urls())
                    await group.stopping.wanted.wait()
                finally:
                    group.stopping.stop()
                    with trio.CancelScope(shield=True):  # noqa: ASYNC102 (it has a deadline)
                        await group.done.wait()
    finally:
        used.close()
    if group.failure is not None:
        raise group.failure


def _signals(wanted: bool) -> AbstractContextManager[AsyncIterator[int] | None]:
    if wanted:
        return trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return nullcontext()
