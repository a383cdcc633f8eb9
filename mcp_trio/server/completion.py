"""Completion: what the argument of a prompt, or the variable of a resource template, could be.

Source: specification, server/utilities/completion.
"""

import enum
import itertools
import types as python_types
import typing
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, Final, Protocol

import attrs

from mcp_trio import errors, types
from mcp_trio.protocol import jsonrpc
from mcp_trio.server.core import Asked, Call, Core, run_handler
from mcp_trio.server.fields import MISSING
from mcp_trio.server.handlers import Handler, handler_of
from mcp_trio.server.readers import Mismatch, Reader, read_text
from mcp_trio.server.registry import Registry
from mcp_trio.server.schema import Builder

__all__ = ["MAX_VALUES", "Completable", "Complete", "Completer", "Completions", "completers_of"]

MAX_VALUES: Final = 100
"""How many values one answer has at most; the specification says so."""


def _kept(values: Callable[..., Any] | Iterable[str]) -> Callable[..., Any] | tuple[Any, ...]:
    if callable(values):
        return values
    if isinstance(values, str):
        raise TypeError("a completion takes a list of strings, not one")
    return tuple(_text(value) for value in values)


@attrs.frozen(eq=False)  # `Annotated` wants it to be hashable, whatever it holds
class Complete:
    """Marks an argument that can be completed: ``Annotated[str, Complete(values)]``.

    It marks parameters of prompts, and of resource templates those that a variable fills.

    `values` is a function, async or not, as a handler is. Its first parameter gets what has been
    typed so far. Further ones have the names of other arguments and get what is settled of
    these; each needs a default, for while it is not. Parameters for the `Context` and for
    `Depends` are filled as those of a handler. It returns the suggestions, best first: any
    iterable of strings, or a `types.Completion` to say itself how many there are. More than 100
    are cut off, and the client is told. What it raises is logged, and the client gets an error;
    it cannot ask the client for input::

        async def frameworks(typed: str, language: str = "") -> list[str]:
            return [name for name in known[language] if name.startswith(typed)]

        @server.prompt
        def review(
            language: Annotated[str, Complete(["python", "rust"])],
            framework: Annotated[str, Complete(frameworks)],
        ) -> str:
            ...

    Or `values` are the suggestions themselves: of these, those that begin with what has been
    typed come first, then those that contain it, whatever the case. A parameter annotated with
    a `Literal`, an enumeration or `bool` is completed like that without being marked.

    Raises:
        TypeError: a list holds something else than strings.

    Source: specification, server/utilities/completion.
    """

    values: Callable[..., Any] | tuple[str, ...] = attrs.field(converter=_kept)


@attrs.frozen
class Completer:
    """Completes one argument: with a function, or from a list if there is none."""

    handler: Handler | None
    typed: str | None
    settled: Mapping[str, Reader]
    choices: tuple[str, ...]

    async def suggest(
        self, typed: str, settled: Mapping[str, str], call: Call, core: Core
    ) -> dict[str, Any]:
        """The suggestions, as the wire has them. Cancelling cancels the function."""
        if self.handler is None:
            return _completion(_matching(self.choices, typed))  # noqa: ASYNC910
        keywords: dict[str, Any] = {} if self.typed is None else {self.typed: typed}
        for name, read in self.settled.items():
            if name in settled:
                try:
                    keywords[name] = read_text(read, settled[name], name)
                except Mismatch:
                    continue  # it is refused when the prompt is asked for, not while one types
        value = await run_handler(self.handler, keywords, call, core)
        if type(value) is Asked:
            raise RuntimeError("a completion cannot ask the client for input")
        return _completion(value)


class Completable(Protocol):
    """A prompt or a template."""

    @property
    def completers(self) -> Mapping[str, Completer | None]:
        """All its arguments, with None for those that cannot be completed."""


def completers_of(what: str, annotations: Mapping[str, Any]) -> dict[str, Completer | None]:
    """Find out how arguments can be completed.

    Args:
        what: whose arguments they are, for messages.
        annotations: the annotation of each argument.

    Raises:
        TypeError: a function asks for what it cannot get.
    """
    return {
        name: _completer(f"{what}: the completion of {name!r}", annotation, annotations)
        for name, annotation in annotations.items()
    }


def _completer(what: str, annotation: Any, others: Mapping[str, Any]) -> Completer | None:
    marker = _marker_of(annotation)
    if marker is None:
        choices = _choices(annotation)
        return Completer(None, None, {}, choices) if choices else None
    if isinstance(marker.values, tuple):
        return Completer(None, None, {}, marker.values)
    handler = handler_of(marker.values)
    names = [field.name for field in handler.shape.fields]
    builder = Builder()
    readers: dict[str, Reader] = {}
    for field in handler.shape.fields[1:]:
        if field.name not in others:
            if field.default is MISSING:
                raise TypeError(f"{what}: nothing fills the parameter {field.name!r}")
            continue
        if field.default is MISSING:
            raise TypeError(f"{what}: {field.name!r} may not be settled, so it needs a default")
        readers[field.name] = builder.spec(field.annotation).read
    return Completer(handler, names[0] if names else None, readers, ())


