"""What every client can be told when it is opened, however its server is reached.

Source: specification, client/elicitation, client/sampling, client/roots; basic/patterns/mrtr.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeAlias, TypedDict

from mcp_trio import types
from mcp_trio.client.cache import ResponseCache

__all__ = [
    "MAX_ROUNDS",
    "ClientOptions",
    "ElicitationHandler",
    "ElicitationUrlHandler",
    "RootsHandler",
    "SamplingHandler",
]

MAX_ROUNDS: Final = 10

ElicitationHandler: TypeAlias = Callable[
    [types.ElicitRequestFormParams], Awaitable[types.ElicitResult]
]
"""Has the user fill in a form. `accept_form` makes the answer of one who did; an answer with
``action="decline"`` says no, one with ``action="cancel"`` leaves the question open."""

ElicitationUrlHandler: TypeAlias = Callable[
    [types.ElicitRequestURLParams], Awaitable[types.ElicitResult]
]
"""Asks the user whether to open a web page, and opens it. Show the page's host before; an answer
with ``action="accept"`` says that the user agreed, not that anything has happened there."""

SamplingHandler: TypeAlias = Callable[
    [types.CreateMessageRequestParams], Awaitable[types.CreateMessageResult]
]
"""Asks the client's model. A user should be able to say no; raise an exception then."""

RootsHandler: TypeAlias = Callable[[types.ListRootsRequestParams], Awaitable[types.ListRootsResult]]
"""Says which directories and files the server may work in."""


class ClientOptions(TypedDict, total=False):
    """The keyword arguments that `Client` and all of the `open_*_client` functions take.

    Attributes:
        client_info: name and version that the server is told.
        capabilities: what the client can do beyond what follows from its handlers, as the
            server is told: extensions, for instance, or that its model may use tools.
        on_elicitation: awaited with each form that the server wants to have filled in.
        on_elicitation_url: awaited with each web page that the server wants the user to visit.
        on_sampling: awaited with each request to the client's model.
        on_roots: awaited when the server asks which files it may work with.
        max_rounds: how many times a server may ask for input before it has to answer a request;
            10 by default.
        cache: keeps answers for as long as the server allows. There is none by default.
        cache_context: for whom the client asks, where several share a cache. Answers that the
            server marks as private are shared by those that give equal values here, and by no
            others. Clients with different credentials must give different ones, or none. With
            an `auth` hook, whose credentials can be another's with each request, private answers
            are kept only if this is given, and so says that they never are.

    A server is told that the client can do what there is a handler for, and so asks for nothing
    else. The questions of one round are answered at the same time, each handler in a task of its
    own. What a handler raises ends the others and is raised by the call that led to the
    question. Cancelling that call cancels them all.
    """

    client_info: types.Implementation | None
    capabilities: types.ClientCapabilities | None
    on_elicitation: ElicitationHandler | None
    on_elicitation_url: ElicitationUrlHandler | None
    on_sampling: SamplingHandler | None
    on_roots: RootsHandler | None
    max_rounds: int
    cache: ResponseCache | None
    cache_context: Hashable
