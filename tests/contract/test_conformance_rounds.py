"""The conformance suite's `input-required-result-*` scenarios, over every transport."""

from typing import Any

import pytest
from conformance_kit import ask, called, check_schema, error_of, metadata, respond, result_of
from wire_kit import Open, WireClient

PREFIX = "test_input_required_result_"


def accepted(**content: Any) -> dict[str, Any]:
    """What a user filled in."""
    return {"action": "accept", "content": content}


def said(text: str) -> dict[str, Any]:
    """What a model said."""
    return {
        "role": "assistant",
        "content": {"type": "text", "text": text},
        "model": "test-model",
        "stopReason": "endTurn",
    }


ROOTS = {"roots": [{"uri": "file:///test/root", "name": "Test Root"}]}
NAME = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}


async def first_round(client: WireClient, tool: str, **more: Any) -> dict[str, Any]:
    """Call one of the tools that ask, and return what it asks."""
    result = await called(client, PREFIX + tool, arguments={}, **more)
    assert result["resultType"] == "input_required", result
    for asked in result["inputRequests"].values():
        check_schema("InputRequest", asked)
    return result


async def next_round(
    client: WireClient, tool: str, result: dict[str, Any], **answers: Any
) -> dict[str, Any]:
    """Call it again, with answers and the state that it gave."""
    return await called(
        client,
        PREFIX + tool,
        arguments={},
        inputResponses=answers,
        requestState=result["requestState"],
    )


def text_of(result: dict[str, Any]) -> str:
    """What a tool returned in the end."""
    assert result["resultType"] == "complete", result
    [block] = result["content"]
    text: str = block["text"]
    return text


async def test_an_elicitation(connect: Open) -> None:
    """input-required-result-basic-elicitation."""
    async with connect() as client:
        result = await first_round(client, "elicitation")
        [(key, asked)] = result["inputRequests"].items()
        assert key == "user_name"
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == "What is your name?"
        assert asked["params"]["requestedSchema"] == NAME
        result = await next_round(client, "elicitation", result, user_name=accepted(name="Alice"))
        assert text_of(result) == "Hello, Alice!"


async def test_a_sampling(connect: Open) -> None:
    """input-required-result-basic-sampling."""
    async with connect() as client:
        result = await first_round(client, "sampling")
        [asked] = result["inputRequests"].values()
        assert asked["method"] == "sampling/createMessage"
        result = await next_round(client, "sampling", result, capital_question=said("Paris."))
        assert text_of(result)


async def test_roots(connect: Open) -> None:
    """input-required-result-basic-list-roots."""
    async with connect() as client:
        result = await first_round(client, "list_roots")
        [asked] = result["inputRequests"].values()
        assert asked["method"] == "roots/list"
        result = await next_round(client, "list_roots", result, client_roots=ROOTS)
        assert "1" in text_of(result)


async def test_a_state(connect: Open) -> None:
    """input-required-result-request-state: a string, which is given back as it is."""
    async with connect() as client:
        result = await first_round(client, "request_state")
        assert isinstance(result["requestState"], str)
        assert result["inputRequests"]
        result = await next_round(client, "request_state", result, confirm=accepted(ok=True))
        assert "state-ok" in text_of(result)


async def test_several_at_once(connect: Open) -> None:
    """input-required-result-multiple-input-requests."""
    answers = {
        "elicitation/create": accepted(name="Alice"),
        "sampling/createMessage": said("Hello there!"),
        "roots/list": ROOTS,
    }
    async with connect() as client:
        result = await first_round(client, "multiple_inputs")
        asked = result["inputRequests"]
        assert {each["method"] for each in asked.values()} == answers.keys()
        assert isinstance(result["requestState"], str)
        given = {key: answers[each["method"]] for key, each in asked.items()}
        assert text_of(await next_round(client, "multiple_inputs", result, **given))


async def test_several_rounds(connect: Open) -> None:
    """input-required-result-multi-round: each with another state."""
    async with connect() as client:
        first = await first_round(client, "multi_round")
        second = await next_round(client, "multi_round", first, step1=accepted(name="Alice"))
        assert second["resultType"] == "input_required"
        assert set(second["inputRequests"]) == {"step2"}
        assert second["requestState"] != first["requestState"]
        result = await next_round(client, "multi_round", second, step2=accepted(color="blue"))
        assert text_of(result)


