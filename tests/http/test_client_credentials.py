"""Credentials that are asked for when they are needed."""

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing
from client_peer import DONE, PARAMS, Peer, ask, connected

from mcp_trio import errors
from mcp_trio.client import AuthRequest
from mcp_trio.protocol import jsonrpc

Seen = list[tuple[str, dict[str, str], bytes]]


class Tokens:
    """Gives a token after the other, and remembers what it was asked."""

    def __init__(self, *tokens: str | None) -> None:
        self.tokens = list(tokens)
        self.asked: list[AuthRequest] = []

    async def __call__(self, request: AuthRequest) -> Mapping[str, str] | None:
        await trio.lowlevel.checkpoint()
        self.asked.append(request)
        token = self.tokens.pop(0)
        return None if token is None else {"Authorization": token}


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_credentials_are_asked_for_once_more(status: int, kind: str) -> None:
    """C-10: a refusal is answered once, with the challenge at hand; a call has not been served."""
    seen: Seen = []
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}'

    async def script(peer: Peer) -> None:
        while True:
            seen.append(await peer.request())
            if seen[-1][1]["authorization"] == "new":
                await peer.json(DONE)
            else:
                extra = f"content-type: {kind}\r\nwww-authenticate: Bearer scope=x\r\n"
                await peer.refuse(f"{status} No", extra, body)

    tokens = Tokens("old", "new", "new")
    headers = {"authorization": "default", "X-Other": "kept"}
    async with connected(script, auth=tokens, headers=headers) as (transport, server):
        for _ in range(2):
            [reply] = await ask(transport, "tools/call")
            assert isinstance(reply, jsonrpc.ResultReply)
        assert server.connections == 1
    assert [headers["authorization"] for _, headers, _ in seen] == ["old", "new", "new"]
    assert [headers["x-other"] for _, headers, _ in seen] == ["kept"] * 3
    assert seen[0][2] == seen[1][2]
    first, again, later = tokens.asked
    assert first == later == AuthRequest(server.url, "tools/call")
    assert again.refused is not None
    assert (again.refused.status, again.refused.www_authenticate) == (status, ("Bearer scope=x",))
    assert again.sent == {"Authorization": "old"}
    assert "old" not in repr(again)


@pytest.mark.parametrize("tokens", [("a", "b"), ("a", None), (None, None)])
async def test_credentials_that_do_not_help(tokens: tuple[str | None, ...]) -> None:
    """C-10: after that the refusal stands."""
    requests = 0

    async def script(peer: Peer) -> None:
        nonlocal requests
        while True:
            await peer.request()
            requests += 1
            await peer.refuse("401 No")

    async with (
        connected(script, auth=Tokens(*tokens)) as (transport, _),
        transport.open_exchange(1, "tools/list", PARAMS) as messages,
    ):
        for _ in range(2):
            with pytest.raises(errors.HttpStatusError, match="401"):
                await messages.receive()
    assert requests == (2 if tokens[1] else 1)


async def test_refusal_with_an_error_of_its_own() -> None:
    """C-10: if no credentials are given, the JSON-RPC error of the refusal is what is raised."""
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"not you"}}'

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.json(body, "403 Forbidden")
        await peer.gone()

    async with connected(script, auth=Tokens("a", None)) as (transport, _):
        [reply] = await ask(transport)
        assert isinstance(reply, jsonrpc.ErrorReply)
        assert reply.error.message == "not you"


async def test_auth_that_fails() -> None:
    """C-10: what it raises is raised by the request, at either time; then the refusal stands."""
    failures: list[Any] = [RuntimeError("first"), None, RuntimeError("second")]

    async def auth(request: AuthRequest) -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        return {}

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.refuse("401 No")
        await peer.gone()

    async with connected(script, auth=auth) as (transport, _):
        with pytest.raises(RuntimeError, match="first"):
            await ask(transport)
        async with transport.open_exchange(1, "tools/list", PARAMS) as messages:
            with pytest.raises(RuntimeError, match="second"):
                await messages.receive()
            with pytest.raises(errors.HttpStatusError):
                await messages.receive()
        assert transport.statistics().open == 0


@pytest.mark.parametrize("given", [{"Host": "x"}, {"A b": "x"}, {"Authorization": "x\r\ny: z"}])
async def test_credentials_that_cannot_be_sent(given: dict[str, str]) -> None:
    async def auth(request: AuthRequest) -> Mapping[str, str]:
        await trio.lowlevel.checkpoint()
        return given

    async with connected(Peer.gone, auth=auth) as (transport, server):
        with pytest.raises(errors.LocalProtocolError, match="credentials") as caught:
            await ask(transport)
        assert "y: z" not in str(caught.value)
        assert server.connections == 0


@pytest.mark.parametrize("how", ["cancelled", "closed", "left"])
async def test_while_credentials_are_being_fetched(how: str) -> None:
    """Cancelling, closing the transport or closing the exchange leaves nothing open."""
    asked, go_on, over = trio.Event(), trio.Event(), trio.Event()

    async def auth(request: AuthRequest) -> Mapping[str, str]:
        if request.refused is not None:
            asked.set()
            await go_on.wait()
        return {}

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.refuse("401 No")
        await peer.gone()

    async def call(scope: trio.CancelScope) -> None:
        with scope:
            async with transport.open_exchange(1, "tools/list", PARAMS) as messages:
                answers.append(messages)
                expected = trio.Cancelled if how == "cancelled" else trio.ClosedResourceError
                with pytest.raises(expected):
                    await messages.receive()
                if how == "cancelled":
                    with trio.CancelScope(shield=True), pytest.raises(errors.HttpStatusError):
                        await messages.receive()
        over.set()

    answers: list[trio.abc.ReceiveChannel[Any]] = []
    async with connected(script, auth=auth) as (transport, _), trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(call, scope)
        await asked.wait()
        if how == "cancelled":
            scope.cancel()
        elif how == "closed":
            transport.close()
        else:
            await answers[0].aclose()
            go_on.set()
        await over.wait()
        statistics = transport.statistics()
        assert (statistics.open, statistics.waiting) == (0, 0)
        assert statistics.idle == (0 if how == "closed" else statistics.idle)


async def test_no_connection_is_used_twice_at_a_time() -> None:
    """The one that brought a refusal may carry another request while credentials are fetched."""
    asked, go_on = trio.Event(), trio.Event()

    async def auth(request: AuthRequest) -> Mapping[str, str]:
        if request.refused is not None:
            asked.set()
            await go_on.wait()
            return {"Authorization": "b"}
        return {"Authorization": "a"} if not asked.is_set() else {"Authorization": "c"}

    async def script(peer: Peer) -> None:
        while True:
            _, headers, _ = await peer.request()
            if headers["authorization"] == "a":
                await peer.refuse("401 No")
            elif headers["authorization"] == "c":
                await held.wait()
                await peer.json(DONE)
            else:
                await peer.json(DONE)

    held = trio.Event()
    async with connected(script, auth=auth) as (transport, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, transport)
            await asked.wait()
            nursery.start_soon(ask, transport, "tools/call")
            await trio.testing.wait_all_tasks_blocked(0.02)
            go_on.set()
            await trio.testing.wait_all_tasks_blocked(0.02)
            held.set()
        assert server.connections == 2
        assert transport.statistics().idle == 2
