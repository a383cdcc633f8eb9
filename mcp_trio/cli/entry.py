"""Where the script ``mcp-trio`` begins."""

import importlib.util
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

__all__ = ["main"]

NEEDED: Final = ("click", "rich")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status.

    Args:
        arguments: what stands behind the script's name; None for what this process was given.
    """
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        sys.stderr.write(
            f"mcp-trio: {' and '.join(absent)} must be there: pip install 'mcp-trio[cli]'\n"
        )
        sys.exit(2)
    from mcp_trio.cli.commands import run

    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))
