"""The headers that mirror a body: built by one side, verified by the other."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import errors
from mcp_trio.protocol import headers, meta
from mcp_trio.protocol.headers import (
    Headers,
    build_headers,
    build_param_headers,
    decode_value,
    encode_value,
    verify_params,
    verify_standard,
    verify_version,
)

VERSION = "2026-07-28"
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# Strings around the shape that marks Base64.
tricky = st.lists(
    st.sampled_from(["=?base64?", "?=", "=", "?", "QQ==", " ", "\t", "a", "é"]), max_size=5
).map("".join)


def wire(pairs: list[tuple[str, str]]) -> Headers:
    return Headers([(name.encode(), value.encode("latin-1")) for name, value in pairs])


def params(version: object = VERSION, **more: Any) -> dict[str, Any]:
    return {"_meta": {meta.META_VERSION: version}, **more}


@given(texts | tricky)
def test_every_string_survives_a_header(value: str) -> None:
    """W51, W86: what is encoded is safe in a header, and decodes to the same string."""
    encoded = encode_value(value)
    assert encoded.isascii()
    assert encoded == encoded.strip()
    assert all(character == "\t" or character.isprintable() for character in encoded)
    assert decode_value(encoded) == value


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?abc?=", "=?base64?PT9iYXNlNjQ/YWJjPz0=?="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
        ("a\tb c", "a\tb c"),
        ("\x7f", "=?base64?fw==?="),
        ("", ""),
        ("note://测试", "=?base64?bm90ZTovL+a1i+ivlQ==?="),
    ],
)
def test_encoding_examples(value: str, encoded: str) -> None:
    """W51, W86: the examples of the specification, and the edges between them."""
    assert encode_value(value) == encoded
    assert decode_value(encoded) == value


@pytest.mark.parametrize(
    "literal",
    ["SGVsbG8=", "=?base64?SGVsbG8=", "SGVsbG8=?=", "=?BASE64?SGVsbG8=?=", "=?Base64?x?="],
)
def test_what_only_resembles_base64_is_literal(literal: str) -> None:
    """W51, W86: the markers count only together and in lower case."""
    assert decode_value(literal) == literal


@pytest.mark.parametrize(
    "value",
    [
        "=?base64?!!?=",
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?_-8=?=",
        "=?base64?QQ====?=",
        "=?base64?=",
        "=?base64?/w==?=",
        "=?base64?7aCA?=",
        "caf\xe9",
        "a\x00b",
        "a\nb",
        "\x7f",
    ],
)
def test_malformed_values_are_refused(value: str) -> None:
    """W51, W86: bad padding or alphabet, no UTF-8, overlapping markers, characters of no header."""
    with pytest.raises(errors.HeaderMismatch):
        decode_value(value)


def test_a_lone_surrogate_cannot_be_sent() -> None:
    """W51, W59: a string without a UTF-8 form is refused before anything is written."""
    with pytest.raises(errors.LocalProtocolError):
        encode_value("\udcaf")


def test_headers_is_a_case_insensitive_multi_map() -> None:
    """W51, W52: names in any case, several lines, optional whitespace, no values in the repr."""
    got = Headers([(b"X-A", b" 1 "), (b"x-a", b"\t2"), (b"B", b"caf\xe9")])
    assert got["x-A"] == got.get("X-a") == "1, 2"
    assert got.get_all("X-A") == ("1", "2")
    assert got.get_all("c") == ()
    assert got.get("c") is None
    assert dict(got) == {"x-a": "1, 2", "b": "café"}
    assert "X-A" in got
    assert "c" not in got
    assert 5 not in got  # type: ignore[comparison-overlap]
    assert len(got) == 2
    assert "1" not in repr(got)
    assert Headers.parse("X-A:  1 \r\nx-a:\t2\r\nB:a:b") == {"x-a": "1, 2", "b": "a:b"}


methods = st.sampled_from(
    ["tools/list", "tools/call", "prompts/get", "resources/read", "subscriptions/listen", "x/y"]
)


@given(methods, texts | tricky)
def test_what_is_built_is_verified(method: str, name: str) -> None:
    """W51: a client's headers satisfy a server, whatever the name."""
    body = params(name=name, uri=name)
    sent = wire(build_headers(method, body, VERSION))
    verify_version(sent, body)
    verify_standard(sent, method, body)
    assert ("mcp-name" in sent) == (method in headers.NAME_SOURCES)


