"""Requests that need input: asked, answered and run again; nothing is kept by the server."""

import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from server_kit import Recorder, request, text_of

from mcp_trio import errors, types
from mcp_trio.server import (
    Accepted,
    Context,
    Declined,
    Dismissed,
    Elicit,
    ElicitUrl,
    InputRequired,
    Limits,
    ListRoots,
    Sample,
    Server,
)
from mcp_trio.transports.abc import Principal

ALL: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
SAID = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}


def yes(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


class Rounds:
    """A client that makes one request in as many rounds as it takes."""

    def __init__(
        self,
        server: Server,
        name: str = "tool",
        *,
        method: str = "tools/call",
        capabilities: Mapping[str, Any] = ALL,
        principal: str | None = None,
        **params: Any,
    ) -> None:
        self.server = server
        self.method = method
        self.params = {"uri": name} if method == "resources/read" else {"name": name}
        self.params |= params
        self.meta = {"io.modelcontextprotocol/clientCapabilities": dict(capabilities)}
        self.principal = None if principal is None else Principal(principal)
        self.state: str | None = None
        self.ids = itertools.count(1)

    async def send(self, responses: Any = ..., **more: Any) -> dict[str, Any]:
        """One round, with the state of the last; the whole response."""
        params = {**self.params, **more}
        if responses is not ...:
            params["inputResponses"] = responses
        if self.state is not None:
            params.setdefault("requestState", self.state)
        asked = request(self.method, params, request_id=next(self.ids), **self.meta)
        reply = await self.server.handle(asked, Recorder(principal=self.principal))
        response: dict[str, Any] = json.loads(reply.frame)
        return response

    async def asks(self, responses: Any = ..., **more: Any) -> dict[str, dict[str, Any]]:
        """One round that ends with questions."""
        response = await self.send(responses, **more)
        result = response["result"]
        assert result["resultType"] == "input_required"
        assert "io.modelcontextprotocol/serverInfo" in result["_meta"]
        assert set(result) <= {"resultType", "inputRequests", "requestState", "_meta"}
        self.state = result["requestState"]
        requests: dict[str, dict[str, Any]] = result.get("inputRequests", {})
        return requests

    async def completes(self, responses: Any = ..., **more: Any) -> str:
        """One round that ends with a text."""
        result = (await self.send(responses, **more))["result"]
        assert result["resultType"] == "complete"
        assert not result.get("isError"), result
        return text_of(result)

    async def fails(self, responses: Any = ..., **more: Any) -> dict[str, Any]:
        """One round that ends with an error."""
        error: dict[str, Any] = (await self.send(responses, **more))["error"]
        return error


@pytest.fixture
def server() -> Server:
    return Server("s", version="1")


@dataclasses.dataclass
class Name:
    """A form with one field."""

    name: str


@pytest.fixture
def greeter(server: Server) -> Server:
    @server.tool
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("What is your name?", Name, key="user_name")
        match answer:
            case Accepted(content):
                return f"Hello, {content.name}!"
            case Declined():
                return "Hello, whoever you are!"
            case Dismissed():
                return "Another time."

    return server


async def test_a_question_and_its_answer(greeter: Server) -> None:
    rounds = Rounds(greeter)
    assert await rounds.asks() == {
        "user_name": {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "What is your name?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
        }
    }
    assert await rounds.completes({"user_name": yes(name="Alice")}) == "Hello, Alice!"
    assert await rounds.completes({"user_name": {"action": "decline"}}) == "Hello, whoever you are!"
    assert await rounds.completes({"user_name": {"action": "cancel"}}) == "Another time."


async def test_wrong_keys_are_asked_again_and_extra_keys_ignored(greeter: Server) -> None:
    rounds = Rounds(greeter)
    for responses in ({}, {"wrong_key": yes(data="wrong")}, ...):
        assert list(await rounds.asks(responses)) == ["user_name"]
    extra = {"user_name": yes(name="Alice"), "more": yes(foo=1), "junk": 5}
    assert await rounds.completes(extra) == "Hello, Alice!"


async def test_an_answer_ahead_of_the_question_counts(greeter: Server) -> None:
    """Without a state, as a client sends it that knows the key."""
    answers = {"user_name": yes(name="Alice"), "more": 1}
    assert await Rounds(greeter).completes(answers) == "Hello, Alice!"
    assert list(await Rounds(greeter).asks({"other": yes()})) == ["user_name"]


@pytest.mark.parametrize(
    ("responses", "reason"),
    [
        (None, "params.inputResponses: an object"),
        ([], "params.inputResponses: an object"),
        ("x", "params.inputResponses: an object"),
        ({"user_name": 12345}, "params.inputResponses.user_name: an object"),
        ({"user_name": None}, "params.inputResponses.user_name: an object"),
        ({"user_name": {}}, "params.inputResponses.user_name.action: one of accept"),
        ({"user_name": {"action": "maybe"}}, "params.inputResponses.user_name.action"),
        ({"user_name": {"action": []}}, "params.inputResponses.user_name.action"),
        ({"user_name": {"action": "accept"}}, "params.inputResponses.user_name.content.name"),
        (
            {"user_name": {"action": "accept", "content": 5}},
            "params.inputResponses.user_name.content: an object",
        ),
        (
            {"user_name": yes(name=5)},
            "params.inputResponses.user_name.content.name: expected a string, got 5",
        ),
    ],
)
async def test_what_is_no_answer_is_refused(greeter: Server, responses: Any, reason: str) -> None:
    """It can be put right: the state that was sent is still good."""
    rounds = Rounds(greeter)
    for _ in range(2):
        error = await rounds.fails(responses)
        assert error["code"] == errors.INVALID_PARAMS
        assert reason in error["message"]
        assert list(await rounds.asks()) == ["user_name"]
    assert await rounds.completes({"user_name": yes(name="Bob")}) == "Hello, Bob!"


@pytest.mark.parametrize("state", [None, 5, {}, []])
async def test_an_ill_typed_state_is_refused(greeter: Server, state: Any) -> None:
    error = await Rounds(greeter).fails({}, requestState=state)
    assert error["code"] == errors.INVALID_PARAMS
    assert error["message"] == "params.requestState: a string is expected"


async def test_a_state_is_verified_even_if_nobody_asks(server: Server) -> None:
    server.add_tool(lambda: "done", name="tool")
    rounds = Rounds(server)
    assert (await rounds.fails(requestState="forged"))["code"] == errors.INVALID_PARAMS
    assert (await rounds.fails(None))["code"] == errors.INVALID_PARAMS
    assert await rounds.completes({"a": 1}) == "done"


async def test_a_state_belongs_to_its_request_and_caller() -> None:
    server = Server("s", version="1", state_keys=[b"k" * 32])

    async def tool(ctx: Context, path: str = "") -> str:
        answer = await ctx.elicit(f"Delete {path}?", key="sure")
        return answer.action

    server.add_tool(tool)
    server.add_tool(tool, name="other")
    server.add_prompt(tool)
    mine = Rounds(server, principal="alice", arguments={"path": "a"})
    await mine.asks()
    assert mine.state is not None
    elsewhere = [
        Rounds(server, principal="mallory", arguments={"path": "a"}),
        Rounds(server, arguments={"path": "a"}),
        Rounds(server, principal="alice", arguments={"path": "b"}),
        Rounds(server, principal="alice"),
        Rounds(server, "other", principal="alice", arguments={"path": "a"}),
        Rounds(server, method="prompts/get", principal="alice", arguments={"path": "a"}),
    ]
    messages = set()
    for rounds in elsewhere:
        error = await rounds.fails({"sure": {"action": "accept"}}, requestState=mine.state)
        assert error["code"] == errors.INVALID_PARAMS
        messages.add(error["message"])
    error = await mine.fails({}, requestState=mine.state + "-TAMPERED")
    messages.add(error["message"])
    assert messages == {"params.requestState: not valid for this request; start again without it"}
    same = Server("s", version="2", state_keys=[b"n" * 32, b"k" * 32])
    same.add_tool(tool)
    mine.server = same  # another process, with the next version and the next key
    assert await mine.completes({"sure": yes()}) == "accept"
    other = Server("t", version="1", state_keys=[b"k" * 32])
    other.add_tool(tool)
    mine.server = other
    assert (await mine.fails({"sure": yes()}))["message"] in messages


async def test_several_rounds(server: Server) -> None:
    """The handler runs again from its start; each question that is answered returns at once."""
    runs = 0

    @server.tool
    async def tool(ctx: Context, start: int) -> str:
        nonlocal runs
        runs += 1
        total = start
        for step in range(3):
            answer = await ctx.elicit(f"Step {step}", int, key=f"step{step}")
            total += answer.content or 0
        again = await ctx.elicit("Again", int)
        twice = await ctx.elicit("Again", int)
        return f"{total} {again.content} {twice.content}"

    rounds = Rounds(server, arguments={"start": 100})
    states = set()
    asked = await rounds.asks()
    for step in range(3):
        assert list(asked) == [f"step{step}"]
        states.add(rounds.state)
        asked = await rounds.asks({f"step{step}": yes(value=step + 1)})
    [key] = asked
    asked = await rounds.asks({key: yes(value=7)})
    assert list(asked) == [f"{key}-2"]
    assert await rounds.completes({f"{key}-2": yes(value=8)}) == "106 7 8"
    assert runs == 6
    assert len(states) == 3


async def test_several_at_once(server: Server) -> None:
    @server.tool
    async def tool(ctx: Context) -> str:
        name, said, roots, page = await ctx.ask(
            Elicit("Name?", str, key="name"),
            Sample("Capital?", max_tokens=100, key="capital"),
            ListRoots(key="roots"),
            ElicitUrl("Log in", "https://example.com/x?y=1", key="page"),
        )
        assert isinstance(said.content, types.TextContent)
        return f"{name.content} {said.content.text} {roots[0].uri} {page.action}"

    rounds = Rounds(server)
    asked = await rounds.asks()
    assert asked["capital"] == {
        "method": "sampling/createMessage",
        "params": {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Capital?"}}],
            "maxTokens": 100,
        },
    }
    assert asked["roots"] == {"method": "roots/list"}
    assert asked["page"] == {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Log in", "url": "https://example.com/x?y=1"},
    }
    answers = {
        "name": yes(value="A"),
        "capital": SAID,
        "roots": {"roots": [{"uri": "file:///a", "name": "a"}]},
        "page": {"action": "accept"},
    }
    assert await rounds.completes(answers) == "A Paris file:///a accept"
    # One by one, in any order: only what is open is asked again.
    for key in ("roots", "name", "page"):
        left = await rounds.asks({key: answers.pop(key)})
        assert left.keys() == answers.keys()
    assert await rounds.completes(answers) == "A Paris file:///a accept"


async def test_one_by_one_from_tasks(server: Server) -> None:
    """Concurrent tasks ask in one round, and their keys do not depend on their order."""

    @server.tool
    async def tool(ctx: Context) -> str:
        found: dict[str, Any] = {}

        async def ask(letter: str) -> None:
            found[letter] = (await ctx.elicit(f"{letter}?", str)).content

        async with trio.open_nursery() as nursery:
            for letter in "abc":
                nursery.start_soon(ask, letter)
        return "".join(found[letter] for letter in "abc")

    rounds = Rounds(server)
    asked = await rounds.asks()
    assert len(asked) == 3
    one, *others = asked
    again = await rounds.asks({one: yes(value=asked[one]["params"]["message"][0])})
    assert set(again) == set(others)
    answers = {key: yes(value=asked[key]["params"]["message"][0]) for key in others}
    assert await rounds.completes(answers) == "abc"


async def test_a_failure_beside_a_question_counts(server: Server) -> None:
    @server.tool
    async def tool(ctx: Context) -> None:
        async def fail() -> None:
            raise ValueError("broken")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.elicit, "?")
            nursery.start_soon(fail)

    result = (await Rounds(server).send())["result"]
    assert result["isError"]
    assert text_of(result) == "ValueError: broken"


