"""One way to speak to a server in raw messages, whatever carries them.

A `WireClient` sends requests as they are given to it, right or wrong, and sorts what comes back
by the request it belongs to. What that is, is all that a contract test sees of a transport; how
a request is cancelled, and how its end looks, is the transport's own business:

* memory: `open_memory_transport`;
* lines: `serve_lines` over pipes in memory;
* stdio: `serve_stdio` in a process of its own;
* http: `serve_hypercorn` or `serve_http`, and a socket for each request.

The last one is in `wire_http`.
"""

import abc
import contextlib
import json
import os
import subprocess
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar

import contract_server
import trio

from mcp_trio.protocol import jsonrpc
from mcp_trio.server import Server
from mcp_trio.testing import Wire, open_raw_client, request
from mcp_trio.transports.abc import Principal
from mcp_trio.transports.memory import MemoryTransport, open_memory_transport

Frame = dict[str, Any]
Open = Callable[..., AbstractAsyncContextManager["WireClient"]]

PATIENCE = 10
"""Seconds after which a test gives up waiting, on a busy machine."""
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
CANCELLED = "notifications/cancelled"
TOOLS_CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
PROGRESS = "notifications/progress"


# What is said, in the words of the specification.


def listen(request_id: Any, **wanted: Any) -> Frame:
    """A `subscriptions/listen` for some types."""
    return request(request_id, LISTEN, {"notifications": wanted})


def call(request_id: Any, name: str, **arguments: Any) -> Frame:
    """A `tools/call`."""
    return request(request_id, "tools/call", {"name": name, "arguments": arguments})


def cancelled(request_id: Any) -> Frame:
    """The notification that cancels a request, where a transport has it."""
    return {"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": request_id}}


def acknowledgement(request_id: Any, **granted: Any) -> Frame:
    """What acknowledges a subscription."""
    return _tagged(request_id, ACKNOWLEDGED, notifications=granted)


def tools_changed(request_id: Any) -> Frame:
    """The change of the list of tools, on a subscription."""
    return _tagged(request_id, TOOLS_CHANGED)


def updated(request_id: Any, uri: str) -> Frame:
    """The update of a resource, on a subscription."""
    return _tagged(request_id, UPDATED, uri=uri)


def _tagged(request_id: Any, method: str, **params: Any) -> Frame:
    tag = {SUBSCRIPTION_ID: request_id}
    return {"jsonrpc": "2.0", "method": method, "params": {"_meta": tag, **params}}


def exactly(frame: object) -> str:
    """A form in which `1`, `1.0`, `true` and `"1"` differ, unlike in a comparison."""
    return json.dumps(frame, sort_keys=True)


def end_of(frame: Frame) -> tuple[Any, str]:
    """Of the result that ends a subscription: its subscription id, and the reason it gives."""
    meta = frame["result"]["_meta"]
    assert frame["result"]["resultType"] == "complete"
    assert exactly(meta[SUBSCRIPTION_ID]) == exactly(frame["id"])
    assert "io.modelcontextprotocol/serverInfo" in meta
    return frame["id"], meta["org.mcp-trio/end"]["reason"]


def text_of(response: Frame) -> str:
    """The text that a tool has returned."""
    assert "result" in response, response
    assert not response["result"].get("isError"), response
    [block] = response["result"]["content"]
    text: str = block["text"]
    return text


class Ended(Exception):
    """Nothing more will come for a request."""


class WireExchange(abc.ABC):
    """One request, at the wire."""

    def __init__(self, message: Frame) -> None:
        self.id: Any = message.get("id")
        self.is_listen = message.get("method") == LISTEN

    async def next(self) -> Frame:
        """What comes next for this request.

        Raises:
            Ended: nothing more can come.
            trio.TooSlowError: nothing has come for a long time.
        """
        with trio.fail_after(PATIENCE):
            return await self.receive()

    @abc.abstractmethod
    async def receive(self) -> Frame:
        """`next` without patience."""

    @abc.abstractmethod
    async def cancel(self) -> None:
        """Cancel the request, in the way of its transport."""

    @abc.abstractmethod
    async def over(self) -> None:
        """After the response: check that the exchange ends as its transport says."""

    async def response(self) -> Frame:
        """The response, when everything before it has been read and thrown away."""
        while "id" not in (frame := await self.next()):
            pass
        return frame

    async def rest(self) -> list[Frame]:
        """All that comes up to and with the response, and the proof that nothing follows."""
        frames = [await self.next()]
        while "id" not in frames[-1]:
            frames.append(await self.next())
        await self.over()
        return frames


