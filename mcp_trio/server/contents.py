"""From what a handler returns to what the protocol sends."""

import base64
from typing import Any, Final

from mcp_trio import codec, errors, types
from mcp_trio.server.caching import MAX_TTL

__all__ = [
    "BLOCKS",
    "is_content",
    "prompt_result",
    "resource_result",
    "tool_error",
    "tool_result",
]

BLOCKS: Final = (
    types.TextContent,
    types.ImageContent,
    types.AudioContent,
    types.ResourceLink,
    types.EmbeddedResource,
)
_CONTENTS: Final = (types.TextResourceContents, types.BlobResourceContents)


def is_content(value: Any) -> bool:
    """Whether what a tool returned is content as it is: text, blocks, a list with some, nothing."""
    if value is None or isinstance(value, (str, *BLOCKS)):
        return True
    return isinstance(value, list | tuple) and any(isinstance(item, BLOCKS) for item in value)


def tool_result(value: Any) -> dict[str, Any]:
    """The result of a tool that returned content (`is_content`) or a `types.CallToolResult`.

    Text becomes a text block, nothing becomes no block. Content blocks are taken as they are,
    alone or in a list, where text may stand between them.

    Raises:
        errors.InternalError: something in the list is neither.
    """
    if isinstance(value, types.CallToolResult):
        return _unstructure(value)
    if value is None:
        return {"content": []}
    items = value if isinstance(value, list | tuple) else [value]
    return {"content": [_block(item) for item in items]}


def tool_error(text: str) -> dict[str, Any]:
    """The result of a tool that failed, in words the model can act on."""
    return {"content": [_text(text)], "isError": True}


def resource_result(value: Any, uri: str, mime_type: str | None) -> dict[str, Any]:
    """The result of reading a resource whose handler returned a value.

    Args:
        value: text, bytes, a `types.TextResourceContents` or `types.BlobResourceContents`, a
            list of these, or a whole `types.ReadResourceResult`.
        uri: the URI that was read.
        mime_type: what the resource was registered with.

    Raises:
        errors.InternalError: the handler returned something else.
    """
    if isinstance(value, types.ReadResourceResult):
        wire = _unstructure(value)
        if not 0 <= value.ttl_ms < MAX_TTL:
            raise errors.InternalError(f"not a ReadResourceResult: ttl_ms is {value.ttl_ms}")
        return wire
    values = value if isinstance(value, list | tuple) else [value]
    return {"contents": [_contents(item, uri, mime_type) for item in values]}


def prompt_result(value: Any, description: str | None) -> dict[str, Any]:
    """The result of a prompt whose handler returned a value.

    Args:
        value: text, a content block or a `types.PromptMessage`; a list of these; or a whole
            `types.GetPromptResult`. Text and blocks are said by the user.
        description: what the prompt was registered with.

    Raises:
        errors.InternalError: the handler returned something else.
    """
    if isinstance(value, types.GetPromptResult):
        return _unstructure(value)
    values = value if isinstance(value, list | tuple) else [value]
    result: dict[str, Any] = {"messages": [_message(item) for item in values]}
    if description is not None:
        result["description"] = description
    return result


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _block(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        return _text(item)
    if isinstance(item, BLOCKS):
        return _unstructure(item)
    raise errors.InternalError(f"not a content block: {type(item).__name__}")


def _contents(item: Any, uri: str, mime_type: str | None) -> dict[str, Any]:
    if isinstance(item, str):
        return {"uri": uri, "mimeType": mime_type or "text/plain", "text": item}
    if isinstance(item, bytes | bytearray | memoryview):
        blob = base64.b64encode(item).decode("ascii")
        return {"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": blob}
    if isinstance(item, _CONTENTS):
        return _unstructure(item)
    raise errors.InternalError(f"not a content of a resource: {type(item).__name__}")


def _message(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        return {"role": "user", "content": _text(item)}
    if isinstance(item, types.PromptMessage):
        return _unstructure(item)
    if isinstance(item, BLOCKS):
        return {"role": "user", "content": _unstructure(item)}
    raise errors.InternalError(f"not a message of a prompt: {type(item).__name__}")


def _unstructure(value: types.Value) -> dict[str, Any]:
    """A value of the protocol as the wire has it. Nobody has looked at what it was made of.

    Raises:
        errors.InternalError: something in it is of another type than the protocol has there.
    """
    kind = next(base for base in type(value).__mro__ if base.__module__ == types.__name__)
    try:
        wire: dict[str, Any] = codec.unstructure(value)
        codec.structure(kind, wire)
    except (codec.DecodeError, TypeError) as problem:
        raise errors.InternalError(f"not a {kind.__name__}: {problem}") from None
    return wire
