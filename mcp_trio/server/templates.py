"""URI templates, read backwards: from a URI to the variables of its template.

Matching works on the URI as it was sent, and only what a variable took is percent-decoded,
once. So an encoded slash never separates segments, and a variable that stands for one segment
never comes out as two, as ``..`` or with a NUL in it; nor does a path that stands behind a slash
come out as an absolute one. Such a URI does not match. It is linear in the length of the URI,
whatever the template: there is no backtracking.

Source: specification, server/resources, "Resource Templates"; RFC 6570.
"""

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import attrs

__all__ = ["MAX_URI", "UriTemplate", "is_template"]

MAX_URI: Final = 8192
"""A longer URI matches no template."""

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_UNIT = re.compile(r"%[0-9A-Fa-f]{2}|.", re.DOTALL)

# What separates the variables of one expression, and what precedes the first, by operator.
_OPERATORS: Final = {
    "": ("", ","),
    "+": ("", ","),
    "#": ("#", ","),
    ".": (".", "."),
    "/": ("/", "/"),
}


def is_template(uri: str) -> bool:
    """Whether a URI has an expression in braces."""
    return "{" in uri


@attrs.frozen
class _Literal:
    units: tuple[str, ...]


@attrs.frozen
class _Variable:
    name: str
    ends: str
    """The delimiters that it cannot hold: none in ``{+path}`` and ``{#part}``."""
    many: bool = False
    """Whether it is a list of segments: ``{/path*}``."""


@attrs.frozen
class UriTemplate:
    """A URI template of RFC 6570, levels 1 to 3, and of level 4 what paths need.

    Understood are ``{var}``, ``{+var}``, ``{#var}``, ``{.var}``, ``{/var}``, each with several
    variables too; ``{/path*}``, which takes one segment or more and gives a list of strings; and
    at the end ``{?a,b}``, or ``{&a,b}`` after a query that is written out or another such. The
    variables of a query may stand in any order and be absent. Path-style parameters (``;``) and
    the other modifiers of level 4 (``:3``, and ``*`` elsewhere) are not.

    Attributes:
        text: the template as it was given.
        names: its variables, in order.
        optional: those of them that a URI may leave out.
        lists: those of them that are lists.
    """

    text: str
    names: tuple[str, ...]
    optional: frozenset[str]
    lists: frozenset[str]
    _parts: tuple[_Literal | _Variable, ...] = attrs.field(repr=False)
    _prefix: str = attrs.field(repr=False)
    _fixed: tuple[str, ...] = attrs.field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "UriTemplate":
        """Read a template.

        Raises:
            ValueError: it is malformed, or uses what is not understood.
        """
        parts: list[_Literal | _Variable] = []
        names: list[str] = []
        query: list[str] = []
        fixed: tuple[str, ...] = ()
        position = 0
        for found in _EXPRESSION.finditer(text):
            operator, variables = _split(text, found[1])
            if query and not (operator == "&" and position == found.start()):
                raise ValueError(f"{text!r}: nothing can follow the query expression")
            _add_literal(parts, text, position, found.start())
            if operator == "&" and not query:
                fixed = _take_query(parts, text)
            if operator in ("?", "&"):
                names += variables
                query += variables
            else:
                names += _add_variables(parts, operator, variables)
            position = found.end()
        if query and position != len(text):
            raise ValueError(f"{text!r}: nothing can follow the query expression")
        _add_literal(parts, text, position, len(text))
        if not names:
            raise ValueError(f"{text!r} has no variables")
        if len(set(names)) != len(names):
            raise ValueError(f"{text!r}: a variable occurs twice")
        first = parts[0] if parts else None
        prefix = "".join(first.units) if isinstance(first, _Literal) else ""
        lists = frozenset(p.name for p in parts if isinstance(p, _Variable) and p.many)
        return cls(text, tuple(names), frozenset(query), lists, tuple(parts), prefix, fixed)

    def match(self, uri: str) -> dict[str, Any] | None:
        """The decoded variables of a URI, or None if the template does not make such a URI.

        They are strings; those of `lists` are lists of strings.
        """
        if len(uri) > MAX_URI or not uri.startswith(self._prefix):
            return None
        found: dict[str, Any] = {}
        if self.optional:
            uri, mark, query = uri.partition("?")
            if not self._match_query(query if mark else None, found):
                return None
        units = tuple(_UNIT.findall(uri))
        steps = self._forward(units)
        if steps is None or not self._backward(units, steps, found):
            return None
        return {name: found[name] for name in self.names if name in found}

    def _match_query(self, query: str | None, found: dict[str, Any]) -> bool:
        if query is None:
            return not self._fixed
        pairs = query.split("&")
        for pair in self._fixed:
            if pair not in pairs:
                return False
            pairs.remove(pair)
        for pair in pairs:
            name, mark, raw = pair.partition("=")
            value = _decode(raw.replace("+", " "))
            if not mark or name not in self.optional or name in found:
                return False
            if value is None or "\0" in value:
                return False
            found[name] = value
        return True

    def _forward(self, units: Sequence[str]) -> list[set[int]] | None:
        """Where each part can start and, last, where the template can end."""
        steps = [{0}]
        for part in self._parts:
            starts = steps[-1]
            ends: set[int]
            if isinstance(part, _Literal):
                size = len(part.units)
                ends = {at + size for at in starts if units[at : at + size] == part.units}
            else:
                ends = set()
                running = False
                for at in range(min(starts), len(units)):
                    running = (running or at in starts) and _allowed(units[at], part.ends)
                    if running:
                        ends.add(at + 1)
            if not ends:
                return None
            steps.append(ends)
        return steps if len(units) in steps[-1] else None

    def _backward(self, units: Sequence[str], steps: list[set[int]], found: dict[str, Any]) -> bool:
        """Choose one of the ways through, earlier variables as short as they can be."""
        end = len(units)
        for part, starts in zip(reversed(self._parts), reversed(steps[:-1]), strict=True):
            if isinstance(part, _Literal):
                end -= len(part.units)
                continue
            start = end
            for at in range(end - 1, -1, -1):
                if not _allowed(units[at], part.ends):
                    break
                if at in starts:
                    start = at
            value = _read(part, "".join(units[start:end]))
            if value is None or (value[0] == "/" and _within_path(units[:start])):
                return False
            found[part.name] = value
            end = start
        return True


