"""The generator: the file is current, and a schema that has moved on stops it."""

import copy
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "generate_types.py"


def _load_tool() -> ModuleType:
    specification = importlib.util.spec_from_file_location("generate_types", TOOL)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["generate_types"] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


tool = _load_tool()

needs_schema = pytest.mark.skipif(
    not tool.SCHEMA.exists(), reason="the JSON Schema of the protocol is not part of the repository"
)


@pytest.fixture
def definitions() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tool.SCHEMA.read_text("utf-8"))["$defs"]
    return found


@pytest.fixture
def words() -> dict[str, Any]:
    found: dict[str, Any] = copy.deepcopy(tool.words())
    return found


@needs_schema
def test_the_file_is_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--check` says so by its exit status, and says the contrary of another file."""
    assert tool.main(["--check"]) == 0
    other = tmp_path / "types.py"
    assert tool.main(["--check", "--output", str(other)]) == 1
    assert "not current" in capsys.readouterr().out
    assert not other.exists()
    assert tool.main(["--output", str(other)]) == 0
    assert other.read_bytes() == tool.TARGET.read_bytes()


@needs_schema
def test_a_patch_that_has_become_needless_is_noticed(definitions: dict[str, Any]) -> None:
    """The losses of the schema are put back once; a mended schema must not be patched."""
    tool.patch(definitions)
    assert "null" in definitions["JSONValue"]["anyOf"][-1]["type"]
    with pytest.raises(tool.OutOfStepError, match="needless"):
        tool.patch(definitions)


@needs_schema
def test_without_its_patch_json_value_is_not_any_value(
    definitions: dict[str, Any], words: dict[str, Any]
) -> None:
    """What the schema lost would show in the types."""
    with pytest.raises(tool.OutOfStepError, match="JSONValue"):
        tool.Generator(definitions, words).module()


def _new_definition(definitions: dict[str, Any], _: dict[str, Any]) -> None:
    definitions["Novelty"] = {"type": "object", "properties": {"a": {"type": "string"}}}


def _new_object(definitions: dict[str, Any], _: dict[str, Any]) -> None:
    nested = {"type": "object", "properties": {"a": {"type": "string"}}}
    definitions["Tool"]["properties"]["novelty"] = nested


def _taken_name(definitions: dict[str, Any], _: dict[str, Any]) -> None:
    definitions["Tool"]["properties"]["extra"] = {"type": "string"}


def _clash(definitions: dict[str, Any], _: dict[str, Any]) -> None:
    definitions["Tool"]["properties"]["$meta"] = {"type": "string"}


def _different_objects(definitions: dict[str, Any], words: dict[str, Any]) -> None:
    words["inline"]["ServerCapabilities.tools"] = "ResourcesCapability"


def _no_docstring(_: dict[str, Any], words: dict[str, Any]) -> None:
    del words["docs"]["Tool"]


def _unused_docstring(_: dict[str, Any], words: dict[str, Any]) -> None:
    words["docs"]["Nobody"] = "Nothing."


def _left_out_in_vain(_: dict[str, Any], words: dict[str, Any]) -> None:
    words["omitted"]["Tool"] = "why not"


@needs_schema
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (_new_definition, "neither generated nor left out: \\['Novelty'\\]"),
        (_new_object, "no name for the object at Tool.novelty"),
        (_taken_name, "a field that is called extra"),
        (_clash, "meta stands for both"),
        (_different_objects, "ResourcesCapability names two different objects"),
        (_no_docstring, "no docstring for Tool"),
        (_unused_docstring, "words without use .*Nobody"),
        (_left_out_in_vain, "left out in vain: \\['Tool'\\]"),
    ],
)
def test_a_schema_out_of_step_stops_the_generator(
    change: Any, complaint: str, definitions: dict[str, Any], words: dict[str, Any]
) -> None:
    """Nothing of a new edition can slip by."""
    tool.patch(definitions)
    change(definitions, words)
    with pytest.raises(tool.OutOfStepError, match=complaint):
        tool.Generator(definitions, words).module()


def test_reserved_words_get_an_underscore() -> None:
    """No field of this revision is a keyword; one that comes will not break the module."""
    generator = tool.Generator({}, {})
    assert generator.python_name("from") == "from_"
    assert generator.python_name("mimeType") == "mime_type"
    assert generator.python_name("$schema") == "schema"
    assert generator.wire_names == {"from_": "from", "schema": "$schema"}


def test_the_docstrings_are_one_line_each() -> None:
    """And each is a sentence, or nearly one."""
    for name, text in tool.words()["docs"].items():
        assert "\n" not in text, name
        assert text.endswith("."), name
