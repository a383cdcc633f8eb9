"""How many requests are under way at a time."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing
from client_peer import DONE, PARAMS, Peer, ask, connected

from mcp_trio import errors
from mcp_trio.client import AuthRequest
from mcp_trio.http.client import HttpTransport


async def test_connections_are_limited() -> None:
    """Plain requests wait for their turn, first come, first served; subscriptions do not."""
    go_on = trio.Event()
    order: list[Any] = []
    open_now = most = 0

    async def script(peer: Peer) -> None:
        nonlocal open_now, most
        while True:
            *_, body = await peer.request()
            if b"listen" in body:
                await peer.gone()
                return
            open_now += 1
            most = max(most, open_now)
            await go_on.wait()
            open_now -= 1
            await peer.json(DONE)

    async def call(number: int) -> None:
        await ask(transport, "tools/call")
        order.append(number)

    async with connected(script, max_connections=2) as (transport, server):
        async with (
            trio.open_nursery() as nursery,
            transport.open_exchange("a", "subscriptions/listen", PARAMS),
            transport.open_exchange("b", "subscriptions/listen", PARAMS),
            transport.open_exchange("c", "subscriptions/listen", PARAMS),
        ):
            for number in range(6):
                nursery.start_soon(call, number)
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert transport.statistics().waiting == 4
            assert transport.statistics().open == 5
            go_on.set()
        assert most == 2
        assert server.connections == 5
        assert sorted(order) == list(range(6))
        assert transport.statistics().waiting == 0


async def test_waiting_for_a_turn_can_be_given_up() -> None:
    """By cancelling, or by closing the transport; whoever is next is not held up by that."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await ask(transport)
        done.set()

    done = trio.Event()
    async with connected(script, max_connections=1) as (transport, _):
        async with (
            trio.open_nursery() as nursery,
            transport.open_exchange(1, "tools/list", PARAMS),
        ):
            with trio.move_on_after(0.01) as scope:
                await ask(transport)
            assert scope.cancelled_caught
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.01)
            transport.close()
            await done.wait()
        assert transport.statistics().waiting == 0


async def test_turns_are_given_back_however_a_request_ends() -> None:
    """Refused, not connected, lost, cancelled, or with credentials that could not be had."""

    async def script(peer: Peer) -> None:
        *_, body = await peer.request()
        if b"refused" in body:
            await peer.refuse("500 No")
        elif b"cancelled" in body:
            await peer.gone()

    async def auth(request: AuthRequest) -> Mapping[str, str] | None:
        await trio.lowlevel.checkpoint()
        if failing:
            raise RuntimeError
        return None

    failing = False
    async with connected(script, max_connections=1, auth=auth) as (transport, _):
        for name in ("refused", "lost", "cancelled") * 2:
            with trio.move_on_after(0.02 if name == "cancelled" else math.inf):
                with pytest.raises((errors.McpError, trio.Cancelled)):
                    await ask(transport, "tools/call", {**PARAMS, "name": name})
        failing = True
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await ask(transport)
        assert transport._connecting.slots.value == 1


@pytest.mark.parametrize("number", [0, -1])
def test_limits_that_are_none(number: int) -> None:
    with pytest.raises(ValueError, match="max_connections"):
        HttpTransport("http://h/", max_connections=number)
