"""Functions as handlers: what their signature asks for, and how they are run.

An async function runs in the task of its request. Any other runs in a thread; if the request is
cancelled meanwhile, the thread is left to finish by itself and what it returns is dropped.
"""

import functools
import inspect
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import trio

from mcp_trio.server.context import Context
from mcp_trio.server.dependencies import dependency_of
from mcp_trio.server.fields import MISSING, Field

__all__ = ["Handler", "Shape", "Threads", "handler_of"]


@attrs.frozen
class Shape:
    """What a signature asks for.

    Attributes:
        is_async: whether calling it gives an awaitable.
        context: the parameter that wants the `Context`, if there is one.
        fields: the parameters that a client fills, in order.
        extra: the annotation of ``**keywords``, or `MISSING`.
        dependencies: the parameters that functions of the server fill, and these functions.
        positional: the names that positional arguments would fill, in order.
        unnamed: those that must be filled and cannot be by name: fine while something is bound
            to them, as to the ``self`` of a method.
    """

    is_async: bool
    context: str | None = None
    fields: tuple[Field, ...] = ()
    extra: Any = MISSING
    dependencies: "tuple[tuple[str, Handler], ...]" = ()
    positional: tuple[str, ...] = ()
    unnamed: frozenset[str] = frozenset()

    def without(self, positional: int, keywords: frozenset[str]) -> "Shape":
        """What is left to ask for once some arguments are bound; those are not the client's."""
        bound = keywords.union(self.positional[:positional])
        return attrs.evolve(
            self,
            context=None if self.context in bound else self.context,
            fields=tuple(field for field in self.fields if field.name not in bound),
            dependencies=tuple(item for item in self.dependencies if item[0] not in bound),
            positional=self.positional[positional:],
            unnamed=self.unnamed - bound,
        )


@attrs.frozen
class Handler:
    """A function with its shape."""

    function: Callable[..., Any]
    shape: Shape

    async def run(self, keywords: dict[str, Any], threads: "Threads") -> Any:
        """Call the function. Cancelling abandons the thread of one that is not async."""
        if self.shape.is_async:
            return await self.function(**keywords)
        [result] = await trio.to_thread.run_sync(
            self._in_thread, keywords, abandon_on_cancel=True, limiter=threads.limiter()
        )
        # A lambda or a plain decorator around an async function cannot be told from its outside.
        if inspect.isawaitable(result):
            return await result
        return result

    def _in_thread(self, keywords: dict[str, Any]) -> list[Any]:
        # In a list, because Trio takes an awaitable that comes back from a thread for a mistake.
        return [self.function(**keywords)]


class Threads:
    """Bounds how many handlers of one server run in threads at the same time.

    Each `trio.run` has a limiter of its own: a thread that was left to finish by itself, and
    does so after its run, could not give its place back.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("limiter")

    def limiter(self) -> trio.CapacityLimiter:
        """The limiter of the current `trio.run`."""
        try:
            return self._limiter.get()
        except LookupError:
            limiter = trio.CapacityLimiter(self._total)
            self._limiter.set(limiter)
            return limiter

    def in_use(self) -> tuple[int, int]:
        """How many run now, and how many handlers wait until they can."""
        try:
            limiter = self._limiter.get()
        except (LookupError, RuntimeError):  # none has, in this run; or there is no run
            return 0, 0
        statistics = limiter.statistics()
        return statistics.borrowed_tokens, statistics.tasks_waiting


_shapes: "weakref.WeakKeyDictionary[types.FunctionType, Shape]" = weakref.WeakKeyDictionary()
_NO_PARAMETERS = (Shape(is_async=False), Shape(is_async=True))


def handler_of(function: Callable[..., Any]) -> Handler:
    """Read a function's signature.

    Functions are read once; a bound method or a `functools.partial` of one read before costs
    next to nothing, so thousands of resources can share a function.

    Raises:
        TypeError: it cannot be a handler; the message says why.
    """
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"a handler is a function, not {function!r}")
    shape = _shape(function)
    for name in shape.unnamed:
        raise TypeError(f"{_name(function)}: {name!r} cannot be passed by name")
    return Handler(function, shape)


def _shape(function: Callable[..., Any]) -> Shape:
    if isinstance(function, functools.partial):
        return _shape(function.func).without(len(function.args), frozenset(function.keywords))
    if isinstance(function, types.MethodType):
        return _shape(function.__func__).without(1, frozenset())
    if not isinstance(function, types.FunctionType):
        call = getattr(function, "__call__", None)  # noqa: B004 - its signature is wanted
        if isinstance(call, types.MethodType):
            return _shape(call)
        return _inspect(function)
    code = function.__code__
    if not (code.co_argcount or code.co_kwonlyargcount or code.co_flags & _UNUSUAL):
        return _NO_PARAMETERS[inspect.iscoroutinefunction(function)]
    shape = _shapes.get(function)
    if shape is None:
        shape = _shapes[function] = _inspect(function)
    return shape


_UNUSUAL = (
    inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
)


def _inspect(function: Callable[..., Any]) -> Shape:
    name = _name(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name}: a generator cannot be a handler")
    try:
        signature = inspect.signature(function)
    except ValueError as problem:
        raise TypeError(f"{name}: {problem}") from problem
    hints = _hints(function, name)
    context: str | None = None
    fields = []
    dependencies = []
    extra: Any = MISSING
    positional = []
    unnamed = set()
    for parameter in signature.parameters.values():
        annotation = hints.get(parameter.name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = annotation
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise TypeError(f"{name}: {parameter.name!r} cannot be passed by name")
        if parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(parameter.name)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            if parameter.default is parameter.empty:
                unnamed.add(parameter.name)
            continue
        if _is_context(annotation):
            if context is not None:
                raise TypeError(f"{name}: two parameters ask for the context")
            context = parameter.name
            continue
        depends = dependency_of(annotation)
        if depends is not None:
            dependencies.append((parameter.name, _dependency(depends.make, name)))
            continue
        default = MISSING if parameter.default is parameter.empty else parameter.default
        fields.append(Field(parameter.name, annotation, default))
    is_async = inspect.iscoroutinefunction(function)
    return Shape(
        is_async,
        context,
        tuple(fields),
        extra,
        tuple(dependencies),
        tuple(positional),
        frozenset(unnamed),
    )


def _dependency(make: Callable[..., Any], name: str) -> Handler:
    handler = handler_of(make)
    for field in handler.shape.fields:
        if field.default is MISSING:
            raise TypeError(f"{name}: nothing fills {field.name!r} of {_name(make)}")
    return handler


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    if not getattr(function, "__annotations__", None):
        return {}
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as problem:
        raise TypeError(f"{name}: its annotations cannot be resolved: {problem}") from problem


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, type):
        return issubclass(annotation, Context)
    origin = typing.get_origin(annotation)
    if origin in (typing.Annotated, typing.Union, types.UnionType):
        return any(_is_context(member) for member in typing.get_args(annotation))
    return False
