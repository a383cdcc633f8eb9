"""What a server says about itself when asked.

There are no URIs, ids or names of callers in it, so that it can go to any log.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from mcp_trio import errors
from mcp_trio.subscriptions.statistics import HubStatistics

__all__ = ["RequestCounts", "ServerStatistics"]

OTHER: Final = "other"

_CODES: Final = {
    code: str(code)
    for code in (
        errors.PARSE_ERROR,
        errors.INVALID_REQUEST,
        errors.METHOD_NOT_FOUND,
        errors.INVALID_PARAMS,
        errors.INTERNAL_ERROR,
        errors.HEADER_MISMATCH,
        errors.MISSING_REQUIRED_CLIENT_CAPABILITY,
        errors.UNSUPPORTED_PROTOCOL_VERSION,
    )
}


@attrs.frozen
class ServerStatistics:
    """A server at one moment; counts are since it was made.

    Attributes:
        requests: being served now, with open subscriptions.
        handled: requests by method, those of unknown methods together as ``"other"``. What has
            not happened yet is here as well, with 0, as in the next two.
        failed: requests answered with an error, by its code; codes that the specification does
            not define together as ``"other"``. A tool that fails has a result, and is not here.
        subscriptions: open, or about to be.
        ended: subscriptions by the reason of their end. With a result: ``"complete"``,
            ``"shutdown"``, ``"overflow"``, ``"expired"``, ``"revoked"``,
            ``"nothing-granted"``, or ``"other"``. Without: ``"cancelled"`` by the client or by
            the program around it, ``"disconnected"``: the client has gone, or has not read in
            time, ``"refused"`` before it was acknowledged, ``"error"`` after that.
        events_written: events written to subscriptions.
        threads: handlers that run in threads now.
        threads_waiting: handlers that wait for a thread.
        tools: how many are registered.
        prompts: how many are registered.
        resources: how many are registered, without templates.
        resource_templates: how many are registered.
        hub: the statistics of the hub, if there is one.
    """

    requests: int
    handled: Mapping[str, int]
    failed: Mapping[str, int]
    subscriptions: int
    ended: Mapping[str, int]
    events_written: int
    threads: int
    threads_waiting: int
    tools: int
    prompts: int
    resources: int
    resource_templates: int
    hub: HubStatistics | None


class RequestCounts:
    """Counts the requests of a server.

    A method or a code is whatever a client or a handler says, so only the known ones are kept.
    """

    __slots__ = ("_failed", "_handled", "in_progress")

    def __init__(self, methods: Iterable[str]) -> None:
        self.in_progress = 0
        self._handled = dict.fromkeys((*methods, OTHER), 0)
        self._failed = dict.fromkeys((*_CODES.values(), OTHER), 0)

    def begin(self, method: str) -> None:
        """A request has come."""
        self.in_progress += 1
        self._handled[method if method in self._handled else OTHER] += 1

    def fail(self, code: int) -> None:
        """A request is answered with an error."""
        self._failed[_CODES.get(code, OTHER)] += 1

    @property
    def handled(self) -> dict[str, int]:
        """How many there have been, by method."""
        return dict(self._handled)

    @property
    def failed(self) -> dict[str, int]:
        """How many were answered with an error, by its code."""
        return dict(self._failed)