async def test_a_group_of_failures_stays_one(server: Server) -> None:
    @server.tool
    async def tool(ctx: Context) -> None:
        raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])

    assert text_of((await Rounds(server).send())["result"]) == "ValueError: a; KeyError: 'b'"


async def test_cancelled_while_asking(server: Server) -> None:
    """A request that is cancelled while its handler unwinds is cancelled, not asked about."""

    @server.tool
    async def tool(ctx: Context) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
                await ctx.elicit("?")

    with trio.move_on_after(0.001) as scope:
        await Rounds(server).send()
    assert scope.cancelled_caught


async def test_except_exception_does_not_catch_a_question(server: Server) -> None:
    cleaned = []

    @server.tool
    async def tool(ctx: Context) -> str:
        try:
            await ctx.elicit("?", key="k")
        except Exception as problem:  # noqa: BLE001
            return f"caught {problem!r}"
        finally:
            cleaned.append(1)
        return "done"

    rounds = Rounds(server)
    await rounds.asks()
    assert await rounds.completes({"k": yes()}) == "done"
    assert cleaned == [1, 1]


async def test_an_answer_counts_only_for_its_question(server: Server) -> None:
    """What the user said to another message, or to another form, is not taken for this one."""
    files = ["a"]

    @server.tool
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit(f"Delete {', '.join(files)}?", key="sure")
        return answer.action

    rounds = Rounds(server)
    await rounds.asks()
    files.append("b")
    asked = await rounds.asks({"sure": yes()})
    assert asked["sure"]["params"]["message"] == "Delete a, b?"
    assert await rounds.completes({"sure": yes()}) == "accept"


