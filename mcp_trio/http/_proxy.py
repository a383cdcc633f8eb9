"""The proxy between a client and its server, if there is one.

Source: RFC 9110, section 9.3.6; RFC 9112, section 3.2.
"""

import base64
import urllib.request
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

import attrs

from mcp_trio.http import _target

__all__ = ["Proxy", "ProxyOption", "choose_proxy"]

ProxyOption: TypeAlias = str | Literal[True] | None
"""The URL of a proxy; True for what the environment says; None for none."""


@attrs.frozen
class Proxy:
    """A proxy that is reached over plain TCP.

    Attributes:
        host: its name or address.
        port: its port.
        authorization: the value of `Proxy-Authorization`, if it wants one.
    """

    host: str
    port: int
    authorization: str | None = attrs.field(default=None, repr=False)

    def __str__(self) -> str:
        return f"the proxy {_target.join_host(self.host, self.port)}"

    @property
    def headers(self) -> list[tuple[str, str]]:
        """What it wants to read beside the rest."""
        if self.authorization is None:
            return []
        return [("Proxy-Authorization", self.authorization)]


def choose_proxy(option: ProxyOption, target: _target.Target) -> Proxy | None:
    """The proxy for a server, if there is to be one.

    Raises:
        ValueError: what is given, or stands in the environment, names no proxy that can be used.
    """
    if option is None:
        return None
    if option is not True:
        return _parse(option, "proxy")
    url = urllib.request.getproxies().get(target.scheme)
    # With the port, as the variable may name one.
    if not url or urllib.request.proxy_bypass(_target.join_host(target.host, target.port)):
        return None
    return _parse(url, f"{target.scheme}_proxy in the environment")


def _parse(url: str, origin: str) -> Proxy:
    # The URL may hold a password, so no message repeats it.
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = 80 if parts.port is None else parts.port
    except ValueError:
        raise ValueError(f"{origin} is not a URL") from None
    if parts.scheme != "http":
        raise ValueError(f"{origin}: only http:// proxies are known, not {parts.scheme[:20]}://")
    if not parts.hostname or not parts.hostname.isascii():
        raise ValueError(f"{origin} is a URL without a host")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(parts.hostname, port, authorization)
