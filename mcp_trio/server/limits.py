"""What bounds the subscriptions that one server holds open.

Source: specification, basic/patterns/subscriptions.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import attrs

from mcp_trio import errors

__all__ = ["Limits", "SubscriptionSlots"]


def _positive(_: object, attribute: "attrs.Attribute[int]", value: int) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{attribute.name} must be a positive integer, got {value!r}")


@attrs.frozen(kw_only=True)
class Limits:
    """How much one server takes on.

    Attributes:
        subscriptions_per_connection: open subscriptions on one connection that carries several
            requests. Over HTTP/1.1 a connection carries one, and this does not apply.
        subscriptions_per_server: open subscriptions in all.
        subscriptions_per_principal: open subscriptions of one authenticated caller.
        filter_uris: resource URIs, or task ids, that one subscription may name.
        watched_uris: URIs for which a watcher runs.
        threads: handlers that are not async and run at the same time.
        input_rounds: how often one request may come back with a question before it is refused.
        request_state: characters that the sealed state of such a request may have.
    """

    subscriptions_per_connection: int = attrs.field(default=100, validator=_positive)
    subscriptions_per_server: int = attrs.field(default=10_000, validator=_positive)
    subscriptions_per_principal: int = attrs.field(default=100, validator=_positive)
    filter_uris: int = attrs.field(default=1000, validator=_positive)
    watched_uris: int = attrs.field(default=10_000, validator=_positive)
    threads: int = attrs.field(default=40, validator=_positive)
    input_rounds: int = attrs.field(default=25, validator=_positive)
    request_state: int = attrs.field(default=256 * 1024, validator=_positive)


class SubscriptionSlots:
    """Counts open subscriptions. Checking and taking a slot is one step, without a wait between."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_connection: Counter[Hashable] = Counter()
        self._by_principal: Counter[Hashable] = Counter()
        self.taken = 0

    @contextmanager
    def slot(self, connection: Hashable, principal: str | None) -> Iterator[None]:
        """Hold a slot for the block; it is free again however the block ends.

        Args:
            connection: what `Limits.subscriptions_per_connection` counts by; None is not counted.
            principal: what `Limits.subscriptions_per_principal` counts by; None is not counted.

        Raises:
            errors.ServerBusy: there is none left.
        """
        limits = self._limits
        if self.taken >= limits.subscriptions_per_server:
            raise errors.ServerBusy("too many subscriptions on this server")
        if self._by_connection[connection] >= limits.subscriptions_per_connection:
            raise errors.ServerBusy("too many subscriptions on this connection")
        if principal is not None and (
            self._by_principal[principal] >= limits.subscriptions_per_principal
        ):
            raise errors.ServerBusy("too many subscriptions of this caller")
        self.taken += 1
        if connection is not None:
            self._by_connection[connection] += 1
        if principal is not None:
            self._by_principal[principal] += 1
        try:
            yield
        finally:
            self.taken -= 1
            _give_back(self._by_connection, connection)
            _give_back(self._by_principal, principal)


def _give_back(counts: Counter[Hashable], key: Hashable) -> None:
    if key is None:
        return
    if counts[key] > 1:
        counts[key] -= 1
    else:
        # A counter keeps zeros, and connections come and go for ever.
        del counts[key]
