"""Server-sent events: a decoder held against the standard, cut in every way."""

import re
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import errors
from mcp_trio.protocol import sse
from mcp_trio.protocol.sse import (
    Comment,
    ServerSentEvent,
    SSEDecoder,
    encode_comment,
    encode_event,
)

BOM = b"\xef\xbb\xbf"
Found = list[ServerSentEvent | Comment | str]


def decode(*pieces: bytes, max_event: int = 1000) -> Found:
    """Everything found, and "oversized" where the decoder gave up."""
    decoder = SSEDecoder(max_event)
    found: Found = []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
        decoder.eof()
    except errors.RemoteProtocolError:
        found.append("oversized")
    return found


def one_byte_pieces(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def reference(data: bytes) -> Found:
    """The algorithm of the standard, word by word, over the whole stream as text."""
    text = data.decode("latin-1")
    text = text.removeprefix(BOM.decode("latin-1"))
    whole_lines = re.split("\r\n|\r|\n", text)[:-1]
    found: Found = []
    data_buffer = event_buffer = id_buffer = ""
    retry: int | None = None
    for line in whole_lines:
        if line == "":
            buffer, data_buffer = data_buffer, ""
            event, event_buffer = event_buffer, ""
            content = buffer[:-1].encode("latin-1")
            if content:  # the standard would dispatch the empty string that `data:` gives
                name = event.encode("latin-1").decode("utf-8", "replace") or "message"
                event_id = id_buffer.encode("latin-1").decode("utf-8", "replace")
                found.append(ServerSentEvent(name, content, event_id, retry))
            continue
        field, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if colon and field == "":
            found.append(Comment(value.encode("latin-1")))
        elif field == "event":
            event_buffer = value
        elif field == "data":
            data_buffer += value + "\n"
        elif field == "id" and "\0" not in value:
            id_buffer = value
        elif field == "retry" and re.fullmatch("[0-9]{1,15}", value):
            retry = int(value)
    return found


streams = st.lists(
    st.sampled_from(
        [
            *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n"),
            *(b"data:", b"data: ", b"data", b"data: {}", b"event: x", b"event:", b"id: 1", b"id"),
            *(b"id: \0", b"retry: 10", b"retry: x", b"retry:\xb2", b":", b": c", b" ", b"other: x"),
            *(BOM, b"\xe2\x80\xa8", b"\xc2\x85", b"\xf0\x9f", b"\0"),
        ]
    )
    | st.binary(max_size=4),
    max_size=40,
).map(b"".join)


@st.composite
def cut_streams(draw: st.DrawFn) -> list[bytes]:
    data = draw(streams)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=10)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(cut_streams())
def test_any_cut_gives_what_the_standard_says(pieces: list[bytes]) -> None:
    """W09, W10, W11, W12, W22: where the stream is cut changes nothing."""
    data = b"".join(pieces)
    expected = reference(data)
    assert decode(*pieces, max_event=10_000) == expected
    assert decode(data, max_event=10_000) == expected
    assert decode(*one_byte_pieces(data), max_event=10_000) == expected


