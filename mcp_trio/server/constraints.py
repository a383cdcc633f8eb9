"""What stands beside a type in `Annotated`: descriptions, constraints, names of headers.

Understood are a plain string, which describes; `msgspec.Meta`; the classes of the package
annotated-types (``Ge``, ``Interval``, ``Len``, ``MultipleOf``, ``Predicate``, ``doc`` …); and
`Header`. Anything else means something to somebody else.
"""

import decimal
import fractions
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mcp_trio.protocol.param_headers import KEYWORD
from mcp_trio.server.param_headers import Header
from mcp_trio.server.readers import Mismatch, TypeSpec, show

__all__ = ["Reference", "apply_markers", "with_keywords"]

_ANNOTATIONS: Final = frozenset(
    {"title", "description", "examples", "default", "deprecated", "readOnly", "writeOnly",
     "$comment", KEYWORD}
)  # fmt: skip
"""Keywords that refuse nothing."""

Check = Callable[[Any], str | None]
"""Says what is wrong with a value that has been read."""


class Reference(dict[str, Any]):
    """A schema that refers to a definition, and may yet be replaced by it."""

    def __init__(self, name: str, **beside: Any) -> None:
        super().__init__({"$ref": f"#/$defs/{name}"}, **beside)
        self.name = name

    def beside(self, keywords: Mapping[str, Any]) -> "Reference":
        """The same with more keywords."""
        rest = {key: value for key, value in self.items() if key != "$ref"}
        return Reference(self.name, **{**rest, **keywords})


def apply_markers(
    spec: TypeSpec,
    markers: Iterable[Any],
    validate: Callable[[dict[str, Any]], Callable[[Any, str], None]],
) -> TypeSpec:
    """Add to a type what stands beside it.

    Args:
        spec: of the type.
        markers: what stands beside it.
        validate: makes a check of a schema which says more than readers know.

    Raises:
        TypeError: something does not go with the type, or JSON Schema cannot say it.
    """
    schema = spec.schema
    checks: list[Check] = []
    more = False
    for marker in _flat(markers):
        keywords, own_checks, says_more = _keywords(marker, schema)
        for key in keywords:
            if key in schema and key not in ("description", "title"):
                raise TypeError(f"{marker!r}: {key!r} is said already")
        if "description" in schema:
            keywords.pop("description", None)
        schema = with_keywords(schema, keywords)
        checks += own_checks
        more = more or says_more
    validated = validate(schema) if more else None
    if not checks and validated is None:
        return TypeSpec(schema, spec.read, spec.glance)
    read = spec.read

    def read_checked(value: Any, path: str) -> Any:
        made = read(value, path)
        for check in checks:
            if reason := check(made):
                raise Mismatch(path, reason)
        if validated is not None:
            validated(value, path)
        return made

    return TypeSpec(schema, read_checked, spec.glance)


