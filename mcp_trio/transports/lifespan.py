"""The lifespan of what is served: open while it is, for handlers that have one."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar, cast

__all__ = ["running", "while_running"]

F = TypeVar("F", bound=Callable[..., Awaitable[None]])


@asynccontextmanager
async def running(handler: Any) -> AsyncIterator[None]:
    """Hold open the lifespan of a handler for the block, or of several in a mapping.

    It is what the handler's method `running` returns; one without that method has none.
    """
    handlers = handler.values() if isinstance(handler, Mapping) else [handler]
    async with AsyncExitStack() as stack:
        for each in handlers:
            enter = getattr(each, "running", None)
            if enter is not None:
                await stack.enter_async_context(enter())
        yield


def while_running(serve: F) -> F:
    """Decorate a function that serves its first argument, `handler`: its lifespan is open then."""

    @functools.wraps(serve)
    async def serve_running(*args: Any, **kwargs: Any) -> None:
        async with running(args[0] if args else kwargs["handler"]):
            await serve(*args, **kwargs)

    return cast("F", serve_running)
