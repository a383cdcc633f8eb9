"""One connection of Hypercorn's Trio worker, hardened.

Hypercorn 0.18 ends the whole server when one connection raises, and waits without end, in a
shielded send, for a client that has stopped reading. Here each connection is isolated, and such
a client is cut. A send costs no wake-up where the kernel takes the bytes at once.
"""

import logging
import os
from contextlib import suppress
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import ProtocolWrapper
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import parse_socket_addr

from mcp_trio.http._hypercorn_protocol import Http1, Tasks

__all__ = ["HardenedConnection", "Shared"]

MAX_RECEIVE: Final = 64 * 1024
MAX_WAITING: Final = 256 * 1024
"""How many bytes a client may send behind a request that is still being answered."""
LINGER: Final = 1.0
"""Seconds for which what a refused client still sends is read, so that it sees the refusal."""
MAX_LINGER: Final = 1024 * 1024
SLICE: Final = 64 * 1024
"""How much a slow client has to take within the send deadline."""
SENDS_PER_YIELD: Final = 8

_GONE: Final = (
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)
"""How a connection ends whose client has left, or never finished its handshake."""

logger = logging.getLogger("mcp_trio.http.hypercorn")


class Shared:
    """What the connections of one server have in common."""

    def __init__(
        self, app: AppWrapper, config: Config, *, send_deadline: float, upgrades: bool
    ) -> None:
        self.app = app
        self.config = config
        self.context = WorkerContext(None)
        self.state: dict[str, Any] = {}
        self.send_deadline = send_deadline
        self.upgrades = upgrades
        self.connections: set[HardenedConnection] = set()
        self._empty: trio.Event | None = None

    async def handle(self, stream: Any) -> None:
        """Serve one connection to its end."""
        connection = HardenedConnection(self, stream)
        self.connections.add(connection)
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            if self._empty is not None and not self.connections:
                self._empty.set()

    async def wait_empty(self) -> None:
        """Wait until no connection is left."""
        await trio.lowlevel.checkpoint()
        if self.connections:
            self._empty = trio.Event()
            await self._empty.wait()

    def close_idle(self) -> None:
        """Close the connections that carry no request."""
        for connection in self.connections:
            connection.close_if_idle()

    def cut(self) -> None:
        """Close every connection, whatever it is doing."""
        for connection in self.connections:
            connection.cut()


