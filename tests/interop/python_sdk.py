"""Our server and the official Python SDK's client, over HTTP on both hosts and over stdio.

    python tests/interop/python_sdk.py --cache FOLDER

The SDK comes into an environment of its own in FOLDER, once. Exit status 0 if all is well.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from peers import SERVER, install_python_sdk, serving

HERE = Path(__file__).parent
LIMIT = 120


def main() -> int:
    """Install what is missing, and have the client do its work over everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    python = install_python_sdk(parser.parse_args().cache / "sdk")
    failed = 0
    for host in ("--http", "--hypercorn"):
        with serving(host) as url:
            failed += run(python, "http", url)
    failed += run(python, "stdio", sys.executable, SERVER, "--stdio")
    print(f"{failed} of 3 runs failed" if failed else "all runs had the right outcome")
    return 1 if failed else 0


def run(python: Path, *arguments: str) -> bool:
    """Whether the client failed."""
    command = [str(python), str(HERE / "sdk_client.py"), *arguments]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=LIMIT, check=False)
    if result.returncode:
        print(result.stderr)
    return result.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
