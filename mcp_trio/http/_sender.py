"""One request of a client, which may have to be sent more than once."""

from typing import Final

from mcp_trio import errors
from mcp_trio.http import _connecting, _outgoing, _target, _wire
from mcp_trio.protocol import methods
from mcp_trio.protocol.credentials import Auth, AuthRequest

__all__ = ["Sender"]

MAX_REDIRECTS: Final = 5

_REPEATABLE: Final = frozenset(
    {
        "completion/complete",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)
"""Requests that change nothing, and may be sent again when nobody can say whether they arrived."""


class Sender:
    """Sends one request, and again for one of three reasons.

    An idle connection was closed just as it was used, and the request only reads: once. The
    server redirects within its origin: five times. It wants other credentials: once.

    Args:
        connecting: how to reach the server.
        target: the server.
        method: of the protocol.
        headers: of the request, but for credentials.
        body: of the request.
        auth: gives the credentials.

    Attributes:
        peer: the server, for messages.
        listening: whether it opens a stream, which gets a connection of its own.
    """

    def __init__(
        self,
        connecting: _connecting.Connecting,
        target: _target.Target,
        method: str,
        headers: list[tuple[str, str]],
        body: bytes,
        auth: Auth | None,
    ) -> None:
        self.peer = str(target)
        self.listening = method == methods.LISTEN
        self._connecting = connecting
        self._target = target
        self._method = method
        self._headers = headers
        self._body = body
        self._auth = auth
        self._credentials: dict[str, str] = {}
        self._has_slot = False
        self._repeated = False
        self._redirects = 0
        self._challenged = False

    async def start(self) -> _wire.HttpConnection:
        """Send it; call `release` after that, however it ends."""
        return await self._connecting.unless_closed(self._start)

    def release(self) -> None:
        """The exchange is over: another may have its turn."""
        if self._has_slot:
            self._has_slot = False
            self._connecting.slots.release()

    def forget(self) -> None:
        """It has been accepted, and is not sent again: let go of what may be large."""
        self._body = b""
        self._headers = []

    def makes_good(self, problem: errors.McpError, connection: _wire.HttpConnection) -> bool:
        """Whether the request is to be sent again after a connection failed."""
        return (
            isinstance(problem, errors.ConnectionLost)
            and self._method in _REPEATABLE
            and connection.reused
            and not connection.heard
            and not self._repeated
        )

    async def send_again(self) -> _wire.HttpConnection:
        """Send it on a fresh connection, which has no such excuse."""
        self._repeated = True
        return await self._connecting.unless_closed(self._send_afresh)

    def has_answer(self, refused: errors.HttpStatusError) -> bool:
        """Whether a refusal may lead to another request."""
        if refused.status in (307, 308):
            return self._redirects < MAX_REDIRECTS and self._redirection(refused) is not None
        return refused.status in (401, 403) and self._auth is not None and not self._challenged

    async def answer(self, refused: errors.HttpStatusError) -> _wire.HttpConnection | None:
        """Send the request as the server would have it; None if that cannot be done."""

        async def send() -> _wire.HttpConnection | None:
            if refused.status in (401, 403):
                self._challenged = True
                if self._auth is None or not await self._authenticate(self._auth, refused):
                    return None  # noqa: ASYNC910 - nothing is sent
            return await self._send()

        target = self._redirection(refused)
        if refused.status in (307, 308) and target is not None:
            self._redirects += 1
            self._target = target
        return await self._connecting.unless_closed(send)

    def _redirection(self, refused: errors.HttpStatusError) -> _target.Target | None:
        location = refused.headers.get("location")
        return _target.resolve(self._target, location) if location else None

    async def _start(self) -> _wire.HttpConnection:
        if not self.listening:
            await self._connecting.take_slot()
            self._has_slot = True
        if self._auth is not None:
            await self._authenticate(self._auth, None)
        return await self._send()

    async def _authenticate(self, auth: Auth, refused: errors.HttpStatusError | None) -> bool:
        """Ask for credentials; whether there are any."""
        url = self._target.origin + self._target.path
        given = await auth(AuthRequest(url, self._method, refused, self._credentials))
        if given is None:
            return False
        try:
            _outgoing.check_headers(given)
        except ValueError as problem:
            raise errors.LocalProtocolError(f"the credentials cannot be sent: {problem}") from None
        self._credentials = dict(given)
        return True

    async def _send(self) -> _wire.HttpConnection:
        return await self._write(reuse=not self.listening)

    async def _send_afresh(self) -> _wire.HttpConnection:
        return await self._write(reuse=False)

    async def _write(self, *, reuse: bool) -> _wire.HttpConnection:
        shown = {name.lower() for name in self._credentials}
        headers = [each for each in self._headers if each[0].lower() not in shown]
        headers += self._credentials.items()
        return await self._connecting.send(self._target.path, headers, self._body, reuse=reuse)
