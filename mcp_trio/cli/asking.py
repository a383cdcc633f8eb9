"""The commands that send a request and show its answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import trio

from mcp_trio import errors
from mcp_trio.cli.session import FAILED, SUCCEEDED, Session
from mcp_trio.client.client import Client
from mcp_trio.client.requests import LogStream, ProgressHandler

__all__ = ["KINDS", "call", "discover", "fetch", "prompt", "read", "show_lists"]

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


async def discover(client: Client, session: Session) -> int:
    """Show what the server is."""
    result = await answer(session, client.discover)
    await session.out.write(session.display.discovered(result))
    return SUCCEEDED


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


async def show_lists(client: Client, session: Session, *, kinds: Sequence[str]) -> int:
    """Show what the server has."""
    await session.out.write(session.display.listed(await fetch(client, session, kinds)))
    return SUCCEEDED


async def call(
    client: Client,
    session: Session,
    *,
    name: str,
    arguments: Mapping[str, Any],
    progress: ProgressHandler | None,
    log: LogStream | None,
) -> int:
    """Call a tool."""
    result = await answer(
        session, partial(client.call_tool, name, arguments, progress=progress, log=log)
    )
    await session.out.write(session.display.called(result))
    return FAILED if result.is_error else SUCCEEDED


async def read(
    client: Client,
    session: Session,
    *,
    uri: str,
    progress: ProgressHandler | None,
    log: LogStream | None,
) -> int:
    """Read a resource."""
    result = await answer(session, partial(client.read_resource, uri, progress=progress, log=log))
    await session.out.write(session.display.read(result))
    return SUCCEEDED


async def prompt(
    client: Client,
    session: Session,
    *,
    name: str,
    arguments: Mapping[str, str],
    progress: ProgressHandler | None,
    log: LogStream | None,
) -> int:
    """Get a prompt."""
    result = await answer(
        session, partial(client.get_prompt, name, arguments, progress=progress, log=log)
    )
    await session.out.write(session.display.prompted(result))
    return SUCCEEDED
