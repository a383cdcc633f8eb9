"""Completion of the arguments of prompts and the variables of templates."""

import enum
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import pytest
import trio
from server_kit import Recorder, ask, error_of, request, result_of

from mcp_trio import codec, errors, types
from mcp_trio.server import Complete, Context, Depends, Server
from mcp_trio.transports.abc import Principal

LANGUAGES = {"python": ["flask", "fastapi", "trio"], "rust": ["axum"]}


class Colour(enum.Enum):
    """Some values."""

    RED = "red"
    GREEN = "green"


class Style(enum.StrEnum):
    """Values that are strings themselves."""

    KIND = "kind"


@pytest.fixture
def server() -> Server:
    return Server("s", version="1")


async def complete(
    server: Server,
    ref: str,
    argument: str,
    value: str = "",
    settled: dict[str, str] | None = None,
    **more: Any,
) -> Any:
    """The completion; a `ref` with a scheme is a template's."""
    params: dict[str, Any] = {
        "ref": {"type": "ref/resource", "uri": ref}
        if "://" in ref
        else {"type": "ref/prompt", "name": ref},
        "argument": {"name": argument, "value": value},
    }
    if settled is not None:
        params["context"] = {"arguments": settled}
    response = await ask(server, "completion/complete", params, **more)
    if "error" in response:
        return response["error"]
    codec.structure(types.CompleteResult, response["result"])
    assert set(response["result"]) == {"resultType", "completion", "_meta"}
    return response["result"]["completion"]


async def test_completing_with_functions(server: Server) -> None:
    """An async one and one in a thread; settled arguments come by their names, read as typed."""

    async def frameworks(typed: str, language: str = "rust") -> list[str]:
        await trio.lowlevel.checkpoint()
        return [name for name in LANGUAGES.get(language, ()) if name.startswith(typed)]

    def depths(typed: str, *, strict: bool = False, unrelated: int = 0) -> list[str]:
        return ["9"] if strict else ["1", "2"]

    @server.prompt
    def review(
        language: str,
        framework: Annotated[str, "Which one", Complete(frameworks)],
        depth: Annotated[int, Complete(depths)] = 1,
        strict: bool = False,
    ) -> str:
        return f"{language} {framework} {depth} {strict}"

    found = await complete(server, "review", "framework", "f", {"language": "python", "x": "y"})
    assert found == {"values": ["flask", "fastapi"], "total": 2, "hasMore": False}
    found = await complete(server, "review", "framework")
    assert found["values"] == ["axum"]
    assert (await complete(server, "review", "depth"))["values"] == ["1", "2"]
    for strict, expected in (("true", ["9"]), ("perhaps", ["1", "2"])):
        found = await complete(server, "review", "depth", "", {"strict": strict})
        assert found["values"] == expected
    nothing = {"values": [], "total": 0, "hasMore": False}
    assert await complete(server, "review", "language", "p") == nothing
    [listed] = (await result_of(server, "prompts/list"))["prompts"]
    assert listed["arguments"][1] == {
        "name": "framework", "description": "Which one", "required": True
    }  # fmt: skip


async def test_completing_template_variables(server: Server) -> None:
    def branches(text: str, repository: str = "") -> list[str]:
        return [f"{repository}/{text}"]

    @server.resource("git://{repository}{?branch}")
    def read(
        repository: Annotated[str, Complete(["main", "mirror"])],
        branch: Annotated[str | None, Complete(branches)] = None,
    ) -> str:
        return f"{repository} {branch}"

    uri = "git://{repository}{?branch}"
    assert (await complete(server, uri, "repository", "MI"))["values"] == ["mirror"]
    found = await complete(server, uri, "branch", "a", {"repository": "main"})
    assert found["values"] == ["main/a"]

    server.add_resource_template("x://{a}/{b}", lambda **parts: str(parts))
    assert (await complete(server, "x://{a}/{b}", "b"))["values"] == []


async def test_lists_and_types_of_few_values_complete_themselves(server: Server) -> None:
    """What begins with the typed text comes first, then what contains it; the case is nothing."""

    @server.prompt
    def paint(
        name: Annotated[str, Complete(iter(["Redwood", "ored", "blue", "RED"]))],
        colour: Colour,
        style: Annotated[Style | None, "How"] = None,
        size: Literal[1, 2, "all", True] | None = 1,
        sure: bool = False,
        mixed: Colour | bool = False,
        open_ended: Colour | int = 0,
        maybe: Annotated[str, Complete([Style.KIND])] | None = None,
    ) -> str:
        return ""

    expected = {
        ("name", "red"): ["Redwood", "RED", "ored"],
        ("name", ""): ["Redwood", "ored", "blue", "RED"],
        ("colour", "g"): ["green"],
        ("colour", "x"): [],
        ("style", ""): ["kind"],
        ("size", ""): ["1", "2", "all", "true"],
        ("sure", "T"): ["true"],
        ("mixed", ""): ["red", "green", "true", "false"],
        ("open_ended", ""): [],
        ("maybe", ""): ["kind"],
    }
    for (name, typed), values in expected.items():
        assert (await complete(server, "paint", name, typed))["values"] == values


