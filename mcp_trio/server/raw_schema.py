"""Input schemas that are written by hand: kept as they are, and what arguments are checked by.

Source: specification, server/tools, "Tool"; basic/index, "JSON Schema Usage".
"""

from collections.abc import Mapping
from typing import Any

from mcp_trio import codec
from mcp_trio.server.fields import MISSING
from mcp_trio.server.handlers import Shape
from mcp_trio.server.readers import TypeSpec, read_fields
from mcp_trio.server.schema import Builder
from mcp_trio.server.validation import Validator, check_size

__all__ = ["raw_spec"]


def raw_spec(schema: Mapping[str, Any], shape: Shape) -> TypeSpec:
    """What a schema by hand comes to for a function.

    The function gets the arguments that it names, and with ``**keywords`` all of them; each is
    read as what it is annotated with, once it has been found to fit the schema.

    Raises:
        ValueError: it is no JSON Schema of an object, too large or too deep, or refers to another
            document; or the function asks for an argument that may be absent.
        TypeError: a parameter is annotated with what has no JSON form.
        codec.EncodeError: it is no JSON.
    """
    if not isinstance(schema, Mapping):
        raise TypeError(f"input_schema is a JSON Schema, not {schema!r}")
    check_size(dict(schema))
    own = codec.decode_json(codec.encode_json(dict(schema)))  # what becomes of the other is yours
    if own.get("type") != "object":
        raise ValueError("the schema of arguments has the type 'object'")
    validator = Validator(own)
    required = own.get("required", [])
    for field in shape.fields:
        if field.default is MISSING and field.name not in required:
            raise ValueError(f"the schema does not require {field.name!r}, but the function does")
    builder = Builder()
    readers = {field.name: builder.spec(field.annotation).read for field in shape.fields}
    read_more = None if shape.extra is MISSING else builder.spec(shape.extra).read

    def read(value: Any, path: str) -> dict[str, Any]:
        validator.check(value)
        if read_more is None:
            value = {name: item for name, item in value.items() if name in readers}
        return read_fields(value, path, readers, (), read_more)

    return TypeSpec(own, read)
