"""The client for the conformance suite, without the suite: what each scenario calls, and with what.

The suite itself is `nox -s conformance`.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import trio

from mcp_trio import Context, Server, serve_http
from mcp_trio.server import Elicit, ListRoots, Sample

SCHEMA = {"type": "object", "$defs": {"a": {"$anchor": "x", "type": "string"}}}
CUSTOM = {"name": "add_numbers", "arguments": {"text": " padded ", "nothing": None}}

CALLS: dict[str, list[tuple[str, Any]]] = {
    "tools_call": [("add_numbers", {"a": 5, "b": 3})],
    "request-metadata": [("anything", {})],
    "http-standard-headers": [
        ("add_numbers", {}),
        ("anything", {}),
        ("json_schema_2020_12_tool", {}),
        ("json_schema_echo", {}),
        ("x://a", {}),
        ("prompt", {}),
    ],
    "http-custom-headers": [("add_numbers", CUSTOM["arguments"])],
    "http-invalid-tool-headers": [
        (name, {"region": "us-west1"})
        for name in ("add_numbers", "anything", "json_schema_2020_12_tool", "json_schema_echo")
    ],
    "sep-2322-client-request-state": [(f"test_mrtr_{n}", (True, "Paris.", [])) for n in range(4)],
    "json-schema-ref-no-deref": [],
    "json-schema-2020-12-preservation": [("json_schema_echo", {"schema": SCHEMA})],
}


@dataclasses.dataclass
class Form:
    """What is asked."""

    confirmed: bool


def scripted(calls: list[tuple[str, Any]], *, asking: bool) -> Server:
    """A server with what the scenarios ask for; it notes what they do."""
    server = Server("mock", version="1.0")

    def add_tool(name: str, schema: dict[str, Any]) -> None:
        async def tool(**arguments: Any) -> str:
            calls.append((name, arguments))
            return "done"

        server.add_tool(tool, name=name, input_schema=schema)

    def add_question(name: str, number: int) -> None:
        async def question(ctx: Context) -> str:
            form, said, roots = await ctx.ask(
                Elicit("Sure?", Form), Sample("The capital?", max_tokens=10), ListRoots()
            )
            assert form.content is not None
            answers = (form.content.confirmed, said.content.text, list(roots))  # type: ignore[union-attr]
            calls.append((f"test_mrtr_{number}", answers))
            return "done"

        server.add_tool(question, name=f"test_mrtr_{name}")

    async def read() -> str:
        calls.append(("x://a", {}))
        return "a"

    async def prompt() -> str:
        calls.append(("prompt", {}))
        return "b"

    if asking:
        for number, name in enumerate(("echo_state", "unrelated", "no_state", "no_result_type")):
            add_question(name, number)
        return server
    for name in ("add_numbers", "anything", "json_schema_echo"):
        add_tool(name, {"type": "object"})
    add_tool("json_schema_2020_12_tool", SCHEMA)
    server.add_resource("x://a", read, description="A resource.")
    server.add_prompt(prompt, description="A prompt.")
    return server


@pytest.fixture
def example(load_example: Callable[[str], ModuleType]) -> ModuleType:
    return load_example("conformance_client")


def test_every_scenario_is_tested(example: ModuleType) -> None:
    """None is there that nobody has looked at."""
    assert example.SCENARIOS.keys() == CALLS.keys()


@pytest.mark.parametrize("scenario", CALLS)
async def test_scenario(scenario: str, example: ModuleType, nursery: trio.Nursery) -> None:
    """What arrives at the server."""
    calls: list[tuple[str, Any]] = []
    server = scripted(calls, asking=scenario == "sep-2322-client-request-state")
    [url] = await nursery.start(serve_http, server, "127.0.0.1", 0)
    with trio.fail_after(20):
        await example.main(f"{url}/mcp", scenario, {"name": scenario, "toolCalls": [CUSTOM]})
    assert sorted(calls, key=str) == sorted(CALLS[scenario], key=str)
    nursery.cancel_scope.cancel()


async def test_as_the_suite_starts_it(
    example_path: Callable[[str], str], nursery: trio.Nursery
) -> None:
    """The scenario and its context come in the environment, and the URL at the end."""
    calls: list[tuple[str, Any]] = []
    [url] = await nursery.start(serve_http, scripted(calls, asking=False), "127.0.0.1", 0)
    context = json.dumps({"name": "http-custom-headers", "toolCalls": [CUSTOM]})
    environment = {
        **os.environ,
        "MCP_CONFORMANCE_SCENARIO": "http-custom-headers",
        "MCP_CONFORMANCE_CONTEXT": context,
    }
    command = [sys.executable, example_path("conformance_client"), f"{url}/mcp"]
    with trio.fail_after(30):
        await trio.run_process(command, env=environment)
    assert calls == CALLS["http-custom-headers"]
    nursery.cancel_scope.cancel()
