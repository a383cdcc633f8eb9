"""Bodies that come compressed although nobody asked for it."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import trio
from client_peer import DONE, NOTE, PARAMS, Peer, ask, connected
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio import errors
from mcp_trio.http._encodings import BodyDecoder
from mcp_trio.protocol import jsonrpc

MEGABYTE = 2**20


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


ENCODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "case": ("GZip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
}


async def answer(peer: Peer, kind: str, encoding: str, body: bytes, *, step: int = 2**16) -> None:
    """Answer a request, in pieces of a size."""
    await peer.request()
    await peer.send(
        f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: {encoding}\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
    )
    for start in range(0, len(body), step):
        await peer.send(body[start : start + step])


@pytest.mark.parametrize("how", ENCODINGS)
@pytest.mark.parametrize("step", [1, 100_000])
async def test_json(how: str, step: int) -> None:
    """It is read as if it were not; and the connection is used again."""
    encoding, compress = ENCODINGS[how]
    text = "".join(map(str, range(50_000)))
    body = compress(json.dumps({**json.loads(DONE), "result": {"text": text}}).encode())
    body = body if step > 1 else compress(DONE)

    async def script(peer: Peer) -> None:
        while True:
            await answer(peer, "application/json", encoding, body, step=step)

    async with connected(script) as (transport, server):
        for _ in range(2):
            [reply] = await ask(transport)
            assert isinstance(reply, jsonrpc.ResultReply)
            assert step == 1 or reply.result["text"] == text
        assert server.connections == 1


async def test_stream() -> None:
    """Events come as they are flushed, not at the end."""
    received = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        deflater = zlib.compressobj(wbits=31)
        for frame in (NOTE, DONE):
            data = deflater.compress(b": x\n\ndata: " + frame + b"\n\n")
            await peer.chunk(data + deflater.flush(zlib.Z_SYNC_FLUSH))
            await received.wait()
        await peer.chunk(deflater.flush())
        await peer.end_chunks()
        await peer.gone()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        assert isinstance(await messages.receive(), jsonrpc.Notification)
        received.set()
        assert isinstance(await messages.receive(), jsonrpc.ResultReply)
        assert messages.comments == 2


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_bombs(kind: str) -> None:
    """What is small on the wire does not become large here."""
    deflater = zlib.compressobj(wbits=31)
    block = b"x" * MEGABYTE
    bomb = deflater.compress(b"data: ")
    for _ in range(200):
        bomb += deflater.compress(block)
    bomb += deflater.flush()
    assert len(bomb) < MEGABYTE

    async def script(peer: Peer) -> None:
        await answer(peer, kind, "gzip", bomb)
        await peer.gone()

    async with connected(script, max_message=MEGABYTE) as (transport, _):
        tracemalloc.start()
        try:
            with pytest.raises(errors.RemoteProtocolError, match=f"more than {MEGABYTE} bytes"):
                await ask(transport)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 8 * MEGABYTE


async def test_bomb_of_events() -> None:
    """A slow consumer is felt here as well: of what one read stands for little is unpacked."""
    events = zlib.compress((b"data: " + NOTE + b"\n\n") * 200_000, wbits=31)
    assert len(events) < 100_000

    async def script(peer: Peer) -> None:
        await answer(peer, "text/event-stream", "gzip", events)
        await peer.gone()

    async with (
        connected(script) as (transport, _),
        transport.open_exchange(1, "tools/call", PARAMS) as messages,
    ):
        for _ in range(5000):
            assert isinstance(await messages.receive(), jsonrpc.Notification)
            assert messages.waiting < 1500


@pytest.mark.parametrize(
    ("encoding", "body", "text"),
    [
        ("br", b"x", "Content-Encoding 'br', which was not asked for"),
        ("gzip, gzip", gzip.compress(gzip.compress(DONE)), "'gzip, gzip', which was not"),
        ("gzip", DONE, "not gzip"),
        ("deflate", b"\x78\x9c" + DONE, "not deflate"),
        ("gzip", gzip.compress(DONE)[:-9], "cut off"),
        ("gzip", gzip.compress(DONE) * 2, "more behind its end"),
        ("gzip", gzip.compress(DONE) + b"x", "more behind its end"),
        ("gzip", gzip.compress(DONE)[:-8] + bytes(8), "not gzip"),
    ],
)
async def test_what_cannot_be_decoded(encoding: str, body: bytes, text: str) -> None:
    async def script(peer: Peer) -> None:
        await answer(peer, "application/json", encoding, body)
        await peer.gone()

    async with connected(script) as (transport, _):
        with pytest.raises(errors.RemoteProtocolError, match=text):
            await ask(transport)


@pytest.mark.parametrize(
    ("encoding", "empty"), [("identity", False), ("Identity", False), ("gzip", True)]
)
async def test_nothing_to_decode(encoding: str, empty: bool) -> None:
    """Something that is not encoded says so at times; something empty may say what it likes."""

    async def script(peer: Peer) -> None:
        await answer(peer, "application/json", encoding, b"" if empty else DONE)

    async with connected(script) as (transport, _):
        if empty:
            with pytest.raises(errors.RemoteProtocolError, match="nothing else"):
                await ask(transport)
        else:
            assert isinstance((await ask(transport))[0], jsonrpc.ResultReply)


async def test_compressed_refusal() -> None:
    """W48: the JSON-RPC error in it, or the beginning of its text, is found."""
    error = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such"}}'
    bodies = [gzip.compress(error), gzip.compress(b"<html>" + b"x" * 1_000_000)]

    async def script(peer: Peer) -> None:
        for body in bodies:
            await peer.request()
            await peer.refuse("404 No", "content-encoding: gzip\r\n", body)
        await peer.gone()

    async with connected(script) as (transport, _):
        [reply] = await ask(transport)
        assert isinstance(reply, jsonrpc.ErrorReply)
        assert isinstance(reply.error, errors.MethodNotFound)
        with pytest.raises(errors.HttpStatusError) as caught:
            await ask(transport)
        assert caught.value.body.startswith("<html>xx")


@given(
    st.lists(st.binary() | st.integers(0, 300_000).map(bytes), max_size=4),
    st.sampled_from(sorted(ENCODINGS)),
    st.data(),
)
def test_any_body_in_any_pieces(parts: list[bytes], how: str, data: st.DataObject) -> None:
    """What comes out is what went in, and no piece of it is large."""
    body = b"".join(parts)
    encoding, compress = ENCODINGS[how]
    wire = compress(body)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=5)))
    decoder = BodyDecoder(encoding, "peer")
    found: list[Any] = []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        decoder.feed(wire[start:end])
        while piece := decoder.piece():
            assert len(piece) <= 2**16
            found.append(piece)
    decoder.end()
    assert b"".join(found) == body