def _marker_of(annotation: Any) -> Complete | None:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        inner, *extras = typing.get_args(annotation)
        for extra in extras:
            if isinstance(extra, Complete):
                return extra
        return _marker_of(inner)
    if origin in (typing.Union, python_types.UnionType):
        for member in typing.get_args(annotation):
            found = _marker_of(member)
            if found is not None:
                return found
    return None


def _choices(annotation: Any) -> tuple[str, ...]:
    """The values of a type that has few, as a client would have to send them."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return _choices(arguments[0])
    if origin in (typing.Union, python_types.UnionType):
        found = [_choices(member) for member in arguments if member is not type(None)]
        # Where one member of a union is open, a list of the others would look like all there is.
        return tuple(itertools.chain(*found)) if all(found) else ()
    if annotation is bool:
        return ("true", "false")
    values: list[Any] = []
    if origin is typing.Literal:
        values = list(arguments)
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        values = [member.value for member in annotation]
    return tuple(_as_text(value) for value in values if value is not None)


def _as_text(value: Any) -> str:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _matching(choices: tuple[str, ...], typed: str) -> list[str]:
    wanted = typed.casefold()
    folded = [(choice, choice.casefold()) for choice in choices]
    first = [choice for choice, text in folded if text.startswith(wanted)]
    return first + [
        choice for choice, text in folded if wanted in text and not text.startswith(wanted)
    ]


def _completion(value: Any) -> dict[str, Any]:
    total: int | None = None
    more: bool | None = None
    if value is None:
        value = ()
    elif isinstance(value, types.Completion):
        total, more, value = value.total, value.has_more, value.values
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"a completion gives strings in a list, not {type(value).__name__}")
    if total is None and more is None and isinstance(value, Sized):
        total = len(value)
    values = [_text(item) for item in itertools.islice(value, MAX_VALUES + 1)]
    cut = len(values) > MAX_VALUES
    del values[MAX_VALUES:]
    found: dict[str, Any] = {"values": values}
    if total is not None:
        found["total"] = total
        cut = cut or (more is None and total > len(values))
    found["hasMore"] = cut or bool(more)
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a completion gives strings, not {type(value).__name__}")
    return str.__str__(value)  # JSON takes no subclasses, of which some enumerations are


class Completions:
    """Serves `completion/complete`.

    Args:
        core: what it needs of the server.
        prompts: the prompts.
        templates: the resource templates.
    """

    def __init__(self, core: Core, prompts: Registry[Any], templates: Registry[Any]) -> None:
        self._core = core
        self._prompts: Registry[Completable] = prompts
        self._templates: Registry[Completable] = templates
        self._available: tuple[int, int, bool] | None = None

    @property
    def available(self) -> bool:
        """Whether there is anything that can be completed."""
        prompts, templates = self._prompts.generation, self._templates.generation
        known = self._available
        if known is None or known[:2] != (prompts, templates):
            found = any(
                completer is not None
                for item in itertools.chain(self._prompts, self._templates)
                for completer in item.completers.values()
            )
            known = self._available = prompts, templates, found
        return known[2]

    async def reply(self, call: Call) -> jsonrpc.Reply:
        """Answer `completion/complete`."""
        params = call.params
        completers = self._completers(_object(params.get("ref"), "params.ref"))
        argument = _object(params.get("argument"), "params.argument")
        name = _string(argument.get("name"), "params.argument.name")
        typed = _string(argument.get("value"), "params.argument.value")
        settled = _settled(params)
        if name not in completers:
            raise errors.InvalidParams(f"params.argument.name: no such argument: {name[:200]}")
        completer = completers[name]
        if completer is None:
            found: dict[str, Any] = {"values": [], "total": 0, "hasMore": False}
        else:
            found = await completer.suggest(typed, settled, call, self._core)
        result = self._core.complete({"completion": found})
        return jsonrpc.result_reply(call.request_id, result)  # noqa: ASYNC910

    def _completers(self, ref: Mapping[str, Any]) -> Mapping[str, Completer | None]:
        kind = ref.get("type")
        if kind == "ref/prompt":
            name = _string(ref.get("name"), "params.ref.name")
            prompt = self._prompts.get(name)
            if prompt is None:
                raise errors.InvalidParams(f"Unknown prompt: {name[:200]}")
            return prompt.completers
        if kind == "ref/resource":
            uri = _string(ref.get("uri"), "params.ref.uri")
            template = self._templates.get(uri)
            if template is None:  # among these a plain resource, which has nothing to complete
                raise errors.InvalidParams(f"Unknown resource template: {uri[:200]}")
            return template.completers
        raise errors.InvalidParams("params.ref.type: 'ref/prompt' or 'ref/resource' is expected")


def _settled(params: Mapping[str, Any]) -> Mapping[str, str]:
    context = _object(params.get("context", _NOTHING), "params.context")
    settled = _object(context.get("arguments", _NOTHING), "params.context.arguments")
    for name, value in settled.items():
        _string(value, f"params.context.arguments.{name[:200]}")
    return settled


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if type(value) is not dict:
        raise errors.InvalidParams(f"{path}: an object is required")
    return value


def _string(value: Any, path: str) -> str:
    if type(value) is not str:
        raise errors.InvalidParams(f"{path}: a string is required")
    return value


_NOTHING: dict[str, Any] = {}
