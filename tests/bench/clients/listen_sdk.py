"""Many subscriptions in one process with the official Python SDK; it runs in its environment.

python listen_sdk.py URL LISTENERS
"""

import sys

import anyio
import httpx2
from anyio.abc import TaskStatus
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

AT_ONCE = 32
REVISION = "2026-07-28"


class Crowd:
    """Counts what all of them hear."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.heard = 0
        self.opening = anyio.Semaphore(AT_ONCE)

    def hear(self) -> None:
        """One more; say so when it was the last of a round."""
        self.heard += 1
        if self.heard % self.size == 0:
            print("heard", flush=True)


async def follow(
    client: Client, crowd: Crowd, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Be one of them."""
    async with client.listen(resource_subscriptions=["bench://one"]) as changes:
        task_status.started()
        async for _ in changes:
            crowd.hear()


async def main(url: str, size: int) -> None:
    """Open all, and listen until somebody ends the process."""
    crowd = Crowd(size)
    # By default its HTTP client holds no more than a hundred connections.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    async with (
        httpx2.AsyncClient(limits=limits, timeout=httpx2.Timeout(60, read=None)) as http,
        Client(streamable_http_client(url, http_client=http), mode=REVISION) as client,
        anyio.create_task_group() as nursery,
    ):

        async def open_one() -> None:
            async with crowd.opening:
                await nursery.start(follow, client, crowd)

        async with anyio.create_task_group() as opening:
            for _ in range(size):
                opening.start_soon(open_one)
        print("open", flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]))
