"""A server process that misbehaves as it is told, for test_stdio_transport.py; not a test."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn


def say(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def serve() -> None:
    """Echo params until the end of input."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and message["method"] != "silent":
            say({"id": message["id"], "result": message["params"]})


def polite() -> None:
    """The good example."""
    serve()


def environment() -> None:
    """Say where it is."""
    sys.stdin.readline()
    say({"id": 1, "result": {"cwd": str(Path.cwd()), "env": dict(os.environ), "sid": os.getsid(0)}})


def deaf() -> NoReturn:
    """Does not mind the end of input."""
    serve()
    while True:
        time.sleep(60)


def stubborn() -> NoReturn:
    """Nor SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deaf()


def helper() -> None:
    """Leave a process behind that holds all pipes open; exit at the end of input."""
    process = subprocess.Popen(["sleep", "60"])  # noqa: S607
    sys.stdin.readline()
    say({"id": 1, "result": {"helper": process.pid}})
    serve()


def stubborn_helper() -> None:
    """The same, and it does not mind SIGTERM."""
    process = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; sleep 60; sleep 60"])
    sys.stdin.readline()
    say({"id": 1, "result": {"helper": process.pid}})
    serve()


def dies() -> None:
    """Exit at once with a reason on standard error."""
    sys.stderr.write("no configuration file\n")
    sys.exit(1)


def dies_when_asked() -> None:
    """Exit when the first request has been read."""
    sys.stdin.readline()
    sys.stderr.write("x" * 200_000 + "the last words\n")
    os._exit(3)


def killed() -> None:
    """Killed when the first request has been read."""
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)


def odd_signal() -> None:
    """Killed by a signal without a name."""
    sys.stdin.readline()
    os.kill(os.getpid(), 40)


def closes_output() -> NoReturn:
    """Live on with standard output closed."""
    sys.stdin.readline()
    os.close(1)
    deaf()


def reads_nothing() -> NoReturn:
    """Never read."""
    while True:
        time.sleep(60)


def talks() -> None:
    """Fill standard error before the answer, and again when the input has ended."""
    sys.stdin.readline()
    sys.stderr.write("x" * 300_000)
    sys.stderr.flush()
    say({"id": 1, "result": {}})
    sys.stdin.read()
    sys.stderr.write("y" * 300_000)
    sys.stdout.write("z\n" * 200_000)


def floods() -> NoReturn:
    """Never stop writing."""
    while True:
        sys.stdout.write("noise " * 100 + "\n")


def noise() -> None:
    """Noise, then an answer."""
    sys.stdout.write("Starting\n{\n" + "bad\n" * 50_000)
    serve()


MODES: dict[str, Callable[[], object]] = {
    function.__name__: function
    for function in (
        *(polite, environment, deaf, stubborn, helper, stubborn_helper, dies, dies_when_asked),
        *(killed, odd_signal, closes_output, reads_nothing, talks, floods, noise),
    )
}

if __name__ == "__main__":
    MODES[sys.argv[1]]()
