"""The cases. Each takes a server that has just started and returns named figures.

Every loop is bounded in number, and every wait in time; what a server does not manage in time
is a `BenchError`, which the report shows in place of its figures.
"""

import resource
import statistics
import time
from collections.abc import Callable

import attrs
from bench_load import BenchError, Caller, Swarm, closed_loop
from bench_servers import Server

Figures = dict[str, float]

FEW, MANY, IDLE_FACTOR = 100, 10_000, 20


@attrs.frozen
class Options:
    """What can be set from the command line."""

    listeners: int
    rounds: int
    calls: int
    connections: int
    uris: int
    churn: int


@attrs.frozen
class Case:
    """One measurement.

    Attributes:
        rates: the figures of which more is better; of the others, less is.
        needs: how many subscriptions the server must be able to hold.
        watch: whether the server has to notice clients that leave.
    """

    name: str
    title: str
    run: Callable[[Server, Options], Figures]
    needs: Callable[[Options], int] = lambda options: options.listeners
    watch: bool = False
    rates: tuple[str, ...] = ()


def fan_out(server: Server, options: Options) -> Figures:
    """One publish to N listeners, over and over; and what they cost while nothing happens."""
    swarm, caller = Swarm(server.port), Caller(server.port)
    early = min(50, options.listeners // 2)
    swarm.open(early, lambda _: ["bench://one"])
    before = server.rss()
    swarm.open(options.listeners - early, lambda _: ["bench://one"])
    time.sleep(0.3)
    per_stream = (server.rss() - before) / (options.listeners - early)
    _publish_rounds(server, swarm, caller, options.listeners, 3)
    rate, cpu = _publish_rounds(server, swarm, caller, options.listeners, options.rounds)
    swarm.close()
    caller.close()
    return {"deliveries/s": rate, "CPU µs/delivery": cpu, "KiB/idle stream": per_stream / 1024}


def five_times(server: Server, options: Options) -> Figures:
    """The same with five times as many."""
    many = 5 * options.listeners
    return fan_out(server, attrs.evolve(options, listeners=many, rounds=options.rounds // 2 + 1))


def idle(server: Server, options: Options) -> Figures:
    """Very many listeners for which nothing happens, but once."""
    # A process may hold only so many sockets, and needs some for other things.
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100
    count = min(options.listeners * IDLE_FACTOR, allowed)
    swarm, caller = Swarm(server.port), Caller(server.port)
    before, begun = server.rss(), time.perf_counter()
    swarm.open(count, lambda _: ["bench://one"], at_once=256)
    opened = time.perf_counter() - begun
    grown = server.rss() - before
    wanted, cpu = swarm.delivered + count, server.cpu()
    begun = time.perf_counter()
    caller.send("publish", uri="bench://one", count=1)
    swarm.wait_for(wanted)
    told = time.perf_counter() - begun
    spent = server.cpu() - cpu
    caller.receive()
    begun = time.perf_counter()
    swarm.close()
    if server.kind.counts:
        _wait_until_nobody_listens(server)
    closed = time.perf_counter() - begun
    caller.close()
    return {
        "listeners": count,
        "s to open": opened,
        "MiB": grown / 2**20,
        "KiB/idle stream": grown / count / 1024,
        "s until all have heard": told,
        "CPU s to tell all": spent,
        "s to close": closed,
    }


def _publish_rounds(
    server: Server,
    swarm: Swarm,
    caller: Caller,
    heard_by: int,
    rounds: int,
    uri: str = "bench://one",
) -> tuple[float, float]:
    """The median rate of a round, and the processor time of a delivery in µs."""
    rates: list[float] = []
    cpu = server.cpu()
    for _ in range(rounds):
        wanted = swarm.delivered + heard_by
        begun = time.perf_counter()
        caller.send("publish", uri=uri, count=1)
        swarm.wait_for(wanted)
        rates.append(heard_by / (time.perf_counter() - begun))
        caller.receive()
    return statistics.median(rates), (server.cpu() - cpu) / (rounds * heard_by) * 1e6


def sparse(server: Server, listeners: int, rounds: int) -> Figures:
    """Many listeners, each to a resource of its own; one of them is published at a time."""
    swarm, caller = Swarm(server.port), Caller(server.port)
    swarm.open(listeners, lambda number: [f"bench://{number}"])
    latencies: list[float] = []
    cpu = 0.0
    for round_number in range(-20, rounds):
        if round_number == 0:
            latencies.clear()
            cpu = server.cpu()
        wanted = swarm.delivered + 1
        begun = time.perf_counter()
        caller.send("publish", uri=f"bench://{round_number * 7919 % listeners}", count=1)
        swarm.wait_for(wanted)
        latencies.append(time.perf_counter() - begun)
        caller.receive()
    spent = server.cpu() - cpu
    swarm.close()
    caller.close()
    return {
        "CPU µs/publish": spent / rounds * 1e6,
        "latency p50 µs": statistics.median(latencies) * 1e6,
        "latency p99 µs": statistics.quantiles(latencies, n=100)[98] * 1e6,
    }


def burst(server: Server, options: Options) -> Figures:
    """One call publishes many resources at once to some listeners that want them all."""
    listeners = max(1, options.listeners // 5)
    swarm, caller = Swarm(server.port), Caller(server.port)
    swarm.open(listeners, lambda _: [f"bench://b{number}" for number in range(options.uris)])
    each = listeners * options.uris
    rates: list[float] = []
    cpu = 0.0
    for round_number in range(options.rounds // 4 + 1):
        if round_number == 1:
            rates.clear()
            cpu = server.cpu()
        wanted = swarm.delivered + each
        begun = time.perf_counter()
        caller.send("publish", uri="bench://b", count=options.uris)
        swarm.wait_for(wanted)
        rates.append(each / (time.perf_counter() - begun))
        caller.receive()
    spent = server.cpu() - cpu
    swarm.close()
    caller.close()
    return {
        "deliveries/s": statistics.median(rates),
        "CPU µs/delivery": spent / (len(rates) * each) * 1e6,
    }


def calls(server: Server, options: Options) -> Figures:
    """Plain tool calls over keep-alive connections, each asking again once it is answered."""
    closed_loop(server.port, options.connections, options.calls // 10)
    cpu = server.cpu()
    took = closed_loop(server.port, options.connections, options.calls)
    spent = server.cpu() - cpu
    return {"calls/s": options.calls / took, "CPU µs/call": spent / options.calls * 1e6}


def stalled(server: Server, options: Options) -> Figures:
    """Some listeners stop reading: what the others and the server's memory feel of it."""
    many, few = max(10, options.listeners // 5), max(2, options.listeners // 50)
    good, bad, caller = Swarm(server.port), Swarm(server.port), Caller(server.port)
    good.open(many, lambda _: ["bench://one"])
    _publish_rounds(server, good, caller, many, 3)
    undisturbed, _ = _publish_rounds(server, good, caller, many, options.rounds)
    stuck = bad.open(few, lambda _: ["bench://one", "bench://two"], receive_buffer=4096)
    for listener in stuck:
        bad.stop_reading(listener)
    before = server.rss()
    # Enough to fill the buffers of the kernel, then the ones that count.
    _publish_rounds(server, good, caller, many, options.rounds * 10)
    disturbed, _ = _publish_rounds(server, good, caller, many, options.rounds)
    caller.call("publish", uri="bench://two", count=1)
    _publish_rounds(server, good, caller, many, options.rounds)
    grown = server.rss() - before
    heard = [listener.events.total for listener in stuck]
    for listener in stuck:
        bad.read_again(listener)
    bad.drain(1.0)
    good.raise_if_lost()
    caught_up = sum(
        listener.events.total - already for listener, already in zip(stuck, heard, strict=True)
    )
    figures = {
        "deliveries/s": disturbed,
        "of the rate undisturbed": disturbed / undisturbed,
        "KiB/stalled reader": grown / few / 1024,
        "caught up, events/reader": caught_up / few,
        "streams cut": float(bad.lost),
    }
    good.close()
    bad.close()
    caller.close()
    return figures


def churn(server: Server, options: Options) -> Figures:
    """Open and leave, over and over; nothing may be left behind."""
    swarm = Swarm(server.port)
    batch = min(50, options.churn)

    def cycle(count: int) -> None:
        for number in range(count // batch):
            for listener in swarm.open(batch, lambda _: ["bench://one"]):
                swarm.close_one(listener, abruptly=number % 2 == 0)

    cycle(options.churn // 4)
    _wait_until_nobody_listens(server)
    before, cpu = server.rss(), server.cpu()
    begun = time.perf_counter()
    cycle(options.churn)
    took = time.perf_counter() - begun
    _wait_until_nobody_listens(server)
    spent, grown = server.cpu() - cpu, server.rss() - before
    swarm.close()
    return {
        "opens/s": options.churn / took,
        "CPU µs/open": spent / options.churn * 1e6,
        "bytes left/open": grown / options.churn,
    }


def _wait_until_nobody_listens(server: Server) -> None:
    if not server.kind.counts:
        time.sleep(1)
        return
    caller = Caller(server.port)
    for _ in range(100):
        answer = caller.call("stats").replace(b"\\", b"").replace(b" ", b"")
        if b'"subscriptions":0' in answer:
            caller.close()
            return
        time.sleep(0.05)
    raise BenchError(f"subscriptions of clients that left are still open: {answer[-300:]!r}")


CASES = {
    case.name: case
    for case in (
        Case("fanout", "one publish to every listener", fan_out, rates=("deliveries/s",)),
        Case(
            "fanout5000",
            "one publish to five times as many",
            five_times,
            needs=lambda options: 5 * options.listeners,
            rates=("deliveries/s",),
        ),
        Case(
            "idle20000",
            "twenty times as many, one publish to all, and the end",
            idle,
            needs=lambda options: IDLE_FACTOR * options.listeners,
            watch=True,
        ),
        Case(
            "sparse100",
            f"publishing to one of {FEW} listeners",
            lambda server, options: sparse(server, FEW, options.rounds * 25),
            needs=lambda _: FEW,
        ),
        Case(
            "sparse10000",
            f"publishing to one of {MANY:,} listeners",
            lambda server, options: sparse(server, MANY, options.rounds * 25),
            needs=lambda _: MANY,
        ),
        Case(
            "burst",
            "one call publishes many resources",
            burst,
            needs=lambda options: options.listeners // 5,
            rates=("deliveries/s",),
        ),
        Case("calls", "plain tool calls", calls, needs=lambda _: 0, rates=("calls/s",)),
        Case(
            "stalled",
            "some listeners stop reading",
            stalled,
            watch=True,
            rates=("deliveries/s", "of the rate undisturbed"),
        ),
        Case(
            "churn",
            "opening and leaving",
            churn,
            needs=lambda _: 100,
            watch=True,
            rates=("opens/s",),
        ),
    )
}
