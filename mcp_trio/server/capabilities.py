"""What a server says it can do. The same kinds decide what a subscription is granted.

Source: specification, server/discover; basic/patterns/subscriptions, "Acknowledgment".
"""

from typing import Any

from mcp_trio.subscriptions.events import Kind
from mcp_trio.subscriptions.source import SubscriptionSource

__all__ = ["capabilities", "emitted_kinds"]


def emitted_kinds(source: SubscriptionSource | None) -> frozenset[Kind]:
    """The kinds of event that subscriptions can carry: none without a source."""
    return frozenset() if source is None else frozenset(source.kinds)


def capabilities(
    kinds: frozenset[Kind],
    *,
    tools: bool,
    prompts: bool,
    resources: bool,
    completions: bool = False,
) -> dict[str, Any]:
    """The capabilities object.

    A feature is there if it has or had something to offer, or if it would be announced when it
    gets something to offer. The methods of one that is not there are not found.

    Args:
        kinds: from `emitted_kinds`.
        tools: whether there are tools, or were; likewise the others.
        prompts: of prompts.
        resources: of resources and resource templates.
        completions: whether there is something that can be completed.
    """
    # Any handler may log, and no client is logged to that did not ask for it.
    found: dict[str, Any] = {"logging": {}} if tools or prompts or resources else {}
    if completions:
        found["completions"] = {}
    if tools or "tools" in kinds:
        found["tools"] = {"listChanged": True} if "tools" in kinds else {}
    if prompts or "prompts" in kinds:
        found["prompts"] = {"listChanged": True} if "prompts" in kinds else {}
    if resources or not kinds.isdisjoint({"resources", "updated"}):
        found["resources"] = {
            name: True
            for name, kind in (("listChanged", "resources"), ("subscribe", "updated"))
            if kind in kinds
        }
    return found
