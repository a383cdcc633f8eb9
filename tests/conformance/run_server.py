"""The official conformance suite against `examples/everything_server.py`.

    python tests/conformance/run_server.py SCRIPTS [REVISION ...] --cache FOLDER

SCRIPTS is the folder that holds `run-server.sh`. The suite itself and the Node that it needs come
from npm into FOLDER, once. Exit status 0 if every scenario passes, without a warning.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PACKAGES = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22")
SERVER = Path(__file__).parents[2] / "examples" / "everything_server.py"
START, LIMIT = 30, 900


def main() -> int:
    """Install what is missing, start the server, run the suite on each revision."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scripts", type=Path)
    parser.add_argument("revisions", nargs="*", default=["2026-07-28"])
    parser.add_argument("--cache", type=Path, required=True)
    arguments = parser.parse_args()
    modules = install(arguments.cache)
    environment = {
        **os.environ,
        "CONF_PKG": str(modules / "@modelcontextprotocol" / "conformance"),
        "CONF_NODE": str(modules / ".bin" / "node"),
    }
    server = subprocess.Popen(
        [sys.executable, SERVER, "--http", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    )
    try:
        url = read_url(server)
        results = [
            passes([str(arguments.scripts / "run-server.sh"), url, revision], environment)
            for revision in arguments.revisions
        ]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(10)
    return 0 if all(results) else 1


def install(cache: Path) -> Path:
    """Have the packages there, and return where they are."""
    wanted = " ".join(PACKAGES)
    ready = cache / "ready"
    if not ready.exists() or ready.read_text() != wanted:
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit("npm is needed, and not here")
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "package.json").write_text('{"private": true}\n')
        command = [npm, "install", "--silent", "--no-audit", *PACKAGES]
        subprocess.run(command, cwd=cache, check=True, timeout=LIMIT)
        ready.write_text(wanted)
    return cache / "node_modules"


def read_url(server: subprocess.Popen[str]) -> str:
    """Where the server says that it is."""
    if server.stderr is None:
        raise ValueError("standard error is not a pipe")
    for line in server.stderr:
        if line.startswith("serving "):
            return line.split()[1]
    raise SystemExit("the server did not start")


def passes(command: list[str], environment: dict[str, str]) -> bool:
    """Run the suite on one revision, and say how it went."""
    run = subprocess.run(
        [shutil.which("bash") or "bash", *command],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    print(run.stdout, flush=True)
    lines = run.stdout.strip().splitlines()
    counts = dict(re.findall(r"(\w+)=(\S+)", lines[-1] if lines else ""))
    return counts.get("failed") == "0" == counts.get("warnings") and counts["passed"] != "0"


if __name__ == "__main__":
    sys.exit(main())