class HardenedConnection(TCPServer):
    """One connection: isolated, cut when its client stops reading, and cheap to write to."""

    protocol: Any  # Http1, or Hypercorn's own wrapper where upgrades are allowed
    _task_group: Any
    stream: Any

    def __init__(self, shared: Shared, stream: Any) -> None:
        super().__init__(shared.app, shared.config, shared.context, shared.state.copy(), stream)
        del self.idle_task  # the reader's deadline does that work, without a task
        self._shared = shared
        self._socket: trio.socket.SocketType | None = None
        self._reader = trio.CancelScope()
        self._wake: trio.CancelScope | None = None
        self._idle = True
        self._ending = False
        self._dead = False
        self._hold = False
        self._held = b""
        self._sends = 0
        self._slow: set[trio.CancelScope] = set()

    async def run(self) -> None:
        """Serve until the connection ends. Whatever goes wrong ends this connection alone."""
        try:
            await self._serve()
        except (Exception, BaseExceptionGroup) as raised:  # noqa: BLE001 (nobody else's trouble)
            rest = _report(raised)
            if rest is not None:
                raise rest from None
        finally:
            grace = 0.0 if self._dead else LINGER
            self._dead = True
            # The protocol and the nursery's tasks refer back to here. Left at that, a connection
            # would wait for a garbage collection that can be long in coming.
            self.protocol = self._task_group = None
            with trio.CancelScope(shield=True, deadline=trio.current_time() + grace):
                await self.stream.aclose()

    async def _serve(self) -> None:
        transport, alpn, secure = self.stream, "http/1.1", False
        if isinstance(self.stream, trio.SSLStream):
            with trio.fail_after(self.config.ssl_handshake_timeout):
                await self.stream.do_handshake()
            transport, secure = self.stream.transport_stream, True
            alpn = self.stream.selected_alpn_protocol() or alpn
        elif os.name == "posix":
            self._socket = self.stream.socket
        socket = transport.socket
        async with trio.open_nursery() as nursery:
            self._task_group = Tasks(nursery)
            arguments = (
                self.app,
                self.config,
                self.context,
                self._task_group,
                ConnectionState(self.state),
                secure,
                parse_socket_addr(socket.family, socket.getpeername()),
                parse_socket_addr(socket.family, socket.getsockname()),
                self.protocol_send,
            )
            if self._shared.upgrades:
                self.protocol = ProtocolWrapper(*arguments, alpn)
            else:
                self.protocol = Http1(self._on_recycled, self._on_head, *arguments)
            await self.protocol.initiate()
            self._set_idle(idle=True)
            with self._reader, suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._read_data()
            self._abandon_sends()
            await self.protocol.handle(Closed())

    # Reading

    async def _read_data(self) -> None:
        leftover = MAX_LINGER
        while True:
            data = await self._receive()
            if data is None:
                await self.protocol.resume()
            elif not data:
                return
            elif self._ending:
                leftover -= len(data)
                if leftover < 0:
                    return
            else:
                await self.protocol.handle(RawData(data))
                data = b""  # a stream must not keep its request
                if self._waiting() > MAX_WAITING:
                    return

    async def _receive(self) -> bytes | None:
        """The next bytes, empty at their end; None when those that wait can be handled."""
        if not self._waiting():
            return bytes(await self.stream.receive_some(MAX_RECEIVE))
        data: bytes | None = None
        with trio.CancelScope() as self._wake:
            data = bytes(await self.stream.receive_some(MAX_RECEIVE))
        self._wake = None
        return data

    def _waiting(self) -> int:
        return self.protocol.waiting if isinstance(self.protocol, Http1) else 0

    def _all_read(self) -> bool:
        return isinstance(self.protocol, Http1) and self.protocol.all_read

    def _on_recycled(self) -> None:
        if self._wake is not None:
            self._wake.cancel()

    def _set_idle(self, *, idle: bool) -> None:
        self._idle = idle
        if not self._ending:
            timeout = self.config.keep_alive_timeout if idle else float("inf")
            self._reader.deadline = trio.current_time() + timeout

    # Writing

    async def protocol_send(self, event: Event) -> None:  # noqa: ASYNC910 (see _write)
        """Do what the protocol asks for."""
        if type(event) is RawData:
            await self._write(event.data)
        elif isinstance(event, Updated):
            self._set_idle(idle=event.idle)
        elif isinstance(event, Closed):
            self._end()
            await self.protocol.handle(Closed())

    async def _write(self, data: bytes) -> None:  # noqa: ASYNC910 (the point of it)
        # The kernel is asked directly. It mostly takes the bytes, and then nobody is woken up;
        # a writer that never waits elsewhere yields now and then, so that it starves nobody.
        # Yielding is shielded because Hypercorn's state would not survive being left half way.
        if self._hold:
            self._hold, self._held = False, data
            return  # noqa: ASYNC910 (see above)
        if self._held:
            data, self._held = self._held + data, b""
        if data and not self._dead:
            sent = 0
            if self._socket is not None and not self._slow:
                try:
                    sent = os.write(self._socket.fileno(), data)
                except BlockingIOError:
                    pass
                except OSError:
                    await self._die()
                    return  # noqa: ASYNC910 (the connection has ended)
            if sent < len(data):
                await self._write_rest(memoryview(data)[sent:])
        self._sends += 1
        if self._dead or not self._sends % SENDS_PER_YIELD:
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _on_head(self) -> None:
        # Head and body leave in one piece. At the latest the end of the body takes it along.
        self._hold = True

    async def _write_rest(self, rest: memoryview) -> None:  # noqa: ASYNC910 (the lock waits)
        # Shielded, because half a chunk would spoil the stream; with a deadline, because a
        # client that has stopped reading must not hold the server. `cut` ends it at any time.
        with trio.CancelScope(shield=True) as scope:  # noqa: ASYNC912 (there is one in it)
            self._slow.add(scope)
            try:
                async with self.send_lock:
                    while rest and not self._dead:
                        scope.deadline = trio.current_time() + self._shared.send_deadline
                        await self.stream.send_all(rest[:SLICE])
                        rest = rest[SLICE:]
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                rest = rest[:0]
                broken = True
            else:
                broken = False
            finally:
                self._slow.discard(scope)
        if scope.cancelled_caught or broken:
            await self._die()

    async def _die(self) -> None:  # noqa: ASYNC910 (nothing to wait for)
        self._dead = True
        self._abandon_sends()
        self._reader.cancel()
        await self.protocol.handle(Closed())

    def _abandon_sends(self) -> None:
        for scope in self._slow:
            scope.cancel()

    # Ending

    def _end(self) -> None:
        """Say that nothing more will be written, and wait a little for the client to agree."""
        if not self._ending:
            self._ending = True
            if self._socket is None or self._all_read():
                self._reader.cancel()
            else:
                # Closing with bytes unread resets the connection, and the client would lose
                # what it has been told last.
                self._reader.deadline = trio.current_time() + LINGER
                with suppress(OSError):
                    self._socket.shutdown(trio.socket.SHUT_WR)

    def close_if_idle(self) -> None:
        """Close the connection if it carries no request."""
        if self._idle:
            self._reader.cancel()

    def cut(self) -> None:
        """Close the connection, whatever it is doing; an application sees a disconnect."""
        self._dead = True
        self._abandon_sends()
        self._reader.cancel()


def _report(raised: BaseException) -> BaseException | None:
    """Log what is nobody's fault but a bug's or a hostile peer's; return what must go on."""
    group = raised if isinstance(raised, BaseExceptionGroup) else BaseExceptionGroup("", [raised])
    problems, rest = group.split(Exception)
    if problems is not None:
        _, odd = problems.split(_GONE)
        if odd is not None:
            logger.warning("a connection failed: %r", odd)
            logger.debug("the connection failed here", exc_info=odd)
    return rest
