"""The examples as programs: what the README runs."""

import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

ExamplePath = Callable[[str], str]


async def run(*command: str | Path) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(60):
        return await trio.run_process(
            [sys.executable, *command], capture_stdout=True, capture_stderr=True, check=False
        )


async def test_the_demonstration(example_path: ExamplePath) -> None:
    """The README's first command: all of the story is printed, on each host and over stdio."""
    result = await run(example_path("demo"))
    assert result.returncode == 0, result.stderr.decode()
    output = result.stdout.decode()
    for part in ("acknowledged:", "declined:", "changed:", "list changed:", "burst:"):
        assert output.count(f"  {part}") == 3, output
    assert output.count("reason='shutdown'") == 2
    assert "how='local'" in output


async def test_follow_prints_changes_with_what_was_re_read(
    example_path: ExamplePath, tmp_path: Path
) -> None:
    """A client that follows another example over stdio, and is stopped by Ctrl-C."""
    (tmp_path / "first.txt").write_text("first text")
    command = [sys.executable, "-u", example_path("follow"), "--"]
    server = [sys.executable, example_path("watch_folder"), str(tmp_path)]
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(trio.run_process, command + server, stdout=subprocess.PIPE)
            )
            assert process.stdout is not None
            output = b""
            changed = False
            async for chunk in process.stdout:
                output += chunk
                if b"first text" in output and not changed:
                    changed = True
                    (tmp_path / "first.txt").write_text("changed text")
                    (tmp_path / "second.txt").write_text("second text")
                if all(text in output for text in (b"changed text", b"second text")):
                    process.send_signal(signal.SIGINT)
    assert b"ResourcesListChanged()" in output
    assert process.returncode == 0


async def test_follow_says_what_went_wrong(example_path: ExamplePath) -> None:
    """W62: one line that names the cause, and exit status 1."""
    result = await run(example_path("follow"), "http://127.0.0.1:9/mcp")
    assert result.returncode == 1
    assert result.stderr.decode().startswith("lost: ")
    assert "refused" in result.stderr.decode()
