"""A transport that is nothing but two lists, to test a server without one."""

import json
from collections.abc import Hashable, Mapping
from typing import Any, Literal

import trio
from request_meta import META

from mcp_trio.protocol import jsonrpc
from mcp_trio.server import Server
from mcp_trio.transports.abc import Exchange, Principal


class Recorder(Exchange):
    """Keeps what the server sends; `hold` makes it a peer that has stopped reading."""

    kind: Literal["memory", "stdio", "http"] = "memory"

    def __init__(
        self,
        *,
        connection: Hashable = None,
        principal: Principal | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.connection = connection
        self.principal = principal
        self.headers = headers or {}
        self.sent: list[dict[str, Any]] = []
        self.released = False
        self.gone = False
        self.hold: trio.Event | None = None
        self._news = trio.Event()

    async def send(self, frame: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self.gone:
            raise trio.BrokenResourceError("the peer has gone")
        if self.hold is not None:
            await self.hold.wait()
        self.sent.append(json.loads(frame))
        self._news.set()

    def release(self) -> None:
        self.released = True

    async def wait_for(self, count: int) -> list[dict[str, Any]]:
        """Wait until so many messages have been sent."""
        with trio.fail_after(5):
            await trio.lowlevel.checkpoint()
            while len(self.sent) < count:
                self._news = trio.Event()
                await self._news.wait()
        return self.sent


def request(
    method: str, params: Mapping[str, Any] | None = None, *, request_id: str | int = 1, **meta: Any
) -> jsonrpc.Request:
    """A request as a transport would have read it; `meta` is added to its `_meta`."""
    return jsonrpc.Request(request_id, method, {"_meta": {**META, **meta}, **(params or {})})


async def ask(
    server: Server,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    exchange: Exchange | None = None,
    request_id: str | int = 1,
    **meta: Any,
) -> dict[str, Any]:
    """One request and its whole response."""
    asked = request(method, params, request_id=request_id, **meta)
    reply = await server.handle(asked, Recorder() if exchange is None else exchange)
    response: dict[str, Any] = json.loads(reply.frame)
    assert response["jsonrpc"] == "2.0"
    assert reply.error_code == (response["error"]["code"] if "error" in response else None)
    if "result" in response:
        assert response["result"]["resultType"] == "complete"
        info = response["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]
        assert info["name"] == server.info.name
    return response


async def result_of(server: Server, method: str, **params: Any) -> dict[str, Any]:
    """The result of a request that succeeds."""
    response = await ask(server, method, params)
    result: dict[str, Any] = response["result"]
    return result


async def error_of(server: Server, method: str, **params: Any) -> dict[str, Any]:
    """The error of a request that fails."""
    response = await ask(server, method, params)
    error: dict[str, Any] = response["error"]
    return error


async def call(server: Server, name: str, **arguments: Any) -> dict[str, Any]:
    """The result of a tool call."""
    return await result_of(server, "tools/call", name=name, arguments=arguments)


def text_of(result: dict[str, Any]) -> str:
    """The one text block of a tool's result."""
    [block] = result["content"]
    assert block["type"] == "text"
    text: str = block["text"]
    return text
