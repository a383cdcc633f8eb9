"""Rounds of input, message by message: what is sent in each, and what is refused."""

from contextlib import suppress
from typing import Any

import pytest
import script_kit as say
import trio
from script_kit import Play
from wire_kit import Frame

from mcp_trio import codec, errors, types
from mcp_trio.client import ClientOptions
from mcp_trio.client.client import Client
from mcp_trio.client.inputs import accept_form
from mcp_trio.protocol import meta

DONE: Frame = {"content": []}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
ELICIT = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": FORM}}
VISIT = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "?", "url": "https://example.com"},
}
SAMPLE = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
ROOTS = {"method": "roots/list"}


def asks(request: Frame, **members: Any) -> Frame:
    """The result that asks for input."""
    return say.answer(request, {"resultType": "input_required", **members})


async def fill_in(params: types.ElicitRequestFormParams) -> types.ElicitResult:
    return accept_form(params, {"name": params.message})


async def consent(_: types.ElicitRequestURLParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept")


async def sample(_: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    said = types.TextContent("said")
    return types.CreateMessageResult(role="assistant", content=said, model="m")


async def roots(_: types.ListRootsRequestParams) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[])


ALL = ClientOptions(
    on_elicitation=fill_in, on_elicitation_url=consent, on_sampling=sample, on_roots=roots
)


class Rounds:
    """A script that answers each request with what it is given, and keeps the requests."""

    def __init__(self, method: str, *answers: Frame) -> None:
        self.method = method
        self.answers = answers
        self.requests: list[Frame] = []

    async def __call__(self, peer: Any) -> None:
        for answer in self.answers:
            request = await peer.expect(self.method)
            self.requests.append(request)
            await peer.send(request, say.answer(request, answer))

    def sent(self, name: str) -> list[Any]:
        return [request["params"].get(name, "absent") for request in self.requests]


def needs(**members: Any) -> Frame:
    return {"resultType": "input_required", **members}


async def test_what_each_round_carries(play: Play) -> None:
    """The same params, a new id, the answers of that round only, the state as it was given."""
    script = Rounds(
        "tools/call",
        needs(inputRequests={"a": ELICIT, "b": VISIT}, requestState='{"x": [1.0, "\\u2028é"]}'),
        needs(requestState=""),
        needs(inputRequests={"c": SAMPLE, "d": ROOTS}),
        DONE,
    )
    async with play(script, **ALL) as client:
        await client.call_tool("t", {"x": 1})
    assert [request["id"] for request in script.requests] == [1, 2, 3, 4]
    assert script.sent("arguments") == [{"x": 1}] * 4
    assert script.sent("requestState") == ["absent", '{"x": [1.0, "\\u2028é"]}', "", "absent"]
    said = {"type": "text", "text": "said"}
    assert script.sent("inputResponses") == [
        "absent",
        {"a": {"action": "accept", "content": {"name": "?"}}, "b": {"action": "accept"}},
        "absent",
        {"c": {"role": "assistant", "content": said, "model": "m"}, "d": {"roots": []}},
    ]
    declared = script.requests[0]["params"]["_meta"][meta.META_CLIENT_CAPABILITIES]
    assert declared == {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


@pytest.mark.parametrize("state", ["", "a" * 100_000, '\u2028\u2029\x85\x00\t"\\/é😀', "null"])
async def test_state_is_echoed_exactly(play: Play, state: str) -> None:
    """It is nobody's but the server's."""
    script = Rounds("resources/read", needs(requestState=state), {"contents": []})
    async with play(script) as client:
        await client.read_resource("x:y")
    assert script.sent("requestState") == ["absent", state]
    assert script.sent("uri") == ["x:y", "x:y"]


async def test_state_belongs_to_its_request(play: Play) -> None:
    """A request that is made while another waits for input has nothing of it."""

    async def script(peer: Any) -> None:
        first = await peer.expect("tools/call")
        await peer.send(first, asks(first, inputRequests={"a": ELICIT}, requestState="mine"))
        other = await peer.expect("tools/call")
        assert other["params"].keys() == {"name", "arguments", "_meta"}
        await peer.send(other, say.answer(other, DONE))
        answered.set()
        again = await peer.expect("tools/call")
        assert again["params"]["requestState"] == "mine"
        await peer.send(again, say.answer(again, DONE))

    async def wait(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        asked.set()
        await answered.wait()
        return await fill_in(params)

    asked, answered = trio.Event(), trio.Event()
    async with play(script, on_elicitation=wait) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "t")
        await asked.wait()
        await client.call_tool("other")


async def test_the_callers_own_round(play: Play) -> None:
    """Who begins with a later round by hand has it replaced by what the server asks next."""
    script = Rounds("tools/call", needs(inputRequests={"a": ROOTS}), DONE)
    async with play(script, **ALL) as client:
        params = {"name": "t", "requestState": "old", "inputResponses": {}}
        await client.request("tools/call", params)
    assert script.sent("requestState") == ["old", "absent"]
    assert script.sent("inputResponses") == [{}, {"a": {"roots": []}}]


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({}, "asks for input, but not which"),
        ({"_meta": {}}, "not which"),
        ({"inputRequests": {}}, "not which"),
        ({"inputRequests": None, "requestState": None}, "not which"),
        ({"inputRequests": []}, "inputRequests: an object is expected"),
        ({"inputRequests": {"a": 1}}, r"inputRequests\.a: an object is expected"),
        ({"inputRequests": {"a": {}}}, r"inputRequests\.a\.method: None is no question"),
        ({"inputRequests": {"a": {"method": "ping"}}}, "'ping' is no question"),
        ({"inputRequests": {"a": {"method": "elicitation/create"}}}, r"a\.params: expected an obj"),
        (
            {"inputRequests": {"a": {"method": "elicitation/create", "params": {"mode": "x"}}}},
            r"a\.params\.mode: 'x' is unknown",
        ),
        (
            {"inputRequests": {"a": {"method": "sampling/createMessage", "params": {}}}},
            r"inputRequests\.a\.params\.maxTokens: missing",
        ),
        ({"inputRequests": {"a": {"method": "roots/list", "params": 1}}}, "expected an object"),
        ({"requestState": 5}, "requestState: a string is expected"),
    ],
)
async def test_what_cannot_be_answered(play: Play, members: Frame, text: str) -> None:
    """W84: the call fails and says why; nobody is asked, and nothing more is sent."""

    async def never(_: object) -> Any:
        raise AssertionError("nobody was to be asked")

    members = dict(members)
    if isinstance(asked := members.get("inputRequests"), dict) and asked:
        members["inputRequests"] = {"before": ELICIT, **asked}

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/call")
        await peer.send(request, asks(request, **members))
        request = await peer.expect("tools/list")
        await peer.send(request, say.answer(request, {"tools": []}))

    handlers = ClientOptions(on_elicitation=never, on_sampling=never, on_roots=never)
    async with play(script, **handlers) as client:
        with pytest.raises(errors.RemoteProtocolError, match=text):
            await client.call_tool("t")
        await client.list_tools()


