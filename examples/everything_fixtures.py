"""What the official conformance suite asks a server to have, for `everything_server.py`.

Names, texts and arguments are the suite's. Most tools show one feature each, so this is also a
place to look up how something is done.
"""

import base64
import struct
import zlib
from typing import Annotated, Any

import trio

from mcp_trio import Complete, Context, Server
from mcp_trio.server import Elicit, Header, ListRoots, Sample
from mcp_trio.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    TextContent,
    TextResourceContents,
)

STEP = 0.05
"""Seconds between two reports of progress."""


def _png() -> str:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    picture = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels)
    return base64.b64encode(picture + chunk(b"IEND", b"")).decode()


def _wav() -> str:
    """A moment of silence."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    body = b"WAVE" + form + b"data" + struct.pack("<I", 8) + b"\x80" * 8
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(body)) + body).decode()


PNG, WAV = _png(), _wav()
CONTACT_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
IMAGE = ImageContent(PNG, "image/png")


def form(**properties: str) -> dict[str, Any]:
    """The schema of a form in which everything has to be filled in."""
    fields = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": fields, "required": list(fields)}


def register(server: Server) -> None:
    """Register all of it. The suite calls the tool that is listed first without arguments."""
    register_contents(server)
    register_changes(server)
    register_questions(server)
    register_resources(server)
    register_prompts(server)


def register_contents(server: Server) -> None:
    """Tools that return each kind of content, report progress, log, and fail."""

    @server.tool
    async def test_simple_text() -> str:
        """Return a text."""
        return "This is a simple text response for testing."

    @server.tool
    async def test_image_content() -> ImageContent:
        """Return an image."""
        return IMAGE

    @server.tool
    async def test_audio_content() -> AudioContent:
        """Return a sound."""
        return AudioContent(WAV, "audio/wav")

    @server.tool
    async def test_embedded_resource() -> EmbeddedResource:
        """Return a resource within the result."""
        text = "This is an embedded resource content."
        return EmbeddedResource(
            TextResourceContents("test://embedded-resource", text, mime_type="text/plain")
        )

    @server.tool
    async def test_multiple_content_types() -> list[ContentBlock]:
        """Return several kinds of content at once."""
        mixed = TextResourceContents(
            "test://mixed-content-resource",
            '{"test":"data","value":123}',
            mime_type="application/json",
        )
        return [TextContent("Multiple content types test:"), IMAGE, EmbeddedResource(mixed)]

    @server.tool
    async def test_error_handling() -> CallToolResult:
        """Fail in a way that the caller's model can read."""
        text = TextContent("This tool intentionally returns an error for testing")
        return CallToolResult(content=[text], is_error=True)

    @server.tool(input_schema=CONTACT_SCHEMA)
    async def json_schema_2020_12_tool(**contact: Any) -> str:
        """Take arguments by a schema that was written by hand."""
        return f"There are {len(contact)} fields."

    @server.tool
    async def test_x_mcp_header(region: Annotated[str, Header("Region")] = "") -> str:
        """Take an argument that is a header, too."""
        return f"The region is {region or 'not given'}."

    @server.tool
    async def test_tool_with_progress(ctx: Context) -> str:
        """Report progress three times."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100, f"Completed step {done} of 100")
            await trio.sleep(STEP)
        return "done"

    @server.tool
    async def progress(ctx: Context, steps: int) -> str:
        """Report progress as often as one likes."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps)
        return f"{steps} steps"

    @server.tool
    async def log(ctx: Context) -> str:
        """Log one line, for a client that has asked for such."""
        await ctx.log("info", "one line")
        return "logged"

    @server.tool
    async def test_logging_tool(ctx: Context) -> str:
        """Log while it works, for a client that has asked for it."""
        await ctx.log("info", "working")
        return "worked"

    @server.tool
    async def test_streaming_elicitation(ctx: Context) -> str:
        """Answer by a stream, in which no requests of the server may be."""
        await ctx.report_progress(1, 2)
        return "streamed"

    @server.tool
    async def test_missing_capability(ctx: Context) -> str:
        """Refuse clients that lend no model."""
        ctx.require("sampling")
        return "the client lends a model"


def register_changes(server: Server) -> None:
    """Tools that change the lists and change them back."""

    async def comes_and_goes() -> str:
        """Be here for a moment."""
        return "here"

    @server.tool
    async def test_trigger_tool_change() -> str:
        """Add a tool and remove it."""
        server.add_tool(comes_and_goes)
        server.remove_tool("comes_and_goes")
        return "the list of tools has changed"

    @server.tool
    async def test_trigger_prompt_change() -> str:
        """Add a prompt and remove it."""
        server.add_prompt(comes_and_goes)
        server.remove_prompt("comes_and_goes")
        return "the list of prompts has changed"


