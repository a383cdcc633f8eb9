"""What a handler can ask of the client while it serves a request, and the answers.

Source: specification, basic/patterns/mrtr; client/elicitation, client/sampling, client/roots.
"""

import abc
import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, overload
from urllib.parse import urlsplit

import attrs

from mcp_trio import codec, errors, types
from mcp_trio.protocol import meta
from mcp_trio.server.forms import form_of
from mcp_trio.server.readers import Mismatch

__all__ = [
    "Accepted",
    "Answer",
    "Declined",
    "Dismissed",
    "Elicit",
    "ElicitUrl",
    "InputRequired",
    "ListRoots",
    "Question",
    "Sample",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@attrs.frozen
class Accepted(Generic[T_co]):
    """The user agreed; `content` is what was asked for, of the type that was asked for."""

    content: T_co
    action: Literal["accept"] = attrs.field(default="accept", init=False, repr=False)


@attrs.frozen
class Declined:
    """The user said no."""

    content: None = attrs.field(default=None, init=False, repr=False)
    action: Literal["decline"] = attrs.field(default="decline", init=False, repr=False)


@attrs.frozen
class Dismissed:
    """The user closed the question without an answer; one may ask again later."""

    content: None = attrs.field(default=None, init=False, repr=False)
    action: Literal["cancel"] = attrs.field(default="cancel", init=False, repr=False)


Answer: TypeAlias = Accepted[T] | Declined | Dismissed
"""What became of a question to the user; `action` and the class tell the three apart."""


class Question(abc.ABC, Generic[T_co]):
    """One request for input. What `Context.ask` returns for it is the type parameter.

    Attributes:
        key: what the client knows it by, or None to have one made of the question.
        wire: the request as it is sent.
        needs: the client capabilities it takes, as the wire has them.
    """

    key: str | None
    wire: dict[str, Any]
    needs: dict[str, Any]

    def _set(
        self, key: str | None, method: str, params: dict[str, Any] | None, needs: dict[str, Any]
    ) -> None:
        if key is not None and (type(key) is not str or not key):
            raise ValueError(f"a key is text and not empty, got {key!r}")
        self.key = key
        self.wire = {"method": method} if params is None else {"method": method, "params": params}
        self.needs = needs
        # What cannot be sent is found here.
        try:
            codec.structure(types.InputRequest, self.wire)
        except codec.DecodeError as problem:
            raise TypeError(str(problem)) from None
        codec.encode_json(self.wire)

    @functools.cached_property
    def digest(self) -> str:
        """A short text that no other question has."""
        found = hashlib.sha256(codec.encode_json(self.wire)).digest()
        return base64.urlsafe_b64encode(found[:12]).decode("ascii")

    @property
    def own_key(self) -> str:
        """Its key, or else one that is the same whenever the same is asked."""
        if self.key is not None:
            return self.key
        return f"{self.wire['method'].partition('/')[0]}-{self.digest[:8]}"

    def may_be_asked(self, about: meta.RequestMeta) -> bool:
        """Whether the client said that it can answer this kind of question."""
        return all(about.declares(*path) for path in _paths(self.needs))

    @abc.abstractmethod
    def read(self, response: Any, at: str) -> T_co:
        """Make the answer of what the client sent.

        Raises:
            errors.InvalidParams: it does not answer this question; the message says where.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.own_key!r}>"


def _paths(needs: Mapping[str, Any]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, inner in needs.items():
        found += [(name, *path) for path in _paths(inner)] or [(name,)]
    return found


class Elicit(Question[Answer[T]]):
    """Asks the user to fill in a form.

    Never ask for passwords, keys or other secrets in a form: that is what `ElicitUrl` is for.

    Args:
        message: what the user reads.
        form: what is asked for. A class with fields (dataclass, attrs, TypedDict) is a form with
            these fields; ``str``, ``int``, ``float``, ``bool``, a ``Literal`` or ``Enum`` of
            strings or a list of these choices is a form with one field; a JSON Schema, as a
            mapping or `types.ElicitationSchema`, describes the form and gives a dict; None asks
            for nothing but a yes or no. Forms are flat: what they hold is text, numbers, yes or
            no, and choices.
        key: what the client knows the question by; None makes one of the question.

    Raises:
        TypeError: the type does not fit into a form.
        ValueError: the schema is none of a form.

    Source: specification, client/elicitation, "Form Mode Elicitation Requests".
    """

    @overload
    def __init__(
        self: "Elicit[None]", message: str, form: None = None, *, key: str | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: "Elicit[T]", message: str, form: type[T], *, key: str | None = None
    ) -> None: ...
    @overload
    def __init__(
        self: "Elicit[dict[str, Any]]",
        message: str,
        form: Mapping[str, Any] | types.ElicitationSchema,
        *,
        key: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "Elicit[Any]", message: str, form: object, *, key: str | None = None
    ) -> None: ...
    def __init__(self, message: str, form: Any = None, *, key: str | None = None) -> None:
        made = form_of(form)
        self._read = made.read
        params = {"mode": "form", "message": message, "requestedSchema": made.schema}
        self._set(key, "elicitation/create", params, {"elicitation": {"form": {}}})

    def may_be_asked(self, about: meta.RequestMeta) -> bool:
        """Whether the client can show forms; one that does not say what it shows, can."""
        declared = about.client_capabilities.get("elicitation")
        return isinstance(declared, dict) and ("form" in declared or "url" not in declared)

    def read(self, response: Any, at: str) -> Answer[T]:
        """The user's answer, with the content as it was asked for."""
        action, content = _elicited(response, at)
        if action != "accept":
            return Declined() if action == "decline" else Dismissed()
        if content is None:
            content = {}
        if not isinstance(content, dict):
            raise _wrong(f"{at}.content", "an object is expected")
        try:
            return Accepted(self._read(content))
        except Mismatch as problem:
            path = f"{at}.content.{problem.path}" if problem.path else f"{at}.content"
            raise _wrong(path, problem.reason) from None


class ElicitUrl(Question[Answer[None]]):
    """Asks the user to open a web page, where what happens is no business of the client.

    `Accepted` means that the user agreed to open it, not that anything has happened there: look
    that up where the page keeps it. The URL must not hold secrets, personal data or a login, and
    the page has to make sure that whoever opens it is the caller of this request.

    Args:
        message: what the user reads, and why.
        url: the page, http or https.
        key: what the client knows the question by; None makes one of the question.

    Raises:
        ValueError: it is no such URL.

    Source: specification, client/elicitation, "URL Mode Elicitation Requests".
    """

    def __init__(self, message: str, url: str, *, key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
            raise ValueError(f"not a URL to be opened by a user: {url!r}")
        params = {"mode": "url", "message": message, "url": url}
        self._set(key, "elicitation/create", params, {"elicitation": {"url": {}}})

    def read(self, response: Any, at: str) -> Answer[None]:
        """What the user decided."""
        action, _ = _elicited(response, at)
        if action == "accept":
            return Accepted(None)
        return Declined() if action == "decline" else Dismissed()


class Sample(Question[types.CreateMessageResult]):
    """Asks the client's model to continue a conversation.

    Sampling is deprecated in this revision: new servers better call a model themselves.

    Args:
        messages: the conversation; text alone is one message of the user.
        max_tokens: how much the model may say.
        system_prompt: what it is told first.
        temperature: how freely it chooses.
        stop_sequences: where it stops.
        model_preferences: what matters in the choice of the model.
        tools: what it may call; only for clients that declare ``sampling.tools``.
        tool_choice: whether it has to.
        include_context: "thisServer" or "allServers" only for clients that declare
            ``sampling.context``.
        metadata: for the provider of the model.
        key: what the client knows the question by; None makes one of the question.

    Source: specification, client/sampling.
    """

    def __init__(
        self,
        messages: str | Sequence[str | types.SamplingMessage],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: types.ModelPreferences | None = None,
        tools: Sequence[types.Tool] | None = None,
        tool_choice: types.ToolChoice | None = None,
        include_context: Literal["allServers", "none", "thisServer"] | None = None,
        metadata: dict[str, Any] | None = None,
        key: str | None = None,
    ) -> None:
        if type(max_tokens) is not int or max_tokens < 1:
            raise ValueError(f"max_tokens must be a positive integer, got {max_tokens!r}")
        said = [messages] if isinstance(messages, str) else messages
        params = types.CreateMessageRequestParams(
            max_tokens=max_tokens,
            messages=[_message(item) for item in said],
            include_context=include_context,
            metadata=metadata,
            model_preferences=model_preferences,
            stop_sequences=stop_sequences,
            system_prompt=system_prompt,
            temperature=temperature,
            tool_choice=tool_choice,
            tools=tools,
        )
        needs: dict[str, Any] = {}
        if tools is not None or tool_choice is not None:
            needs["tools"] = {}
        if include_context not in (None, "none"):
            needs["context"] = {}
        wire = codec.unstructure(params)
        self._set(key, "sampling/createMessage", wire, {"sampling": needs})

    def read(self, response: Any, at: str) -> types.CreateMessageResult:
        """What the model said."""
        return _structured(types.CreateMessageResult, response, at)


class ListRoots(Question[list[types.Root]]):
    """Asks which directories and files the client means to work with.

    Roots are deprecated in this revision: new tools better take paths or URIs as arguments. They
    are a hint, and no protection.

    Args:
        key: what the client knows the question by; None makes one of the question.

    Source: specification, client/roots.
    """

    def __init__(self, *, key: str | None = None) -> None:
        self._set(key, "roots/list", None, {"roots": {}})

    def read(self, response: Any, at: str) -> list[types.Root]:
        """The roots."""
        roots = list(_structured(types.ListRootsResult, response, at).roots)
        for number, root in enumerate(roots):
            if not root.uri.startswith("file://"):
                raise _wrong(f"{at}.roots[{number}].uri", "a file:// URI is expected")
        return roots


@attrs.frozen
class InputRequired:
    """What a handler of a tool, prompt or resource returns instead of a result, to ask first.

    The client gathers the answers and makes its request again, and the handler runs again: then
    `Context.answer` has the answers and `Context.request_state` the state. Use it where the
    handler should see the rounds; `Context.ask` and its like are the same without them.

    Questions that the client cannot answer, as its capabilities say, are left out; if that
    leaves none, it is told what is missing (-32021).

    Args:
        requests: the questions, under the keys the client knows them by. Without any, the client
            may come back at once.
        state: any JSON value, to be found again in the next round. The client carries it, and
            can neither read nor change it.

    Source: specification, basic/patterns/mrtr, "InputRequiredResult".
    """

    requests: Mapping[str, Question[Any]] = attrs.field(factory=dict)
    state: Any = None


_ACTIONS: Final = ("accept", "decline", "cancel")


def _elicited(response: Any, at: str) -> tuple[str, Any]:
    if not isinstance(response, dict):
        raise _wrong(at, "an object is expected")
    action = response.get("action")
    if action not in _ACTIONS:
        raise _wrong(f"{at}.action", f"one of {', '.join(_ACTIONS)} is expected")
    return action, response.get("content")


def _structured(kind: type[T], response: Any, at: str) -> T:
    try:
        return codec.structure(kind, response, at=at)
    except codec.DecodeError as problem:
        raise errors.InvalidParams(str(problem)) from None


def _message(item: str | types.SamplingMessage) -> types.SamplingMessage:
    if isinstance(item, str):
        return types.SamplingMessage(role="user", content=types.TextContent(item))
    return item


def _wrong(path: str, reason: str) -> errors.InvalidParams:
    return errors.InvalidParams(f"{path}: {reason}")
