"""Host and Origin: who may talk to a server on this machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.protocol.hosts import LOOPBACK, allowed_host, allowed_origin


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "[0:0::0:1]"])
@pytest.mark.parametrize("port", ["", ":80", ":8000", ":65535"])
def test_this_machine_is_allowed_on_any_port(name: str, port: str) -> None:
    """W53: the names of this machine, in any case, with or without a port."""
    assert allowed_host(name + port)
    for scheme in ("http", "HTTPS"):
        assert allowed_origin(f"{scheme}://{name}{port}")


@pytest.mark.parametrize(
    "name",
    [
        "evil",
        "evil.example.com",
        "localhost.evil.example.com",
        "evil.localhost",
        "xlocalhost",
        "localhost.",
        "127.0.0.1.nip.io",
        "127.0.0.11",
        "0.0.0.0",  # noqa: S104
        "127.1",
        "[::]",
        "[::2]",
        "[::ffff:127.0.0.1]",
    ],
)
@pytest.mark.parametrize("port", ["", ":8000"])
def test_other_names_are_refused(name: str, port: str) -> None:
    """W53: a name is compared as a whole; nothing is resolved."""
    assert not allowed_host(name + port)
    assert not allowed_origin(f"http://{name}{port}")


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "local host",
        " localhost",
        "localhost:",
        "localhost:x",
        "localhost:-1",
        "localhost:65536",
        "localhost:99999999999",
        "localhost:80:80",
        "localhost:\u0661",
        ":8000",
        "[::1",
        "::1",
        "[::1]x",
        "[::1%25lo]",
        "[:::1]",
        "user@localhost",
        "localhost/",
        "localhost\n",
        "localhost,evil",
        "local\u212aost",
        "localhost\xe9",
    ],
)
def test_malformed_is_refused(value: str) -> None:
    """W53: what is no host is not allowed, whatever the list."""
    for allowed in (LOOPBACK, ("*",)):
        assert not allowed_host(value, allowed)
        assert not allowed_origin(f"http://{value}", allowed)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "localhost",
        "http:localhost",
        "http:/localhost",
        "http://",
        "http://localhost/",
        "http://localhost/path",
        "http://localhost?x",
        "http://localhost http://evil",
        "null null",
        "//localhost",
        "1http://localhost",
        "file://",
    ],
)
def test_malformed_origins_are_refused(value: str) -> None:
    """W53: present and invalid is refused."""
    for allowed in (LOOPBACK, ("*",)):
        assert not allowed_origin(value, allowed)


def test_absent_headers() -> None:
    """W53: no Origin is fine, since only browsers send one; every request has a Host."""
    assert allowed_origin(None)
    assert allowed_origin(None, ())
    assert not allowed_host(None)


def test_an_opaque_origin_has_to_be_listed() -> None:
    """W53: any sandboxed page has the origin `null`."""
    assert not allowed_origin("null")
    assert not allowed_origin("null", ["*"])
    assert allowed_origin("NULL", ["null"])
    assert not allowed_origin("http://localhost", ["null"])


@pytest.mark.parametrize(
    ("entry", "good", "bad"),
    [
        ("Example.com", ["example.COM", "example.com:1"], ["www.example.com", "example.com."]),
        ("example.com:*", ["example.com", "example.com:1"], ["example.org"]),
        ("example.com:8000", ["example.com:8000"], ["example.com", "example.com:8001", "a:8000"]),
        ("example.com:443", ["example.com:443", "example.com"], ["example.com:80"]),
        ("*:8000", ["a:8000", "[::1]:8000"], ["a", "a:8001"]),
        ("*:*", ["a", "a:1"], []),
        ("*", ["a", "a:1"], []),
        ("[0::1]:8000", ["[::1]:8000"], ["[::1]", "[::2]:8000"]),
    ],
)
def test_entries_of_hosts(entry: str, good: list[str], bad: list[str]) -> None:
    """W53: what a configured entry stands for."""
    assert all(allowed_host(value, ["other", entry]) for value in good)
    assert not any(allowed_host(value, ["other", entry]) for value in bad)


@pytest.mark.parametrize(
    ("entry", "good", "bad"),
    [
        (
            "https://app.example.com",
            ["https://APP.example.com", "https://app.example.com:443"],
            ["http://app.example.com", "https://app.example.com:444", "https://example.com"],
        ),
        ("http://a:80", ["http://a"], ["http://a:81", "https://a"]),
        ("http://a:*", ["http://a", "http://a:81"], ["https://a"]),
        ("http://a:8000", ["http://a:8000"], ["http://a"]),
        ("app://bundle", ["app://bundle"], ["app://other", "http://bundle"]),
        ("vscode-webview://*", [], []),
        ("a", ["http://a", "https://a:1"], ["app://a", "http://b"]),
        ("a:443", ["https://a", "http://a:443"], ["http://a"]),
        ("*:8000", ["http://a:8000"], ["http://a", "app://a:8000"]),
        ("*", ["http://a", "https://b:1", "app://c"], []),
    ],
)
def test_entries_of_origins(entry: str, good: list[str], bad: list[str]) -> None:
    """W53: an entry with a scheme is an origin, one without is a host on the web."""
    if entry.endswith("//*"):
        with pytest.raises(ValueError, match="not an origin"):
            allowed_origin("http://a", [entry])
        return
    assert all(allowed_origin(value, ["other", entry]) for value in good)
    assert not any(allowed_origin(value, ["other", entry]) for value in bad)


@pytest.mark.parametrize(
    "entry", ["", "a b", "http://a", "a:b", "a:65536", "[::1", "[x]", "*.example.com", "a/b", "::1"]
)
def test_a_malformed_entry_is_an_error(entry: str) -> None:
    """W53: a typing error in the list must not pass as a list that allows nothing."""
    with pytest.raises(ValueError, match=r"allowed|port"):
        allowed_host("localhost", ["localhost", entry])
    if entry != "http://a":
        with pytest.raises(ValueError, match=r"allowed|port"):
            allowed_origin("http://localhost", ["localhost", entry])


@given(st.text(max_size=30))
def test_only_the_listed_names_pass(value: str) -> None:
    """W53: no string passes that does not start with a listed name."""
    if allowed_host(value):
        assert value.lower().startswith(("localhost", "127.0.0.1", "[")), value
    if allowed_origin(value):
        raise AssertionError("unreachable: an origin has a scheme")