async def test_an_older_answer_counts_only_for_its_question(server: Server) -> None:
    files = ["a"]

    @server.tool
    async def tool(ctx: Context) -> str:
        first = await ctx.elicit(f"Delete {', '.join(files)}?", key="sure")
        second = await ctx.elicit("Really?", key="really")
        return f"{first.action} {second.action}"

    rounds = Rounds(server)
    await rounds.asks()
    assert list(await rounds.asks({"sure": yes()})) == ["really"]
    files.append("b")
    assert list(await rounds.asks({"really": yes()})) == ["sure"]
    assert await rounds.completes({"sure": {"action": "decline"}}) == "decline accept"


async def test_an_older_answer_that_nobody_could_read_is_asked_again(server: Server) -> None:
    @server.tool
    async def tool(ctx: Context) -> str | InputRequired:
        if not ctx.input_responses and ctx.answer("first", FIRST) is None:
            return InputRequired({"first": FIRST, "second": SECOND})
        await ctx.elicit("First?", key="first")
        return str((await ctx.elicit("Second?", int, key="second")).content)

    rounds = Rounds(server)
    await rounds.asks()
    assert list(await rounds.asks({"second": yes(value="x")})) == ["first"]
    assert list(await rounds.asks({"first": yes()})) == ["second"]
    assert await rounds.completes({"second": yes(value=5)}) == "5"


