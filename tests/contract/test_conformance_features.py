"""The conformance suite's scenarios of tools, resources, prompts and completion, everywhere.

Each docstring names its scenario. `http-header-validation`, `http-custom-header-server-validation`
and `dns-rebinding-protection` are about HTTP alone and not here; `server-sse-multiple-streams`,
which asks three things at once, is.
"""

import base64
import re
from typing import Any

import pytest
from conformance_kit import (
    TOKEN,
    ask,
    called,
    check_result,
    check_schema,
    error_of,
    metadata,
    result_of,
)
from wire_kit import Open

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
MISSING = "test://nonexistent-resource-for-conformance-testing"


def bytes_of(data: str) -> bytes:
    """What Base64 stands for, in its one true form."""
    decoded = base64.b64decode(data, validate=True)
    assert decoded
    return decoded


# Tools


async def test_the_list_of_tools(connect: Open) -> None:
    """tools-list: each has a good name, a description and a schema; always in the same order."""
    async with connect() as client:
        lists = [(await result_of(client, "tools/list"))["tools"] for _ in range(3)]
        assert lists[0]
        for tool in lists[0]:
            assert NAME.fullmatch(tool["name"])
            assert tool["description"]
            assert tool["inputSchema"]["type"] == "object"
        names = [tool["name"] for tool in lists[0]]
        assert len(set(names)) == len(names)
        assert lists[0] == lists[1] == lists[2]


async def test_three_lists_at_once(connect: Open) -> None:
    """server-sse-multiple-streams: each request has its own answer."""
    async with connect() as client:
        exchanges = [await client.start(ask(number, "tools/list")) for number in (1, 2, 3)]
        for exchange in reversed(exchanges):
            response = await exchange.response()
            assert response["id"] == exchange.id
            check_result("tools/list", response["result"])


async def test_a_text(connect: Open) -> None:
    """tools-call-simple-text: called without arguments at all."""
    async with connect() as client:
        [block] = (await called(client, "test_simple_text"))["content"]
        text = "This is a simple text response for testing."
        assert block == {"type": "text", "text": text}


async def test_an_image(connect: Open) -> None:
    """tools-call-image."""
    async with connect() as client:
        [block] = (await called(client, "test_image_content", arguments={}))["content"]
        assert (block["type"], block["mimeType"]) == ("image", "image/png")
        assert bytes_of(block["data"]).startswith(b"\x89PNG")


async def test_a_sound(connect: Open) -> None:
    """tools-call-audio."""
    async with connect() as client:
        [block] = (await called(client, "test_audio_content", arguments={}))["content"]
        assert (block["type"], block["mimeType"]) == ("audio", "audio/wav")
        assert bytes_of(block["data"]).startswith(b"RIFF")


async def test_a_resource_within_a_result(connect: Open) -> None:
    """tools-call-embedded-resource."""
    async with connect() as client:
        [block] = (await called(client, "test_embedded_resource", arguments={}))["content"]
        assert block["type"] == "resource"
        assert block["resource"] == {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        }


async def test_several_kinds_of_content(connect: Open) -> None:
    """tools-call-mixed-content."""
    async with connect() as client:
        blocks = (await called(client, "test_multiple_content_types", arguments={}))["content"]
        assert [block["type"] for block in blocks] == ["text", "image", "resource"]
        assert blocks[2]["resource"]["uri"] == "test://mixed-content-resource"


async def test_a_tool_that_says_it_failed(connect: Open) -> None:
    """tools-call-error: that is a result, not an error."""
    async with connect() as client:
        result = await called(client, "test_error_handling", arguments={})
        assert result["isError"] is True
        assert result["content"][0]["text"]


@pytest.mark.parametrize("token", ["progress-test-1", 0, ""])
async def test_progress(connect: Open, token: str | int) -> None:
    """tools-call-with-progress: three reports at least, with the token, never less than before."""
    message = ask(1, "tools/call", name="test_tool_with_progress", arguments={})
    message["params"]["_meta"] = metadata(**{TOKEN: token})
    async with connect() as client:
        *reports, response = await (await client.start(message)).rest()
        check_result("tools/call", response["result"])
        assert len(reports) >= 3
        for report in reports:
            assert report["method"] == "notifications/progress"
            check_schema("ProgressNotification", report)
            assert report["params"]["progressToken"] == token
            assert type(report["params"]["progressToken"]) is type(token)
        values = [report["params"]["progress"] for report in reports]
        assert values == sorted(values)


async def test_a_schema_by_hand(connect: Open) -> None:
    """json-schema-2020-12: every keyword is listed as it was written, and holds."""
    async with connect() as client:
        tools = (await result_of(client, "tools/list"))["tools"]
        [tool] = [tool for tool in tools if tool["name"] == "json_schema_2020_12_tool"]
        schema = tool["inputSchema"]
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["$defs"]["address"]["$anchor"] == "addressDef"
        assert schema["properties"]["address"] == {"$ref": "#/$defs/address"}
        assert schema["additionalProperties"] is False
        assert schema["allOf"] == [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}]
        assert {"if", "then", "else"} <= schema.keys()
        good: dict[str, Any] = {"contactMethod": "phone", "phone": "1", "address": {"city": "Y"}}
        assert not (await called(client, tool["name"], arguments=good)).get("isError")
        bad: list[dict[str, Any]] = [
            {},
            {**good, "contactMethod": "post"},
            {"contactMethod": "phone", "email": "a@example.org"},
            {**good, "address": {"city": 5}},
            {**good, "unheard": "of"},
        ]
        for arguments in bad:
            assert (await called(client, tool["name"], arguments=arguments))["isError"] is True


