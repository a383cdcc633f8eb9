"""What the connections of one native listener have in common."""

import urllib.parse
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final, Protocol

import attrs
import trio

from mcp_trio.http._connections import Connections, OpenConnection
from mcp_trio.http._heads import Request
from mcp_trio.http._keepalive import Streams
from mcp_trio.http.endpoint import Answer, Endpoint
from mcp_trio.http.monitor import Countable, HttpMonitor
from mcp_trio.transports.abc import Principal

resource: ModuleType | None
try:
    import resource
except ImportError:  # pragma: no cover (Windows)
    resource = None

__all__ = ["ConnectionLimits", "Page", "PrincipalOf", "Site", "text_answer"]

PrincipalOf = Callable[[dict[str, Any]], Principal | None]
"""Who a client certificate stands for, given what `ssl.SSLObject.getpeercert` says of it."""

Page = Callable[[Request], Answer]
"""Something else to be read on a listener, by GET."""

MAX_CONNECTIONS: Final = 20_000
RESERVED_FILES: Final = 100
"""How many of the files that a process may have open are not for connections."""

_positive: Any = attrs.validators.gt(0)


def _room() -> int:
    """How many connections there can be, with some files left for the application to open."""
    if resource is None:  # pragma: no cover (Windows)
        return MAX_CONNECTIONS
    files: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, max(files - RESERVED_FILES, files // 2))


@attrs.frozen(kw_only=True)
class ConnectionLimits:
    """How much a connection may take; `listener.ListenerOptions` says what each means."""

    max_connections: int = attrs.field(factory=_room, validator=_positive)
    max_head: int = attrs.field(default=32 * 1024, validator=_positive)
    head_timeout: float = attrs.field(default=10.0, validator=_positive)
    idle_timeout: float = attrs.field(default=60.0, validator=_positive)
    send_deadline: float = attrs.field(default=30.0, validator=_positive)


class SiteConnection(OpenConnection, Countable, Protocol):
    """What a site asks of a connection."""


class Site:
    """Where requests go, what they may take, and which connections are open.

    Attributes:
        nursery: where the connections' tasks run.
        closing: whether the listener is being stopped.
        open: the connections that are open.
        streams: the streams among what they carry.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        limits: ConnectionLimits,
        *,
        pages: Mapping[str, Page],
        keepalive: float,
        monitor: HttpMonitor,
        principal_of: PrincipalOf | None,
        access_log: bool,
    ) -> None:
        self.endpoints = {path.rstrip("/"): endpoint for path, endpoint in endpoints.items()}
        self.limits = limits
        self.pages = {path.rstrip("/"): page for path, page in pages.items()}
        self.keepalive = keepalive
        self.monitor = monitor
        self.principal_of = principal_of
        self.access_log = access_log
        self.nursery: trio.Nursery
        self.closing = False
        self.open = Connections[SiteConnection]()
        self.streams = Streams()

    def endpoint_for(self, request: Request) -> Endpoint | None:
        """The endpoint that a request is for."""
        return self.endpoints.get(_path(request.target))

    def page_for(self, request: Request) -> Answer:
        """What is answered where there is no endpoint."""
        page = self.pages.get(_path(request.target))
        if page is None:
            return Answer(404, [(b"content-length", b"0")])
        if request.method not in ("GET", "HEAD"):
            return Answer(405, [(b"allow", b"GET, HEAD"), (b"content-length", b"0")])
        return page(request)

    def add(self, connection: SiteConnection) -> int:
        """Take a connection on; returns by how many there are too many."""
        self.open.add(connection)
        return len(self.open) - self.limits.max_connections

    def discard(self, connection: SiteConnection) -> None:
        """A connection has ended."""
        self.open.discard(connection)
        self.monitor.written += connection.bytes_written

    def close_idle(self) -> None:
        """Close the connections that carry no request, and let no other carry a second one."""
        self.closing = True
        self.open.close_idle()


def text_answer(status: int, text: str, *headers: tuple[bytes, bytes]) -> Answer:
    """A page of plain text."""
    body = text.encode("utf-8", "replace")
    kind = (b"content-type", b"text/plain; charset=utf-8")
    return Answer(status, [kind, (b"content-length", b"%d" % len(body)), *headers], body)


def _path(target: str) -> str:
    """The path of a target, decoded, without a slash at its end."""
    path = target.partition("?")[0]
    return (urllib.parse.unquote(path) if "%" in path else path).rstrip("/")
