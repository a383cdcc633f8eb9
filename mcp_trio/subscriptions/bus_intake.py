"""What a bridge does with what comes from the bus: reads it, and tells the listeners."""

import logging
from collections import OrderedDict
from typing import Final

from mcp_trio.subscriptions import bus_messages
from mcp_trio.subscriptions.bus import GAP
from mcp_trio.subscriptions.events import Resync
from mcp_trio.subscriptions.hub import Hub

__all__ = ["Intake"]

logger = logging.getLogger("mcp_trio.subscriptions")

_SENDERS: Final = 4096
"""How many other bridges' messages are counted at the same time."""


class Intake:
    """Reads messages, and publishes what they say on a hub, for its own listeners only.

    Args:
        hub: the hub.
        sender: the name of the bridge, whose own messages come back and are ignored.
        longest: bytes of the longest message.
    """

    __slots__ = ("_hub", "_longest", "_numbers", "_sender", "gaps", "ignored", "received")

    def __init__(self, hub: Hub, sender: str, longest: int) -> None:
        self._hub = hub
        self._sender = sender
        self._longest = longest
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self.gaps = 0
        """How often the listeners were told that anything may have changed."""
        self.ignored = 0
        """Messages that could not be read, and events that could not be published."""
        self.received = 0
        """Messages of other bridges."""

    def start_over(self) -> None:
        """Expect any number from anybody: there is a new connection."""
        self._numbers.clear()

    def gap(self, reason: str) -> None:
        """Tell every listener that anything may have changed."""
        self.gaps += 1
        self._hub.publish_here(Resync(reason))

    def take_in(self, data: object) -> None:
        """Do what a message says.

        What is no message of a bridge is ignored. What is one, but cannot be read, is a gap.

        Raises:
            TypeError: the bus has returned neither bytes nor `GAP`.
        """
        if data is GAP:
            self.gap("the bus reports a gap")
        elif not isinstance(data, bytes):
            raise TypeError(f"a bus carries bytes, not {type(data).__name__}")
        elif len(data) > self._longest:
            self._ignore("a message is too long")
            self.gap("a message is too long")
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        try:
            message = bus_messages.decode_message(data)
        except bus_messages.UnknownVersion as error:
            # Old and new processes side by side: what the new ones say is news here as well.
            self._ignore(error)
            self.gap(str(error))
        except bus_messages.GarbledMessage as error:
            self._ignore(error)
        else:
            if message.sender != self._sender:
                self._deliver(message)

    def _deliver(self, message: bus_messages.BusMessage) -> None:
        self.received += 1
        if message.unknown:
            self._ignore("events of a kind that this version does not know")
        behind = self._is_behind(message)
        if message.anything or behind:
            self.gap("a message is missing" if behind else "another process says so")
        for item in message.events:
            try:
                self._hub.publish_here(item.event, include_sub_resources=item.include_sub_resources)
            except (TypeError, ValueError) as error:
                self._ignore(error)

    def _is_behind(self, message: bus_messages.BusMessage) -> bool:
        """Whether one of that sender's messages is missing; takes note of its number."""
        last = self._numbers.get(message.sender)
        self._numbers[message.sender] = max(message.number, last or 0)
        self._numbers.move_to_end(message.sender)
        if len(self._numbers) > _SENDERS:
            self._numbers.popitem(last=False)
        return last is not None and message.number > last + 1

    def _ignore(self, why: object) -> None:
        self.ignored += 1
        # What is wrong with one message may be wrong with all of them.
        if self.ignored & (self.ignored - 1) == 0:
            logger.warning("bus: ignored, %d so far: %s", self.ignored, why)
