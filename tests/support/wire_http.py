"""A `WireClient` over HTTP: a server in this process, and a socket for each request."""

import contextlib
import json
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import contract_server
import trio
from byte_reader import ByteReader
from hypercorn.config import Config
from wire_kit import PATIENCE, Ended, Frame, WireClient, WireExchange

from mcp_trio import serve_http, serve_hypercorn
from mcp_trio.server import Server

VERSION = "2026-07-28"
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def headers_of(message: Frame, **changes: str | None) -> list[tuple[str, str]]:
    """The headers a message needs, with changes: `_` stands for `-`, and None leaves one out."""
    params = message.get("params", {})
    headers: dict[str, str | None] = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": message["method"],
    }
    if message["method"] in _NAMES:
        headers["mcp-name"] = params.get(_NAMES[message["method"]], "")
    headers.update({name.replace("_", "-"): value for name, value in changes.items()})
    return [(name, value) for name, value in headers.items() if value is not None]


def post(
    body: bytes,
    headers: list[tuple[str, str]],
    *,
    method: str = "POST",
    target: str = "/mcp",
    length: int | None = None,
) -> bytes:
    """A whole HTTP request; `length` is what it says of its body, if that is not true."""
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers]
    if not any(name == "transfer-encoding" for name, _ in headers):
        lines.append(f"content-length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class HttpExchange(WireExchange):
    """One POST on a connection of its own, which is read only when `next` is called.

    Attributes:
        status: the status of the answer, once `head` or `next` has read it.
        headers: its headers, with names in lower case.
        comments: how many comments have been passed over.
    """

    def __init__(self, message: Frame, stream: trio.SocketStream) -> None:
        super().__init__(message)
        self.stream = stream
        self.status = 0
        self.headers: dict[str, str] = {}
        self.comments = 0
        self._reader = ByteReader(stream)
        self._events = b""
        self._frames: deque[Frame] = deque()
        self._complete = False

    async def head(self) -> int:
        """Read the head of the answer, and return its status."""
        if not self.status:
            with trio.fail_after(PATIENCE):
                first, headers = await self._reader.read_head()
            self.status = int(first.split()[1])
            self.headers = dict(headers)
            assert len(headers) == len(self.headers), f"twice: {headers}"
            self._complete = self.headers.get("content-length") == "0"
        return self.status

    async def receive(self) -> Frame:
        await self.head()
        while not self._frames:
            if self._complete:
                raise Ended
            if self.headers["content-type"].startswith("application/json"):
                body = await self._reader.read_exactly(int(self.headers["content-length"]))
                self._complete = True
                self._take(body)
            else:
                assert self.headers["content-type"] == "text/event-stream"
                await self._read_events()
        return self._frames.popleft()

    async def comment(self) -> None:
        """Wait for a comment on a stream that is otherwise quiet."""
        await self.head()
        before = self.comments
        with trio.fail_after(PATIENCE):
            while self.comments == before:
                await self._read_events()
        assert not self._frames

    async def cancel(self) -> None:
        """Close the connection: in this transport that is how a request is cancelled."""
        await self.stream.aclose()

    def reset(self) -> None:
        """Close it as if the program had crashed, without a goodbye."""
        linger = struct.pack("ii", 1, 0)
        self.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, linger)
        self.stream.socket.close()

    async def over(self) -> None:
        await self.head()
        if not self._complete:
            with trio.fail_after(PATIENCE):
                assert await self._reader.read_chunk() == b"", "more after the response"
            self._complete = True
        assert not self._reader.buffer
        assert not self._frames
        await self.stream.aclose()

    async def closed_by_server(self) -> None:
        """Read to the end of the connection, which must come at once."""
        assert not await self.stream.receive_some()

    def _take(self, data: bytes) -> None:
        frame = json.loads(data)
        assert isinstance(frame, dict)
        assert frame["jsonrpc"] == "2.0"
        assert not ("method" in frame and "id" in frame), f"a request by the server: {frame}"
        self._frames.append(frame)

    async def _read_events(self) -> None:
        chunk = await self._reader.read_chunk()
        if not chunk:
            assert not self._events, "half an event"
            self._complete = True
            return
        *events, self._events = (self._events + chunk).split(b"\n\n")
        for event in events:
            if event.startswith(b":"):
                self.comments += 1
            else:
                assert event.startswith(b"data: "), event
                assert b"\n" not in event
                self._take(event.removeprefix(b"data: "))


class HttpWire(WireClient):
    """One client of a server behind an address."""

    transport = "http"

    def __init__(
        self, port: int, server: Server | None = None, *, receive_buffer: int | None = None
    ) -> None:
        super().__init__()
        self.port = port
        self.server = server
        self.receive_buffer = receive_buffer
        self.exchanges: list[HttpExchange] = []

    async def start(self, message: Frame, **headers: str | None) -> HttpExchange:
        return await self.post(json.dumps(message).encode(), message, **headers)

    async def post(self, body: bytes, message: Frame, **headers: str | None) -> HttpExchange:
        """Send bytes with the headers of a message, and changes to these."""
        exchange = await self.connect(message)
        with trio.fail_after(PATIENCE):
            await exchange.stream.send_all(post(body, headers_of(message, **headers)))
        return exchange

    async def connect(self, message: Frame | None = None) -> HttpExchange:
        """Open a connection and send nothing."""
        sock = trio.socket.socket()
        if self.receive_buffer is not None:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, self.receive_buffer)
        exchange = HttpExchange({} if message is None else message, trio.SocketStream(sock))
        self.exchanges.append(exchange)
        with trio.fail_after(PATIENCE):
            await sock.connect(("127.0.0.1", self.port))
        return exchange

    @asynccontextmanager
    async def another(self) -> AsyncIterator["HttpWire"]:
        client = HttpWire(self.port, self.server, receive_buffer=self.receive_buffer)
        try:
            yield client
        finally:
            client.close()

    def close(self) -> None:
        """Close every connection."""
        for exchange in self.exchanges:
            exchange.stream.socket.close()


@asynccontextmanager
async def open_http(
    kind: str = "everything",
    *,
    config: dict[str, Any] | None = None,
    receive_buffer: int | None = None,
    native: bool = False,
    **options: Any,
) -> AsyncIterator[HttpWire]:
    """A server in this process, behind an address of its own.

    Args:
        kind: which server.
        config: settings of Hypercorn's configuration.
        receive_buffer: how many bytes the system may hold for a client that does not read.
        native: serve without Hypercorn; then of its settings only `keep_alive_timeout` counts.
        options: of `serve_hypercorn` or `serve_http`.
    """
    server = contract_server.make(kind)
    serve: Callable[..., Any]
    if native:
        if config is not None:
            options["idle_timeout"] = options["head_timeout"] = config["keep_alive_timeout"]
        serve = partial(serve_http, server, port=0, **options)
    else:
        settings = Config()
        settings.bind = ["127.0.0.1:0"]
        for name, value in (config or {}).items():
            setattr(settings, name, value)
        serve = partial(serve_hypercorn, server, settings, **options)
    stop = trio.Event()
    serve = partial(serve, shutdown_trigger=stop.wait)
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(serve)
        client = HttpWire(int(url.rpartition(":")[2]), server, receive_buffer=receive_buffer)
        with contextlib.closing(client):
            yield client
        stop.set()
