"""What the types of a tool's parameters cost, beside a tool that takes whatever comes.

No transport: `Server.handle` alone, so that nothing hides it. Example::

    python tests/bench/typed_calls.py
"""

import argparse
import dataclasses
import gc
import sys
import time
from pathlib import Path
from typing import Any

import trio

from mcp_trio import Server
from mcp_trio.protocol import jsonrpc

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from request_meta import META
from server_kit import Recorder

AT_MOST = 1.3

SIMPLE = {"a": 5, "b": "hello", "c": 2.5, "tags": ["x", "y"]}
NESTED = {"title": "t", "points": [{"x": 1.0, "y": 2.0, "name": "p"}] * 3}


@dataclasses.dataclass
class Point:
    """A parameter that is an object."""

    x: float
    y: float
    name: str = ""


async def raw(**arguments: Any) -> str:
    """Take whatever comes."""
    return "fine"


async def typed(a: int, b: str, c: float = 1.5, tags: list[str] | None = None) -> str:
    """Take simple values."""
    return "fine"


async def nested(title: str, points: list[Point]) -> str:
    """Take objects."""
    return "fine"


def make_server() -> Server:
    """All three tools, and the simple one with a schema written by hand."""
    server = Server("typed", version="1")
    for tool in (raw, typed, nested):
        server.add_tool(tool)
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string"},
            "c": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    server.add_tool(raw, name="schema", input_schema=schema)
    return server


CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("raw", SIMPLE),
    ("schema", SIMPLE),
    ("typed", SIMPLE),
    ("raw", NESTED),
    ("nested", NESTED),
)


async def measure(calls: int, repeat: int) -> list[float]:
    """Seconds of processor time a call of each case; the least of several runs."""
    server = make_server()
    best = [float("inf")] * len(CASES)
    for _ in range(repeat):
        for index, (name, arguments) in enumerate(CASES):
            requests = [
                jsonrpc.Request(
                    1, "tools/call", {"_meta": dict(META), "name": name, "arguments": arguments}
                )
                for _ in range(calls)
            ]
            exchange = Recorder()
            gc.collect()
            begun = time.process_time()
            for request in requests:
                await server.handle(request, exchange)
            best[index] = min(best[index], (time.process_time() - begun) / calls)
    return best


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and say whether types cost no more than they may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=4000, help="a run")
    parser.add_argument("--repeat", type=int, default=9, help="runs, of which the best counts")
    options = parser.parse_args(arguments)
    best = trio.run(measure, options.calls, options.repeat)
    for (name, given), seconds in zip(CASES, best, strict=True):
        print(f"  {name:<8}{'objects' if given is NESTED else 'simple':<9}{seconds * 1e6:7.1f} µs")
    ratios = {"typed": best[2] / best[0], "nested": best[4] / best[3]}
    for name, ratio in ratios.items():
        held = "holds" if ratio <= AT_MOST else "FAILS"
        print(f"{held}  {name} {ratio:.2f} x raw, at most {AT_MOST}")
    return 0 if max(ratios.values()) <= AT_MOST else 1


if __name__ == "__main__":
    sys.exit(main())
