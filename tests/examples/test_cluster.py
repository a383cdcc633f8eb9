"""`cluster.py`: four workers on one port, and a Redis of the test's own."""

import signal
from collections.abc import Callable

import trio
from redis_kit import RedisServer, needs_redis
from workers_kit import children_of, is_there, program

from mcp_trio import ResourceUpdated, SubscriptionFilter, open_http_client, types

pytestmark = needs_redis
NOTE = "note://board"


async def test_what_one_worker_changes_all_clients_hear(example_path: Callable[[str], str]) -> None:
    """Through Redis; and in the end the stream has its result."""
    redis = RedisServer()
    try:
        await redis.start()
        command = (example_path("cluster"), "127.0.0.1:0", "--redis", redis.url)
        with trio.fail_after(90):
            async with program(*command) as server:
                url = f"http://127.0.0.1:{server.port}/mcp"
                workers = children_of(server.process.pid)
                assert len(workers) == 4
                writers = set()
                wanted = SubscriptionFilter(resource_subscriptions=(NOTE,))
                async with (
                    open_http_client(url) as reader,
                    reader.listen(wanted) as changes,
                ):
                    for round in range(8):
                        # Each client has a connection of its own, and so a worker of its own.
                        async with open_http_client(url) as writer:
                            result = await writer.call_tool("write", {"text": f"text {round}"})
                            (content,) = result.content
                            assert isinstance(content, types.TextContent)
                            writers.add(content.text)
                        contents: object = None
                        while contents != f"text {round}":
                            # A gap, when the bus is connected, may be one cue more.
                            assert await changes.receive() == ResourceUpdated(NOTE)
                            (read,) = (await reader.read_resource(NOTE)).contents
                            assert isinstance(read, types.TextResourceContents)
                            contents = read.text
                    assert len(writers) > 1
                    server.process.send_signal(signal.SIGTERM)
                    async for _ in changes:
                        pass
                    assert changes.end is not None
                    assert (changes.end.how, changes.end.reason) == ("graceful", "shutdown")
                await server.gone_after()
                assert server.process.returncode == 0
                assert not any(map(is_there, workers))
    finally:
        redis.kill()