class WireClient(abc.ABC):
    """One client of a server.

    Attributes:
        transport: the name of the transport.
        server: the server, where it runs in this process.
    """

    transport: ClassVar[str]
    server: Server | None = None

    def __init__(self) -> None:
        self._numbers = 0

    @abc.abstractmethod
    async def start(self, message: Frame) -> WireExchange:
        """Send a request."""

    @abc.abstractmethod
    def another(self) -> AbstractAsyncContextManager["WireClient"]:
        """Connect a second client to the same server. A process of its own has but one."""

    async def listen(self, request_id: Any, **wanted: Any) -> WireExchange:
        """Open a subscription and wait until it has been acknowledged in full."""
        exchange = await self.start(listen(request_id, **wanted))
        granted = await exchange.next()
        assert exactly(granted) == exactly(acknowledgement(request_id, **wanted))
        return exchange

    async def ask(self, message: Frame) -> Frame:
        """Send a request, wait for its response, and check that nothing else comes for it."""
        exchange = await self.start(message)
        response = await exchange.next()
        assert exactly(response["id"]) == exactly(message["id"]), response
        await exchange.over()
        return response

    async def call(self, name: str, **arguments: Any) -> str:
        """Call a tool that does what it should, and return its text."""
        self._numbers += 1
        return text_of(await self.ask(call(f"own-{self._numbers}", name, **arguments)))

    async def read(self, uri: str) -> str:
        """Read a resource that is a text."""
        self._numbers += 1
        response = await self.ask(request(f"own-{self._numbers}", "resources/read", {"uri": uri}))
        [content] = response["result"]["contents"]
        text: str = content["text"]
        return text

    async def subscriptions(self) -> int:
        """How many subscriptions the server has open, in all."""
        count: int = json.loads(await self.call("stats"))["subscriptions"]
        return count

    async def until_subscriptions(self, count: int, within: float = PATIENCE) -> None:
        """Wait until so many subscriptions are open."""
        with trio.fail_after(within):
            while await self.subscriptions() != count:
                await trio.sleep(0.002)


# In this process, without bytes on a wire


class _MemoryExchange(WireExchange):
    def __init__(self, message: Frame) -> None:
        super().__init__(message)
        self.scope = trio.CancelScope()
        self.send, self._receive = trio.open_memory_channel[Frame](0)

    async def receive(self) -> Frame:
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            raise Ended from None

    async def cancel(self) -> None:
        self.scope.cancel()
        await trio.lowlevel.checkpoint()

    async def over(self) -> None:
        with trio.fail_after(PATIENCE):
            try:
                frame = await self.receive()
            except Ended:
                return
        raise AssertionError(f"after the response came {frame}")


class MemoryWire(WireClient):
    """`open_memory_transport`; the server's `send` waits until the test takes the message."""

    transport = "memory"

    def __init__(self, server: Server, nursery: trio.Nursery, transport: MemoryTransport) -> None:
        super().__init__()
        self.server: Server = server
        self._transport = transport
        self._nursery = nursery

    async def start(self, message: Frame) -> WireExchange:
        exchange = _MemoryExchange(message)
        self._nursery.start_soon(self._run, message, exchange)
        await trio.lowlevel.checkpoint()
        return exchange

    async def _run(self, message: Frame, exchange: _MemoryExchange) -> None:
        with exchange.send as frames, exchange.scope:
            method, params = message["method"], message["params"]
            async with self._transport.open_exchange(exchange.id, method, params) as messages:
                del message, params
                with contextlib.suppress(trio.BrokenResourceError):
                    async for received in messages:
                        await frames.send(_as_frame(received))

    @asynccontextmanager
    async def another(self) -> AsyncIterator["WireClient"]:
        async with open_memory_transport(self.server) as transport:
            yield MemoryWire(self.server, self._nursery, transport)


def _as_frame(message: jsonrpc.Message) -> Frame:
    if isinstance(message, jsonrpc.Notification):
        return {"jsonrpc": "2.0", "method": message.method, "params": message.params}
    if isinstance(message, jsonrpc.ResultReply):
        return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
    error: Frame = {"code": message.error.code, "message": message.error.message}
    if message.error.data is not None:
        error["data"] = message.error.data
    return {"jsonrpc": "2.0", "id": message.id, "error": error}


@asynccontextmanager
async def open_memory(
    kind: str = "everything", *, principal: Principal | None = None
) -> AsyncIterator[WireClient]:
    """A server in this process, called without a wire."""
    server = contract_server.make(kind)
    async with (
        open_memory_transport(server, principal=principal) as transport,
        trio.open_nursery() as nursery,
    ):
        yield MemoryWire(server, nursery, transport)
        nursery.cancel_scope.cancel()


