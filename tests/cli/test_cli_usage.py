"""What is wrong on the command line is named, and the exit status is 2."""

import importlib.util

import pytest
from cli_kit import STDIO, run

from mcp_trio.cli import entry
from mcp_trio.cli.commands import main
from mcp_trio.cli.commands import run as run_here

URL = "http://127.0.0.1:9/mcp"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("discover", "no server: give its URL, or its command behind --"),
        ("discover --", "behind -- there is no command"),
        ("discover localhost:80", "'localhost:80' is not the URL of a server"),
        ("discover http://a b/", "a URL has no spaces"),
        ("discover http://me:secret@host/", "a URL with a user name or password is refused"),
        (f"discover {URL} more", "unexpected: more"),
        (f"discover {URL} -- server", f"unexpected: {URL}; the server is the command behind --"),
        ("discover --header a:b -- server", "--header is for a URL"),
        (f"discover {URL} --header secret", "'--header': expected NAME:VALUE"),
        (f"discover {URL} --header (:x", "not a header name: '('"),
        (f"discover {URL} --timeout soon", "'--timeout': expected a number of seconds, got 'soon'"),
        (f"list {URL} things", "'things' is no list; there are tools, resources, templates"),
        (f"call {URL}", "the NAME of the tool is missing"),
        (f"read {URL}", "the URI of the resource is missing"),
        (f"prompt {URL}", "the NAME of the prompt is missing"),
        (f"call {URL} x --arguments {{", "'--arguments': not JSON: Expecting property name"),
        (f"call {URL} x --arguments [1]", "'--arguments': expected a JSON object"),
        (f'prompt {URL} x --arguments {{"a":1}}', "--arguments: a must be a string"),
        (f"call {URL} x --log loud", "'loud' is not one of"),
        (f"listen {URL} --for 0", "'--for': expected a number of seconds, got '0'"),
        (f"listen {URL} --for nan", "'--for': expected a number of seconds, got 'nan'"),
        (f"listen {URL} --filter {{}}", "--filter asks for nothing"),
        (f'listen {URL} --filter {{"taskIds":1}}', "--filter: taskIds must be a list"),
        (f"listen {URL} --filter x", "'--filter': not JSON"),
        ("lisen", "No such command 'lisen'"),
        (f"listen {URL} --colour", "No such option"),
    ],
)
def test_a_mistake_is_named(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what was wrong, and what would be right; a secret is not repeated."""
    words = arguments.replace("a b", "a\0b").split(" ")
    assert run_here([word.replace("\0", " ") for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error: " in captured.err
    assert complaint in captured.err
    assert "secret" not in captured.err


async def test_as_a_process() -> None:
    """The same status and the same words outside of a test."""
    result = await run("listen", "--filter", "{}", *STDIO)
    assert (result.status, result.out) == (2, "")
    assert "--filter asks for nothing" in result.err


@pytest.mark.parametrize("command", sorted(main.commands))
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command says how it is used."""
    assert run_here([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: mcp-trio {command} [OPTIONS] [URL]")
    assert "[-- COMMAND...]" in " ".join(shown.split())
    assert "--json" in shown


def test_help_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    """It names the commands, and the environment variables."""
    assert run_here(["-h"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {command} " in shown for command in main.commands)
    assert "MCP_TRIO_TOKEN" in shown


@pytest.mark.parametrize("absent", ["click", "rich"])
def test_without_the_extra(
    absent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says what to install."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == absent else find(name)
    )
    with pytest.raises(SystemExit) as stopped:
        entry.main(["discover"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error == f"mcp-trio: {absent} must be there: pip install 'mcp-trio[cli]'\n"
