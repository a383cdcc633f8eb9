"""The fields of a form as they are asked for in a line, and the reading of what was typed."""

from collections.abc import Sequence
from typing import Final, TypeAlias

from mcp_trio import types

__all__ = ["YES_NO", "Value", "choices", "parse", "prompt"]

YES_NO: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}

Value: TypeAlias = str | float | bool | list[str]


def prompt(name: str, field: types.PrimitiveSchemaDefinition) -> str:
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


def choices(field: types.PrimitiveSchemaDefinition) -> list[tuple[str, str]]:
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


def parse(line: str, field: types.PrimitiveSchemaDefinition, allowed: Sequence[str]) -> Value:
    """What was typed, as the field's type.

    Raises:
        ValueError: it is none; the message is for whoever has typed it.
    """
    if isinstance(field, types.BooleanSchema):
        if line.lower() not in YES_NO:
            raise ValueError("yes or no?")
        return YES_NO[line.lower()]
    if isinstance(field, types.NumberSchema):
        try:
            return int(line) if field.type == "integer" else float(line)
        except ValueError:
            raise ValueError(f"that is no {field.type}") from None
    if not allowed:
        return line
    values = [part.strip() for part in line.split(",")] if field.type == "array" else [line]
    for value in values:
        if value not in allowed:
            raise ValueError(f"{value} is not among them")
    return values if field.type == "array" else line
