"""The life of one exchange as its client sees it: one transition table.

An exchange is a request and everything that belongs to it until it has ended. For
`subscriptions/listen` that is a whole stream: the acknowledgement first, then changes, then at
most one response. The table says what may happen when; an event that a state has no entry for is
a `LocalProtocolError` if this side caused it and a `RemoteProtocolError` if the peer did.

A server needs no such table: what it writes for a subscription follows from the order in which
`subscriptions.stream` runs, and whether an exchange has ended from its transport.

Source: specification, basic/patterns/subscriptions; basic/patterns/cancellation.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc, meta, methods

__all__ = [
    "TABLE",
    "ClientExchange",
    "Disposition",
    "Event",
    "State",
    "next_state",
]

_REQUEST_SCOPED: Final = frozenset({methods.PROGRESS, methods.LOG_MESSAGE})
"""What travels with its own request and never on the stream of a subscription."""


class _Fast(enum.Enum):
    # Enum's own __hash__ is a Python function, and the table is read once per message.
    __hash__ = object.__hash__


class State(_Fast):
    """Where an exchange stands."""

    OPEN = "open"
    """The request is out; whatever comes for it is its own."""
    OPENING = "opening"
    """A listen request is out, and not yet acknowledged."""
    ACKNOWLEDGED = "acknowledged"
    """A subscription is open."""
    DONE = "done"
    """The response has come."""
    CANCELLED = "cancelled"
    """The caller gave the request up."""
    WITHDRAWN = "withdrawn"
    """The server tore the subscription down without a response."""
    LOST = "lost"
    """The transport ended before the exchange did."""


class Event(_Fast):
    """What can happen to an exchange."""

    ACKNOWLEDGE = "acknowledgement"
    CHANGE = "change notification"
    NOTIFY = "notification of a request"
    RESULT = "result"
    ERROR = "error response"
    WITHDRAW = "cancellation by the server"
    CANCEL = "cancellation by the client"
    LOSE = "loss of the transport"


TABLE: Final[Mapping[State, Mapping[Event, State]]] = MappingProxyType(
    {
        State.OPEN: {
            Event.NOTIFY: State.OPEN,
            Event.RESULT: State.DONE,
            Event.ERROR: State.DONE,
            Event.CANCEL: State.CANCELLED,
            Event.LOSE: State.LOST,
        },
        State.OPENING: {
            Event.ACKNOWLEDGE: State.ACKNOWLEDGED,
            Event.RESULT: State.DONE,
            Event.ERROR: State.DONE,
            Event.WITHDRAW: State.WITHDRAWN,
            Event.CANCEL: State.CANCELLED,
            Event.LOSE: State.LOST,
        },
        State.ACKNOWLEDGED: {
            Event.CHANGE: State.ACKNOWLEDGED,
            Event.RESULT: State.DONE,
            Event.ERROR: State.DONE,
            Event.WITHDRAW: State.WITHDRAWN,
            Event.CANCEL: State.CANCELLED,
            Event.LOSE: State.LOST,
        },
        State.DONE: {},
        State.CANCELLED: {},
        State.WITHDRAWN: {},
        State.LOST: {},
    }
)
"""For each state, the events that may happen there and the state each leads to."""

_HARMLESS: Final = frozenset({Event.ACKNOWLEDGE, Event.CHANGE, Event.WITHDRAW})
"""What a client passes over out of turn: a second acknowledgement, a change before the first, and
the cancellation of a request that is no subscription, which goes on waiting for its answer."""
_CAUSED_HERE: Final = frozenset({Event.CANCEL, Event.LOSE})


def next_state(state: State, event: Event) -> State:
    """The state after an event.

    Raises:
        errors.LocalProtocolError: this side must not do that now.
        errors.RemoteProtocolError: the peer must not do that now.
    """
    try:
        return TABLE[state][event]
    except KeyError:
        ours = event in _CAUSED_HERE
        error = errors.LocalProtocolError if ours else errors.RemoteProtocolError
        raise error(f"{event.value} while the exchange is {state.value}") from None


class Disposition(_Fast):
    """What a client does with a message that arrived on an exchange."""

    DELIVER = "deliver"
    """It belongs to the exchange, and it is its turn."""
    IGNORE = "ignore"
    """It came late: the exchange has ended, as every race allows. Nothing to say about it."""
    DROP = "drop"
    """It is another exchange's, or out of turn in a way that does no harm. Worth a log line."""


