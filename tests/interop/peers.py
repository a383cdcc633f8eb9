"""What running our server with other people's programs needs."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = str(EXAMPLES / "everything_server.py")


def install_once(folder: Path, wanted: str, install: Callable[[], object]) -> None:
    """Install into a folder that is kept, unless that has been done already."""
    ready = folder / "ready"
    if not ready.exists() or ready.read_text() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        install()
        ready.write_text(wanted)


@contextlib.contextmanager
def serving(host: str) -> Iterator[str]:
    """Our server in a process of its own, on ``--http`` or ``--hypercorn``; gives its URL."""
    command = [sys.executable, SERVER, host, "127.0.0.1:0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield _read_url(server)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(10)


def _read_url(server: "subprocess.Popen[str]") -> str:
    if server.stderr is None:
        raise ValueError("standard error is not a pipe")
    for line in server.stderr:
        if line.startswith("serving "):
            return line.split()[1]
    raise SystemExit("the server did not start")
