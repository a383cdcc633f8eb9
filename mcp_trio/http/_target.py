"""Where an HTTP client's requests go: its URL, taken apart once."""

from typing import Final
from urllib.parse import quote, urljoin, urlsplit

import attrs

__all__ = ["Target", "join_host", "parse_url", "resolve"]

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
        default = self.port == _DEFAULT_PORTS[self.scheme]
        return join_host(self.host, None if default else self.port)

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        return "https" if self.secure else "http"

    @property
    def origin(self) -> str:
        """The URL without its path: scheme, host and port."""
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        # Without the query: this goes into messages and logs, and keys are put into queries.
        return f"{self.origin}{self.path.partition('?')[0]}"


def join_host(host: str, port: int | None) -> str:
    """Host and port as they stand in a URL."""
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


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


def resolve(target: Target, location: str) -> Target | None:
    """Where a redirection leads, if that is within the origin."""
    # Only printable ASCII stands in a URL; the rest is how others disagree about where it leads.
    if not location.isascii() or not location.isprintable():
        return None
    try:
        found = parse_url(urljoin(f"{target.origin}{target.path}", location))
    except ValueError:
        return None
    return found if found.origin == target.origin else None