# Lines, in this process and to a process of its own


class LineExchange(WireExchange):
    """A request among others on one channel."""

    def __init__(self, message: Frame, client: "LineWire") -> None:
        super().__init__(message)
        self.frames: deque[Frame] = deque()
        self._client = client
        self._response: Frame | None = None

    async def receive(self) -> Frame:
        await self._client.wait_for(lambda: bool(self.frames))
        frame = self.frames.popleft()
        if "id" in frame:
            self._response = frame
        return frame

    async def cancel(self) -> None:
        await self._client.send(cancelled(self.id))

    async def over(self) -> None:
        assert self._response is not None
        if self.is_listen and "result" in self._response:
            assert exactly(await self.next()) == exactly(cancelled(self.id))
        self._client.forget(self)


class LineWire(WireClient):
    """A channel of lines. It is read all the time, unless `stop_reading` says otherwise.

    Attributes:
        errors: the errors that came without an id.
        strays: what came and belongs to no request that was started.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.errors: deque[Frame] = deque()
        self.strays: list[Frame] = []
        self.ended = False
        self._wire = wire
        self._routes: dict[tuple[type, Any], LineExchange] = {}
        self._tokens: dict[tuple[type, Any], LineExchange] = {}
        self._news = trio.Event()
        self._reading = trio.Event()
        self._reading.set()
        self._turn = trio.CancelScope()
        self._sending = trio.Lock()

    async def read_all(self) -> None:
        """Sort what arrives."""
        while not self.ended:
            with trio.CancelScope() as self._turn:
                if not self._reading.is_set():
                    await self._reading.wait()
                try:
                    self._sort(await self._wire.receive())
                except (trio.EndOfChannel, trio.BrokenResourceError):
                    self.ended = True
            self._news.set()
            self._news = trio.Event()

    def stop_reading(self) -> None:
        """Leave what the server writes where it is."""
        self._reading = trio.Event()
        self._turn.cancel()

    def go_on_reading(self) -> None:
        """Read again."""
        self._reading.set()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that only an arrival can bring about."""
        await trio.lowlevel.checkpoint()
        while not condition():
            if self.ended:
                raise Ended
            await self._news.wait()

    async def send(self, *messages: Frame | bytes) -> None:
        """Write lines, and bytes as they are, in one piece."""
        with trio.fail_after(PATIENCE):
            async with self._sending:
                await self._wire.send(*messages)

    async def start(self, message: Frame) -> WireExchange:
        exchange = self.expect(message)
        await self.send(message)
        return exchange

    def expect(self, message: Frame) -> LineExchange:
        """Take what comes for a request that is yet to be sent."""
        exchange = LineExchange(message, self)
        self._routes[type(exchange.id), exchange.id] = exchange
        meta = message["params"].get("_meta")
        if isinstance(meta, dict) and "progressToken" in meta:
            self._tokens[type(meta["progressToken"]), meta["progressToken"]] = exchange
        return exchange

    def forget(self, exchange: LineExchange) -> None:
        """The request is over: what comes for it now is astray."""
        assert not exchange.frames, exchange.frames
        self._routes.pop((type(exchange.id), exchange.id), None)

    async def next_error(self) -> Frame:
        """The next error without an id."""
        with trio.fail_after(PATIENCE):
            await self.wait_for(lambda: bool(self.errors))
        return self.errors.popleft()

    async def end(self) -> None:
        """Close our side."""
        await self._wire.end()

    async def until_ended(self) -> None:
        """Read until the server has closed its side."""
        with trio.fail_after(PATIENCE), contextlib.suppress(Ended):
            await self.wait_for(lambda: self.ended)

    async def leave(self) -> None:
        """Cancel what is still open, and see that the server has noticed."""
        for exchange in list(self._routes.values()):
            await exchange.cancel()
        await self.until_subscriptions(0)
        self.check()

    def check(self) -> None:
        """Nothing has come that the test did not expect."""
        assert not self.strays, self.strays
        assert not self.errors, self.errors

    def _sort(self, frame: Frame) -> None:
        assert frame["jsonrpc"] == "2.0", frame
        assert not ("method" in frame and "id" in frame), f"a request by the server: {frame}"
        if "method" not in frame and "id" not in frame:
            self.errors.append(frame)
            return
        route = self._route_of(frame)
        if route is None:
            self.strays.append(frame)
        else:
            route.frames.append(frame)

    def _route_of(self, frame: Frame) -> LineExchange | None:
        params = frame.get("params", {})
        if "id" in frame:
            key = frame["id"]
        elif frame["method"] == CANCELLED:
            key = params["requestId"]
        elif frame["method"] == PROGRESS:
            token = params["progressToken"]
            return self._tokens.get((type(token), token))
        else:
            key = params.get("_meta", {}).get(SUBSCRIPTION_ID)
        return self._routes.get((type(key), key))


