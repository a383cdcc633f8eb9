"""The official conformance suite, against our server and with our client.

    python tests/interop/conformance.py SCRIPTS [REVISION ...] --cache FOLDER

SCRIPTS is the folder that holds `run-server.sh` and `run-client.sh`; the server is
`examples/everything_server.py`, the client `examples/conformance_client.py`. The suite itself and
the Node that it needs come from npm into FOLDER, once. Exit status 0 if every scenario passes,
without a warning; the client is not shown the scenarios that need OAuth, whose names begin with
``auth/``.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from peers import EXAMPLES, install_packages, serving

sys.path.insert(0, str(EXAMPLES))

from conformance_client import SCENARIOS

PACKAGES = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22")
LIMIT = 900


def main() -> int:
    """Install what is missing, start the server, run the suite on each revision."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scripts", type=Path)
    parser.add_argument("revisions", nargs="*", default=["2026-07-28"])
    parser.add_argument("--cache", type=Path, required=True)
    arguments = parser.parse_args()
    modules = install_packages(arguments.cache, *PACKAGES) / "node_modules"
    environment = {
        **os.environ,
        "CONF_PKG": str(modules / "@modelcontextprotocol" / "conformance"),
        "CONF_NODE": str(modules / ".bin" / "node"),
    }
    with serving("--http") as url:
        results = [
            passes([str(arguments.scripts / "run-server.sh"), url, revision], environment)
            for revision in arguments.revisions
        ]
    client = shlex.join([sys.executable, str(EXAMPLES / "conformance_client.py")])
    environment["SCENARIOS"] = ",".join(SCENARIOS)
    results += [
        passes([str(arguments.scripts / "run-client.sh"), client, revision], environment)
        for revision in arguments.revisions
    ]
    return 0 if all(results) else 1


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
