"""The load: many sockets, one loop, no framework.

It runs in the process of the benchmark, pinned to another core than the server under test, and
costs about 3 µs a delivery, so that what is measured is the server.
"""

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence

import bench_wire

_RESET = struct.pack("ii", 1, 0)


class BenchError(Exception):
    """A server did not do in time what a case needs of it."""


class Listener:
    """One open subscription, seen as bytes."""

    __slots__ = ("acks", "events", "reading", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.acks = bench_wire.Counter(bench_wire.ACKNOWLEDGED)
        self.events = bench_wire.Counter(bench_wire.UPDATED)
        self.reading = True


def connect(port: int) -> socket.socket:
    """A connection to the server under test."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Caller:
    """One keep-alive connection for plain requests, one at a time; renewed once it is closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sock = connect(port)
        self._ids = 0

    def send(self, tool: str, **arguments: object) -> None:
        """Ask, and do not wait for the answer."""
        if select.select([self._sock], [], [], 0)[0]:
            # Nothing was asked, so this is the end: servers close connections that were idle.
            self._renew()
        self._ids += 1
        self._sock.sendall(bench_wire.call(tool, dict(arguments), self._ids, self._port))

    def receive(self) -> bytes:
        """The whole HTTP response to the oldest unanswered request."""
        data = bytearray()
        while (end := bench_wire.response_end(data)) is None:
            more = self._sock.recv(65536)
            if not more:
                raise BenchError(f"no answer, the connection was closed: {bytes(data[:200])!r}")
            data += more
        if b" 200 " not in data[:16]:
            raise BenchError(f"refused: {bytes(data[:300])!r}")
        if bench_wire.is_last(data):
            self._renew()
        return bytes(data[:end])

    def call(self, tool: str, **arguments: object) -> bytes:
        """Ask, and wait for the answer."""
        self.send(tool, **arguments)
        return self.receive()

    def _renew(self) -> None:
        self._sock.close()
        self._sock = connect(self._port)

    def close(self) -> None:
        """Leave."""
        self._sock.close()


class Swarm:
    """Many listeners on one port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._poll = select.epoll()
        self._by_fd: dict[int, Listener] = {}
        self.listeners: list[Listener] = []
        self.delivered = 0
        self.acked = 0
        self.lost = 0

    def open(
        self,
        count: int,
        uris: Callable[[int], Sequence[str]],
        *,
        at_once: int = 32,
        receive_buffer: int | None = None,
        wait: float = 120.0,
    ) -> list[Listener]:
        """Open this many subscriptions and wait for each acknowledgement."""
        opened: list[Listener] = []
        deadline = time.perf_counter() + wait
        first = self.acked
        while self.acked < first + count:
            while len(opened) < count and len(opened) - (self.acked - first) < at_once:
                opened.append(self._open_one(list(uris(len(opened))), receive_buffer))
            self._pump(deadline, "acknowledgements")
            self.raise_if_lost()
        return opened

    def _open_one(self, uris: list[str], receive_buffer: int | None) -> Listener:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect(("127.0.0.1", self._port))  # after the size is set, to take effect
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(bench_wire.listen(uris, len(self.listeners) + 1, self._port))
        sock.setblocking(False)
        listener = Listener(sock)
        self.listeners.append(listener)
        self._by_fd[sock.fileno()] = listener
        self._poll.register(sock.fileno(), select.EPOLLIN)
        return listener

    def _pump(self, deadline: float, what: str) -> None:
        """Read once whatever is there, waiting for it if need be."""
        remaining = deadline - time.perf_counter()
        ready = self._poll.poll(remaining) if remaining > 0 else []
        if not ready:
            raise BenchError(f"waited in vain for {what}: {self.acked=} {self.delivered=}")
        for fd, _ in ready:
            self._read(self._by_fd[fd])

    def _read(self, listener: Listener) -> None:
        try:
            data = listener.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lost += 1
            self._forget(listener)
            return
        if not listener.acks.total:
            self.acked += listener.acks.feed(data)
            if b"HTTP/1.1 2" not in data[:12] and b"HTTP/1.1 " in data[:12]:
                raise BenchError(f"no stream: {data[:300]!r}")
        self.delivered += listener.events.feed(data)

    def wait_for(self, delivered: int, wait: float = 60.0) -> None:
        """Read until this many events have arrived in all."""
        deadline = time.perf_counter() + wait
        while self.delivered < delivered:
            self._pump(deadline, f"{delivered} events")
            self.raise_if_lost()

    def drain(self, quiet: float) -> None:
        """Read until nothing has arrived for so many seconds."""
        while ready := self._poll.poll(quiet):
            for fd, _ in ready:
                self._read(self._by_fd[fd])

    def raise_if_lost(self) -> None:
        """Complain where the server has closed streams."""
        if self.lost:
            raise BenchError(f"the server closed {self.lost} streams")

    def stop_reading(self, listener: Listener) -> None:
        """Leave what comes for this one in the kernel."""
        listener.reading = False
        self._poll.unregister(listener.sock.fileno())

    def read_again(self, listener: Listener) -> None:
        """Take up reading where `stop_reading` left it."""
        listener.reading = True
        self._poll.register(listener.sock.fileno(), select.EPOLLIN)

    def _forget(self, listener: Listener) -> None:
        fd = listener.sock.fileno()
        if listener.reading:
            self._poll.unregister(fd)
        del self._by_fd[fd]
        listener.sock.close()

    def close_one(self, listener: Listener, *, abruptly: bool = False) -> None:
        """Leave one subscription, by a FIN or by an RST."""
        if abruptly:
            listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._forget(listener)

    def close(self) -> None:
        """Leave all subscriptions."""
        for listener in list(self._by_fd.values()):
            self.close_one(listener, abruptly=True)
        self._poll.close()


def closed_loop(port: int, connections: int, calls: int, wait: float = 60.0) -> float:
    """Have each connection call a tool as soon as it has been answered; the seconds it took."""
    poll = select.epoll()
    socks: dict[int, tuple[socket.socket, bytearray]] = {}
    request = bench_wire.call("echo", {"text": "hello"}, 1, port)

    def begin() -> socket.socket:
        sock = connect(port)
        socks[sock.fileno()] = sock, bytearray()
        poll.register(sock.fileno(), select.EPOLLIN)
        return sock

    for _ in range(connections):
        begin()
    begun = time.perf_counter()
    asked = answered = 0
    for sock, _ in socks.values():
        sock.sendall(request)
        asked += 1
    while answered < calls:
        if time.perf_counter() > begun + wait:
            raise BenchError(f"{answered} of {calls} calls answered in {wait} s")
        for fd, _ in poll.poll(5):
            sock, data = socks[fd]
            more = sock.recv(65536)
            if not more:
                raise BenchError("a keep-alive connection was closed")
            data += more
            if (end := bench_wire.response_end(data)) is None:
                continue
            if b" 200 " not in data[:16] or b"hello" not in data[:end]:
                raise BenchError(f"not the answer: {bytes(data[:300])!r}")
            if bench_wire.is_last(data):
                poll.unregister(fd)
                del socks[fd]
                sock.close()
                sock = begin()
            else:
                del data[:end]
            answered += 1
            if asked < calls:
                sock.sendall(request)
                asked += 1
    took = time.perf_counter() - begun
    for sock, _ in socks.values():
        sock.close()
    poll.close()
    return took