def endless() -> Iterator[str]:
    return map(str, itertools.count())


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, {"count": 0, "total": 0, "hasMore": False}),
        ((), {"count": 0, "total": 0, "hasMore": False}),
        ({"a": 1}, {"count": 1, "total": 1, "hasMore": False}),
        ([str(i) for i in range(100)], {"count": 100, "total": 100, "hasMore": False}),
        ([str(i) for i in range(101)], {"count": 100, "total": 101, "hasMore": True}),
        (endless(), {"count": 100, "hasMore": True}),
        (types.Completion(values=["a"]), {"count": 1, "total": 1, "hasMore": False}),
        (types.Completion(values=["a"], total=3), {"count": 1, "total": 3, "hasMore": True}),
        (types.Completion(values=["a"], has_more=True), {"count": 1, "hasMore": True}),
        (
            types.Completion(values=["a"], total=3, has_more=False),
            {"count": 1, "total": 3, "hasMore": False},
        ),
        (types.Completion(values=["a"] * 200, has_more=False), {"count": 100, "hasMore": True}),
    ],
)
async def test_at_most_a_hundred(server: Server, returned: Any, expected: dict[str, Any]) -> None:
    """More are cut off, and the client is told."""

    @server.prompt
    def ask_me(a: Annotated[str, Complete(lambda typed: returned)]) -> str:
        return a

    found = await complete(server, "ask_me", "a")
    assert {"count": len(found.pop("values")), **found} == expected


