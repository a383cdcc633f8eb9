"""The life of an exchange: the table against the rules they stand for."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, meta
from mcp_trio.protocol.exchange import (
    TABLE,
    ClientExchange,
    Disposition,
    Event,
    State,
    next_state,
)
from mcp_trio.protocol.methods import ACKNOWLEDGED, CANCELLED, LISTEN, PROGRESS
from mcp_trio.protocol.methods import TOOLS_LIST_CHANGED as CHANGED

DELIVER, IGNORE, DROP = Disposition.DELIVER, Disposition.IGNORE, Disposition.DROP
IDS: list[jsonrpc.RequestId] = [1, "1", 0, "", "listen-1"]

REPLY_EVENTS = {Event.RESULT, Event.ERROR}


def of(method: str, subscription: object = None, **params: Any) -> jsonrpc.Notification:
    """A notification, which carries a subscription's id if one is given."""
    if subscription is not None:
        params["_meta"] = {meta.META_SUBSCRIPTION_ID: subscription}
    return jsonrpc.Notification(method, params)


def cancelled(request_id: object) -> jsonrpc.Notification:
    return jsonrpc.Notification(CANCELLED, {"requestId": request_id})


def done(request_id: jsonrpc.RequestId) -> jsonrpc.ResultReply:
    return jsonrpc.ResultReply(request_id, {"resultType": "complete"})


def failed(request_id: jsonrpc.RequestId | None) -> jsonrpc.ErrorReply:
    return jsonrpc.ErrorReply(request_id, errors.InternalError("no"))


# --- the table ---


def test_the_table_is_closed() -> None:
    """Every state an event leads to is in the table, and every state in it can be reached."""
    reached = {state for events in TABLE.values() for state in events.values()}
    assert reached | {State.OPEN, State.OPENING} == set(TABLE) == set(State)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_what_is_absent_names_who_did_it(state: State, event: Event) -> None:
    """A mistake of ours is a local error, one of the peer's a remote one."""
    expected = TABLE[state].get(event)
    if expected is not None:
        assert next_state(state, event) is expected
        return
    ours = event in {Event.CANCEL, Event.LOSE}
    kind = errors.LocalProtocolError if ours else errors.RemoteProtocolError
    with pytest.raises(kind, match=event.value):
        next_state(state, event)


@given(st.sampled_from([State.OPEN, State.OPENING]), st.lists(st.sampled_from(list(Event))))
def test_the_client_table_keeps_the_rules(start: State, events: list[Event]) -> None:
    """S-02, S-11, C-04, C-41: the rules, said without a table, agree with it on any sequence."""
    state, happened = start, list[Event]()
    for event in events:
        listen = start is State.OPENING
        over = any(e in REPLY_EVENTS | {Event.CANCEL, Event.LOSE, Event.WITHDRAW} for e in happened)
        acknowledged = Event.ACKNOWLEDGE in happened
        allowed = not over and {
            Event.ACKNOWLEDGE: listen and not acknowledged,
            Event.CHANGE: listen and acknowledged,
            Event.NOTIFY: not listen,
            Event.WITHDRAW: listen,
        }.get(event, True)
        try:
            state = next_state(state, event)
        except errors.ProtocolError:
            assert not allowed
        else:
            assert allowed
            happened.append(event)


# --- the client's side, message by message ---

ACTIONS: dict[str, Callable[[jsonrpc.RequestId], jsonrpc.Message | None]] = {
    "ack": lambda i: of(ACKNOWLEDGED, i, notifications={}),
    "change": lambda i: of(CHANGED, i),
    "extension": lambda i: of("notifications/tasks", i),
    "untagged": lambda _: of(CHANGED),
    "progress": lambda _: of(PROGRESS, progressToken="t", progress=1),
    "log": lambda _: of("notifications/message", level="info", data=1),
    "tagged progress": lambda i: of(PROGRESS, i, progressToken="t", progress=1),
    "result": done,
    "error": failed,
    "withdraw": cancelled,
    "foreign ack": lambda _: of(ACKNOWLEDGED, "other", notifications={}),
    "foreign change": lambda _: of(CHANGED, "other"),
    "foreign progress": lambda _: of(PROGRESS, "other", progressToken="t", progress=1),
    "foreign result": lambda _: done("other"),
    "foreign withdraw": lambda _: cancelled("other"),
    "malformed withdraw": lambda _: cancelled([1]),
    "cancel": lambda _: None,
    "lose": lambda _: None,
}


@attrs.define
class Model:
    """What a client is to do, said in words that know nothing of tables."""

    listen: bool
    acknowledged: bool = False
    over: bool = False

    def expect(self, action: str) -> Disposition | type[Exception] | bool:
        if action in {"cancel", "lose"}:
            was_open, self.over = not self.over, True
            return was_open
        if self.over:
            return IGNORE
        if action in {"result", "error"}:
            self.over = True
            return DELIVER
        if action.startswith(("foreign", "malformed")):
            return DROP
        return self._listen(action) if self.listen else self._plain(action)

    def _plain(self, action: str) -> Disposition:
        return DELIVER if action in {"progress", "log", "untagged", "tagged progress"} else DROP

    def _listen(self, action: str) -> Disposition | type[Exception]:
        if action == "ack":
            first, self.acknowledged = not self.acknowledged, True
            return DELIVER if first else DROP
        if action in {"change", "extension"}:
            return DELIVER if self.acknowledged else DROP
        if action == "withdraw":
            self.over = True
            return DELIVER
        return DROP if action == "untagged" else errors.RemoteProtocolError


