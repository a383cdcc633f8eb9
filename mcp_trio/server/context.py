"""What a handler can learn of its request, and say while it serves it."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import trio

from mcp_trio.protocol import jsonrpc, meta, methods
from mcp_trio.subscriptions.events import Event
from mcp_trio.transports.abc import Exchange, Principal

if TYPE_CHECKING:
    from mcp_trio.server.server import Server
    from mcp_trio.subscriptions.statistics import PublishReport

__all__ = ["Context"]


class Context:
    """One request, as its handler sees it.

    A handler gets it by a parameter that is annotated with this class; the parameter is no part
    of the schema. It belongs to the request: once the handler has returned, what it would still
    say about the request is dropped.
    """

    __slots__ = ("_done", "_exchange", "_last", "_sending", "meta", "request_id", "server")

    def __init__(
        self,
        server: "Server",
        request_id: jsonrpc.RequestId,
        meta: meta.RequestMeta,
        exchange: Exchange,
    ) -> None:
        self.server = server
        """The server that serves the request."""
        self.request_id = request_id
        """The id of the request, as the client chose it."""
        self.meta = meta
        """What the request says about itself: revision, client, capabilities, raw `_meta`."""
        self._exchange = exchange
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

        Source: specification, basic/patterns/progress.
        """
        if not math.isfinite(progress) or (total is not None and not math.isfinite(total)):
            raise ValueError(f"progress must be finite: {progress!r} of {total!r}")
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
        frame = jsonrpc.encode_notification(methods.PROGRESS, params)
        # A task that outlives the handler must not get its report in behind the response.
        with trio.CancelScope() as scope:
            self._sending.add(scope)
            try:
                await self._exchange.send(frame)
            except trio.BrokenResourceError:
                # Whoever asked has gone, which is about to cancel the handler. A task of the
                # application's own that reports as well must not fail because of that.
                await trio.lowlevel.checkpoint()
            finally:
                self._sending.discard(scope)

    def publish(self, event: Event) -> "PublishReport":
        """Publish an event on the server's hub; see `Server.publish`.

        It goes to every subscription that asked for it, on whatever connection.
        """
        return self.server.publish(event)

    # Elicitation, sampling, roots and log messages to the client have their place here.

    def close(self) -> None:
        """Note that the request is answered. The server calls it; nothing is sent after it."""
        self._done = True
        for scope in self._sending:
            scope.cancel()
