"""Line framing: every way a byte stream can be cut gives the same lines."""

import json
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, lines
from mcp_trio.protocol.lines import LineDecoder, OversizedLine, encode_line

BOM = b"\xef\xbb\xbf"


def decode(*pieces: bytes, max_line: int = 1000) -> list[bytes | OversizedLine]:
    decoder = LineDecoder(max_line)
    found: list[bytes | OversizedLine] = []
    for piece in pieces:
        found += decoder.feed(piece)
    return found + decoder.eof()


def one_byte_pieces(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def reference(data: bytes, max_line: int) -> list[bytes | OversizedLine]:
    """What the decoder has to find, said in another way."""
    found: list[bytes | OversizedLine] = []
    for index, line in enumerate(data.split(b"\n")):
        if len(line) > max_line:
            found.append(OversizedLine(max_line))
            continue
        if index == 0 and line.startswith(BOM):
            line = line[3:]
        if line.endswith(b"\r"):
            content = line[:-1]
        else:
            content = line
        if line.strip(b" \t\r"):
            found.append(content)
    return found


# Bytes that matter to framing are frequent, so that their combinations are met.
streams = st.lists(
    st.sampled_from(
        [b"\n", b"\r", b"\r\n", b" ", b"\t", BOM, b"{}", b"ab", b"\xe2\x80\xa8", b"\x85"]
    )
    | st.binary(max_size=6),
    max_size=40,
).map(b"".join)


@st.composite
def cut_streams(draw: st.DrawFn) -> list[bytes]:
    data = draw(streams)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=10)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(cut_streams(), st.integers(0, 12))
def test_any_cut_gives_what_one_piece_gives(pieces: list[bytes], max_line: int) -> None:
    """W22, W23, W28: where the stream is cut changes nothing, and the lines are the right ones."""
    data = b"".join(pieces)
    expected = reference(data, max_line)
    assert decode(*pieces, max_line=max_line) == expected
    assert decode(data, max_line=max_line) == expected
    assert decode(*one_byte_pieces(data), max_line=max_line) == expected


@given(st.lists(st.text(max_size=20), max_size=10))
def test_what_is_encoded_is_decoded(texts: list[str]) -> None:
    """W10, W22: any text goes through, in one-byte pieces too."""
    frames = [jsonrpc.encode_notification("x", {"text": text}) for text in texts if _is_utf8(text)]
    data = b"".join(encode_line(frame) for frame in frames)
    assert decode(*one_byte_pieces(data)) == frames


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(BOM + b"{}\r\n", [b"{}"], id="STD-1"),
        pytest.param(b"\n\r\n \t\n", [], id="STD-2"),
        pytest.param(b"{}", [b"{}"], id="STD-3"),
        pytest.param(b"\xff\xfe\n", [b"\xff\xfe"], id="STD-4"),
        pytest.param(b'{"id":1.0}\n', [b'{"id":1.0}'], id="STD-6"),
        pytest.param(b"\n\n \r\n{}\r\n", [b"{}"], id="blank lines first"),
        pytest.param(b"1\n2\n3\n", [b"1", b"2", b"3"], id="several in one write"),
        pytest.param(b"{}\n" + BOM + b"{}\n", [b"{}", BOM + b"{}"], id="BOM later"),
        pytest.param(BOM + BOM + b"{}\n", [BOM + b"{}"], id="two BOMs"),
        pytest.param(BOM, [], id="only a BOM"),
        pytest.param(b"a\rb\r\r\n", [b"a\rb\r"], id="other CRs stay"),
        pytest.param(b'"\xe2\x80\xa8\xc2\x85\x0b\x0c\x1c\x1d\x1e"\n', None, id="W10"),
    ],
)
def test_vectors(data: bytes, expected: list[bytes] | None) -> None:
    """W10, W28, STD-1 to STD-4, STD-6: the raw byte vectors, whole and byte by byte."""
    if expected is None:
        expected = [data[:-1]]
    assert decode(data) == expected
    assert decode(*one_byte_pieces(data)) == expected


def test_a_line_that_is_not_json_is_refused_where_it_is_parsed() -> None:
    """STD-4, STD-5, STD-6: the framing passes them on, the envelope refuses them."""
    bomb = b"[" * 100_000
    for line in (b"\xff\xfe", bomb):
        assert decode(line + b"\n", max_line=200_000) == [line]
        with pytest.raises(errors.ParseError):
            jsonrpc.parse_client_message(line)
    with pytest.raises(errors.InvalidRequest):
        jsonrpc.parse_client_message(b'{"id":1.0,"jsonrpc":"2.0","method":"x"}')


