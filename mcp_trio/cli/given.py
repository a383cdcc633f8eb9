"""The options of the commands, and what they come to."""

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs
import click
import trio

from mcp_trio import errors
from mcp_trio.cli.display import Display, JsonDisplay
from mcp_trio.cli.options import TOKEN, Target, read_headers, read_object, read_seconds
from mcp_trio.cli.session import Body, Session
from mcp_trio.cli.text import harmless
from mcp_trio.protocol import meta

__all__ = ["ARGUMENTS", "COMMON", "FOLLOWING", "GIVE_UP", "LOG", "Given", "Option"]

Option: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

COMMON: Final[tuple[Option, ...]] = (
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

ARGUMENTS: Final = click.option(
    "--arguments",
    callback=read_object,
    metavar="JSON",
    help="A JSON object; - reads it from standard input.",
)

LOG: Final = click.option(
    "--log",
    type=click.Choice(meta.LOG_LEVELS, case_sensitive=False),
    help="Show the server's log messages of this level and above, on standard error.",
)

FOLLOWING: Final[tuple[Option, ...]] = (
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
        "wire",
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


GIVE_UP: Final = click.option(
    "--give-up-after",
    "give_up",
    callback=read_seconds,
    metavar="SECONDS",
    help="End after so long without a stream; by default it is tried for ever.",
)


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
        form = "%(levelname)s %(name)s: %(message)s" if self.verbose else "mcp-trio: %(message)s"
        handler.setFormatter(_Harmless(form))
        handler.addFilter(_is_news)
        level = logging.DEBUG if self.verbose else logging.WARNING
        logging.basicConfig(level=level, handlers=[handler])
        if session.streaming and not self.as_json and not self.verbose:
            # Whoever looks wants to know why nothing comes.
            logging.getLogger("mcp_trio.client").setLevel(logging.INFO)
        return trio.run(session.conduct, body)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether it is something else than what is raised as well."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(isinstance(argument, errors.WatchEnded) for argument in arguments)


class _Harmless(logging.Formatter):
    """Log messages may quote what a server has sent."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, without what would steer a terminal."""
        return harmless(super().format(record))
