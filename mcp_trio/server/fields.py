"""The fields of a class whose instances are JSON objects.

These are TypedDicts, NamedTuples, dataclasses and attrs classes. What goes in is what their
constructor takes; what comes out is what an instance holds, and the two need not be the same.
"""

import dataclasses
import enum
import inspect
import typing
from collections.abc import Mapping
from typing import Any, Final

import attrs

__all__ = ["MISSING", "Field", "attributes_of", "fields_of", "members_of"]


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


class _Absent:
    """The default of a key that need not be there; it has no JSON form, so it is not shown."""


def fields_of(kind: type) -> list[Field] | None:
    """What has to be given to make an instance; None for a class that is not an object in JSON."""
    if typing.is_typeddict(kind):
        return _typed_dict(kind)
    if attrs.has(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        return [_attribute(kind, field, hints) for field in attrs.fields(kind) if field.init]
    if dataclasses.is_dataclass(kind) or _is_named_tuple(kind):
        return _parameters(kind)
    return None


def members_of(kind: type) -> list[Field] | None:
    """What an instance holds; None as in `fields_of`. Only keys of a TypedDict can be absent."""
    if typing.is_typeddict(kind):
        return _typed_dict(kind)
    names = attributes_of(kind)
    if names is None:
        return None
    hints = typing.get_type_hints(kind, include_extras=True)
    return [Field(name, hints.get(attribute, Any)) for name, attribute in names]


def attributes_of(kind: type) -> tuple[tuple[str, str], ...] | None:
    """The name of each member of an instance, and that of the attribute which has it.

    They differ for private attributes of attrs classes, which the constructor knows by an alias.
    """
    if attrs.has(kind):
        return tuple((field.alias or field.name, field.name) for field in attrs.fields(kind))
    if dataclasses.is_dataclass(kind):
        return tuple((field.name, field.name) for field in dataclasses.fields(kind))
    if _is_named_tuple(kind):
        return tuple((name, name) for name in kind._fields)  # type: ignore[attr-defined]
    return None


def _typed_dict(kind: type) -> list[Field]:
    hints = typing.get_type_hints(kind, include_extras=True)
    required: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
    return [
        # None is never passed on: an absent key stays absent.
        Field(name, hint, MISSING if _is_required(hint, name in required) else _Absent)
        for name, hint in hints.items()
    ]


def _is_required(hint: Any, told: bool) -> bool:
    # Annotations that are strings hide Required and NotRequired from the class itself.
    origin = typing.get_origin(hint)
    if origin in (typing.Required, typing.NotRequired):
        return origin is typing.Required
    return told


def _attribute(kind: type, field: "attrs.Attribute[Any]", hints: Mapping[str, Any]) -> Field:
    name = field.alias or field.name
    hint = hints.get(field.name, Any)
    if field.converter is not None:
        # It takes something else than what the attribute is; attrs knows what, if it says so.
        hint = getattr(kind, "__init__").__annotations__.get(name, Any)  # noqa: B009 - no instance
    return Field(name, hint, MISSING if field.default is attrs.NOTHING else field.default)


def _parameters(kind: type) -> list[Field]:
    """Of the constructor, for that is where a dataclass has its `InitVar`s."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = []
    for parameter in inspect.signature(kind).parameters.values():
        hint = hints.get(parameter.name, Any)
        if isinstance(hint, dataclasses.InitVar):
            hint = hint.type
        default = MISSING if parameter.default is parameter.empty else parameter.default
        fields.append(Field(parameter.name, hint, default))
    return fields


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")
