"""Server-sent events, both ways.

Source: the HTML standard, "Server-sent events"; specification,
basic/transports/streamable-http, "Receiving Messages".
"""

from typing import Final

import attrs

from mcp_trio import errors

__all__ = [
    "DEFAULT_MAX_EVENT",
    "Comment",
    "SSEDecoder",
    "ServerSentEvent",
    "encode_comment",
    "encode_event",
]

DEFAULT_MAX_EVENT: Final = 4 * 1024 * 1024
"""How many bytes the lines of one event may have, unless told otherwise."""

_BOM: Final = b"\xef\xbb\xbf"
_MAX_RETRY_DIGITS: Final = 15


@attrs.frozen
class ServerSentEvent:
    """An event that carries data.

    Attributes:
        event: its type, `message` where the stream names none.
        data: the data lines, joined by LF; never empty.
        id: the last event id in force; empty where the stream has set none.
        retry: the reconnection time in force, in milliseconds, if the stream has set one.
    """

    event: str
    data: bytes
    id: str = ""
    retry: int | None = None


@attrs.frozen
class Comment:
    """A comment line. It means nothing, but that the server is alive."""

    text: bytes


def encode_event(frame: bytes) -> bytes:
    """A message as an event.

    One that holds line breaks becomes several data lines, which a decoder joins again.
    """
    if b"\n" in frame or b"\r" in frame:
        frame = _normalise(frame).replace(b"\n", b"\ndata: ")
    return b"data: " + frame + b"\n\n"


def encode_comment(text: bytes = b"") -> bytes:
    """A comment, which keeps a quiet connection open.

    Raises:
        errors.LocalProtocolError: the text holds a line break.
    """
    if b"\n" in text or b"\r" in text:
        raise errors.LocalProtocolError("a comment must not hold a line break")
    return b": " + text + b"\n\n" if text else b":\n\n"


class SSEDecoder:
    r"""Takes a stream of server-sent events apart, in whatever pieces it comes.

    Lines end with LF, CR or CRLF; a CR ends its line at once, also where the LF that belongs to
    it is still on its way. An event with empty data is not reported, but its id counts: servers
    of older revisions open a stream with one. An event that the end of the stream cuts off is
    dropped.

    Attributes:
        last_event_id: the id in force after the last complete event; empty without one.
        retry: the reconnection time in force, in milliseconds, if the stream has set one.
    """

    def __init__(self, max_event: int = DEFAULT_MAX_EVENT) -> None:
        self.last_event_id = ""
        self.retry: int | None = None
        self._max_event = max_event
        self._at_start = True
        self._skip_lf = False
        self._line = bytearray()
        self._data = bytearray()
        self._event = ""
        self._id = ""
        self._oversized = False

    def feed(self, data: bytes) -> list[ServerSentEvent | Comment]:
        """Take the next bytes; return the events and comments they complete, in order.

        Raises:
            errors.RemoteProtocolError: an event or a line is larger than `max_event` bytes. What
                came before it has been returned first, by this call's predecessor if need be.
                The stream cannot be read further.
        """
        if self._skip_lf and data:
            self._skip_lf = False
            if data[:1] == b"\n":
                data = data[1:]
        found: list[ServerSentEvent | Comment] = []
        if data and not self._oversized:
            if b"\r" in data:
                self._skip_lf = data.endswith(b"\r")
                data = _normalise(data)
            *ends, rest = data.split(b"\n")
            if all(self._end_line(end, found) for end in ends):
                self._extend(rest)
        if self._oversized and not found:
            raise errors.RemoteProtocolError(f"an event of more than {self._max_event} bytes")
        return found

    def eof(self) -> None:
        """The stream has ended; an unfinished event is dropped.

        Raises:
            errors.RemoteProtocolError: as `feed`.
        """
        self._line.clear()
        self._data.clear()
        self.feed(b"")

    def _give_up(self) -> bool:
        self._oversized = True
        self._line.clear()
        self._data.clear()
        return False

    def _extend(self, piece: bytes) -> bool:
        if len(self._line) + len(piece) > self._max_event:
            return self._give_up()
        self._line += piece
        return True

    def _end_line(self, end: bytes, found: list[ServerSentEvent | Comment]) -> bool:
        """Interpret the line that ends with these bytes; whether reading can go on."""
        if self._line or len(end) > self._max_event:
            if not self._extend(end):
                return False
            end = bytes(self._line)
            self._line.clear()
        if self._at_start:
            self._at_start = False
            end = end.removeprefix(_BOM)
        if not end:
            self._dispatch(found)
            return True
        name, _, value = end.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            if len(self._data) + len(value) > self._max_event:
                return self._give_up()
            self._data += value
            self._data += b"\n"
        elif not name:
            found.append(Comment(value))
        else:
            self._field(name, value)
        return True

    def _field(self, name: bytes, value: bytes) -> None:
        if name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
            self.retry = int(value)

    def _dispatch(self, found: list[ServerSentEvent | Comment]) -> None:
        self.last_event_id = self._id
        event, self._event = self._event, ""
        if self._data:
            data = bytes(self._data[:-1])
            self._data.clear()
            if data:
                found.append(ServerSentEvent(event or "message", data, self._id, self.retry))


def _normalise(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
