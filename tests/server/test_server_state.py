"""The seal of `requestState`: opened for the same request of the same caller, or refused."""

import base64
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import codec, errors
from mcp_trio.server.state import StateExpired, StateRefused, StateSeal, binding

OLD = b"o" * 32
NEW = b"n" * 33


class Clock:
    """A time that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(*keys: bytes, **options: Any) -> StateSeal:
    return StateSeal(keys or None, **{"ttl": 60.0, "max_size": 10_000, **options})


BOUND = binding("server", "alice", "tools/call", {"name": "t", "arguments": {"a": 1}})
SEAL = make()
STATE = {"round": 1, "state": {"secret": "hunter2"}}
SEALED = SEAL.seal(STATE, BOUND)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=8), json_values, max_size=4)


@given(objects, objects)
def test_what_is_sealed_is_found_again(state: dict[str, Any], params: dict[str, Any]) -> None:
    bound = binding("s", None, "m", params)
    sealed = SEAL.seal(state, bound)
    assert SEAL.open(sealed, bound) == state
    assert sealed.isascii()
    assert "=" not in sealed


def test_nobody_can_read_it() -> None:
    data = base64.urlsafe_b64decode(SEALED + "=" * (-len(SEALED) % 4))
    assert b"hunter2" not in data
    assert SEAL.seal(STATE, BOUND) != SEALED


def test_any_flip_of_a_bit_is_refused() -> None:
    """Of the text, which is each bit of the data and those of the encoding that mean nothing."""
    raw = SEALED.encode("ascii")
    for at in range(len(raw)):
        for bit in range(7):
            changed = bytearray(raw)
            changed[at] ^= 1 << bit
            with pytest.raises(StateRefused):
                SEAL.open(changed.decode("ascii"), BOUND)


def test_any_flip_of_a_bit_of_the_data_is_refused() -> None:
    data = base64.urlsafe_b64decode(SEALED + "=" * (-len(SEALED) % 4))
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            text = base64.urlsafe_b64encode(changed).rstrip(b"=").decode("ascii")
            with pytest.raises(StateRefused):
                SEAL.open(text, BOUND)


@given(st.integers(0, len(SEALED)), st.integers(0, len(SEALED)), st.text(max_size=5))
def test_cut_and_stuffed_texts_are_refused(start: int, end: int, stuffing: str) -> None:
    changed = SEALED[:start] + stuffing + SEALED[end:]
    if changed == SEALED:
        return
    with pytest.raises(StateRefused):
        SEAL.open(changed, BOUND)


@given(st.text() | st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(StateRefused) as caught:
        SEAL.open(text, BOUND)
    assert caught.value.code == errors.INVALID_PARAMS


principals = st.none() | st.text(max_size=5)
requests = st.tuples(
    st.text(max_size=3), principals, st.sampled_from(["tools/call", "prompts/get"]), objects
)


@given(requests, requests)
def test_any_change_of_what_it_belongs_to_is_refused(
    one: tuple[str, str | None, str, dict[str, Any]],
    other: tuple[str, str | None, str, dict[str, Any]],
) -> None:
    sealed = SEAL.seal(STATE, binding(*one))
    if binding(*one) == binding(*other):
        same = ({"arguments": {}, **params} for params in (one[3], other[3]))
        assert [one[:3], one[:3]] == [one[:3], other[:3]]
        first, second = (json.dumps(params, sort_keys=True) for params in same)
        assert first == second
        assert SEAL.open(sealed, binding(*other)) == STATE
    else:
        with pytest.raises(StateRefused):
            SEAL.open(sealed, binding(*other))


@given(objects, st.sampled_from(["name", "uri", "arguments", "else"]), json_values, json_values)
def test_each_param_counts(params: dict[str, Any], name: str, one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    first = binding("s", None, "m", {**params, name: one})
    assert (first == binding("s", None, "m", {**params, name: other})) is same


def test_what_changes_between_rounds_does_not_count() -> None:
    params = {"name": "t", "arguments": {}}
    later = {"inputResponses": {"a": {}}, "requestState": "x", "_meta": {"progressToken": 2}}
    assert binding("s", None, "m", params) == binding("s", None, "m", {**params, **later})
    assert binding("s", None, "m", {"name": "t"}) == binding("s", None, "m", params)
    reordered = {"arguments": {"b": 1, "a": [{"d": 1, "c": 2}]}, "name": "t"}
    ordered = {"name": "t", "arguments": {"a": [{"c": 2, "d": 1}], "b": 1}}
    assert binding("s", None, "m", reordered) == binding("s", None, "m", ordered)
    assert binding("s", None, "m", {}) != binding("s", "", "m", {})


def test_it_expires() -> None:
    clock = Clock()
    seal = make(ttl=60, clock=clock)
    sealed = seal.seal(STATE, BOUND)
    clock.now += 59.9
    assert seal.open(sealed, BOUND) == STATE
    clock.now += 0.1
    with pytest.raises(StateExpired) as caught:
        seal.open(sealed, BOUND)
    assert caught.value.code == errors.INVALID_PARAMS
    with pytest.raises(StateRefused):
        seal.open(sealed, binding("server", "mallory", "tools/call", {}))


def test_a_refusal_says_nothing_of_its_reason() -> None:
    """Tampered, of another caller, of another key, too long, no state at all: one message."""
    foreign = make().seal(STATE, BOUND)
    texts = [SEALED[:-1], SEALED + "-TAMPERED", foreign, "x" * 20_000, "", "é", "AQ", "==="]
    messages = set()
    for text in texts:
        with pytest.raises(StateRefused) as caught:
            SEAL.open(text, BOUND)
        messages.add(str(caught.value))
    with pytest.raises(StateRefused) as caught:
        SEAL.open(SEALED, binding("server", "bob", "tools/call", {"name": "t"}))
    messages.add(str(caught.value))
    assert len(messages) == 1


def test_keys_rotate() -> None:
    """The first seals, all open."""
    before, between, after = make(OLD), make(NEW, OLD), make(NEW)
    old, new = before.seal(STATE, BOUND), between.seal(STATE, BOUND)
    assert between.open(old, BOUND) == between.open(new, BOUND) == STATE
    assert after.open(new, BOUND) == STATE
    with pytest.raises(StateRefused):
        after.open(old, BOUND)
    with pytest.raises(StateRefused):
        before.open(new, BOUND)


def test_keys_are_checked() -> None:
    with pytest.raises(ValueError, match="needs a key"):
        StateSeal([], ttl=1, max_size=1)
    with pytest.raises(ValueError, match="at least 32 bytes, got 31"):
        make(OLD, b"x" * 31)
    with pytest.raises(TypeError, match="bytes, not str"):
        make("x" * 32)  # type: ignore[arg-type]
    for one in (OLD, "x" * 32):
        with pytest.raises(TypeError, match="not one key"):
            StateSeal(one, ttl=1, max_size=1)  # type: ignore[arg-type]
    for ttl in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="state_ttl"):
            make(ttl=ttl)


def test_what_cannot_be_sealed() -> None:
    seal = make(max_size=300)
    with pytest.raises(ValueError, match="may have 300"):
        seal.seal({"a": "x" * 300}, BOUND)
    with pytest.raises(codec.EncodeError):
        seal.seal({"a": object()}, BOUND)


def test_the_library_is_not_imported_until_it_is_needed() -> None:
    program = (
        "import sys, mcp_trio; mcp_trio.Server('s', version='1', state_keys=[bytes(32)]);"
        "sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
