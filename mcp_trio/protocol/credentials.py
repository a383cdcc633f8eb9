"""What a client shows to say who it is: the seam for tokens that are fetched and renewed.

Source: specification, basic/authorization.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import attrs

from mcp_trio import errors

__all__ = ["Auth", "AuthRequest"]


@attrs.frozen
class AuthRequest:
    """A request for which credentials are wanted.

    Attributes:
        url: the server's endpoint.
        method: of the protocol, such as ``tools/call``; over HTTP all of them are a POST.
        refused: the answer to the same request without the credentials that are wanted: status
            401 or 403, and its `www_authenticate` says what it should have. None at first.
        sent: the headers with which it was refused, as they were given. If they are no longer
            the current ones, another request has led to their renewal in the meantime.
    """

    url: str
    method: str
    refused: errors.HttpStatusError | None = None
    sent: Mapping[str, str] = attrs.field(factory=dict, repr=False)


Auth: TypeAlias = Callable[[AuthRequest], Awaitable[Mapping[str, str] | None]]
"""Gives the headers that say who asks, for instance ``{"Authorization": "Bearer …"}``.

It is awaited before each request, and once more if the answer is 401 or 403: then the request is
sent again with what it returns, or fails with that status if it returns None. It is called by many
tasks at once. What it raises is raised by the request; cancelling the request cancels it.
"""
