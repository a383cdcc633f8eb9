"""A client's block can be left at any moment, and leaves nothing behind.

Each scenario is run again and again. The k-th run is cancelled at the k-th step that any task
takes, Trio counts them, just before it and just after it, until one run gets to its end. After
each there must be no task, no file descriptor and no child process that was not there before, and
no subscription at the server.
"""

import contextlib
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import attrs
import pytest
import trio
from wire_http import HttpWire, open_http
from wire_kit import Frame, Open, acknowledgement, tools_changed

from mcp_trio import (
    Client,
    Hub,
    Server,
    SubscriptionFilter,
    ToolsListChanged,
    codec,
    open_http_client,
    open_memory_client,
    open_stdio_client,
)
from mcp_trio.testing import memory_pipe
from mcp_trio.transports.lines import open_line_transport, serve_lines

WANTED = SubscriptionFilter(tools_list_changed=True)


@attrs.frozen
class Held:
    """What this process has at a moment."""

    tasks: frozenset[str]
    files: frozenset[str]
    children: frozenset[str]

    @classmethod
    def now(cls) -> "Held":
        root = trio.lowlevel.current_root_task()
        assert root is not None
        return cls(
            frozenset(f"{task.name} {id(task)}" for task in _below(root)),
            frozenset(_open_files()),
            frozenset(_children()),
        )

    def more_than(self, before: "Held") -> list[str]:
        """What was not there before."""
        return [
            *(self.tasks - before.tasks),
            *(self.files - before.files),
            *(self.children - before.children),
        ]


def _below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from _below(child)


def _open_files() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 (an open directory is a file too)
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            yield f"{number} {os.readlink(f'/proc/self/fd/{number}')}"  # noqa: PTH115


def _children() -> Iterator[str]:
    for thread in Path("/proc/self/task").iterdir():
        yield from (thread / "children").read_text().split()


class CancelAtStep(trio.abc.Instrument):
    """Cancel a scope at the k-th step of all tasks together."""

    def __init__(self, step: int, when: str) -> None:
        self.step, self.when = step, when
        self.steps = 0
        self.scope = trio.CancelScope()

    def before_task_step(self, _: trio.lowlevel.Task) -> None:
        self.steps += 1
        self.strike("before")

    def after_task_step(self, _: trio.lowlevel.Task) -> None:
        self.strike("after")

    def strike(self, when: str) -> None:
        if self.steps == self.step and self.when == when:
            self.scope.cancel()


async def cancel_everywhere(
    scenario: Callable[[], Awaitable[None]], is_over: Callable[[], bool], *, at_least: int
) -> None:
    """Cancel a scenario at each of its steps, and look each time at what is left of it.

    Args:
        scenario: what a client does.
        is_over: whether the server has noticed; it gets a moment for that.
        at_least: how many steps there have to be, or else nothing was tried.
    """
    await scenario()  # what a first time leaves behind, in caches and threads, is no leak
    before = Held.now()
    for turn in itertools.count():
        step, when = 1 + turn // 2, ("before", "after")[turn % 2]
        instrument = CancelAtStep(step, when)
        trio.lowlevel.add_instrument(instrument)
        try:
            with instrument.scope:
                await scenario()
        finally:
            trio.lowlevel.remove_instrument(instrument)
        with trio.fail_after(5):
            while not is_over():
                await trio.sleep(0.001)
        left = Held.now().more_than(before)
        assert not left, f"cancelled {when} step {step}: {left}"
        if not instrument.scope.cancel_called:
            break
    assert step > at_least


async def follow(client: Client, publish: Callable[[], object]) -> None:
    """What a client does in every scenario."""
    async with client.listen(WANTED) as changes:
        publish()
        assert await changes.receive() == ToolsListChanged()
        await client.list_tools()


def a_server() -> tuple[Server, Callable[[], object]]:
    """A server with something to list, and what publishes a change of it."""
    hub = Hub()
    server = Server("a", version="1", hub=hub)

    @server.tool
    async def nothing() -> None:
        """Do nothing."""

    return server, lambda: hub.publish(ToolsListChanged())


async def test_in_memory() -> None:
    """S-55, C-40, W42, W43: the server's task is gone when the block has been left."""
    server, publish = a_server()

    async def scenario() -> None:
        async with open_memory_client(server) as client:
            await follow(client, publish)

    await cancel_everywhere(scenario, lambda: server.statistics().requests == 0, at_least=8)


