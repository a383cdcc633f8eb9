"""How it looks to people: colours and tables on a terminal, plain text anywhere else."""

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mcp_trio import codec, errors, types
from mcp_trio.cli import contents, tables
from mcp_trio.cli.display import Display, End, Listing, kind_of, resync_reason
from mcp_trio.cli.options import TOKEN
from mcp_trio.cli.text import beginning, harmless
from mcp_trio.protocol import meta
from mcp_trio.subscriptions.events import Event, ExtensionEvent, ResourceUpdated
from mcp_trio.subscriptions.filter import SubscriptionFilter

__all__ = ["HumanDisplay"]

_UNAUTHORIZED: Final = 401
_PREVIEW: Final = 10
"""How many lines of a changed resource are shown."""
_PLAIN_WIDTH: Final = 1_000_000
"""Lines of a file or a pipe are as long as they are."""

_NAMES: Final = {
    "tools": "tools changed",
    "prompts": "prompts changed",
    "resources": "resources changed",
    "updated": "updated",
    "tasks": "task",
    "extension": "extension",
}


class HumanDisplay(Display):
    """Text with colours and tables.

    Args:
        console: where it will be seen; None for standard output.
    """

    rereads = True
    end_on_stderr = True

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(file=sys.stdout, highlight=False) if console is None else console
        self._plain = not self._console.is_terminal
        if self._plain:
            self._console.width = _PLAIN_WIDTH

    def _render(self, *parts: Text | Table) -> bytes:
        with self._console.capture() as captured:
            for part in parts:
                self._console.print(part, soft_wrap=isinstance(part, Text))
        text = captured.get()
        if self._plain:
            text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
        return text.encode(self._console.encoding, errors="replace")

    def discovered(self, result: types.DiscoverResult) -> bytes:
        """A list of what is known, name by name."""
        said = (result.meta or {}).get(meta.META_SERVER_INFO)
        info = said if isinstance(said, Mapping) else {}
        rows: list[tuple[str, Any]] = [
            ("server", " ".join(str(info[key]) for key in ("name", "version") if key in info)),
            ("title", info.get("title")),
            ("about", info.get("description")),
            ("website", info.get("websiteUrl")),
            ("revisions", ", ".join(result.supported_versions)),
            *_capabilities(codec.unstructure(result.capabilities)),
            ("instructions", result.instructions),
        ]
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="" if self._plain else "bold")
        grid.add_column(overflow="fold")
        for name, value in rows:
            if value:
                grid.add_row(name, Text(harmless(str(value))))
        return self._render(grid)

    def listed(self, lists: Listing) -> bytes:
        """A table for each list, with a title where there are several."""
        parts: list[Text | Table] = []
        for kind, items in lists.items():
            title = f"{tables.TITLES[kind]}: {len(items) or 'none'}"
            if len(lists) > 1 or not items:
                if parts and self._plain:
                    parts.append(Text())
                parts.append(Text(title, "bold green"))
            if items:
                parts.append(tables.table(kind, items, plain=self._plain))
        return self._render(*parts)

    def called(self, result: types.CallToolResult) -> bytes:
        """The content, one piece below the other."""
        pieces = list(contents.tool_output(result))
        if result.is_error:
            pieces.insert(0, Text("the tool failed:", "bold red"))
        return self._render(*pieces)

    def read(self, result: types.ReadResourceResult) -> bytes:
        """The content; where no terminal would suffer, byte by byte."""
        if self._plain:
            exact = [contents.data_of(each) for each in result.contents]
            if None not in exact:
                return b"".join(each for each in exact if each is not None)
        parts = []
        for each in result.contents:
            if len(result.contents) > 1:
                parts.append(Text(harmless(each.uri), "cyan"))
            parts.append(Text(contents.preview(each)))
        return self._render(*parts)

    def prompted(self, result: types.GetPromptResult) -> bytes:
        """Who says what."""
        parts = []
        if result.description:
            parts.append(Text(harmless(result.description), "dim"))
        for message in result.messages:
            who = Text(f"{message.role}: ", "bold green" if message.role == "user" else "bold blue")
            parts.append(Text.assemble(who, contents.block(message.content)))
        return self._render(*parts)

    def acknowledged(self, granted: SubscriptionFilter, declined: SubscriptionFilter) -> bytes:
        """One line for each part of the filter."""
        lines = [self._event("listening", "bold green", part) for part in _parts(granted)]
        lines += [self._event("declined", "yellow", part) for part in _parts(declined)]
        return self._render(*(lines or [self._event("listening", "bold green", "to nothing")]))

    def changed(self, event: Event) -> bytes:
        """When and what."""
        kind = kind_of(event)
        if kind is None:
            return self._render(
                self._event("resync", "bold magenta", _unquoted(resync_reason(event)))
            )
        about = ""
        if isinstance(event, ResourceUpdated):
            about = event.uri
        elif isinstance(event, ExtensionEvent):
            about = f"{event.method} {codec.encode_json(dict(event.params)).decode()}"
        return self._render(self._event(_NAMES[kind], "bold cyan", about))

    def reread(self, result: types.ReadResourceResult) -> bytes:
        """Its beginning."""
        lines = [
            line
            for each in result.contents
            for line in beginning(contents.preview(each), _PREVIEW, self._inner_width())
        ]
        return self._render(*(_indented(Text(line)) for line in lines or ["(empty)"]))

    def relisted(self, before: Listing | None, after: Listing) -> bytes:
        """What is new, what is gone, what is not as it was."""
        if before is None:
            counts = (
                f"{len(items)} {tables.TITLES[kind].lower()}" for kind, items in after.items()
            )
            return self._render(_indented(Text(", ".join(counts))))
        colours = {"+": "green", "-": "red", "~": "yellow"}
        lines = [
            Text.assemble(
                (f"{each.sign} {each.name}", colours[each.sign]),
                f"  {each.description}" if each.description else "",
            )
            for each in tables.differences(before, after)
        ]
        for line in lines:
            line.truncate(self._inner_width(), overflow="ellipsis")
        return self._render(*map(_indented, lines or [Text("nothing that can be seen", "dim")]))

    def rereading(self, event: Event) -> bytes:
        """Its name."""
        kind = kind_of(event)
        about = event.uri if isinstance(event, ResourceUpdated) else f"the list of {kind}"
        return self._render(_indented(Text(harmless(about), "cyan")))

    def not_reread(self, problem: Exception) -> bytes:
        """Why."""
        return self._render(_indented(Text(f"cannot be read: {harmless(str(problem))}", "red")))

    def ended(self, end: End) -> bytes:
        """A line with the reason."""
        reason = harmless(_unquoted(end.reason or ""))
        if not end.failed:
            words = {"graceful": "ended by the server", "local": "stopped"}[end.how]
            return self._render(self._event(words, "bold green", reason))
        if isinstance(end.error, errors.HttpStatusError) and end.error.status == _UNAUTHORIZED:
            reason += f"; a bearer token is taken from {TOKEN}"
        what = "lost" if end.how == "lost" else "error"
        return self._render(Text.assemble((f"{what}: ", "bold red"), reason))

    def _event(self, what: str, style: str, about: str) -> Text:
        clock = Text(time.strftime("%H:%M:%S  "), "dim")
        return Text.assemble(clock, (f"{what:<20}", style), harmless(about))

    def _inner_width(self) -> int:
        return self._console.width - len(_MARGIN)


