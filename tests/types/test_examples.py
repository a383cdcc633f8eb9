"""The official examples: each goes through our types and comes out as it went in.

An example is named after a definition of the schema. Those that are whole messages take the way
that messages take: their envelope is read by `mcp_trio.protocol.jsonrpc`, their params or result
become a value of `mcp_trio.types`, and the bytes that are written of both say the same again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_trio import codec, errors, types
from mcp_trio.protocol import jsonrpc

EXAMPLES = (Path(__file__).parents[3] / "shared" / "schema" / types.REVISION / "examples").resolve()
FILES = sorted(EXAMPLES.glob("*/*.json"))

# Two examples are not what the specification asks for. Both are read all the same.
OFF_SPEC = {
    # A request inside an InputRequiredResult has no id: it is no JSON-RPC request of its own.
    # (The id is an unknown field to us, and is kept as one.)
    "ListRootsRequest/list-roots-request",
    # The result of resources/read must have ttlMs and cacheScope. (To us they have defaults,
    # the ones that the specification gives for what is absent, and we do write them.)
    "ReadResourceResultResponse/read-resource-result-response",
}
ADDED = {
    "ReadResourceResultResponse/read-resource-result-response": {
        "ttlMs": 0,
        "cacheScope": "private",
    }
}


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.skipif(not FILES, reason="the official examples are not part of the repository")
def test_there_are_examples() -> None:
    """And the two that are off the specification are still among them."""
    assert len(FILES) >= 129
    assert {_name(path) for path in FILES} >= OFF_SPEC


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_an_example_comes_out_as_it_went_in(path: Path) -> None:
    """Without loss: what is not known is kept, what was absent stays absent."""
    text = path.read_bytes()
    expected = json.loads(text)
    expected.get("result", {}).update(ADDED.get(_name(path), {}))
    assert _there_and_back(path.parent.name, text) == expected


@pytest.mark.parametrize(
    "path", [path for path in FILES if hasattr(types, path.parent.name)], ids=_name
)
def test_an_example_has_no_unknown_fields(path: Path) -> None:
    """So `extra` is for what others add, and no known field is missed by the generator."""
    value = codec.structure(getattr(types, path.parent.name), json.loads(path.read_bytes()))
    extras = {key for each in _values(value) for key in each.extra}
    assert extras == ({"id"} if _name(path) in OFF_SPEC else set())


def _values(value: Any) -> Iterator[types.Value]:
    if isinstance(value, types.Value):
        yield value
        for name in type(value).__slots__:  # type: ignore[attr-defined]
            yield from _values(getattr(value, name, None))
    elif isinstance(value, tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _values(item)


def _there_and_back(name: str, text: bytes) -> Any:
    """Read an example as what its name says, and write it again."""
    value = json.loads(text)
    if hasattr(types, name):
        return _typed(getattr(types, name), value)
    if name.endswith("ResultResponse"):
        reply = jsonrpc.parse_server_message(text)
        assert isinstance(reply, jsonrpc.ResultReply)
        result = _typed(getattr(types, name.removesuffix("Response")), reply.result)
        return json.loads(jsonrpc.result_reply(reply.id, result).frame)
    if "error" in value:
        failure = jsonrpc.parse_server_message(text)
        assert isinstance(failure, jsonrpc.ErrorReply)
        assert type(failure.error).__name__ == name.removesuffix("Error")
        return json.loads(jsonrpc.error_reply(failure.id, failure.error).frame)
    if "code" in value:  # the error object alone
        error = errors.ErrorResponse.from_wire(value["code"], value["message"], value.get("data"))
        assert type(error).__name__ in {name, name.removesuffix("Error")}
        return json.loads(jsonrpc.error_reply(1, error).frame)["error"]
    return _message(text)


def _message(text: bytes) -> Any:
    """A request or a notification, whoever sends it."""
    from_server = json.loads(text)["method"] not in CLIENT_METHODS
    message = (jsonrpc.parse_server_message if from_server else jsonrpc.parse_client_message)(text)
    assert isinstance(message, jsonrpc.Request | jsonrpc.Notification)
    params = _typed(types.METHODS[message.method].params, message.params)
    if isinstance(message, jsonrpc.Request):
        return json.loads(jsonrpc.encode_request(message.id, message.method, params))
    return json.loads(jsonrpc.encode_notification(message.method, params or None))


CLIENT_METHODS = {
    "notifications/cancelled",
    *(method for method in types.METHODS if not method.startswith("notifications/")),
}


def _typed(cls: Any, value: Any) -> Any:
    return codec.unstructure(codec.structure(cls, value))
