"""Servers that are nothing but bytes on a loopback socket, for the HTTP client."""

import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio
import trio.testing
from byte_reader import ByteReader
from request_meta import META

from mcp_trio.http.client import HttpTransport
from mcp_trio.protocol import jsonrpc

PARAMS: dict[str, Any] = {"_meta": META}
HUGE = {**PARAMS, "arguments": {"text": "x" * 8_000_000}}
DONE = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}'
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Peer(ByteReader):
    """The server's end of one connection."""

    stream: trio.SocketStream

    async def request(self) -> tuple[str, dict[str, str], bytes]:
        """Read a request: its first line, headers in lower case, body."""
        first, lines = await self.read_head()
        headers = dict(lines)
        return first, headers, await self.read_exactly(int(headers["content-length"]))

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def json(self, body: bytes, status: str = "200 OK", extra: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{extra}"
        await self.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    async def refuse(self, status: str, extra: str = "", body: bytes = b"") -> None:
        head = f"HTTP/1.1 {status}\r\n{extra}content-length: {len(body)}\r\n\r\n"
        await self.send(head.encode() + body)

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, frame: bytes) -> None:
        await self.chunk(b"data: " + frame + b"\n\n")

    async def end_chunks(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def gone(self) -> None:
        """Wait until the client has closed its end."""
        try:
            while await self.stream.receive_some():
                pass
        except trio.BrokenResourceError:
            pass

    def reset(self) -> None:
        """Close with RST."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()


Script = Callable[[Peer], Awaitable[None]]


class Server:
    """Runs a script for each connection; remembers what happened."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.url = ""

    async def handle(self, stream: Any) -> None:
        self.connections += 1
        with suppress(EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            await self.script(Peer(stream))


@asynccontextmanager
async def serving(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(script)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            serve: Any = partial(trio.serve_tcp, server.handle, 0, host="127.0.0.1")
            if tls is not None:
                serve = partial(trio.serve_ssl_over_tcp, server.handle, 0, tls, host="127.0.0.1")
            listeners = await nursery.start(serve)
            listener = listeners[0] if tls is None else listeners[0].transport_listener
            port = listener.socket.getsockname()[1]
            server.url = f"http{'s' if tls else ''}://127.0.0.1:{port}/mcp"
            yield server
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(script: Script, **options: Any) -> AsyncIterator[tuple[HttpTransport, Server]]:
    async with serving(script) as server:
        transport = HttpTransport(server.url, **options)
        try:
            yield transport, server
        finally:
            transport.close()


async def ask(
    transport: HttpTransport,
    method: str = "tools/list",
    params: dict[str, Any] = PARAMS,
    request_id: str | int = 1,
) -> list[jsonrpc.Message]:
    async with transport.open_exchange(request_id, method, params) as messages:
        return [message async for message in messages]
