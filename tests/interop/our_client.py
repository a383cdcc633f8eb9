"""Our client and the official servers in Python and TypeScript, over HTTP and over stdio.

    python tests/interop/our_client.py --cache FOLDER

The SDKs come into FOLDER, once; npm is needed for the one in TypeScript. Exit status 0 if all is
well. The servers are `servers/sdk_server.py` and `servers/ts_server.mjs`.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio
from peers import install_python_sdk, install_ts_sdk

from mcp_trio import (
    Backoff,
    Client,
    ResourceUpdated,
    Resync,
    SubscriptionFilter,
    ToolsListChanged,
    errors,
    open_http_client,
    open_stdio_client,
    types,
)
from mcp_trio.client import Snapshot, Watcher, accept_form

SERVERS = Path(__file__).parent / "servers"
NOTE = SubscriptionFilter(resource_subscriptions=("note://a",))
SLOW = SubscriptionFilter(resource_subscriptions=("note://slow",))
QUICKLY = Backoff(initial=0.05, maximum=0.5, min_uptime=0.5)
PATIENCE = 30
"""Seconds for each check."""


async def fill_in(form: types.ElicitRequestFormParams) -> types.ElicitResult:
    """Say a name."""
    return accept_form(form, {"name": "Alice"})


async def sample(params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    """Be a model that knows one thing."""
    text = types.TextContent(text="Paris")
    return types.CreateMessageResult(role="assistant", content=text, model="m")


async def list_roots(params: types.ListRootsRequestParams) -> types.ListRootsResult:
    """Have one root."""
    return types.ListRootsResult(roots=[types.Root(uri="file:///tmp")])


HANDLERS: dict[str, Any] = {
    "on_elicitation": fill_in,
    "on_sampling": sample,
    "on_roots": list_roots,
}


@attrs.define
class Peer:
    """A server that can be killed, and comes back.

    Attributes:
        client: talks to it.
        start: starts it again; it is None for one that the client starts by itself.
        pid: the process that it was last.
    """

    client: Client
    start: Callable[[], int] | None
    pid: int = 0

    async def wait_there(self) -> None:
        """Wait until it answers, and note which process it is."""
        while True:
            with contextlib.suppress(errors.ConnectionLost):
                self.pid = int(text_of(await self.client.call_tool("pid")))
                return
            await trio.sleep(0.05)

    def kill(self) -> None:
        """End it as a crash does."""
        os.kill(self.pid, signal.SIGKILL)

    def come_back(self) -> None:
        """Have another one take its place."""
        if self.start is not None:
            self.start()


def text_of(result: types.CallToolResult) -> str:
    """The text of a tool's result."""
    [content] = result.content
    assert not result.is_error, result
    assert isinstance(content, types.TextContent)
    return content.text


async def check_requests(peer: Peer) -> None:
    """Discover, list, call with progress, read, prompts, completion, and questions."""
    client = peer.client
    found = await client.discover()
    assert found.supported_versions == ("2026-07-28",), found
    names = [tool.name async for tool in client.tools()]
    assert names == [tool.name for tool in await client.all_tools()]
    assert {"echo", "publish", "ask"} <= set(names)
    assert text_of(await client.call_tool("echo", {"text": "Größe"})) == "Größe"
    seen: list[tuple[float, str | None]] = []

    async def note(progress: types.ProgressNotificationParams) -> None:
        seen.append((progress.progress, progress.message))

    await client.call_tool("progress", {"steps": 3}, progress=note)
    assert seen == [(1, "step 1"), (2, "step 2"), (3, "step 3")], seen
    assert text_of(await client.call_tool("ask")) == "Alice, Paris, 1"
    uris = {resource.uri for resource in await client.all_resources()}
    assert uris == {"note://a", "note://slow"}, uris
    [template] = await client.all_resource_templates()
    assert template.uri_template == "note://of/{name}"
    for uri, text in (("note://a", "text of a"), ("note://of/bob", "text of bob")):
        [contents] = (await client.read_resource(uri)).contents
        assert isinstance(contents, types.TextResourceContents)
        assert contents.text == text
    [prompt] = await client.all_prompts()
    [message] = (await client.get_prompt(prompt.name, {"name": "Bob"})).messages
    assert isinstance(message.content, types.TextContent)
    assert message.content.text == "Hello, Bob!"
    reference = types.PromptReference(name=prompt.name)
    argument = types.CompletionArgument(name="name", value="A")
    completion = (await client.complete(reference, argument)).completion
    assert completion.values == ("Alice", "Alan"), completion


async def check_requests_that_fail(peer: Peer) -> None:
    """Refused requests, and one that is cancelled: the connection is as good as before."""
    client = peer.client
    requests = {"no/such/method": {}, "resources/read": {"uri": "note://unknown"}}
    for method, params in requests.items():
        try:
            answer = await client.request(method, params)
        except errors.ErrorResponse:
            continue
        raise AssertionError(f"{method} was answered: {answer}")
    with trio.move_on_after(0.1) as scope:
        await client.read_resource("note://slow")
    assert scope.cancelled_caught
    assert text_of(await client.call_tool("echo", {"text": "there"})) == "there"


async def check_listen(peer: Peer) -> None:
    """Changes of a resource and of a list arrive, and the end is graceful."""
    client = peer.client
    wanted = attrs.evolve(NOTE, tools_list_changed=True)
    async with client.listen(wanted) as changes:
        assert changes.acknowledged == wanted, changes.acknowledged
        await client.call_tool("publish", {"uri": "note://other"})
        await client.call_tool("publish", {"uri": "note://a"})
        assert await changes.receive() == ResourceUpdated("note://a")
        await client.call_tool("touch_tools")
        assert await changes.receive() == ToolsListChanged()
        await client.call_tool("hang_up")
        assert [change async for change in changes] == []
        assert changes.end is not None
        assert changes.end.how == "graceful", changes.end


