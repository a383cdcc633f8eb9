"""What servers ask of a client while they serve its request, and who answers it.

Source: specification, basic/patterns/mrtr; client/elicitation, client/sampling, client/roots.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs
import trio

from mcp_trio import _causes, codec, errors, types
from mcp_trio.client import options

__all__ = ["Inputs", "accept_form", "next_round"]

logger = logging.getLogger("mcp_trio.client")

_ELICITATION: Final = "elicitation/create"
_SAMPLING: Final = "sampling/createMessage"
_ROOTS: Final = "roots/list"


@attrs.frozen
class _Kind:
    """One kind of question.

    Attributes:
        option: the option of the client that answers it.
        params: what the handler is given.
        result: what it has to return.
        capability: what the server is told if there is a handler.
        mode: and what it is told within that.
    """

    option: str
    params: type[types.Value]
    result: type[types.Value]
    capability: str
    mode: str | None = None

    def is_claimed(self, capabilities: Mapping[str, Any]) -> bool:
        """Whether capabilities say that it can be answered."""
        claimed = capabilities.get(self.capability)
        if claimed is None or self.mode is None:
            return claimed is not None
        # For older servers, one that names no mode means forms.
        return self.mode in claimed or (self.mode == "form" and "url" not in claimed)


_KINDS: Final = (
    _FORM := _Kind(
        "on_elicitation",
        types.ElicitRequestFormParams,
        types.ElicitResult,
        "elicitation",
        "form",
    ),
    _URL := _Kind(
        "on_elicitation_url",
        types.ElicitRequestURLParams,
        types.ElicitResult,
        "elicitation",
        "url",
    ),
    _SAMPLE := _Kind(
        "on_sampling", types.CreateMessageRequestParams, types.CreateMessageResult, "sampling"
    ),
    _LIST_ROOTS := _Kind("on_roots", types.ListRootsRequestParams, types.ListRootsResult, "roots"),
)


@attrs.frozen
class _Question:
    """A question that can be put to its handler."""

    option: str
    handler: Callable[[Any], Awaitable[object]]
    params: types.Value
    result: type[types.Value]

    async def ask(self) -> Any:
        """The handler's answer, as the wire has it."""
        answer = await self.handler(self.params)
        if not isinstance(answer, self.result):
            raise TypeError(
                f"{self.option} has to return {self.result.__name__}, got {type(answer).__name__}"
            )
        return codec.unstructure(answer)


class Inputs:
    """The handlers of a client, each for one kind of question."""

    def __init__(
        self,
        *,
        on_elicitation: options.ElicitationHandler | None,
        on_elicitation_url: options.ElicitationUrlHandler | None,
        on_sampling: options.SamplingHandler | None,
        on_roots: options.RootsHandler | None,
    ) -> None:
        given: dict[_Kind, Callable[[Any], Awaitable[object]] | None] = {
            _FORM: on_elicitation,
            _URL: on_elicitation_url,
            _SAMPLE: on_sampling,
            _LIST_ROOTS: on_roots,
        }
        self._handlers = {kind: one for kind, one in given.items() if one is not None}

    def declared(self, capabilities: Mapping[str, Any]) -> dict[str, Any]:
        """The capabilities given, with what the handlers can do.

        Raises:
            ValueError: something is given that there is no handler for.
        """
        declared = dict(capabilities)
        for kind in _KINDS:
            if kind in self._handlers:
                details: dict[str, Any] = {} if kind.mode is None else {kind.mode: {}}
                declared[kind.capability] = {**declared.get(kind.capability, {}), **details}
            elif kind.is_claimed(capabilities):
                raise ValueError(f"capabilities: {kind.capability} takes {kind.option}")
        return declared

    def question(self, request: object, at: str) -> _Question:
        """Read one request for input.

        Raises:
            errors.RemoteProtocolError: it is malformed, or of a kind that there is no handler
                for, which the server has been told.
        """
        if not isinstance(request, dict):
            raise errors.RemoteProtocolError(f"{at}: an object is expected")
        params = request.get("params")
        kind = _kind_of(request.get("method"), params, at)
        handler = self._handlers.get(kind)
        if handler is None:
            raise errors.RemoteProtocolError(
                f"{at}: the server asks for what this client has not offered: "
                f"there is no {kind.option}"
            )
        if params is None and kind is _LIST_ROOTS:
            params = {}
        try:
            typed = codec.structure(kind.params, params, at=f"{at}.params")
        except codec.DecodeError as problem:
            raise errors.RemoteProtocolError(str(problem)) from problem
        return _Question(kind.option, handler, typed, kind.result)


