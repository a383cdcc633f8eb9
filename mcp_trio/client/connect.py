"""Clients for the transports there are, as blocks that own what they opened."""

import functools
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Literal, Unpack

from mcp_trio._backoff import Backoff
from mcp_trio.client.client import Client
from mcp_trio.client.options import ClientOptions
from mcp_trio.protocol.credentials import Auth
from mcp_trio.transports import abc

__all__ = ["open_http_client", "open_stdio_client"]

MAX_MESSAGE: Final = 16 * 2**20
"""How many bytes one message of a server may have: the same, however it is reached."""


@asynccontextmanager
async def open_http_client(
    url: str,
    *,
    ssl_context: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    auth: Auth | None = None,
    proxy: str | Literal[True] | None = True,
    connect_timeout: float = 10.0,
    max_connections: int = 100,
    max_message: int = MAX_MESSAGE,
    **options: Unpack[ClientOptions],
) -> AsyncGenerator[Client]:
    """Reach a server over Streamable HTTP.

    Nothing is sent before the first request, so a server that is not there is noticed by that
    request: it raises `errors.ConnectionLost`. Leaving the block closes all connections, at
    once.

    Args:
        url: the server's endpoint, such as ``https://example.com/mcp``.
        ssl_context: for HTTPS; by default one that trusts what the system trusts. A client
            certificate that is loaded into it is shown to the server.
        headers: sent with every request, for instance `Authorization`.
        auth: awaited for further headers before each request, and once more if the answer is 401
            or 403; see `protocol.credentials.Auth`.
        proxy: the URL of an HTTP proxy, with user name and password if it wants them; None for
            none. True, the default, stands for what `http_proxy`, `https_proxy` and `no_proxy`
            say in the environment; addresses of this machine are no exception unless `no_proxy`
            has them.
        connect_timeout: seconds for each connection to be made, TLS included.
        max_connections: how many requests may be under way at a time; others wait for their turn,
            first come, first served. Subscriptions have connections of their own and do not
            count.
        max_message: how many bytes one answer, or one event of a stream, may have, decompressed;
            by default 16 MiB. A longer one fails its request.
        options: what `ClientOptions` describes: who the client is, and who answers the server's
            questions.

    Raises:
        ValueError: the URL, a header or the proxy cannot be used, or a limit is not positive.

    Source: specification, basic/transports/streamable-http.
    """
    from mcp_trio.http.client import HttpTransport  # who speaks stdio needs no TLS

    transport = HttpTransport(
        url,
        ssl_context=ssl_context,
        headers=headers,
        auth=auth,
        proxy=proxy,
        connect_timeout=connect_timeout,
        max_connections=max_connections,
        max_message=max_message,
    )
    try:
        yield Client(transport, **options)
    finally:
        transport.close()


@asynccontextmanager
async def open_stdio_client(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stderr: Callable[[bytes], object] | None = None,
    grace: float = 1.0,
    restart: Backoff | None = None,
    give_up_after: int | None = None,
    max_message: int = MAX_MESSAGE,
    **options: Unpack[ClientOptions],
) -> AsyncGenerator[Client]:
    """Start a server as a child process and speak to it over its standard input and output.

    When the server ends by itself, what is under way fails at once with `errors.ConnectionLost`,
    which knows the exit status and the end of standard error. Without `restart` that is all
    there will be. With it the server is started again, as soon as the backoff allows, and
    requests made meanwhile wait for the next one; no request is ever sent twice. Subscriptions
    end with the server: `Client.listen` opens another, and `Client.watch` does so by itself.

    Leaving the block ends the child, and whatever it started in its process group: its input is
    closed, then after `grace` seconds SIGTERM, after as many again SIGKILL. Cancelling does not
    cut this short.

    Args:
        command: the program and its arguments.
        env: the whole environment of the server; None for a copy of ours.
        cwd: its working directory; None for ours.
        stderr: called with each piece of what the server writes to standard error. The end of
            it is kept in any case, and quoted by the error that says that the server has gone.
        grace: seconds between the steps of ending the server.
        restart: start the server again when it has ended by itself, after such delays. One that
            ends before ``min_uptime`` counts as a failure, as does one that cannot be started;
            that makes the delays grow.
        give_up_after: after so many failures in a row no other server is started, and every
            request raises `errors.ConnectionLost`. By default there is no such limit. Even so no
            request waits for ever: if the server for which it waits cannot be started, or ends
            before it has answered, that is the request's `errors.ConnectionLost`.
        max_message: how many bytes one message of the server may have; by default 16 MiB. A
            longer one is passed over, and if it is a response, its request fails.
        options: what `ClientOptions` describes: who the client is, and who answers the server's
            questions.

    Raises:
        errors.ConnectionLost: the server could not be started, not even once.
        TypeError: the command is a string, or empty.
        ValueError: `max_message` or `give_up_after` is not positive.

    Source: specification, basic/transports/stdio.
    """
    from mcp_trio.transports.restarting import open_restarting_transport
    from mcp_trio.transports.stdio import open_stdio_transport

    if max_message < 1:
        raise ValueError("max_message must be positive")
    connect = functools.partial(
        open_stdio_transport,
        command,
        env=env,
        cwd=cwd,
        stderr=stderr,
        grace=grace,
        max_line=max_message,
    )
    transport: AbstractAsyncContextManager[abc.Transport] = (
        connect()
        if restart is None
        else open_restarting_transport(connect, restart, give_up_after=give_up_after)
    )
    async with transport as opened:
        yield Client(opened, **options)