async def test_an_answer_to_another_question(connect: Open) -> None:
    """input-required-result-missing-input-response: the question is asked again."""
    async with connect() as client:
        asked = await first_round(
            client, "elicitation", inputResponses={"wrong_key": accepted(data="wrong")}
        )
        assert set(asked["inputRequests"]) == {"user_name"}


async def test_a_prompt_that_asks(connect: Open) -> None:
    """input-required-result-non-tool-request."""
    name = PREFIX + "prompt"
    async with connect() as client:
        result = await result_of(client, "prompts/get", name=name)
        assert set(result["inputRequests"]) == {"user_context"}
        result = await result_of(
            client,
            "prompts/get",
            name=name,
            inputResponses={"user_context": accepted(context="a test")},
            requestState=result["requestState"],
        )
        assert "a test" in result["messages"][0]["content"]["text"]


async def test_the_kind_of_a_result(connect: Open) -> None:
    """input-required-result-result-type: it is said in so many words."""
    async with connect() as client:
        response = await respond(client, ask(1, "tools/call", name=PREFIX + "elicitation"))
        assert response["result"]["resultType"] == "input_required"
        assert not {"content", "structuredContent", "isError"} & response["result"].keys()


@pytest.mark.parametrize("method", ["tools/list", "prompts/list"])
async def test_what_never_asks(connect: Open, method: str) -> None:
    """input-required-result-unsupported-methods: whatever comes with the request."""
    async with connect() as client:
        more: list[dict[str, Any]] = [{}, {"inputResponses": {}, "requestState": "x"}]
        for params in more:
            assert (await result_of(client, method, **params))["resultType"] == "complete"


async def test_a_state_that_was_tampered_with(connect: Open) -> None:
    """input-required-result-tampered-state: `-32602`, and nothing of it is used."""
    async with connect() as client:
        result = await first_round(client, "tampered_state")
        state = result["requestState"]
        for bad in (state + "-TAMPERED", state[:-1], "A" + state[1:], ""):
            message = ask(
                1,
                "tools/call",
                name=PREFIX + "tampered_state",
                arguments={},
                inputResponses={"confirm": accepted(ok=True)},
                requestState=bad,
            )
            if bad != state:
                await error_of(client, message, -32602)
        result = await next_round(client, "tampered_state", result, confirm=accepted(ok=True))
        assert text_of(result)


@pytest.mark.parametrize(
    ("capabilities", "methods"),
    [
        ({"sampling": {}}, {"sampling/createMessage"}),
        ({"elicitation": {}}, {"elicitation/create"}),
        ({"elicitation": {"form": {}}}, {"elicitation/create"}),
    ],
)
async def test_only_what_the_client_can_answer(
    connect: Open, capabilities: dict[str, Any], methods: set[str]
) -> None:
    """input-required-result-capability-check."""
    async with connect() as client:
        result = await first_round(client, "capabilities", _meta=metadata(capabilities))
        assert {each["method"] for each in result["inputRequests"].values()} == methods


async def test_more_answers_than_questions(connect: Open) -> None:
    """input-required-result-ignore-extra-params."""
    answers = {
        "user_name": accepted(name="Alice"),
        "unknown_extra_key": accepted(foo="bar"),
        "another_unexpected": accepted(baz=123),
    }
    async with connect() as client:
        result = await called(client, PREFIX + "elicitation", arguments={}, inputResponses=answers)
        assert text_of(result) == "Hello, Alice!"


NO_ANSWERS: list[Any] = [
    None,
    5,
    [],
    {"user_name": 12345},
    {"user_name": None},
    {"user_name": {}},
    {"user_name": {"action": "agree"}},
    {"user_name": {"action": "accept"}},
    {"user_name": accepted(name=5)},
    {"user_name": {"action": "accept", "content": "Alice"}},
]


@pytest.mark.parametrize("answers", NO_ANSWERS, ids=range(len(NO_ANSWERS)))
async def test_what_is_no_answer(connect: Open, answers: Any) -> None:
    """input-required-result-validate-input: `-32602`; such a call is never completed."""
    message = ask(
        1, "tools/call", name=PREFIX + "elicitation", arguments={}, inputResponses=answers
    )
    async with connect() as client:
        await error_of(client, message, -32602)