@given(cut_streams(), st.integers(0, 12))
def test_the_limit_strikes_at_the_same_place_however_cut(
    pieces: list[bytes], max_event: int
) -> None:
    """W23: what came before an event that is too large is delivered, whatever the cut."""
    data = b"".join(pieces)
    whole = decode(data, max_event=max_event)
    assert decode(*pieces, max_event=max_event) == whole
    assert decode(*one_byte_pieces(data), max_event=max_event) == whole
    everything = reference(data)
    if whole and whole[-1] == "oversized":
        assert whole[:-1] == everything[: len(whole) - 1]
    else:
        assert whole == everything


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=8))
def test_what_is_encoded_is_decoded(frames: list[bytes]) -> None:
    """W09, W10: data goes through, with its line breaks as LF, and comments between."""
    data = encode_comment().join(encode_event(frame) for frame in frames)
    events = [event for event in decode(*one_byte_pieces(data)) if not isinstance(event, Comment)]
    normalised = [re.sub(rb"\r\n|\r", b"\n", frame) for frame in frames]
    assert events == [ServerSentEvent("message", frame) for frame in normalised]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b":\r\n\r\n", [Comment(b"")], id="SSE-1"),
        pytest.param(BOM + b"data:{}\n\n", [ServerSentEvent("message", b"{}")], id="SSE-2"),
        pytest.param(
            b"data: {\r\ndata: }\r\n\r\n", [ServerSentEvent("message", b"{\n}")], id="SSE-3"
        ),
        pytest.param(
            b'data: "\xe2\x80\xa8"\r\r',
            [ServerSentEvent("message", b'"\xe2\x80\xa8"')],
            id="SSE-4",
        ),
        pytest.param(b"id: 1\ndata:\n\n", [], id="SSE-5"),
        pytest.param(b"data: {}\n", [], id="SSE-6"),
        pytest.param(
            b"event: message\r\ndata: A\r\n\r\n", [ServerSentEvent("message", b"A")], id="CRLF"
        ),
        pytest.param(b"event: e\rdata: A\r\r", [ServerSentEvent("e", b"A")], id="CR"),
        pytest.param(b"event: e\ndata: A\n\n", [ServerSentEvent("e", b"A")], id="LF"),
        pytest.param(b"event: e\ndata: A\r\n\r", [ServerSentEvent("e", b"A")], id="mixed"),
        pytest.param(
            b"data: A\n:x\ndata: B\n\n",
            [Comment(b"x"), ServerSentEvent("message", b"A\nB")],
            id="comment inside an event",
        ),
        pytest.param(b': {"jsonrpc":"2.0"}\n\n', [Comment(b'{"jsonrpc":"2.0"}')], id="no event"),
        pytest.param(b"event: ping\ndata: \n\n", [], id="empty data"),
        pytest.param(b"event: ping\n\n", [], id="no data"),
        pytest.param(
            b"event: ping\n\ndata: A\n\n",
            [ServerSentEvent("message", b"A")],
            id="the type of an event without data is forgotten",
        ),
        pytest.param(b"retry: 1000\n\n", [], id="retry alone"),
        pytest.param(b"DATA: A\n data: A\ndataa: A\n\n", [], id="names are exact"),
        pytest.param(
            b"data:  A \n\n", [ServerSentEvent("message", b" A ")], id="one space is dropped"
        ),
    ],
)
def test_vectors(data: bytes, expected: Found) -> None:
    """W09, W11, W12, SSE-1 to SSE-6: raw bytes, whole, cut once anywhere, and byte by byte."""
    assert decode(data) == expected
    assert decode(*one_byte_pieces(data)) == expected
    for cut in range(len(data)):
        assert decode(data[:cut], data[cut:]) == expected


def test_a_cr_ends_its_line_at_once() -> None:
    """W09: an event is not held back for an LF that may never come."""
    decoder = SSEDecoder()
    assert decoder.feed(b"data: A\r\n\r") == [ServerSentEvent("message", b"A")]
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: B\n\n") == [ServerSentEvent("message", b"B")]


def test_the_id_and_the_retry_time_outlive_their_event() -> None:
    """W12: the event that older servers open a stream with is not reported, but its id counts."""
    decoder = SSEDecoder()
    assert decoder.feed(b"id: 7\nretry: 250\ndata:\n") == []
    assert decoder.last_event_id == ""
    assert decoder.feed(b"\n") == []
    assert (decoder.last_event_id, decoder.retry) == ("7", 250)
    assert decoder.feed(b"data: A\n\n") == [ServerSentEvent("message", b"A", "7", 250)]
    assert decoder.feed(b"id: 8\0\nretry: -1\ndata: A\n\n") == [
        ServerSentEvent("message", b"A", "7", 250)
    ]
    assert decoder.feed(b"id\nretry: 1" + b"0" * 5000 + b"\ndata: A\n\n") == [
        ServerSentEvent("message", b"A", "", 250)
    ]


