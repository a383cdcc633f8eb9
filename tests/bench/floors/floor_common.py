"""What the floors in Python share: the least of the protocol that a benchmark can see.

Nothing is checked and nothing is bounded but the queue; a floor shows what a server costs before
it does any of that.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
import trio

Frame = tuple[bytes, bytes]
"""An event, split where a listener's subscription id goes."""

_UPDATED = (
    b'{"jsonrpc":"2.0","method":"notifications/resources/updated",'
    b'"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":'
)


class Listener:
    """One open stream."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.id = msgspec.json.encode(message["id"])
        self.uris: list[str] = message["params"]["notifications"].get("resourceSubscriptions", [])
        self.write_now: Callable[[bytes], object] | None = None
        self.send, self.receive = trio.open_memory_channel[Frame](1024)

    def acknowledgement(self) -> bytes:
        """The first frame of the stream."""
        return (
            b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",'
            b'"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":'
            + self.id
            + b'},"notifications":{"resourceSubscriptions":'
            + msgspec.json.encode(self.uris)
            + b"}}}"
        )

    def frame(self, frame: Frame) -> bytes:
        """An event with this listener's id in it."""
        return frame[0] + self.id + frame[1]


class Board:
    """Who listens to what."""

    def __init__(self) -> None:
        self._by_uri: defaultdict[str, set[Listener]] = defaultdict(set)
        self.open = 0

    def add(self, listener: Listener) -> None:
        """Have a listener hear of its resources."""
        self.open += 1
        for uri in listener.uris:
            self._by_uri[uri].add(listener)

    def remove(self, listener: Listener) -> None:
        """Forget a listener."""
        self.open -= 1
        for uri in listener.uris:
            self._by_uri[uri].discard(listener)

    def publish(self, uri: str) -> None:
        """Tell everybody who listens; one whose queue is full misses it."""
        frame = (_UPDATED, b'},"uri":' + msgspec.json.encode(uri) + b"}}")
        for listener in self._by_uri.get(uri, ()):
            if listener.write_now is not None:
                with contextlib.suppress(OSError):
                    listener.write_now(listener.frame(frame))
                continue
            with contextlib.suppress(trio.WouldBlock):
                listener.send.send_nowait(frame)

    def call(self, message: dict[str, Any]) -> bytes:
        """Run a tool and build its response."""
        name, arguments = message["params"]["name"], message["params"]["arguments"]
        if name == "publish":
            uri, count = arguments["uri"], arguments["count"]
            uris = [uri] if count == 1 else [f"{uri}{number}" for number in range(count)]
            for each in uris:
                self.publish(each)
            text = "published"
        elif name == "stats":
            text = msgspec.json.encode({"subscriptions": self.open}).decode()
        else:
            text = arguments["text"]
        result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": message["id"], "result": result})
