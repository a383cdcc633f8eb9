"""``python -m mcp_trio`` is the script ``mcp-trio``."""

from mcp_trio.cli.entry import main

if __name__ == "__main__":
    main()
