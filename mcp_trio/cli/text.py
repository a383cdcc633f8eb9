"""Texts of a server, made harmless to look at."""

import unicodedata
from typing import Final

__all__ = ["beginning", "first_line", "harmless", "size"]

_ALLOWED: Final = frozenset("\n\t")
_DIRECTIONS: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def harmless(text: str) -> str:
    """Show what would steer a terminal, or turn the direction of a line, instead of doing it."""
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in _ALLOWED:
        return character
    if character in _DIRECTIONS or unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}:
        return character.encode("unicode_escape", "surrogatepass").decode()
    return character


def first_line(text: str | None) -> str:
    """The first line that says something; empty without one."""
    return harmless(next((line.strip() for line in (text or "").splitlines() if line.strip()), ""))


def beginning(text: str, lines: int, width: int) -> list[str]:
    """The first lines, and how much there is more."""
    every = harmless(text).splitlines()
    shown = [line if len(line) <= width else f"{line[: width - 1]}…" for line in every[:lines]]
    if len(every) > lines:
        shown.append(f"… {len(every) - lines} more line{'s'[: len(every) - lines != 1]}")
    return shown


def size(count: int) -> str:
    """A number of bytes, as people say it."""
    if count < 1000:
        return f"{count} B"
    amount, unit = count / 1000, "kB"
    for larger in ("MB", "GB"):
        if amount >= 1000:
            amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}"