# Resources


async def test_the_list_of_resources(connect: Open) -> None:
    """resources-list: each has a URI and a name."""
    async with connect() as client:
        resources = (await result_of(client, "resources/list"))["resources"]
        assert resources
        assert all(resource["uri"] and resource["name"] for resource in resources)


async def test_a_text_resource(connect: Open) -> None:
    """resources-read-text."""
    async with connect() as client:
        result = await result_of(client, "resources/read", uri="test://static-text")
        [content] = result["contents"]
        assert content == {
            "uri": "test://static-text",
            "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        }


async def test_a_binary_resource(connect: Open) -> None:
    """resources-read-binary."""
    async with connect() as client:
        result = await result_of(client, "resources/read", uri="test://static-binary")
        [content] = result["contents"]
        assert (content["uri"], content["mimeType"]) == ("test://static-binary", "image/png")
        assert bytes_of(content["blob"]).startswith(b"\x89PNG")


async def test_a_template(connect: Open) -> None:
    """resources-templates-read: it is listed, and what is read is of the URI that was asked for."""
    async with connect() as client:
        listed = await result_of(client, "resources/templates/list")
        assert "test://template/{id}/data" in [
            template["uriTemplate"] for template in listed["resourceTemplates"]
        ]
        uri = "test://template/123/data"
        [content] = (await result_of(client, "resources/read", uri=uri))["contents"]
        assert content["uri"] == uri
        assert "123" in content["text"]


async def test_a_resource_that_is_not_there(connect: Open) -> None:
    """sep-2164-resource-not-found: `-32602` with the URI; no empty contents."""
    async with connect() as client:
        error = await error_of(client, ask(1, "resources/read", uri=MISSING), -32602)
        assert error["data"]["uri"] == MISSING


# Prompts and completion


async def test_the_list_of_prompts(connect: Open) -> None:
    """prompts-list: each has a name and a description."""
    async with connect() as client:
        prompts = (await result_of(client, "prompts/list"))["prompts"]
        assert prompts
        assert all(prompt["name"] and prompt["description"] for prompt in prompts)


async def test_a_simple_prompt(connect: Open) -> None:
    """prompts-get-simple."""
    async with connect() as client:
        result = await result_of(client, "prompts/get", name="test_simple_prompt")
        [message] = result["messages"]
        text = "This is a simple prompt for testing."
        assert message == {"role": "user", "content": {"type": "text", "text": text}}


async def test_a_prompt_with_arguments(connect: Open) -> None:
    """prompts-get-with-args: both are in the text."""
    arguments = {"arg1": "testValue1", "arg2": "testValue2"}
    async with connect() as client:
        result = await result_of(
            client, "prompts/get", name="test_prompt_with_arguments", arguments=arguments
        )
        text = result["messages"][0]["content"]["text"]
        assert "testValue1" in text
        assert "testValue2" in text


async def test_a_prompt_with_a_resource(connect: Open) -> None:
    """prompts-get-embedded-resource."""
    arguments = {"resourceUri": "test://example-resource"}
    async with connect() as client:
        result = await result_of(
            client, "prompts/get", name="test_prompt_with_embedded_resource", arguments=arguments
        )
        contents = [message["content"] for message in result["messages"]]
        [resource] = [each["resource"] for each in contents if each["type"] == "resource"]
        assert resource["uri"] == "test://example-resource"
        assert resource["text"]


async def test_a_prompt_with_an_image(connect: Open) -> None:
    """prompts-get-with-image."""
    async with connect() as client:
        result = await result_of(client, "prompts/get", name="test_prompt_with_image")
        contents = [message["content"] for message in result["messages"]]
        [image] = [each for each in contents if each["type"] == "image"]
        assert image["mimeType"] == "image/png"
        assert bytes_of(image["data"])


async def test_a_completion(connect: Open) -> None:
    """completion-complete: values for the argument of a prompt."""
    async with connect() as client:
        result = await result_of(
            client,
            "completion/complete",
            ref={"type": "ref/prompt", "name": "test_prompt_with_arguments"},
            argument={"name": "arg1", "value": "test"},
        )
        assert result["completion"]["values"] == ["test", "testing", "tested"]


# All of them


CACHEABLE = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


async def test_hints_for_caches(connect: Open) -> None:
    """caching: how long, and for whom, in each list and in what is read."""
    async with connect() as client:
        results = [await result_of(client, method) for method in CACHEABLE]
        uri = results[2]["resources"][0]["uri"]
        results.append(await result_of(client, "resources/read", uri=uri))
        for result in results:
            assert type(result["ttlMs"]) is int
            assert result["ttlMs"] >= 0
            assert result["cacheScope"] in ("public", "private")