async def check_leaving(peer: Peer) -> None:
    """A subscription that is left ends, and another one is as good as new."""
    for _ in range(3):
        async with peer.client.listen(NOTE) as changes:
            await peer.client.call_tool("publish", {"uri": "note://a"})
            await changes.receive()


async def expect_events(peer: Peer, changes: Watcher) -> None:
    """What is published from now on arrives."""
    await peer.client.call_tool("publish", {"uri": "note://a"})
    assert await changes.receive() == ResourceUpdated("note://a")


async def expect_resync(changes: Watcher) -> None:
    """The next thing to hear of is that changes may have been missed."""
    change = await changes.receive()
    assert isinstance(change, Resync), change


async def check_watch_over_a_graceful_end(peer: Peer) -> None:
    """The server ends the stream; the watch opens another and says so."""
    async with peer.client.watch(NOTE, backoff=QUICKLY) as changes:
        await expect_events(peer, changes)
        await peer.client.call_tool("hang_up")
        await peer.wait_there()
        await expect_resync(changes)
        await expect_events(peer, changes)


async def check_kill_while_idle(peer: Peer) -> None:
    """Nothing is under way when the server dies."""
    await peer.wait_there()
    async with peer.client.watch(NOTE, backoff=QUICKLY) as changes:
        await expect_events(peer, changes)
        peer.kill()
        peer.come_back()
        await expect_resync(changes)
        await peer.wait_there()
        await expect_events(peer, changes)


async def check_kill_before_the_acknowledgement(peer: Peer) -> None:
    """The request has gone out, to a server that never answers it."""
    await peer.wait_there()
    os.kill(peer.pid, signal.SIGSTOP)

    async def kill() -> None:
        await trio.sleep(0.3)  # nothing tells that the request is in the kernel's hands
        peer.kill()
        peer.come_back()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        async with peer.client.watch(NOTE, backoff=QUICKLY) as changes:
            assert changes.acknowledged == NOTE
            await peer.wait_there()
            await expect_events(peer, changes)


async def check_kill_during_the_snapshot(peer: Peer) -> None:
    """It dies while the first state is read; the one of its successor is whole."""
    await peer.wait_there()
    async with peer.client.watch(SLOW, snapshot=True, backoff=QUICKLY) as changes:
        peer.kill()
        peer.come_back()
        heard: list[Any] = []
        while not (heard and isinstance(heard[-1], Snapshot) and _is_whole(heard[-1])):
            heard.append(await changes.receive())
        assert any(isinstance(change, Resync) for change in heard), heard
    await peer.wait_there()


def _is_whole(snapshot: Snapshot) -> bool:
    return all(each.error is None for each in snapshot.contents.values())


async def check_kill_during_the_backoff(peer: Peer) -> None:
    """It dies again and again, and stays away for several attempts."""
    await peer.wait_there()
    async with peer.client.watch(NOTE, backoff=QUICKLY) as changes:
        peer.kill()
        if peer.start is not None:
            while changes.statistics().failures < 3:
                await trio.sleep(0.05)
        else:
            for _ in range(2):
                await peer.wait_there()
                peer.kill()
        peer.come_back()
        await expect_resync(changes)
        await peer.wait_there()
        while True:  # each of those that died may have had a stream of its own
            await peer.client.call_tool("publish", {"uri": "note://a"})
            if await changes.receive() == ResourceUpdated("note://a"):
                break


CHECKS: Sequence[Callable[[Peer], Awaitable[None]]] = (
    check_requests,
    check_requests_that_fail,
    check_leaving,
    check_listen,
    check_watch_over_a_graceful_end,
    check_kill_while_idle,
    check_kill_before_the_acknowledgement,
    check_kill_during_the_snapshot,
    check_kill_during_the_backoff,
)


@contextlib.asynccontextmanager
async def over_stdio(command: Sequence[str]) -> AsyncIterator[Peer]:
    """A server that our client starts, again and again."""
    async with open_stdio_client([*command, "stdio"], restart=QUICKLY, **HANDLERS) as client:
        yield Peer(client, None)


@contextlib.asynccontextmanager
async def over_http(command: Sequence[str]) -> AsyncIterator[Peer]:
    """A server on a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        process = subprocess.Popen([*command, "http", str(port)])
        started.append(process)
        return process.pid

    try:
        start()
        async with open_http_client(f"http://127.0.0.1:{port}/mcp", **HANDLERS) as client:
            yield Peer(client, start)
    finally:
        for process in started:
            process.kill()
            process.wait()


async def run(name: str, command: Sequence[str]) -> int:
    """Do all of it with one server, over both transports; how much of it has failed."""
    failed = 0
    for transport in (over_http, over_stdio):
        for check in CHECKS:
            what = f"{name}, {transport.__name__}, {check.__name__}"
            try:
                with trio.fail_after(PATIENCE):
                    async with transport(command) as peer:
                        await peer.wait_there()
                        await check(peer)
            except Exception as problem:  # noqa: BLE001 - whatever it is, the others go on
                print(f"{what}: {problem!r}")
                failed += 1
    print(f"{name}: {2 * len(CHECKS) - failed} of {2 * len(CHECKS)} had the right outcome")
    return failed


def main() -> int:
    """Install what is missing, and do everything with each server."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True)
    cache = parser.parse_args().cache
    python = install_python_sdk(cache / "sdk")
    packages = install_ts_sdk(cache / "ts")
    failed = trio.run(run, "Python SDK", [str(python), str(SERVERS / "sdk_server.py")])
    failed += trio.run(
        run, "TypeScript SDK", ["node", str(SERVERS / "ts_server.mjs"), str(packages)]
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
