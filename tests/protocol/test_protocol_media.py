"""Accept and Content-Type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.protocol.headers import Headers
from mcp_trio.protocol.media import (
    Accepts,
    MediaType,
    accepts,
    is_json,
    is_sse,
    parse_media_type,
)

BOTH = Accepts(json=True, sse=True)
JSON_ONLY = Accepts(json=True, sse=False)
SSE_ONLY = Accepts(json=False, sse=True)
NEITHER = Accepts(json=False, sse=False)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], BOTH),
        ([""], BOTH),
        (["application/json, text/event-stream"], BOTH),
        (["text/event-stream,application/json"], BOTH),
        (["application/json", "text/event-stream"], BOTH),
        (["APPLICATION/JSON, Text/Event-Stream"], BOTH),
        (["*/*"], BOTH),
        (["application/*, text/*"], BOTH),
        (["application/json;q=0.5, text/event-stream ; Q=0.001"], BOTH),
        (["application/json; charset=utf-8, text/event-stream"], BOTH),
        (["text/html, */*;q=0.1"], BOTH),
        (["application/json, text/event-stream;q=0"], JSON_ONLY),
        (["*/*, text/event-stream;q=0.000"], JSON_ONLY),
        (["text/event-stream;q=0, text/*, application/json"], JSON_ONLY),
        (["text/*;q=0, */*"], JSON_ONLY),
        (["application/json"], JSON_ONLY),
        (["text/event-stream"], SSE_ONLY),
        (["text/*"], SSE_ONLY),
        (["*/*;q=0, text/event-stream"], SSE_ONLY),
        (["text/html"], NEITHER),
        (["*/*;q=0"], NEITHER),
        (["application/jsonx, text/event-streams"], NEITHER),
        (["*/json"], NEITHER),
        (["json, , ;;, /, */*x, application/json text/event-stream"], NEITHER),
        (["application/json;q=2, text/event-stream"], SSE_ONLY),
        (["application/json;q=-1, text/event-stream;q=nan"], NEITHER),
        (["garbage, application/json"], JSON_ONLY),
        (['text/html;x="a, application/json;", text/event-stream'], SSE_ONLY),
        (['text/html;x="\\", text/event-stream", application/json'], JSON_ONLY),
        (["application/json;", "text/event-stream; ;q=1"], BOTH),
        (["application/json;q=0;q=1"], NEITHER),
    ],
)
def test_accept(lines: list[str], expected: Accepts) -> None:
    """W52: wildcards, weights, order, several lines, none, and what cannot be read."""
    assert accepts(Headers([(b"Accept", line.encode()) for line in lines])) == expected


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        'application/json;charset="u\\tf-8"',
        "application/json ; version=1 ; charset=Utf-8",
        "application/json;",
    ],
)
def test_json(value: str) -> None:
    """W52: parameters, case and the charset UTF-8 do not matter."""
    assert is_json(value)
    assert not is_sse(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "json",
        "text/json",
        "application/json5",
        "application/json-patch+json",
        "application/*",
        "application/json; charset=latin-1",
        "application/json; charset=utf-8; charset=utf-8",
        "application/json; charset",
        "application/json; charset=",
        'application/json; charset="utf-8',
        "application/json, application/json",
        "application/json text/plain",
        "application / json",
        "application/jsön",
    ],
)
def test_not_json(value: str | None) -> None:
    """W52: another type, another charset, or nothing that can be read."""
    assert not is_json(value)


def test_sse() -> None:
    """W52: the answer's own type, for a client."""
    assert is_sse("text/event-stream")
    assert is_sse("text/event-stream;charset=utf-8")
    assert not is_sse("application/json")
    assert not is_sse(None)


def test_parse_media_type() -> None:
    """W52: names in lower case, quotes taken off, order kept."""
    assert parse_media_type('Text/Plain; A=b; C="d \\" e"') == MediaType(
        "text", "plain", {"a": "b", "c": 'd " e'}
    )
    assert parse_media_type("text") is None


@given(st.text('ab/*;=q01.," \t\\', max_size=40))
def test_no_header_breaks_the_parser(line: str) -> None:
    """W52: any line is read, and one entry that cannot be read leaves the others alone."""
    accepts(Headers([(b"Accept", line.encode())]))
    is_json(line)
    if '"' not in line:
        both = f"{line}, application/json, text/event-stream"
        assert accepts(Headers([(b"Accept", both.encode())])) == BOTH or "*" in line


@given(st.lists(st.sampled_from(["application/json", "text/event-stream", "a/b", "c"]), max_size=6))
def test_lines_are_one_list(entries: list[str]) -> None:
    """W52: several lines mean what one line with commas means."""
    several = Headers([(b"Accept", entry.encode()) for entry in entries])
    one = Headers([(b"accept", ", ".join(entries).encode())] if entries else [])
    assert accepts(several) == accepts(one)
