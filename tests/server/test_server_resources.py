"""Resources, templates and prompts."""

import enum
import functools
import math
import time
from typing import Annotated, Any, Literal

import attrs
import pytest
from server_kit import Recorder, ask, call, error_of, result_of, text_of

from mcp_trio import codec, errors, types
from mcp_trio.server import Context, Server
from mcp_trio.server.resources import ResourceNotFound
from mcp_trio.transports.abc import Principal


@pytest.fixture
def server() -> Server:
    return Server("s", version="1")


async def contents(server: Server, uri: str) -> Any:
    result = await result_of(server, "resources/read", uri=uri)
    codec.structure(types.ReadResourceResult, result)
    return result["contents"]


async def test_a_static_resource(server: Server) -> None:
    @server.resource(
        "note://a",
        title="A",
        mime_type="text/markdown",
        size=2,
        annotations=types.Annotations(priority=0.5),
        icons=[types.Icon("data:,")],
        meta={"org.example/x": 1},
        ttl_ms=60_000,
        cache_scope="public",
    )
    async def note() -> str:
        """A note."""
        return "hi"

    assert await note() == "hi"
    listed = await result_of(server, "resources/list")
    codec.structure(types.ListResourcesResult, listed)
    assert listed["resources"] == [
        {
            "uri": "note://a",
            "name": "note",
            "title": "A",
            "description": "A note.",
            "mimeType": "text/markdown",
            "size": 2,
            "annotations": {"priority": 0.5},
            "icons": [{"src": "data:,"}],
            "_meta": {"org.example/x": 1},
        }
    ]
    assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")
    result = await result_of(server, "resources/read", uri="note://a")
    assert result["contents"] == [{"uri": "note://a", "mimeType": "text/markdown", "text": "hi"}]
    assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", [{"uri": "x://a", "mimeType": "text/plain", "text": ""}]),
        (b"\x00\xff", [{"uri": "x://a", "mimeType": "application/octet-stream", "blob": "AP8="}]),
        (bytearray(b""), [{"uri": "x://a", "mimeType": "application/octet-stream", "blob": ""}]),
        (
            ["a", types.TextResourceContents(uri="x://b", text="b"), memoryview(b"c")],
            [
                {"uri": "x://a", "mimeType": "text/plain", "text": "a"},
                {"uri": "x://b", "text": "b"},
                {"uri": "x://a", "mimeType": "application/octet-stream", "blob": "Yw=="},
            ],
        ),
        (types.BlobResourceContents(uri="x://b", blob=""), [{"uri": "x://b", "blob": ""}]),
        (
            types.ReadResourceResult(contents=[types.TextResourceContents(uri="x://b", text="b")]),
            [{"uri": "x://b", "text": "b"}],
        ),
    ],
)
async def test_what_a_resource_may_return(server: Server, value: Any, expected: Any) -> None:
    server.add_resource("x://a", lambda: value)
    assert await contents(server, "x://a") == expected


@pytest.mark.parametrize("value", [None, 5, {"a": 1}, [None], "\udcaf"])
async def test_what_a_resource_may_not_return(server: Server, value: Any) -> None:
    """W59."""
    server.add_resource("x://a", lambda: value)
    error = await error_of(server, "resources/read", uri="x://a")
    assert error["code"] == errors.INTERNAL_ERROR


async def test_uris_are_exact_strings(server: Server) -> None:
    """W38: never normalised."""
    for uri in ("note://A", "note://a", "file:///a%20b", "x:é", "x:/a/../b", "HTTP://x"):
        server.add_resource(uri, lambda uri: uri)
    for uri in ("note://A", "file:///a%20b", "x:é", "x:/a/../b", "HTTP://x"):
        assert (await contents(server, uri))[0]["text"] == uri
    for uri in ("file:///a b", "x:%C3%A9", "x:/b", "http://x", ""):
        error = await error_of(server, "resources/read", uri=uri)
        assert error == {
            "code": errors.INVALID_PARAMS,
            "message": "Resource not found",
            "data": {"uri": uri},
        }


async def test_one_function_reads_many_and_they_come_and_go(server: Server) -> None:
    """What a server of a folder needs: dynamic, shared, cheap, gone while read."""
    files = {f"file:///{i}": b"%d" % i for i in range(3)}

    async def read(uri: str, ctx: Context) -> bytes:
        assert ctx.server is server
        if uri not in files:
            raise ResourceNotFound(uri)
        return files[uri]

    for uri in files:
        server.add_resource(uri, read, mime_type="image/png")
    assert (await contents(server, "file:///2"))[0]["blob"] == "Mg=="
    del files["file:///2"]
    error = await error_of(server, "resources/read", uri="file:///2")
    assert (error["code"], error["data"]) == (errors.INVALID_PARAMS, {"uri": "file:///2"})
    server.remove_resource("file:///2")
    assert (await error_of(server, "resources/read", uri="file:///2"))["code"] == -32602
    server.add_resource("file:///2", functools.partial(files.get, "x"), name="two")
    listed = (await result_of(server, "resources/list"))["resources"]
    assert [resource["uri"] for resource in listed] == [f"file:///{i}" for i in range(3)]
    assert listed[2]["name"] == "two"


