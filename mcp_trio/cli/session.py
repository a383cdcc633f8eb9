"""One run of a command: its client, its signals, what it writes, and the status it exits with."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, TypeAlias

import attrs
import click
import trio

from mcp_trio import errors
from mcp_trio._backoff import Backoff
from mcp_trio._causes import one_cause
from mcp_trio.cli.display import Display, End
from mcp_trio.cli.options import TOKEN, Target
from mcp_trio.cli.output import Gone, Writer
from mcp_trio.client.client import Client
from mcp_trio.client.connect import open_http_client, open_stdio_client
from mcp_trio.client.options import ClientOptions

__all__ = ["FAILED", "SUCCEEDED", "Body", "Session", "end_of"]

SUCCEEDED: Final = 0
FAILED: Final = 1

_SIGNALS: Final = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


@attrs.define(eq=False)
class Session:
    """What a command works with.

    Attributes:
        target: the server.
        display: what results look like.
        streaming: whether the command goes on until it is stopped, so that a signal is how it
            is meant to end.
        timeout: seconds for one answer; None for as long as it takes.
        restart: whether a server that we have started, and that ends, is started again.
        options: of the client.
        out: standard output.
        err: standard error.
    """

    target: Target
    display: Display
    streaming: bool = False
    timeout: float | None = None
    restart: bool = False
    options: ClientOptions = attrs.field(factory=ClientOptions)
    out: Writer = attrs.field(factory=lambda: Writer(1), init=False)
    err: Writer = attrs.field(factory=lambda: Writer(2), init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _why: str | None = attrs.field(default=None, init=False)
    _signal: int | None = attrs.field(default=None, init=False)
    _unread: bool = attrs.field(default=False, init=False)

    def end_after(self, seconds: float | None) -> None:
        """From now on, so many seconds are left; None for no limit."""
        if seconds is not None:
            self._why = f"{seconds:g} s have passed"
            self._scope.deadline = trio.current_time() + seconds

    async def conduct(self, body: "Body") -> int:
        """Do what the command does; the exit status.

        SIGINT and SIGTERM end it in peace; the second one ends this process there and then.

        Raises:
            click.UsageError: the target cannot be one.
        """
        with one_cause(), trio.open_signal_receiver(*_SIGNALS) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._heed, signals)
                nursery.start_soon(self._mind_reader)
                status = await self._conclude(body)
                nursery.cancel_scope.cancel()
        return status

    async def _heed(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            if self._signal is not None:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            self._signal = number
            self._why = _SIGNALS[signal.Signals(number)]
            self._scope.cancel()

    async def _mind_reader(self) -> None:
        await self.out.until_gone()
        self._unread = True
        self._scope.cancel()

    async def _conclude(self, body: "Body") -> int:
        ended: End | int = End("local")
        with self._scope:
            ended = await self._attempt(body)
        if self._unread:
            return SUCCEEDED
        if isinstance(ended, int):
            return ended
        if ended.how == "local":
            ended = attrs.evolve(ended, reason=self._why)
        on_stderr = self.display.end_on_stderr and (ended.failed or not self.streaming)
        await (self.err if on_stderr else self.out).last_words(self.display.ended(ended))
        if ended.how == "local" and not self.streaming:
            return 128 + (self._signal or 0)
        return FAILED if ended.failed else SUCCEEDED

    async def _attempt(self, body: "Body") -> End | int:
        try:
            async with AsyncExitStack() as stack:
                try:
                    client = await stack.enter_async_context(self._open_client())
                except ValueError as problem:
                    raise click.UsageError(str(problem)) from None
                return await body(client, self)
        except Gone:
            self._unread = True
            return SUCCEEDED
        except (errors.McpError, OSError, trio.TooSlowError) as problem:
            return end_of(problem)

    def _open_client(self) -> AbstractAsyncContextManager[Client]:
        target = self.target
        if not target.command:
            return open_http_client(target.url, headers=target.headers, **self.options)
        # The token is for whoever is at a URL, and no business of the programs we start.
        env = {name: value for name, value in os.environ.items() if name != TOKEN}
        return open_stdio_client(
            target.command,
            env=env,
            stderr=_pass_on,
            restart=Backoff() if self.restart else None,
            **self.options,
        )


Body: TypeAlias = Callable[[Client, Session], Awaitable[End | int]]
"""What a command does with a client: how it ended, or the exit status if that is all."""


def _pass_on(data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def end_of(problem: Exception, reason: str | None = None) -> End:
    """How something ended that has raised.

    Args:
        problem: what it has raised.
        reason: what is known beside; by default what the exception says.
    """
    cause: BaseException | None = problem
    if isinstance(problem, errors.SubscriptionLost | errors.WatchEnded):
        cause = problem.__cause__
    if isinstance(problem, errors.WatchEnded) and cause is None:
        gone = problem.reason == "gave-up"
    else:
        gone = cause is None or isinstance(cause, _GONE)
    return End("lost" if gone else "error", reason or str(problem), cause or problem)


_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
