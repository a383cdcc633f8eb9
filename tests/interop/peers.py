"""What running our server with other people's programs needs."""

import contextlib
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = str(EXAMPLES / "everything_server.py")
PYTHON_SDK = "mcp==2.3.0"
TS_SDK = ("@modelcontextprotocol/server@2.4.0", "@modelcontextprotocol/node@2.1.2", "zod@4")
LIMIT = 600
"""Seconds for an installation."""


def install_once(folder: Path, wanted: str, install: Callable[[], object]) -> None:
    """Install into a folder that is kept, unless that has been done already."""
    ready = folder / "ready"
    if not ready.exists() or ready.read_text() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        install()
        ready.write_text(wanted)


def install_python_sdk(folder: Path) -> Path:
    """Have the official Python SDK in an environment of its own, and return its Python."""
    python = folder / "bin" / "python"

    def install() -> None:
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", PYTHON_SDK]
        subprocess.run(command, check=True, timeout=LIMIT)

    install_once(folder, PYTHON_SDK, install)
    return python


def install_packages(folder: Path, *packages: str) -> Path:
    """Have packages of npm in a folder of their own, and return it."""

    def install() -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit("npm is needed, and not here")
        (folder / "package.json").write_text('{"private": true}\n')
        command = [npm, "install", "--silent", "--no-audit", *packages]
        subprocess.run(command, cwd=folder, check=True, timeout=LIMIT)

    install_once(folder, " ".join(packages), install)
    return folder


def install_ts_sdk(folder: Path) -> Path:
    """Have the official TypeScript SDK in a folder of its own, and return it."""
    return install_packages(folder, *TS_SDK)


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