def test_ten_thousand_resources_are_cheap(server: Server) -> None:
    def read(path: int, uri: str) -> str:
        return f"{path}{uri}"

    start = time.process_time()
    with server.batch():
        for i in range(10_000):
            server.add_resource(f"file:///{i}", functools.partial(read, i), name=str(i))
    assert time.process_time() - start < 3
    assert server.statistics().resources == 10_000


class Size(enum.Enum):
    """A choice."""

    SMALL = "small"
    LARGE = "large"


async def test_templates(server: Server) -> None:
    @server.resource("room://{name}/{floor}{?size,deep}", mime_type="text/plain")
    async def room(
        name: str, floor: int, uri: str, size: Size = Size.SMALL, deep: bool = False
    ) -> str:
        """A room."""
        return f"{name} {floor} {size.name} {deep} {uri}"

    @server.resource("room://{name}/{other}", name="fallback", description="Else.")
    def other(ctx: Context, **variables: str) -> str:
        return f"{variables}"

    listed = await result_of(server, "resources/templates/list")
    codec.structure(types.ListResourceTemplatesResult, listed)
    assert listed["resourceTemplates"] == [
        {
            "uriTemplate": "room://{name}/{floor}{?size,deep}",
            "name": "room",
            "description": "A room.",
            "mimeType": "text/plain",
        },
        {"uriTemplate": "room://{name}/{other}", "name": "fallback", "description": "Else."},
    ]

    async def read(uri: str) -> str:
        text: str = (await contents(server, uri))[0]["text"]
        return text

    assert await read("room://a%20b/5") == "a b 5 SMALL False room://a%20b/5"
    assert await read("room://k/5?deep=true&size=large") == (
        "k 5 LARGE True room://k/5?deep=true&size=large"
    )
    # What the first cannot read is for the next.
    assert await read("room://k/attic") == "{'name': 'k', 'other': 'attic'}"
    for uri in ("room://k/5?size=huge", "room://k/5?more=1", "room://k", "room://../5"):
        assert (await error_of(server, "resources/read", uri=uri))["data"] == {"uri": uri}
    server.add_resource("room://k/5", lambda: "static")
    assert await read("room://k/5") == "static"


async def test_a_path_as_a_list_of_segments(server: Server) -> None:
    @server.resource("file:///srv{/path*}{?line}")
    def read(path: list[str], line: int = 0) -> str:
        return f"{path} {line}"

    server.add_resource_template("x://a{/path*}", lambda **more: str(more))
    [found] = await contents(server, "file:///srv/a/b%20c?line=5")
    assert found["text"] == "['a', 'b c'] 5"
    [found] = await contents(server, "x://a/b")
    assert found["text"] == "{'path': ['b']}"
    error = await error_of(server, "resources/read", uri="file:///srv/a/%2e%2e")
    assert error["data"] == {"uri": "file:///srv/a/%2e%2e"}
    with pytest.raises(TypeError, match="'path' is a list of strings"):
        server.add_resource_template("y://a{/path*}", _path)


def _path(path: str) -> str:
    return path


def test_what_cannot_be_registered(server: Server) -> None:
    def needs(path: str) -> str:
        return path

    def optional(q: str) -> str:
        return q

    with pytest.raises(TypeError, match="nothing fills the parameter 'path'"):
        server.add_resource("x://a", needs)
    with pytest.raises(ValueError, match="absolute"):
        server.add_resource("a/b", lambda: "")
    with pytest.raises(codec.EncodeError):
        server.add_resource("x://\udcaf", lambda: "")
    with pytest.raises(TypeError, match="nothing fills the parameter 'path'"):
        server.add_resource_template("x://{uri}", needs)
    with pytest.raises(TypeError, match="has no parameter 'name'"):
        server.add_resource_template("x://{name}", lambda: "")
    with pytest.raises(TypeError, match="needs a default"):
        server.add_resource_template("x://a{?q}", optional)
    with pytest.raises(ValueError, match="absolute"):
        server.add_resource_template("{q}", optional)
    for ttl_ms in (-1, math.inf, 1.5, True):
        with pytest.raises(ValueError, match="ttl_ms"):
            server.add_resource("x://a", lambda: "", ttl_ms=ttl_ms)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cache_scope"):
        server.add_resource("x://a", lambda: "", cache_scope="shared")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs a URI"):
        server.resource(needs)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no JSON form"):
        server.add_resource_template("x://{q}", _complex)
    server.add_resource_template("x://{uri}", lambda uri: uri, name="t", ttl_ms=1)
    with pytest.raises(ValueError, match="already a resource template"):
        server.add_resource_template("x://{uri}", lambda uri: uri)
    server.remove_resource_template("x://{uri}")
    assert server.statistics().resource_templates == 0
    assert server.statistics().resources == 0


def _complex(q: complex) -> str:
    return str(q)


