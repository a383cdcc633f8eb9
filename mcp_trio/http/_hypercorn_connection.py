"""One connection of Hypercorn's Trio worker, hardened.

Hypercorn 0.18 ends the whole server when one connection raises, and waits without end, in a
shielded send, for a client that has stopped reading. Here each connection is isolated, and such
a client is cut. A send costs no wake-up where the kernel takes the bytes at once.
"""

import logging
from contextlib import suppress
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol import ProtocolWrapper
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState
from hypercorn.utils import parse_socket_addr

from mcp_trio.http._connections import (
    GONE,
    LINGER,
    MAX_LINGER,
    MAX_RECEIVE,
    MAX_WAITING,
    Connections,
    forget_frames,
)
from mcp_trio.http._hypercorn_protocol import Http1, Tasks
from mcp_trio.http._outlet import Outlet, socket_of

__all__ = ["HardenedConnection", "Shared"]

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
        self.open = Connections[HardenedConnection]()

    async def handle(self, stream: Any) -> None:
        """Serve one connection to its end."""
        connection = HardenedConnection(self, stream)
        self.open.add(connection)
        try:
            await connection.run()
        finally:
            self.open.discard(connection)


class HardenedConnection(TCPServer):
    """One connection: isolated, cut when its client stops reading, and cheap to write to."""

    protocol: Any  # Http1, or Hypercorn's own wrapper where upgrades are allowed
    _task_group: Any
    stream: Any

    def __init__(self, shared: Shared, stream: Any) -> None:
        super().__init__(shared.app, shared.config, shared.context, shared.state.copy(), stream)
        del self.idle_task  # the reader's deadline does that work, without a task
        self._shared = shared
        self._socket = socket_of(stream)
        self._reader = trio.CancelScope()
        self._wake: trio.CancelScope | None = None
        self._idle = True
        self._ending = False
        self._hold = False
        self._held = b""
        fd = None if self._socket is None else self._socket.fileno()
        self._outlet = Outlet(stream, fd, shared.send_deadline, _no_task, self._on_death)

    async def run(self) -> None:
        """Serve until the connection ends. Whatever goes wrong ends this connection alone."""
        try:
            await self._serve()
        except (Exception, BaseExceptionGroup) as raised:  # noqa: BLE001 (nobody else's trouble)
            rest = _report(raised)
            if rest is not None:
                raise rest from None
        finally:
            grace = 0.0 if self._outlet.dead else LINGER
            self._outlet.close()
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
            with self._reader:
                try:
                    await self._read_data()
                except (trio.BrokenResourceError, trio.ClosedResourceError) as problem:
                    forget_frames(problem)
            self._outlet.abandon()
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
        # Hypercorn's state would not survive a writer that is left half way, so none is.
        if self._hold:
            self._hold, self._held = False, data
            return  # noqa: ASYNC910 (see above)
        if self._held:
            data, self._held = self._held + data, b""
        if self._outlet.dead:
            await trio.lowlevel.cancel_shielded_checkpoint()
        elif data:
            try:
                await self._outlet.write(data)
            except trio.BrokenResourceError:
                await self.protocol.handle(Closed())

    def _on_head(self) -> None:
        # Head and body leave in one piece. At the latest the end of the body takes it along.
        self._hold = True

    def _on_death(self, *, slow: bool) -> None:
        self._reader.cancel()

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
        self._outlet.abandon()
        self._reader.cancel()


def _no_task(*_: object) -> object:
    raise NotImplementedError("nothing is written without waiting here")


def _report(raised: BaseException) -> BaseException | None:
    """Log what is nobody's fault but a bug's or a hostile peer's; return what must go on."""
    group = raised if isinstance(raised, BaseExceptionGroup) else BaseExceptionGroup("", [raised])
    problems, rest = group.split(Exception)
    if problems is not None:
        _, odd = problems.split(GONE)
        if odd is not None:
            logger.warning("a connection failed: %r", odd)
            logger.debug("the connection failed here", exc_info=odd)
    return rest
