"""The HTTP headers that mirror a request's body, and a small map to read headers from.

Intermediaries route and meter by these headers, and servers execute by the body. So whoever
sends a request builds them from the body, and whoever serves one verifies them against it.

Source: specification, basic/transports/streamable-http, "Request Metadata".
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, meta, versions

__all__ = [
    "METHOD_HEADER",
    "NAME_HEADER",
    "NAME_SOURCES",
    "PARAM_PREFIX",
    "TCHARS",
    "VERSION_HEADER",
    "Headers",
    "build_headers",
    "build_param_headers",
    "decode_value",
    "encode_value",
    "is_token",
    "verify_params",
    "verify_standard",
    "verify_version",
]

VERSION_HEADER: Final = "MCP-Protocol-Version"
METHOD_HEADER: Final = "Mcp-Method"
NAME_HEADER: Final = "Mcp-Name"
PARAM_PREFIX: Final = "Mcp-Param-"

NAME_SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
)
"""Which field of the params `Mcp-Name` mirrors, for the methods that need the header."""

TCHARS: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
"""The pattern of a token, which the name of a header is. Source: RFC 9110, section 5.6.2."""

_SENTINEL_START: Final = "=?base64?"
_SENTINEL_END: Final = "?="
_SAFE: Final = re.compile(r"[\t\x20-\x7e]*", re.ASCII)
_TOKEN: Final = re.compile(TCHARS, re.ASCII)
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?", re.ASCII)
_MAX_SAFE_INTEGER: Final = 2**53 - 1
_OWS: Final = " \t"


class Headers(Mapping[str, str]):
    """The headers of one message: case does not matter, and a name may stand on several lines.

    As a mapping it goes from names in lower case to values, where the values of several lines
    are joined by a comma, as RFC 9110 reads them. Bytes are taken as Latin-1.
    """

    __slots__ = ("_lines",)

    def __init__(self, raw: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._lines: dict[str, list[str]] = {}
        for name, value in raw:
            lines = self._lines.setdefault(name.decode("latin-1").lower(), [])
            lines.append(value.decode("latin-1").strip(_OWS))

    @classmethod
    def parse(cls, text: str) -> "Headers":
        """Read the header lines of a message that are known to be well-formed."""
        lines: dict[str, list[str]] = {}
        for line in text.split("\r\n"):
            name, _, value = line.partition(":")
            name = name.lower()
            if name in lines:
                lines[name].append(value.strip(_OWS))
            else:
                lines[name] = [value.strip(_OWS)]
        headers = cls()
        headers._lines = lines
        return headers

    def get_all(self, name: str) -> tuple[str, ...]:
        """The value of each line with that name, in order; empty if there is none."""
        return tuple(self._lines.get(name.lower(), ()))

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._lines[name.lower()])

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._lines

    def __repr__(self) -> str:
        # Values can be credentials.
        return f"<Headers {', '.join(self._lines)}>"


def is_token(text: str) -> bool:
    """Whether a text may stand as the name of a header."""
    return _TOKEN.fullmatch(text) is not None


def encode_value(value: str) -> str:
    """A string as a header value, in Base64 where it cannot stand there as it is."""
    if _SAFE.fullmatch(value) and value == value.strip(_OWS) and not _is_sentinel(value):
        return value
    try:
        encoded = base64.b64encode(value.encode()).decode()
    except UnicodeEncodeError:
        raise errors.LocalProtocolError(f"{value!r} has no UTF-8 form") from None
    return f"{_SENTINEL_START}{encoded}{_SENTINEL_END}"


def decode_value(value: str) -> str:
    """The string that a header value stands for.

    Raises:
        errors.HeaderMismatch: it has characters a header must not have, or claims to be Base64
            and is not, or is not of UTF-8.
    """
    if not _SAFE.fullmatch(value):
        raise errors.HeaderMismatch("Header mismatch: invalid characters in a header value")
    if not _is_sentinel(value):
        return value
    try:
        encoded = value[len(_SENTINEL_START) : -len(_SENTINEL_END)]
        if len(value) < len(_SENTINEL_START) + len(_SENTINEL_END):
            raise ValueError("start and end overlap")
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        raise errors.HeaderMismatch(
            f"Header mismatch: {jsonrpc.show(value)} is not Base64 of UTF-8"
        ) from None


def build_headers(
    method: str,
    params: Mapping[str, Any],
    version: str,
    *,
    name_sources: Mapping[str, str] = NAME_SOURCES,
) -> list[tuple[str, str]]:
    """The headers that mirror a request, for the client that sends it.

    Raises:
        errors.LocalProtocolError: the method or the version cannot stand in a header. There is
            no encoding for these two.
    """
    for value in (method, version):
        if not _SAFE.fullmatch(value) or value != value.strip(_OWS):
            raise errors.LocalProtocolError(f"{value!r} cannot be sent as a header")
    built = [(VERSION_HEADER, version), (METHOD_HEADER, method)]
    name = params.get(name_sources.get(method, ""))
    if isinstance(name, str):
        built.append((NAME_HEADER, encode_value(name)))
    return built


def verify_version(
    headers: Headers,
    params: Mapping[str, Any],
    *,
    supported: tuple[str, ...] = versions.SUPPORTED_VERSIONS,
) -> None:
    """Check that the version header is there and repeats the version in the body.

    Whether the version is supported is the next question, and `meta.parse_meta` asks it; so it
    does where the body declares none. `supported` is only named in the message: to a client of
    an older revision, which sends no such header, it is the one hint it gets.

    Raises:
        errors.HeaderMismatch: the header is missing, doubled or different.
    """
    lines = headers.get_all(VERSION_HEADER)
    if not lines:
        raise errors.HeaderMismatch(
            f"Header mismatch: the {VERSION_HEADER} header is missing; "
            f"supported versions: {', '.join(supported)}"
        )
    declared = meta.read_version(params)
    if len(lines) > 1 or (declared is not None and lines[0] != declared):
        raise _mismatch(VERSION_HEADER, lines, declared)


def verify_standard(
    headers: Headers,
    method: str,
    params: Mapping[str, Any],
    *,
    name_sources: Mapping[str, str] = NAME_SOURCES,
) -> None:
    """Check `Mcp-Method`, and `Mcp-Name` for the methods that need it, against the body.

    Raises:
        errors.HeaderMismatch: one is missing, doubled, malformed or different.
    """
    lines = headers.get_all(METHOD_HEADER)
    if lines != (method,):
        raise _mismatch(METHOD_HEADER, lines, method)
    source = name_sources.get(method)
    if source is not None:
        lines = headers.get_all(NAME_HEADER)
        if len(lines) != 1 or decode_value(lines[0]) != params.get(source):
            raise _mismatch(NAME_HEADER, lines, params.get(source))


def build_param_headers(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """The `Mcp-Param-*` headers of a tool call, for the client that makes it.

    Args:
        values: what each header mirrors, by the header's name after the prefix; None where the
            argument is null or absent, which sends no header. Which arguments have one is said
            by the tool's input schema; reading that is not done here.

    Raises:
        errors.LocalProtocolError: a name is no header name, or a value cannot be mirrored.
    """
    built: list[tuple[str, str]] = []
    for name, value in values.items():
        if not is_token(name):
            raise errors.LocalProtocolError(f"{name!r} cannot be part of a header name")
        if value is not None:
            built.append((PARAM_PREFIX + name, encode_value(_text(name, value))))
    return built


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    # JSON has one kind of number: 42.0 is an integer as well.
    if isinstance(value, int | float) and abs(value) <= _MAX_SAFE_INTEGER and value == int(value):
        return str(int(value))
    raise errors.LocalProtocolError(f"the value of {PARAM_PREFIX}{name} cannot be mirrored")


def verify_params(headers: Headers, values: Mapping[str, object]) -> None:
    """Check the `Mcp-Param-*` headers of a tool call against its arguments.

    Args:
        headers: of the request. Those not named in `values` are ignored.
        values: as in `build_param_headers`.

    Raises:
        errors.HeaderMismatch: one is missing, doubled, malformed or different, or there without
            a value in the body.
    """
    for name, value in values.items():
        full = PARAM_PREFIX + name
        lines = headers.get_all(full)
        if value is None and not lines:
            continue
        if value is None or len(lines) != 1 or not _mirrors(decode_value(lines[0]), value):
            raise _mismatch(full, lines, value)


def _mirrors(text: str, value: object) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        return bool(_NUMBER.fullmatch(text)) and Decimal(text) == value
    return text == value


def _is_sentinel(value: str) -> bool:
    return value.startswith(_SENTINEL_START) and value.endswith(_SENTINEL_END)


def _mismatch(name: str, lines: tuple[str, ...], expected: object) -> errors.HeaderMismatch:
    if not lines:
        return errors.HeaderMismatch(f"Header mismatch: the {name} header is missing")
    if len(lines) > 1:
        return errors.HeaderMismatch(f"Header mismatch: the {name} header is there twice")
    return errors.HeaderMismatch(
        f"Header mismatch: {name} header value {jsonrpc.show(lines[0])} does not match body value "
        f"{jsonrpc.show(expected)}"
    )
