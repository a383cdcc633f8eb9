"""Our server beside the floors it is judged by, in one run on one machine.

Each case starts each server afresh, one after the other, as often as ``--repeat`` says; what is
printed are medians. Absolute rates differ from machine to machine and from hour to hour; trust
the ratios. Examples::

    python tests/bench/run.py
    python tests/bench/run.py --case fanout --listeners 1000 --server ours,asgi
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

import bench_servers
from bench_cases import CASES, Case, Figures, Options
from bench_load import BenchError
from bench_servers import Kind

Results = dict[str, dict[str, Figures | str]]
"""Case, server, figures; or what went wrong."""

# What has to hold: case, figure, floor, and the bound of ours divided by the floor's.
BOUNDS = (
    ("fanout", "deliveries/s", "asgi", "at least", 1.5),
    ("fanout", "deliveries/s", "sdk", "at least", 2.5),
    ("fanout", "KiB/idle stream", "asgi", "at most", 1.4),
    ("calls", "calls/s", "asgi", "at least", 0.7),
)
SPARSE_BOUND = 1.5


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; the exit status says whether all bounds held."""
    options, asked, servers, parsed = _parse(arguments)
    cores = os.sched_getaffinity(0)
    bench_servers.pin(bench_servers.LOAD_CORE)
    bench_servers.raise_file_limit(12_000)
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
    add("--server", default="ours,asgi,sockets,sdk", help="default: %(default)s")
    add("--listeners", type=int, default=1000)
    add("--rounds", type=int, default=40, help="publishes a measurement")
    add("--calls", type=int, default=4000, help="tool calls a measurement")
    add("--connections", type=int, default=8, help="connections that call tools")
    add("--uris", type=int, default=100, help="resources of a burst")
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
            except (BenchError, OSError) as error:
                found[kind.name] = str(error)
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
            print(f"  {kind.name:<8} {figures.strip()}")
            continue
        print(f"  {kind.name:<8} {kind.title}")
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
    verdicts: list[tuple[bool, str]] = []
    for case, key, floor, direction, bound in BOUNDS:
        ours, theirs = results.get(case, {}).get("ours"), results.get(case, {}).get(floor)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            ratio = ours[key] / theirs[key]
            held = ratio >= bound if direction == "at least" else ratio <= bound
            verdicts.append((held, f"{key} {ratio:.2f} x {floor}, {direction} {bound}"))
    few = results.get("sparse100", {}).get("ours")
    many = results.get("sparse10000", {}).get("ours")
    if isinstance(few, dict) and isinstance(many, dict):
        for key in ("CPU µs/publish", "latency p50 µs"):
            ratio = many[key] / few[key]
            text = f"{key}, one of 10,000 {ratio:.2f} x one of 100, at most {SPARSE_BOUND}"
            verdicts.append((ratio <= SPARSE_BOUND, text))
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