class MemoryLineWire(LineWire):
    """`serve_lines` over pipes in memory."""

    transport = "lines"

    def __init__(self, wire: Wire, server: Server) -> None:
        super().__init__(wire)
        self.server: Server = server

    @asynccontextmanager
    async def another(self) -> AsyncIterator["WireClient"]:
        async with open_lines(server=self.server) as client:
            yield client


@asynccontextmanager
async def open_lines(
    kind: str = "everything", *, server: Server | None = None, **options: Any
) -> AsyncIterator[MemoryLineWire]:
    """A server in this process, at the other end of a pipe in memory."""
    server = contract_server.make(kind) if server is None else server
    async with open_raw_client(server, **options) as wire, trio.open_nursery() as nursery:
        client = MemoryLineWire(wire, server)
        nursery.start_soon(client.read_all)
        yield client
        client.check()
        nursery.cancel_scope.cancel()


class StdioWire(LineWire):
    """`serve_stdio` in a process of its own."""

    transport = "stdio"

    def __init__(self, wire: Wire, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(wire)
        self.process = process

    def another(self) -> AbstractAsyncContextManager["WireClient"]:
        """There can be no other."""
        raise AssertionError("a process on stdio has one client")

    async def gone_after(self) -> float:
        """Wait until the process has ended, with status 0; how many seconds that took."""
        begun = time.monotonic()
        with trio.move_on_after(PATIENCE):
            while self.process.poll() is None:
                await trio.sleep(0.002)
        assert self.process.returncode == 0
        return time.monotonic() - begun


class Children:
    """Server processes, kept while tests leave them as they found them: starting one is slow."""

    def __init__(self) -> None:
        self._idle: dict[str, list[subprocess.Popen[bytes]]] = {}

    def take(self, kind: str, *, spare: bool = False) -> "subprocess.Popen[bytes]":
        """A process that serves on pipes, and has served nobody or a client that was content.

        Where it will not be given back, a `spare` starts meanwhile for whoever comes next.
        """
        idle = self._idle.setdefault(kind, [])
        process = idle.pop() if idle else self._start(kind)
        if spare and not idle:
            idle.append(self._start(kind))
        return process

    def _start(self, kind: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            contract_server.command(kind),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=contract_server.environment(),
        )

    def give_back(self, kind: str, process: "subprocess.Popen[bytes]") -> None:
        """Keep a process for the next test."""
        self._idle[kind].append(process)

    def end(self) -> None:
        """End those that are left, in the way a client does it."""
        processes = [process for idle in self._idle.values() for process in idle]
        self._idle.clear()
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            assert process.wait(PATIENCE) == 0
            destroy(process)


def destroy(process: "subprocess.Popen[bytes]") -> None:
    """Have nothing left of a process."""
    if process.poll() is None:
        process.kill()
        process.wait(PATIENCE)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@asynccontextmanager
async def open_stdio(
    children: Children, kind: str = "everything", *, keep: bool = True
) -> AsyncIterator[StdioWire]:
    """A server in a process of its own; `keep` it for other tests if this one ends well."""
    process = children.take(kind, spare=not keep)
    try:
        with _fd_streams(process) as (stdout, stdin):
            async with trio.open_nursery() as nursery:
                client = StdioWire(Wire(stdout, stdin), process)
                nursery.start_soon(client.read_all)
                yield client
                if keep:
                    await client.leave()
                nursery.cancel_scope.cancel()
    except BaseException:
        destroy(process)
        raise
    if keep:
        children.give_back(kind, process)
    else:
        destroy(process)


@contextlib.contextmanager
def _fd_streams(
    process: "subprocess.Popen[bytes]",
) -> Iterator[tuple[trio.lowlevel.FdStream, trio.lowlevel.FdStream]]:
    assert process.stdout is not None
    assert process.stdin is not None
    stdout = trio.lowlevel.FdStream(os.dup(process.stdout.fileno()))
    stdin = trio.lowlevel.FdStream(os.dup(process.stdin.fileno()))
    try:
        yield stdout, stdin
    finally:
        stdout.close()
        stdin.close()
