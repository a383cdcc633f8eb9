"""A real Redis for a test: started on a free port of the loopback, killed, and brought back."""

import contextlib
import random
import shutil
import socket
import subprocess

import pytest
import trio
from patience import at_most

BINARY = shutil.which("redis-server")

needs_redis = pytest.mark.skipif(BINARY is None, reason="redis-server is not installed")


def _free_port() -> int:
    """A port below those that the system gives out by itself.

    Else somebody could get it while the server is down; even a client that tries to connect to
    it, and then is connected to itself.
    """
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port := random.randrange(15_000, 32_000)))  # noqa: S311
            return port


class RedisServer:
    """One process on one port, without anything on disk."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def start(self) -> None:
        assert BINARY is not None
        self.process = subprocess.Popen(  # noqa: ASYNC220 (it takes no time worth a thread)
            [
                BINARY,
                *("--port", str(self.port), "--bind", "127.0.0.1"),
                *("--save", "", "--appendonly", "no", "--daemonize", "no"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with trio.fail_after(at_most(10)):
            while not await self.command("PING"):
                assert self.process.poll() is None, "redis-server has ended"
                await trio.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    async def command(self, *words: str) -> bytes:
        """Send one command and return what is answered; nothing if nobody is there."""
        with contextlib.suppress(OSError):
            stream = await trio.open_tcp_stream("127.0.0.1", self.port)
            async with stream:
                await stream.send_all(" ".join(words).encode() + b"\r\n")
                return bytes(await stream.receive_some())
        return b""
