"""How long to wait before trying again: doubling, with full jitter, and no sooner than asked."""

import random

import attrs

__all__ = ["Backoff", "Delays"]


def _positive(_: object, attribute: "attrs.Attribute[float]", value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name} must be positive")


@attrs.frozen(kw_only=True)
class Backoff:
    """The rule by which delays between attempts grow.

    Attributes:
        initial: seconds; the first delay is a random part of it.
        maximum: seconds; the limit doubles with each failure in a row, up to this.
        min_uptime: seconds that an attempt has to have lasted for the next delay to be a first
            one again. What ends sooner counts as a failure, however politely it ended: else a
            server that takes every connection and closes it at once is called without pause.
    """

    initial: float = attrs.field(default=0.1, validator=_positive)
    maximum: float = attrs.field(default=30.0, validator=_positive)
    min_uptime: float = attrs.field(default=10.0, validator=_positive)

    def __attrs_post_init__(self) -> None:
        if self.maximum < self.initial:
            raise ValueError("maximum must be no less than initial")


class Delays:
    """The delays of one thing that is tried again and again.

    Args:
        backoff: the rule.
        chance: where the jitter comes from; tests give one with a seed.
    """

    def __init__(self, backoff: Backoff, *, chance: "random.Random | None" = None) -> None:
        self._backoff = backoff
        self._chance = random.Random() if chance is None else chance  # noqa: S311 - no secret
        self._failures = 0

    @property
    def failures(self) -> int:
        """How many attempts in a row have ended too soon."""
        return self._failures

    def next(self, *, uptime: float = 0.0, at_least: float = 0.0) -> float:
        """The seconds to wait now that an attempt has ended.

        Args:
            uptime: seconds for which it had been a success; 0 where it never was.
            at_least: seconds that the peer has asked for, as in ``Retry-After``. The delay is
                spread above it, so that not all who were told the same come at once.
        """
        if uptime >= self._backoff.min_uptime:
            self._failures = 0
        limit = min(self._backoff.initial * 2.0 ** min(self._failures, 60), self._backoff.maximum)
        self._failures += 1
        return max(at_least, 0.0) + limit * self._chance.random()

    def reset(self) -> None:
        """Take the next failure for the first one."""
        self._failures = 0
