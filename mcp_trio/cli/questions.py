"""Questions of a server, asked at the terminal.

They go to standard error, so that standard output stays what the command is for.
"""

import os
import sys
from typing import Final

import attrs
import trio
from rich.text import Text

from mcp_trio import types
from mcp_trio.cli import fields
from mcp_trio.cli.streams import Streams
from mcp_trio.cli.text import harmless
from mcp_trio.client.inputs import accept_form
from mcp_trio.client.options import ClientOptions

__all__ = ["Questions", "at_a_terminal"]

_STDIN: Final = 0


def at_a_terminal() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


class _NoAnswer(Exception):
    """The end of the input: the question stays open."""


@attrs.define(eq=False)
class Questions:
    """Asks one question after the other.

    Attributes:
        streams: where to write.
    """

    streams: Streams
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def options(self) -> ClientOptions:
        """What makes a client ask here."""
        return ClientOptions(on_elicitation=self.fill_in, on_elicitation_url=self.visit)

    async def fill_in(self, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        """Have a form filled in, field by field."""
        async with self._turn:
            await self._say(params.message)
            schema = params.requested_schema
            content = {}
            try:
                if not await self._yes("answer?", default=True):
                    return types.ElicitResult(action="decline")
                for name, field in schema.properties.items():
                    value = await self._field(name, field, required=name in (schema.required or ()))
                    if value is not None:
                        content[name] = value
            except _NoAnswer:
                return types.ElicitResult(action="cancel")
            return accept_form(params, content)

    async def visit(self, params: types.ElicitRequestURLParams) -> types.ElicitResult:
        """Show a web page's address; nothing is opened."""
        async with self._turn:
            await self._say(params.message)
            await self.streams.say(Text(f"  {harmless(params.url)}", "cyan underline"))
            try:
                agreed = await self._yes("will you visit that page?", default=False)
            except _NoAnswer:
                return types.ElicitResult(action="cancel")
            return types.ElicitResult(action="accept" if agreed else "decline")

    async def _say(self, message: str) -> None:
        await self.streams.say(
            Text.assemble(("the server asks: ", "bold magenta"), harmless(message))
        )

    async def _yes(self, question: str, *, default: bool) -> bool:
        while True:
            line = await self._line(f"{question} [{'Y/n' if default else 'y/N'}] ")
            answer = fields.YES_NO.get(line.lower()) if line else default
            if answer is not None:
                return answer

    async def _field(
        self, name: str, field: types.PrimitiveSchemaDefinition, *, required: bool
    ) -> fields.Value | None:
        """The value of one field; None where it is left out."""
        choices = fields.choices(field)
        for value, title in choices:
            text = value if title == value else f"{value}: {title}"
            await self.streams.say(Text(f"    {harmless(text)}", "dim"))
        while True:
            line = await self._line(fields.prompt(name, field))
            if not line:
                if field.default is not None or not required:
                    return None
                continue
            try:
                return fields.parse(line, field, [value for value, _ in choices])
            except ValueError as problem:
                await self.streams.say(Text(f"    {problem}", "yellow"))

    async def _line(self, prompt: str) -> str:
        await self.streams.say(Text(harmless(prompt)), end="")
        # A terminal hands over whole lines. No thread is left behind that would wait for one.
        await trio.lowlevel.wait_readable(_STDIN)
        data = os.read(_STDIN, 65536)
        if not data:
            await self.streams.say(Text())
            raise _NoAnswer
        return data.decode(sys.stdin.encoding, errors="replace").strip()
