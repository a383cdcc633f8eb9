"""A parent of `worker_program.py`, as a program: for tests that signal or kill it.

    python tests/support/workers_parent.py WORKERS native|hypercorn [FLAG…]

Says ``serving URL`` on standard error once all serve, and what it logs.
"""

import logging
import sys
from functools import partial
from pathlib import Path

import trio

from mcp_trio.workers import serve_workers

PROGRAM = str(Path(__file__).with_name("worker_program.py"))


async def main(count: int, flags: list[str]) -> None:
    """Serve until told to stop."""
    async with trio.open_nursery() as nursery:
        serve = partial(serve_workers, port=0, workers=count, handle_signals=True)
        (url,) = await nursery.start(serve, [sys.executable, PROGRAM, *flags])
        sys.stderr.write(f"serving {url}\n")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    trio.run(main, int(sys.argv[1]), sys.argv[2:])