def _unquoted(reason: str) -> str:
    """A reason without what the server has written to standard error, which has been passed on."""
    return reason.partition("; the end of its stderr:")[0]


_MARGIN: Final = " " * 10 + "│ "


def _indented(line: Text) -> Text:
    return Text.assemble((_MARGIN, "dim"), line)


def _parts(wanted: SubscriptionFilter) -> Iterable[str]:
    """A filter, one part at a time, as people would say it."""
    lists = {
        "tools": wanted.tools_list_changed,
        "prompts": wanted.prompts_list_changed,
        "resources": wanted.resources_list_changed,
    }
    named = [name for name, asked in lists.items() if asked]
    if named:
        yield f"the list{'s'[: len(named) != 1]} of {' and '.join(_enumerated(named))}"
    yield from wanted.resource_subscriptions
    yield from (f"task {task}" for task in wanted.task_ids)
    for name, value in wanted.extensions.items():
        yield f"{name}: {codec.encode_json(value).decode()}"


def _enumerated(names: list[str]) -> list[str]:
    """Names to be joined by "and"."""
    return [", ".join(names[:-1]), names[-1]] if len(names) > 1 else names


def _capabilities(value: Any) -> Iterable[tuple[str, str]]:
    """Each capability with what it can do beside being there."""
    for name, details in value.items():
        inner = details if isinstance(details, Mapping) else {}
        yield name, ", ".join(key for key, said in inner.items() if said is not False) or "yes"
