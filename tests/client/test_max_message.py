"""How large a message of a server may be: one option, whatever the transport."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from mcp_trio import Client, Server, errors, open_http_client, open_stdio_client, serve_http

PROGRAM = """
import trio
from mcp_trio import Server, serve_stdio
server = Server("large", version="1")
server.add_tool(lambda size: "x" * size, name="text")
trio.run(serve_stdio, server)
"""


@asynccontextmanager
async def over_stdio(**options: Any) -> AsyncIterator[Client]:
    async with open_stdio_client([sys.executable, "-c", PROGRAM], **options) as client:
        yield client


@asynccontextmanager
async def over_http(**options: Any) -> AsyncIterator[Client]:
    server = Server("large", version="1")
    server.add_tool(lambda size: "x" * size, name="text")
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(partial(serve_http, server, port=0))
        async with open_http_client(f"{url}/mcp", **options) as client:
            yield client
        nursery.cancel_scope.cancel()


@pytest.fixture(params=[over_stdio, over_http])
def opened(request: pytest.FixtureRequest) -> Any:
    return request.param


async def text(client: Client, size: int) -> int:
    result = await client.call_tool("text", {"size": size})
    return len(json.dumps(result.content[0].text))  # type: ignore[union-attr]


async def test_large_by_default(opened: Any) -> None:
    """More than the 4 MiB that a server takes: a resource can be larger than what asks for it."""
    with trio.fail_after(20):
        async with opened() as client:
            assert await text(client, 6 * 2**20) > 6 * 2**20


async def test_a_larger_one_fails_its_request_and_no_other(opened: Any) -> None:
    with trio.fail_after(20):
        async with opened(max_message=2000) as client:
            assert await text(client, 1000) == 1002
            with pytest.raises(errors.RemoteProtocolError, match="2000"):
                await text(client, 3000)
            assert await text(client, 1000) == 1002


@pytest.mark.parametrize(
    "opening",
    [
        partial(open_stdio_client, ["no-such-program"], max_message=0),
        partial(open_http_client, "http://localhost/mcp", max_message=0),
    ],
)
async def test_nothing_at_all_makes_no_sense(
    opening: "partial[AbstractAsyncContextManager[Client]]",
) -> None:
    with pytest.raises(ValueError, match="max_message"):
        async with opening():
            raise AssertionError
