"""Where an HTTP client's requests go: its URL, taken apart once, and a connection to there."""

import ssl
from typing import Final
from urllib.parse import quote, urlsplit

import attrs
import trio

from mcp_trio import errors
from mcp_trio._causes import leaves
from mcp_trio.http import _wire
from mcp_trio.http._connections import notice_absence

__all__ = ["Target", "connect", "parse_url"]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_UNTOUCHED: Final = "/%:@!$&'()*+,;=~-._?"
"""What may stand in a path or query; `%` too, because what is encoded already stays as it is."""


@attrs.frozen
class Target:
    """The parts of a URL that a request needs.

    Attributes:
        secure: whether there is TLS.
        host: what to connect to and what a certificate must name; IPv6 without brackets.
        port: the TCP port.
        path: the request target, with the query.
    """

    secure: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The value of the `Host` header: a port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self._scheme] else f"{host}:{self.port}"

    @property
    def _scheme(self) -> str:
        return "https" if self.secure else "http"

    def __str__(self) -> str:
        # Without the query: this goes into messages and logs, and keys are put into queries.
        return f"{self._scheme}://{self.authority}{self.path.partition('?')[0]}"


def parse_url(url: str) -> Target:
    """Take an `http` or `https` URL apart.

    Raises:
        ValueError: it is no such URL, or it carries a user name or password, which belong into
            a header.
    """
    if any(character <= " " or character == "\x7f" for character in url):
        raise ValueError(f"a URL has no spaces or control characters: {url!r}")
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"not an http or https URL: {url!r}")
    if "@" in parts.netloc:
        # The URL may hold a password, so it is not repeated here.
        raise ValueError("a URL with a user name or password is refused; use a header instead")
    if not parts.hostname:
        raise ValueError(f"a URL without a host: {url!r}")
    host = parts.hostname
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as problem:
            raise ValueError(f"not a host name: {host!r}") from problem
    path = quote(parts.path or "/", safe=_UNTOUCHED)
    if parts.query:
        path += "?" + quote(parts.query, safe=_UNTOUCHED)
    port = parts.port if parts.port is not None else _DEFAULT_PORTS[parts.scheme]
    return Target(parts.scheme == "https", host, port, path)


async def connect(
    target: Target, ssl_context: ssl.SSLContext | None, *, timeout: float
) -> _wire.HttpConnection:
    """Open a connection, TLS included; several addresses are tried side by side.

    Cancelling leaves nothing open.

    Args:
        target: where to.
        ssl_context: used if, and only if, the target asks for TLS.
        timeout: seconds for all of it.

    Raises:
        errors.ConnectionLost: nobody answers there, or TLS failed; the message says which.
    """
    connection = None
    with trio.move_on_after(timeout):
        connection = await _connect(target, ssl_context)
    if connection is None:
        raise errors.ConnectionLost(f"cannot connect to {target}: no answer within {timeout:g} s")
    return connection


async def _connect(target: Target, ssl_context: ssl.SSLContext | None) -> _wire.HttpConnection:
    try:
        tcp = await trio.open_tcp_stream(target.host, target.port)
    except OSError as problem:
        # One of the attempts' own errors, in place of the group that holds them all.
        cause = leaves(problem.__cause__ or problem)[0]
        raise errors.ConnectionLost(
            f"cannot connect to {target}: {getattr(cause, 'strerror', None) or cause}"
        ) from cause
    notice_absence(tcp.socket)
    if not target.secure:
        return _wire.HttpConnection(tcp, tcp.socket, str(target))
    tls = trio.SSLStream(
        tcp,
        ssl_context or ssl.create_default_context(),
        server_hostname=target.host,
        https_compatible=True,
    )
    try:
        await tls.do_handshake()
    except trio.BrokenResourceError as problem:
        tcp.socket.close()
        cause = problem.__cause__ or problem
        raise errors.ConnectionLost(f"TLS with {target} failed: {_reason(cause)}") from cause
    except BaseException:
        tcp.socket.close()
        raise
    return _wire.HttpConnection(tls, tcp.socket, str(target))


def _reason(cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {cause.verify_message}"
    return str(cause) or type(cause).__name__
