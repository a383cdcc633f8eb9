"""Several consumers in one program that share the streams of a watch."""

from contextlib import AbstractAsyncContextManager

from mcp_trio.client.watch.supervisor import Supervisor
from mcp_trio.client.watch.watcher import Watcher, check_filter
from mcp_trio.subscriptions.filter import SubscriptionFilter

__all__ = ["SharedWatch"]


class SharedWatch:
    """Watches for any number of consumers over one stream; `Client.open_shared_watch` makes one.

    The stream carries what any of them asks for, and each receives what it has asked for itself,
    at its own pace, with a `Resync` after each gap that concerns it. When one comes that wants
    more, a stream with the wider filter is opened and acknowledged before the old one is left.
    When one leaves, what it alone had asked for is carried on for five seconds, and ignored.
    With the last one the stream ends; with the next it is opened again.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def watch(
        self, wanted: SubscriptionFilter, *, snapshot: bool = False
    ) -> AbstractAsyncContextManager[Watcher]:
        """Follow changes: ``async with shared.watch(wanted) as changes``.

        As `Client.watch`, but for the options, which all consumers have in common. A failure
        that ends the stream ends the watches of all.

        Args:
            wanted: what to follow.
            snapshot: as for `Client.watch`.

        Raises:
            TypeError: `wanted` is not a `SubscriptionFilter`.
            ValueError: it asks for nothing; or, on entering, for what cannot be asked for on one
                stream together with what others ask for.
            errors.McpError: on entering, as for `Client.watch`.
        """
        check_filter(wanted)
        return self._supervisor.join(wanted, snapshot=snapshot)
