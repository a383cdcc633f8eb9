"""A server over standard input and output, for test_serve_stdio.py: a program, not a test."""

import os
import subprocess
import sys
from typing import Any

import trio

from mcp_trio import errors
from mcp_trio.protocol import jsonrpc
from mcp_trio.transports import abc
from mcp_trio.transports.stdio import serve_stdio


class Program:
    """A handler with everything that could go wrong with a process."""

    supported_versions = ("2026-07-28",)

    def __init__(self) -> None:
        self.draining = trio.Event()

    def mirrored(self, request: jsonrpc.Request) -> dict[str, object]:
        return {}

    def knows(self, method: str) -> bool:
        return True

    async def handle(self, message: jsonrpc.Request, exchange: abc.Exchange) -> jsonrpc.Reply:
        function = getattr(self, message.method.rpartition("/")[2])
        return jsonrpc.result_reply(message.id, await function(message.take_params(), exchange))

    def notify(self, notification: jsonrpc.Notification) -> None: ...

    async def echo(self, params: dict[str, Any], exchange: abc.Exchange) -> dict[str, Any]:
        return {"data": params.get("data")}

    async def slow(self, params: dict[str, Any], exchange: abc.Exchange) -> dict[str, Any]:
        await trio.sleep_forever()
        raise AssertionError("unreachable: it sleeps forever")

    async def thread(self, params: dict[str, Any], exchange: abc.Exchange) -> dict[str, Any]:
        import time

        await trio.to_thread.run_sync(time.sleep, 60, abandon_on_cancel=True)
        return {}

    async def listen(self, params: dict[str, Any], exchange: abc.Exchange) -> dict[str, Any]:
        exchange.end_gracefully = lambda _reason, **_: self.draining.set()
        await exchange.send(jsonrpc.encode_notification("ack"))
        await self.draining.wait()
        return {"done": True}

    async def flood(self, params: dict[str, Any], exchange: abc.Exchange) -> dict[str, Any]:
        while True:
            await exchange.send(jsonrpc.encode_notification("note", {"padding": "x" * 1000}))

    async def noisy(self, params: dict[str, Any], exchange: abc.Exchange) -> dict[str, Any]:
        print("printed")  # noqa: T201
        sys.stdout.write("without a line end")
        os.write(1, b"written\n")
        subprocess.run(["echo", "echoed"], check=True)  # noqa: ASYNC221, S607
        cat = subprocess.run(["cat"], check=True, capture_output=True)  # noqa: ASYNC221, S607
        return {"stdin": sys.stdin.read() + cat.stdout.decode()}

    async def claim(self, params: dict[str, Any], exchange: abc.Exchange) -> dict[str, Any]:
        try:
            await serve_stdio(self)
        except errors.LocalProtocolError as error:
            return {"refused": str(error)}
        return {}


async def main() -> None:
    if "--cancel" in sys.argv:
        with trio.move_on_after(0.5):
            await serve_stdio(Program())
    elif "--no-signals" in sys.argv:
        await serve_stdio(Program(), handle_signals=False)
    elif "--from-thread" in sys.argv:
        await trio.to_thread.run_sync(lambda: trio.run(serve_stdio, Program()))
    else:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_stdio, Program())
            sys.stderr.write("ready\n")
    if "--quiet" in sys.argv:
        return
    sys.stdout.write("restored\n")


if __name__ == "__main__":
    trio.run(main)
