"""A bus on Redis: pub/sub, by way of coredis. Needs the extra ``mcp-trio[redis]``.

Redis pub/sub delivers at most once and forgets who was not there. That is enough: a connection
that is lost, a server that is restarted and a reader whose output buffer has overrun all end the
subscriber's connection, and after that the bridge tells every listener that anything may have
changed.
"""

import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import coredis
import trio
from coredis.patterns.pubsub import PubSub
from coredis.retry import NoRetryPolicy

from mcp_trio import errors
from mcp_trio._causes import lone
from mcp_trio.subscriptions.bus import Bus, BusConnection

__all__ = ["RedisBus"]

_LOST: Final = (
    coredis.exceptions.RedisError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    OSError,  # TimeoutError is one
)
_PATIENCE: Final = 5.0
"""Seconds to connect in, and to be answered in."""


class RedisBus(Bus):
    """A bus over one channel of a Redis server, version 6 or newer.

    Two connections: one subscribes, the other publishes. Each message costs the server one
    PUBLISH, and one write for each process. The processes of one server share a channel; two
    servers on one Redis take two.

    In a cluster or behind a replica, a subscriber may be connected to a node that is still up
    while messages from another are lost: use one server, or the primary that a Sentinel names.

    Args:
        url: ``redis://[user:password@]host:port/db``, ``rediss://`` with TLS, or
            ``unix:///path/to/socket``.
        channel: the name of the channel.
        idle: seconds without a message after which the server is asked whether it is there. If
            it does not answer within five seconds, the connection is lost.
        options: for `coredis.Redis.from_url`, such as ``ssl_context``.

    Raises:
        ValueError: the URL is of another kind.
    """

    def __init__(
        self,
        url: str = "redis://127.0.0.1:6379",
        *,
        channel: str = "mcp_trio",
        idle: float = 15.0,
        **options: Any,
    ) -> None:
        if not url.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("not a URL that starts with redis://, rediss:// or unix://")
        self._url = url
        self._channel = channel
        self._idle = idle
        self._options = {"connect_timeout": _PATIENCE, "stream_timeout": _PATIENCE} | options
        self._client()  # a URL that cannot be right is the caller's to hear of, at once

    def __repr__(self) -> str:
        return f"<RedisBus {self._channel!r}>"  # the URL may hold a password

    def _client(self) -> coredis.Redis[bytes]:
        # Tried again by the bridge, who knows what may be sent twice.
        return coredis.Redis.from_url(
            self._url, decode_responses=False, retry_policy=NoRetryPolicy(), **self._options
        )

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[BusConnection]:
        """See `Bus.connect`."""
        try:
            async with self._client() as client:
                subscriber = _Subscriber(
                    client.connection_pool,
                    channels=[self._channel],
                    # With a policy it would reconnect by itself, and hardly say so.
                    retry_policy=None,
                    subscription_timeout=_PATIENCE,
                    max_idle_seconds=self._idle,
                )
                async with subscriber:
                    yield _RedisConnection(client, subscriber, self._channel)
        except _LOST as error:
            cause: BaseException = error
        except BaseExceptionGroup as group:
            _, other = group.split(_LOST)
            cause = lone(group if other is None else other)
            if other is not None:
                raise cause from cause.__cause__
        else:
            return
        # Where coredis is cancelled, its own cleanup may fail, and that is no news.
        await trio.lowlevel.checkpoint_if_cancelled()
        raise errors.BusLost(f"Redis: {cause}") from cause


class _RedisConnection(BusConnection):
    __slots__ = ("_channel", "_client", "_subscriber")

    def __init__(
        self, client: coredis.Redis[bytes], subscriber: "_Subscriber", channel: str
    ) -> None:
        self._client = client
        self._subscriber = subscriber
        self._channel = channel

    async def publish(self, message: bytes) -> None:
        try:
            await self._client.publish(self._channel, message)
        except _LOST as error:
            cause = error
        else:
            return
        # A connection that is cancelled while it is made says that it could not be made.
        await trio.lowlevel.checkpoint_if_cancelled()
        raise errors.BusLost(f"Redis: {cause}") from cause

    async def receive(self) -> list[bytes]:
        return await self._subscriber.take()


class _Subscriber(PubSub[bytes]):
    """A subscriber that hands over at once whatever has come.

    That of coredis takes one message in each turn of the scheduler, while up to 64 KiB are read
    in one, and the queue between has no limit. So a program that is busy would fall behind for
    ever. Here nothing stays in that queue; a program that does not keep up does not read, and
    Redis ends the connection when its output buffer has overrun.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._come: list[bytes] = []
        self._more = trio.Event()

    async def take(self) -> list[bytes]:
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._come:
            self._more = trio.Event()
            await self._more.wait()
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
        come, self._come = self._come, []
        return come

    async def _consume_push_messages(self) -> None:
        queue = self.connection._push_message_buffer_out  # noqa: SLF001 (see above)
        async for response in self.connection.push_messages:
            self._last_checkin = time.monotonic()
            await self._take_in(response)
            with contextlib.suppress(anyio.WouldBlock):
                while True:
                    await self._take_in(queue.receive_nowait())

    async def _take_in(self, response: Any) -> None:
        message = await self._handle_message(response)
        if message is not None and message["type"] == "message":
            data = message["data"]
            self._come.append(data if isinstance(data, bytes) else str(data).encode())
            self._more.set()
