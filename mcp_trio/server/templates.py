"""URI templates, read backwards: from a URI to the variables of its template.

Matching works on the URI as it was sent, and only what a variable took is percent-decoded,
once. So an encoded slash never separates segments, and a variable that stands for one segment
never comes out as two, as ``..`` or with a NUL in it: such a URI does not match. It is linear
in the length of the URI, whatever the template: there is no backtracking.

Source: specification, server/resources, "Resource Templates"; RFC 6570.
"""

import re
from collections.abc import Sequence
from typing import Final
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
    reserved: bool
    """Whether it may hold slashes and the other delimiters: ``{+path}`` and ``{#part}``."""


@attrs.frozen
class UriTemplate:
    """A URI template of RFC 6570, levels 1 to 3.

    Understood are ``{var}``, ``{+var}``, ``{#var}``, ``{.var}``, ``{/var}``, each with several
    variables too, and one ``{?a,b}`` at the end, whose variables may stand in any order and be
    absent. Path-style parameters (``;``), form continuation (``&``) and the modifiers of level
    4 (``*``, ``:3``) are not.

    Attributes:
        text: the template as it was given.
        names: its variables, in order.
        optional: those of them that a URI may leave out.
    """

    text: str
    names: tuple[str, ...]
    optional: frozenset[str]
    _parts: tuple[_Literal | _Variable, ...] = attrs.field(repr=False)
    _prefix: str = attrs.field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "UriTemplate":
        """Read a template.

        Raises:
            ValueError: it is malformed, or uses what is not understood.
        """
        parts: list[_Literal | _Variable] = []
        names: list[str] = []
        query: list[str] = []
        position = 0
        for found in _EXPRESSION.finditer(text):
            if query:
                raise ValueError(f"{text!r}: nothing can follow the query expression")
            _add_literal(parts, text, position, found.start())
            operator, variables = _split(text, found[1])
            names += variables
            if operator == "?":
                query = variables
            else:
                _add_variables(parts, operator, variables)
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
        return cls(text, tuple(names), frozenset(query), tuple(parts), prefix)

    def match(self, uri: str) -> dict[str, str] | None:
        """The decoded variables of a URI, or None if the template does not make such a URI."""
        if len(uri) > MAX_URI or not uri.startswith(self._prefix):
            return None
        found: dict[str, str] = {}
        if self.optional:
            uri, mark, query = uri.partition("?")
            if not self._match_query(query if mark else None, found):
                return None
        units = tuple(_UNIT.findall(uri))
        steps = self._forward(units)
        if steps is None or not self._backward(units, steps, found):
            return None
        return {name: found[name] for name in self.names if name in found}

    def _match_query(self, query: str | None, found: dict[str, str]) -> bool:
        if query is None:
            return True
        for pair in query.split("&"):
            name, mark, raw = pair.partition("=")
            value = _decode(raw.replace("+", " "))
            if not mark or name not in self.optional or name in found or value is None:
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
                    running = (running or at in starts) and _allowed(units[at], part.reserved)
                    if running:
                        ends.add(at + 1)
            if not ends:
                return None
            steps.append(ends)
        return steps if len(units) in steps[-1] else None

    def _backward(self, units: Sequence[str], steps: list[set[int]], found: dict[str, str]) -> bool:
        """Choose one of the ways through, earlier variables as short as they can be."""
        end = len(units)
        for part, starts in zip(reversed(self._parts), reversed(steps[:-1]), strict=True):
            if isinstance(part, _Literal):
                end -= len(part.units)
                continue
            start = end
            for at in range(end - 1, -1, -1):
                if not _allowed(units[at], part.reserved):
                    break
                if at in starts:
                    start = at
            value = _decode("".join(units[start:end]))
            if value is None or not _harmless("".join(units[start:end]), value, part.reserved):
                return False
            found[part.name] = value
            end = start
        return True


def _split(text: str, expression: str) -> tuple[str, list[str]]:
    operator = expression[:1] if expression[:1] in "+#./;?&=,!@|" else ""
    names = expression[len(operator) :].split(",")
    if operator and operator != "?" and operator not in _OPERATORS:
        raise ValueError(f"{text!r}: the operator {operator!r} is not supported")
    for name in names:
        if not _VARIABLE.match(name):
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


def _add_variables(parts: list[_Literal | _Variable], operator: str, variables: list[str]) -> None:
    first, between = _OPERATORS[operator]
    for index, name in enumerate(variables):
        separator = between if index else first
        if separator:
            _append_literal(parts, separator)
        parts.append(_Variable(name, operator in ("+", "#")))


def _allowed(unit: str, reserved: bool) -> bool:
    return unit != "%" and (reserved or unit not in "/?#")


def _decode(raw: str) -> str | None:
    """Decode once; None where that gives no text."""
    if "%" not in raw:
        return raw
    try:
        return unquote(raw, errors="strict")
    except UnicodeDecodeError:
        return None


def _harmless(raw: str, value: str, reserved: bool) -> bool:
    """Whether a decoded value says nothing about the path that its raw form did not."""
    if "\0" in value or value.count("/") != raw.count("/"):
        return False
    if "\\" in value:
        return False
    segments = value.split("/") if reserved else [value]
    return not any(segment in (".", "..") for segment in segments)
