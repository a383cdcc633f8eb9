"""The cattrs converter for `mcp_trio.types`: its hooks, and the search for what is wrong.

cattrs compiles a function for each class when it is first needed. By itself it would convert
(`5` to `"5"`, `"false"` to True) and guess in unions, so every type that occurs in
`mcp_trio.types` has a hook here. A hook that fails raises `MismatchError` without a path. Paths
cost time, so `explain` finds it afterwards, by going through the value once more.
"""

import functools
import re
import types as builtin_types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from mcp_trio import types

__all__ = ["MismatchError", "explain", "structure", "unstructure"]

Hook = Callable[[Any, Any], Any]
Step = str | int

# The place of `extra` in what is given to the functions that cattrs compiles. No peer can fill
# it: an unknown field of this name ends up inside of the real `extra`.
_EXTRA: Final = "<extra>"


class MismatchError(Exception):
    """A JSON value is not of its type; `step` is the field at fault, where there is one."""

    def __init__(self, reason: str, step: Step | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.step = step


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
        for field in _Layout.of(cls).fields:
            if field.wire in value:
                yield field.wire, field.kind, value[field.wire]
    elif origin is Sequence and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield index, get_args(cls)[0], item
    elif origin is Mapping and isinstance(value, dict):
        for key, item in value.items():
            yield key, get_args(cls)[1], item
    elif _is_union(cls):
        # Why a member of the right kind does not fit; that none is of that kind is known.
        for member in get_args(cls):
            if _json_kinds(member) & {type(value)} and not attrs.has(member):
                yield None, member, value
        classes = [member for member in get_args(cls) if attrs.has(member)]
        if classes and isinstance(value, dict):
            try:
                yield None, _chooser(classes)(value), value
            except MismatchError:
                return


def _extended(path: str, step: Step | None) -> str:
    if step is None:
        return path
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step


def _shown(value: Any) -> str:
    """A value in an error message: in JSON's words, and short."""
    for known, name in ((None, "null"), (True, "true"), (False, "false")):
        if value is known:
            return name
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else "an array"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- Scalars and plain JSON ----------------------------------------------------------------


def _string(value: Any, _: Any) -> Any:
    if isinstance(value, str):
        return value
    raise MismatchError(f"expected a string, got {_shown(value)}")


def _integer(value: Any, _: Any) -> Any:
    if type(value) is int:
        return value
    raise MismatchError(f"expected an integer, got {_shown(value)}")


def _number(value: Any, _: Any) -> Any:
    if type(value) is float or type(value) is int:
        return value
    raise MismatchError(f"expected a number, got {_shown(value)}")


def _boolean(value: Any, _: Any) -> Any:
    if value is True or value is False:
        return value
    raise MismatchError(f"expected true or false, got {_shown(value)}")


def _object(value: Any, _: Any) -> Any:
    if isinstance(value, dict):
        return value
    raise MismatchError(f"expected an object, got {_shown(value)}")


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
        raise MismatchError(f"{reason}, got {_shown(value)}")

    return literal


# --- Arrays and maps -----------------------------------------------------------------------


def _sequence_hook(cls: Any) -> Hook:
    (kind,) = get_args(cls)
    item_hook = _converter.get_structure_hook(kind)

    def sequence(value: Any, _: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple([item_hook(item, kind) for item in value])
        raise MismatchError(f"expected an array, got {_shown(value)}")

    return sequence


def _mapping_hook(cls: Any) -> Hook:
    _, kind = get_args(cls)
    item_hook = _converter.get_structure_hook(kind)

    def mapping(value: Any, _: Any) -> Any:
        if isinstance(value, dict):
            return {key: item_hook(item, kind) for key, item in value.items()}
        raise MismatchError(f"expected an object, got {_shown(value)}")

    return mapping


# --- Unions --------------------------------------------------------------------------------


def _is_union(cls: Any) -> bool:
    return get_origin(cls) in (Union, builtin_types.UnionType)


def _union_hook(cls: Any) -> Hook:
    """Choose the member by the kind of JSON value, and among classes by `_chooser`."""
    members = [member for member in get_args(cls) if member is not type(None)]
    if len(members) == 1:
        return _optional_hook(members[0])
    classes = [member for member in members if attrs.has(member)]
    by_kind: dict[type, tuple[Hook, Any]] = {}
    for member in members:
        if member not in classes:
            chosen = _converter.get_structure_hook(member), member
            by_kind.update(dict.fromkeys(_json_kinds(member), chosen))
    if classes:
        by_kind[dict] = _one_of_hook(classes), None
    expected = " or ".join(dict.fromkeys(map(_json_name, members)))

    def union(value: Any, _: Any) -> Any:
        try:
            hook, member = by_kind[type(value)]
        except KeyError:
            raise MismatchError(f"expected {expected}, got {_shown(value)}") from None
        return hook(value, member)

    return union


def _optional_hook(cls: Any) -> Hook:
    hook = _converter.get_structure_hook(cls)

    def optional(value: Any, _: Any) -> Any:
        return None if value is None else hook(value, cls)

    return optional


def _one_of_hook(classes: Sequence[type]) -> Hook:
    choose = _chooser(classes)
    hooks = {cls: _converter.get_structure_hook(cls) for cls in classes}

    def one_of(value: Any, _: Any) -> Any:
        cls = choose(value)
        return hooks[cls](value, cls)

    return one_of


def _json_name(cls: Any) -> str:
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
    return names.get(cls) or ("an array" if get_origin(cls) is Sequence else "an object")


def _json_kinds(cls: Any) -> set[type]:
    """The Python types of the JSON values that can be of this type."""
    if attrs.has(cls) or get_origin(cls) in (Mapping, dict):
        return {dict}
    if get_origin(cls) is Sequence:
        return {list, tuple}
    if get_origin(cls) is Literal:
        return {str}
    return {int, float} if cls is float else {cls}


def _chooser(classes: Sequence[type]) -> Callable[[dict[str, Any]], type]:
    """A function that says which of the classes an object is."""
    layouts = [_Layout.of(cls) for cls in classes]
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
            reason = f"expected one of {expected}, got {_shown(value[tag])}"
            raise MismatchError(reason, tag) from None

    return choose


def _by_shape(layouts: Sequence["_Layout"], value: dict[str, Any]) -> type:
    """The one class whose required fields are there; of two, the one that requires more."""
    fitting = [layout for layout in layouts if layout.fits(value)]
    best = [each for each in fitting if not any(each.demands < other.demands for other in fitting)]
    if len(best) == 1:
        return best[0].cls
    names = ", ".join(
        f"{each.cls.__name__} ({', '.join(sorted(each.demands))})" for each in best or layouts
    )
    raise MismatchError(f"fits more than one of {names}" if best else f"fits none of {names}")


# --- Objects -------------------------------------------------------------------------------


@attrs.frozen
class _Field:
    name: str
    wire: str
    kind: Any
    required: bool
    nullable: bool


@attrs.frozen(eq=False)
class _Layout:
    """What the wire form of a class looks like.

    Attributes:
        required: the fields that must be there.
        tags: the fields with few possible values, and these.
        demands: all that an object must have to be of this class, down through the required
            fields that are classes too.
    """

    cls: type
    fields: Sequence[_Field]
    required: frozenset[str]
    tags: Mapping[str, Sequence[str]]
    inner: Mapping[str, "_Layout"]
    demands: frozenset[str]

    @staticmethod
    @functools.cache
    def of(cls: Any) -> "_Layout":
        fields = [_field(each) for each in attrs.fields(cls) if each.name != "extra"]
        needed = [field for field in fields if field.required]
        inner = {field.wire: _Layout.of(field.kind) for field in needed if attrs.has(field.kind)}
        demands = {field.wire for field in needed}
        for wire, layout in inner.items():
            demands.update(f"{wire}.{demand}" for demand in layout.demands)
        return _Layout(
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
    if _is_union(kind):
        return [value for member in get_args(kind) for value in _literals(member)]
    return get_args(kind) if get_origin(kind) is Literal else ()


def _field(attribute: "attrs.Attribute[Any]") -> _Field:
    name, kind = attribute.name, attribute.type
    camel = re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name.rstrip("_"))
    # A tag is filled in by the constructor, but a peer has to send it.
    tag = get_origin(kind) is Literal and len(get_args(kind)) == 1
    return _Field(
        name=name,
        wire=types.WIRE_NAMES.get(name, camel),
        kind=kind,
        required=tag or attribute.default is attrs.NOTHING,
        nullable=attribute.default is None,
    )


def _class_hook(cls: Any) -> Hook:
    layout = _Layout.of(cls)
    required = layout.required
    known = frozenset(field.wire for field in layout.fields)
    nullable = frozenset(field.wire for field in layout.fields if field.nullable)
    overrides: dict[str, Any] = {field.name: override(rename=field.wire) for field in layout.fields}
    build = make_dict_structure_fn(cls, _converter, **overrides, extra=override(rename=_EXTRA))

    def structured(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise MismatchError(f"expected an object, got {_shown(value)}")
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
        for field in _Layout.of(cls).fields
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
            raise TypeError(f"expected a sequence, got the string {_shown(value)}")
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
    register(_is_union, _union_hook, _union_unhook)
    register(lambda cls: get_origin(cls) is Literal, _literal_hook, lambda _: _anything)
    for cls, hook in _SCALARS.items():
        converter.register_structure_hook(cls, hook)
    register(lambda cls: cls is Any, lambda _: _anything, lambda _: _anything)
    register(lambda cls: cls == dict[str, Any], lambda _: _object, lambda _: _anything)
    return converter


_converter: Final = _make_converter()
