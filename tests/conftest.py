"""What holds for every test."""

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

# Tests talk to servers on this machine, not to the proxy that somebody's environment names.
for _name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[_name]

# An example that is slow on a busy machine is no failure: no test here measures time.
settings.register_profile("mcp_trio", settings(), deadline=None)
settings.load_profile("mcp_trio")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let what a test logged pass between pytest's processes: tests log lone surrogates."""
    report = yield
    report.sections = [
        (title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections
    ]
    return report
