"""A watch: one logical stream of changes over any number of streams, losses and reconnects."""

from mcp_trio.client.watch.backlog import Change
from mcp_trio.client.watch.policy import WatchOptions
from mcp_trio.client.watch.sharing import SharedWatch
from mcp_trio.client.watch.snapshot import Fetched, Snapshot
from mcp_trio.client.watch.statistics import WatchStatistics
from mcp_trio.client.watch.watcher import Watcher

__all__ = [
    "Change",
    "Fetched",
    "SharedWatch",
    "Snapshot",
    "WatchOptions",
    "WatchStatistics",
    "Watcher",
]