def test_an_unfinished_event_does_not_change_the_id_in_force() -> None:
    """SSE-6: what the end of the stream cuts off did not happen."""
    decoder = SSEDecoder()
    decoder.feed(b"id: 1\ndata: A\n\nid: 2\ndata: B\n")
    decoder.eof()
    assert decoder.last_event_id == "1"


@pytest.mark.parametrize(
    "data",
    [b"data: " + b"x" * 100, b"x" * 101, b": " + b"x" * 100, b"data: x\n" * 60, b"data\n" * 102],
    ids=["data", "any line", "comment", "data lines", "empty data lines"],
)
def test_what_is_too_large_is_refused_and_not_kept(data: bytes) -> None:
    """W23: a stream cannot make the decoder hold more than its limit; earlier events count."""
    decoder = SSEDecoder(100)
    assert decoder.feed(b"data: A\n\n" + data) == [ServerSentEvent("message", b"A")]
    for _ in range(3):
        with pytest.raises(errors.RemoteProtocolError, match="100 bytes"):
            decoder.feed(b"more")
        assert len(decoder._line) + len(decoder._data) == 0
    with pytest.raises(errors.RemoteProtocolError):
        decoder.eof()


def test_comments_inside_an_event_do_not_count_towards_its_size() -> None:
    """W11, W13: a server may keep a connection alive for ever."""
    decoder = SSEDecoder(20)
    decoder.feed(b"data: A\n")
    assert decoder.feed(b": alive\n" * 1000) == [Comment(b"alive")] * 1000
    assert decoder.feed(b"\n") == [ServerSentEvent("message", b"A")]


class CountingBuffer(bytearray):
    """A bytearray that adds up the bytes which go in and out."""

    moved = 0

    def __iadd__(self, other: bytes) -> Self:  # type: ignore[override, misc]
        CountingBuffer.moved += len(other)
        return super().__iadd__(other)

    def __bytes__(self) -> bytes:
        CountingBuffer.moved += len(self)
        return bytes(memoryview(self))

    def __getitem__(self, key: slice) -> bytearray:  # type: ignore[override]
        CountingBuffer.moved += len(self)
        return super().__getitem__(key)

    def clear(self) -> None:
        CountingBuffer.moved += len(self)
        super().clear()


@pytest.mark.parametrize("piece", [1, 7, 4096])
@pytest.mark.parametrize(
    "data",
    [
        *(b"x" * 10_000, b"data: " + b"x" * 10_000 + b"\n\n", b"data: x\n" * 1250 + b"\n"),
        *(b"data\n" * 2000, b":\n" * 5000, b"\r" * 10_000, b"data: x\r\n\r\n" * 1000),
    ],
    ids=["no line end", "one event", "data lines", "empty data", "comments", "CRs", "events"],
)
def test_work_is_linear(monkeypatch: pytest.MonkeyPatch, data: bytes, piece: int) -> None:
    """W23: each byte is moved a bounded number of times, whatever flood it is part of."""
    monkeypatch.setattr(sse, "bytearray", CountingBuffer, raising=False)
    CountingBuffer.moved = 0
    decoder = SSEDecoder()
    assert type(decoder._line) is type(decoder._data) is CountingBuffer
    for start in range(0, len(data), piece):
        decoder.feed(data[start : start + piece])
    decoder.eof()
    assert CountingBuffer.moved <= 6 * len(data)


def test_encoding() -> None:
    """W09, W13: the bytes on the wire."""
    assert encode_event(b"{}") == b"data: {}\n\n"
    assert encode_event(b"{\r\n}\r") == b"data: {\ndata: }\ndata: \n\n"
    assert encode_comment() == b":\n\n"
    assert encode_comment(b"alive") == b": alive\n\n"
    with pytest.raises(errors.LocalProtocolError):
        encode_comment(b"a\ndata: forged")
