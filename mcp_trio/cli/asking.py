"""The commands that send a request and show its answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import trio

from mcp_trio import errors
from mcp_trio.cli.session import FAILED, SUCCEEDED, Session
from mcp_trio.client.client import Client
from mcp_trio.client.requests import LogStream, ProgressHandler

__all__ = [
    "KINDS",
    "Request",
    "Shown",
    "answer",
    "call",
    "discover",
    "fetch",
    "list_all",
    "prompt",
    "read",
    "show",
]

T = TypeVar("T")

KINDS: Final = ("tools", "resources", "templates", "prompts")
"""The lists of a server, as they are called on the command line."""

WIRE_NAMES: Final = {"templates": "resourceTemplates"}


async def answer(session: Session, request: Callable[[], Awaitable[T]]) -> T:
    """Wait for an answer, for as long as the user wants to.

    Raises:
        trio.TooSlowError: it took longer.
    """
    result: list[T] = []
    with trio.move_on_after(float("inf") if session.timeout is None else session.timeout):
        result.append(await request())
    if not result:
        raise trio.TooSlowError(f"no answer within {session.timeout:g} s")
    return result[0]


@attrs.frozen
class Shown:
    """The answer to a request, as it is to be written.

    Attributes:
        text: what to write.
        failed: whether the exit status says that something has failed.
    """

    text: bytes
    failed: bool = False


Request: TypeAlias = Callable[[Client, Session], Awaitable[Shown]]


async def show(client: Client, session: Session, *, request: Request) -> int:
    """Make a request and write the answer; the exit status."""
    shown = await request(client, session)
    await session.out.write(shown.text)
    return FAILED if shown.failed else SUCCEEDED


async def discover(client: Client, session: Session) -> Shown:
    """What the server is."""
    result = await answer(session, client.discover)
    return Shown(session.display.discovered(result))


async def fetch(client: Client, session: Session, kinds: Sequence[str]) -> dict[str, Sequence[Any]]:
    """The lists by their wire names; of several, those that the server has.

    Raises:
        errors.MethodNotFound: it has none of them.
    """
    methods: dict[str, Callable[[], Awaitable[Sequence[Any]]]] = {
        "tools": client.all_tools,
        "resources": client.all_resources,
        "templates": client.all_resource_templates,
        "prompts": client.all_prompts,
    }
    lists: dict[str, Sequence[Any]] = {}
    absent = None
    for kind in kinds:
        try:
            lists[WIRE_NAMES.get(kind, kind)] = await answer(session, methods[kind])
        except errors.MethodNotFound as problem:
            absent = problem
    if not lists and absent is not None:
        raise absent
    return lists


async def list_all(client: Client, session: Session, *, kinds: Sequence[str]) -> Shown:
    """What the server has."""
    return Shown(session.display.listed(await fetch(client, session, kinds)))


async def call(
    client: Client,
    session: Session,
    *,
    name: str,
    arguments: Mapping[str, Any],
    progress: ProgressHandler | None = None,
    log: LogStream | None = None,
) -> Shown:
    """Call a tool."""
    result = await answer(
        session, partial(client.call_tool, name, arguments, progress=progress, log=log)
    )
    return Shown(session.display.called(result), failed=bool(result.is_error))


async def read(
    client: Client,
    session: Session,
    *,
    uri: str,
    progress: ProgressHandler | None = None,
    log: LogStream | None = None,
) -> Shown:
    """Read a resource."""
    result = await answer(session, partial(client.read_resource, uri, progress=progress, log=log))
    return Shown(session.display.read(result))


async def prompt(
    client: Client,
    session: Session,
    *,
    name: str,
    arguments: Mapping[str, str],
    progress: ProgressHandler | None = None,
    log: LogStream | None = None,
) -> Shown:
    """Get a prompt."""
    result = await answer(
        session, partial(client.get_prompt, name, arguments, progress=progress, log=log)
    )
    return Shown(session.display.prompted(result))
