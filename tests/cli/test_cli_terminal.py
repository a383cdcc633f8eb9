"""The script at a terminal: colours, tables, progress, and questions that are answered there."""

import re

import pytest
from cli_kit import answering, terminal

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def unstyled(text: str) -> str:
    """What is read, without the colours, and lines ending as anywhere else."""
    return _STYLES.sub("", text).replace("\r\n", "\n")


async def test_a_table_has_colours_and_fits(url: str) -> None:
    """Where a person looks, there are colours, a rule below the heads, and no line too long."""
    async with terminal("list", url, "resources") as screen:
        shown = await screen.rest()
    assert "\x1b[36mnote://a" in shown
    lines = unstyled(shown).splitlines()
    assert lines[0].split() == ["URI", "NAME", "TYPE", "DESCRIPTION"]
    assert set(lines[1]) == {"─"}
    assert max(map(len, lines)) <= 100
    assert screen.process.returncode == 0


async def test_no_color(url: str) -> None:
    """NO_COLOR is heeded."""
    async with terminal("list", url, "resources", NO_COLOR="1") as screen:
        shown = await screen.rest()
    assert "\x1b[36m" not in shown
    assert "note://a" in shown


async def test_json_has_no_colours(url: str) -> None:
    """A line of JSON is one, whoever looks."""
    async with terminal("read", url, "note://a", "--json") as screen:
        shown = await screen.rest()
    assert shown.startswith('{"event":"result"')
    assert shown.count("\n") == 1


async def test_a_resource_cannot_steer_the_terminal() -> None:
    """Control characters of a server are shown, not done."""
    evil = {"uri": "x://y", "text": "a\x1b]0;title\x07b\u202ec"}
    async with terminal("read", "x://y", *answering({"resources/read": {"contents": [evil]}})) as (
        screen
    ):
        shown = await screen.rest()
    assert shown == "a\\x1b]0;title\\x07b\\u202ec\r\n"


async def test_progress_is_one_line(url: str) -> None:
    """A bar that is overwritten, and taken away when the result comes."""
    async with terminal("call", url, "progress", "--arguments", '{"steps": 3}') as screen:
        shown = await screen.rest()
    assert unstyled(shown).endswith(" 3 of 3\r\x1b[2K3 steps\n")
    assert "━" in shown
    assert shown.count("\n") == 1


async def test_ctrl_c_at_the_keyboard(url: str) -> None:
    """It ends a subscription in peace, and a request with the status of an interrupted one."""
    async with terminal("listen", url, "--tools") as screen:
        await screen.until("the list of tools")
        await screen.type("\x03")
        assert unstyled(await screen.rest()).endswith("stopped             interrupted\n")
    assert screen.process.returncode == 0
    async with terminal("discover", "--", "sh", "-c", "echo ready >&2; exec sleep 60") as screen:
        await screen.until("ready")
        await screen.type("\x03")
        assert "stopped" in await screen.rest()
    assert screen.process.returncode == 130


@pytest.mark.parametrize(
    ("typed", "outcome"),
    [(["y", "Ada"], "Hello, Ada!"), (["n"], "Hello, stranger!"), (["\x04"], "Hello, stranger!")],
    ids=["answered", "declined", "cancelled"],
)
async def test_a_question_is_asked(url: str, typed: list[str], outcome: str) -> None:
    """A form is filled in at the terminal, declined, or left open by Ctrl-D."""
    async with terminal("call", url, "test_input_required_result_elicitation") as screen:
        assert "the server asks: " in unstyled(await screen.until("answer? [Y/n] "))
        for line in typed:
            await screen.type(line if line == "\x04" else f"{line}\n")
            if line == "y":
                await screen.until("  name: ")
        assert outcome in await screen.rest()
    assert screen.process.returncode == 0
