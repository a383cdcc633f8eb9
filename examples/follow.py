"""Follow a server's changes: print each, with what the resource reads as afterwards.

    python examples/follow.py http://127.0.0.1:8000/mcp
    python examples/follow.py -- python examples/watch_folder.py FOLDER

It watches the list of resources on one stream and every resource on it on another. A filter is
fixed when it is opened, so when the list changes the second stream is replaced: the new one is
open before the old one is left, and everything is read once more after that.
"""

import argparse
import sys
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit

import trio

from mcp_trio import (
    Client,
    ResourceUpdated,
    SubscriptionFilter,
    open_http_client,
    open_stdio_client,
)
from mcp_trio.errors import ErrorResponse, McpError
from mcp_trio.types import BlobResourceContents, TextResourceContents

MAX_URIS = 1000
"""How many resources are watched; servers refuse longer filters."""

Shown = dict[str, object]
"""What each URI read as when it was last printed."""


def open_client(target: list[str]) -> AbstractAsyncContextManager[Client]:
    """A client for a URL, or for a command to run."""
    if len(target) == 1 and urlsplit(target[0]).scheme in {"http", "https"}:
        return open_http_client(target[0])
    return open_stdio_client(target)


async def show(client: Client, uri: str, shown: Shown) -> None:
    """Read a resource, and print the beginning of it unless it is as it was last shown."""
    try:
        contents = (await client.read_resource(uri)).contents
    except ErrorResponse as error:
        contents, text = (), error.message
    else:
        text = ", ".join(map(brief, contents))
    if shown.get(uri) != (contents, text):
        shown[uri] = (contents, text)
        print(f"  {uri}: {text}")


def brief(contents: TextResourceContents | BlobResourceContents) -> str:
    """The beginning of a text, the size of anything else."""
    if isinstance(contents, TextResourceContents):
        return repr(contents.text[:60])
    return f"{len(contents.blob)} characters of Base64"


async def follow_resources(
    client: Client,
    shown: Shown,
    *,
    task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Print the changes of the resources there are now."""
    uris = [resource.uri for resource in await client.all_resources()][:MAX_URIS]
    with trio.CancelScope() as scope:
        # The list changes are asked for as well, so that the filter is never empty.
        wanted = SubscriptionFilter(resources_list_changed=True, resource_subscriptions=tuple(uris))
        async with client.listen(wanted) as changes:
            task_status.started(scope)
            print(f"watching {len(changes.acknowledged.resource_subscriptions)} resources")
            # First subscribe, then read: what changed before, and what a stream that was left
            # had still to say, is in what is read now.
            for uri in uris:
                await show(client, uri, shown)
            async for change in changes:
                if isinstance(change, ResourceUpdated):
                    print(change)
                    await show(client, change.uri, shown)


async def follow(client: Client) -> None:
    """Print changes until the server ends the stream."""
    shown: Shown = {}
    async with trio.open_nursery() as nursery:
        async with client.listen(SubscriptionFilter(resources_list_changed=True)) as lists:
            current = await nursery.start(follow_resources, client, shown)
            async for change in lists:
                print(change)
                # The new stream is acknowledged before the old one is left.
                newer = await nursery.start(follow_resources, client, shown)
                current.cancel()
                current = newer
        print(f"the server ended the stream: {lists.end}")
        nursery.cancel_scope.cancel()


async def main(target: list[str]) -> None:
    """Open the client and follow."""
    async with open_client(target) as client:
        await follow(client)


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first real exception in a group of groups."""
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", nargs="+", help="a URL, or -- and a command")
    try:
        trio.run(main, parser.parse_args().target)
    except* McpError as lost:  # from one of several tasks, so in a group
        sys.exit(f"lost: {first_of(lost)}")
    except* KeyboardInterrupt:
        pass