@given(
    st.sampled_from([LISTEN, "tools/call"]),
    st.sampled_from(IDS),
    st.lists(st.sampled_from(sorted(ACTIONS)), max_size=30),
)
def test_a_client_follows_the_model(
    method: str, request_id: jsonrpc.RequestId, actions: list[str]
) -> None:
    """S-02, S-11, C-04, C-06, C-20, C-40, C-41, W05, W33: any sequence of messages and calls."""
    life = ClientExchange(request_id, method)
    model = Model(listen=method == LISTEN)
    for action in actions:
        expected = model.expect(action)
        message = ACTIONS[action](request_id)
        if message is None:
            actual = life.cancel() if action == "cancel" else life.lost()
            assert actual == expected
        elif isinstance(expected, Disposition):
            assert life.receive(message) is expected
        else:
            before = life.state
            with pytest.raises(errors.RemoteProtocolError):
                life.receive(message)
            assert life.state is before
        assert life.ended == model.over


@given(st.sampled_from(IDS), st.sampled_from([*IDS, 1.0, True, False, None, 0.0, [], {}]))
def test_an_id_is_only_itself(mine: jsonrpc.RequestId, other: Any) -> None:
    """W05, W06: `1`, `"1"`, `1.0` and `true` are four things, and `0` and `""` are ids."""
    same = type(mine) is type(other) and mine == other
    life = ClientExchange(mine, LISTEN)
    expected = DELIVER if same else DROP
    assert life.receive(of(ACKNOWLEDGED, other, notifications={})) is expected
    assert life.receive(cancelled(other)) is expected
    if other is not None:
        call = ClientExchange(mine, "tools/call")
        assert call.receive(done(other)) is expected
        assert call.ended == same


def test_an_error_without_an_id_is_the_answer() -> None:
    """W55: only a transport that knows whose it is hands such an error over."""
    life = ClientExchange(1, "tools/call")
    assert life.receive(failed(None)) is DELIVER
    assert life.state is State.DONE


@pytest.mark.parametrize(
    ("messages", "end"),
    [
        ([done(1)], State.DONE),
        ([cancelled(1)], State.WITHDRAWN),
        ([done(1), cancelled(1)], State.DONE),
        ([cancelled(1), done(1)], State.WITHDRAWN),
        ([], State.LOST),
    ],
)
@pytest.mark.parametrize("acknowledged", [True, False])
def test_every_way_a_server_ends_a_subscription(
    messages: list[jsonrpc.Message], end: State, *, acknowledged: bool
) -> None:
    """C-04, W33: result, cancellation, both in either order, or nothing; ack or no ack."""
    life = ClientExchange(1, LISTEN)
    if acknowledged:
        assert life.receive(of(ACKNOWLEDGED, 1, notifications={})) is DELIVER
    assert [life.receive(message) for message in messages] == [DELIVER, IGNORE][: len(messages)]
    assert life.lost() == (not messages)
    assert life.state is end
    assert not life.cancel()


def test_late_messages_are_ignored_after_a_cancel() -> None:
    """C-41, W08: whatever was under way when the client gave up is nobody's."""
    life = ClientExchange(1, LISTEN)
    assert life.cancel()
    for message in (of(ACKNOWLEDGED, 1, notifications={}), of(CHANGED, 1), done(1), cancelled(1)):
        assert life.receive(message) is IGNORE
    assert life.state is State.CANCELLED


def test_what_was_answered_is_not_cancelled_on_the_wire() -> None:
    """C-40, W44: a cancellation is sent once, for a request believed in progress."""
    life = ClientExchange(1, "tools/call")
    assert life.receive(done(1)) is DELIVER
    assert not life.cancel()
    second = ClientExchange(2, "tools/call")
    assert [second.cancel(), second.cancel(), second.lost()] == [True, False, False]


def test_initialize_is_never_cancelled_on_the_wire() -> None:
    """W44: older revisions forbid it; the exchange still ends."""
    life = ClientExchange(1, "initialize")
    assert not life.cancel()
    assert life.state is State.CANCELLED


@pytest.mark.parametrize("token", [0, "", "a", 2**53])
def test_progress_with_another_token_is_dropped(token: meta.ProgressToken) -> None:
    """C-27, W05, W81: a token is compared with its type, and zero is a token."""
    life = ClientExchange(1, "tools/call", progress_token=token)
    assert life.receive(of(PROGRESS, progressToken=token, progress=1)) is DELIVER
    others: tuple[object, ...] = (False, None, 1, "0", "b", 2.0**53, 0.0, [])
    for other in others:
        assert life.receive(of(PROGRESS, progressToken=other, progress=1)) is DROP
    assert life.receive(of(PROGRESS, progress=1)) is DROP
    assert life.receive(of("notifications/message", level="info", data=1)) is DELIVER


@pytest.mark.parametrize("method", ["notifications/zzz", CHANGED])
def test_unknown_notifications_do_no_harm(method: str) -> None:
    """W57: a client lives with what it does not know; its reader decides what to make of it."""
    assert ClientExchange(1, "tools/call").receive(of(method)) is DELIVER
    assert ClientExchange(1, LISTEN).receive(of(method)) is DROP
