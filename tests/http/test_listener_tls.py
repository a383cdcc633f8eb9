"""Certificates of the native listener: exchanged while it serves, and those of clients."""

import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trustme
from http_kit import FakeHandler, Peer, post, until

from mcp_trio.http.listener import serve_http
from mcp_trio.transports.abc import Principal

AUTHORITY = trustme.CA()


def server_context(ca: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    return context


@asynccontextmanager
async def serving(context: ssl.SSLContext, **options: Any) -> AsyncIterator[tuple[int, Any]]:
    handler = FakeHandler()
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, handler, port=0, ssl_context=context, **options)
        (url,) = await nursery.start(serve)
        with trio.fail_after(30):
            await trio.lowlevel.checkpoint()
            yield int(url.rpartition(":")[2]), handler
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connect(
    port: int, ca: trustme.CA = AUTHORITY, own: trustme.LeafCert | None = None
) -> AsyncIterator[tuple[Peer, Any]]:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if own is not None:
        own.configure_cert(context)
    tcp = await trio.open_tcp_stream("127.0.0.1", port)
    async with tcp:
        stream = trio.SSLStream(tcp, context, server_hostname="localhost", https_compatible=True)
        await stream.do_handshake()
        yield Peer(stream), stream.getpeercert()


async def test_a_certificate_can_be_exchanged_while_streams_are_open() -> None:
    """The next connection sees the new one; a stream from before goes on."""
    context, other = server_context(), trustme.CA()
    async with serving(context) as (port, handler), connect(port) as (before, shown):
        await before.listen()
        other.issue_cert("localhost").configure_cert(context)
        async with connect(port, other) as (after, shown_now):
            assert shown_now["serialNumber"] != shown["serialNumber"]
            assert (await after.request(post("tools/list"))).status == 200
        with pytest.raises(trio.BrokenResourceError):
            async with connect(port):
                raise AssertionError("unreachable: the old certificate is not shown any more")
        handler.publish()
        assert await before.event()


def by_name(certificate: dict[str, Any]) -> Principal | None:
    names = [value for kind, value in certificate["subjectAltName"] if kind == "DNS"]
    if names == ["trouble"]:
        raise LookupError("no such client")
    return Principal(names[0])


async def test_a_client_certificate_says_who_asks() -> None:
    """For each request on the connection; without one nobody is known."""
    context = server_context()
    AUTHORITY.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    async with serving(context, principal_of=by_name) as (port, handler):
        for name in ("alice", "bob", None):
            own = None if name is None else AUTHORITY.issue_cert(name)
            async with connect(port, own=own) as (peer, _):
                for _ in range(2):
                    await peer.listen()
                    (exchange,) = handler.exchanges
                    known = exchange.principal
                    assert (None if known is None else known.name) == name
                    handler.streams[0].close()
                    assert (await peer.event())["id"] == 1
                    assert await peer.read_chunk() == b""
                    await until(lambda: not handler.exchanges)
        with contextlib.suppress(trio.BrokenResourceError):
            async with connect(port, own=AUTHORITY.issue_cert("trouble")) as (peer, _):
                assert await peer.eof() == b""
        async with connect(port) as (peer, _):
            assert (await peer.request(post("tools/list"))).status == 200


async def test_a_certificate_can_be_demanded() -> None:
    context = server_context()
    AUTHORITY.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    async with serving(context, principal_of=by_name) as (port, _):
        with contextlib.suppress(trio.BrokenResourceError):
            async with connect(port) as (peer, _):
                assert await peer.eof() == b""
        async with connect(port, own=AUTHORITY.issue_cert("alice")) as (peer, _):
            assert (await peer.request(post("tools/list"))).status == 200
