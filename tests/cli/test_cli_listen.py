"""`mcp-trio listen` as a process: what it shows, and each way in which it ends."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from cli_kit import (
    STDIO,
    answering,
    folder_server,
    http_server,
    run,
    started,
)

from mcp_trio import open_http_client
from mcp_trio.types import TextContent

NOTE = "note://a"
ALL = ("--tools", "--prompts", "--resources", "--resource", NOTE)
LISTS = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def change(kind: str, uri: str | None = None) -> dict[str, object]:
    return {"event": "change", "kind": kind, "uri": uri}


def end(how: str, reason: str | None, error: object = None) -> dict[str, object]:
    return {"event": "end", "how": how, "reason": reason, "error": error}


async def test_changes_until_the_server_ends_it(url: str) -> None:
    """P-03: the acknowledgement, each kind of change, and a graceful end with its reason."""
    async with started("listen", url, "--json", *ALL) as script, open_http_client(url) as client:
        assert await script.event() == {
            "event": "ack",
            "acknowledged": {**LISTS, "resourceSubscriptions": [NOTE]},
            "declined": {},
        }
        await client.call_tool("publish", {"uri": NOTE})
        assert await script.event() == change("updated", NOTE)
        await client.call_tool("touch_tools")
        assert await script.event() == change("tools")
        # There is a new prompt and then there is not, which are two changes or one.
        await client.call_tool("test_trigger_prompt_change")
        assert await script.event() == change("prompts")
        await client.call_tool("hang_up")
        *rest, last = await script.events()
        assert last == end("graceful", "complete")
        assert all(event == change("prompts") for event in rest)
        assert await script.status() == 0


async def test_a_program_can_have_it_read_again(url: str) -> None:
    """With --read, the result follows the change."""
    listening = started("listen", url, "--json", "--read", *ALL)
    async with listening as script, open_http_client(url) as client:
        await script.event()
        await client.call_tool("publish", {"uri": NOTE})
        assert await script.event() == change("updated", NOTE)
        result = await script.event()
        assert result["event"] == "result"
        assert result["value"]["contents"][0]["text"] == "This is note a."
        await client.call_tool("touch_tools")
        assert await script.event() == change("tools")
        result = await script.event()
        assert list(result["value"]) == ["tools"]


async def test_what_is_followed_without_options() -> None:
    """All three lists; and --for ends it, from this side."""
    result = await run("listen", "--json", "--for", "0.1", *STDIO)
    assert (result.status, result.err) == (0, "")
    assert result.objects() == [
        {"event": "ack", "acknowledged": LISTS, "declined": {}},
        end("local", "0.1 s have passed"),
    ]


async def test_a_filter_and_what_is_declined(tmp_path: Path) -> None:
    """--filter is as on the wire, and together with the flags; what is declined is shown."""
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["file:///a"], "other": [1]}
    options = ["--filter", json.dumps(wanted), "--resources", "--resource", "file:///b"]
    result = await run("listen", "--json", *options, "--for", "0.1", *folder_server(tmp_path))
    acknowledgement, _ = result.objects()
    assert acknowledgement == {
        "event": "ack",
        "acknowledged": {
            "resourcesListChanged": True,
            "resourceSubscriptions": ["file:///a", "file:///b"],
        },
        "declined": {"toolsListChanged": True, "other": [1]},
    }


async def test_for_people(tmp_path: Path) -> None:
    """They see what has changed: the beginning of a resource, the difference of a list."""
    note = tmp_path / "note.txt"
    note.write_text("first")
    options = ["--resources", "--prompts", "--resource", note.as_uri()]
    async with started("listen", *options, *folder_server(tmp_path)) as script:
        first, second, third = [await script.line() for _ in range(3)]
        assert first.endswith("listening           the list of resources")
        assert second.endswith(f"listening           {note.as_uri()}")
        assert third.endswith("declined            the list of prompts")
        note.write_text("".join(f"line {number}\n" for number in range(12)))
        assert (await script.line()).endswith(f"updated             {note.as_uri()}")
        shown = [await script.line() for _ in range(11)]
        assert shown[0].endswith("│ line 0")
        assert shown[-1].endswith("│ … 2 more lines")
        other = tmp_path / "other.txt"
        other.write_text("x")
        assert (await script.line()).endswith("resources changed")
        assert (await script.line()).endswith(f"│ + {other.as_uri()}")
        other.unlink()
        assert (await script.line()).endswith("resources changed")
        assert (await script.line()).endswith(f"│ - {other.as_uri()}")
        note.unlink()
        while "cannot be read: " not in await script.line():
            pass
        script.process.send_signal(signal.SIGINT)
        assert (await script.rest()).endswith("stopped             interrupted\n")
    assert await script.status() == 0


@pytest.mark.parametrize("reached", ["stdio", "http"])
@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")]
)
async def test_signals_end_it_in_peace(
    number: signal.Signals, word: str, reached: str, url: str
) -> None:
    """C-40: the subscription is cancelled on the wire, and the exit status is 0."""
    target = STDIO if reached == "stdio" else (url,)
    async with started("listen", "--json", *target) as script:
        assert (await script.event())["event"] == "ack"
        if reached == "http":
            await until_subscriptions(url, 1)
        script.process.send_signal(number)
        assert await script.events() == [end("local", word)]
        assert await script.status() == 0
    if reached == "http":
        await until_subscriptions(url, 0)


async def until_subscriptions(url: str, wanted: int) -> None:
    """Wait until so many subscriptions are open at the server."""
    async with open_http_client(url) as client:
        while True:
            (block,) = (await client.call_tool("stats")).content
            assert isinstance(block, TextContent)
            if json.loads(block.text)["subscriptions"] == wanted:
                return


async def test_the_server_is_killed() -> None:
    """C-43: what nobody has ended is lost, and makes the exit status 1."""
    with http_server() as server:
        async with started("listen", server.url, "--json") as script:
            assert (await script.event())["event"] == "ack"
            server.process.kill()
            [lost] = await script.events()
            assert (lost["event"], lost["how"]) == ("end", "lost")
            assert lost["error"]["type"] == "ConnectionLost"
            assert await script.status() == 1


async def test_the_server_stops() -> None:
    """P-08: a server that is told to stop says so, and that is a graceful end."""
    with http_server() as server:
        async with started("listen", server.url) as script:
            await script.line()
            server.process.terminate()
            assert (await script.rest()).endswith("ended by the server shutdown\n")
            assert await script.status() == 0


async def test_a_child_that_dies() -> None:
    """The same over stdio; for people on standard error."""
    dies = "echo gone >&2; exit 4"
    result = await run("listen", "--", "sh", "-c", dies)
    assert (result.status, result.out) == (1, "")
    assert result.err == "gone\nlost: the server 'sh' has exited with status 4\n"


async def test_a_server_without_subscriptions() -> None:
    """An error, with its code."""
    result = await run("listen", "--json", *answering({}))
    [last] = result.objects()
    assert (result.status, last["how"], last["error"]["code"]) == (1, "error", -32601)


async def test_no_acknowledgement() -> None:
    """C-03: --timeout is also the limit of the acknowledgement."""
    result = await run("listen", "--json", "--timeout", "0.5", "--", "sleep", "60")
    [last] = result.objects()
    assert (result.status, last["how"]) == (1, "error")
    assert last["error"]["type"] == "AcknowledgementTimeout"


@pytest.mark.parametrize("shown", [(), ("--json",)])
async def test_a_reader_that_leaves(url: str, shown: tuple[str, ...]) -> None:
    """As with `| head -1`: it ends at once and without a word, though nothing happens."""
    async with started("listen", url, *shown, stderr=subprocess.PIPE) as script:
        await script.line()
        await script.stdout.aclose()
        assert script.process.stderr is not None
        assert await script.process.stderr.receive_some() == b""
        assert await script.status() == 0
    await until_subscriptions(url, 0)


async def test_a_reader_that_does_not_read(url: str) -> None:
    """A full pipe holds up the output and nothing else: a signal still ends it.

    The acknowledgement alone is more than a pipe holds.
    """
    big = {"x" * 100_000: 1}
    async with started("listen", url, "--json", "--filter", json.dumps({**LISTS, **big})) as script:
        await until_subscriptions(url, 1)
        script.process.send_signal(signal.SIGTERM)
        assert await script.status() == 0
