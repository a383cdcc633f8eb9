"""The `_meta` of a request: what it must carry, and the keys that this package reads or writes.

Source: specification, basic/index, "_meta"; basic/versioning.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

import attrs

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc

__all__ = [
    "LOG_LEVELS",
    "META_CLIENT_CAPABILITIES",
    "META_CLIENT_INFO",
    "META_DROPPED",
    "META_END",
    "META_LOG_LEVEL",
    "META_SERVER_INFO",
    "META_SUBSCRIPTION_ID",
    "META_VERSION",
    "PROGRESS_TOKEN",
    "ProgressToken",
    "RequestMeta",
    "build_meta",
    "is_progress_token",
    "meta_of",
    "parse_meta",
    "read_version",
    "subscription_id",
]

META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105
META_DROPPED: Final = "org.mcp-trio/dropped"
"""Our own key in the `_meta` of an event, or of the final result: how many before it were lost."""
META_END: Final = "org.mcp-trio/end"
"""Our own key in the result that ends a subscription: its reason, for those who know the key."""

LOG_LEVELS: Final[tuple[str, ...]] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""The levels of `notifications/message`, least severe first."""

ProgressToken = str | int
"""What opts a request into progress notifications. `0` and `""` are tokens like any other."""


@attrs.frozen
class RequestMeta:
    """What a request says about itself.

    Attributes:
        protocol_version: the revision the request is written in.
        client_capabilities: what the client can do, for this request only.
        client_info: name and version of the client, as it says; for display and logs.
        progress_token: present if the client wants progress notifications.
        log_level: the least severe level of log message it wants; None means none at all.
        raw: the whole `_meta` object, with the keys of extensions.
    """

    protocol_version: str
    client_capabilities: dict[str, Any]
    client_info: dict[str, Any] | None = None
    progress_token: ProgressToken | None = None
    log_level: str | None = None
    raw: dict[str, Any] = attrs.field(factory=dict, repr=False)

    def declares(self, *path: str) -> bool:
        """Whether the client declared a capability, such as ``declares("elicitation", "url")``.

        A capability is declared by an object at that place, be it empty.
        """
        value: object = self.client_capabilities
        for name in path:
            if not isinstance(value, dict):
                return False
            value = value.get(name)
        return isinstance(value, dict)


def meta_of(request: jsonrpc.Request, supported: tuple[str, ...]) -> RequestMeta:
    """`parse_meta` for a request, which a transport and the server behind it both want read.

    It is read again where the request has got another `_meta` in between.
    """
    found = request.checked_meta
    if (
        found is None
        or found.raw is not request.params.get("_meta")
        or found.protocol_version not in supported
    ):
        found = request.checked_meta = parse_meta(request.params, supported)
    return found


def parse_meta(params: Mapping[str, Any], supported: tuple[str, ...]) -> RequestMeta:
    """Read and check the `_meta` of a request's params.

    The version comes first: how a request of another revision describes the rest is unknown.

    Raises:
        errors.UnsupportedProtocolVersion: the request declares a revision not in `supported`.
        errors.InvalidParams: a required field is missing, or a field has the wrong type.
    """
    raw = params.get("_meta")
    if not isinstance(raw, dict):
        raise errors.InvalidParams("params._meta: an object is required")
    version = raw.get(META_VERSION)
    if not isinstance(version, str):
        raise _wrong(META_VERSION, "a string is required")
    if version not in supported:
        raise errors.UnsupportedProtocolVersion(requested=version, supported=supported)
    capabilities = raw.get(META_CLIENT_CAPABILITIES)
    if not isinstance(capabilities, dict):
        raise _wrong(META_CLIENT_CAPABILITIES, "an object is required")
    token = raw.get(PROGRESS_TOKEN)
    if PROGRESS_TOKEN in raw and not is_progress_token(token):
        raise _wrong(PROGRESS_TOKEN, "a string or an integer is expected")
    level = raw.get(META_LOG_LEVEL)
    if META_LOG_LEVEL in raw and level not in LOG_LEVELS:
        raise _wrong(META_LOG_LEVEL, f"one of {', '.join(LOG_LEVELS)} is expected")
    return RequestMeta(version, capabilities, _client_info(raw), token, level, raw)


def _client_info(raw: dict[str, Any]) -> dict[str, Any] | None:
    if META_CLIENT_INFO not in raw:
        return None
    info = raw[META_CLIENT_INFO]
    if not isinstance(info, dict):
        raise _wrong(META_CLIENT_INFO, "an object is expected")
    for field in ("name", "version"):
        if not isinstance(info.get(field), str):
            raise _wrong(f"{META_CLIENT_INFO}.{field}", "a string is required")
    return info


def build_meta(
    *,
    version: str,
    client_capabilities: Mapping[str, Any],
    client_info: Mapping[str, Any] | None = None,
    progress_token: ProgressToken | None = None,
    log_level: str | None = None,
) -> dict[str, Any]:
    """The `_meta` of a request to send."""
    raw: dict[str, Any] = {
        META_VERSION: version,
        META_CLIENT_CAPABILITIES: dict(client_capabilities),
    }
    if client_info is not None:
        raw[META_CLIENT_INFO] = dict(client_info)
    if progress_token is not None:
        raw[PROGRESS_TOKEN] = progress_token
    if log_level is not None:
        raw[META_LOG_LEVEL] = log_level
    return raw


def read_version(params: Mapping[str, Any]) -> str | None:
    """The revision that params declare, if it can be read; nothing else is checked."""
    raw = params.get("_meta")
    version = raw.get(META_VERSION) if isinstance(raw, dict) else None
    return version if isinstance(version, str) else None


def subscription_id(params: Mapping[str, Any]) -> jsonrpc.RequestId | None:
    """The subscription that a notification or result belongs to, or None if it names none.

    Works on the params of a notification and on a result. What cannot be an id names none:
    `1.0` and `true` do not find subscription 1.
    """
    raw = params.get("_meta")
    if isinstance(raw, dict):
        value = raw.get(META_SUBSCRIPTION_ID)
        if jsonrpc.is_request_id(value):
            return value
    return None


def is_progress_token(value: object) -> TypeGuard[ProgressToken]:
    """Whether a value may stand as a progress token: a string or an integer, no boolean."""
    return isinstance(value, str) or type(value) is int


def _wrong(key: str, reason: str) -> errors.InvalidParams:
    return errors.InvalidParams(f"params._meta.{key}: {reason}")
