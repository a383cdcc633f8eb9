"""Our server beside the floors it is judged by, in one run on one machine.

Each case starts each server afresh, one after the other, as often as ``--repeat`` says; what is
printed are medians. Absolute rates differ from machine to machine and from hour to hour; trust
the ratios. Examples::

    python tests/bench/run.py
    python tests/bench/run.py --case fanout --listeners 1000 --server ours,ts
"""

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

import attrs
import bench_servers
from bench_cases import CASES, Case, Figures, Options
from bench_servers import Kind

Results = dict[str, dict[str, Figures | str]]
"""Case, server, figures; or what went wrong."""


@attrs.frozen
class Ratio:
    """What has to hold: a figure of one server divided by that of another server or case."""

    case: str
    figure: str
    server: str
    beside: str
    at_least: float = 0.0
    at_most: float = math.inf

    def judge(self, results: Results) -> tuple[bool, str] | None:
        """Whether it holds and what to say; None if it was not measured."""
        one = results.get(self.case, {}).get(self.server)
        if self.beside in CASES:
            other = results.get(self.beside, {}).get(self.server)
        else:
            other = results.get(self.case, {}).get(self.beside)
        if not isinstance(one, dict) or not isinstance(other, dict):
            return None
        ratio = one[self.figure] / other[self.figure]
        bound = f"at least {self.at_least}" if self.at_least else f"at most {self.at_most:.2f}"
        text = f"{self.case}, {self.figure}: {self.server} {ratio:.2f} x {self.beside}, {bound}"
        return self.at_least <= ratio <= self.at_most, text


