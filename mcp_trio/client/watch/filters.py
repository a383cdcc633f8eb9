"""Filters taken together, and taken apart."""

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

import attrs

from mcp_trio.subscriptions.events import topic_of
from mcp_trio.subscriptions.filter import SubscriptionFilter

__all__ = ["halve", "names_of", "shard", "union"]


def union(filters: Iterable[SubscriptionFilter]) -> SubscriptionFilter:
    """What any of the filters asks for, in the order in which it is first asked for.

    Raises:
        ValueError: two ask for different values of an extension's field that is no list.
    """
    several = list(filters)
    extensions: dict[str, Any] = {}
    for each in several:
        _merge(extensions, each.extensions)
    return SubscriptionFilter(
        any(each.tools_list_changed for each in several),
        any(each.prompts_list_changed for each in several),
        any(each.resources_list_changed for each in several),
        [uri for each in several for uri in each.resource_subscriptions],
        [task for each in several for task in each.task_ids],
        extensions,
    )


def _merge(merged: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        known = merged.setdefault(name, value)
        if known is value:
            continue
        if isinstance(known, list | tuple) and isinstance(value, list | tuple):
            topics = {topic_of(name, item) for item in known}
            merged[name] = [*known, *(v for v in value if topic_of(name, v) not in topics)]
        elif topic_of(name, known) != topic_of(name, value):
            raise ValueError(f"{name} cannot be {known!r} and {value!r} on one stream")


def names_of(wanted: SubscriptionFilter) -> tuple[str, ...]:
    """What a filter asks for, in words: wire names, URIs, task ids."""
    wire = wanted.to_wire()
    uris, tasks = wire.pop("resourceSubscriptions", ()), wire.pop("taskIds", ())
    return (*wire, *uris, *tasks)


def shard(wanted: SubscriptionFilter, limit: int) -> list[SubscriptionFilter]:
    """A filter in parts of no more than so many URIs, and as many task ids.

    The first has all the rest. Asking for more at the end leaves all parts but the last as they
    were.
    """
    pieces = list(
        zip_longest(
            _pieces(wanted.resource_subscriptions, limit),
            _pieces(wanted.task_ids, limit),
            fillvalue=(),
        )
    )
    if len(pieces) <= 1:
        return [wanted]
    (uris, tasks), *others = pieces
    return [
        attrs.evolve(wanted, resource_subscriptions=uris, task_ids=tasks),
        *(SubscriptionFilter(resource_subscriptions=u, task_ids=t) for u, t in others),
    ]


def halve(wanted: SubscriptionFilter) -> list[SubscriptionFilter]:
    """A filter in two parts; in one if it cannot be divided."""
    longest = max(len(wanted.resource_subscriptions), len(wanted.task_ids))
    return shard(wanted, max(1, (longest + 1) // 2))


def _pieces(items: tuple[str, ...], limit: int) -> list[tuple[str, ...]]:
    return [items[start : start + limit] for start in range(0, len(items), limit)]
