"""Lists of a server as tables, and what has changed in them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
from rich import box
from rich.table import Table
from rich.text import Text

from mcp_trio import types
from mcp_trio.cli.display import Listing
from mcp_trio.cli.text import first_line, harmless, size

__all__ = ["TITLES", "differences", "table"]

TITLES: Final = {
    "tools": "Tools",
    "resources": "Resources",
    "resourceTemplates": "Resource templates",
    "prompts": "Prompts",
}

_COLUMNS: Final = {
    "tools": ("NAME", "ARGUMENTS", "DESCRIPTION"),
    "resources": ("URI", "NAME", "TYPE", "SIZE", "DESCRIPTION"),
    "resourceTemplates": ("URI", "NAME", "TYPE", "DESCRIPTION"),
    "prompts": ("NAME", "ARGUMENTS", "DESCRIPTION"),
}


def table(kind: str, items: Sequence[Any], *, plain: bool) -> Table:
    """One list. Columns in which nothing stands are left out.

    Args:
        kind: its wire name.
        items: what is in it.
        plain: without lines and colours.
    """
    made = Table(
        box=None if plain else box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 2, 0, 0) if plain else (0, 1),
        header_style="" if plain else "bold",
    )
    rows = [_row(item) for item in items]
    used = [any(row[at].plain for row in rows) for at in range(len(_COLUMNS[kind]))]
    for at, title in enumerate(_COLUMNS[kind]):
        if used[at]:
            wide = plain or title in {"NAME", "SIZE"}
            made.add_column(
                title,
                style="" if plain or at else "cyan",
                justify="right" if title == "SIZE" else "left",
                overflow="fold",
                no_wrap=wide,
            )
    for row in rows:
        made.add_row(*(cell for cell, shown in zip(row, used, strict=True) if shown))
    return made


def _row(item: Any) -> list[Text]:
    description = item.description or item.title
    if isinstance(item, types.Tool):
        cells = [item.name, _properties(item.input_schema), description]
    elif isinstance(item, types.Prompt):
        cells = [item.name, _arguments(item), description]
    elif isinstance(item, types.Resource):
        length = None if item.size is None else size(item.size)
        cells = [item.uri, item.name, item.mime_type, length, description]
    else:
        cells = [item.uri_template, item.name, item.mime_type, description]
    *others, last = cells
    return [*(Text(harmless(each or "")) for each in others), Text(first_line(last))]


def _properties(schema: Mapping[str, Any]) -> str:
    """The arguments of a tool with their types; those in brackets may be left out."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    said = schema.get("required")
    required = said if isinstance(said, Sequence) else ()
    return ", ".join(
        named if name in required else f"[{named}]"
        for name, definition in properties.items()
        for named in [f"{name}: {_type(definition)}".removesuffix(": ")]
    )


def _type(definition: object) -> str:
    """What a schema says of a value's type, as far as it is said plainly."""
    if not isinstance(definition, Mapping):
        return ""
    said = definition.get("type")
    if isinstance(said, list):
        return "|".join(str(each) for each in said)
    if said == "array":
        return f"{_type(definition.get('items')) or 'any'}[]"
    if isinstance(definition.get("enum"), list):
        return "|".join(str(each) for each in definition["enum"])
    return str(said) if isinstance(said, str) else ""


def _arguments(prompt: types.Prompt) -> str:
    return ", ".join(
        argument.name if argument.required else f"[{argument.name}]"
        for argument in prompt.arguments or ()
    )


@attrs.frozen
class Difference:
    """One thing that a list has now and had not before, or the other way round.

    Attributes:
        sign: ``+`` new, ``-`` gone, ``~`` not as it was.
        name: what it is called.
        description: what it is, if it is there.
    """

    sign: str
    name: str
    description: str


def differences(before: Listing, after: Listing) -> Iterator[Difference]:
    """What has changed, in the order of the lists."""
    for kind, items in after.items():
        old = {_key(item): item for item in before.get(kind, ())}
        new = {_key(item): item for item in items}
        for key in old:
            if key not in new:
                yield Difference("-", harmless(key), "")
        for key, item in new.items():
            if key not in old or old[key] != item:
                sign = "~" if key in old else "+"
                yield Difference(sign, harmless(key), first_line(item.description or item.title))


def _key(item: Any) -> str:
    if isinstance(item, types.Resource):
        return item.uri
    if isinstance(item, types.ResourceTemplate):
        return item.uri_template
    name: str = item.name
    return name
