"""The script ``mcp-trio``: a client on the command line, for people and for programs.

It needs the extra ``cli``, for click and rich. Nothing else of the package imports it.
"""
