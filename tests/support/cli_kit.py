"""The script mcp-trio as a process, and servers for it to talk to."""

import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from patience import at_most

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = [sys.executable, "-m", "mcp_trio"]
EVERYTHING = [sys.executable, str(EXAMPLES / "everything_server.py")]
STDIO = ("--", *EVERYTHING, "--stdio")
"""What makes the everything server the target, as the last of the arguments."""
PATIENCE = 20


def folder_server(folder: Path) -> tuple[str, ...]:
    """What makes a server of a folder the target."""
    return ("--", sys.executable, str(EXAMPLES / "watch_folder.py"), str(folder))


@attrs.frozen
class Finished:
    """What a run has left behind."""

    status: int
    out: str
    err: str

    def objects(self) -> list[dict[str, Any]]:
        """Standard output, one JSON object a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def value(self) -> Any:
        """The value of the one result there is."""
        [line] = self.objects()
        assert line.keys() == {"event", "value"}
        assert line["event"] == "result"
        return line["value"]


def environment(**more: str) -> dict[str, str]:
    """Ours, less what would make a difference."""
    kept = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    return {**kept, **more}


_UNWANTED = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "MCP_TRIO_TOKEN"}


async def run(
    *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> Finished:
    """Run it to its end."""
    with trio.fail_after(at_most(PATIENCE)):
        process = await trio.run_process(
            [*SCRIPT, *arguments],
            stdin=stdin,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=environment() if env is None else env,
        )
    return Finished(process.returncode, process.stdout.decode(), process.stderr.decode())


class Running:
    """The script while it runs."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdout is not None
        self.process = process
        self.stdout = process.stdout
        self._rest = b""

    async def line(self) -> str:
        """The next line of its output."""
        while b"\n" not in self._rest:
            data = await self.stdout.receive_some()
            assert data, f"it ended in the middle of {self._rest!r}"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    async def event(self) -> dict[str, Any]:
        """The next line, which is a JSON object."""
        found: dict[str, Any] = json.loads(await self.line())
        return found

    async def rest(self) -> str:
        """All that it still writes, until it ends."""
        async for data in self.stdout:
            self._rest += data
        await self.process.wait()
        rest, self._rest = self._rest.decode(), b""
        return rest

    async def events(self) -> list[dict[str, Any]]:
        """All that it still writes, as JSON objects."""
        return [json.loads(line) for line in (await self.rest()).splitlines()]

    async def status(self) -> int:
        """Its exit status."""
        return await self.process.wait()


@asynccontextmanager
async def started(*arguments: str, **options: Any) -> AsyncIterator[Running]:
    """Run it while the block lasts."""
    with trio.fail_after(at_most(PATIENCE)):
        process = await trio.lowlevel.open_process(
            [*SCRIPT, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment(),
            **options,
        )
        try:
            yield Running(process)
        finally:
            if process.poll() is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


def only_child(pid: int) -> int:
    """The one process that a process has started, in whichever of its threads."""
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.is_dir():
        pytest.skip("here the children of a process cannot be found")
    [child] = [
        int(number)
        for children in tasks.glob("*/children")
        for number in children.read_text().split()
    ]
    return child


@attrs.frozen
class HttpServer:
    """The everything server in a process of its own."""

    url: str
    process: subprocess.Popen[str]


@contextmanager
def http_server(port: int = 0) -> Iterator[HttpServer]:
    """Start it; it is killed if it is still there in the end."""
    command = [*EVERYTHING, "--http", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("serving "), line
            yield HttpServer(line.split()[-1], process)
        finally:
            process.kill()


def answering(answers: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes a server the target that knows an answer to some methods, and no others."""
    return ("--", sys.executable, "-c", _ANSWERING, json.dumps(answers))


_ANSWERING = """
import json, sys
answers = json.loads(sys.argv[1])
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        answer = {"error": {"code": -32601, "message": "Method not found"}}
        if request["method"] in answers:
            answer = {"result": {"resultType": "complete", **answers[request["method"]]}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"""


class Terminal:
    """A terminal of 100 columns, with the script at it."""

    def __init__(self, process: trio.Process, master: int) -> None:
        self.process = process
        self.seen = ""
        self._stream = trio.lowlevel.FdStream(master)

    async def type(self, text: str) -> None:
        """Type on its keyboard."""
        await self._stream.send_all(text.encode())

    async def until(self, text: str) -> str:
        """Wait until a text is seen behind what was seen before; all up to there."""
        while text not in self.seen:
            data = await self._stream.receive_some()
            assert data, f"{text!r} does not come: {self.seen!r}"
            self.seen += data.decode()
        before, _, self.seen = self.seen.partition(text)
        return before + text

    async def rest(self) -> str:
        """All that is seen until it ends."""
        try:
            async for data in self._stream:
                self.seen += data.decode()
        except trio.BrokenResourceError:
            pass  # on Linux, how a terminal says that nobody has it open any more
        await self.process.wait()
        return self.seen

    def close(self) -> None:
        """Switch it off."""
        self._stream.close()


def _take_terminal() -> None:
    """Make standard input the terminal whose Ctrl-C is a signal for this process."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@asynccontextmanager
async def terminal(*arguments: str, **env: str) -> AsyncIterator[Terminal]:
    """Run the script at a terminal while the block lasts."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    try:
        process = await trio.lowlevel.open_process(
            [*SCRIPT, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(TERM="xterm-256color", **env),
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
    finally:
        os.close(slave)
    screen = Terminal(process, master)
    try:
        with trio.fail_after(at_most(PATIENCE)):  # noqa: ASYNC100 - its user waits
            yield screen
    finally:
        if process.poll() is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        screen.close()
