"""What one request has been told in all its rounds, and what its handler still wants to know.

Nothing is kept between the rounds: the answers travel in the sealed `requestState`.

Source: specification, basic/patterns/mrtr.
"""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from mcp_trio import codec, errors
from mcp_trio.server import state
from mcp_trio.server.questions import InputRequired, Question

if TYPE_CHECKING:
    from mcp_trio.server.core import Call, Core

__all__ = ["Asked", "Inputs", "NeedsInput", "came_with_inputs"]

logger = logging.getLogger("mcp_trio.server")


class NeedsInput(BaseException):
    """Leaves a handler whose question has no answer yet; its request ends with the question.

    It is no error. Let it pass: ``finally`` is for what has to be put back.
    """


@attrs.frozen
class Asked:
    """What `run_handler` returns where there is no result yet: the result that asks."""

    wire: dict[str, Any]


def came_with_inputs(params: Mapping[str, Any]) -> bool:
    """Whether a request is, or claims to be, a later round of another."""
    return "inputResponses" in params or "requestState" in params


class Inputs:
    """The answers that came with a request, and the questions that its handler has.

    Raises:
        errors.InvalidParams: what came is no answer, or no state of this request.
    """

    __slots__ = (
        "_answers",
        "_asked",
        "_call",
        "_core",
        "_kept",
        "_open",
        "_round",
        "_times",
        "responses",
        "state",
    )

    def __init__(self, call: "Call", core: "Core") -> None:
        self._call = call
        self._core = core
        self.responses: dict[str, Any] = _NOTHING
        """What the client sent with this round, as it came."""
        self.state: Any = None
        """What the handler handed itself with `InputRequired`."""
        self._answers: dict[str, tuple[str, Any]] = {}
        self._asked: dict[str, str] = _NOTHING
        self._kept: dict[str, Any] = {}
        self._round = 0
        self._open: dict[str, Question[Any]] = {}
        self._times: dict[str, int] = {}
        if came_with_inputs(call.params):
            self._read(call.params)

    def _read(self, params: Mapping[str, Any]) -> None:
        responses = params.get("inputResponses", _NOTHING)
        if not isinstance(responses, dict):
            raise errors.InvalidParams("params.inputResponses: an object is expected")
        self.responses = responses
        text = params.get("requestState", "")
        if not isinstance(text, str):
            raise errors.InvalidParams("params.requestState: a string is expected")
        if "requestState" not in params:
            return
        sealed = self._core.seal.open(text, self._bound())
        self.state = sealed.get(_STATE)
        self._round = sealed[_ROUND]
        self._asked = sealed[_ASKED]
        self._kept = sealed[_KEPT]
        self._answers = {key: (made, found) for key, (made, found) in sealed[_ANSWERS].items()}
        for key, digest in self._asked.items():
            # Answers are kept even if the handler does not come to their question this time.
            if key in responses:
                self._answers[key] = digest, responses[key]

    def answer(self, key: str, question: Question[Any]) -> list[Any]:
        """The answer to a question, alone in a list; an empty list if there is none yet.

        An answer counts only for what was asked: what the user said to another message, or to
        another form, under the same key, does not.

        Raises:
            errors.InvalidParams: what came with this round does not answer the question.
        """
        digest = question.digest
        if key in self.responses and self._asked.get(key, digest) == digest:
            response = self.responses[key]
            found = question.read(response, f"params.inputResponses.{key}")
            self._answers[key] = digest, response
            return [found]
        if key in self._answers and self._answers[key][0] == digest:
            try:
                return [question.read(self._answers[key][1], key)]
            except errors.InvalidParams:
                # Nobody looked at it in its round, and its sender can no longer put it right.
                del self._answers[key]
        return []

    def ask(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """The answers to all of the questions.

        Raises:
            NeedsInput: one has none yet; they are noted for `required`.
            errors.MissingRequiredClientCapability: the client cannot answer one of these.
            errors.InvalidParams: as `answer`.
        """
        found = []
        missing: dict[str, Question[Any]] = {}
        for question in questions:
            key = self._key(question)
            known = self.answer(key, question)
            if not known:
                missing[key] = question
            found += known
        if not missing:
            return found
        self._check_capabilities(missing.values(), any_will_do=False)
        self._open.update(missing)
        raise NeedsInput(f"the client has not been asked yet: {', '.join(missing)}")

    def _key(self, question: Question[Any]) -> str:
        """The key of a question; asked again in one run, it is another question."""
        key = question.own_key
        times = self._times[key] = self._times.get(key, 0) + 1
        return key if times == 1 else f"{key}-{times}"

    def _check_capabilities(self, questions: Any, *, any_will_do: bool) -> None:
        about = self._call.meta
        wanting = [question for question in questions if not question.may_be_asked(about)]
        if not wanting or (any_will_do and len(wanting) < len(questions)):
            return
        required: dict[str, Any] = {}
        for question in wanting:
            _merge(required, question.needs)
        raise errors.MissingRequiredClientCapability(
            f"the client has to support {', '.join(sorted(required))}", required=required
        )

    async def remember(
        self, name: str, make: Callable[..., Any], arguments: tuple[object, ...]
    ) -> Any:
        """`Context.remember` has the contract."""
        if name in self._kept:
            await trio.lowlevel.checkpoint()
            return self._kept[name]
        value = make(*arguments)
        if inspect.isawaitable(value):
            value = await value
        # The same value now as in later rounds.
        kept = self._kept[name] = codec.decode_json(codec.encode_json(value))
        await trio.lowlevel.checkpoint()
        return kept

    def required(self) -> Asked:
        """The result that asks what the handler wants to know."""
        return self._asking(self._open, None)

    def explicit(self, value: InputRequired) -> Asked:
        """The result that asks what the handler says.

        Raises:
            errors.MissingRequiredClientCapability: the client can answer none of it.
        """
        about = self._call.meta
        self._check_capabilities(value.requests.values(), any_will_do=True)
        questions = {
            key: question
            for key, question in value.requests.items()
            if question.may_be_asked(about)
        }
        return self._asking(questions, value.state)

    def _asking(self, questions: Mapping[str, Question[Any]], handed: Any) -> Asked:
        limit = self._core.input_rounds
        if self._round >= limit:
            logger.warning("%s asked for input more than %d times", self._call.method, limit)
            raise errors.InternalError(f"this request has asked for input {limit} times already")
        kept: dict[str, Any] = {
            _ROUND: self._round + 1,
            _ASKED: {key: question.digest for key, question in questions.items()},
            _ANSWERS: self._answers,
            _KEPT: self._kept,
        }
        if handed is not None:
            kept[_STATE] = handed
        wire: dict[str, Any] = {"resultType": "input_required"}
        if questions:
            wire["inputRequests"] = {key: question.wire for key, question in questions.items()}
        try:
            wire["requestState"] = self._core.seal.seal(kept, self._bound())
        except ValueError as problem:
            logger.error("the state of %s cannot be sent: %s", self._call.method, problem)
            raise errors.InternalError(f"the state cannot be sent: {problem}") from None
        return Asked(wire)

    def _bound(self) -> bytes:
        call = self._call
        principal = call.exchange.principal
        return state.binding(
            call.server.info.name,
            None if principal is None else principal.name,
            call.method,
            call.params,
        )


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, inner in more.items():
        _merge(into.setdefault(name, {}), inner)


_NOTHING: dict[str, Any] = {}
_ROUND: Final = "round"
_ASKED: Final = "asked"
_ANSWERS: Final = "answers"
_KEPT: Final = "kept"
_STATE: Final = "state"