class ClientExchange:
    """One request as the client sees it.

    Attributes:
        request_id: its id.
        method: its method.
        state: where it stands.

    `progress_token` is the one the request gave, if it gave one: progress that names another is
    dropped. Without it, progress is taken as it comes.
    """

    __slots__ = ("_progress_token", "method", "request_id", "state")

    def __init__(
        self,
        request_id: jsonrpc.RequestId,
        method: str,
        *,
        progress_token: meta.ProgressToken | None = None,
    ) -> None:
        self.request_id = request_id
        self.method = method
        self.state = State.OPENING if method == methods.LISTEN else State.OPEN
        self._progress_token = progress_token

    @property
    def ended(self) -> bool:
        """Whether it is over, in whichever way."""
        return not TABLE[self.state]

    def receive(self, message: jsonrpc.Message) -> Disposition:
        """Take note of a message; say whether it is to be delivered.

        For a subscription: nothing but its response counts before the acknowledgement, which
        counts once; every notification must carry its id; and the server may end it with a
        response, with `notifications/cancelled`, or with both in any order, of which the first
        counts. An error response without an id is taken as the answer: only a transport that
        knows whose it is hands it over.

        Raises:
            errors.RemoteProtocolError: progress or a log message came for a subscription. The
                exchange is still open, and its transport has to cancel it.
        """
        possible = TABLE[self.state]
        if not possible:
            return Disposition.IGNORE
        event = self._classify(message)
        if event is None or (event not in possible and event in _HARMLESS):
            return Disposition.DROP
        self.state = next_state(self.state, event)
        return Disposition.DELIVER

    def cancel(self) -> bool:
        """The caller gives up; whether the peer has to be told.

        It has not if the exchange has ended, nor for `initialize`, which must not be cancelled
        on the wire.
        """
        if not TABLE[self.state]:
            return False
        self.state = next_state(self.state, Event.CANCEL)
        return self.method != methods.INITIALIZE

    def lost(self) -> bool:
        """The transport has ended; whether the exchange ends because of that."""
        if not TABLE[self.state]:
            return False
        self.state = next_state(self.state, Event.LOSE)
        return True

    def _classify(self, message: jsonrpc.Message) -> Event | None:
        """The event that a message is for this exchange; None if it is not about it."""
        if not isinstance(message, jsonrpc.Notification):
            return self._classify_response(message)
        params = message.params
        if message.method == methods.CANCELLED:
            target = jsonrpc.cancelled_request_id(params)
            return Event.WITHDRAW if jsonrpc.same_id(target, self.request_id) else None
        subscription = meta.subscription_id(params)
        if message.method in _REQUEST_SCOPED:
            if subscription is not None and not jsonrpc.same_id(subscription, self.request_id):
                return None
            return self._classify_request_scoped(message.method, params)
        if self.method != methods.LISTEN:
            return Event.NOTIFY if subscription is None else None
        if not jsonrpc.same_id(subscription, self.request_id):
            return None
        return Event.ACKNOWLEDGE if message.method == methods.ACKNOWLEDGED else Event.CHANGE

    def _classify_response(self, message: jsonrpc.ResultReply | jsonrpc.ErrorReply) -> Event | None:
        if message.id is not None and not jsonrpc.same_id(message.id, self.request_id):
            return None
        return Event.RESULT if isinstance(message, jsonrpc.ResultReply) else Event.ERROR

    def _classify_request_scoped(self, method: str, params: dict[str, Any]) -> Event | None:
        # Progress with a token that this request did not give belongs to another one.
        if (
            method == methods.PROGRESS
            and self._progress_token is not None
            and not jsonrpc.same_id(params.get(meta.PROGRESS_TOKEN), self._progress_token)
        ):
            return None
        return Event.NOTIFY
