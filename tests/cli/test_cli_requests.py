"""Each command that makes one request, as a process: for programs, and for people."""

import contextlib
import os
import signal
import subprocess
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest
import trio
from byte_reader import ByteReader
from cli_kit import SCRIPT, STDIO, answering, environment, folder_server, only_child, run, started

COMMANDS: dict[str, list[str]] = {
    "discover": ["discover"],
    "list": ["list"],
    "list tools": ["list", "tools"],
    "list resources": ["list", "resources"],
    "list templates": ["list", "templates"],
    "list prompts": ["list", "prompts"],
    "call": ["call", "echo", "--arguments", '{"text": "hé"}'],
    "read": ["read", "note://a"],
    "prompt": ["prompt", "test_prompt_with_arguments", "--arguments", '{"arg1":"a","arg2":"b"}'],
}

SAID: dict[str, list[str]] = {
    "discover": ["server        everything 1.0\n", "revisions     2026-07-28", "listChanged"],
    "list": ["Tools: 3", "Resources: 5\n", "Resource templates: 1\n", "Prompts: 5\n"],
    "list tools": ["NAME", "publish  ", "uri: string, [count: integer]", "Publish that a resource"],
    "list resources": ["URI", "note://a", "image/png", "A note to follow"],
    "list templates": ["test://template/{id}/data", "application/json"],
    "list prompts": ["test_prompt_with_arguments", "arg1, arg2", "Repeat two arguments."],
    "call": ["hé\n"],
    "read": ["This is note a."],
    "prompt": ["Repeat two arguments.\n", "user: Prompt with arguments: arg1='a', arg2='b'\n"],
}

SECRET = {"MCP_TRIO_TOKEN": "abc"}

LISTS = ["tools", "resources", "resourceTemplates", "prompts"]

MEMBERS: dict[str, list[str]] = {
    "discover": ["capabilities", "supportedVersions"],
    "list": LISTS,
    "list templates": ["resourceTemplates"],
    "call": ["content"],
    "read": ["contents"],
    "prompt": ["messages"],
}


@pytest.mark.parametrize("command", COMMANDS)
async def test_for_people(command: str, url: str) -> None:
    """What they want to know is there, without colours where there is no terminal."""
    name, *rest = COMMANDS[command]
    result = await run(name, url, *rest)
    assert (result.status, result.err) == (0, "")
    for text in SAID[command]:
        assert text in result.out
    assert "\x1b" not in result.out
    assert not any(line.endswith(" ") for line in result.out.splitlines())


@pytest.mark.parametrize("command", MEMBERS)
async def test_for_programs(command: str, url: str) -> None:
    """One result with the answer as the protocol has it."""
    name, *rest = COMMANDS[command]
    result = await run(name, url, *rest, "--json")
    assert (result.status, result.err) == (0, "")
    value = result.value()
    assert list(value)[: len(MEMBERS[command])] == MEMBERS[command]
    if command == "call":
        assert value["content"] == [{"type": "text", "text": "hé"}]
    if command == "read":
        assert value["contents"][0]["text"] == "This is note a."


@pytest.mark.parametrize("command", ["discover", "list tools", "call", "read", "prompt"])
async def test_of_a_server_that_is_started(command: str) -> None:
    """The same of a command, which stands behind two dashes."""
    result = await run(*COMMANDS[command], *STDIO)
    assert (result.status, result.err) == (0, "")
    for text in SAID[command]:
        assert text in result.out


async def test_only_the_lists_that_a_server_has() -> None:
    """What is not there is left out of all lists; asked for alone, it is an error."""
    server = answering({"resources/list": {"resources": []}})
    result = await run("list", "--json", *server)
    assert result.value() == {"resources": []}
    result = await run("list", *server)
    assert (result.status, result.out) == (0, "Resources: none\n")
    result = await run("list", "tools", *server)
    assert (result.status, result.out) == (1, "")
    assert result.err == "error: Method not found (-32601)\n"


async def test_a_resource_is_written_byte_by_byte(tmp_path: Path) -> None:
    """Into a file comes what the resource is: text without a line more, and bytes."""
    text = "no line end, \x1b[31mred\x1b[0m\r\nthe last"
    (tmp_path / "text.txt").write_bytes(text.encode())
    (tmp_path / "data.bin").write_bytes(bytes(range(128)) + b"\n")
    for name, content in (("text.txt", text), ("data.bin", bytes(range(128)).decode() + "\n")):
        result = await run("read", (tmp_path / name).as_uri(), *folder_server(tmp_path))
        assert (result.status, result.out, result.err) == (0, content, "")


async def test_a_tool_that_fails(url: str) -> None:
    """A result with isError is shown as a result, and makes the exit status 1."""
    result = await run("call", url, "test_error_handling")
    assert result.status == 1
    assert result.out.startswith("the tool failed:\n")
    result = await run("call", url, "test_error_handling", "--json")
    assert result.status == 1
    assert result.value()["isError"] is True


async def test_an_error_response(url: str) -> None:
    """For people on standard error; for programs an end with the code."""
    result = await run("call", url, "nope")
    assert (result.status, result.out) == (1, "")
    assert result.err == "error: Unknown tool: nope (-32602)\n"
    result = await run("call", url, "nope", "--json")
    assert (result.status, result.err) == (1, "")
    assert result.objects() == [
        {
            "event": "end",
            "how": "error",
            "reason": "Unknown tool: nope (-32602)",
            "error": {"type": "InvalidParams", "message": "Unknown tool: nope", "code": -32602},
        }
    ]


