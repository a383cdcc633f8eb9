"""The transports, each as a fixture value: what opens a server and a client at the wire."""

from collections.abc import Iterator
from functools import partial

import pytest
from script_kit import PLAYS, Play
from wire_http import open_http
from wire_kit import Children, Open, open_lines, open_memory, open_stdio


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    """Server processes for all tests."""
    children = Children()
    yield children
    children.end()


def _opener(transport: str, children: Children) -> Open:
    if transport == "stdio":
        return partial(open_stdio, children)
    if transport == "native http":
        return partial(open_http, native=True)
    return {"memory": open_memory, "lines": open_lines, "http": open_http}[transport]


@pytest.fixture(params=["memory", "lines", "stdio", "http", "native http"])
def connect(request: pytest.FixtureRequest, children: Children) -> Open:
    """Every transport in turn."""
    return _opener(request.param, children)


@pytest.fixture(params=["lines", "stdio", "http", "native http"])
def connect_by_bytes(request: pytest.FixtureRequest, children: Children) -> Open:
    """Those that can carry what is no message at all."""
    return _opener(request.param, children)


@pytest.fixture(params=["memory", "lines", "http", "native http"])
def connect_twice(request: pytest.FixtureRequest, children: Children) -> Open:
    """Those over which one server has several clients."""
    return _opener(request.param, children)


@pytest.fixture(params=["lines", "stdio"])
def connect_by_lines(request: pytest.FixtureRequest, children: Children) -> Open:
    """Those where all requests share one channel."""
    return _opener(request.param, children)


@pytest.fixture(params=["http", "native http"])
def connect_by_http(request: pytest.FixtureRequest, children: Children) -> Open:
    """HTTP alone, on Hypercorn and natively."""
    return _opener(request.param, children)


@pytest.fixture
def connect_by_stdio(children: Children) -> Open:
    """A process of its own alone."""
    return _opener("stdio", children)


@pytest.fixture(params=["memory", "lines", "stdio", "http"])
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a script as the server of a client, over every transport in turn."""
    return PLAYS[request.param]


@pytest.fixture(params=["lines", "stdio", "http"])
def play_bytes(request: pytest.FixtureRequest) -> Play:
    """Those over which a server can say what is no message, and go away."""
    return PLAYS[request.param]


@pytest.fixture(params=["lines", "stdio"])
def play_lines(request: pytest.FixtureRequest) -> Play:
    """Those where everything comes on one channel."""
    return PLAYS[request.param]
