"""What a handler can learn of its request, and say and ask while it serves it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, overload

import trio

from mcp_trio import errors, types
from mcp_trio.protocol import jsonrpc, meta, methods
from mcp_trio.server.inputs import Inputs
from mcp_trio.server.questions import Answer, Elicit, ElicitUrl, ListRoots, Question, Sample
from mcp_trio.subscriptions.events import Event
from mcp_trio.transports.abc import Exchange, Principal

if TYPE_CHECKING:
    from mcp_trio.server.server import Server
    from mcp_trio.subscriptions.statistics import PublishReport

__all__ = ["Context", "LogLevel"]

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""How severe a log message is, least first."""

_SEVERITY: Final[dict[str, int]] = {level: at for at, level in enumerate(get_args(LogLevel))}
_TRACE: Final = ("traceparent", "tracestate", "baggage")


class Context:
    """One request, as its handler sees it.

    A handler gets it by a parameter that is annotated with this class; the parameter is no part
    of the schema. It belongs to the request: once the handler has returned, what it would still
    say about the request is dropped.

    A handler can ask the client's user, model or host for what it needs: `elicit`, `elicit_url`,
    `sample`, `list_roots`, and `ask` for several at once. No server waits for such an answer.
    The request ends with the question; the client makes it again with the answer, and **the
    handler runs again from its start**, where each question that has been answered returns at
    once. So what stands before a question runs once for each round: let it only read, or do what
    may be done twice, and put what must not change between the rounds through `remember`. What
    changes the world belongs behind the last question::

        @server.tool
        async def delete_folder(ctx: Context, path: str) -> str:
            count = await count_files(path)                                # runs twice
            answer = await ctx.elicit(f"Delete {count} files in {path}?")  # ends the first run
            if answer.action != "accept":
                return "Nothing was deleted."
            await delete(path)                                             # runs once
            return f"Deleted {count} files."

    An answer counts only for the very question that was asked: had a file been added between the
    two rounds above, the user would be asked again. The answers travel with the client, sealed
    and bound to the caller and the request; the server keeps nothing. A client that sends the
    same answers twice has the last run twice, as with any request; what may happen once only
    needs a record of its own.

    Source: specification, basic/patterns/mrtr.
    """

    __slots__ = (
        "_done",
        "_exchange",
        "_inputs",
        "_last",
        "_sending",
        "meta",
        "request_id",
        "server",
    )

    def __init__(
        self,
        server: "Server",
        request_id: jsonrpc.RequestId,
        meta: meta.RequestMeta,
        exchange: Exchange,
        inputs: Inputs,
    ) -> None:
        self.server = server
        """The server that serves the request."""
        self.request_id = request_id
        """The id of the request, as the client chose it."""
        self.meta = meta
        """What the request says about itself: revision, client, capabilities, raw `_meta`."""
        self._exchange = exchange
        self._inputs = inputs
        self._last = -math.inf
        self._done = False
        self._sending: set[trio.CancelScope] = set()

    @property
    def principal(self) -> Principal | None:
        """Who makes the request, as far as the transport could tell."""
        return self._exchange.principal

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's HTTP headers in lower case; empty on other transports."""
        return self._exchange.headers

    @property
    def transport(self) -> Literal["memory", "stdio", "http"]:
        """The kind of transport that carried the request."""
        return self._exchange.kind

    @property
    def trace_context(self) -> dict[str, str]:
        """The caller's trace, to go on with: ``traceparent``, ``tracestate`` and ``baggage``.

        Those of them that stand in the request's `_meta`, as they stand there. It is a carrier
        for OpenTelemetry's ``extract``, and can be sent on as HTTP headers.

        Source: specification, basic/index, "_meta".
        """
        raw = self.meta.raw
        return {name: raw[name] for name in _TRACE if isinstance(raw.get(name), str)}

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan gave: `Server.lifespan`."""
        return self.server.lifespan

    def require(self, *path: str) -> None:
        """Refuse the request unless the client declared a capability.

        ``ctx.require("sampling", "tools")`` asks for that one; ``ctx.meta.declares`` only tells.

        Raises:
            errors.MissingRequiredClientCapability: it did not. That is the answer then.
        """
        if not self.meta.declares(*path):
            required: dict[str, Any] = {}
            for name in reversed(path):
                required = {name: required}
            raise errors.MissingRequiredClientCapability(
                f"the client has to support {'.'.join(path)}", required=required
            )

    # What it says on the way

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the client how far the request has come.

        Nothing is sent if the client did not ask for progress, if the value is not above the
        one reported last, if the client has gone, or once the request has been answered. From a
        handler that runs in a thread, call it through `trio.from_thread.run`.

        Cancelling leaves the report unsent or sent, never half sent.

        Args:
            progress: how much is done, in a unit of your own. It has to grow.
            total: how much there is to do, in the same unit, if that is known.
            message: a few words for a reader.

        Raises:
            ValueError: a number is infinite or not a number.
            TypeError: something is of another type.

        Source: specification, basic/patterns/progress.
        """
        _check_number("progress", progress)
        if total is not None:
            _check_number("total", total)
        if message is not None:
            _check_text("message", message)
        token = self.meta.progress_token
        if token is None or self._done or progress <= self._last:
            await trio.lowlevel.checkpoint()
            return
        self._last = progress
        params: dict[str, Any] = {meta.PROGRESS_TOKEN: token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self._send(jsonrpc.encode_notification(methods.PROGRESS, params))

    async def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the client.

        Nothing is sent unless the client asked for messages of this severity with this very
        request, if the client has gone, or once the request has been answered. It is for whoever
        uses the client: no secrets, no personal data, no internals. The server's own log is the
        `logging` module's. From a handler that runs in a thread, call it through
        `trio.from_thread.run`.

        Logging to the client is deprecated in this revision.

        Cancelling leaves the message unsent or sent, never half sent.

        Args:
            level: how severe it is.
            data: text, or any JSON value.
            logger: which part of the server says it.

        Raises:
            ValueError: there is no such level, or JSON cannot hold the data.
            TypeError: the logger is not named by a string.

        Source: specification, server/utilities/logging.
        """
        if level not in _SEVERITY:
            raise ValueError(f"a log level is one of {', '.join(_SEVERITY)}, got {level!r}")
        if logger is not None:
            _check_text("logger", logger)
        wanted = self.meta.log_level
        if wanted is None or self._done or _SEVERITY[level] < _SEVERITY[wanted]:
            await trio.lowlevel.checkpoint()
            return
        params = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._send(jsonrpc.encode_notification(methods.LOG_MESSAGE, params))

    async def _send(self, frame: bytes) -> None:
        # A task that outlives the handler must not get its message in behind the response.
        with trio.CancelScope() as scope:
            self._sending.add(scope)
            try:
                await self._exchange.send(frame)
            except trio.BrokenResourceError:
                # Whoever asked has gone, which is about to cancel the handler. A task of the
                # application's own that sends as well must not fail because of that.
                await trio.lowlevel.checkpoint()
            finally:
                self._sending.discard(scope)

    def publish(self, event: Event) -> "PublishReport":
        """Publish an event on the server's hub; see `Server.publish`.

        It goes to every subscription that asked for it, on whatever connection.
        """
        return self.server.publish(event)

    # What it asks

    @overload
    async def elicit(
        self, message: str, form: None = None, *, key: str | None = None
    ) -> Answer[None]: ...
    @overload
    async def elicit(self, message: str, form: type[T], *, key: str | None = None) -> Answer[T]: ...
    @overload
    async def elicit(
        self,
        message: str,
        form: Mapping[str, Any] | types.ElicitationSchema,
        *,
        key: str | None = None,
    ) -> Answer[dict[str, Any]]: ...
    @overload
    async def elicit(
        self, message: str, form: object, *, key: str | None = None
    ) -> Answer[Any]: ...
    async def elicit(
        self, message: str, form: Any = None, *, key: str | None = None
    ) -> Answer[Any]:
        """Ask the user to fill in a form, or, without one, to agree.

        `Elicit` has the arguments; the description of this class says what asking means for a
        handler::

            answer = await ctx.elicit("What is your name?", str)
            if answer.action == "accept":
                return f"Hello, {answer.content}!"

        Returns:
            `Accepted` with the content, `Declined`, or `Dismissed`.

        Raises:
            errors.MissingRequiredClientCapability: the client does not show forms.
            errors.InvalidParams: what the client answered does not fit the form.
            TypeError: the type does not fit into a form.
            ValueError: the schema is none of a form.

        Source: specification, client/elicitation.
        """
        return await self._ask_one(Elicit(message, form, key=key))

    async def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Answer[None]:
        """Ask the user to open a web page, for what must not pass through the client.

        `ElicitUrl` has the arguments, and what to take care of. A URL that is made anew in each
        round is a new question each time: `remember` what is random in it.

        Returns:
            `Accepted` if the user agreed to open it, `Declined`, or `Dismissed`.

        Raises:
            errors.MissingRequiredClientCapability: the client opens no pages.
            errors.InvalidParams: what the client answered is no answer.
            ValueError: it is no URL to be opened by a user.

        Source: specification, client/elicitation, "URL Mode Elicitation Requests".
        """
        return await self._ask_one(ElicitUrl(message, url, key=key))

    async def sample(
        self,
        messages: str | Sequence[str | types.SamplingMessage],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        temperature: float | None = None,
        key: str | None = None,
    ) -> types.CreateMessageResult:
        """Ask the client's model to continue a conversation; text is one message of the user.

        `Sample` has the arguments, and takes more of them, for `ask`.

        Raises:
            errors.MissingRequiredClientCapability: the client lends no model.
            errors.InvalidParams: what the client answered is no answer.

        Source: specification, client/sampling.
        """
        return await self._ask_one(
            Sample(
                messages,
                max_tokens=max_tokens,
                system_prompt=system_prompt,
                temperature=temperature,
                key=key,
            )
        )

    async def list_roots(self, *, key: str | None = None) -> list[types.Root]:
        """Ask which directories and files the client means to work with.

        Raises:
            errors.MissingRequiredClientCapability: the client has no roots.
            errors.InvalidParams: what the client answered is no answer.

        Source: specification, client/roots.
        """
        return await self._ask_one(ListRoots(key=key))

    @overload
    async def ask(self, first: Question[A], /) -> tuple[A]: ...
    @overload
    async def ask(self, first: Question[A], second: Question[B], /) -> tuple[A, B]: ...
    @overload
    async def ask(
        self, first: Question[A], second: Question[B], third: Question[C], /
    ) -> tuple[A, B, C]: ...
    @overload
    async def ask(
        self, first: Question[A], second: Question[B], third: Question[C], fourth: Question[D], /
    ) -> tuple[A, B, C, D]: ...
    @overload
    async def ask(self, *questions: Question[Any]) -> tuple[Any, ...]: ...
    async def ask(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Ask several questions at once, in one round.

        ::

            name, roots = await ctx.ask(Elicit("What is your name?", str), ListRoots())

        Those that the client leaves open are asked again by themselves.

        Returns:
            The answers, in the order of the questions.

        Raises:
            errors.MissingRequiredClientCapability: the client cannot answer one of them.
            errors.InvalidParams: what the client answered does not fit its question.
            RuntimeError: the request has been answered already.
        """
        if self._done:
            raise RuntimeError("the request has been answered: there is nobody left to ask")
        answers = tuple(self._inputs.ask(questions))
        await trio.lowlevel.checkpoint()
        return answers

    async def _ask_one(self, question: Question[T]) -> T:
        [answer] = await self.ask(question)
        return answer

    async def remember(self, name: str, make: Callable[..., Any], *args: object) -> Any:
        """A value that is the same in all rounds of this request.

        The first run that comes here makes it; later ones find it::

            price = await ctx.remember("price", fetch_price, article)
            answer = await ctx.elicit(f"Buy it for {price} €?")

        It travels with the client, sealed, so the client cannot see it. It is written down
        nowhere else: what was made in a round whose question was never answered is made again.
        So this is no way to do something exactly once.

        Args:
            name: what it is found by, within the request.
            make: called with `args`: a function or an async function that returns a JSON value.
            args: its arguments.

        Raises:
            codec.EncodeError: JSON cannot hold the value.

        Cancelling cancels `make`.
        """
        return await self._inputs.remember(name, make, args)

    @property
    def input_responses(self) -> Mapping[str, Any]:
        """What the client sent with this round, by key and as it came; empty in the first.

        Keys that nobody asked for can be in it, and nothing in it has been checked: `answer` does.
        """
        return self._inputs.responses

    @property
    def request_state(self) -> Any:
        """The state that this handler returned with `InputRequired` in the round before, or None.

        It comes back unchanged, from the same caller and for the same request, or not at all.
        """
        return self._inputs.state

    def answer(self, key: str, question: Question[T]) -> T | None:
        """The answer to a question that was asked by `InputRequired`, or None if there is none.

        Answers of all rounds are found, though only to the very question::

            NAME = Elicit("What is your name?", str)

            @server.tool
            async def greet(ctx: Context) -> str | InputRequired:
                answer = ctx.answer("name", NAME)
                if answer is None:
                    return InputRequired({"name": NAME})
                return f"Hello, {answer.content or 'stranger'}!"

        Raises:
            errors.InvalidParams: what the client answered does not fit the question.
        """
        found = self._inputs.answer(key, question)
        return found[0] if found else None

    def close(self) -> None:
        """Note that the request is answered. The server calls it; nothing is sent after it."""
        self._done = True
        for scope in self._sending:
            scope.cancel()


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an integer that no float can hold; few peers could read it
        finite = False
    if not finite:
        raise ValueError(f"{name} must be finite and no larger than a float can be")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {type(value).__name__}")
