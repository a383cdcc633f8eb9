"""One HTTP/1.1 connection of a client: h11 between a Trio stream and whoever reads answers."""

from typing import Final

import h11
import trio

from mcp_trio import errors

__all__ = ["HttpConnection"]

_CHUNK: Final = 64 * 1024
_MAX_HEAD: Final = 64 * 1024

Event = h11.Response | h11.InformationalResponse | h11.Data | h11.EndOfMessage


class HttpConnection:
    """One request after the other over one stream.

    Reading is split in two, so that cancelling can lose nothing: `fill` waits for bytes and
    hands them over at once, `poll` takes out what they have completed and never waits.
    """

    def __init__(self, stream: trio.abc.Stream, socket: trio.socket.SocketType, peer: str) -> None:
        self._stream = stream
        self._socket = socket
        self._peer = peer
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
        self._at_eof = False
        self._break: BaseException | None = None
        self.reused: bool = False
        """Whether an earlier request has been answered on it."""
        self.heard: bool = False
        """Whether anything has arrived since the last request was sent."""
        self.idle_since: float = 0.0
        self.closed: bool = False

    async def send(self, headers: list[tuple[str, str]], path: str, body: bytes) -> None:
        """Write a POST request in one piece.

        Cancelling may leave half of it written; close the connection then.

        Raises:
            trio.BrokenResourceError: not all of it could be handed on. An answer to what did
                arrive may be there to be read.
        """
        self.heard = False
        # h11 takes only ASCII from a string; what a header may hold beyond that is Latin-1.
        encoded = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]
        request = h11.Request(method="POST", target=path, headers=encoded)
        data = bytearray(self._h11.send(request) or b"")
        data += self._h11.send(h11.Data(data=body)) or b""
        data += self._h11.send(h11.EndOfMessage()) or b""
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError as problem:
            self._break = problem.__cause__ or problem
            raise

    async def fill(self) -> None:
        """Wait for bytes, or for the end of them.

        Raises:
            errors.ConnectionLost: the connection broke.
            trio.ClosedResourceError: `close` was called here.
        """
        try:
            data = await self._stream.receive_some(_CHUNK)
        except trio.BrokenResourceError as problem:
            # TLS that broke while we wrote knows nothing better to say when it is read.
            cause = problem.__cause__ or self._break or problem
            raise errors.ConnectionLost(
                f"the connection to {self._peer} broke before the response: "
                f"{str(cause) or type(cause).__name__}"
            ) from cause
        if data:
            self.heard = True
        else:
            self._at_eof = True
        self._h11.receive_data(bytes(data))

    def poll(self) -> Event | None:
        """The next part of the answer, or None: more bytes are needed first.

        Raises:
            errors.ConnectionLost: the server closed the connection within, or before, it.
            errors.RemoteProtocolError: this is not HTTP.
        """
        try:
            event = self._h11.next_event()
        except h11.RemoteProtocolError as problem:
            if self._at_eof:
                raise errors.ConnectionLost(
                    f"{self._peer} closed the connection before the response was complete"
                ) from problem
            raise errors.RemoteProtocolError(
                f"{self._peer} does not answer in HTTP: {problem}"
            ) from problem
        if isinstance(event, Event):
            return event
        # Nothing else comes up while an answer is awaited but the wish for more bytes.
        return None

    def recycle(self, now: float) -> bool:
        """Make it ready for another request; False if it cannot carry one."""
        if (
            self.closed
            or self._break is not None
            or self._at_eof
            or self._h11.our_state is not h11.DONE
        ):
            return False
        if self._h11.their_state is not h11.DONE or self._h11.trailing_data[0]:
            return False
        self._h11.start_next_cycle()
        self.reused = True
        self.idle_since = now
        return True

    def is_stale(self) -> bool:
        """Whether an idle connection is of no use: closed by the peer, or it said something."""
        return self.closed or self._socket.is_readable()

    def close(self) -> None:
        """Close the socket, at once. To the server this is the cancellation.

        TLS is not told good-bye: HTTPS does not need it, and it could block.
        """
        self.closed = True
        self._socket.close()
