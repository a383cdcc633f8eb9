"""Answers whose status says no: what is known of them, and redirections."""

import pytest
import trio
import trio.testing
from client_peer import DONE, PARAMS, SSE_HEAD, Peer, ask, connected, serving

from mcp_trio import errors
from mcp_trio.http import _answer
from mcp_trio.protocol import jsonrpc

Seen = list[tuple[str, dict[str, str], bytes]]


# Statuses


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        ("401 Unauthorized", b"", 401),
        ("403 Forbidden", b"", 403),
        ("500 Oops", b"", 500),
        ("502 Bad", b"<html>bad gateway</html>", 502),
        ("400 Bad", b'{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"v"}}',
         errors.UnsupportedProtocolVersion),
        ("400 Bad", b"", 400),
        ("404 No", b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}',
         errors.MethodNotFound),
        ("404 No", b"<html>not here</html>", 404),
        ("405 No", b"", 405),
        ("200 OK", b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x"}}',
         errors.InternalError),
    ],
)  # fmt: skip
async def test_what_a_status_stands_for(
    status: str, body: bytes, expected: int | type[errors.ErrorResponse]
) -> None:
    """W48: an error that the protocol knows, or the status and the beginning of the body."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            kind = "text/html" if body.startswith(b"<") else "application/json"
            await peer.refuse(status, f"content-type: {kind}\r\n", body)

    async with connected(script) as (transport, server):
        for _ in range(2):
            if isinstance(expected, int):
                with pytest.raises(errors.HttpStatusError) as caught:
                    await ask(transport)
                assert caught.value.status == expected
                assert caught.value.body == body.decode()
            else:
                [reply] = await ask(transport)
                assert isinstance(reply, jsonrpc.ErrorReply)
                assert type(reply.error) is expected
        assert server.connections == 1


async def test_what_is_known_of_a_refusal() -> None:
    """W48: the challenges one by one, when to come again, and a text that is cut somewhere."""
    body = "é".encode() + b"\xff" + b"x" * 100_000

    async def script(peer: Peer) -> None:
        await peer.request()
        extra = "www-authenticate: Bearer a=1\r\nretry-after: 3\r\nwww-authenticate: Basic\r\n"
        await peer.refuse("401 No", extra, body)

    async with connected(script) as (transport, _):
        with pytest.raises(errors.HttpStatusError) as caught:
            await ask(transport)
    error = caught.value
    assert error.www_authenticate == ("Bearer a=1", "Basic")
    assert error.retry_after == 3
    assert error.body == "é\ufffd" + "x" * 998


@pytest.mark.parametrize("how", ["silent", "cut", "garbage", "br"])
async def test_body_of_a_refusal_that_does_not_come(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W48: the status is what counts; its body is not waited for without end."""
    monkeypatch.setattr(_answer, "_REFUSAL_GRACE", 0.05 if how == "silent" else 100)

    async def script(peer: Peer) -> None:
        await peer.request()
        encoding = {"garbage": "gzip", "br": "br"}.get(how, "identity")
        await peer.send(
            b"HTTP/1.1 503 Busy\r\nretry-after: 2\r\ncontent-encoding: %s\r\n"
            b"content-length: 100\r\n\r\nbusy" % encoding.encode()
        )
        if how != "cut":
            await trio.sleep_forever()
        await peer.stream.aclose()

    async with connected(script) as (transport, _):
        with pytest.raises(errors.HttpStatusError) as caught:
            await ask(transport, "tools/call")
        assert (caught.value.status, caught.value.retry_after) == (503, 2)
        assert caught.value.body == ("busy" if how in {"silent", "cut"} else "")
        assert transport.statistics().idle == 0