async def test_prompts(server: Server) -> None:
    @server.prompt
    async def review(
        code: Annotated[str, "What to review"],
        ctx: Context,
        depth: int = 1,
        style: Literal["kind", "harsh"] = "kind",
    ) -> str:
        """Review code."""
        return f"{ctx.request_id} {code} {depth} {style}"

    @server.prompt(name="two", title="Two", icons=[types.Icon("data:,")], meta={"org.example/x": 1})
    def two() -> list[Any]:
        return [
            types.PromptMessage(role="assistant", content=types.TextContent("a")),
            "b",
            types.ImageContent("aGk=", "image/png"),
        ]

    listed = await result_of(server, "prompts/list")
    codec.structure(types.ListPromptsResult, listed)
    assert listed["prompts"] == [
        {
            "name": "review",
            "description": "Review code.",
            "arguments": [
                {"name": "code", "description": "What to review", "required": True},
                {"name": "depth", "required": False},
                {"name": "style", "required": False},
            ],
        },
        {
            "name": "two",
            "title": "Two",
            "icons": [{"src": "data:,"}],
            "_meta": {"org.example/x": 1},
        },
    ]
    result = await result_of(
        server, "prompts/get", name="review", arguments={"code": "5", "depth": "3"}
    )
    codec.structure(types.GetPromptResult, result)
    assert result["description"] == "Review code."
    assert result["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "1 5 3 kind"}}
    ]
    messages = (await result_of(server, "prompts/get", name="two"))["messages"]
    assert [message["role"] for message in messages] == ["assistant", "user", "user"]
    assert messages[2]["content"]["type"] == "image"
    server.remove_prompt("two")
    assert (await error_of(server, "prompts/get", name="two"))["code"] == errors.INVALID_PARAMS


async def test_bad_prompt_arguments(server: Server) -> None:
    @server.prompt
    def tell(about: str, times: int) -> Any:
        return types.GetPromptResult(
            messages=[types.PromptMessage(role="user", content=types.TextContent(about * times))]
        )

    error = await error_of(
        server, "prompts/get", name="tell", arguments={"about": 5, "times": "x", "more": "y"}
    )
    assert error["code"] == errors.INVALID_PARAMS
    for part in ("about: a prompt's argument is a string", "times: expected", "more: unexpected"):
        assert part in error["message"]
    error = await error_of(server, "prompts/get", name="tell")
    assert "about: missing; times: missing" in error["message"]
    result = await result_of(
        server, "prompts/get", name="tell", arguments={"about": "x", "times": "2"}
    )
    assert result["messages"][0]["content"]["text"] == "xx"


@attrs.frozen
class Even:
    """A class that asks for more than an integer."""

    number: int = attrs.field()

    @number.validator
    def _even(self, _: object, number: int) -> None:
        if number % 2:
            raise ValueError(f"{number} is odd")


async def test_what_a_class_refuses_is_a_bad_argument_or_no_such_uri(server: Server) -> None:
    """A validator's refusal is the client's mistake, not an internal error."""

    @server.prompt
    async def halve(even: Even) -> str:
        return str(even.number // 2)

    @server.resource("half://{even}")
    async def half(even: Even) -> str:
        return str(even.number // 2)

    error = await error_of(server, "prompts/get", name="halve", arguments={"even": '{"number":3}'})
    assert error["code"] == errors.INVALID_PARAMS
    assert "even: 3 is odd" in error["message"]
    error = await error_of(server, "resources/read", uri="half://%7B%22number%22%3A3%7D")
    assert error["message"] == "Resource not found"
    result = await result_of(server, "resources/read", uri="half://%7B%22number%22%3A4%7D")
    assert result["contents"][0]["text"] == "2"


async def test_what_cannot_be_a_prompt(server: Server) -> None:
    def many(**more: str) -> str:
        return str(more)

    with pytest.raises(TypeError, match="one by one"):
        server.add_prompt(many)
    with pytest.raises(TypeError, match="_complex: complex has no JSON form"):
        server.add_prompt(_complex)
    server.add_prompt(lambda: 5, name="five")
    error = await error_of(server, "prompts/get", name="five")
    assert error == {"code": errors.INTERNAL_ERROR, "message": "not a message of a prompt: int"}


async def test_contexts_tell_of_the_request(server: Server) -> None:
    @server.tool
    async def who(ctx: Context) -> dict[str, Any]:
        assert ctx.server is server
        return {
            "id": ctx.request_id,
            "principal": None if ctx.principal is None else ctx.principal.name,
            "headers": dict(ctx.headers),
            "transport": ctx.transport,
            "client": ctx.meta.client_info,
            "trace": ctx.meta.raw.get("traceparent"),
        }

    exchange = Recorder(principal=Principal("ann"), headers={"x": "y"})
    response = await ask(
        server, "tools/call", {"name": "who"}, exchange=exchange, request_id="", traceparent="00-x"
    )
    assert response["result"]["structuredContent"] == {
        "id": "",
        "principal": "ann",
        "headers": {"x": "y"},
        "transport": "memory",
        "client": None,
        "trace": "00-x",
    }
    assert "null" in text_of(await call(server, "who"))
