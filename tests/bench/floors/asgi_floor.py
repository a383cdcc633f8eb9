"""A floor: the least that an ASGI application on Hypercorn's Trio worker can do.

With ``--watch`` it also notices clients that leave, at the price of a task more per stream.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import hypercorn.trio
import msgspec
import trio
from floor_common import Board, Listener
from hypercorn.config import Config
from hypercorn.typing import ASGIFramework

board = Board()
WATCH = "--watch" in sys.argv

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Answer one request."""
    if scope["type"] != "http":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        return
    body = b""
    more = True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    message = msgspec.json.decode(body)
    del body
    if message["method"] == "subscriptions/listen":
        await listen(Listener(message), receive, send)
    else:
        answer = board.call(message)
        length = str(len(answer)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


async def listen(listener: Listener, receive: Receive, send: Send) -> None:
    """Serve one stream."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    board.add(listener)
    try:
        await write(send, listener.acknowledgement())
        if not WATCH:
            await pump(listener, send)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, receive, nursery.cancel_scope)
            await pump(listener, send)
    finally:
        board.remove(listener)


async def pump(listener: Listener, send: Send) -> None:
    """Write what happens, for ever."""
    while True:
        await write(send, listener.frame(await listener.receive.receive()))


async def watch(receive: Receive, scope: trio.CancelScope) -> None:
    """End a stream whose client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def write(send: Send, frame: bytes) -> None:
    """Write one server-sent event."""
    body = b"data: " + frame + b"\n\n"
    await send({"type": "http.response.body", "body": body, "more_body": True})


if __name__ == "__main__":
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    config.backlog = 1024
    config.keep_alive_timeout = 600
    config.loglevel = "ERROR"
    trio.run(hypercorn.trio.serve, cast("ASGIFramework", app), config)