async def test_over_lines() -> None:
    """S-55, C-40, W43, W67: over a pair of streams that belong to the block."""
    server, publish = a_server()

    async def scenario() -> None:
        to_server, server_reads = memory_pipe()
        server_writes, from_server = memory_pipe()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_lines, server, server_reads, server_writes)
            async with open_line_transport(from_server, to_server) as transport:
                await follow(Client(transport), publish)

    await cancel_everywhere(scenario, lambda: server.statistics().requests == 0, at_least=25)


async def test_over_http(connect_by_http: Open) -> None:
    """S-55, C-40, W03, W43: no socket is left, and the server's end of each is gone soon."""
    async with connect_by_http() as wire:
        assert isinstance(wire, HttpWire)
        assert wire.server is not None
        hub = wire.server.hub
        assert hub is not None
        settled: list[Held] = []

        async def scenario() -> None:
            async with open_http_client(f"http://127.0.0.1:{wire.port}/mcp") as client:
                await follow(client, lambda: hub.publish(ToolsListChanged()))

        def is_over() -> bool:
            # The server's sockets and tasks are in this process as well.
            assert wire.server is not None
            return wire.server.statistics().requests == 0 and not Held.now().more_than(settled[0])

        settled.append(Held.now())
        await scenario()
        with trio.fail_after(5):
            while not is_over():
                await trio.sleep(0.001)
        await cancel_everywhere(scenario, is_over, at_least=20)


def line(frame: Frame) -> str:
    """A line for a shell to write; an apostrophe would end it early."""
    text = codec.encode_json(frame).decode()
    assert "'" not in text
    return f"echo '{text}'"


TOOLS_LISTED: Frame = {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", "tools": []}}
SCRIPT = f"""
read listen
{line(acknowledgement("listen-1", toolsListChanged=True))}
{line(tools_changed("listen-1"))}
read list
{line(TOOLS_LISTED)}
"""
POLITE = SCRIPT + "exec cat >/dev/null"
STUBBORN = f"trap '' TERM\n{SCRIPT}\nexec sleep 60"
GONE = SCRIPT + "exit 1"


@pytest.mark.parametrize("script", [POLITE, STUBBORN, GONE], ids=["polite", "stubborn", "gone"])
async def test_over_stdio(script: str) -> None:
    """S-55, C-40, W25, W43, W87: the process and its pipes are gone, whatever its manners.

    One ends with its input, one has to be killed, and one ends by itself.
    """
    grace = 1.0 if script is POLITE else 0.01

    async def scenario() -> None:
        async with open_stdio_client(["/bin/sh", "-c", script], grace=grace) as client:
            await follow(client, lambda: None)

    await cancel_everywhere(scenario, lambda: True, at_least=20)


async def test_by_an_exception() -> None:
    """W62: what the user raises comes out as itself, over all of them, and nothing is left."""
    server, _ = a_server()
    before = None
    for _ in range(2):
        with pytest.raises(LookupError, match="mine"):
            async with open_memory_client(server) as client, client.listen(WANTED):
                raise LookupError("mine")
        with pytest.raises(LookupError, match="mine"):
            async with (
                open_stdio_client(["/bin/sh", "-c", POLITE]) as client,
                client.listen(WANTED),
            ):
                raise LookupError("mine")
        before = Held.now() if before is None else before
    assert before is not None
    assert not Held.now().more_than(before)
    assert server.statistics().requests == 0


async def test_two_blocks_at_once_left_in_one_stroke() -> None:
    """S-55, C-02, W61: several subscriptions in tasks of their own, cancelled together."""
    async with open_http() as wire:
        assert wire.server is not None

        async def listen(client: Client, opened: trio.Event) -> None:
            async with client.listen(WANTED) as changes:
                opened.set()
                await changes.receive()

        url = f"http://127.0.0.1:{wire.port}/mcp"
        for _ in range(2):
            async with open_http_client(url) as client, trio.open_nursery() as nursery:
                events = [trio.Event() for _ in range(20)]
                for opened in events:
                    nursery.start_soon(listen, client, opened)
                for opened in events:
                    await opened.wait()
                nursery.cancel_scope.cancel()
            await wire.until_subscriptions(0, within=1)
