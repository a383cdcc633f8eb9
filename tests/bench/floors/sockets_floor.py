"""A floor: HTTP by hand on Trio streams, one task a connection.

With ``--watch`` it also notices clients that leave, at the price of a task more per stream. With
``--direct`` a publication is a loop of sends that do not wait, and who is not ready misses it.
"""

import os
import sys
from functools import partial

import msgspec
import trio
from floor_common import Board, Listener

board = Board()
WATCH = "--watch" in sys.argv
DIRECT = "--direct" in sys.argv

_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


async def serve(stream: trio.SocketStream) -> None:
    """Answer the requests of one connection."""
    data = b""
    try:
        while True:
            while b"\r\n\r\n" not in data:
                more = await stream.receive_some()
                if not more:
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
            while len(data) < length:
                data += await stream.receive_some()
            message = msgspec.json.decode(data[:length])
            data = data[length:]
            if message["method"] == "subscriptions/listen":
                listener = Listener(message)
                del message, head
                await listen(stream, listener)
                return
            answer = board.call(message)
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % len(answer)
                + answer
            )
    except trio.BrokenResourceError:
        pass
    finally:
        await trio.aclose_forcefully(stream)


async def listen(stream: trio.SocketStream, listener: Listener) -> None:
    """Serve one stream."""
    board.add(listener)
    try:
        await stream.send_all(_STREAM + chunk(listener.acknowledgement()))
        if DIRECT:
            descriptor = stream.socket.fileno()
            listener.write_now = lambda frame: os.write(descriptor, chunk(frame))
        if not WATCH:
            await pump(stream, listener)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, stream, nursery.cancel_scope)
            await pump(stream, listener)
    except* trio.BrokenResourceError:
        pass
    finally:
        board.remove(listener)


async def pump(stream: trio.SocketStream, listener: Listener) -> None:
    """Write what happens, for ever."""
    while True:
        await stream.send_all(chunk(listener.frame(await listener.receive.receive())))


async def watch(stream: trio.SocketStream, scope: trio.CancelScope) -> None:
    """End a stream whose client has left."""
    while await stream.receive_some():
        pass
    scope.cancel()


def chunk(frame: bytes) -> bytes:
    """One server-sent event as one chunk."""
    return b"%x\r\ndata: %b\n\n\r\n" % (len(frame) + 8, frame)


if __name__ == "__main__":
    trio.run(partial(trio.serve_tcp, serve, int(sys.argv[1]), host="127.0.0.1"))
