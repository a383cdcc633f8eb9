"""Questions of a server, asked at the terminal.

They go to standard error, so that standard output stays what the command is for.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs
import trio
from rich.text import Text

from mcp_trio import types
from mcp_trio.cli.streams import Streams
from mcp_trio.cli.text import harmless
from mcp_trio.client.inputs import accept_form
from mcp_trio.client.options import ClientOptions

__all__ = ["Questions", "at_a_terminal"]

_STDIN: Final = 0
_YES_NO: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}

Value: TypeAlias = str | float | bool | list[str]


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
            answer = _YES_NO.get(line.lower()) if line else default
            if answer is not None:
                return answer

    async def _field(
        self, name: str, field: types.PrimitiveSchemaDefinition, *, required: bool
    ) -> Value | None:
        """The value of one field; None where it is left out."""
        choices = _choices(field)
        for value, title in choices:
            text = value if title == value else f"{value}: {title}"
            await self.streams.say(Text(f"    {harmless(text)}", "dim"))
        while True:
            line = await self._line(_prompt(name, field))
            if not line:
                if field.default is not None or not required:
                    return None
                continue
            try:
                return _parse(line, field, [value for value, _ in choices])
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


def _prompt(name: str, field: types.PrimitiveSchemaDefinition) -> str:
    """The name of a field, and what is known of it."""
    text = f"  {field.title or name}"
    if field.description:
        text += f" ({field.description})"
    hint = _hint(field)
    if hint:
        text += f" <{hint}>"
    if field.default is not None:
        default = field.default
        if not isinstance(default, str | int | float):
            default = ", ".join(default)
        text += f" [{default}]"
    return f"{text}: "


def _hint(field: types.PrimitiveSchemaDefinition) -> str:
    if isinstance(field, types.StringSchema):
        return field.format or ""
    if isinstance(field, types.BooleanSchema):
        return "yes or no"
    if isinstance(field, types.NumberSchema):
        return field.type
    return "several, with commas between" if field.type == "array" else "one of them"


def _choices(field: types.PrimitiveSchemaDefinition) -> list[tuple[str, str]]:
    """The values to choose from, and what each is called."""
    if isinstance(field, types.LegacyTitledEnumSchema):
        return list(zip(field.enum, field.enum_names, strict=False))
    if isinstance(field, types.UntitledSingleSelectEnumSchema):
        return [(value, value) for value in field.enum]
    if isinstance(field, types.TitledSingleSelectEnumSchema):
        return [(option.const, option.title) for option in field.one_of]
    if isinstance(field, types.UntitledMultiSelectEnumSchema):
        return [(value, value) for value in field.items.enum]
    if isinstance(field, types.TitledMultiSelectEnumSchema):
        return [(option.const, option.title) for option in field.items.any_of]
    return []


def _parse(line: str, field: types.PrimitiveSchemaDefinition, choices: Sequence[str]) -> Value:
    """What was typed, as the field's type.

    Raises:
        ValueError: it is none; the message is for whoever has typed it.
    """
    if isinstance(field, types.BooleanSchema):
        if line.lower() not in _YES_NO:
            raise ValueError("yes or no?")
        return _YES_NO[line.lower()]
    if isinstance(field, types.NumberSchema):
        try:
            return int(line) if field.type == "integer" else float(line)
        except ValueError:
            raise ValueError(f"that is no {field.type}") from None
    if not choices:
        return line
    values = [part.strip() for part in line.split(",")] if field.type == "array" else [line]
    for value in values:
        if value not in choices:
            raise ValueError(f"{value} is not among them")
    return values if field.type == "array" else line
