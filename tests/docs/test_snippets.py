"""The code in the README and on the pages of the documentation runs.

Each page is a test. Its Python blocks run in the order in which they stand, in one namespace
and inside one Trio task, so they may use `await`. A comment before a block can say otherwise::

    <!-- snippet: file=NAME -->        save it instead, as the page tells the reader to
    <!-- snippet: file=NAME run -->    and run it; a following text block is what it prints
    <!-- snippet: skip=REASON -->      only compile it
"""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import attrs
import pytest
import trio

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if "_build" not in path.parts and "```python" in path.read_text()
)
_BLOCK = re.compile(
    r"(?:^<!-- snippet: (?P<order>[^\n]*) -->\n)?^```python\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@attrs.frozen
class Snippet:
    """A block of code and what is to be done with it."""

    code: str
    order: str
    output: str | None
    origin: str

    def compiled(self) -> CodeType:
        """The code, which may use `await` outside of functions."""
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: CodeType = compile(self.code, self.origin, "exec", flags=flags, dont_inherit=True)
        return code


def snippets(page: Path) -> Iterator[Snippet]:
    """The Python blocks of a page."""
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        yield Snippet(
            # Empty lines in front make the line numbers of a traceback those of the page.
            "\n" * line + match["code"],
            match["order"] or "",
            match["output"],
            str(page.relative_to(ROOT)),
        )


def save_and_run(snippet: Snippet, folder: Path) -> None:
    """Do as the reader is told to."""
    name, _, what = snippet.order.removeprefix("file=").partition(" ")
    (folder / name).write_text(snippet.code)
    if what != "run":
        return
    done = subprocess.run(
        [sys.executable, "-W", "error", name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if snippet.output is not None:
        assert done.stdout == snippet.output


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_code_on_a_page_runs(page: Path, tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "snippets"}
    found = list(snippets(page))
    assert len(found) == page.read_text().count("```python")

    async def run_page() -> None:
        for snippet in found:
            code = snippet.compiled()
            if snippet.order.startswith("skip="):
                continue
            if snippet.order.startswith("file="):
                await trio.to_thread.run_sync(save_and_run, snippet, tmp_path)
                continue
            with trio.fail_after(20):
                outcome = eval(code, namespace)  # noqa: S307
                if inspect.iscoroutine(outcome):
                    await outcome

    trio.run(run_page)


def test_the_readme_begins_with_the_two_commands() -> None:
    blocks = re.findall(
        r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 2
    install, test = blocks
    assert "pip install -e" in install
    assert "python examples/demo.py" in install
    assert "pip install -e" in test
    assert "python -m pytest" in test