def test_the_lines_before_an_oversized_one_are_delivered() -> None:
    """W23, STD-7: one valid line and 16 MiB without a line end, in one piece."""
    decoder = LineDecoder()
    assert decoder.feed(b"{}\n" + b"x" * (16 << 20)) == [
        b"{}",
        OversizedLine(lines.DEFAULT_MAX_LINE),
    ]
    assert decoder.feed(b"y" * 100) == []
    assert decoder.feed(b"\n{}\n") == [b"{}"]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_both_ends_of_an_oversized_line_are_kept(size: int) -> None:
    """W23: a few bytes, however the line arrives, so that one can see what it was."""
    data = b'{"start":"' + b"x" * 3000 + b'","end":1}\n{}\n' + b"y" * 3000
    decoder = LineDecoder(1000, report_ends=True)
    found: list[Any] = []
    for at in range(0, len(data), size):
        found += decoder.feed(data[at : at + size])
    found += decoder.eof()
    assert [line if isinstance(line, bytes) else line.end is None for line in found] == [
        True, False, b"{}", True, False,
    ]  # fmt: skip
    first, whole, _, _, last = found
    assert first.start == whole.start == data[:512]
    assert whole.end == data[data.index(b"\n") - 512 : data.index(b"\n")]
    assert last.start == last.end == b"y" * 512


def test_an_oversized_line_is_reported_once_and_costs_no_memory() -> None:
    """W23: a line without end is told of when it is too long, and forgotten."""
    decoder = LineDecoder(10)
    assert decoder.feed(b"x" * 10) == []
    assert decoder.feed(b"x") == [OversizedLine(10)]
    for _ in range(5):
        assert decoder.feed(b"x" * 1000) == []
        assert len(decoder._partial) == 0
    assert decoder.eof() == []


@pytest.mark.parametrize("size", [1 << 20, (4 << 20) - 1, 4 << 20])
def test_large_lines_are_read_in_one_write_and_in_many(size: int) -> None:
    """W23: the size of a message is not that of a chunk."""
    line = b"x" * size
    data = line + b"\n"
    assert decode(data, max_line=4 << 20) == [line]
    pieces = [data[i : i + 4096] for i in range(0, len(data), 4096)]
    assert decode(*pieces, max_line=4 << 20) == [line]


class CountingBuffer(bytearray):
    """A bytearray that adds up the bytes which go in and out."""

    moved = 0

    def __iadd__(self, other: bytes) -> Self:  # type: ignore[override, misc]
        CountingBuffer.moved += len(other)
        return super().__iadd__(other)

    def __bytes__(self) -> bytes:
        CountingBuffer.moved += len(self)
        return bytes(memoryview(self))

    def clear(self) -> None:
        CountingBuffer.moved += len(self)
        super().clear()


@pytest.mark.parametrize("piece", [1, 7, 4096])
@pytest.mark.parametrize(
    "data",
    [b"x" * 20_000, b"x" * 19_999 + b"\n", (b"x" * 99 + b"\n") * 200, b"\n" * 20_000],
    ids=["no line end", "one line", "many lines", "blank lines"],
)
def test_work_is_linear(monkeypatch: pytest.MonkeyPatch, data: bytes, piece: int) -> None:
    """W23: each byte goes into the buffer, out of it, and away at most once."""
    monkeypatch.setattr(lines, "bytearray", CountingBuffer, raising=False)
    CountingBuffer.moved = 0
    decoder = LineDecoder()
    assert type(decoder._partial) is CountingBuffer
    for start in range(0, len(data), piece):
        decoder.feed(data[start : start + piece])
    decoder.eof()
    assert CountingBuffer.moved <= 3 * len(data)


@pytest.mark.parametrize("frame", [b"{\n}", b"{}\r", b"\r\n"])
def test_a_frame_with_a_line_break_is_not_written(frame: bytes) -> None:
    """W28: a message never becomes two lines, nor ends with CRLF."""
    with pytest.raises(errors.LocalProtocolError):
        encode_line(frame)


def test_an_encoded_line() -> None:
    """W28: LF, no CR, no BOM."""
    assert encode_line(b"{}") == b"{}\n"


def test_noise_does_not_end_the_stream() -> None:
    """W29: whatever stands on the lines before it, a good answer is found, without recursion."""
    noise = [b"Starting...", b"{", b'  "ok": false', b"}", b"42", b"null", b'"x"', b"[]"]
    good = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    data = b"\n".join([*noise, *[b"bad line"] * 50_000, good]) + b"\n"
    answers = []
    for line in LineDecoder().feed(data):
        assert isinstance(line, bytes)
        try:
            answers.append(jsonrpc.parse_server_message(line))
        except errors.RemoteProtocolError:
            continue
    assert answers == [jsonrpc.ResultReply(1, {})]
    assert json.loads(good)["id"] == 1
