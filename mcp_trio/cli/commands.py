"""The commands and their options, as they are typed."""

import functools
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs
import click
import trio

from mcp_trio.cli import asking, following
from mcp_trio.cli.display import Display, JsonDisplay
from mcp_trio.cli.options import (
    TOKEN,
    Target,
    combine_filter,
    read_headers,
    read_object,
    read_seconds,
    split_command,
)
from mcp_trio.cli.session import Body, Session
from mcp_trio.cli.text import harmless
from mcp_trio.client.client import Client
from mcp_trio.protocol import meta

__all__ = ["run"]

INTERRUPTED: Final = 130
USAGE: Final = 2

_Option: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


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


@attrs.frozen
class Given:
    """The options that all commands have, and the words that are not options.

    Attributes:
        words: those words that nobody has taken yet.
        command: what stood behind ``--``; None without one.
        as_json: whether a program reads the output.
        header: what is sent with each request.
        timeout: seconds for an answer.
        verbose: whether we say what we do.
    """

    words: list[str]
    command: list[str] | None
    as_json: bool
    header: tuple[tuple[str, str], ...]
    timeout: float | None
    verbose: bool

    def target(self) -> Target:
        """Take the server."""
        return Target.take(self.words, self.command, self.header)

    def word(self, what: str) -> str:
        """Take a word that must be there."""
        if not self.words:
            raise click.UsageError(f"{what} is missing")
        return self.words.pop(0)

    def display(self) -> Display:
        """Who looks."""
        if self.as_json:
            return JsonDisplay()
        from mcp_trio.cli.human import HumanDisplay  # programs need no tables

        return HumanDisplay()

    def conduct(self, session: Session, body: Body) -> int:
        """Run a command; nothing may be left of its words."""
        if self.words:
            where = "" if self.command is None else "; the server is the command behind --"
            raise click.UsageError(f"unexpected: {' '.join(self.words)}{where}")
        handler = logging.StreamHandler()
        handler.setFormatter(_Harmless("%(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(
            level=logging.DEBUG if self.verbose else logging.WARNING, handlers=[handler]
        )
        return trio.run(session.conduct, body)


class _Harmless(logging.Formatter):
    """Log messages may quote what a server has sent."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, without what would steer a terminal."""
        return harmless(super().format(record))


def server_command(
    name: str, usage: str, *options: _Option
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
        every: tuple[_Option, ...] = (words, *options, *_COMMON)
        for option in reversed(every):
            decorated = option(decorated)
        return main.command(name, help=function.__doc__)(decorated)

    return decorate


_COMMON: Final[tuple[_Option, ...]] = (
    click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs."),
    click.option(
        "--header",
        multiple=True,
        callback=read_headers,
        metavar="NAME:VALUE",
        help="Sent with each request to a URL; may be given several times. A bearer token is"
        f" better kept in the environment, in {TOKEN}.",
    ),
    click.option(
        "--timeout",
        callback=read_seconds,
        metavar="SECONDS",
        help="How long one answer may take: by default as long as it takes, an acknowledgement"
        " 10 s.",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Say on standard error what is done."),
)

_ARGUMENTS: Final = click.option(
    "--arguments",
    callback=read_object,
    metavar="JSON",
    help="A JSON object; - reads it from standard input.",
)

_LOG: Final = click.option(
    "--log",
    type=click.Choice(meta.LOG_LEVELS, case_sensitive=False),
    help="Show the server's log messages of this level and above, on standard error.",
)

_FOLLOWING: Final[tuple[_Option, ...]] = (
    click.option("--tools", is_flag=True, help="Follow the list of tools."),
    click.option("--prompts", is_flag=True, help="Follow the list of prompts."),
    click.option("--resources", is_flag=True, help="Follow the list of resources."),
    click.option(
        "--resource",
        "uris",
        multiple=True,
        metavar="URI",
        help="Follow a resource; may be given several times.",
    ),
    click.option(
        "--filter",
        "wanted",
        callback=read_object,
        metavar="JSON",
        help="What to follow, as the protocol has it; together with the options above.",
    ),
    click.option(
        "--for",
        "seconds",
        callback=read_seconds,
        metavar="SECONDS",
        help="Stop so long after the acknowledgement.",
    ),
    click.option(
        "--read/--no-read",
        "reread",
        default=None,
        help="Read again what has changed, and show it; by default for people, and not with"
        " --json.",
    ),
)


_HELP: Final = """Talk to a server of the Model Context Protocol.

The server is one at a URL, or a program that is started and spoken to over its standard input and
output. Its command stands at the end, behind two dashes.

\b
  mcp-trio list https://example.com/mcp
  mcp-trio call https://example.com/mcp echo --arguments '{"text": "hello"}'
  mcp-trio listen --resource note://a -- python server.py
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


@server_command("call", "[URL] NAME", _ARGUMENTS, _LOG)
def call(given: Given, arguments: dict[str, Any] | None, log: str | None) -> int:
    """Call a tool. A tool that says it has failed makes the exit status 1."""
    target, name = given.target(), given.word("the NAME of the tool")
    request = functools.partial(asking.call, name=name, arguments=arguments or {})
    return conduct_request(given, target, request, log)


@server_command("read", "[URL] URI", _LOG)
def read(given: Given, log: str | None) -> int:
    """Read a resource. Into a file or a pipe it is written byte by byte as it is."""
    target, uri = given.target(), given.word("the URI of the resource")
    return conduct_request(given, target, functools.partial(asking.read, uri=uri), log)


@server_command("prompt", "[URL] NAME", _ARGUMENTS, _LOG)
def prompt(given: Given, arguments: dict[str, Any] | None, log: str | None) -> int:
    """Show a prompt with its arguments filled in."""
    target, name = given.target(), given.word("the NAME of the prompt")
    for argument, value in (arguments or {}).items():
        if not isinstance(value, str):
            raise click.UsageError(f"--arguments: {argument} must be a string")
    request = functools.partial(asking.prompt, name=name, arguments=arguments or {})
    return conduct_request(given, target, request, log)


@server_command("listen", "[URL]", *_FOLLOWING)
def listen(
    given: Given,
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: tuple[str, ...],
    wanted: dict[str, Any] | None,
    seconds: float | None,
    reread: bool | None,
) -> int:
    """Follow changes on one subscription, until it ends. Without options, all three lists.

    Ctrl-C ends it in peace. The exit status is 0 if the server or you have ended it, and 1 if it
    was lost.
    """
    combined = combine_filter(wanted, tools=tools, prompts=prompts, resources=resources, uris=uris)
    display = given.display()
    session = Session(given.target(), display, streaming=True, timeout=given.timeout)
    body = functools.partial(
        following.listen,
        wanted=combined,
        seconds=seconds,
        reread=display.rereads if reread is None else reread,
    )
    return given.conduct(session, body)
