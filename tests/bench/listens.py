"""Our client beside the official Python SDK's: many subscriptions in one process.

The server is the floor of bare sockets, on another core than the client, so what is measured is
the client. Absolute figures differ from machine to machine; trust the ratio. Example::

    python tests/bench/listens.py --listeners 1000 --repeat 3
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import bench_servers
from bench_load import BenchError, Caller

CLIENTS = Path(__file__).parent / "clients"
AT_MOST = 0.5
"""Of the CPU that the official client takes for an event, how much ours may."""

Figures = dict[str, float]


@attrs.define
class Process:
    """A client that runs."""

    process: subprocess.Popen[str]

    def cpu(self) -> float:
        """The processor time it has used so far, in seconds."""
        return bench_servers.cpu_of(self.process.pid)

    def rss(self) -> int:
        """Its resident memory, in bytes."""
        return bench_servers.rss_of(self.process.pid)

    def wait_for(self, word: str) -> None:
        """Read its next line, which has to be this one."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line != word:
            raise BenchError(f"waited for {word!r}, and the client said {line!r}")


def main(arguments: list[str] | None = None) -> int:
    """Measure each client; the exit status says whether ours is as much better as it has to be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--client", default="ours,sdk", help="default: %(default)s")
    parser.add_argument("--listeners", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=40, help="publishes a measurement")
    parser.add_argument("--repeat", type=int, default=3, help="of which the median is taken")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "mcp-trio-bench")
    parser.add_argument("--json", type=Path, help="write the medians here as well")
    options = parser.parse_args(arguments)
    names = options.client.split(",")
    if "sdk" in names:
        bench_servers.prepare_sdk(options.cache)
    cores = os.sched_getaffinity(0)
    bench_servers.raise_file_limit(options.listeners + 1000)
    runs: dict[str, list[Figures]] = {name: [] for name in names}
    for _ in range(options.repeat):
        for name in names:
            print(f"  {name}", file=sys.stderr, flush=True)
            runs[name].append(measure(name, options, cores))
    medians = {
        name: {key: statistics.median(run[key] for run in measured) for key in measured[0]}
        for name, measured in runs.items()
    }
    if options.json:
        options.json.write_text(json.dumps(medians, indent=1) + "\n")
    return report(medians)


def measure(name: str, options: argparse.Namespace, cores: set[int]) -> Figures:
    """Start a server and a client, and have the client hear of changes."""
    kind = bench_servers.kinds(options.cache)["sockets"]
    size = options.listeners
    with bench_servers.run_server(kind, cores=cores) as server:
        caller = Caller(server.port)
        with run_client(name, server.port, 50, options, cores) as few:
            few.wait_for("open")
            base = few.rss()
        with run_client(name, server.port, size, options, cores) as client:
            begun = client.cpu()
            client.wait_for("open")
            opened = client.cpu() - begun
            time.sleep(0.3)
            memory = (client.rss() - base) / (size - 50)
            publish(caller, client, 3)
            before = client.cpu()
            took = publish(caller, client, options.rounds)
            spent = client.cpu() - before
        caller.close()
    events = options.rounds * size
    return {
        "CPU µs/event": spent / events * 1e6,
        "events/s": events / took,
        "KiB/stream": memory / 1024,
        "CPU µs/open": opened / size * 1e6,
    }


def publish(caller: Caller, client: Process, rounds: int) -> float:
    """Tell all, over and over, each time when all have heard; the seconds it took."""
    begun = time.perf_counter()
    for _ in range(rounds):
        caller.call("publish", uri="bench://one", count=1)
        client.wait_for("heard")
    return time.perf_counter() - begun


@contextlib.contextmanager
def run_client(
    name: str, port: int, size: int, options: argparse.Namespace, cores: set[int]
) -> Iterator[Process]:
    """Run a client on a core of its own, and end it when the block is left."""
    pythons = {"ours": sys.executable, "sdk": str(options.cache / "sdk" / "bin" / "python")}
    program = CLIENTS / f"listen_{name}.py"
    core = sorted(cores)[bench_servers.LOAD_CORE % len(cores)]
    process = subprocess.Popen(
        [pythons[name], program, f"http://127.0.0.1:{port}/mcp", str(size)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    # A client that says nothing is ended, and its silence is reported by who waits for it.
    patience = threading.Timer(120, process.kill)
    patience.start()
    try:
        yield Process(process)
    finally:
        patience.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def report(medians: dict[str, Figures]) -> int:
    """Print the figures side by side, and the verdict."""
    for name, figures in medians.items():
        print(f"\n{name}")
        for key, value in figures.items():
            print(f"  {key:<16}{value:>12,.1f}")
    if not {"ours", "sdk"} <= medians.keys():
        return 0
    ratio = medians["ours"]["CPU µs/event"] / medians["sdk"]["CPU µs/event"]
    held = ratio <= AT_MOST
    print(f"\n{'holds' if held else 'FAILS'}  ours {ratio:.2f} x sdk in CPU, at most {AT_MOST}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
