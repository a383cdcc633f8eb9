"""The delays between attempts."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio._backoff import Backoff, Delays


class _Highest(random.Random):
    """Always as good as 1."""

    def random(self) -> float:
        return 1.0


def test_the_limit_doubles_up_to_the_maximum() -> None:
    """C-45: 100 ms doubling to 30 s."""
    delays = Delays(Backoff(), chance=_Highest())

    limits = [delays.next() for _ in range(11)]

    assert limits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert limits[8:] == [25.6, 30.0, 30.0]
    assert delays.failures == 11


def test_a_long_life_makes_the_next_delay_a_first_one_again() -> None:
    """P-04: minimum uptime before the backoff resets."""
    delays = Delays(Backoff(min_uptime=10), chance=_Highest())
    for _ in range(5):
        delays.next(uptime=9.99)

    assert delays.next(uptime=9.99) == pytest.approx(3.2)
    assert delays.next(uptime=10) == pytest.approx(0.1)
    assert delays.next() == pytest.approx(0.2)


def test_reset_forgets_the_failures() -> None:
    """C-45."""
    delays = Delays(Backoff(), chance=_Highest())
    delays.next()
    delays.reset()

    assert delays.next() == pytest.approx(0.1)


@given(st.integers(0, 5000), st.floats(0, 1e6), st.integers())
def test_never_sooner_than_asked_and_never_beyond_the_maximum_above_that(
    failures: int, at_least: float, seed: int
) -> None:
    """P-03: `Retry-After` is honoured, and jitter spreads who was told the same."""
    delays = Delays(Backoff(), chance=random.Random(seed))  # noqa: S311
    delays._failures = failures

    assert at_least <= delays.next(at_least=at_least) <= at_least + 30.0


@pytest.mark.parametrize(
    "wrong", [{"initial": 0}, {"maximum": -1}, {"min_uptime": 0}, {"initial": 2, "maximum": 1}]
)
def test_a_rule_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    """C-09."""
    with pytest.raises(ValueError, match="must be"):
        Backoff(**wrong)
