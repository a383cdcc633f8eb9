"""URI templates: what they match, and what cannot trick them."""

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.server.templates import MAX_URI, UriTemplate, is_template


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("note://{name}", "note://a", {"name": "a"}),
        ("note://{name}", "note://a%20b", {"name": "a b"}),
        ("note://{name}", "note://测试", {"name": "测试"}),
        ("note://{name}", "note://%E6%B5%8B", {"name": "测"}),
        ("note://{name}", "note://", None),
        ("note://{name}", "note://a/b", None),
        ("note://{name}", "note://a?b", None),
        ("note://{name}", "NOTE://a", None),
        ("x://{a}/{b}", "x://1/2", {"a": "1", "b": "2"}),
        ("x://{a}/{b}", "x://1/2/3", None),
        ("x://{a}-{b}", "x://1-2-3", {"a": "1", "b": "2-3"}),
        ("x://{a,b}", "x://1,2", {"a": "1", "b": "2"}),
        ("x://{a}/c", "x://1/d", None),
        ("file:///{+path}", "file:///a/b/c", {"path": "a/b/c"}),
        ("file:///{+path}/{name}", "file:///a/b/c", {"path": "a/b", "name": "c"}),
        ("file:///{+path}.{kind}", "file:///a.b/c.d", {"path": "a.b/c", "kind": "d"}),
        ("x://a{/b,c}", "x://a/1/2", {"b": "1", "c": "2"}),
        ("x://a{.kind}", "x://a.txt", {"kind": "txt"}),
        ("x://a{#part}", "x://a#p/q", {"part": "p/q"}),
        ("x://a{?q,r}", "x://a", {}),
        ("x://a{?q,r}", "x://a?q=1", {"q": "1"}),
        ("x://a{?q,r}", "x://a?r=2&q=a%2Fb+c", {"q": "a/b c", "r": "2"}),
        ("x://a{?q}", "x://a?q=1&q=2", None),
        ("x://a{?q}", "x://a?other=1", None),
        ("x://a{?q}", "x://a?q", None),
        ("x://a{?q}", "x://a?q=%00", None),
        ("x://a{?q}{&r}", "x://a?r=1&q=2", {"q": "2", "r": "1"}),
        ("x://a?v=1{&q,r}", "x://a?v=1", {}),
        ("x://a?v=1{&q,r}", "x://a?v=1&q=%2F", {"q": "/"}),
        ("x://a?v=1{&q,r}", "x://a?r=2&v=1", {"r": "2"}),
        ("x://a?v=1{&q,r}", "x://a", None),
        ("x://a?v=1{&q,r}", "x://a?v=2&q=1", None),
        ("x://a?v=1{&q,r}", "x://a?v=1&v=1", None),
        ("x://{a}?{&q}", "x://b?q=1", {"a": "b", "q": "1"}),
        ("x://a{/path*}", "x://a/b", {"path": ["b"]}),
        ("x://a{/path*}", "x://a/b/c%20d/e", {"path": ["b", "c d", "e"]}),
        ("x://a{/path*}.{kind}", "x://a/b/c.d", {"path": ["b", "c"], "kind": "d"}),
        (
            "x://a{/first,path*}{?q}",
            "x://a/b/c/d?q=1",
            {"first": "b", "path": ["c", "d"], "q": "1"},
        ),
        ("x://a{/path*}", "x://a", None),
        ("x://a{/path*}", "x://a/", None),
        ("x://a{/path*}", "x://a//b", None),
        ("x://a{/path*}", "x://a/b/", None),
        ("x://a{/path*}", "x://a/b?c", None),
        ("x://a{/path*}", "x://a/b#c", None),
        ("file://{+path}", "file:///etc/hosts", {"path": "/etc/hosts"}),
        ("file://host/{+path}", "file://host//etc/hosts", None),
        ("x:{+path}", "x:/a", {"path": "/a"}),
        ("x://a{+path}/b", "x://a/c/b", {"path": "/c"}),
        ("x://{a}2{b}", "x://%20x2y", {"a": " x", "b": "y"}),
        ("x://{a}", "x://%zz", None),
        ("x://{a}", "x://%ff", None),
        ("x://{a}", "x://" + "a" * MAX_URI, None),
    ],
)
def test_matching(template: str, uri: str, expected: dict[str, Any] | None) -> None:
    assert UriTemplate.parse(template).match(uri) == expected