async def test_nobody_is_there() -> None:
    """A connection that cannot be made is a lost one."""
    result = await run("discover", "http://127.0.0.1:9/mcp")
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("lost: cannot connect to http://127.0.0.1:9/mcp")
    result = await run("discover", "--json", "http://127.0.0.1:9/mcp")
    [end] = result.objects()
    assert (result.status, end["how"]) == (1, "lost")
    assert end["error"]["type"] == "ConnectionLost"


async def test_a_server_that_does_not_start() -> None:
    """Its standard error is passed on, and not said twice."""
    result = await run("discover", "--", "sh", "-c", "echo oh no >&2; exit 3")
    assert (result.status, result.out) == (1, "")
    assert result.err == "oh no\nlost: the server 'sh' has exited with status 3\n"
    result = await run("discover", "--", "/nowhere/to/be/found")
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("lost: cannot start the server '/nowhere/to/be/found'")


async def test_the_timeout(url: str) -> None:
    """No answer in time is an error, and the request is cancelled."""
    result = await run("call", url, "slow", "--arguments", '{"seconds":60}', "--timeout", "2")
    assert (result.status, result.out) == (1, "")
    assert result.err == "error: no answer within 2 s\n"


async def test_arguments_from_standard_input(url: str) -> None:
    """A dash stands for what is piped in."""
    result = await run("call", url, "echo", "--arguments", "-", stdin=b'{"text":"piped"}')
    assert (result.status, result.out) == (0, "piped\n")


async def test_progress_and_log(url: str) -> None:
    """They are on standard error, the log only for whoever asks, and not for programs."""
    result = await run("call", url, "progress", "--arguments", '{"steps":3}')
    assert (result.out, result.err) == ("3 steps\n", "1 of 3\n2 of 3\n3 of 3\n")
    result = await run("call", url, "progress", "--arguments", '{"steps":3}', "--json")
    assert (result.status, result.err) == (0, "")
    result = await run("call", url, "test_logging_tool")
    assert (result.out, result.err) == ("worked\n", "")
    for shown in ((), ("--json",)):
        result = await run("call", url, "test_logging_tool", "--log", "info", *shown)
        assert result.err.startswith("info: ")


async def test_nobody_can_be_asked(url: str) -> None:
    """Without a terminal no questions are answered, and the server knows."""
    result = await run("call", url, "test_input_required_result_elicitation")
    assert result.status == 1
    assert "elicitation" in result.out + result.err


@pytest.mark.parametrize("own", [None, "Basic eA=="])
async def test_headers_and_the_token(own: str | None) -> None:
    """C-10: headers are those of the options; the environment's token is sent beside them."""
    heads = []

    async def refuse(stream: trio.SocketStream) -> None:
        heads.append(dict((await ByteReader(stream).read_head())[1]))
        await stream.send_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, refuse, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
        options = ["--json", "--header", "X-Test: a:b"]
        if own is not None:
            options += ["--header", f"authorization:{own}"]
        result = await run("discover", url, *options, env=environment(**SECRET))
        nursery.cancel_scope.cancel()
    assert heads[0]["x-test"] == "a:b"
    assert heads[0]["authorization"] == (own or "Bearer abc")
    [end] = result.objects()
    assert (result.status, end["how"], end["error"]["status"]) == (1, "error", 401)


async def test_signals() -> None:
    """A request that is interrupted says so; a second signal does not wait for the server."""
    stubborn = "trap '' TERM; echo ready >&2; exec sleep 60"
    for second, statuses in ((None, {130}), (signal.SIGTERM, {-signal.SIGINT, -signal.SIGTERM})):
        async with started(
            "discover", "--", "sh", "-c", stubborn, stderr=subprocess.PIPE
        ) as script:
            assert script.process.stderr is not None
            assert await script.process.stderr.receive_some() == b"ready\n"
            child = only_child(script.process.pid)
            script.process.send_signal(signal.SIGINT)
            if second is not None:
                script.process.send_signal(second)
            assert await script.status() in statuses
            assert await script.rest() == ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
async def test_what_cannot_be_written() -> None:
    """A full disk is an error, and not a reader who has left."""
    with Path("/dev/full").open("wb") as full:  # noqa: ASYNC230
        process = await trio.run_process(
            [*SCRIPT, "discover", *STDIO],
            stdout=full,
            capture_stderr=True,
            check=False,
            env=environment(),
        )
    assert process.returncode == 1
    assert b"No space left" in process.stderr


async def test_programs_do_not_wait_for_tables() -> None:
    """What people look at is not even imported for them, nor what draws them."""
    code = (
        "import sys; from mcp_trio.cli.commands import run; run(sys.argv[1:]);"
        "print(*[name for name in sys.modules if name in ('rich', 'pygments')])"
    )
    process = await trio.run_process(
        [sys.executable, "-c", code, "discover", "--json", *STDIO], capture_stdout=True
    )
    first, second = process.stdout.decode().splitlines()
    assert first.startswith('{"event":"result"')
    assert second == ""


async def test_the_token_stays_with_us() -> None:
    """A program that is started does not get the bearer token."""
    script = 'echo "token:$MCP_TRIO_TOKEN:" >&2'
    result = await run("discover", "--", "sh", "-c", script, env=environment(**SECRET))
    assert "token::" in result.err


async def test_the_version() -> None:
    """It is that of the package."""
    result = await run("--version")
    assert (result.status, result.err) == (0, "")
    assert result.out.rstrip().endswith(version("mcp-trio"))
