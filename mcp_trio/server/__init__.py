"""The server: tools, resources and prompts behind one object that any transport can serve.

`Server` is what an application makes and registers things with, `Context` is what a handler
learns of its request and asks its client, and `Limits` bounds how much one server takes on. The
questions are `Elicit`, `ElicitUrl`, `Sample` and `ListRoots`; a user's answer is `Accepted`,
`Declined` or `Dismissed`; and `InputRequired` is what a handler returns to ask step by step.
`Depends` marks a parameter that the server fills, `Complete` one that a client can complete,
`CacheHints` say how long clients may cache what, and `ResourceNotFound` is what a template
raises where there is nothing at a URI.
"""

from mcp_trio.server.caching import CacheHints
from mcp_trio.server.completion import Complete
from mcp_trio.server.context import Context
from mcp_trio.server.dependencies import Depends
from mcp_trio.server.limits import Limits
from mcp_trio.server.param_headers import Header
from mcp_trio.server.questions import (
    Accepted,
    Answer,
    Declined,
    Dismissed,
    Elicit,
    ElicitUrl,
    InputRequired,
    ListRoots,
    Question,
    Sample,
)
from mcp_trio.server.resources import ResourceNotFound
from mcp_trio.server.server import Server

__all__ = [
    "Accepted",
    "Answer",
    "CacheHints",
    "Complete",
    "Context",
    "Declined",
    "Depends",
    "Dismissed",
    "Elicit",
    "ElicitUrl",
    "Header",
    "InputRequired",
    "Limits",
    "ListRoots",
    "Question",
    "ResourceNotFound",
    "Sample",
    "Server",
]
