"""Values that a handler needs and no client sends: made for each request, and put away after it."""

import contextlib
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from mcp_trio.server.context import Context
    from mcp_trio.server.handlers import Handler

__all__ = ["Depends", "dependency_of", "provide"]


@attrs.frozen
class Depends:
    """Marks a parameter that a function of the server fills: ``Annotated[T, Depends(make)]``.

    The parameter is no part of the schema. The function is called before the handler, once for
    a request however many ask for it; it may want the `Context` and have dependencies of its own.
    It is an async function, or a plain one that does not block; or, decorated with
    `contextlib.asynccontextmanager` or `contextlib.contextmanager`, one whose block is around
    the handler, and sees its exceptions. What it raises, it raises in place of the handler::

        @asynccontextmanager
        async def transaction(ctx: Context) -> AsyncIterator[Connection]:
            async with ctx.lifespan.pool.acquire() as connection, connection.transaction():
                yield connection

        @server.tool
        async def rename(old: str, new: str, db: Annotated[Connection, Depends(transaction)]):
            await db.execute(...)

    A request that needs input runs its dependencies again in each round, like its handler. Its
    question goes through the blocks as an exception, so a transaction is rolled back by it.
    """

    make: Callable[..., Any]


def dependency_of(annotation: Any) -> Depends | None:
    """The marker in an annotation, if there is one."""
    if typing.get_origin(annotation) is typing.Annotated:
        for extra in typing.get_args(annotation)[1:]:
            if isinstance(extra, Depends):
                return extra
    return None


async def provide(  # noqa: ASYNC910 - what needs no waiting is not waited for
    handler: "Handler",
    keywords: dict[str, Any],
    context: "Context",
    stack: contextlib.AsyncExitStack,
    made: dict[Callable[..., Any], Any],
) -> None:
    """Add what a handler depends on to its keywords; the blocks of it are left with the stack.

    Raises whatever the dependencies do. Cancelling cancels them.
    """
    for name, dependency in handler.shape.dependencies:
        function = dependency.function
        if function not in made:
            made[function] = await _make(dependency, context, stack, made)
        keywords[name] = made[function]


async def _make(
    dependency: "Handler",
    context: "Context",
    stack: contextlib.AsyncExitStack,
    made: dict[Callable[..., Any], Any],
) -> Any:
    keywords: dict[str, Any] = {}
    await provide(dependency, keywords, context, stack, made)
    if dependency.shape.context is not None:
        keywords[dependency.shape.context] = context
    value = dependency.function(**keywords)
    inner = inspect.unwrap(dependency.function)
    if inspect.isasyncgenfunction(inner):
        return await stack.enter_async_context(value)
    if inspect.isgeneratorfunction(inner):
        return stack.enter_context(value)
    return await value if inspect.isawaitable(value) else value
