"""Which failures of a stream will pass, and which will not: what a watch does about them.

Trying again must help in principle; that is all that is asked. So a failure is final if it says
that this very request will be refused for ever, or if nobody has ever acknowledged anything here
and the answer is not the protocol's: then the address is wrong, most likely, and whoever gave it
wants to know. What has worked before is tried again.
"""

from typing import Final

import trio

from mcp_trio import errors

__all__ = ["bounded", "is_final", "is_too_large", "retry_after"]

LONGEST_WAIT: Final = 3600.0
"""Seconds. A server that asks to be left alone for longer is asked again all the same."""

_PASSING_STATUS: Final = frozenset({408, 425, 429})
_REFUSED: Final = frozenset({401, 403})
_FINAL_CODES: Final = frozenset(
    {
        errors.PARSE_ERROR,
        errors.INVALID_REQUEST,
        errors.METHOD_NOT_FOUND,
        errors.INVALID_PARAMS,
        errors.HEADER_MISMATCH,
        errors.MISSING_REQUIRED_CLIENT_CAPABILITY,
        errors.UNSUPPORTED_PROTOCOL_VERSION,
    }
)
_OURS: Final = (
    errors.LocalProtocolError,
    errors.ListenNotSupported,
    errors.UseListen,
    trio.ClosedResourceError,
)
_LOSSES: Final = (errors.ConnectionLost, errors.SubscriptionLost, errors.AcknowledgementTimeout)


def is_final(problem: Exception, *, known: bool) -> bool:
    """Whether another attempt to open a stream makes no sense.

    Args:
        problem: why it could not be opened.
        known: whether the peer has acknowledged a stream before.
    """
    if isinstance(problem, _OURS):
        return True
    if isinstance(problem, _LOSSES):
        return False
    status = _status(problem)
    if status in _REFUSED:
        return True
    if status in _PASSING_STATUS or status >= 500:
        return False
    if isinstance(problem, errors.ErrorResponse):
        return problem.code in _FINAL_CODES
    return not known


def is_too_large(problem: Exception) -> bool:
    """Whether a smaller filter could be what the server wants."""
    return isinstance(problem, errors.InvalidParams) or _status(problem) == 413


def retry_after(problem: BaseException | None) -> float:
    """The seconds that the server has asked to wait; 0 if it has not."""
    while problem is not None:
        said = getattr(problem, "retry_after", None)
        if said is None and isinstance(problem, errors.ErrorResponse):
            said = errors.delay_of(problem.data)
        if said is not None:
            return bounded(said)
        problem = problem.__cause__
    return 0.0


def bounded(delay: float | None) -> float:
    """A delay that the server has asked for, if it has, as far as it is honoured."""
    return 0.0 if delay is None else min(delay, LONGEST_WAIT)


def _status(problem: Exception) -> int:
    if isinstance(problem, errors.HttpStatusError):
        return problem.status
    cause = problem.__cause__
    return cause.status if isinstance(cause, errors.HttpStatusError) else 0