@pytest.mark.parametrize(
    ("asked", "option"),
    [
        (ELICIT, "on_elicitation"),
        (VISIT, "on_elicitation_url"),
        (SAMPLE, "on_sampling"),
        (ROOTS, "on_roots"),
    ],
)
async def test_question_that_was_not_offered(play: Play, asked: Frame, option: str) -> None:
    """The error says what is missing, and the rest of the handlers does not help."""
    rest: Any = {name: handler for name, handler in ALL.items() if name != option}
    async with play(Rounds("tools/call", needs(inputRequests={"k": asked})), **rest) as client:
        with pytest.raises(errors.RemoteProtocolError, match=rf"inputRequests\.k.* no {option}$"):
            await client.call_tool("t")


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("server/discover", Client.discover),
        ("tools/list", Client.list_tools),
        ("resources/list", Client.list_resources),
        ("resources/templates/list", Client.list_resource_templates),
        ("prompts/list", Client.list_prompts),
        ("org.example/ask", lambda client: client.request("org.example/ask")),
    ],
)
async def test_requests_that_must_not_ask(play: Play, method: str, call: Any) -> None:
    """W84: what only three methods may do."""
    script = Rounds(method, needs(inputRequests={"a": ROOTS}))
    async with play(script, **ALL) as client:
        with pytest.raises(errors.RemoteProtocolError, match=f"{method}: .*must not do for this"):
            await call(client)