def register_questions(server: Server) -> None:
    """Tools that ask the client for input before they answer."""
    name = Elicit("What is your name?", form(name="string"), key="user_name")

    @server.tool
    async def test_input_required_result_elicitation(ctx: Context) -> str:
        """Ask the user for a name."""
        [answer] = await ctx.ask(name)
        return f"Hello, {answer.content['name'] if answer.content else 'stranger'}!"

    @server.tool
    async def test_input_required_result_sampling(ctx: Context) -> str:
        """Ask the client's model for a capital."""
        question = "What is the capital of France?"
        await ctx.sample(question, max_tokens=100, key="capital_question")
        return "The model has answered."

    @server.tool
    async def test_input_required_result_list_roots(ctx: Context) -> str:
        """Ask for the client's roots."""
        roots = await ctx.list_roots(key="client_roots")
        return f"The client has {len(roots)} roots."

    @server.tool
    async def test_input_required_result_request_state(ctx: Context) -> str:
        """Ask for a confirmation, and know the request again by its state."""
        await ctx.elicit("Please confirm.", form(ok="boolean"), key="confirm")
        return "state-ok"

    @server.tool
    async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
        """Ask three things at once."""
        greeting = Sample("Generate a greeting.", max_tokens=50, key="greeting")
        await ctx.ask(name, greeting, ListRoots(key="client_roots"))
        return "All three have been answered."

    @server.tool
    async def test_input_required_result_multi_round(ctx: Context) -> str:
        """Ask one thing after the other."""
        await ctx.elicit("Step 1: your name?", form(name="string"), key="step1")
        await ctx.elicit("Step 2: your colour?", form(color="string"), key="step2")
        return "Both have been answered."

    @server.tool
    async def test_input_required_result_tampered_state(ctx: Context) -> str:
        """Refuse a state that is not as it was given."""
        await ctx.elicit("Please confirm.", form(ok="boolean"), key="confirm")
        return "The state was as it had been given."

    @server.tool
    async def test_input_required_result_capabilities(ctx: Context) -> str:
        """Ask only what the client can answer."""
        if ctx.meta.declares("sampling"):
            await ctx.sample("Say something.", max_tokens=50, key="sample")
        if ctx.meta.declares("elicitation"):
            await ctx.ask(name)
        return "That was all."


def register_resources(server: Server) -> None:
    """A text, bytes, a template, and one to follow."""

    @server.resource("test://static-text", mime_type="text/plain")
    async def static_text() -> str:
        """A text that stays as it is."""
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    async def static_binary() -> BlobResourceContents:
        """A picture that stays as it is."""
        return BlobResourceContents("test://static-binary", PNG, mime_type="image/png")

    @server.resource("test://watched-resource", mime_type="text/plain")
    async def watched() -> str:
        """A text to follow."""
        return "Watched resource content."

    @server.resource("test://template/{id}/data", mime_type="application/json")
    async def template(id: str) -> str:
        """Data that depend on the address."""
        return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'


def register_prompts(server: Server) -> None:
    """Prompts with and without arguments, with other content than text, and with a question."""

    @server.prompt
    async def test_simple_prompt() -> str:
        """Say one thing."""
        return "This is a simple prompt for testing."

    @server.prompt
    async def test_prompt_with_arguments(
        arg1: Annotated[str, Complete(["test", "testing", "tested"])], arg2: str
    ) -> str:
        """Repeat two arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt
    async def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:  # noqa: N803
        """Bring a resource along."""
        text = "Embedded resource content for testing."
        resource = EmbeddedResource(TextResourceContents(resourceUri, text, mime_type="text/plain"))
        please = TextContent("Please process the embedded resource above.")
        return [PromptMessage("user", resource), PromptMessage("user", please)]

    @server.prompt
    async def test_prompt_with_image() -> list[PromptMessage]:
        """Bring an image along."""
        please = TextContent("Please analyze the image above.")
        return [PromptMessage("user", IMAGE), PromptMessage("user", please)]

    @server.prompt
    async def test_input_required_result_prompt(ctx: Context) -> str:
        """Ask the user what it is about."""
        answer = await ctx.elicit(
            "What context should the prompt use?", form(context="string"), key="user_context"
        )
        return f"Use this context: {answer.content['context'] if answer.content else 'none'}"
