"""Parameters of tools that clients mirror in HTTP headers: how a function marks them.

Source: specification, basic/transports/streamable-http, "Custom Headers from Tool Parameters".
"""

import attrs

__all__ = ["Header"]


@attrs.frozen
class Header:
    """Marks a parameter whose value clients send as a header, too.

    ::

        @server.tool
        async def query(region: Annotated[str, Header("Region")], sql: str) -> str: ...

    Over HTTP a call then carries ``Mcp-Param-Region``, and one in which that is not what the body
    says is refused. It is for strings, integers and booleans. Headers are seen by everybody on the
    way: nothing secret belongs there.

    Args:
        name: what follows ``Mcp-Param-``: a token as RFC 9110 has them, once in a tool.
    """

    name: str
