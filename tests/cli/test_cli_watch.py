"""`mcp-trio watch` as a process: what it says of gaps, and when it does not go on."""

import os
import signal
from urllib.parse import urlsplit

from cli_kit import STDIO, answering, http_server, only_child, run, started

from mcp_trio import open_http_client

NOTE = "note://a"
NOWHERE = "http://127.0.0.1:9/mcp"
ACK = {"event": "ack", "acknowledged": {"resourceSubscriptions": [NOTE]}, "declined": {}}
CHANGE = {"event": "change", "kind": "updated", "uri": NOTE}


async def test_it_goes_on_after_a_loss() -> None:
    """P-05: a killed server makes a gap, which is told; what changes afterwards comes."""
    with http_server() as first:
        async with started("watch", first.url, "--json", "--resource", NOTE) as script:
            assert await script.event() == ACK
            first.process.kill()
            first.process.wait()
            with http_server(urlsplit(first.url).port or 0):
                resync = await script.event()
                assert resync.keys() == {"event", "reason"}
                assert resync["event"] == "resync"
                async with open_http_client(first.url) as client:
                    await client.call_tool("publish", {"uri": NOTE})
                assert await script.event() == CHANGE
                script.process.send_signal(signal.SIGINT)
                assert await script.events() == [
                    {"event": "end", "how": "local", "reason": "interrupted", "error": None}
                ]
                assert await script.status() == 0


async def test_it_goes_on_after_a_graceful_end(url: str) -> None:
    """C-44: a server that ends the subscription has not ended the watch."""
    watching = started("watch", url, "--json", "--resource", NOTE)
    async with watching as script, open_http_client(url) as client:
        assert await script.event() == ACK
        await client.call_tool("hang_up")
        assert (await script.event())["event"] == "resync"
        await client.call_tool("publish", {"uri": NOTE})
        assert await script.event() == CHANGE


async def test_a_command_is_started_again() -> None:
    """C-42: the child dies, and people see what is read again from the next one."""
    async with started("watch", "--resource", NOTE, *STDIO) as script:
        assert (await script.line()).endswith("listening           note://a")
        os.kill(only_child(script.process.pid), signal.SIGKILL)
        assert "resync" in await script.line()
        shown = [(await script.line()).partition("│ ")[2] for _ in range(2)]
        assert shown == [NOTE, "This is note a."]
        script.process.send_signal(signal.SIGTERM)
        assert "stopped             terminated" in await script.rest()
        assert await script.status() == 0


async def test_it_gives_up_if_told() -> None:
    """C-48: then the stream is lost, and the exit status says so."""
    result = await run("watch", NOWHERE, "--json", "--give-up-after", "0.3")
    [end] = result.objects()
    assert (result.status, end["event"], end["how"]) == (1, "end", "lost")
    result = await run("watch", NOWHERE, "--give-up-after", "0.3")
    assert (result.status, result.out) == (1, "")
    *attempts, last = result.err.splitlines()
    assert attempts
    assert all(line.startswith("mcp-trio: watch: ") for line in attempts)
    assert last.startswith("lost: ")


async def test_what_will_not_pass_ends_it() -> None:
    """A server without subscriptions is not asked again."""
    result = await run("watch", "--json", *answering({}))
    [end] = result.objects()
    assert (result.status, end["how"], end["error"]["code"]) == (1, "error", -32601)


async def test_the_time_is_limited_without_an_acknowledgement() -> None:
    """--for counts from the start as long as there is none, and ends it in peace."""
    result = await run("watch", NOWHERE, "--json", "--for", "0.3")
    [end] = result.objects()
    assert (result.status, end["how"]) == (0, "local")
    assert end["reason"] == "0.3 s have passed"
