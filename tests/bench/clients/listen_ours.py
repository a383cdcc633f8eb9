"""Many subscriptions in one process with `mcp_trio`; says on stdout when all have heard.

python listen_ours.py URL LISTENERS
"""

import sys

import trio

from mcp_trio import Client, SubscriptionFilter, open_http_client

WANTED = SubscriptionFilter(resource_subscriptions=("bench://one",))
AT_ONCE = 32


class Crowd:
    """Counts what all of them hear."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.heard = 0
        self.opening = trio.Semaphore(AT_ONCE)

    def hear(self) -> None:
        """One more; say so when it was the last of a round."""
        self.heard += 1
        if self.heard % self.size == 0:
            print("heard", flush=True)


async def follow(
    client: Client, crowd: Crowd, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Be one of them."""
    async with client.listen(WANTED) as changes:
        task_status.started()
        async for _ in changes:
            crowd.hear()


async def main(url: str, size: int) -> None:
    """Open all, and listen until somebody ends the process."""
    crowd = Crowd(size)
    async with open_http_client(url) as client, trio.open_nursery() as nursery:

        async def open_one() -> None:
            async with crowd.opening:
                await nursery.start(follow, client, crowd)

        async with trio.open_nursery() as opening:
            for _ in range(size):
                opening.start_soon(open_one)
        print("open", flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]))