@pytest.mark.parametrize("returned", ["text", b"bytes", 5, [5], [None], ["a", b"b"]])
async def test_what_a_function_may_not_return(
    server: Server, returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @server.prompt
    def ask_me(a: Annotated[str, Complete(lambda typed: returned)]) -> str:
        return a

    error = await complete(server, "ask_me", "a")
    assert error == {"code": errors.INTERNAL_ERROR, "message": "Internal error"}
    assert "a completion gives strings" in caplog.text


async def test_functions_get_the_context_and_dependencies(server: Server) -> None:
    """Access to sensitive suggestions can be decided by who asks."""

    def stock(ctx: Context) -> list[str]:
        return ["a", "b"] if ctx.principal is not None else []

    class Finder:
        async def find(
            self, ctx: Context, typed: str, known: Annotated[list[str], Depends(stock)]
        ) -> Iterable[str]:
            return (typed + name for name in known)

        async def none_typed(self, ctx: Context) -> list[str]:
            return [ctx.transport]

    @server.prompt
    def pick(
        a: Annotated[str, Complete(Finder().find)],
        b: Annotated[str, Complete(Finder().none_typed)],
        c: Annotated[str, Complete(functools.partial(lambda end, typed: [typed + end], "!"))],
    ) -> str:
        return a + b + c

    assert (await complete(server, "pick", "a", "x"))["values"] == []
    known = Recorder(principal=Principal("ann"))
    found = await complete(server, "pick", "a", "x", exchange=known)
    assert found == {"values": ["xa", "xb"], "hasMore": False}
    assert (await complete(server, "pick", "b", "x"))["values"] == ["memory"]
    assert (await complete(server, "pick", "c", "x"))["values"] == ["x!"]


async def test_failures(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A failure does not leak, an error response passes, and a question is one too many."""

    async def fails(typed: str) -> list[str]:
        raise ValueError("secret")

    async def refuses(typed: str) -> list[str]:
        raise errors.InvalidParams("not now")

    async def asks(typed: str, ctx: Context) -> list[str]:
        await ctx.list_roots()
        return []

    @server.prompt
    def three(
        a: Annotated[str, Complete(fails)],
        b: Annotated[str, Complete(refuses)],
        c: Annotated[str, Complete(asks)],
    ) -> str:
        return a + b + c

    internal = {"code": errors.INTERNAL_ERROR, "message": "Internal error"}
    assert await complete(server, "three", "a") == internal
    assert "secret" in caplog.text
    refused = {"code": errors.INVALID_PARAMS, "message": "not now"}
    assert await complete(server, "three", "b") == refused
    capable: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"roots": {}}}
    assert await complete(server, "three", "c", **capable) == internal
    assert "cannot ask the client for input" in caplog.text


async def test_cancelling(server: Server) -> None:
    started, cancelled = trio.Event(), trio.Event()

    async def slow(typed: str) -> list[str]:
        started.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cancelled.set()
            raise

    @server.prompt
    def one(a: Annotated[str, Complete(slow)]) -> str:
        return a

    params = {"ref": {"type": "ref/prompt", "name": "one"}, "argument": {"name": "a", "value": ""}}
    asked = request("completion/complete", params)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.handle, asked, Recorder())
            await started.wait()
            nursery.cancel_scope.cancel()
        await cancelled.wait()


async def test_advertised_while_it_can_answer(server: Server) -> None:
    """The capability, and the method, are there as long as something can be completed."""

    async def capable() -> bool:
        found = (await result_of(server, "server/discover"))["capabilities"]
        assert ("completions" in found) == server.knows("completion/complete")
        assert found.get("completions", {}) == {}
        return "completions" in found

    server.add_prompt(lambda a: a, name="plain")
    server.add_resource("x://a", lambda: "")
    assert not await capable()
    error = await error_of(server, "completion/complete")
    assert error["code"] == errors.METHOD_NOT_FOUND

    def one(a: Annotated[str, Complete([])]) -> str:
        return a

    server.add_prompt(one)
    assert await capable()
    server.remove_prompt("one")
    assert not await capable()
    server.add_resource_template("x://{a}", one)
    assert await capable()
    assert (await complete(server, "plain", "a"))["values"] == []
    server.remove_resource_template("x://{a}")
    assert not await capable()


GOOD: dict[str, Any] = {
    "ref": {"type": "ref/prompt", "name": "one"},
    "argument": {"name": "a", "value": ""},
}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ref": {"type": "ref/prompt", "name": "two"}}, "Unknown prompt: two"),
        ({"ref": {"type": "ref/resource", "uri": "y://{a}"}}, "Unknown resource template: y://{a}"),
        ({"ref": {"type": "ref/resource", "uri": "x://a"}}, "Unknown resource template: x://a"),
        ({"ref": {"type": "ref/tool", "name": "one"}}, "params.ref.type"),
        ({"ref": {"type": "ref/prompt"}}, "params.ref.name"),
        ({"ref": {"type": "ref/resource", "uri": 5}}, "params.ref.uri"),
        ({"ref": "one"}, "params.ref"),
        ({"ref": None}, "params.ref"),
        ({"argument": []}, "params.argument"),
        ({"argument": {"name": "b", "value": ""}}, "no such argument: b"),
        ({"argument": {"name": "a"}}, "params.argument.value"),
        ({"argument": {"name": "a", "value": 5}}, "params.argument.value"),
        ({"argument": {"value": ""}}, "params.argument.name"),
        ({"context": []}, "params.context"),
        ({"context": {"arguments": "a"}}, "params.context.arguments"),
        ({"context": {"arguments": {"a": 1}}}, "params.context.arguments.a"),
    ],
    ids=str,
)
async def test_bad_requests(server: Server, change: dict[str, Any], complaint: str) -> None:
    """-32602 for what there is not, and for params of another form."""

    @server.prompt
    def one(a: Annotated[str, Complete(["x"])]) -> str:
        return a

    server.add_resource("x://a", lambda: "")
    assert (await result_of(server, "completion/complete", **GOOD))["completion"]["values"]
    error = await error_of(server, "completion/complete", **{**GOOD, **change})
    assert error["code"] == errors.INVALID_PARAMS
    assert complaint in error["message"]


async def test_a_context_without_arguments(server: Server) -> None:
    @server.prompt
    def one(a: Annotated[str, Complete(["x"])]) -> str:
        return a

    result = await result_of(server, "completion/complete", **GOOD, context={})
    assert result["completion"]["values"] == ["x"]


def test_what_cannot_complete(server: Server) -> None:
    """Mistakes are found where the prompt or template is registered."""

    def foreign(typed: str, other: str) -> list[str]:
        return [typed, other]

    def needs(typed: str, b: str) -> list[str]:
        return [typed, b]

    def unnamed(typed: str, /) -> list[str]:
        return [typed]

    def generates(typed: str) -> Iterator[str]:
        yield typed

    wrong: list[tuple[Any, str]] = [
        (foreign, "the completion of 'a': nothing fills the parameter 'other'"),
        (needs, "'b' may not be settled"),
        (unnamed, "cannot be passed by name"),
        (generates, "generator"),
    ]
    for values, complaint in wrong:

        def prompt(a: str, b: str = "") -> str:
            return a + b

        prompt.__annotations__["a"] = Annotated[str, Complete(values)]
        with pytest.raises(TypeError, match=complaint):
            server.add_prompt(prompt)
        with pytest.raises(TypeError, match=complaint):
            server.add_resource_template("x://{a}/{b}", prompt)
    assert not server.knows("completion/complete")
    with pytest.raises(TypeError, match="a list of strings"):
        Complete("abc")
    with pytest.raises(TypeError, match="gives strings, not int"):
        Complete([5])  # type: ignore[list-item]