async def test_rounds_without_end(play: Play) -> None:
    """As many as were allowed; none at all, if that was said."""
    script = Rounds("tools/call", *[needs(requestState="x")] * 11)
    async with play(script) as client:
        with pytest.raises(errors.RemoteProtocolError, match="after 10 rounds"):
            await client.call_tool("t")
    script = Rounds("tools/call", needs(requestState="x"))
    async with play(script, max_rounds=0) as client:
        with pytest.raises(errors.RemoteProtocolError, match="after 0 rounds"):
            await client.call_tool("t")


async def test_error_in_a_later_round(play: Play) -> None:
    """It is the call's."""

    async def script(peer: Any) -> None:
        request = await peer.expect("prompts/get")
        await peer.send(request, asks(request, inputRequests={"a": ROOTS}))
        request = await peer.expect("prompts/get")
        await peer.send(request, say.error(request, -32602, "not you"))

    async with play(script, **ALL) as client:
        with pytest.raises(errors.InvalidParams, match="not you"):
            await client.get_prompt("p")


async def test_first_failure_cancels_the_others(play: Play) -> None:
    """W62: one exception, the handler's own, even one that is a group; the others are ended."""

    async def fail(_: object) -> Any:
        await waiting.wait()
        raise ExceptionGroup("mine", [KeyError("a"), ValueError("b")])

    async def wait(_: object) -> Any:
        waiting.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.append("roots")

    async def fail_too(_: object) -> Any:
        with suppress(trio.Cancelled):
            await trio.sleep_forever()
        ended.append("sampling")
        raise OSError("on the way out")

    waiting = trio.Event()
    ended: list[str] = []
    asked = {"a": ELICIT, "b": ROOTS, "c": SAMPLE}
    handlers = ClientOptions(on_elicitation=fail, on_roots=wait, on_sampling=fail_too)
    async with play(Rounds("tools/call", needs(inputRequests=asked)), **handlers) as client:
        with pytest.RaisesGroup(KeyError, ValueError, match="mine"):
            await client.call_tool("t")
    assert sorted(ended) == ["roots", "sampling"]


async def test_failure_of_a_cancelled_handler(play: Play) -> None:
    """A handler that fails while its call is cancelled is heard, as in every nursery."""

    async def fail(_: object) -> Any:
        asked.set()
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("on the way out")

    async def wait(_: object) -> Any:
        await trio.sleep_forever()

    async def give_up(scope: trio.CancelScope) -> None:
        await asked.wait()
        scope.cancel()

    asked = trio.Event()
    script = Rounds("tools/call", needs(inputRequests={"a": ELICIT, "b": ROOTS}))
    async with play(script, on_elicitation=fail, on_roots=wait) as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(give_up, scope)
                with pytest.raises(KeyError, match="on the way out"):
                    await client.call_tool("t")


async def test_answer_of_the_wrong_type(play: Play) -> None:
    """It is the handler's fault, and named as that."""

    async def wrong(_: object) -> Any:
        return {"action": "accept"}

    script = Rounds("tools/call", needs(inputRequests={"a": ELICIT}))
    async with play(script, on_elicitation=wrong) as client:
        with pytest.raises(TypeError, match="on_elicitation has to return ElicitResult, got dict"):
            await client.call_tool("t")


