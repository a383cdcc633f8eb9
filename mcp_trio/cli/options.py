"""What stands on the command line, understood: servers, headers, JSON and filters."""

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import click

from mcp_trio import errors
from mcp_trio.subscriptions.filter import SubscriptionFilter, parse_filter

__all__ = [
    "TOKEN",
    "Target",
    "combine_filter",
    "read_headers",
    "read_object",
    "read_seconds",
    "split_command",
]

TOKEN: Final = "MCP_TRIO_TOKEN"  # noqa: S105 (the name of a variable)
"""The environment variable with a bearer token, which then need not be on the command line."""

_NO_LIMIT: Final = 2**31
_SHOWN: Final = 60
_OWN_FIELDS: Final = frozenset(
    {
        "toolsListChanged",
        "promptsListChanged",
        "resourcesListChanged",
        "resourceSubscriptions",
        "taskIds",
    }
)


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Split at the first ``--``: our own arguments, and the server's command if there is one."""
    if "--" not in arguments:
        return list(arguments), None
    at = arguments.index("--")
    return list(arguments[:at]), list(arguments[at + 1 :])


@attrs.frozen
class Target:
    """The server to talk to: one at a URL, or one that is started as a child process.

    Attributes:
        url: where it is; empty if it is to be started.
        command: how it is started.
        headers: sent with each request to a URL.
    """

    url: str = ""
    command: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def take(
        words: list[str], command: Sequence[str] | None, headers: Sequence[tuple[str, str]]
    ) -> "Target":
        """Take the target away from the words of a command line.

        Args:
            words: what is neither an option nor behind ``--``; a URL is taken off its front.
            command: what stood behind ``--``; None without one.
            headers: those that were given.

        Raises:
            click.UsageError: there is no target, or one that cannot be.
        """
        if command is not None:
            if not command:
                raise click.UsageError("behind -- there is no command")
            if headers:
                raise click.UsageError("--header is for a URL; a command is sent no headers")
            return Target(command=tuple(command))
        if not words:
            raise click.UsageError("no server: give its URL, or its command behind --")
        url = words.pop(0)
        if not _is_url(url):
            raise click.UsageError(
                f"{url!r} is not the URL of a server; it begins with http:// or https://."
                " A command stands at the end, behind --"
            )
        return Target(url=url, headers=_with_token(headers))


def _is_url(word: str) -> bool:
    return word.lower().startswith(("http://", "https://"))


def _with_token(headers: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    token = os.environ.get(TOKEN, "").strip()
    if not token or any(name.lower() == "authorization" for name, _ in headers):
        return tuple(headers)
    return (*headers, ("Authorization", f"Bearer {token}"))


def read_headers(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Take each ``NAME:VALUE`` apart."""
    headers = []
    for value in values:
        name, colon, content = value.partition(":")
        if not colon or not name.strip():
            # What is wrong may be a secret, so it is not repeated.
            raise click.BadParameter("expected NAME:VALUE")
        headers.append((name.strip(), content.strip()))
    return tuple(headers)


def read_object(_: click.Context, __: click.Parameter, value: str | None) -> dict[str, Any] | None:
    """Read a JSON object; ``-`` reads it from standard input."""
    if value is None:
        return None
    text = sys.stdin.read() if value == "-" else value
    shown = shorten(text)
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError as problem:
        raise click.BadParameter(f"not JSON: {problem}: {shown}") from None
    if not isinstance(parsed, dict):
        raise click.BadParameter(f'expected a JSON object, such as {{"a": 1}}, got {shown}')
    return parsed


def read_seconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Read a time."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise click.BadParameter(f"expected a number of seconds, got {shorten(value)!r}")
    return seconds


def shorten(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def combine_filter(
    wire: Mapping[str, Any] | None,
    *,
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: Sequence[str],
) -> SubscriptionFilter:
    """What to follow: the given filter and the flags together; without any, all three lists.

    Args:
        wire: a filter as it is on the wire; fields that are unknown are those of extensions.
        tools: the list of tools.
        prompts: the list of prompts.
        resources: the list of resources.
        uris: resources.

    Raises:
        click.UsageError: a field has the wrong type, or nothing is asked for.
    """
    if wire is None and not (tools or prompts or resources or uris):
        tools = prompts = resources = True
    try:
        base = parse_filter(
            wire or {},
            max_uris=_NO_LIMIT,
            extension_fields=[name for name in wire or () if name not in _OWN_FIELDS],
            absolute_uris=False,
        )
    except errors.InvalidParams as problem:
        raise click.UsageError(
            f"--filter: {problem.message.removeprefix('notifications.')}"
        ) from None
    combined = attrs.evolve(
        base,
        tools_list_changed=tools or base.tools_list_changed,
        prompts_list_changed=prompts or base.prompts_list_changed,
        resources_list_changed=resources or base.resources_list_changed,
        resource_subscriptions=(*base.resource_subscriptions, *uris),
    )
    if not combined:
        raise click.UsageError("--filter asks for nothing")
    return combined
