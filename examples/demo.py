"""The whole story in a few seconds: a server, a client that follows it, and every kind of ending.

    python examples/demo.py

Starts `watch_folder.py` on a temporary folder, over HTTP on Hypercorn, over HTTP natively and over
stdio in turn, and shows an acknowledgement, changes with what was re-read, a burst that arrives as
one event, and a graceful end. Exits 0 if all of that happened.
"""

import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from mcp_trio import (
    Client,
    ResourcesListChanged,
    ResourceUpdated,
    Subscription,
    SubscriptionFilter,
    open_http_client,
    open_stdio_client,
)
from mcp_trio.types import TextResourceContents

SERVER = Path(__file__).with_name("watch_folder.py")
BURST = 200


async def read(client: Client, uri: str) -> str:
    """The text of a resource."""
    (contents,) = (await client.read_resource(uri)).contents
    if not isinstance(contents, TextResourceContents):
        raise TypeError(f"{uri} is not a text")
    return contents.text


async def until_reads(client: Client, changes: Subscription, uri: str, text: str) -> int:
    """Follow changes until the resource reads as expected; how many events that took."""
    count = 0
    async for change in changes:
        count += change == ResourceUpdated(uri)
        if await read(client, uri) == text:
            return count
    raise RuntimeError("the stream ended too early")


async def follow_changes(client: Client, changes: Subscription, folder: Path) -> None:
    """Change files and see each change arrive."""
    note = folder / "note.txt"
    uri = note.as_uri()
    print(f"  acknowledged: {changes.acknowledged.to_wire()}")
    print(f"  declined:     {changes.declined.to_wire()}")

    note.write_text("a new line")
    await until_reads(client, changes, uri, "a new line")
    print("  changed:      note.txt now reads 'a new line'")

    (folder / "second.txt").write_text("hello")
    async for change in changes:
        if change == ResourcesListChanged():
            break
    names = [resource.name for resource in (await client.list_resources()).resources]
    print(f"  list changed: {names}")

    for number in range(BURST):
        note.write_text(f"version {number}")
    events = await until_reads(client, changes, uri, f"version {BURST - 1}")
    print(f"  burst:        {BURST} writes arrived as {events} event(s), the last one not missed")
    if events >= BURST:
        raise RuntimeError("nothing was coalesced")


def wanted(folder: Path) -> SubscriptionFilter:
    """What the demonstration watches. There are no prompts, so that part is declined."""
    return SubscriptionFilter(
        resources_list_changed=True,
        prompts_list_changed=True,
        resource_subscriptions=((folder / "note.txt").as_uri(),),
    )


async def over_http(host: str, folder: Path) -> None:
    """The server in a process of its own; it is told to stop and says goodbye."""
    command = [sys.executable, SERVER, folder, f"--{host}", "127.0.0.1:0"]
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            partial(trio.run_process, command, stderr=subprocess.PIPE)
        )
        url = await read_url(process)
        print(f"over HTTP with --{host}, {url}")
        async with (
            open_http_client(url) as client,
            client.listen(wanted(folder)) as changes,
        ):
            await follow_changes(client, changes, folder)
            process.send_signal(signal.SIGTERM)
            async for _ in changes:
                pass
            print(f"  ended:        {changes.end}")


async def read_url(process: trio.Process) -> str:
    """Wait for the line in which the server says where it is."""
    if process.stderr is None:
        raise ValueError("standard error is not a pipe")
    text = ""
    async for chunk in process.stderr:
        text += chunk.decode()
        for line in text.splitlines():
            if line.startswith("serving ") and text.endswith("\n"):
                return line.removeprefix("serving ")
    raise RuntimeError(f"the server did not start: {text}")


async def over_stdio(folder: Path) -> None:
    """The server as a child of the client, which leaves when it has seen enough."""
    print("over stdio")
    async with open_stdio_client([sys.executable, str(SERVER), str(folder)]) as client:
        async with client.listen(wanted(folder)) as changes:
            await follow_changes(client, changes, folder)
        print(f"  ended:        {changes.end}")


async def main() -> None:
    """Run all of it, each time on a folder of its own."""
    for part in (partial(over_http, "hypercorn"), partial(over_http, "http"), over_stdio):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()  # noqa: ASYNC240 -- nobody waits for this disk
            (folder / "note.txt").write_text("the first line")
            with trio.fail_after(20):
                await part(folder)


if __name__ == "__main__":
    trio.run(main)
