"""The commands and their options, as they are typed."""

import functools
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import click

from mcp_trio.cli import asking, following
from mcp_trio.cli.display import End
from mcp_trio.cli.given import ARGUMENTS, COMMON, FOLLOWING, GIVE_UP, LOG, Given, Option
from mcp_trio.cli.options import TOKEN, Target, combine_filter, split_command
from mcp_trio.cli.session import Session
from mcp_trio.client.client import Client
from mcp_trio.client.watch import WatchOptions

__all__ = ["run"]

INTERRUPTED: Final = 130
USAGE: Final = 2


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say; the exit status."""
    if sys.stdout is None or sys.stderr is None:
        return USAGE  # what is opened next would be taken for them
    ours, command = split_command(arguments)
    try:
        status: int | None = main.main(ours, "mcp-trio", standalone_mode=False, obj=command)
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except click.Abort:
        return INTERRUPTED
    return status or 0


def server_command(
    name: str, usage: str, *options: Option
) -> Callable[[Callable[..., int]], click.Command]:
    """A command that talks to a server; its function gets what is `Given`, and its own options.

    Args:
        name: what it is called.
        usage: what the help says of the words before ``--``.
        options: its own.
    """
    words = click.argument("words", nargs=-1, metavar=f"{usage} [-- COMMAND...]")

    def decorate(function: Callable[..., int]) -> click.Command:
        @click.pass_context
        def wrapped(context: click.Context, /, **values: Any) -> int:
            common = {
                name: values.pop(name) for name in ("as_json", "header", "timeout", "verbose")
            }
            given = Given(words=[*values.pop("words")], command=context.obj, **common)
            return function(given, **values)

        decorated: Callable[..., Any] = wrapped
        every: tuple[Option, ...] = (words, *options, *COMMON)
        for option in reversed(every):
            decorated = option(decorated)
        return main.command(name, help=function.__doc__)(decorated)

    return decorate


_HELP: Final = """Talk to a server of the Model Context Protocol.

The server is one at a URL, or a program that is started and spoken to over its standard input and
output. Its command stands at the end, behind two dashes.

\b
  mcp-trio list https://example.com/mcp
  mcp-trio call https://example.com/mcp echo --arguments '{"text": "hello"}'
  mcp-trio watch --resource note://a -- python server.py
"""


@click.group(
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Environment: {TOKEN} holds a bearer token that is sent to a URL. NO_COLOR switches"
    " colours off.",
)
@click.version_option(None, "--version", package_name="mcp-trio")
def main() -> None:
    """Has commands, and does nothing by itself."""


def conduct_request(
    given: Given, target: Target, request: Callable[..., Awaitable[asking.Shown]], log: str | None
) -> int:
    """Run a command whose request may take its time: the server may tell and ask meanwhile.

    Progress and questions are for people; the log is for whoever has asked for it.
    """
    session = Session(target, given.display(), timeout=given.timeout)
    if given.as_json and log is None:
        return given.conduct(session, functools.partial(asking.show, request=request))
    from mcp_trio.cli.questions import Questions, at_a_terminal
    from mcp_trio.cli.streams import Streams

    streams = Streams(session.err)
    if not given.as_json and at_a_terminal():
        session.options = Questions(streams).options()

    async def heard(client: Client, session: Session) -> asking.Shown:
        async with streams.shown():
            return await request(
                client,
                session,
                progress=None if given.as_json else streams.progress,
                log=None if log is None else (log, streams.log),
            )

    return given.conduct(session, functools.partial(asking.show, request=heard))


@server_command("discover", "[URL]")
def discover(given: Given) -> int:
    """Show what a server is and what it can do."""
    session = Session(given.target(), given.display(), timeout=given.timeout)
    return given.conduct(session, functools.partial(asking.show, request=asking.discover))


@server_command("list", "[URL] [tools|resources|templates|prompts|all]")
def list_server(given: Given) -> int:
    """List tools, resources, resource templates and prompts."""
    target = given.target()
    kind = given.words.pop(0) if given.words else "all"
    if kind != "all" and kind not in asking.KINDS:
        raise click.UsageError(f"{kind!r} is no list; there are {', '.join(asking.KINDS)} and all")
    kinds = asking.KINDS if kind == "all" else (kind,)
    session = Session(target, given.display(), timeout=given.timeout)
    request = functools.partial(asking.list_all, kinds=kinds)
    return given.conduct(session, functools.partial(asking.show, request=request))


@server_command("call", "[URL] NAME", ARGUMENTS, LOG)
def call(given: Given, arguments: dict[str, Any] | None, log: str | None) -> int:
    """Call a tool. A tool that says it has failed makes the exit status 1."""
    target, name = given.target(), given.word("the NAME of the tool")
    request = functools.partial(asking.call, name=name, arguments=arguments or {})
    return conduct_request(given, target, request, log)


@server_command("read", "[URL] URI", LOG)
def read(given: Given, log: str | None) -> int:
    """Read a resource. Into a file or a pipe it is written byte by byte as it is."""
    target, uri = given.target(), given.word("the URI of the resource")
    return conduct_request(given, target, functools.partial(asking.read, uri=uri), log)


@server_command("prompt", "[URL] NAME", ARGUMENTS, LOG)
def prompt(given: Given, arguments: dict[str, Any] | None, log: str | None) -> int:
    """Show a prompt with its arguments filled in."""
    target, name = given.target(), given.word("the NAME of the prompt")
    for argument, value in (arguments or {}).items():
        if not isinstance(value, str):
            raise click.UsageError(f"--arguments: {argument} must be a string")
    request = functools.partial(asking.prompt, name=name, arguments=arguments or {})
    return conduct_request(given, target, request, log)


@server_command("listen", "[URL]", *FOLLOWING)
def listen(given: Given, reread: bool | None, seconds: float | None, **filters: Any) -> int:
    """Follow changes on one subscription, until it ends. Without options, all three lists.

    Ctrl-C ends it in peace. The exit status is 0 if the server or you have ended it, and 1 if it
    was lost.
    """
    return conduct_following(given, following.listen, reread, seconds, filters)


@server_command("watch", "[URL]", *FOLLOWING, GIVE_UP)
def watch(
    given: Given, reread: bool | None, seconds: float | None, give_up: float | None, **filters: Any
) -> int:
    """Follow changes for as long as you like, whatever happens. Without options, all three lists.

    What `listen` does, and it goes on: a stream that ends or is lost is opened again, and a
    command that has ended is started again. After each gap a resync says that changes may have
    been missed. The exit status is 0 if you have ended
    it, and 1 if it cannot go on.
    """
    options = WatchOptions() if give_up is None else WatchOptions(give_up_after=give_up)
    body = functools.partial(following.watch, options=options)
    return conduct_following(given, body, reread, seconds, filters, restart=True)


def conduct_following(
    given: Given,
    follow: Callable[..., Awaitable[End]],
    reread: bool | None,
    seconds: float | None,
    filters: Mapping[str, Any],
    *,
    restart: bool = False,
) -> int:
    """Run a command that follows changes."""
    wanted = combine_filter(**filters)
    display = given.display()
    session = Session(
        given.target(), display, streaming=True, timeout=given.timeout, restart=restart
    )
    reread = display.rereads if reread is None else reread
    body = functools.partial(follow, wanted=wanted, seconds=seconds, reread=reread)
    return given.conduct(session, body)
