"""What the wire form of a class of `mcp_trio.types` looks like, and which class an object is.

All of it is read off the class: a field's name on the wire follows from its own, a field without
a default has to be there, and so has a tag, whose only possible value the constructor fills in.
"""

import functools
import re
import types as builtin_types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from mcp_trio import types

__all__ = [
    "Field",
    "Layout",
    "MismatchError",
    "Step",
    "chooser",
    "is_union",
    "json_kinds",
    "json_name",
    "shown",
]

Step = str | int
"""A field's name or an item's number."""


class MismatchError(Exception):
    """A JSON value is not of its type; `step` is the field at fault, where there is one."""

    def __init__(self, reason: str, step: Step | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.step = step


def shown(value: Any) -> str:
    """A value in an error message: in JSON's words, and short."""
    for known, name in ((None, "null"), (True, "true"), (False, "false")):
        if value is known:
            return name
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else "an array"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_union(cls: Any) -> bool:
    return get_origin(cls) in (Union, builtin_types.UnionType)


def json_kinds(cls: Any) -> set[type]:
    """The Python types of the JSON values that can be of this type."""
    if attrs.has(cls) or get_origin(cls) in (Mapping, dict):
        return {dict}
    if get_origin(cls) is Sequence:
        return {list, tuple}
    if get_origin(cls) is Literal:
        return {str}
    return {int, float} if cls is float else {cls}


def json_name(cls: Any) -> str:
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
    return names.get(cls) or ("an array" if get_origin(cls) is Sequence else "an object")


@attrs.frozen
class Field:
    name: str
    wire: str
    kind: Any
    required: bool
    nullable: bool


@attrs.frozen(eq=False)
class Layout:
    """What the wire form of a class looks like.

    Attributes:
        required: the fields that must be there.
        tags: the fields with few possible values, and these.
        demands: all that an object must have to be of this class, down through the required
            fields that are classes too.
    """

    cls: type
    fields: Sequence[Field]
    required: frozenset[str]
    tags: Mapping[str, Sequence[str]]
    inner: Mapping[str, "Layout"]
    demands: frozenset[str]

    @staticmethod
    @functools.cache
    def of(cls: Any) -> "Layout":
        fields = [_field(each) for each in attrs.fields(cls) if each.name != "extra"]
        needed = [field for field in fields if field.required]
        inner = {field.wire: Layout.of(field.kind) for field in needed if attrs.has(field.kind)}
        demands = {field.wire for field in needed}
        for wire, layout in inner.items():
            demands.update(f"{wire}.{demand}" for demand in layout.demands)
        return Layout(
            cls=cls,
            fields=fields,
            required=frozenset(field.wire for field in needed),
            tags={field.wire: _literals(field.kind) for field in fields if _literals(field.kind)},
            inner=inner,
            demands=frozenset(demands),
        )

    def fits(self, value: Any) -> bool:
        """Whether an object has what the class demands."""
        return (
            isinstance(value, dict)
            and self.required <= value.keys()
            and all(value.get(tag, values[0]) in values for tag, values in self.tags.items())
            and all(layout.fits(value[wire]) for wire, layout in self.inner.items())
        )


def _literals(kind: Any) -> Sequence[str]:
    if is_union(kind):
        return [value for member in get_args(kind) for value in _literals(member)]
    return get_args(kind) if get_origin(kind) is Literal else ()


def _field(attribute: "attrs.Attribute[Any]") -> Field:
    name, kind = attribute.name, attribute.type
    camel = re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name.rstrip("_"))
    # A tag is filled in by the constructor, but a peer has to send it.
    tag = get_origin(kind) is Literal and len(get_args(kind)) == 1
    return Field(
        name=name,
        wire=types.WIRE_NAMES.get(name, camel),
        kind=kind,
        required=tag or attribute.default is attrs.NOTHING,
        nullable=attribute.default is None,
    )


def chooser(classes: Sequence[type]) -> Callable[[dict[str, Any]], type]:
    """A function that says which of the classes an object is."""
    layouts = [Layout.of(cls) for cls in classes]
    for tag in layouts[0].tags:
        if all(tag in each.required and tag in each.tags for each in layouts):
            pairs = [(value, each.cls) for each in layouts for value in each.tags[tag]]
            table = dict(pairs)
            if len(table) == len(pairs):
                return _by_tag(tag, table)
    return functools.partial(_by_shape, layouts)


def _by_tag(tag: str, table: Mapping[str, type]) -> Callable[[dict[str, Any]], type]:
    def choose(value: dict[str, Any]) -> type:
        try:
            return table[value[tag]]
        except (KeyError, TypeError):
            if tag not in value:
                raise MismatchError("missing", tag) from None
            expected = ", ".join(map(repr, table))
            reason = f"expected one of {expected}, got {shown(value[tag])}"
            raise MismatchError(reason, tag) from None

    return choose


def _by_shape(layouts: Sequence["Layout"], value: dict[str, Any]) -> type:
    """The one class whose required fields are there; of two, the one that requires more."""
    fitting = [layout for layout in layouts if layout.fits(value)]
    best = [each for each in fitting if not any(each.demands < other.demands for other in fitting)]
    if len(best) == 1:
        return best[0].cls
    names = ", ".join(
        f"{each.cls.__name__} ({', '.join(sorted(each.demands))})" for each in best or layouts
    )
    raise MismatchError(f"fits more than one of {names}" if best else f"fits none of {names}")
