"""What holds for every test."""

from collections.abc import Generator

import pytest
from hypothesis import settings

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
