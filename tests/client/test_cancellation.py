"""A client that is cancelled at every step it takes."""

import gc
import itertools
from contextlib import suppress
from typing import Any

import script_kit as say
import trio
from script_kit import Play

from mcp_trio.client.client import Client
from mcp_trio.http.client import HttpTransport
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.transports.client_lines import LineTransport

TOOLS = SubscriptionFilter(tools_list_changed=True)


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope as its task is about to take its nth step."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self._task = trio.lowlevel.current_task()
        self._scope = scope
        self._left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if not self._left:
                self._scope.cancel()


async def use(client: Client) -> None:
    async with client.listen(TOOLS) as changes:
        async for _ in changes:
            pass
    await client.list_tools()


async def test_cancelled_at_every_step(play: Play) -> None:
    """W43, W61: opening, receiving, leaving, asking; nothing is left behind at any of them."""

    async def script(peer: Any) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, AssertionError):
            listen = await peer.expect("subscriptions/listen")
            change = say.tagged(listen, "notifications/tools/list_changed")
            await peer.send(listen, say.ack(listen), change)
            await peer.send(listen, say.done(listen))
            request = await peer.expect("tools/list")
            await peer.send(request, say.answer(request, {"tools": []}))

    for step in itertools.count(1):
        async with play(script) as client:
            with trio.CancelScope() as scope:
                instrument = CancelAtStep(scope, step)
                trio.lowlevel.add_instrument(instrument)
                try:
                    await use(client)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            transport = client.transport
            if isinstance(transport, HttpTransport):
                assert transport.statistics().open == 0
            else:
                assert isinstance(transport, LineTransport)
                assert transport.statistics().open_exchanges == 0
        gc.collect()  # a socket that was forgotten warns, and a warning is an error
        if not scope.cancelled_caught:
            break
    assert step > 3