FIRST, SECOND = Elicit("First?"), Elicit("Second?", int)


async def test_remembered_values_are_the_same_in_all_rounds(server: Server) -> None:
    made: list[str] = []

    async def price(article: str) -> dict[str, Any]:
        made.append(article)
        await trio.lowlevel.checkpoint()
        return {"article": article, "price": (len(made), 2)}

    @server.tool
    async def tool(ctx: Context) -> str:
        token = await ctx.remember("token", lambda: f"t{len(made)}")
        offer = await ctx.remember("offer", price, "pen")
        again = await ctx.remember("offer", price, "never")
        assert offer == again == {"article": "pen", "price": [1, 2]}
        answer = await ctx.elicit_url("Pay", f"https://pay.example/{token}", key="pay")
        return f"{answer.action} {token}"

    rounds = Rounds(server)
    asked = await rounds.asks()
    assert asked["pay"]["params"]["url"] == "https://pay.example/t0"
    assert await rounds.completes({"pay": {"action": "accept"}}) == "accept t0"
    assert made == ["pen"]


async def test_remembering_what_json_cannot_hold(server: Server) -> None:
    @server.tool
    async def tool(ctx: Context) -> None:
        await ctx.remember("x", object)

    assert "EncodeError" in text_of((await Rounds(server).send())["result"])


