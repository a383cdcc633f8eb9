"""Request metadata, revisions and eras."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, meta, versions
from mcp_trio.protocol.meta import RequestMeta, build_meta, meta_of, parse_meta, subscription_id
from mcp_trio.protocol.versions import LATEST, Era, choose, era_of

SUPPORTED = (LATEST,)
NO_IDS: list[object] = [None, 1.0, True, [], "x" * 257]


def params(**changes: Any) -> dict[str, Any]:
    raw = build_meta(version=LATEST, client_capabilities={})
    for key, value in changes.items():
        raw[getattr(meta, key)] = value
    return {"_meta": raw}


def test_the_least() -> None:
    """W55: version and capabilities are enough."""
    raw = build_meta(version=LATEST, client_capabilities={})
    parsed = parse_meta({"_meta": raw}, SUPPORTED)
    assert parsed == RequestMeta(LATEST, {}, raw=raw)
    assert parsed.raw is raw


@given(
    st.none() | st.fixed_dictionaries({"name": st.text(), "version": st.text()}),
    st.none() | st.text() | st.integers(),
    st.none() | st.sampled_from(meta.LOG_LEVELS),
    st.dictionaries(st.text(), st.just({})),
)
def test_what_is_built_is_parsed(
    info: dict[str, Any] | None,
    token: meta.ProgressToken | None,
    level: str | None,
    capabilities: dict[str, Any],
) -> None:
    """W05, W81, W83: a client's metadata reads as it was meant."""
    raw = build_meta(
        version=LATEST,
        client_capabilities=capabilities,
        client_info=info,
        progress_token=token,
        log_level=level,
    )
    assert parse_meta({"_meta": raw}, SUPPORTED) == RequestMeta(
        LATEST, capabilities, info, token, level, raw
    )


@pytest.mark.parametrize("token", [0, "", "a", 2**53, -1, 10**30])
def test_progress_tokens(token: meta.ProgressToken) -> None:
    """W05, W81: zero and the empty string are tokens, and keep their type."""
    parsed = parse_meta(params(PROGRESS_TOKEN=token), SUPPORTED).progress_token
    assert parsed == token
    assert type(parsed) is type(token)


@pytest.mark.parametrize("token", [None, True, 1.0, 1.5, [], {}])
def test_what_is_no_progress_token(token: object) -> None:
    """W81: a token is a string or an integer."""
    with pytest.raises(errors.InvalidParams, match="progressToken"):
        parse_meta(params(PROGRESS_TOKEN=token), SUPPORTED)


@pytest.mark.parametrize("level", ["loud", "", "INFO", None, 3, [], {}])
def test_what_is_no_log_level(level: object) -> None:
    """W83: an unknown level is refused, not guessed."""
    with pytest.raises(errors.InvalidParams, match="logLevel"):
        parse_meta(params(META_LOG_LEVEL=level), SUPPORTED)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"_meta": None},
        {"_meta": []},
        {"_meta": {}},
        {"_meta": {meta.META_CLIENT_CAPABILITIES: {}}},
        params(META_VERSION=5),
        params(META_VERSION=None),
        {"_meta": {meta.META_VERSION: LATEST}},
        params(META_CLIENT_CAPABILITIES=None),
        params(META_CLIENT_CAPABILITIES=[]),
        params(META_CLIENT_INFO=None),
        params(META_CLIENT_INFO="me"),
        params(META_CLIENT_INFO={"name": "me"}),
        params(META_CLIENT_INFO={"name": 5, "version": "1"}),
    ],
)
def test_missing_and_ill_typed_fields(body: dict[str, Any]) -> None:
    """W55: a required field is missing, or one has the wrong type: -32602, naming it."""
    with pytest.raises(errors.InvalidParams, match="_meta"):
        parse_meta(body, SUPPORTED)


def test_the_version_is_judged_first() -> None:
    """W55: the metadata of another revision may look different altogether."""
    body = {"_meta": {meta.META_VERSION: "1900-01-01", meta.META_CLIENT_CAPABILITIES: 5}}
    with pytest.raises(errors.UnsupportedProtocolVersion) as caught:
        parse_meta(body, (LATEST, "2025-11-25"))
    assert caught.value.data == {"supported": [LATEST, "2025-11-25"], "requested": "1900-01-01"}


def test_declared_capabilities() -> None:
    """W55: a capability is an object at its place."""
    capabilities = {"elicitation": {"form": {}}, "sampling": True, "extensions": {"a/b": {}}}
    parsed = RequestMeta(LATEST, capabilities)
    assert parsed.declares("elicitation")
    assert parsed.declares("elicitation", "form")
    assert parsed.declares("extensions", "a/b")
    assert not parsed.declares("elicitation", "url")
    assert not parsed.declares("sampling")
    assert not parsed.declares("sampling", "tools")
    assert not parsed.declares("roots")


@pytest.mark.parametrize("value", [0, "", 1, "1", "listen-1"])
def test_subscription_ids(value: str | int) -> None:
    """W05, W06: any id, in its own type."""
    found = subscription_id({"_meta": {meta.META_SUBSCRIPTION_ID: value}})
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"_meta": None},
        {"_meta": {}},
        *({"_meta": {meta.META_SUBSCRIPTION_ID: bad}} for bad in NO_IDS),
    ],
)
def test_no_subscription_id(body: dict[str, Any]) -> None:
    """W06: what cannot be an id names no subscription."""
    assert subscription_id(body) is None


def test_read_version() -> None:
    """W55: the version alone, whatever else is wrong."""
    assert meta.read_version(params(META_CLIENT_CAPABILITIES=5)) == LATEST
    assert meta.read_version(params(META_VERSION=5)) is None
    assert meta.read_version({"_meta": 5}) is None
    assert meta.read_version({}) is None


def test_eras() -> None:
    """W49, W78: every revision has one era, and what is no revision has none."""
    assert all(era_of(version) is Era.MODERN for version in versions.MODERN)
    assert all(era_of(version) is Era.LEGACY for version in versions.LEGACY)
    assert era_of("2027-01-01") is Era.MODERN
    for other in ("", "latest", "2026-01-01", "1900-01-01", "2027-1-1", "9", "2027-01-01\n"):
        assert era_of(other) is None
    everything = (*versions.MODERN, *versions.LEGACY)
    assert list(everything) == sorted(everything, reverse=True)


def test_choose() -> None:
    """W46, W79: my preference decides, and nothing the peer offers can break it."""
    assert choose(("c", "b", "a"), ["a", "b"]) == "b"
    assert choose(("a",), ["b"]) is None
    assert choose(("a",), []) is None
    offered: list[object] = [None, 5, ["a"], {}, "a"]
    assert choose(("a",), offered) == "a"


def test_a_request_is_read_once() -> None:
    """W05: and again where somebody has put another `_meta` into it, or speaks less."""
    request = jsonrpc.Request(1, "tools/list", params())
    first = meta_of(request, SUPPORTED)
    assert meta_of(request, SUPPORTED) is first
    with pytest.raises(errors.UnsupportedProtocolVersion):
        meta_of(request, ("2025-11-25",))
    request.params = params(META_LOG_LEVEL="error")
    assert meta_of(request, SUPPORTED).log_level == "error"
    request.params = {}
    with pytest.raises(errors.InvalidParams):
        meta_of(request, SUPPORTED)


def test_a_request_whose_params_are_taken_keeps_nothing_of_them() -> None:
    """S-23: a stream does not keep its request's params alive."""
    request = jsonrpc.Request(1, "subscriptions/listen", params())
    meta_of(request, SUPPORTED)
    request.take_params()
    assert request.checked_meta is None
