"""A server for all tests of a file: most of them only ask."""

from collections.abc import Iterator

import pytest
from cli_kit import http_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where an everything server is."""
    with http_server() as server:
        yield server.url
