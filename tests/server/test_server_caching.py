"""Caching hints: per server, per method, per resource."""

import json
from typing import Any, get_args

import pytest
from request_meta import META
from server_kit import Recorder, ask, request, result_of

from mcp_trio import types
from mcp_trio.server import CacheHints, Context, Server
from mcp_trio.server.caching import CachedMethod
from mcp_trio.transports.abc import Principal


def nothing() -> str:
    return ""


def hints_of(result: dict[str, Any]) -> tuple[int, str]:
    return result["ttlMs"], result["cacheScope"]


async def test_every_cacheable_result_has_hints() -> None:
    """Without a word they are stale at once and private; no other result has hints."""
    server = Server("s", version="1")
    server.add_resource("x://a", nothing)
    server.add_prompt(nothing)
    server.add_tool(nothing)
    for method in get_args(CachedMethod):
        params = {"uri": "x://a"} if method == "resources/read" else {}
        assert hints_of(await result_of(server, method, **params)) == (0, "private")
    for method in ("tools/call", "prompts/get"):
        result = await result_of(server, method, name="nothing")
        assert "ttlMs" not in result
        assert "cacheScope" not in result


async def test_hints_by_method() -> None:
    """A hint that a method leaves open is the server's."""
    server = Server(
        "s",
        version="1",
        ttl_ms=1,
        cache_hints={
            "server/discover": CacheHints(2, "public"),
            "tools/list": CacheHints(cache_scope="public"),
            "resources/list": CacheHints(3),
            "resources/read": CacheHints(4),
        },
    )
    server.add_resource("x://a", nothing)
    server.add_prompt(nothing)
    server.add_tool(nothing)
    expected = {
        "server/discover": (2, "public"),
        "tools/list": (1, "public"),
        "prompts/list": (1, "private"),
        "resources/list": (3, "private"),
        "resources/templates/list": (1, "private"),
    }
    for method, hints in expected.items():
        assert hints_of(await result_of(server, method)) == hints
    assert hints_of(await result_of(server, "resources/read", uri="x://a")) == (4, "private")


async def test_hints_of_one_resource() -> None:
    """What the handler says of what it read comes first, then the resource, then the server."""
    server = Server("s", version="1", cache_hints={"resources/read": CacheHints(4, "public")})

    def exact() -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[], ttl_ms=9, cache_scope="private")

    server.add_resource("x://a", nothing, ttl_ms=0)
    server.add_resource("x://b", nothing, cache_scope="private")
    server.add_resource("x://c", exact, ttl_ms=5, cache_scope="public")
    server.add_resource_template("y://{a}", lambda a: a, ttl_ms=6)
    expected = {
        "x://a": (0, "public"),
        "x://b": (4, "private"),
        "x://c": (9, "private"),
        "y://a": (6, "public"),
    }
    for uri, hints in expected.items():
        assert hints_of(await result_of(server, "resources/read", uri=uri)) == hints


async def test_all_pages_have_the_same_scope() -> None:
    server = Server(
        "s", version="1", page_size=1, cache_hints={"tools/list": CacheHints(5, "public")}
    )
    for name in "abc":
        server.add_tool(nothing, name=name)
    params: dict[str, Any] = {}
    for late in range(5):
        result = await result_of(server, "tools/list", **params)
        assert hints_of(result) == (5, "public")
        params = {"cursor": result["nextCursor"]}
        server.add_tool(nothing, name=f"late{late}")


async def test_what_was_asked_for_is_not_cached() -> None:
    """A question has no hints, and what its answer led to is for nobody's cache."""
    server = Server("s", version="1", ttl_ms=1000, cache_hints={"resources/read": CacheHints(9)})

    @server.resource("x://roots", cache_scope="public")
    async def roots(ctx: Context) -> str:
        return str(len(await ctx.list_roots(key="roots")))

    capable: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"roots": {}}}
    params: dict[str, Any] = {"uri": "x://roots", "_meta": {**META, **capable}}
    reply = await _raw(server, params)
    assert reply["resultType"] == "input_required"
    assert not {"ttlMs", "cacheScope"} & set(reply)
    params["requestState"] = reply["requestState"]
    params["inputResponses"] = {"roots": {"roots": []}}
    result = await _raw(server, params)
    assert result["contents"][0]["text"] == "0"
    assert hints_of(result) == (0, "private")


async def _raw(server: Server, params: dict[str, Any]) -> dict[str, Any]:
    reply = await server.handle(request("resources/read", params), Recorder())
    result: dict[str, Any] = json.loads(reply.frame)["result"]
    return result


def test_hints_that_make_no_sense() -> None:
    for ttl_ms in (-1, 1.5, True, "1"):
        with pytest.raises(ValueError, match="ttl_ms"):
            CacheHints(ttl_ms)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cache_scope"):
        CacheHints(cache_scope="shared")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'tools/call' cannot be cached"):
        Server("s", version="1", cache_hints={"tools/call": CacheHints(1)})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="ttl_ms"):
        Server("s", version="1", ttl_ms=-1)


async def test_hints_and_access() -> None:
    """What depends on the caller cannot be public; who the server is does not depend on it."""

    async def access(kind: str, name: str, principal: Principal | None) -> bool:
        return principal is not None

    public = CacheHints(1, "public")
    with pytest.raises(ValueError, match="cannot be public"):
        Server("s", version="1", access=access, cache_hints={"tools/list": public})
    server = Server("s", version="1", access=access, cache_hints={"server/discover": public})
    server.add_tool(nothing)
    response = await ask(server, "server/discover")
    assert hints_of(response["result"]) == (1, "public")
    assert hints_of(await result_of(server, "tools/list")) == (0, "private")
