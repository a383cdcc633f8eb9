"""How an HTTP client reaches its server: TCP, perhaps through a proxy, and TLS."""

import ssl
from contextlib import suppress
from typing import Final

import h11
import trio

from mcp_trio import errors
from mcp_trio._causes import leaves
from mcp_trio.http import _wire
from mcp_trio.http._connections import notice_absence
from mcp_trio.http._proxy import Proxy
from mcp_trio.http._refusal import is_refusal, status_error
from mcp_trio.http._target import Target, join_host

__all__ = ["connect"]

_MAX_HEAD: Final = 64 * 1024


async def connect(
    target: Target,
    ssl_context: ssl.SSLContext | None,
    *,
    timeout: float,
    proxy: Proxy | None = None,
) -> _wire.HttpConnection:
    """Open a connection, TLS included; several addresses are tried side by side.

    Cancelling leaves nothing open.

    Args:
        target: where to.
        ssl_context: used if, and only if, the target asks for TLS.
        timeout: seconds for all of it.
        proxy: to go through. For TLS it is asked for a tunnel; what goes to it otherwise has to
            be addressed accordingly.

    Raises:
        errors.ConnectionLost: nobody answers there, or TLS failed; the message says which. Where
            the proxy refuses, the `errors.HttpStatusError` is the cause.
    """
    connection = None
    with trio.move_on_after(timeout):
        connection = await _connect(target, ssl_context, proxy)
    if connection is None:
        way = "" if proxy is None else f" through {proxy}"
        raise errors.ConnectionLost(
            f"cannot connect to {target}{way}: no answer within {timeout:g} s"
        )
    return connection


async def _connect(
    target: Target, ssl_context: ssl.SSLContext | None, proxy: Proxy | None
) -> _wire.HttpConnection:
    tcp = await _open_tcp(target, proxy)
    try:
        if not target.secure:
            return _wire.HttpConnection(tcp, tcp.socket, str(target))
        if proxy is not None:
            await _open_tunnel(tcp, target, proxy)
        tls = trio.SSLStream(
            tcp,
            ssl_context or ssl.create_default_context(),
            server_hostname=target.host,
            https_compatible=True,
        )
        try:
            await tls.do_handshake()
        except trio.BrokenResourceError as problem:
            cause = problem.__cause__ or problem
            raise errors.ConnectionLost(f"TLS with {target} failed: {_reason(cause)}") from cause
        return _wire.HttpConnection(tls, tcp.socket, str(target))
    except BaseException:
        tcp.socket.close()
        raise


async def _open_tcp(target: Target, proxy: Proxy | None) -> trio.SocketStream:
    host, port = (target.host, target.port) if proxy is None else (proxy.host, proxy.port)
    try:
        tcp = await trio.open_tcp_stream(host, port)
    except OSError as problem:
        # One of the attempts' own errors, in place of the group that holds them all.
        cause = leaves(problem.__cause__ or problem)[0]
        what = target if proxy is None else f"{proxy} for {target}"
        raise errors.ConnectionLost(
            f"cannot connect to {what}: {getattr(cause, 'strerror', None) or cause}"
        ) from cause
    notice_absence(tcp.socket)
    return tcp


async def _open_tunnel(  # noqa: ASYNC910 - there is always something to receive
    tcp: trio.SocketStream, target: Target, proxy: Proxy
) -> None:
    where = join_host(target.host, target.port)
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
    headers = [("Host", where), *proxy.headers]
    request = h11.Request(method="CONNECT", target=where, headers=headers)
    data = (connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b"")
    with suppress(trio.BrokenResourceError):  # it may have said why
        await tcp.send_all(data)
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await tcp.receive_some())
            elif not isinstance(event, h11.InformationalResponse):
                break
    except (h11.RemoteProtocolError, trio.BrokenResourceError) as problem:
        raise errors.ConnectionLost(f"{proxy} opens no tunnel to {target}: {problem}") from problem
    assert isinstance(event, h11.Response)  # noqa: S101 - h11 has nothing else to say first
    if is_refusal(event):
        refused = status_error(str(proxy), event, b"")
        raise errors.ConnectionLost(f"no tunnel to {target}: {refused}") from refused
    if connection.trailing_data[0]:
        raise errors.ConnectionLost(f"{proxy} spoke before the tunnel to {target} was used")


def _reason(cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {cause.verify_message}"
    return str(cause) or type(cause).__name__
