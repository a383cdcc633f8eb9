"""The cattrs converter for `mcp_trio.types`: its hooks, and the search for what is wrong.

cattrs compiles a function for each class when it is first needed. By itself it would convert
(`5` to `"5"`, `"false"` to True) and guess in unions, so every type that occurs in
`mcp_trio.types` has a hook here. A hook that fails raises `MismatchError` without a path. Paths
cost time, so `explain` finds it afterwards, by going through the value once more.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, get_args, get_origin

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from mcp_trio import types
from mcp_trio._layout import (
    Layout,
    MismatchError,
    Step,
    chooser,
    is_union,
    json_kinds,
    json_name,
    shown,
)

__all__ = ["MismatchError", "explain", "structure", "unstructure"]

Hook = Callable[[Any, Any], Any]

# The place of `extra` in what is given to the functions that cattrs compiles. No peer can fill
# it: an unknown field of this name ends up inside of the real `extra`.
_EXTRA: Final = "<extra>"


def structure(cls: Any, value: Any) -> Any:
    """Raise `MismatchError` if the value is not a `cls`."""
    hook = _structure_hooks.get(cls)
    if hook is None:
        hook = _structure_hooks[cls] = _converter.get_structure_hook(cls)
    return hook(value, cls)


def unstructure(value: types.Value) -> dict[str, Any]:
    """The wire form of a value of the protocol."""
    return _of_any(value)  # type: ignore[no-any-return]


def explain(cls: Any, value: Any, path: str, mismatch: MismatchError) -> tuple[str, str]:
    """Where and why a value is not a `cls`: the innermost place that is at fault."""
    for step, kind, item in _parts(cls, value):
        try:
            structure(kind, item)
        except MismatchError as inner:
            return explain(kind, item, _extended(path, step), inner)
    return _extended(path, mismatch.step), mismatch.reason


def _parts(cls: Any, value: Any) -> Iterable[tuple[Step | None, Any, Any]]:
    """What a value of this type is made of, as far as it is there."""
    origin = get_origin(cls)
    if attrs.has(cls) and isinstance(value, dict):
        for field in Layout.of(cls).fields:
            if field.wire in value:
                yield field.wire, field.kind, value[field.wire]
    elif origin is Sequence and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield index, get_args(cls)[0], item
    elif origin is Mapping and isinstance(value, dict):
        for key, item in value.items():
            yield key, get_args(cls)[1], item
    elif is_union(cls):
        # Why a member of the right kind does not fit; that none is of that kind is known.
        for member in get_args(cls):
            if json_kinds(member) & {type(value)} and not attrs.has(member):
                yield None, member, value
        classes = [member for member in get_args(cls) if attrs.has(member)]
        if classes and isinstance(value, dict):
            try:
                yield None, chooser(classes)(value), value
            except MismatchError:
                return


def _extended(path: str, step: Step | None) -> str:
    if step is None:
        return path
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step


# --- Scalars and plain JSON ----------------------------------------------------------------


def _string(value: Any, _: Any) -> Any:
    if isinstance(value, str):
        return value
    raise MismatchError(f"expected a string, got {shown(value)}")


def _integer(value: Any, _: Any) -> Any:
    if type(value) is int:
        return value
    raise MismatchError(f"expected an integer, got {shown(value)}")


def _number(value: Any, _: Any) -> Any:
    if type(value) is float or type(value) is int:
        return value
    raise MismatchError(f"expected a number, got {shown(value)}")


def _boolean(value: Any, _: Any) -> Any:
    if value is True or value is False:
        return value
    raise MismatchError(f"expected true or false, got {shown(value)}")


def _object(value: Any, _: Any) -> Any:
    if isinstance(value, dict):
        return value
    raise MismatchError(f"expected an object, got {shown(value)}")


def _anything(value: Any, _: Any = None) -> Any:
    return value


_SCALARS: Final[Mapping[Any, Hook]] = {
    str: _string,
    int: _integer,
    float: _number,
    bool: _boolean,
    type(None): _anything,
}


def _literal_hook(cls: Any) -> Hook:
    allowed = get_args(cls)
    names = ", ".join(map(repr, allowed))
    reason = f"expected {names}" if len(allowed) == 1 else f"expected one of {names}"

    def literal(value: Any, _: Any) -> Any:
        if isinstance(value, str) and value in allowed:
            return value
        raise MismatchError(f"{reason}, got {shown(value)}")

    return literal


# --- Arrays and maps -----------------------------------------------------------------------


def _sequence_hook(cls: Any) -> Hook:
    (kind,) = get_args(cls)
    item_hook = _converter.get_structure_hook(kind)

    def sequence(value: Any, _: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple([item_hook(item, kind) for item in value])
        raise MismatchError(f"expected an array, got {shown(value)}")

    return sequence


def _mapping_hook(cls: Any) -> Hook:
    _, kind = get_args(cls)
    item_hook = _converter.get_structure_hook(kind)

    def mapping(value: Any, _: Any) -> Any:
        if isinstance(value, dict):
            return {key: item_hook(item, kind) for key, item in value.items()}
        raise MismatchError(f"expected an object, got {shown(value)}")

    return mapping


# --- Unions --------------------------------------------------------------------------------


def _union_hook(cls: Any) -> Hook:
    """Choose the member by the kind of JSON value, and among classes by `chooser`."""
    members = [member for member in get_args(cls) if member is not type(None)]
    if len(members) == 1:
        return _optional_hook(members[0])
    classes = [member for member in members if attrs.has(member)]
    by_kind: dict[type, tuple[Hook, Any]] = {}
    for member in members:
        if member not in classes:
            chosen = _converter.get_structure_hook(member), member
            by_kind.update(dict.fromkeys(json_kinds(member), chosen))
    if classes:
        by_kind[dict] = _one_of_hook(classes), None
    expected = " or ".join(dict.fromkeys(map(json_name, members)))

    def union(value: Any, _: Any) -> Any:
        try:
            hook, member = by_kind[type(value)]
        except KeyError:
            raise MismatchError(f"expected {expected}, got {shown(value)}") from None
        return hook(value, member)

    return union


def _optional_hook(cls: Any) -> Hook:
    hook = _converter.get_structure_hook(cls)

    def optional(value: Any, _: Any) -> Any:
        return None if value is None else hook(value, cls)

    return optional


def _one_of_hook(classes: Sequence[type]) -> Hook:
    choose = chooser(classes)
    hooks = {cls: _converter.get_structure_hook(cls) for cls in classes}

    def one_of(value: Any, _: Any) -> Any:
        cls = choose(value)
        return hooks[cls](value, cls)

    return one_of


# --- Objects -------------------------------------------------------------------------------


def _class_hook(cls: Any) -> Hook:
    layout = Layout.of(cls)
    required = layout.required
    known = frozenset(field.wire for field in layout.fields)
    nullable = frozenset(field.wire for field in layout.fields if field.nullable)
    overrides: dict[str, Any] = {field.name: override(rename=field.wire) for field in layout.fields}
    build = make_dict_structure_fn(cls, _converter, **overrides, extra=override(rename=_EXTRA))

    def structured(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise MismatchError(f"expected an object, got {shown(value)}")
        keys = value.keys()
        if not required <= keys:
            raise MismatchError("missing", min(required - keys))
        if not keys <= known or None in value.values():
            extra = {
                key: item
                for key, item in value.items()
                if key not in known or (item is None and key in nullable)
            }
            value = {**value, _EXTRA: extra}
        return build(value, cls)

    return structured


# --- The way out ---------------------------------------------------------------------------


def _class_unhook(cls: Any) -> Callable[[Any], Any]:
    overrides: dict[str, Any] = {
        field.name: override(rename=field.wire, omit_if_default=field.nullable)
        for field in Layout.of(cls).fields
    }
    build = make_dict_unstructure_fn(cls, _converter, **overrides, extra=override(omit=True))

    def unstructured(value: Any) -> Any:
        wire = build(value)
        for key, item in value.extra.items():
            wire.setdefault(key, item)
        return wire

    return unstructured


def _of_any(value: Any) -> Any:
    """Go by what is there, not by what was declared; plain JSON stays as it is."""
    cls = type(value)
    hook = _unstructure_hooks.get(cls)
    if hook is None:
        if not isinstance(value, types.Value):
            return [_of_any(item) for item in value] if isinstance(value, list | tuple) else value
        hook = _unstructure_hooks[cls] = _converter.get_unstructure_hook(cls)
    return hook(value)


def _sequence_unhook(_: Any) -> Callable[[Any], Any]:
    def unstructured(value: Any) -> Any:
        if isinstance(value, str):
            raise TypeError(f"expected a sequence, got the string {shown(value)}")
        return [_of_any(item) for item in value]

    return unstructured


def _union_unhook(cls: Any) -> Callable[[Any], Any]:
    # A field that is None is left out, so here there is something.
    members = [member for member in get_args(cls) if member is not type(None)]
    if len(members) == 1:
        return _converter.get_unstructure_hook(members[0])
    return _of_any


def _mapping_unhook(_: Any) -> Callable[[Any], Any]:
    return lambda value: {key: _of_any(item) for key, item in value.items()}


_structure_hooks: Final[dict[Any, Hook]] = {}
_unstructure_hooks: Final[dict[type, Callable[[Any], Any]]] = {}


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=False)

    def register(matches: Callable[[Any], bool], into: Any, out: Any) -> None:
        converter.register_structure_hook_factory(matches, into)
        converter.register_unstructure_hook_factory(matches, out)

    register(attrs.has, _class_hook, _class_unhook)
    register(lambda cls: get_origin(cls) is Sequence, _sequence_hook, _sequence_unhook)
    register(lambda cls: get_origin(cls) is Mapping, _mapping_hook, _mapping_unhook)
    register(is_union, _union_hook, _union_unhook)
    register(lambda cls: get_origin(cls) is Literal, _literal_hook, lambda _: _anything)
    for cls, hook in _SCALARS.items():
        converter.register_structure_hook(cls, hook)
    register(lambda cls: cls is Any, lambda _: _anything, lambda _: _anything)
    register(lambda cls: cls == dict[str, Any], lambda _: _object, lambda _: _anything)
    return converter


_converter: Final = _make_converter()