@pytest.mark.parametrize(
    "tail",
    [
        "..", ".", "%2e%2e", "%2E%2E", ".%2e", "%2e.", "..%2f..%2fetc%2fpasswd", "a%2Fb", "a%2fb",
        "%2F", "..%5Cx", "a%5cb", "a\\b", "a%00", "a\0",
    ],
)  # fmt: skip
def test_one_segment_never_becomes_two(tail: str) -> None:
    """An encoded slash or dot segment does not get into a variable for one segment."""
    assert UriTemplate.parse("file:///{name}").match(f"file:///{tail}") is None


@pytest.mark.parametrize(
    "tail",
    ["../x", "a/../b", "a/%2e%2e/b", "a/./b", "a%2Fb", "a/..%2fb", "a\\..\\b", "a%00b",
     "/etc/passwd", "%2Fetc/passwd", "a/..", ".."],
)  # fmt: skip
def test_a_path_never_climbs(tail: str) -> None:
    """Nor does it come out as an absolute one, which a join with a directory would follow."""
    assert UriTemplate.parse("file:///{+path}").match(f"file:///{tail}") is None
    assert UriTemplate.parse("file:///srv{/path*}").match(f"file:///srv/{tail}") is None


def test_dots_inside_a_name_are_fine() -> None:
    match = UriTemplate.parse("file:///{+path}").match("file:///a..b/.hidden/c...")
    assert match == {"path": "a..b/.hidden/c..."}


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("x://{a", "brace"),
        ("x://a}", "brace"),
        ("x://{{a}}", "brace"),
        ("x://{}", "plain variable"),
        ("x://{a*}", "plain variable"),
        ("x://{a:3}", "plain variable"),
        ("x://{a b}", "plain variable"),
        ("x://{;a}", "operator"),
        ("x://{&a}", "no query"),
        ("{&a}", "no query"),
        ("x://{b}{&a}", "no query"),
        ("x://b?{a}{&c}", "no query"),
        ("x://b{?a}c{&d}", "follow the query"),
        ("x://b?c{&d}e", "follow the query"),
        ("x://{+a*}", "plain variable"),
        ("x://{?a*}", "plain variable"),
        ("x://{/a**}", "plain variable"),
        ("x://{a}{?q}/more", "follow the query"),
        ("x://{a}{?q}{?r}", "follow the query"),
        ("x://{a}/{a}", "twice"),
        ("x://plain", "no variables"),
    ],
)
def test_what_is_not_understood_is_refused(template: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        UriTemplate.parse(template)


def test_is_template() -> None:
    assert is_template("a://{b}")
    assert not is_template("a://b")


_piece = st.text("ab-", min_size=1, max_size=4)


@given(st.lists(st.tuples(_piece, st.sampled_from(["", "+"])), min_size=1, max_size=4), st.data())
def test_agrees_with_a_backtracking_matcher(
    parts: list[tuple[str, str]], data: st.DataObject
) -> None:
    """Linear matching finds a way wherever trying everything finds one."""
    text = "x://" + "".join(f"{lit}{{{op}v{i}}}" for i, (lit, op) in enumerate(parts))
    pattern = "x://" + "".join(
        re.escape(lit) + ("(.+)" if op else "([^/?#]+)") for lit, op in parts
    )
    uri = "x://" + data.draw(st.text("ab-/", max_size=14))
    found = UriTemplate.parse(text).match(uri)
    assert (found is not None) == (re.fullmatch(pattern, uri) is not None)
    if found is not None:
        made = "x://" + "".join(f"{lit}{found[f'v{i}']}" for i, (lit, _) in enumerate(parts))
        assert made == uri


def test_many_variables_and_a_long_uri_take_no_time() -> None:
    """Where a backtracking matcher would need the age of the universe."""
    template = UriTemplate.parse("x://" + "-".join(f"{{v{i}}}" for i in range(8)) + "!")
    start = time.process_time()
    assert template.match("x://" + "-" * 8000) is None
    assert time.process_time() - start < 2
