"""Generate `mcp_trio/types.py` from the JSON Schema of the protocol.

    python tests/tools/generate_types.py            write the file
    python tests/tools/generate_types.py --check    say whether it is current (exit status 1: no)

The schema is not part of this repository; `--schema PATH` says where it is. What the schema does
not say is in `types.toml` beside this file: a docstring for each class, names for the objects
that the schema leaves unnamed, which definitions are left out and why. A definition that is
neither reached nor listed there, or listed in vain, stops the generator, so a new edition of the
schema cannot slip by. `types_head.txt` is how the module begins.

What is generated: all that the params of a message or its result can hold. Not generated: the
JSON-RPC envelopes around them (`mcp_trio.protocol.jsonrpc` reads and writes those) and error
objects (`mcp_trio.errors`).
"""

import argparse
import functools
import json
import keyword
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
REPOSITORY: Final = HERE.parents[1]
REVISION: Final = "2026-07-28"
TARGET: Final = REPOSITORY / "mcp_trio" / "types.py"
SCHEMA: Final = REPOSITORY.parent / "shared" / "schema" / REVISION / "schema.json"

Schema = dict[str, Any]

LINE: Final = 100
EVERY_JSON_TYPE: Final = {"dict[str, Any]", "Sequence[Any]", "str", "float", "bool", "None"}

# What a constructor fills in. A tag (a const) needs no entry: its only value is its default.
DEFAULTS: Final = {
    "resultType": '"complete"',
    "ttlMs": "0",
    "cacheScope": '"private"',
}
# What no params or result refers to, and is wanted all the same.
STANDALONE: Final = ("ClientCapabilities", "Implementation", "InputRequiredResult", "Result")
FIRST: Final = ("name", "uri", "uriTemplate", "message", "role", "content", "text")
LAST: Final = ("resultType", "ttlMs", "cacheScope", "_meta")


class OutOfStepError(Exception):
    """The schema and the tables here do not belong together."""


def patch(definitions: dict[str, Schema]) -> None:
    """Put back what was lost when the schema was made from its TypeScript source."""
    # "number" became "integer", "null" vanished, in the two unions of primitive types.
    scalars = definitions["JSONValue"]["anyOf"][-1]["type"]
    content = definitions["ElicitResult"]["properties"]["content"]
    answers = content["additionalProperties"]["anyOf"][-1]["type"]
    for kinds in (scalars, answers):
        if kinds != ["string", "integer", "boolean"]:
            raise OutOfStepError(f"a patch has become needless, or wrong: {kinds}")
    scalars[:] = ["string", "number", "boolean", "null"]
    answers[:] = ["string", "number", "boolean"]
    # Only its own field tells the legacy schema from UntitledSingleSelectEnumSchema.
    definitions["LegacyTitledEnumSchema"]["required"].append("enumNames")
    # An InputRequiredResult is known by this value, and by nothing else.
    tag = definitions["InputRequiredResult"]["properties"]["resultType"]
    tag["const"] = "input_required"


@dataclass
class Method:
    """One row of the METHODS table, by the names of its types."""

    params: str
    result: str | None = None
    input_required: bool = False


