"""Which hosts and origins a server answers to: the defence against DNS rebinding.

A web page can make its own name resolve to an address of the machine it is read on, and then
talks to a server there as if to its own. It cannot choose the `Host` and `Origin` its browser
sends. So a server answers only to names it knows.

Source: specification, basic/transports/streamable-http, "Security & Endpoint".
"""

import functools
import ipaddress
import re
from collections.abc import Iterable
from typing import Final

import attrs

__all__ = ["LOOPBACK", "allowed_host", "allowed_origin"]

LOOPBACK: Final[tuple[str, ...]] = ("localhost", "127.0.0.1", "[::1]")
"""The names of this machine for itself: what is allowed unless told otherwise, on any port."""

_AUTHORITY: Final = re.compile(
    r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)
_PATTERN: Final = re.compile(
    r"(?P<host>\*|\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\*|[0-9]{1,5}))?", re.ASCII
)
_SCHEME: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)", re.ASCII | re.DOTALL)
_WEB: Final = {"http": 80, "https": 443}
_ANY: Final = "*"


@attrs.frozen
class _Place:
    """A host, or a pattern of one, where `port` None means: none was given."""

    scheme: str | None
    host: str
    port: int | str | None


def allowed_host(value: str | None, allowed: Iterable[str] = LOOPBACK) -> bool:
    """Whether a `Host` header names one of the allowed hosts.

    Args:
        value: the header; None, or one that is malformed, is never allowed.
        allowed: entries of the form ``host`` or ``host:*`` (any port), ``host:port``, ``*:port``
            or ``*``. An IPv6 address stands in brackets. Case does not matter. ``host:80`` and
            ``host:443`` also allow the host without a port.

    Raises:
        ValueError: an entry of `allowed` has none of these forms.
    """
    patterns = _host_patterns(tuple(allowed))
    # Lowering a letter that is not ASCII can give one that is.
    if value is None or not value.isascii():
        return False
    place = _parse_authority(None, value.lower())
    return place is not None and any(_host_matches(pattern, place) for pattern in patterns)


def allowed_origin(value: str | None, allowed: Iterable[str] = LOOPBACK) -> bool:
    """Whether an `Origin` header names one of the allowed origins.

    Args:
        value: the header. None is allowed: only browsers send it. A malformed one is not.
        allowed: entries with a scheme, such as ``https://app.example.com``, allow exactly that
            origin, with any port if they end with ``:*``. Entries without one are hosts as in
            `allowed_host`, and allow http and https. ``null`` allows the opaque origin, which
            nothing else does. ``*`` allows every other.

    Raises:
        ValueError: an entry of `allowed` has none of these forms.
    """
    entries = tuple(allowed)
    patterns = _origin_patterns(entries)
    if value is None:
        return True
    if not value.isascii():
        return False
    value = value.lower()
    if value == "null":
        return any(entry.lower() == "null" for entry in entries)
    match = _SCHEME.fullmatch(value)
    place = _parse_authority(match["scheme"], match["rest"]) if match else None
    return place is not None and any(_origin_matches(pattern, place) for pattern in patterns)


def _host_matches(pattern: _Place, place: _Place) -> bool:
    if pattern.host not in (_ANY, place.host):
        return False
    if pattern.port in (None, _ANY, place.port):
        return True
    # A Host without a port means the default of a scheme that is not known here.
    return place.port is None and pattern.port in _WEB.values()


def _origin_matches(pattern: _Place, place: _Place) -> bool:
    default = _WEB.get(place.scheme or "")
    actual = attrs.evolve(place, port=default if place.port is None else place.port)
    if pattern.scheme is None:
        everything = pattern.host == _ANY and pattern.port is None
        return everything or (place.scheme in _WEB and _host_matches(pattern, actual))
    if pattern.scheme != place.scheme or pattern.host != place.host:
        return False
    expected = default if pattern.port is None else pattern.port
    return expected in (_ANY, actual.port)


@functools.lru_cache(maxsize=64)
def _host_patterns(allowed: tuple[str, ...]) -> tuple[_Place, ...]:
    return tuple(_parse_pattern(entry, entry.lower()) for entry in allowed)


@functools.lru_cache(maxsize=64)
def _origin_patterns(allowed: tuple[str, ...]) -> tuple[_Place, ...]:
    patterns: list[_Place] = []
    for entry in allowed:
        text = entry.lower()
        if text == "null":
            continue
        match = _SCHEME.fullmatch(text)
        if match is None:
            patterns.append(_parse_pattern(entry, text))
            continue
        pattern = _parse_pattern(entry, match["rest"])
        if pattern.host == _ANY:
            raise ValueError(f"{entry!r} is not an origin that can be allowed")
        patterns.append(attrs.evolve(pattern, scheme=match["scheme"]))
    return tuple(patterns)


def _parse_pattern(entry: str, text: str) -> _Place:
    match = _PATTERN.fullmatch(text)
    host = _canonical(match["host"]) if match else None
    if match is None or host is None:
        raise ValueError(f"{entry!r} is not a host that can be allowed")
    port = match["port"]
    if port == _ANY or port is None:
        return _Place(None, host, port)
    if int(port) > 65535:
        raise ValueError(f"{entry!r} has no possible port")
    return _Place(None, host, int(port))


def _parse_authority(scheme: str | None, text: str) -> _Place | None:
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    host = _canonical(match["host"])
    port = None if match["port"] is None else int(match["port"])
    if host is None or (port is not None and port > 65535):
        return None
    return _Place(scheme, host, port)


def _canonical(host: str) -> str | None:
    """A host in one spelling: an IPv6 address can be written in many. None if it is none."""
    if not host.startswith("["):
        return host
    try:
        return f"[{ipaddress.IPv6Address(host[1:-1]).compressed}]"
    except ValueError:
        return None
