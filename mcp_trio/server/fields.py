"""The fields of a class whose instances are JSON objects: TypedDict, dataclass, attrs."""

import dataclasses
import enum
import typing
from typing import Any, Final

import attrs

__all__ = ["MISSING", "Field", "fields_of"]


class _Missing(enum.Enum):
    MISSING = enum.auto()


MISSING: Final = _Missing.MISSING
"""Stands for a default that is not there."""


@attrs.frozen
class Field:
    """One property of an object: its wire name, its type, and its default if it has one."""

    name: str
    annotation: Any
    default: Any = MISSING


def fields_of(kind: type) -> list[Field] | None:
    """The fields of a TypedDict, a dataclass or an attrs class; None for anything else."""
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        required: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
        return [
            # None is never passed on: an absent key stays absent.
            Field(name, hint, MISSING if name in required else _Absent)
            for name, hint in hints.items()
        ]
    if attrs.has(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        return [
            Field(
                field.alias or field.name,
                hints.get(field.name, Any),
                MISSING if field.default is attrs.NOTHING else field.default,
            )
            for field in attrs.fields(kind)
            if field.init
        ]
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        return [
            Field(field.name, hints[field.name], _dataclass_default(field))
            for field in dataclasses.fields(kind)
            if field.init
        ]
    return None


class _Absent:
    """The default of a key that need not be there; it has no JSON form, so it is not shown."""


def _dataclass_default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return MISSING if field.default_factory is dataclasses.MISSING else field.default_factory
