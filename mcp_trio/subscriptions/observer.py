"""What a hub tells somebody who measures it."""

from typing import Protocol

from mcp_trio.subscriptions.events import Event
from mcp_trio.subscriptions.statistics import PublishReport

__all__ = ["HubObserver"]


class HubObserver(Protocol):
    """Is told of publications and of waiting, in the thread of the hub's `trio.run`.

    Its methods must neither block nor raise.
    """

    def published(self, event: Event, report: PublishReport, /) -> object:
        """An event was published; called once for it, however many listen."""

    def taken(self, age: float, /) -> object:
        """A listener took an event that has waited in its queue.

        An event that is written in the publisher's own turn has not.

        Args:
            age: for how long, in seconds. News that coalesced is as old as the first of it.
        """