async def test_from_a_thread(server: Server) -> None:
    @server.tool
    def tool(ctx: Context) -> str:
        name = trio.from_thread.run(ctx.elicit, "Name?", str).content
        age, _ = trio.from_thread.run(ctx.ask, Elicit("Age?", int, key="age"), ListRoots(key="r"))
        return f"{name} {age.content}"

    rounds = Rounds(server)
    [key] = await rounds.asks()
    assert list(await rounds.asks({key: yes(value="A")})) == ["age", "r"]
    assert await rounds.completes({"age": yes(value=3), "r": {"roots": []}}) == "A 3"


async def test_for_prompts_and_resources(server: Server) -> None:
    @server.prompt
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Context?", str, key="k")).content)

    @server.resource("x://fixed")
    async def fixed(ctx: Context) -> str:
        return str((await ctx.elicit("Context?", str, key="k")).content)

    @server.resource("x://some/{name}")
    async def some(ctx: Context, name: str) -> str | InputRequired:
        answer = ctx.answer("k", CONTEXT)
        return InputRequired({"k": CONTEXT}) if answer is None else name

    rounds = Rounds(server, "ask", method="prompts/get")
    assert list(await rounds.asks()) == ["k"]
    result = (await rounds.send({"k": yes(value="A")}))["result"]
    assert result["messages"][0]["content"]["text"] == "A"
    assert result["resultType"] == "complete"
    for uri, text in (("x://fixed", "A"), ("x://some/thing", "thing")):
        rounds = Rounds(server, uri, method="resources/read")
        assert list(await rounds.asks()) == ["k"]
        result = (await rounds.send({"k": yes(value="A")}))["result"]
        assert result["contents"][0]["text"] == text
        assert "ttlMs" in result


CONTEXT = Elicit("Context?", str)


async def test_other_methods_never_ask(server: Server) -> None:
    @server.tool
    async def nothing() -> None: ...

    rounds = Rounds(server, method="tools/list")
    result = (await rounds.send({"a": 1}))["result"]
    assert result["resultType"] == "complete"


# Explicit results


async def test_explicit_rounds_with_a_state(server: Server) -> None:
    @server.tool
    async def tool(ctx: Context) -> str | InputRequired:
        step = ctx.request_state or {"step": 1}
        name = f"step{step['step']}"
        answer = ctx.answer(name, Elicit(name, int))
        if answer is None:
            return InputRequired({name: Elicit(name, int)}, step)
        if step["step"] == 1:
            assert list(ctx.input_responses) == ["step1"]
            return InputRequired({"step2": Elicit("step2", int)}, state={"step": 2})
        first = ctx.answer("step1", Elicit("step1", int))
        assert first is not None
        return f"{first.content} {answer.content}"

    rounds = Rounds(server)
    assert list(await rounds.asks()) == ["step1"]
    first = rounds.state
    assert list(await rounds.asks({"wrong": 1})) == ["step1"]
    assert list(await rounds.asks({"step1": yes(value=1)})) == ["step2"]
    assert rounds.state != first
    assert await rounds.completes({"step2": yes(value=2)}) == "1 2"


async def test_a_state_alone(server: Server) -> None:
    """The client may come back at once; a handler without a context can ask as well."""

    @server.tool
    async def tool(ctx: Context) -> str | InputRequired:
        assert ctx.input_responses == {}
        return "done" if ctx.request_state == [1] else InputRequired(state=[1])

    server.add_tool(lambda: InputRequired({"k": Elicit("?")}), name="simple")
    rounds = Rounds(server)
    assert await rounds.asks() == {}
    assert await rounds.completes() == "done"
    assert list(await Rounds(server, "simple").asks()) == ["k"]