@given(st.sampled_from(sorted(headers.NAME_SOURCES)), texts | tricky, texts | tricky)
def test_another_name_is_refused(method: str, name: str, other: str) -> None:
    """W51: the name in the header is the one in the body, and nothing else will do."""
    sent = wire(build_headers(method, params(name=name, uri=name), VERSION))
    body = params(name=other, uri=other)
    if name == other:
        verify_standard(sent, method, body)
    else:
        with pytest.raises(errors.HeaderMismatch):
            verify_standard(sent, method, body)


@pytest.mark.parametrize("method", ["x\r\nEvil: 1", "x\u2028", " x", "é"])
def test_what_cannot_stand_in_a_header_is_not_sent(method: str) -> None:
    """W51: a method has no encoding, so it cannot smuggle a line in."""
    with pytest.raises(errors.LocalProtocolError):
        build_headers(method, {}, VERSION)
    with pytest.raises(errors.LocalProtocolError):
        build_headers("x", {}, method)


def test_a_call_without_a_name_has_no_name_header() -> None:
    """W51: there is nothing to mirror; the server will say what is missing."""
    assert build_headers("tools/call", {}, VERSION) == [
        ("MCP-Protocol-Version", VERSION),
        ("Mcp-Method", "tools/call"),
    ]
    assert len(build_headers("tools/call", {"name": 5}, VERSION)) == 2


def test_the_version_header() -> None:
    """W55, W79: missing, doubled or different is a mismatch; its text names what is served."""
    right = wire([("mcp-protocol-version", VERSION)])
    verify_version(right, params())
    with pytest.raises(errors.HeaderMismatch, match=r"missing.*2026-07-28"):
        verify_version(wire([]), params())
    with pytest.raises(errors.HeaderMismatch, match=r"missing.*2025-11-25"):
        verify_version(wire([]), {}, supported=("2025-11-25",))
    with pytest.raises(errors.HeaderMismatch, match=r"'2026-07-28' does not match .*'1900-01-01'"):
        verify_version(right, params("1900-01-01"))
    with pytest.raises(errors.HeaderMismatch, match="twice"):
        verify_version(wire([("MCP-Protocol-Version", VERSION)] * 2), params())


@pytest.mark.parametrize("body", [{}, {"_meta": None}, {"_meta": {}}, params(5)])
def test_a_body_without_a_readable_version_is_the_next_checks_business(
    body: dict[str, Any],
) -> None:
    """W55: the header is right; that the body lacks a required field is an -32602."""
    verify_version(wire([("MCP-Protocol-Version", VERSION)]), body)
    with pytest.raises(errors.InvalidParams):
        meta.parse_meta(body, (VERSION,))


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        pytest.param([], {"name": "a"}, id="none"),
        pytest.param([("Mcp-Method", "tools/call")], {"name": "a"}, id="no name"),
        pytest.param([("Mcp-Name", "a")], {"name": "a"}, id="no method"),
        pytest.param([("Mcp-Method", "TOOLS/CALL"), ("Mcp-Name", "a")], {"name": "a"}, id="case"),
        pytest.param(
            [("Mcp-Method", "tools/call"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "a")],
            {"name": "a"},
            id="two methods",
        ),
        pytest.param(
            [("Mcp-Method", "tools/call"), ("Mcp-Name", "a"), ("Mcp-Name", "b")],
            {"name": "a, b"},
            id="two names",
        ),
        pytest.param([("Mcp-Method", "tools/call"), ("Mcp-Name", "a")], {}, id="no body name"),
        pytest.param(
            [("Mcp-Method", "tools/call"), ("Mcp-Name", "5")], {"name": 5}, id="not a string"
        ),
        pytest.param(
            [("Mcp-Method", "tools/call"), ("Mcp-Name", "caf\xe9")], {"name": "caf\xe9"}, id="raw"
        ),
        pytest.param(
            [("Mcp-Method", "tools/call"), ("Mcp-Name", "=?base64?!!?=")],
            {"name": "=?base64?!!?="},
            id="bad Base64",
        ),
    ],
)
def test_the_standard_headers(lines: list[tuple[str, str]], body: dict[str, Any]) -> None:
    """W51: missing, doubled, malformed or different is a mismatch."""
    with pytest.raises(errors.HeaderMismatch):
        verify_standard(wire(lines), "tools/call", body)


