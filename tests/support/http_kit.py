"""What the tests of the HTTP server side share: a handler to serve, and a client made of bytes."""

import gc
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import attrs
import trio
from byte_reader import ByteReader
from hypercorn.config import Config
from request_meta import META, VERSION

from mcp_trio import codec, errors
from mcp_trio.http._connection import Connection
from mcp_trio.http._hypercorn_connection import HardenedConnection
from mcp_trio.http.exchange import HttpExchange
from mcp_trio.http.hypercorn import serve_hypercorn
from mcp_trio.http.listener import serve_http
from mcp_trio.protocol import jsonrpc
from mcp_trio.transports.abc import Exchange

host = "hypercorn"
"""What `running` runs: "hypercorn" or "native". Tests of both let a fixture set it."""

LISTEN = "subscriptions/listen"
BOTH = "application/json, text/event-stream"


def note(method: str, **params: Any) -> bytes:
    """A notification, encoded."""
    return jsonrpc.encode_notification(method, params)


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    """Wait until something has become true."""
    with trio.fail_after(seconds):
        await trio.lowlevel.checkpoint()
        while not condition():
            await trio.sleep(0.002)


class FakeHandler:
    """Serves a few methods in ways that a test can see and steer.

    Attributes:
        streams: the open subscriptions; what is sent to one is written to its client.
        cancelled: how many requests have been cancelled.
        notified: the notifications that came.
        reply: what a `tools/call` of "reply" returns.
    """

    supported_versions: tuple[str, ...] = (VERSION,)

    def __init__(self) -> None:
        self.streams: list[trio.MemorySendChannel[bytes]] = []
        self.exchanges: list[Exchange] = []
        self.requests: list[jsonrpc.Request] = []
        self.cancelled = 0
        self.draining = False
        self.graceful = True
        self.notified: list[jsonrpc.Notification] = []
        self.reply: Callable[[jsonrpc.RequestId], jsonrpc.Reply] | None = None

    def mirrored(self, request: jsonrpc.Request) -> dict[str, object]:
        return {}

    def knows(self, method: str) -> bool:
        return method in {LISTEN, "tools/call", "tools/list", "resources/read"}

    async def handle(self, request: jsonrpc.Request, exchange: Exchange) -> jsonrpc.Reply:
        params = request.take_params()
        try:
            if request.method == LISTEN:
                del params
                exchange.release()
                return await self._listen(request.id, exchange)
            return await self._call(request.id, params, exchange)
        except trio.Cancelled:
            self.cancelled += 1
            raise

    async def _listen(self, request_id: jsonrpc.RequestId, exchange: Exchange) -> jsonrpc.Reply:
        if self.draining:
            return jsonrpc.error_reply(request_id, errors.ServerBusy("full", retry_after=2.5))
        send, receive = trio.open_memory_channel[bytes](1000)
        if self.graceful:
            exchange.end_gracefully = lambda reason, **_: send.close()
        with send, receive:
            self.streams.append(send)
            self.exchanges.append(exchange)
            try:
                await exchange.send(note("notifications/subscriptions/acknowledged"))
                async for frame in receive:
                    await exchange.send(frame)
            finally:
                self.streams.remove(send)
                self.exchanges.remove(exchange)
        return jsonrpc.result_reply(request_id, {"resultType": "complete"})

    async def _call(
        self, request_id: jsonrpc.RequestId, params: dict[str, Any], exchange: Exchange
    ) -> jsonrpc.Reply:
        name, arguments = params.get("name"), params.get("arguments", {})
        if name == "boom":
            raise RuntimeError("boom")
        if name == "slow":
            await trio.sleep(arguments["seconds"])
        if name == "progress":
            for number in range(arguments["count"]):
                await exchange.send(note("notifications/progress", progress=number))
        if name == "reply":
            assert self.reply is not None
            return self.reply(request_id)
        text = "x" * arguments.get("bytes", 1)
        return jsonrpc.result_reply(request_id, {"resultType": "complete", "text": text})

    def notify(self, notification: jsonrpc.Notification) -> None:
        self.notified.append(notification)

    def publish(self, frame: bytes = b"") -> None:
        """Write a frame to every subscription."""
        for stream in self.streams:
            stream.send_nowait(frame or note("notifications/tools/list_changed"))

    async def opened(self, count: int) -> None:
        """Wait until so many subscriptions are open."""
        await until(lambda: len(self.streams) == count)