@dataclass
class Generator:
    """Turns definitions into source, each after what it needs."""

    definitions: dict[str, Schema]
    words: dict[str, Any]
    source: dict[str, str] = field(default_factory=dict)
    """What is generated so far, by name, in the order of the file."""
    resolved: dict[str, str] = field(default_factory=dict)
    """The expression that stands for a definition: its name, or plain JSON."""
    used_words: set[str] = field(default_factory=set)
    wire_names: dict[str, str] = field(default_factory=dict)
    inline: dict[str, Schema] = field(default_factory=dict)

    def module(self) -> str:
        """The whole file."""
        if (json_value := self.reference("JSONValue")) != "Any":
            raise OutOfStepError(f"JSONValue is no longer any JSON value, but {json_value}")
        methods = self.methods()
        for row in methods.values():
            self.reference(row.params)
            if row.result is not None:
                self.reference(row.result)
        for name in STANDALONE:
            self.reference(name)
        self.account()
        public = sorted([*self.source, "METHODS", "REVISION", "WIRE_NAMES", "MethodInfo", "Value"])
        exported = "".join(f'    "{name}",\n' for name in public)
        wire_names = "".join(
            f'        "{ours}": "{theirs}",\n' for ours, theirs in sorted(self.wire_names.items())
        )
        head = (HERE / "types_head.txt").read_text("utf-8")
        head = head.replace("@REVISION@", REVISION)
        head = head.replace("@EXPORTED@", exported).replace("@WIRE_NAMES@", wire_names)
        parts = [head, *self.source.values(), METHOD_INFO, self.table(methods)]
        return "\n\n\n".join(part.strip() for part in parts) + "\n"

    def methods(self) -> dict[str, Method]:
        """Every method of the protocol, from the definitions that have one."""
        found = {}
        for name, definition in sorted(self.definitions.items()):
            method = definition.get("properties", {}).get("method", {}).get("const")
            if method is None or name == "ClientNotification":
                continue
            params = definition["properties"]["params"]
            row = Method(self.named(params, f"{name}.params"))
            if name.endswith("Request"):
                stem = name.removesuffix("Request")
                row.result = f"{stem}Result"
                response = self.definitions.get(f"{stem}ResultResponse")
                if response is not None:
                    answers = response["properties"]["result"]
                    row.input_required = "InputRequiredResult" in json.dumps(answers)
            found[method] = row
        return found

    def named(self, schema: Schema, owner: str) -> str:
        if "$ref" in schema:
            return target(schema)
        return self.anonymous(schema, owner)

    def reference(self, name: str) -> str:
        """Make sure that a definition is generated, and return the expression for it."""
        if name in self.resolved:
            return self.resolved[name]
        definition = self.definitions[name]
        if name in self.words["open"]["definitions"]:
            self.resolved[name] = "dict[str, Any]"
        elif "properties" in definition:
            self.emit_class(name, definition)
        else:
            self.resolved[name] = "Any"  # what JSONValue is where it contains itself
            expression = self.expression(definition, name)
            if expression in {"Any", "dict[str, Any]"}:
                self.resolved[name] = expression
            else:
                self.emit_alias(name, expression)
        return self.resolved[name]

    def emit_alias(self, name: str, expression: str) -> None:
        self.resolved[name] = name
        lines = [f"{name}: TypeAlias = {expression}"]
        if len(lines[0]) > LINE:
            inner = "\n    | ".join(split_union(expression))
            lines = [f"{name}: TypeAlias = (", f"    {inner}", ")"]
        self.source[name] = "\n".join([*lines, f'"""{self.doc(name)}"""'])

    def emit_class(self, name: str, definition: Schema) -> None:
        self.resolved[name] = name
        properties: dict[str, Schema] = definition["properties"]
        required = set(definition.get("required", ()))
        positional = self.words["positional"].get(name, [])
        fields = []
        for wire in sorted(properties, key=field_order):
            schema = properties[wire]
            kind = self.expression(schema, f"{name}.{wire}")
            default = None
            if "const" in schema and wire in required:
                default = json.dumps(schema["const"])
            elif wire in DEFAULTS:
                default = DEFAULTS[wire]
            elif wire not in required or wire == "_meta":
                # Any covers None; the meaning of None is the same: there is nothing.
                kind = kind if kind == "Any" else f"{kind} | None"
                default = "None"
            fields.append((self.python_name(wire), kind, default))
        # In the order in which they may be given without their names, then required ones.
        fields.sort(key=lambda item: (positional_rank(item[0], positional), item[2] is not None))
        body = []
        for python_name, kind, default in fields:
            if positional and python_name not in positional:
                given = f"default={default}, " if default is not None else ""
                body.append(f"{python_name}: {kind} = attrs.field({given}kw_only=True)")
            else:
                body.append(f"{python_name}: {kind}" + (f" = {default}" if default else ""))
        keyword_only = "" if positional else ", kw_only=True"
        self.source[name] = "\n".join(
            [
                f"@attrs.frozen(eq=False, repr=False{keyword_only})",
                f"class {name}(Value):",
                f'    """{self.doc(name)}"""',
                "",
                *(f"    {wrapped(line)}" for line in body),
            ]
        )

    def expression(self, schema: Schema, owner: str) -> str:
        """The annotation for a value of this schema."""
        match schema:
            case {"$ref": _}:
                return self.reference(target(schema))
            case {"const": value}:
                return f"Literal[{json.dumps(value)}]"
            case {"enum": values}:
                return f"Literal[{', '.join(json.dumps(value) for value in values)}]"
            case {"anyOf": members}:
                return self.union(self.expression(member, owner) for member in members)
            case {"type": list(kinds)}:
                return self.union(PRIMITIVES[kind] for kind in kinds)
            case {"type": "array"}:
                return f"Sequence[{self.expression(schema['items'], f'{owner}[]')}]"
            case {"type": "object"}:
                return self.anonymous(schema, owner)
            case {"type": str(kind)}:
                return PRIMITIVES[kind]
            case _:
                return "Any"

    def union(self, members: Iterable[str]) -> str:
        distinct = list(dict.fromkeys(part for each in members for part in split_union(each)))
        if EVERY_JSON_TYPE.issubset(distinct):
            return "Any"
        return " | ".join(distinct)

    def anonymous(self, schema: Schema, owner: str) -> str:
        """An object the schema leaves unnamed: a map, any JSON object, or a class of our naming."""
        values = schema.get("additionalProperties")
        if values is not None:
            item = self.expression(values, f"{owner}{{}}")
            return "dict[str, Any]" if item == "Any" else f"Mapping[str, {item}]"
        if not schema.get("properties"):
            return "dict[str, Any]"
        name = self.words["inline"].get(owner)
        if name is None:
            raise OutOfStepError(f"types.toml has no name for the object at {owner}")
        self.used_words.add(owner)
        if shape(self.inline.setdefault(name, schema)) != shape(schema):
            raise OutOfStepError(f"{name} names two different objects")
        if name not in self.source:
            self.emit_class(name, schema)
        return str(name)

    def python_name(self, wire: str) -> str:
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", wire.lstrip("_$")).lower()
        if keyword.iskeyword(name):
            name += "_"
        if name == "extra":
            raise OutOfStepError(f"the protocol now has a field that is called {wire}")
        camel = re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)
        if wire != camel and self.wire_names.setdefault(name, wire) != wire:
            raise OutOfStepError(f"{name} stands for both {wire} and {self.wire_names[name]}")
        return name

    def doc(self, name: str) -> str:
        if name not in self.words["docs"]:
            raise OutOfStepError(f"types.toml has no docstring for {name}")
        self.used_words.add(name)
        return str(self.words["docs"][name])

    def account(self) -> None:
        """Every definition is generated, or left out for a reason; no word is left over."""
        left_out = self.words["omitted"]
        handled = self.resolved.keys()
        envelopes = {
            name
            for name, definition in self.definitions.items()
            if "jsonrpc" in definition.get("properties", {})
        }
        if missing := self.definitions.keys() - handled - envelopes - left_out.keys():
            raise OutOfStepError(f"neither generated nor left out: {sorted(missing)}")
        unknown = left_out.keys() - self.definitions.keys()
        if vain := left_out.keys() & (handled | envelopes | unknown):
            raise OutOfStepError(f"left out in vain: {sorted(vain)}")
        entries = {*self.words["docs"], *self.words["inline"]}
        if unused := entries - self.used_words:
            raise OutOfStepError(f"words without use in types.toml: {sorted(unused)}")

    def table(self, methods: dict[str, Method]) -> str:
        lines = []
        for method, row in sorted(methods.items()):
            arguments = [row.params]
            if row.result is not None:
                arguments.append(row.result)
            if row.input_required:
                arguments.append("input_required=True")
            line = f'        "{method}": MethodInfo({", ".join(arguments)}),'
            if len(line) > LINE:
                inner = "".join(f"            {argument},\n" for argument in arguments)
                line = f'        "{method}": MethodInfo(\n{inner}        ),'
            lines.append(line)
        return METHODS_TABLE.format(rows="\n".join(lines))