# Redirections


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "308 Permanent Redirect"])
@pytest.mark.parametrize("location", ["/other?a=1", "other?a=1", "{origin}/other?a=1"])
async def test_redirected_within_the_origin(status: str, location: str) -> None:
    """The request is repeated as it was, with what says who asks."""
    seen: Seen = []

    async def script(peer: Peer) -> None:
        while True:
            seen.append(await peer.request())
            if seen[-1][0].startswith("POST /mcp"):
                origin = server.url.removesuffix("/mcp")
                await peer.refuse(status, f"location: {location.format(origin=origin)}\r\n")
            else:
                await peer.json(DONE)

    async with connected(script, headers={"Authorization": "Bearer x"}) as (transport, server):
        params = {**PARAMS, "name": "é", "arguments": {"a": 1}}
        async with transport.open_exchange(1, "tools/call", params, mirrored={"A": 1}) as messages:
            assert isinstance(await messages.receive(), jsonrpc.ResultReply)
        assert server.connections == 1
        assert transport.statistics().idle == 1
    (first, headers, body), (second, *again) = seen
    assert (first, second) == ("POST /mcp HTTP/1.1", "POST /other?a=1 HTTP/1.1")
    assert again == [headers, body]
    assert headers["authorization"] == "Bearer x"
    assert headers["mcp-param-a"] == "1"


@pytest.mark.parametrize(
    ("status", "location"),
    [
        (301, "/other"),
        (302, "/other"),
        (303, "/other"),
        (300, "/other"),
        (307, "{elsewhere}/mcp"),
        (308, "{elsewhere}/mcp"),
        (307, "https://127.0.0.1:{port}/mcp"),
        (307, "http://localhost:{port}/mcp"),
        (307, "http://user@127.0.0.1:{port}/mcp"),
        (307, "//127.0.0.2:{port}/mcp"),
        (307, "\\\\127.0.0.2:{port}/mcp"),
        (307, "file:///etc/passwd"),
        (307, "http://[/"),
        (307, "/a b"),
        (307, "/\xe9"),
        (307, ""),
        (307, None),
    ],
)
async def test_redirections_that_are_refused(status: int, location: str | None) -> None:
    """Credentials never leave the origin, and a request never becomes another."""
    strangers: Seen = []
    requests = 0

    async def stranger(peer: Peer) -> None:
        strangers.append(await peer.request())
        await peer.json(DONE)

    async def script(peer: Peer) -> None:
        nonlocal requests
        while True:
            first, *_ = await peer.request()
            requests += 1
            assert first == "POST /mcp HTTP/1.1" or location == "\\\\127.0.0.2:{port}/mcp"
            extra = ""
            if location is not None:
                port = server.url.split(":")[2].split("/")[0]
                where = elsewhere.url.removesuffix("/mcp")
                extra = f"location: {location.format(elsewhere=where, port=port)}\r\n"
            await peer.send(
                f"HTTP/1.1 {status} x\r\n{extra}content-length: 0\r\n\r\n".encode("latin-1")
            )

    async with (
        serving(stranger) as elsewhere,
        connected(script, headers={"Authorization": "Bearer x"}) as (transport, server),
    ):
        with pytest.raises(errors.HttpStatusError, match=r"redirected to .*not followed") as caught:
            await ask(transport, "tools/call")
        assert caught.value.status == status
        # A backslash is no slash in a URL, so that one is a strange path of this very server.
        assert requests == (6 if location and location.startswith("\\") else 1)
    assert strangers == []


async def test_redirected_round_and_round() -> None:
    """Five times, and no more."""
    seen = []

    async def script(peer: Peer) -> None:
        while True:
            seen.append((await peer.request())[0].split()[1])
            await peer.refuse("307 Again", f"location: /{len(seen)}\r\n")

    async with connected(script) as (transport, server):
        with pytest.raises(errors.HttpStatusError, match="'/6', which is not followed"):
            await ask(transport)
        assert seen == ["/mcp", "/1", "/2", "/3", "/4", "/5"]
        assert server.connections == 1


async def test_stream_that_is_redirected() -> None:
    """A subscription is, too; each attempt has a connection of its own."""

    async def script(peer: Peer) -> None:
        if (await peer.request())[0].startswith("POST /mcp "):
            await peer.refuse("307 There", "location: /mcp/\r\n")
            await peer.gone()
            return
        await peer.send(SSE_HEAD)
        await peer.event(DONE)
        await peer.gone()

    async with connected(script) as (transport, server):
        assert len(await ask(transport, "subscriptions/listen")) == 1
        assert server.connections == 2
        assert transport.statistics().idle == 0
