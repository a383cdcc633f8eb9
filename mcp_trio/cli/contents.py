"""Content of tools, resources and prompts as text for people."""

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from mcp_trio import codec, errors, types
from mcp_trio.cli.text import harmless, size

__all__ = ["block", "data_of", "preview", "structured", "tool_output"]


def block(content: types.ContentBlock) -> Text:
    """One piece of content: a text as it is, anything else by what it is."""
    if isinstance(content, types.TextContent):
        return Text(harmless(content.text))
    if isinstance(content, types.ImageContent | types.AudioContent):
        return _note(content.type, content.mime_type, _length(content.data))
    if isinstance(content, types.ResourceLink):
        return _note("link", content.uri, content.name, content.mime_type)
    return Text.assemble(_note("resource", content.resource.uri), "\n", _resource(content.resource))


def _resource(contents: types.TextResourceContents | types.BlobResourceContents) -> Text:
    if isinstance(contents, types.TextResourceContents):
        return Text(harmless(contents.text))
    return _note(contents.mime_type or "bytes", _length(contents.blob))


def preview(contents: types.TextResourceContents | types.BlobResourceContents) -> str:
    """Contents to be shown the beginning of."""
    return _resource(contents).plain


def _note(*parts: str | None) -> Text:
    return Text(f"[{harmless(', '.join(part for part in parts if part))}]", "dim")


def _length(encoded: str) -> str:
    return size(len(encoded) * 3 // 4 - encoded[-2:].count("="))


def data_of(contents: types.TextResourceContents | types.BlobResourceContents) -> bytes | None:
    """The very bytes of a resource; None if its Base64 is none."""
    if isinstance(contents, types.TextResourceContents):
        return contents.text.encode(errors="surrogatepass")
    try:
        return base64.b64decode(contents.blob, validate=True)
    except binascii.Error:
        return None


def structured(value: Any) -> Text:
    """Any JSON, indented."""
    return Text(harmless(json.dumps(value, indent=2, ensure_ascii=False)))


def tool_output(result: types.CallToolResult) -> Iterator[Text]:
    """What a tool returned, without saying the same twice."""
    for content in result.content:
        yield block(content)
    if result.structured_content is not None and not _said(result):
        yield structured(result.structured_content)


def _said(result: types.CallToolResult) -> bool:
    """Whether the texts already are the structured content, as servers do it for old clients."""
    value = result.structured_content
    wrapped = value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value
    texts = [each.text for each in result.content if isinstance(each, types.TextContent)]
    for text in texts:
        try:
            parsed = codec.decode_json(text.encode(errors="replace"))
        except errors.ParseError:
            parsed = text
        if parsed in (value, wrapped):
            return True
    return bool(wrapped == texts)