async def test_answer_that_json_cannot_hold(play: Play) -> None:
    """W59: nothing is sent."""

    async def odd(_: object) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"x": float("nan")})

    script = Rounds("tools/call", needs(inputRequests={"a": ELICIT}))
    async with play(script, on_elicitation=odd) as client:
        with pytest.raises(codec.EncodeError):
            await client.call_tool("t")


@pytest.mark.parametrize(
    ("claimed", "option"),
    [
        ({"elicitation": types.ElicitationCapability()}, "on_elicitation"),
        ({"elicitation": types.ElicitationCapability(form={})}, "on_elicitation"),
        ({"elicitation": types.ElicitationCapability(url={})}, "on_elicitation_url"),
        ({"sampling": types.SamplingCapability()}, "on_sampling"),
        ({"roots": {}}, "on_roots"),
    ],
)
def test_capabilities_without_a_handler(claimed: Any, option: str) -> None:
    """What nobody answers is not to be promised."""
    capabilities = types.ClientCapabilities(**claimed)
    rest: Any = {name: handler for name, handler in ALL.items() if name != option}
    with pytest.raises(ValueError, match=rf"takes {option}$"):
        Client(None, capabilities=capabilities, **rest)  # type: ignore[arg-type]


def test_negative_rounds() -> None:
    with pytest.raises(ValueError, match="max_rounds"):
        Client(None, max_rounds=-1)  # type: ignore[arg-type]


async def test_details_of_a_capability(play: Play) -> None:
    """What is given goes along with what follows from the handlers."""
    script = Rounds("tools/list", {"tools": []})
    capabilities = types.ClientCapabilities(
        sampling=types.SamplingCapability(tools={}), extensions={"org.example/x": {}}
    )
    options = ALL | ClientOptions(capabilities=capabilities)
    async with play(script, **options) as client:
        await client.list_tools()
    assert script.requests[0]["params"]["_meta"][meta.META_CLIENT_CAPABILITIES] == {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}},
        "roots": {},
        "extensions": {"org.example/x": {}},
    }


def form(required: list[str], **fields: Frame) -> types.ElicitRequestFormParams:
    schema = {"type": "object", "properties": fields, "required": required}
    wire = {"message": "?", "requestedSchema": schema}
    return codec.structure(types.ElicitRequestFormParams, wire)


def test_defaults_of_a_form() -> None:
    """Each kind of field has its own; what was filled in wins; what has none is left out."""
    options = [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]
    params = form(
        ["text", "whole", "yes"],
        text={"type": "string", "default": "x"},
        whole={"type": "integer", "default": 0},
        number={"type": "number", "default": 1.5},
        yes={"type": "boolean", "default": False},
        one={"type": "string", "enum": ["a", "b"], "default": "a"},
        titled={"type": "string", "oneOf": options, "default": "b"},
        old={"type": "string", "enum": ["a"], "enumNames": ["A"], "default": "a"},
        many={"type": "array", "items": {"type": "string", "enum": ["a"]}, "default": ["a"]},
        some={"type": "array", "items": {"anyOf": options}, "default": []},
        none={"type": "string"},
    )
    result = accept_form(params, {"one": "b"})
    assert codec.unstructure(result) == {
        "action": "accept",
        "content": {
            "text": "x",
            "whole": 0,
            "number": 1.5,
            "yes": False,
            "one": "b",
            "titled": "b",
            "old": "a",
            "many": ["a"],
            "some": [],
        },
    }


def test_form_that_is_not_filled_in() -> None:
    """The server would refuse it."""
    params = form(["a", "b", "c"], a={"type": "string"}, b={"type": "string"}, c={"type": "string"})
    with pytest.raises(ValueError, match="not filled in: b, c"):
        accept_form(params, {"a": "x"})
    with pytest.raises(ValueError, match="no such field: d, e"):
        accept_form(params, {"a": "x", "b": "", "c": "", "e": "", "d": ""})
    assert accept_form(form([])).content == {}