def with_keywords(schema: dict[str, Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with more keywords beside it, which 2020-12 also allows beside a reference."""
    if isinstance(schema, Reference):
        return schema.beside(keywords)
    return {**schema, **keywords}


def _flat(markers: Iterable[Any]) -> Iterator[Any]:
    for marker in markers:
        if getattr(marker, "__is_annotated_types_grouped_metadata__", False):
            yield from _flat(marker)
        else:
            yield marker


def _keywords(marker: Any, schema: dict[str, Any]) -> tuple[dict[str, Any], list[Check], bool]:
    """What a marker adds to a schema, what checks it, and whether it says more than these do."""
    documentation = marker if isinstance(marker, str) else getattr(marker, "documentation", None)
    if isinstance(documentation, str):
        return {"description": documentation}, [], False
    if isinstance(marker, Header):
        return {KEYWORD: marker.name}, [], False
    keywords: dict[str, Any] = {}
    checks: list[Check] = []
    more = False
    if isinstance(marker, msgspec.Meta):
        for name in ("title", "description", "examples", "pattern"):
            if getattr(marker, name) is not None:
                keywords[name] = getattr(marker, name)
        extra = marker.extra_json_schema or {}
        more = marker.pattern is not None or not _ANNOTATIONS.issuperset(extra)
        keywords |= extra
    elif type(marker).__module__ != "annotated_types":
        return {}, [], False
    elif callable(function := getattr(marker, "func", None)):
        checks.append(_predicate(function))
    kinds = _kinds(schema)
    if "pattern" in keywords and "string" not in kinds:
        raise _senseless(marker, schema)
    for name, (keyword, fits, words) in _BOUNDS.items():
        bound = getattr(marker, name, None)
        if bound is not None:
            if type(bound) not in (int, float) or not kinds & {"number", "integer"}:
                raise _senseless(marker, schema)
            keywords[keyword] = bound
            checks.append(_number_check(bound, fits, words))
    for name, (keyword_of, least, words) in _LENGTHS.items():
        bound = getattr(marker, name, None)
        if bound is None or (bound == 0 and least):
            continue
        named = [keyword_of[kind] for kind in sorted(kinds & keyword_of.keys())]
        if not named:
            raise _senseless(marker, schema)
        for keyword in named:
            keywords[keyword] = -(-bound // 3) * 4 if "bytes" in kinds else bound
        checks.append(_length_check(bound, least, words))
    return keywords, checks, more


def _senseless(marker: Any, schema: dict[str, Any]) -> TypeError:
    return TypeError(f"{marker!r} cannot be said in JSON Schema of {dict(schema)}")


def _kinds(schema: dict[str, Any]) -> set[str]:
    """The kinds of values a schema has limits for."""
    if isinstance(schema, Reference):
        return set()
    if "anyOf" in schema:
        return {kind for member in schema["anyOf"] for kind in _kinds(member)}
    if "contentEncoding" in schema:
        return {"bytes"}
    if "format" in schema:
        return set()
    if "type" not in schema:
        return {"number", "string", "array", "object"}
    return {schema["type"]}


def _predicate(function: Callable[[Any], Any]) -> Check:
    name = getattr(function, "__name__", repr(function))

    def check(value: Any) -> str | None:
        try:
            fits = function(value)
        except (TypeError, ValueError, AttributeError):
            fits = False
        return None if fits else f"does not satisfy {name}"

    return check


def _number_check(bound: float, fits: Callable[[Any, Any], bool], words: str) -> Check:
    def check(value: Any) -> str | None:
        # Within a union it can be something without an order; to JSON, true is no number.
        if type(value) not in _NUMBERS or fits(value, bound):
            return None
        return f"must be {words} {show(bound)}, got {value if len(str(value)) < 60 else 'more'}"

    return check


def _length_check(bound: int, least: bool, words: str) -> Check:
    def check(value: Any) -> str | None:
        unit = _UNITS.get(type(value))
        if unit is None or (len(value) >= bound if least else len(value) <= bound):
            return None
        return f"must have {words} {bound} {unit}, got {len(value)}"

    return check


def _is_multiple(value: Any, of: Any) -> bool:
    if type(value) is int and type(of) is int:
        return value % of == 0
    # As JSON has it: 0.3 is a multiple of 0.1.
    return fractions.Fraction(str(value)) % fractions.Fraction(str(of)) == 0


_NUMBERS: Final = frozenset({int, float, decimal.Decimal})
_UNITS: Final[Mapping[type, str]] = {
    str: "characters",
    bytes: "bytes",
    list: "items",
    tuple: "items",
    set: "items",
    frozenset: "items",
    dict: "members",
}
_BOUNDS: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool], str]]] = {
    "ge": ("minimum", lambda value, bound: value >= bound, "at least"),
    "gt": ("exclusiveMinimum", lambda value, bound: value > bound, "more than"),
    "le": ("maximum", lambda value, bound: value <= bound, "at most"),
    "lt": ("exclusiveMaximum", lambda value, bound: value < bound, "less than"),
    "multiple_of": ("multipleOf", _is_multiple, "a multiple of"),
}
_LENGTHS: Final[Mapping[str, tuple[Mapping[str, str], bool, str]]] = {
    "min_length": (
        {"string": "minLength", "bytes": "minLength", "array": "minItems",
         "object": "minProperties"},
        True,
        "at least",
    ),
    "max_length": (
        {"string": "maxLength", "bytes": "maxLength", "array": "maxItems",
         "object": "maxProperties"},
        False,
        "at most",
    ),
}  # fmt: skip
