"""What the entries of all lists have in common: how they are named, described and decorated."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcp_trio import codec, types

__all__ = ["check_entry", "describe_function", "entry", "function_name"]


def entry(
    key: dict[str, Any],
    *,
    title: str | None,
    description: str | None,
    icons: Sequence[types.Icon],
    meta: Mapping[str, Any] | None,
    annotations: types.Annotations | types.ToolAnnotations | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An entry of a list as the wire has it; None, and an empty value, leaves a member out.

    Args:
        key: what it is found by, and its name.
        title: what people call it.
        description: what it is.
        icons: pictures for display.
        meta: further `_meta`.
        annotations: hints about it.
        more: what only some lists have, by its name on the wire.
    """
    optional = {
        "title": title,
        "description": description or None,
        **more,
        "annotations": None if annotations is None else codec.unstructure(annotations),
        "icons": codec.unstructure(list(icons)) or None,
        "_meta": dict(meta) if meta else None,
    }
    return key | {name: value for name, value in optional.items() if value is not None}


def check_entry(kind: type[types.Value], wire: dict[str, Any]) -> None:
    """Find here what cannot be listed, for one such entry would spoil the list.

    Args:
        kind: the class of the protocol that the entry has to be.
        wire: the entry.

    Raises:
        TypeError: something is of another type than the protocol has for it.
        codec.EncodeError: JSON cannot hold it.
    """
    try:
        codec.structure(kind, wire)
    except codec.DecodeError as problem:
        raise TypeError(str(problem)) from None
    codec.encode_json(wire)


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function, however it is wrapped.

    Raises:
        TypeError: it has none, as a lambda or some object.
    """
    name = getattr(inspect.unwrap(_bare(function)), "__name__", None)
    if name is None or name == "<lambda>":
        raise TypeError(f"{function!r} has no name of its own: pass name=")
    return str(name)


def describe_function(function: Callable[..., Any]) -> str | None:
    """The docstring of a function, cleaned."""
    return inspect.getdoc(_bare(function))


def _bare(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function
