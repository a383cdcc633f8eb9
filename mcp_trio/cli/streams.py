"""What is shown on standard error while a request is under way: its progress and its log."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import attrs
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mcp_trio import codec, types
from mcp_trio.cli.output import Writer
from mcp_trio.cli.text import first_line, harmless

__all__ = ["Streams"]

_CLEAR: Final = b"\r\x1b[2K"
_BAR: Final = 30

_COLOURS: Final = {
    "warning": "yellow",
    "error": "red",
    "critical": "bold red",
    "alert": "bold red",
    "emergency": "bold red",
}


@attrs.define(eq=False)
class Streams:
    """Shows progress and log messages: on a terminal in one line that is overwritten, and above.

    Attributes:
        err: where to.
    """

    err: Writer
    _console: Console = attrs.field(
        factory=lambda: Console(stderr=True, highlight=False), init=False
    )
    _line: bytes = attrs.field(default=b"", init=False)

    async def progress(self, params: types.ProgressNotificationParams) -> None:
        """How far it has come."""
        if not self._console.is_terminal:
            await self.say(Text(_progress_text(params)))
            return
        bar = ProgressBar(total=params.total, completed=params.progress, width=_BAR)
        grid = Table.grid(padding=(0, 1, 0, 0))
        text = Text(_progress_text(params), no_wrap=True, overflow="ellipsis")
        grid.add_row(*([bar] if params.total else []), text)
        self._line = self._render(grid).rstrip(b"\n")
        await self.err.write(_CLEAR + self._line)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """What the server has to say."""
        data = params.data
        text = data if isinstance(data, str) else codec.encode_json(data).decode()
        source = f"{params.logger}: " if params.logger else ""
        head = (f"{params.level}: ", _COLOURS.get(params.level, "dim"))
        await self.say(Text.assemble(head, harmless(f"{source}{text}")))

    @asynccontextmanager
    async def shown(self) -> AsyncGenerator["Streams"]:
        """Leave no line behind that is not whole."""
        try:
            yield self
        finally:
            if self._line:
                await self.err.last_words(_CLEAR)  # noqa: ASYNC102 - it is shielded, for a time

    async def say(self, text: Text, end: str = "\n") -> None:
        """Write a line, above the progress if that is shown."""
        shown = self._render(text, end)
        await self.err.write(_CLEAR + shown + self._line if self._line else shown)

    def _render(self, part: Text | Table, end: str = "\n") -> bytes:
        with self._console.capture() as captured:
            self._console.print(part, soft_wrap=isinstance(part, Text), end=end)
        return captured.get().encode(self._console.encoding, errors="replace")


def _progress_text(params: types.ProgressNotificationParams) -> str:
    count = f"{params.progress:g}"
    if params.total:
        count += f" of {params.total:g}"
    return f"{count}  {first_line(params.message)}".rstrip()