def test_a_name_may_come_encoded_without_need() -> None:
    """W51: servers decode before they compare."""
    encoded = "=?base64?" + base64.b64encode(b"a").decode() + "?="
    verify_standard(
        wire([("mcp-method", "tools/call"), ("mcp-name", encoded)]), "tools/call", {"name": "a"}
    )


def test_extensions_can_name_their_own_methods() -> None:
    """W51: which params a name mirrors is a table that can be replaced."""
    sources = {"tasks/get": "taskId"}
    body = {"taskId": "t"}
    sent = wire(build_headers("tasks/get", body, VERSION, name_sources=sources))
    verify_standard(sent, "tasks/get", body, name_sources=sources)
    with pytest.raises(errors.HeaderMismatch):
        verify_standard(sent, "tasks/get", {"taskId": "u"}, name_sources=sources)


safe_integers = st.integers(-(2**53) + 1, 2**53 - 1)


@given(
    st.dictionaries(
        st.sampled_from(["Region", "x-y", "N", "Flag"]),
        texts | tricky | safe_integers | st.booleans() | st.none(),
    )
)
def test_what_is_mirrored_is_verified(values: dict[str, object]) -> None:
    """W86: strings, integers and booleans; null sends nothing."""
    sent = build_param_headers(values)
    assert len(sent) == sum(value is not None for value in values.values())
    verify_params(wire(sent), values)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("42", 42),
        ("42.0", 42),
        ("42", 42.0),
        ("-7", -7),
        ("042", 42),
        ("true", True),
        ("false", False),
        ("=?base64?SGVsbG8=?=", "Hello"),
        ("", ""),
    ],
)
def test_values_that_match(header: str, value: object) -> None:
    """W86: integers are compared as numbers, the rest as text."""
    verify_params(wire([("mcp-param-x", header), ("Mcp-Param-Other", "?")]), {"X": value})


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        pytest.param([], "a", id="missing"),
        pytest.param(["b"], "a", id="different"),
        pytest.param(["A"], "a", id="case"),
        pytest.param(["a", "a"], "a", id="twice"),
        pytest.param(["a"], None, id="orphan"),
        pytest.param(["42.5"], 42, id="fraction"),
        pytest.param(["4e1"], 40, id="exponent"),
        pytest.param(["9" * 5000], 42, id="huge"),
        pytest.param(["forty-two"], 42, id="no number"),
        pytest.param(["1"], True, id="one is not true"),
        pytest.param(["True"], True, id="True"),
        pytest.param(["true"], 1, id="true is not one"),
        pytest.param(["[]"], [], id="no primitive"),
        pytest.param(["caf\xe9"], "caf\xe9", id="raw"),
        pytest.param(["=?base64?SGVsbG8?="], "Hello", id="padding"),
    ],
)
def test_values_that_do_not_match(lines: list[str], value: object) -> None:
    """W86: a mismatch, a missing header and one without a value in the body are refused."""
    with pytest.raises(errors.HeaderMismatch):
        verify_params(wire([("Mcp-Param-X", line) for line in lines]), {"X": value})


@pytest.mark.parametrize(
    "value", [[], {}, 1.5, 2**53, -(2**53), float("nan"), float("inf"), "\ud800"]
)
def test_values_that_cannot_be_mirrored(value: object) -> None:
    """W86: only strings, booleans and integers that every peer can hold."""
    with pytest.raises(errors.LocalProtocolError):
        build_param_headers({"X": value})


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "é"])
def test_names_that_are_no_header_names(name: str) -> None:
    """W86: the name after the prefix is a token."""
    with pytest.raises(errors.LocalProtocolError):
        build_param_headers({name: "x"})


def test_what_is_shown_is_short() -> None:
    """W51: a mismatch does not echo a long value back."""
    with pytest.raises(errors.HeaderMismatch) as caught:
        verify_params(wire([("Mcp-Param-X", "a" * 10_000)]), {"X": ["b"] * 10_000})
    assert len(str(caught.value)) < 300
