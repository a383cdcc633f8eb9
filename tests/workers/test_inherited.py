"""What a process inherits: from a parent of ours, from a service manager, or nothing."""

import os
import socket
import subprocess
import sys

import pytest
import trio

from mcp_trio.workers import inherited_listeners, inherited_worker
from mcp_trio.workers.inherited import VARIABLE


def listening() -> socket.socket:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.set_inheritable(True)
    return sock


async def test_a_program_of_its_own_has_no_parent(autojump_clock: trio.testing.MockClock) -> None:
    with inherited_worker() as worker:
        assert (worker.number, worker.listeners, worker.after_crash) == (0, None, False)
        worker.started(["http://127.0.0.1:8000"])
        with trio.move_on_after(1000) as scope:
            await worker.wait_stop()
        assert scope.cancelled_caught


async def test_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its variable is gone, and its own children inherit nothing."""
    ours, theirs = socket.socketpair()
    listener = listening()
    monkeypatch.setenv(VARIABLE, f"3 1 {theirs.detach()} {listener.detach()}")
    with inherited_worker() as worker, ours:
        assert VARIABLE not in os.environ
        assert (worker.number, worker.after_crash) == (3, True)
        assert worker.listeners is not None
        (taken,) = worker.listeners
        assert not taken.get_inheritable()
        assert taken.gettimeout() == 0.0
        worker.started(["http://127.0.0.1:1"])
        assert ours.recv(100) == b'["http://127.0.0.1:1"]\n'
        worker.started()
        assert ours.recv(100) == b"[]\n"
        stopped: list[int] = []

        async def wait(number: int) -> None:
            await worker.wait_stop()
            stopped.append(number)

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait, 1)
                nursery.start_soon(wait, 2)
                ours.send(b"anything")
                await trio.sleep(0.05)
                assert stopped == []
                ours.shutdown(socket.SHUT_WR)
            await worker.wait_stop()
        assert sorted(stopped) == [1, 2]
    assert taken.fileno() == -1


async def test_a_worker_whose_parent_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setenv(VARIABLE, f"0 0 {theirs.detach()}")
    with inherited_worker() as worker:
        ours.send(b"unread")
        worker.started([])
        ours.close()  # with bytes unread: a reset
        worker.started([])
        with trio.fail_after(5):
            await worker.wait_stop()


@pytest.mark.parametrize("value", ["", "0", "0 0", "x 0 3", "0 0 987654"])
def test_a_variable_that_makes_no_sense(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(RuntimeError, match="not inherited"), inherited_worker():
        pass


ACTIVATED = """
import os, socket
from mcp_trio.workers import inherited_listeners, inherited_worker
how = os.environ["HOW"]
if how == "worker":
    with inherited_worker() as worker:
        listeners = list(worker.listeners)
        names = [each.getsockname()[1] for each in listeners]
else:
    listeners = inherited_listeners()
    names = [each.getsockname()[1] for each in listeners]
    assert not any(each.get_inheritable() for each in listeners)
assert inherited_listeners() is None
assert not any(name.startswith("LISTEN_") for name in os.environ)
print(*names)
"""


@pytest.mark.parametrize("how", ["worker", "listeners"])
def test_the_sockets_of_a_service_manager(how: str) -> None:
    """As systemd passes them: from descriptor 3 up, and only to the process that it names."""
    with listening() as one, listening() as two:
        command = (
            f"exec 3<&{one.fileno()} 4<&{two.fileno()}; "
            'LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=a:b exec "$0" -c "$1"'
        )
        shell = ["bash", "-c", command, sys.executable, ACTIVATED]
        fds = (one.fileno(), two.fileno())
        environment = {**os.environ, "HOW": how}
        done = subprocess.run(shell, pass_fds=fds, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [str(one.getsockname()[1]), str(two.getsockname()[1])]


def test_sockets_for_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert inherited_listeners() is None
    monkeypatch.setenv("LISTEN_PID", str(os.getpid() + 1))
    assert inherited_listeners() is None
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "0")
    assert inherited_listeners() is None


def test_what_does_not_listen_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "many")
    with pytest.raises(RuntimeError, match="not inherited"):
        inherited_listeners()
    script = (
        "import socket, os; from mcp_trio.workers import inherited_listeners\n"
        "try: inherited_listeners()\n"
        "except RuntimeError as error: print(error)\n"
    )
    with socket.socket() as idle:
        command = f'exec 3<&{idle.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" -c "$1"'
        shell = ["bash", "-c", command, sys.executable, script]
        done = subprocess.run(shell, pass_fds=(idle.fileno(),), capture_output=True, text=True)
    assert "does not listen" in done.stdout, done.stderr