BOUNDS = (
    Ratio("fanout", "deliveries/s", "ours", "ts", at_least=1.5),
    Ratio("fanout", "deliveries/s", "ours", "sdk", at_least=10),
    Ratio("fanout5000", "deliveries/s", "ours", "fanout", at_least=0.8),
    Ratio("burst", "deliveries/s", "ours", "ts", at_least=1),
    Ratio("calls", "calls/s", "ours", "ts", at_least=3),
    Ratio("calls", "calls/s", "ours", "sdk", at_least=3),
    # A bare loop of sends costs about 7 µs where this was written, and 12 were allowed.
    Ratio("fanout", "CPU µs/delivery", "ours", "direct", at_most=12 / 7),
    Ratio("fanout", "deliveries/s", "hypercorn", "asgi", at_least=1.5),
    Ratio("fanout", "deliveries/s", "hypercorn", "sdk", at_least=2.5),
    Ratio("fanout", "KiB/idle stream", "hypercorn", "asgi", at_most=1.4),
    Ratio("calls", "calls/s", "hypercorn", "asgi", at_least=0.7),
    Ratio("sparse10000", "CPU µs/publish", "ours", "sparse100", at_most=1.5),
    Ratio("sparse10000", "latency p50 µs", "ours", "sparse100", at_most=1.5),
    Ratio("sparse10000", "CPU µs/publish", "hypercorn", "sparse100", at_most=1.5),
    Ratio("sparse10000", "latency p50 µs", "hypercorn", "sparse100", at_most=1.5),
)
MOST_PER_STREAM = 18.0
"""KiB of memory that an idle stream may cost."""


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; the exit status says whether all bounds held."""
    options, asked, servers, parsed = _parse(arguments)
    cores = os.sched_getaffinity(0)
    bench_servers.pin(bench_servers.LOAD_CORE)
    bench_servers.raise_file_limit(30_000)
    results: Results = {}
    for case in asked:
        results[case.name] = _run_case(case, servers, options, parsed.repeat, cores)
        _show(case, servers, results[case.name])
    failed = _judge(results)
    if parsed.json:
        parsed.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return 1 if failed else 0


def _parse(
    arguments: list[str] | None,
) -> tuple[Options, list[Case], list[Kind], argparse.Namespace]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--case", default=",".join(CASES), help="a comma-separated list; default: %(default)s")
    add(
        "--server", default="ours,hypercorn,asgi,sockets,direct,ts,sdk", help="default: %(default)s"
    )
    add("--listeners", type=int, default=1000)
    add("--rounds", type=int, default=40, help="publishes a measurement")
    add("--calls", type=int, default=4000, help="tool calls a measurement")
    add("--connections", type=int, default=8, help="connections that call tools")
    add("--uris", type=int, default=50, help="resources of a burst")
    add("--churn", type=int, default=1000, help="streams to open and leave")
    add("--repeat", type=int, default=3, help="measurements of which the median is taken")
    add("--cache", type=Path, default=Path.home() / ".cache" / "mcp-trio-bench")
    add("--json", type=Path, help="write the medians here as well")
    parsed = parser.parse_args(arguments)
    known = bench_servers.kinds(parsed.cache)
    try:
        asked = [CASES[name] for name in parsed.case.split(",")]
        servers = [known[name] for name in parsed.server.split(",")]
    except KeyError as error:
        parser.error(f"unknown: {error}; there are {', '.join(CASES)} and {', '.join(known)}")
    if any(server.name == "sdk" for server in servers):
        bench_servers.prepare_sdk(parsed.cache)
    if any(server.name == "ts" for server in servers):
        bench_servers.prepare_ts(parsed.cache)
    options = Options(
        listeners=parsed.listeners,
        rounds=parsed.rounds,
        calls=parsed.calls,
        connections=parsed.connections,
        uris=parsed.uris,
        churn=parsed.churn,
    )
    return options, asked, servers, parsed


def _run_case(
    case: Case, servers: Iterable[Kind], options: Options, repeat: int, cores: set[int]
) -> dict[str, Figures | str]:
    runs: dict[str, list[Figures]] = {}
    found: dict[str, Figures | str] = {}
    for _ in range(repeat):
        for kind in servers:
            if kind.name in found:
                continue
            if case.needs(options) > kind.most:
                found[kind.name] = f"holds at most {kind.most} subscriptions"
                continue
            print(f"\r  {case.name}: {kind.name:<10}", end="", file=sys.stderr, flush=True)
            try:
                with bench_servers.run_server(kind, cores=cores, watch=case.watch) as server:
                    figures = case.run(server, options)
                runs.setdefault(kind.name, []).append(figures)
            except Exception as error:  # noqa: BLE001 (one server's trouble, not the others')
                found[kind.name] = str(error) or repr(error)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)
    for name, measured in runs.items():
        found.setdefault(
            name,
            {key: statistics.median(run[key] for run in measured) for key in measured[0]},
        )
    return found


def _show(case: Case, servers: Iterable[Kind], found: dict[str, Figures | str]) -> None:
    print(f"\n{case.name}: {case.title}")
    ours = found.get("ours")
    for kind in servers:
        figures = found[kind.name]
        if isinstance(figures, str):
            print(f"  {kind.name:<10} {figures.strip()}")
            continue
        print(f"  {kind.name:<10} {kind.title}")
        for key, value in figures.items():
            line = (
                f"    {key:<26}{value:>12,.1f}" if value < 1000 else f"    {key:<26}{value:>12,.0f}"
            )
            if kind.name != "ours" and isinstance(ours, dict) and value:
                line += f"   ours is {ours[key] / value:.2f} x"
                line += " (more is better)" if key in case.rates else ""
            print(line)
    sys.stdout.flush()


def _judge(results: Results) -> bool:
    """Print what has to hold and whether it does; whether anything fell short."""
    verdicts = [verdict for ratio in BOUNDS if (verdict := ratio.judge(results)) is not None]
    idle = results.get("fanout", {}).get("ours")
    if isinstance(idle, dict):
        memory = idle["KiB/idle stream"]
        text = f"fanout: ours {memory:.1f} KiB an idle stream, at most {MOST_PER_STREAM}"
        verdicts.append((memory <= MOST_PER_STREAM, text))
    broken = [
        f"{case}: {found['ours']}"
        for case, found in results.items()
        if isinstance(found.get("ours"), str)
    ]
    if verdicts or broken:
        print("\nwhat has to hold")
    for held, text in verdicts:
        print(f"  {'holds' if held else 'FAILS'}  {text}")
    for text in broken:
        print(f"  FAILS  {text.partition(chr(10))[0]}")
    return bool(broken) or not all(held for held, _ in verdicts)


if __name__ == "__main__":
    sys.exit(main())
