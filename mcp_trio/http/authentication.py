"""Who makes an HTTP request: the seam for what tells, by its headers, for whom it stands.

Source: specification, basic/authorization.
"""

import logging
import re
from typing import Final, Protocol

import trio

from mcp_trio import errors
from mcp_trio.protocol.headers import Headers
from mcp_trio.transports.abc import Principal

__all__ = ["AccessDenied", "Authenticate", "identify"]

logger = logging.getLogger("mcp_trio.http")

_VALUE: Final = re.compile(r"[\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*\Z")
_FORBIDDEN: Final = 403


class AccessDenied(errors.McpError):
    """Raised by what authenticates a request: the answer is this status, and no more.

    Attributes:
        status: 401, for who should come back with other credentials, or 403.
        challenge: the ``WWW-Authenticate`` header; None for none, which fits 403 only.

    Raises:
        ValueError: another status, a 401 without a challenge, or a challenge that cannot stand
            in a header.
    """

    def __init__(
        self, message: str = "unauthorized", *, status: int = 401, challenge: str | None = "Bearer"
    ) -> None:
        if status not in (401, _FORBIDDEN):
            raise ValueError(f"the status is 401 or 403, not {status!r}")
        if challenge is None and status != _FORBIDDEN:
            raise ValueError("a 401 needs a challenge")
        if challenge is not None and not _VALUE.match(challenge):
            raise ValueError(f"not the value of a header: {challenge!r}")
        super().__init__(message)
        self.status = status
        self.challenge = challenge


class Authenticate(Protocol):
    """Tells for whom a request stands.

    Called for each request when its head has passed the checks that need nobody's help (method,
    host, origin, media types), and before its body is read.
    """

    async def __call__(self, headers: Headers, certified: Principal | None, /) -> Principal | None:
        """Who asks, or None to let anybody in, as nobody.

        Args:
            headers: those of the request, by name in lower case; `get_all` has them line by line.
            certified: for whom the client's certificate stands, where the listener asks for one.

        Raises:
            AccessDenied: the request is answered with 401 or 403. Its message is for the
                client, too. Any other exception is logged, and answered with 500.
        """


async def identify(
    authenticate: Authenticate, headers: Headers, certified: Principal | None
) -> Principal | None:
    """Ask who makes a request. Whoever's credentials have expired already is refused.

    Raises:
        AccessDenied: the request is refused.
        errors.InternalError: the function failed; what it raised is in the log.

    Cancelling cancels the function.
    """
    try:
        principal = await authenticate(headers, certified)
        if principal is not None and not isinstance(principal, Principal):
            raise TypeError(f"authenticate returned no Principal but {type(principal).__name__}")
    except AccessDenied:
        raise
    except Exception:
        logger.exception("a request could not be authenticated; it is refused")
        raise errors.InternalError("the request could not be authenticated") from None
    if principal is not None and principal.expires_at <= trio.current_time():
        raise AccessDenied("expired", challenge='Bearer error="invalid_token"')
    return principal
