"""What a tool's return annotation promises about its results."""

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from mcp_trio import errors
from mcp_trio import types as protocol
from mcp_trio.server.contents import BLOCKS
from mcp_trio.server.questions import InputRequired
from mcp_trio.server.readers import Mismatch
from mcp_trio.server.schema import Builder
from mcp_trio.server.validation import Validator
from mcp_trio.server.writing import to_json

__all__ = ["Output", "output_of"]

_AWAITABLE: Final = (collections.abc.Awaitable, collections.abc.Coroutine)
_UNTOLD: Final = (Any, object, None, type(None), inspect.Signature.empty)


@attrs.frozen
class Output:
    """The schema of a tool's structured content, and what holds results to it.

    Attributes:
        schema: as it is listed.
        typed: whether it was made of an annotation.
    """

    schema: dict[str, Any]
    typed: bool
    _validator: Validator = attrs.field(repr=False)

    def to_json(self, value: Any) -> Any:
        """What a tool returned as the JSON value that was promised.

        Raises:
            codec.EncodeError: JSON cannot hold it.
        """
        return to_json(value, typed=self.typed)

    def check(self, structured: Any) -> None:
        """Do nothing for a JSON value that keeps the promise. JSON must be able to hold it.

        Raises:
            errors.InternalError: it does not; the message says where and why.
        """
        try:
            self._validator.check(structured)
        except Mismatch as problem:
            raise errors.InternalError(
                f"the result does not fit the output schema: {problem}"
            ) from None


def output_of(
    function: Callable[..., Any], schema: Mapping[str, Any] | bool | None
) -> Output | None:
    """What a tool promises about its structured content; None where it promises nothing.

    Args:
        function: the tool.
        schema: given by hand; False for none, None for what its return annotation says.

    Raises:
        ValueError: the schema cannot be used.
        TypeError: the annotation has no JSON form.
    """
    if schema is False:
        return None
    if isinstance(schema, Mapping):
        own = dict(schema)
        return Output(own, False, Validator(own))
    if schema is not None:
        raise TypeError(f"output_schema is a JSON Schema, False or None, not {schema!r}")
    annotation = _structured(_returned(function))
    if annotation is None:
        return None
    builder = Builder(outputs=True)
    try:
        inferred = builder.root(builder.spec(annotation)).schema
    except TypeError as problem:
        raise TypeError(f"what it returns: {problem}; output_schema=False promises nothing") from (
            problem
        )
    if not inferred:
        return None
    return Output(inferred, True, Validator(inferred))


def _structured(annotation: Any) -> Any:
    """The part of a return annotation that becomes structured content; None if there is none.

    Text, content blocks and nothing at all are content. A whole `CallToolResult`, or a question
    to the client, may be returned instead of what is promised.
    """
    members = [
        member
        for member in _members(annotation)
        if member not in (protocol.CallToolResult, InputRequired)
    ]
    if not members or any(_holds_blocks(member) for member in members):
        return None
    if all(member is str or member in _UNTOLD for member in map(_bare, members)):
        return None
    return members[0] if len(members) == 1 else typing.Union[tuple(members)]  # noqa: UP007


def _members(annotation: Any) -> list[Any]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return [part for member in typing.get_args(annotation) for part in _members(member)]
    if origin in _AWAITABLE:
        return _members(typing.get_args(annotation)[-1])
    return [annotation]


def _bare(annotation: Any) -> Any:
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    return None if isinstance(annotation, typing.TypeVar) else annotation


def _holds_blocks(annotation: Any) -> bool:
    """Whether something is a content block, or a list of such."""
    annotation = _bare(annotation)
    if annotation in BLOCKS:
        return True
    kind = typing.get_origin(annotation)
    if kind in (list, tuple, collections.abc.Sequence):
        parts = [part for item in typing.get_args(annotation) for part in _members(item)]
        return any(_bare(part) in BLOCKS for part in parts)
    return False


def _returned(function: Callable[..., Any]) -> Any:
    """The return annotation of a function, however it is wrapped."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = getattr(function, "__call__")  # noqa: B004, B009 - its annotations are wanted
    function = getattr(function, "__func__", function)
    if "return" not in getattr(function, "__annotations__", {}):
        return None
    return typing.get_type_hints(function, include_extras=True)["return"]
