"""The servers under test, each in a process of its own on a core of its own."""

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
from bench_load import BenchError, Caller

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
SDK = "mcp==2.3.0"
TS_SDK = ("@modelcontextprotocol/server@2.4.0", "@modelcontextprotocol/node@2.1.2", "zod@4")
SERVER_CORE, LOAD_CORE = 0, 1
_PAGE = os.sysconf("SC_PAGE_SIZE")


@attrs.frozen
class Kind:
    """A kind of server: what it is called and how it is started.

    Attributes:
        most: the most subscriptions it can hold open.
        watch: what to add so that it notices clients that leave, where it does not always.
        counts: whether it has a tool that counts its subscriptions.
    """

    name: str
    title: str
    command: tuple[str, ...]
    most: int = 25_000
    watch: tuple[str, ...] = ()
    counts: bool = True


def kinds(cache: Path) -> dict[str, Kind]:
    """All servers that can be asked for, the one to judge first."""
    here = sys.executable
    floors = HERE / "floors"
    everything = (here, str(EXAMPLES / "everything_server.py"))
    found = (
        Kind("ours", "mcp_trio, serve_http", (*everything, "--http", "127.0.0.1:{port}")),
        Kind(
            "ours-gc",
            "the same with Python's own thresholds for the garbage collector",
            (*everything, "--default-gc", "--http", "127.0.0.1:{port}"),
        ),
        Kind(
            "hypercorn",
            "mcp_trio, serve_hypercorn",
            (*everything, "--hypercorn", "127.0.0.1:{port}"),
        ),
        Kind(
            "asgi",
            "a minimal ASGI app, plain Hypercorn on Trio",
            (here, str(floors / "asgi_floor.py"), "{port}"),
            watch=("--watch",),
        ),
        Kind(
            "sockets",
            "bare Trio sockets, a task a connection",
            (here, str(floors / "sockets_floor.py"), "{port}"),
            watch=("--watch",),
        ),
        Kind(
            "direct",
            "bare Trio sockets, the publisher writes and never waits",
            (here, str(floors / "sockets_floor.py"), "{port}", "--direct"),
            watch=("--watch",),
        ),
        Kind(
            "ts",
            "the official TypeScript SDK 2.4.0, node:http",
            ("node", str(floors / "ts_floor.mjs"), "{port}", str(cache / "ts")),
            counts=False,
        ),
        Kind(
            "sdk",
            "the official Python SDK 2.3.0, uvicorn",
            (str(cache / "sdk" / "bin" / "python"), str(floors / "sdk_floor.py"), "{port}"),
            # The high-level server of the SDK refuses more than this.
            most=1024,
            counts=False,
        ),
    )
    return {kind.name: kind for kind in found}


def prepare_sdk(cache: Path) -> None:
    """Make the environment of the official Python SDK, once."""
    home = cache / "sdk"

    def install() -> None:
        venv.create(home, with_pip=True)
        python = str(home / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", SDK], check=True)

    _install_once(home, SDK, install)


def prepare_ts(cache: Path) -> None:
    """Install the packages of the official TypeScript SDK, once. Needs Node and npm."""
    home = cache / "ts"

    def install() -> None:
        (home / "package.json").write_text('{"private": true}\n')
        npm = shutil.which("npm") or "npm"
        subprocess.run([npm, "install", "--silent", "--no-audit", *TS_SDK], cwd=home, check=True)

    _install_once(home, " ".join(TS_SDK), install)


def _install_once(home: Path, wanted: str, install: Callable[[], object]) -> None:
    ready = home / "ready"
    if ready.exists() and ready.read_text() == wanted:
        return
    print(f"installing {wanted} into {home} ...", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    install()
    ready.write_text(wanted)


@attrs.define
class Server:
    """A server that runs."""

    kind: Kind
    port: int
    process: subprocess.Popen[bytes]

    def cpu(self) -> float:
        """The processor time it has used so far, user and system, in seconds."""
        return cpu_of(self.process.pid)

    def rss(self) -> int:
        """Its resident memory, in bytes; what the kernel holds for its sockets is not in it."""
        return rss_of(self.process.pid)


def cpu_of(pid: int) -> float:
    """The processor time that a process has used so far, user and system, in seconds."""
    # The clock that clock_getcpuclockid(3) gives for a process; /proc counts in 10 ms.
    return time.clock_gettime(~pid << 3 | 2)


def rss_of(pid: int) -> int:
    """The resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def raise_file_limit(needed: int) -> None:
    """Let this process and its children hold so many sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed:
        return
    with contextlib.suppress(ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(hard, needed)))
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def pin(core: int) -> None:
    """Keep this process on one core, if there are several."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, {cores[core % len(cores)]})


@contextlib.contextmanager
def run_server(kind: Kind, *, cores: set[int], watch: bool = False) -> Iterator[Server]:
    """Start a server, wait until it answers, and end it when the block is left."""
    port = free_port()
    command = [part.replace("{port}", str(port)) for part in kind.command]
    command += kind.watch if watch else ()
    core = sorted(cores)[SERVER_CORE % len(cores)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        try:
            try:
                _wait_until_it_answers(process, port)
            except BenchError as error:
                errors.seek(0)
                tail = errors.read()[-2000:].decode(errors="replace")
                raise BenchError(f"{kind.name}: {error}\n{tail}") from None
            yield Server(kind, port, process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.perf_counter() + 30
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            raise BenchError(f"it ended with {process.returncode}")
        with contextlib.suppress(OSError):
            caller = Caller(port)
            try:
                caller.call("echo", text="hello")
            finally:
                caller.close()
            return
        time.sleep(0.05)
    raise BenchError("it did not answer within 30 s")
