"""What of a filter the caller may see."""

import logging
from typing import Any, Protocol

import trio

from mcp_trio import errors
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.source import SubscriptionContext

__all__ = ["Authorizer", "authorize_filter"]

logger = logging.getLogger("mcp_trio.subscriptions")


class Authorizer(Protocol):
    """Decides what of a filter the caller may see.

    Called once for each field that is asked for, and in lists once for each value: with
    ``("toolsListChanged", None)``, ``("resourceSubscriptions", uri)``, ``("taskIds", task_id)``.
    What is refused is left out of the acknowledgement without a word, like something never
    asked for. It may take its time; if it raises, the request fails.
    """

    async def __call__(
        self, field: str, value: str | None, context: SubscriptionContext, /
    ) -> bool:
        """Whether the caller may follow this."""


async def authorize_filter(
    authorizer: Authorizer, wanted: SubscriptionFilter, context: SubscriptionContext
) -> SubscriptionFilter:
    """The part of a filter that the caller may see.

    Raises:
        errors.InternalError: the authorizer failed; what it raised is in the log.

    Cancelling stops it between two questions or within one.
    """
    refused: set[tuple[str, str | None]] = set()
    await trio.lowlevel.checkpoint()
    for question in _questions(wanted):
        try:
            if not await authorizer(*question, context):
                refused.add(question)
        except Exception as problem:
            logger.exception("a subscription's authorizer failed; the request is refused")
            raise errors.InternalError("subscription authorizer failed") from problem

    def flag(field: str, asked: bool) -> bool:
        return asked and (field, None) not in refused

    def values(field: str, asked: tuple[str, ...]) -> list[str]:
        return [value for value in asked if (field, value) not in refused]

    return SubscriptionFilter(
        flag("toolsListChanged", wanted.tools_list_changed),
        flag("promptsListChanged", wanted.prompts_list_changed),
        flag("resourcesListChanged", wanted.resources_list_changed),
        values("resourceSubscriptions", wanted.resource_subscriptions),
        values("taskIds", wanted.task_ids),
        {k: v for k, v in wanted.extensions.items() if (k, None) not in refused},
    )


def _questions(wanted: SubscriptionFilter) -> list[tuple[str, str | None]]:
    wire: dict[str, Any] = wanted.to_wire()
    lists = {
        "resourceSubscriptions": wanted.resource_subscriptions,
        "taskIds": wanted.task_ids,
    }
    return [
        question
        for field in wire
        for question in (
            [(field, value) for value in lists[field]] if field in lists else [(field, None)]
        )
    ]