def _split(text: str, expression: str) -> tuple[str, list[str]]:
    operator = expression[:1] if expression[:1] in "+#./;?&=,!@|" else ""
    names = expression[len(operator) :].split(",")
    if operator and operator not in "?&" and operator not in _OPERATORS:
        raise ValueError(f"{text!r}: the operator {operator!r} is not supported")
    for name in names:
        if not _VARIABLE.match(name.removesuffix("*") if operator == "/" else name):
            raise ValueError(f"{text!r}: {name!r} is not a plain variable name")
    return operator, names


def _add_literal(parts: list[_Literal | _Variable], text: str, start: int, end: int) -> None:
    literal = text[start:end]
    if "{" in literal or "}" in literal:
        raise ValueError(f"{text!r}: a brace without its partner")
    if literal:
        _append_literal(parts, literal)


def _append_literal(parts: list[_Literal | _Variable], literal: str) -> None:
    units = tuple(_UNIT.findall(literal))
    if parts and isinstance(parts[-1], _Literal):
        units = parts.pop().units + units  # type: ignore[union-attr]
    parts.append(_Literal(units))


def _take_query(parts: list[_Literal | _Variable], text: str) -> tuple[str, ...]:
    """Take what is written out of a query off the end; it may stand in any order, too."""
    last = parts.pop() if parts else None
    if not isinstance(last, _Literal) or "?" not in last.units:
        raise ValueError(f"{text!r}: there is no query that '&' could continue")
    path, _, query = "".join(last.units).partition("?")
    if path:
        _append_literal(parts, path)
    return tuple(query.split("&")) if query else ()


def _add_variables(
    parts: list[_Literal | _Variable], operator: str, variables: list[str]
) -> list[str]:
    """Add the variables of an expression, and return their names."""
    first, between = _OPERATORS[operator]
    ends = "" if operator in ("+", "#") else "/?#"
    for index, name in enumerate(variables):
        separator = between if index else first
        if separator:
            _append_literal(parts, separator)
        many = name.endswith("*")
        parts.append(_Variable(name.removesuffix("*"), "?#" if many else ends, many))
    return [name.removesuffix("*") for name in variables]


def _allowed(unit: str, ends: str) -> bool:
    return unit != "%" and unit not in ends


def _within_path(before: Sequence[str]) -> bool:
    """Whether a slash that follows begins no path, but an empty segment of one."""
    return before[-1:] == ("/",) and tuple(before[-3:]) != (":", "/", "/")


def _read(variable: _Variable, raw: str) -> str | list[str] | None:
    """The value of a variable, never empty; None if it is one that cannot be trusted."""
    found = []
    for part in raw.split("/") if variable.many else [raw]:
        value = _decode(part)
        if not value or not _harmless(part, value, reserved=not variable.ends):
            return None
        found.append(value)
    return found if variable.many else found[0]


def _decode(raw: str) -> str | None:
    """Decode once; None where that gives no text."""
    if "%" not in raw:
        return raw
    try:
        return unquote(raw, errors="strict")
    except UnicodeDecodeError:
        return None


def _harmless(raw: str, value: str, *, reserved: bool) -> bool:
    """Whether a decoded value says nothing about the path that its raw form did not."""
    if "\0" in value or value.count("/") != raw.count("/"):
        return False
    if "\\" in value:
        return False
    segments = value.split("/") if reserved else [value]
    return not any(segment in (".", "..") for segment in segments)
