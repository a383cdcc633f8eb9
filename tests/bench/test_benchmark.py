"""The benchmark runs, and what it counts with can count. It judges nothing here."""

import json
import subprocess
import sys
from pathlib import Path

import bench_wire
import pytest
from bench_cases import CASES

HERE = Path(__file__).parent
RUN = HERE / "run.py"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_markers_are_counted_wherever_the_stream_is_cut(size: int) -> None:
    data = b"xx" + b"marker" * 3 + b"mark" + b"marker"
    counter = bench_wire.Counter(b"marker")
    found = [counter.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert counter.total == sum(found) == 4


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        # A chunk in which others seem to end, and a length that ends in zero.
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\n%bx\r\n0\r\n\r\n"
        % (b"0\r\n\r\n" * 3),
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
def test_the_end_of_a_response_is_found(response: bytes) -> None:
    for end in range(len(response)):
        assert bench_wire.response_end(response[:end]) is None
    assert bench_wire.response_end(response + b"HTTP/1.1 200 OK\r\n") == len(response)


def test_the_benchmark_runs(tmp_path: Path) -> None:
    output = tmp_path / "figures.json"
    cases = set(CASES) - {"sparse100", "sparse10000"}
    options = f"--server ours,direct --case {','.join(cases)} --repeat 1"
    sizes = "--listeners 20 --rounds 4 --calls 100 --uris 10 --churn 100"
    result = subprocess.run(
        [sys.executable, RUN, *options.split(), *sizes.split(), "--json", output],
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert output.exists(), result.stderr.decode()[-3000:]
    figures = json.loads(output.read_text())
    assert set(figures) == cases
    for case, servers in figures.items():
        assert set(servers) == {"ours", "direct"}, case
        assert isinstance(servers["ours"], dict), f"{case}: {servers['ours']}"


def test_the_benchmark_of_clients_runs(tmp_path: Path) -> None:
    output = tmp_path / "figures.json"
    sizes = "--client ours --listeners 60 --rounds 3 --repeat 1"
    result = subprocess.run(
        [sys.executable, HERE / "listens.py", *sizes.split(), "--json", output],
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert output.exists(), result.stderr.decode()[-3000:]
    figures = json.loads(output.read_text())["ours"]
    assert set(figures) == {"CPU µs/event", "events/s", "KiB/stream", "CPU µs/open"}


def test_the_benchmark_of_typed_calls_runs() -> None:
    result = subprocess.run(
        [sys.executable, HERE / "typed_calls.py", "--calls", "20", "--repeat", "1"],
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert result.returncode in {0, 1}, result.stderr.decode()[-3000:]
    assert result.stdout.count(b"raw, at most") == 2, result.stderr.decode()[-3000:]
