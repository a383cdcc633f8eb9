"""Scripted servers for a client: over lines, and over HTTP."""

import pytest
from script_kit import PLAYS, Play


@pytest.fixture(params=["lines", "http"])
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a script as the server of a client, over each transport in turn."""
    return PLAYS[request.param]
