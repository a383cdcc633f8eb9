"""One JSON message per line: the framing of stdio and of every other byte stream.

Bytes are split at 0x0A and at nothing else; a message is decoded only when it is whole. So a
character that arrives in two pieces, or U+2028 inside a string, is of no concern here.

Source: specification, basic/transports/stdio.
"""

from typing import Final

import attrs

from mcp_trio import errors

__all__ = ["DEFAULT_MAX_LINE", "LineDecoder", "OversizedLine", "encode_line"]

DEFAULT_MAX_LINE: Final = 4 * 1024 * 1024
"""How many bytes a line may have, unless told otherwise."""

_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r"
_KEPT: Final = 512
"""Bytes of either end of an oversized line that are kept: enough to show whose it is."""


@attrs.frozen
class OversizedLine:
    """Stands in the place of a line that was too long to keep.

    Attributes:
        limit: how many bytes would have been accepted.
        start: what the line begins with.
        end: what it ends with; None while that is not known.
    """

    limit: int
    start: bytes = attrs.field(default=b"", eq=False, repr=False)
    end: bytes | None = attrs.field(default=None, eq=False, repr=False)


class LineDecoder:
    """Cuts a byte stream into lines, in whatever pieces it comes.

    A trailing CR is removed, blank lines are passed over, and so is a byte order mark in front
    of the first line. A line of more than `max_line` bytes (its LF not counted) is reported
    once, as soon as that is known, and skipped up to its end; no more than that is ever held.

    Args:
        max_line: how many bytes a line may have.
        report_ends: report an oversized line a second time when its end is known.
    """

    def __init__(self, max_line: int = DEFAULT_MAX_LINE, *, report_ends: bool = False) -> None:
        self._max_line = max_line
        self._report_ends = report_ends
        self._partial = bytearray()
        self._skipping = False
        self._start = b""
        self._end = b""
        self._at_start = True

    def feed(self, data: bytes) -> list[bytes | OversizedLine]:
        """Take the next bytes; return the lines they complete, without their line ends."""
        # What was fed before holds no LF, so only the new bytes are looked at: linear time.
        *ends, rest = data.split(b"\n")
        lines: list[bytes | OversizedLine] = []
        for end in ends:
            if self._partial or self._skipping or len(end) > self._max_line:
                self._extend(end, lines)
                self._finish(bytes(self._partial), lines)
                self._partial.clear()
            else:
                self._finish(end, lines)
        if rest:
            self._extend(rest, lines)
        return lines

    def eof(self) -> list[bytes | OversizedLine]:
        """The stream has ended: return its last line, if it had no line end."""
        lines: list[bytes | OversizedLine] = []
        self._finish(bytes(self._partial), lines)
        self._partial.clear()
        return lines

    def _extend(self, piece: bytes, lines: list[bytes | OversizedLine]) -> None:
        if not self._skipping:
            if len(self._partial) + len(piece) <= self._max_line:
                self._partial += piece
                return
            self._skipping = True
            self._start = bytes(self._partial[:_KEPT] + piece[:_KEPT])[:_KEPT]
            self._end = bytes(self._partial[-_KEPT:])
            self._partial.clear()
            lines.append(OversizedLine(self._max_line, self._start))
        self._end = (self._end + piece[-_KEPT:])[-_KEPT:]

    def _finish(self, line: bytes, lines: list[bytes | OversizedLine]) -> None:
        at_start, self._at_start = self._at_start, False
        if self._skipping:
            self._skipping = False
            if self._report_ends:
                lines.append(OversizedLine(self._max_line, self._start, self._end))
            return
        if at_start:
            line = line.removeprefix(_BOM)
        if line.strip(_BLANK):
            lines.append(line.removesuffix(b"\r"))


def encode_line(frame: bytes) -> bytes:
    """A message as a line.

    Raises:
        errors.LocalProtocolError: the message holds a line break. What `codec` writes does not.
    """
    if b"\n" in frame or b"\r" in frame:
        raise errors.LocalProtocolError("a message on a line must not hold a line break")
    return frame + b"\n"