def _kind_of(method: object, params: object, at: str) -> _Kind:
    if method == _SAMPLING:
        return _SAMPLE
    if method == _ROOTS:
        return _LIST_ROOTS
    if method != _ELICITATION:
        raise errors.RemoteProtocolError(f"{at}.method: {_shown(method)} is no question")
    mode = params.get("mode") if isinstance(params, dict) else None
    if mode is None or mode == "form":
        return _FORM
    if mode != "url":
        raise errors.RemoteProtocolError(f"{at}.params.mode: {_shown(mode)} is unknown")
    return _URL


async def next_round(inputs: Inputs, method: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """What a request has to carry in addition after a result that asks for input.

    All is read before anybody is asked. The handlers run at the same time; the first that fails
    ends the others, and what it has raised is raised.

    Raises:
        errors.RemoteProtocolError: the result is malformed, or asks for what nobody answers.
    """
    given: dict[str, Any] = {}
    state = result.get("requestState")
    if state is not None:
        if not isinstance(state, str):
            raise errors.RemoteProtocolError(f"{method}: requestState: a string is expected")
        given["requestState"] = state
    asked = result.get("inputRequests")
    if asked is not None and not isinstance(asked, dict):
        raise errors.RemoteProtocolError(f"{method}: inputRequests: an object is expected")
    if not asked:
        if state is None:
            raise errors.RemoteProtocolError(f"{method}: the server asks for input, but not which")
        await trio.lowlevel.checkpoint()
        return given
    questions = {
        key: inputs.question(request, f"{method}: inputRequests.{key[:60]}")
        for key, request in asked.items()
    }
    given["inputResponses"] = await _answers(questions)
    return given


async def _answers(questions: Mapping[str, _Question]) -> dict[str, Any]:
    # In the order of the questions, whoever answers first.
    answers: dict[str, Any] = dict.fromkeys(questions)
    failures: list[Exception] = []

    async def answer(key: str, question: _Question) -> None:
        try:
            answers[key] = await question.ask()
        except Exception as problem:
            if failures:
                logger.warning("another answer to the server failed as well", exc_info=problem)
            else:
                failures.append(problem)
                nursery.cancel_scope.cancel()
            await trio.lowlevel.checkpoint()

    try:
        with _causes.one_cause(1):
            async with trio.open_nursery() as nursery:
                for key, question in questions.items():
                    nursery.start_soon(answer, key, question)
    finally:
        if failures:
            # As it was raised: not in a group, and not lost to a cancellation.
            raise failures.pop()
    return answers


def accept_form(
    params: types.ElicitRequestFormParams,
    content: Mapping[str, str | float | bool | list[str]] | None = None,
) -> types.ElicitResult:
    """The answer of a user who has filled in a form and sent it off.

    Args:
        params: the form, as `on_elicitation` was given it.
        content: what was filled in; where it says nothing, the form's own default counts.

    Raises:
        ValueError: a field that must be filled in is not, and has no default; or there is no
            such field.
    """
    schema = params.requested_schema
    filled: dict[str, Any] = {}
    for name, field in schema.properties.items():
        default = field.default
        if default is not None:
            filled[name] = default if isinstance(default, str | int | float) else list(default)
    unknown = (content or {}).keys() - schema.properties.keys()
    if unknown:
        raise ValueError(f"the form has no such field: {', '.join(sorted(unknown))}")
    filled |= content or {}
    missing = [name for name in schema.required or () if name not in filled]
    if missing:
        raise ValueError(f"the form is not filled in: {', '.join(missing)}")
    return types.ElicitResult(action="accept", content=filled)


def _shown(value: object) -> str:
    return repr(value)[:60]
