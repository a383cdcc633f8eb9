"""Our server and the official Python SDK's client, over HTTP on both hosts and over stdio.

    python tests/interop/run.py --cache FOLDER

The SDK comes into an environment of its own in FOLDER, once. Exit status 0 if all is well.
"""

import argparse
import contextlib
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
SERVER = str(HERE.parents[1] / "examples" / "everything_server.py")
SDK = "mcp==2.3.0"
LIMIT = 120


def main() -> int:
    """Install what is missing, and have the client do its work over everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    python = install(parser.parse_args().cache)
    failed = 0
    for host in ("--http", "--hypercorn"):
        with serving(host) as url:
            failed += run(python, "http", url)
    failed += run(python, "stdio", sys.executable, SERVER, "--stdio")
    print(f"{failed} of 3 runs failed" if failed else "all runs had the right outcome")
    return 1 if failed else 0


def install(cache: Path) -> Path:
    """Have the SDK there, and return its Python."""
    ready, python = cache / "ready", cache / "bin" / "python"
    if not ready.exists() or ready.read_text() != SDK:
        venv.create(cache, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", SDK]
        subprocess.run(command, check=True, timeout=600)
        ready.write_text(SDK)
    return python


@contextlib.contextmanager
def serving(host: str) -> Iterator[str]:
    """Our server in a process of its own; gives its URL."""
    command = [sys.executable, SERVER, host, "127.0.0.1:0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        if server.stderr is None:
            raise ValueError("standard error is not a pipe")
        yield next(line for line in server.stderr if line.startswith("serving ")).split()[1]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(10)


def run(python: Path, *arguments: str) -> bool:
    """Whether the client failed."""
    command = [str(python), str(HERE / "sdk_client.py"), *arguments]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False)
    if result.returncode:
        print(result.stderr)
    return result.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