async def test_only_what_the_client_can_answer(server: Server) -> None:
    """Explicit questions beyond its capabilities are left out; if none remains, it is told."""

    @server.tool
    async def tool() -> InputRequired:
        return InputRequired(
            {"name": Elicit("Name?", str), "capital": Sample("?", max_tokens=1), "r": ListRoots()}
        )

    assert list(await Rounds(server, capabilities={"sampling": {}}).asks()) == ["capital"]
    asked = await Rounds(server, capabilities={"elicitation": {}, "roots": {}}).asks()
    assert list(asked) == ["name", "r"]
    error = await Rounds(server, capabilities={}).fails()
    assert error["code"] == errors.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert error["data"] == {
        "requiredCapabilities": {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
    }


@pytest.mark.parametrize(
    ("question", "capabilities", "required"),
    [
        (Elicit("?"), {"elicitation": {}}, None),
        (Elicit("?"), {"elicitation": {"form": {}}}, None),
        (Elicit("?"), {"elicitation": {"new": {}}}, None),
        (Elicit("?"), {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        (Elicit("?"), {"elicitation": True}, {"elicitation": {"form": {}}}),
        (Elicit("?"), {}, {"elicitation": {"form": {}}}),
        (ElicitUrl("?", "http://a.b/"), {"elicitation": {"url": {}}}, None),
        (ElicitUrl("?", "http://a.b/"), {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (Sample("?", max_tokens=1), {"sampling": {}}, None),
        (Sample("?", max_tokens=1), {"sampling": None}, {"sampling": {}}),
        (Sample("?", max_tokens=1, include_context="none"), {"sampling": {}}, None),
        (
            Sample("?", max_tokens=1, include_context="thisServer"),
            {"sampling": {}},
            {"sampling": {"context": {}}},
        ),
        (
            Sample("?", max_tokens=1, tool_choice=types.ToolChoice(mode="none")),
            {"sampling": {}},
            {"sampling": {"tools": {}}},
        ),
        (ListRoots(), {"roots": {}}, None),
        (ListRoots(), {}, {"roots": {}}),
    ],
)
async def test_capabilities(
    server: Server, question: Any, capabilities: dict[str, Any], required: dict[str, Any] | None
) -> None:
    @server.tool
    async def tool(ctx: Context) -> None:
        await ctx.ask(question)

    rounds = Rounds(server, capabilities=capabilities)
    if required is None:
        assert len(await rounds.asks()) == 1
    else:
        error = await rounds.fails()
        assert error["code"] == errors.MISSING_REQUIRED_CLIENT_CAPABILITY
        assert error["data"] == {"requiredCapabilities": required}


async def test_an_answered_question_needs_no_capability(server: Server) -> None:
    """Capabilities are those of one request; the client that retries may have declared none."""

    @server.tool
    async def tool(ctx: Context) -> str:
        return (await ctx.elicit("?", key="k")).action

    rounds = Rounds(server)
    await rounds.asks()
    rounds.meta = {}
    assert await rounds.completes({"k": yes()}) == "accept"


async def test_require(server: Server) -> None:
    @server.tool
    async def tool(ctx: Context, path: list[str]) -> str:
        ctx.require(*path)
        return "fine"

    for path in (["sampling"], ["sampling", "tools"]):
        assert await Rounds(server, arguments={"path": path}).completes() == "fine"
    error = await Rounds(server, capabilities={}, arguments={"path": ["sampling"]}).fails()
    assert error["code"] == errors.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert error["data"] == {"requiredCapabilities": {"sampling": {}}}
    error = await Rounds(server, arguments={"path": ["elicitation", "voice"]}).fails()
    assert error["data"] == {"requiredCapabilities": {"elicitation": {"voice": {}}}}


# Bounds


async def test_rounds_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s", version="1", limits=Limits(input_rounds=3))
    times = itertools.count()

    @server.tool
    async def tool(ctx: Context) -> None:
        await ctx.elicit(f"The {next(times)}th")  # another question in each round

    rounds = Rounds(server)
    for _ in range(3):
        [key] = await rounds.asks()
    error = await rounds.fails({key: yes()})
    assert error["code"] == errors.INTERNAL_ERROR
    assert error["message"] == "this request has asked for input 3 times already"
    assert "more than 3 times" in caplog.text


async def test_the_state_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s", version="1", limits=Limits(request_state=400))

    @server.tool
    async def tool(size: int) -> InputRequired:
        return InputRequired(state="x" * size)

    await Rounds(server, arguments={"size": 20}).asks()
    error = await Rounds(server, arguments={"size": 400}).fails()
    assert error["code"] == errors.INTERNAL_ERROR
    assert "may have 400" in error["message"]
    assert "tools/call" in caplog.text


async def test_a_state_that_json_cannot_hold(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.add_tool(lambda: InputRequired(state=object()), name="tool")
    assert (await Rounds(server).fails())["code"] == errors.INTERNAL_ERROR
    assert "cannot be sent" in caplog.text


async def test_answers_expire() -> None:
    server = Server("s", version="1", state_ttl=1e-9)

    @server.tool
    async def tool(ctx: Context) -> None:
        await ctx.elicit("?", key="k")

    rounds = Rounds(server)
    await rounds.asks()
    error = await rounds.fails({"k": yes()})
    assert error["code"] == errors.INVALID_PARAMS
    assert error["message"] == "params.requestState: expired; start again without it"


async def test_nobody_can_be_asked_after_the_answer(server: Server) -> None:
    kept: list[Context] = []

    @server.tool
    async def tool(ctx: Context) -> None:
        kept.append(ctx)

    await Rounds(server).send()
    with pytest.raises(RuntimeError, match="nobody left to ask"):
        await kept[0].list_roots()


# Questions and answers themselves


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/x",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://",
        "http:///x",
        "https://a.b/\n",
        "https://a.b/\x00",
        "mailto:a@b",
        "https:a.b",
    ],
)
def test_urls_are_checked(url: str) -> None:
    with pytest.raises(ValueError, match="not a URL"):
        ElicitUrl("?", url)


def test_questions_are_checked() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        Sample("?", max_tokens=0)
    for key in ("", 5):
        with pytest.raises(ValueError, match="a key is text"):
            ListRoots(key=key)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="surrogate"):
        Elicit("\ud800")
    with pytest.raises(TypeError, match="cannot be asked for"):
        Elicit("?", dict)


def test_keys_are_made_of_the_question() -> None:
    questions: list[Any] = [
        Elicit("?"),
        Elicit("!"),
        Elicit("?", str),
        Elicit("?", int),
        ElicitUrl("?", "http://a.b"),
        Sample("?", max_tokens=1),
        Sample("?", max_tokens=2),
        ListRoots(),
    ]
    assert len({question.own_key for question in questions}) == len(questions)
    assert Elicit("?", str).own_key == Elicit("?", str).own_key
    assert repr(Elicit("?", key="k")) == "<Elicit 'k'>"


async def test_conversations(server: Server) -> None:
    @server.tool
    async def tool(ctx: Context) -> str:
        said = await ctx.sample(
            ["One", types.SamplingMessage("assistant", types.TextContent("Two"))],
            max_tokens=5,
            system_prompt="Be brief",
            temperature=0,
            key="k",
        )
        return said.model

    rounds = Rounds(server)
    asked = await rounds.asks()
    assert asked["k"]["params"] == {
        "maxTokens": 5,
        "systemPrompt": "Be brief",
        "temperature": 0,
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "One"}},
            {"role": "assistant", "content": {"type": "text", "text": "Two"}},
        ],
    }
    assert await rounds.completes({"k": SAID}) == "m"
    error = await rounds.fails({"k": {"role": "assistant"}})
    assert error["code"] == errors.INVALID_PARAMS
    assert error["message"].startswith("params.inputResponses.k")


async def test_roots(server: Server) -> None:
    @server.tool
    async def tool(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots(key="k"))

    rounds = Rounds(server)
    await rounds.asks()
    assert await rounds.completes({"k": {"roots": [{"uri": "file:///a"}]}}) == "file:///a"
    assert await rounds.completes({"k": {"roots": []}}) == ""
    error = await rounds.fails({"k": {"roots": [{"uri": "http://a"}]}})
    assert error["message"] == "params.inputResponses.k.roots[0].uri: a file:// URI is expected"
    error = await rounds.fails({"k": {"roots": 5}})
    assert error["code"] == errors.INVALID_PARAMS


async def test_urls(server: Server) -> None:
    @server.tool
    async def tool(ctx: Context) -> str:
        return (await ctx.elicit_url("?", "https://a.b/c", key="k")).action

    rounds = Rounds(server)
    await rounds.asks()
    for action in ("accept", "decline", "cancel"):
        assert await rounds.completes({"k": {"action": action}}) == action