PRIMITIVES: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}

METHOD_INFO: Final = '''\
@attrs.frozen
class MethodInfo:
    """What a method carries.

    Attributes:
        params: the type of its params, for `mcp_trio.codec.structure`.
        result: the type of its result; None for a notification.
        input_required: whether the answer may be an `InputRequiredResult` instead.
    """

    params: Any
    result: type[Value] | None = None
    input_required: bool = False
'''

METHODS_TABLE: Final = '''\
METHODS: Final[Mapping[str, MethodInfo]] = MappingProxyType(
    {{
{rows}
    }}
)
"""Every request and notification of the revision, by method."""
'''


def shape(schema: Schema) -> Schema:
    """A schema without its descriptions."""
    return {
        key: shape(value) if isinstance(value, dict) else value
        for key, value in schema.items()
        if key != "description"
    }


def target(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def split_union(expression: str) -> list[str]:
    """The members of a union that is written out, minding brackets."""
    members: list[str] = []
    depth = 0
    for part in expression.split(" | "):
        if depth:
            members[-1] += f" | {part}"
        else:
            members.append(part)
        depth += part.count("[") - part.count("]")
    return members


def field_order(wire: str) -> tuple[int, str]:
    if wire in FIRST:
        return FIRST.index(wire), wire
    if wire in LAST:
        return 200 + LAST.index(wire), wire
    return 100, wire


def positional_rank(name: str, positional: Sequence[str]) -> int:
    return positional.index(name) if name in positional else len(positional)


def wrapped(line: str) -> str:
    """A field too long for one line, its union put in parentheses."""
    if len(line) + 4 <= LINE:
        return line
    name, _, rest = line.partition(": ")
    kind, equals, default = rest.partition(" = ")
    inner = "\n        | ".join(split_union(kind))
    return f"{name}: (\n        {inner}\n    ){equals}{default}"


@functools.cache
def words() -> dict[str, Any]:
    return tomllib.loads((HERE / "types.toml").read_text("utf-8"))


def generate(schema: Path) -> str:
    """The text that `mcp_trio/types.py` should have.

    Raises:
        OutOfStepError: the schema has something that the tables here do not know.
    """
    definitions = json.loads(schema.read_text("utf-8"))["$defs"]
    patch(definitions)
    return Generator(definitions, words()).module()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(description="Generate mcp_trio/types.py")
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    parser.add_argument("--schema", type=Path, default=SCHEMA, help="where schema.json is")
    parser.add_argument("--output", type=Path, default=TARGET, help="the file to write or check")
    options = parser.parse_args(arguments)
    text = generate(options.schema)
    current = options.output.exists() and options.output.read_text("utf-8") == text
    if options.check:
        print(f"{options.output} is {'current' if current else 'not current: run me'}")  # noqa: T201
        return 0 if current else 1
    if not current:
        options.output.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
