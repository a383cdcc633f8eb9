"""The little of the protocol that a load generator speaks: requests out, answers counted."""

import json
from typing import Any

VERSION = "2026-07-28"
ACKNOWLEDGED = b"notifications/subscriptions/acknowledged"
UPDATED = b"notifications/resources/updated"

_META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def post(method: str, params: dict[str, Any], request_id: int, port: int) -> bytes:
    """A whole HTTP request that carries one JSON-RPC request."""
    message = {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": method,
        "params": {"_meta": _META, **params},
    }
    body = json.dumps(message, separators=(",", ":")).encode()
    name = f"Mcp-Name: {params['name']}\r\n" if "name" in params else ""
    head = (
        "POST /mcp HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{port}\r\n"
        "Content-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\n"
        f"MCP-Protocol-Version: {VERSION}\r\n"
        f"Mcp-Method: {method}\r\n"
        f"{name}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def listen(uris: list[str], request_id: int, port: int) -> bytes:
    """A request for a stream of what happens to these resources."""
    params = {"notifications": {"resourceSubscriptions": uris}}
    return post("subscriptions/listen", params, request_id, port)


def call(tool: str, arguments: dict[str, Any], request_id: int, port: int) -> bytes:
    """A request to call a tool."""
    return post("tools/call", {"name": tool, "arguments": arguments}, request_id, port)


def response_end(data: bytes | bytearray) -> int | None:
    """Where the first HTTP response in the bytes ends; None while it is not complete."""
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    head = bytes(data[:head_end]).lower()
    body = head_end + 4
    if b"transfer-encoding: chunked" in head:
        return _chunks_end(data, body)
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            end = body + int(value)
            return end if len(data) >= end else None
    return body


def _chunks_end(data: bytes | bytearray, at: int) -> int | None:
    while (line_end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:line_end], 16)
        at = line_end + 2 + size + 2
        if at > len(data):
            return None
        if size == 0:
            return at
    return None


def is_last(data: bytes | bytearray) -> bool:
    """Whether the first HTTP response in the bytes announces the end of its connection."""
    return b"\r\nconnection: close" in bytes(data[: data.find(b"\r\n\r\n")]).lower()


class Counter:
    """Counts a marker in a stream of bytes, wherever the stream is cut."""

    __slots__ = ("_carry", "_mark", "total")

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._carry = b""
        self.total = 0

    def feed(self, data: bytes) -> int:
        """How often the marker has become complete with these bytes."""
        seen = self._carry + data
        found = seen.count(self._mark)
        self.total += found
        keep = len(self._mark) - 1
        # What is kept is shorter than the marker, so nothing is counted twice.
        self._carry = seen[-keep:]
        return found