def message(method: str, request_id: Any = 1, **params: Any) -> dict[str, Any]:
    """A request with its `_meta`."""
    params = {"_meta": META, **params}
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def headers_for(body: dict[str, Any], **changes: str | None) -> list[tuple[bytes, bytes]]:
    """The headers of a request, with changes; None leaves one out, `_` stands for `-`."""
    headers: dict[str, str | None] = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": BOTH,
        "mcp-protocol-version": VERSION,
        "mcp-method": body["method"],
    }
    params = body.get("params", {})
    if body["method"] in {"tools/call", "resources/read"} and isinstance(params, dict):
        headers["mcp-name"] = params.get("name", params.get("uri", ""))
    headers.update({name.replace("_", "-"): value for name, value in changes.items()})
    return [
        (name.encode(), value.encode("latin-1"))
        for name, value in headers.items()
        if value is not None
    ]


def post(method: str, request_id: Any = 1, *, padding: int = 0, **params: Any) -> bytes:
    """A whole HTTP request."""
    body = message(method, request_id, **params)
    if padding:
        body["params"]["padding"] = "x" * padding
    data = json.dumps(body).encode()
    head = b"".join(b"%s: %s\r\n" % header for header in headers_for(body))
    return b"POST /mcp HTTP/1.1\r\n%scontent-length: %d\r\n\r\n%s" % (head, len(data), data)


@attrs.define
class HttpResponse:
    """What a `Peer` has read of one response."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    def json(self) -> Any:
        return codec.decode_json(self.body)


class Peer(ByteReader):
    """The client's end of a connection, at the level of bytes."""

    async def head(self) -> HttpResponse:
        """Read the head of a response."""
        first, headers = await self.read_head()
        return HttpResponse(int(first.split()[1]), dict(headers))

    async def response(self) -> HttpResponse:
        """Read a whole response."""
        response = await self.head()
        if response.headers.get("transfer-encoding") == "chunked":
            while chunk := await self.read_chunk():
                response.body += chunk
        else:
            response.body = await self.read_exactly(int(response.headers["content-length"]))
        return response

    async def event(self) -> Any:
        """Read one event of a stream: its message, or None for a comment."""
        chunk = await self.read_chunk()
        if chunk.startswith(b":"):
            return None
        assert chunk.startswith(b"data: "), chunk
        assert chunk.endswith(b"\n\n"), chunk
        return codec.decode_json(chunk[6:-2])

    async def listen(self, request_id: Any = 1) -> None:
        """Open a subscription on this connection."""
        await self.stream.send_all(post(LISTEN, request_id, notifications={}))
        response = await self.head()
        assert response.status == 200, response
        acknowledgement = await self.event()
        assert acknowledgement["method"] == "notifications/subscriptions/acknowledged"

    async def request(self, data: bytes) -> HttpResponse:
        """Send a request and read its response."""
        await self.stream.send_all(data)
        return await self.response()

    async def eof(self) -> bytes:
        """Read to the end of the connection."""
        try:
            while True:
                await self.more()
        except EOFError:
            return self.buffer


@asynccontextmanager
async def connect(port: int, receive_buffer: int | None = None) -> AsyncIterator[Peer]:
    """Open a connection to a port of this machine."""
    sock = trio.socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
    with sock:
        await sock.connect(("127.0.0.1", port))
        yield Peer(trio.SocketStream(sock))


@attrs.define
class Running:
    """A server that runs in the test."""

    handler: FakeHandler
    port: int
    urls: list[str]
    stop: trio.Event
    nursery: trio.Nursery

    @asynccontextmanager
    async def connect(self, receive_buffer: int | None = None) -> AsyncIterator[Peer]:
        """Open a connection."""
        async with connect(self.port, receive_buffer) as peer:
            yield peer


def serving(config: Config | None, **options: Any) -> Callable[..., Any]:
    """What serves a handler at a free port of the loopback address, on the host of the moment.

    The native listener is told what the configuration of Hypercorn says.
    """
    if host == "hypercorn":
        if config is None:
            config = Config()
        config.bind = ["127.0.0.1:0"]
        return partial(serve_hypercorn, config=config, **options)
    if config is not None:
        options["ssl_context"] = config.create_ssl_context()
        options["idle_timeout"] = options["head_timeout"] = config.keep_alive_timeout
        if options["ssl_context"] is not None:
            options["head_timeout"] = config.ssl_handshake_timeout
    return partial(serve_http, port=0, **options)


@asynccontextmanager
async def running(
    handler: FakeHandler | None = None, config: Config | None = None, **options: Any
) -> AsyncIterator[Running]:
    """Serve around a block; when the block ends the server is told to stop."""
    handler = handler or FakeHandler()
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        serve = serving(config, shutdown_trigger=stop.wait, **options)
        urls = await nursery.start(serve, handler)
        port = int(urls[0].rpartition(":")[2])
        with trio.fail_after(30):
            await trio.lowlevel.checkpoint()
            yield Running(handler, port, urls, stop, nursery)
        stop.set()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Do without the garbage collector for a block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def connections_alive() -> int:
    """How many connections and exchanges there are on either host, of use or not."""
    kinds = (HardenedConnection, Connection, HttpExchange)
    return sum(type(one) in kinds for one in gc.get_objects())
