"""The two ways to serve HTTP, for the tests that both have to pass."""

import http_kit
import pytest


@pytest.fixture(params=["hypercorn", "native"])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `running` runs in a test that uses this, in turn."""
    chosen: str = request.param
    monkeypatch.setattr(http_kit, "host", chosen)
    return chosen
