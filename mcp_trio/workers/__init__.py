"""Many processes on one port: a parent that keeps workers running, and what a worker inherits.

`serve_workers` is the parent. Each worker is a program of yours that serves what
`inherited_worker` hands it::

    with inherited_worker() as worker:
        await serve_http(
            server,
            listeners=worker.listeners,
            shutdown_trigger=worker.wait_stop,
            handle_signals=True,
            task_status=worker,
        )

`inherited_listeners` are the sockets of a service manager such as systemd.
"""

from mcp_trio.workers.inherited import Worker, inherited_listeners, inherited_worker
from mcp_trio.workers.parent import serve_workers
from mcp_trio.workers.place import WorkersFailed

__all__ = [
    "Worker",
    "WorkersFailed",
    "inherited_listeners",
    "inherited_worker",
    "serve_workers",
]
