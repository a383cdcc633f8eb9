"""What of the tools, resources and prompts a caller may use; the rest is not there for them.

Source: specification, basic/authorization; server/tools, "Security Considerations".
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import trio

from mcp_trio import errors
from mcp_trio.subscriptions.authorize import Authorizer
from mcp_trio.subscriptions.source import SubscriptionContext
from mcp_trio.transports.abc import Principal

if TYPE_CHECKING:
    from mcp_trio.server.core import Call

__all__ = ["Access", "Guard", "Offered"]

logger = logging.getLogger("mcp_trio.server")

Offered = Literal["tool", "prompt", "resource", "resource_template"]
"""What can be allowed: by its name, its URI, or the template as it was registered."""

_LISTS: Final[dict[str, tuple[Offered, str]]] = {
    "tools": ("tool", "name"),
    "prompts": ("prompt", "name"),
    "resources": ("resource", "uri"),
    "resourceTemplates": ("resource_template", "uriTemplate"),
}


class Access(Protocol):
    """Decides what a caller may use.

    Asked when something is called, read, completed or subscribed to, and for each item of a list
    each time it is listed. What is refused looks to this caller as if it were not there. It is
    asked about names that clients make up, too. If it raises, the request fails.
    """

    async def __call__(self, kind: Offered, name: str, principal: Principal | None, /) -> bool:
        """Whether the caller may use it.

        Args:
            kind: ``"tool"``, ``"prompt"``, ``"resource"`` or ``"resource_template"``. The last
                is about its entry in the list, and completion; the URIs that it stands for are
                resources, and are asked for one by one.
            name: a name, a URI, or a template.
            principal: who asks, where the transport can tell.
        """


class Guard:
    """Asks for the features of a server."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def check(self, call: "Call") -> None:
        """Let a request for what the caller may use pass.

        Raises:
            errors.ErrorResponse: it is for something else; the error is that for what there is
                not. Or the request is malformed.
            errors.InternalError: whatever decides has failed; what it raised is in the log.

        Cancelling stops the asking.
        """
        question = _question(call.method, call.params)
        if question is None:
            await trio.lowlevel.checkpoint()
            return
        kind, name, refusal = question
        if not await self._allows(kind, name, call.exchange.principal):
            raise refusal(name)

    async def select(
        self, key: str, entries: Iterable[dict[str, Any]], call: "Call"
    ) -> list[dict[str, Any]]:
        """Those entries of a list that the caller may see.

        Args:
            key: under which the result has them.
            entries: as the wire has them.
            call: the request.

        Raises:
            errors.InternalError: as `check`.
        """
        kind, name = _LISTS[key]
        principal = call.exchange.principal
        await trio.lowlevel.checkpoint()
        return [entry for entry in entries if await self._allows(kind, entry[name], principal)]

    def subscriptions_of(
        self, principal: Principal | None, authorizer: Authorizer | None
    ) -> Authorizer:
        """What decides about a subscription: who may not read a URI may not follow it either."""

        async def authorize(field: str, value: str | None, context: SubscriptionContext) -> bool:
            if field == "resourceSubscriptions" and value is not None:
                if not await self._allows("resource", value, principal):
                    return False
            else:
                await trio.lowlevel.checkpoint()
            return authorizer is None or await authorizer(field, value, context)

        return authorize

    async def _allows(self, kind: Offered, name: str, principal: Principal | None) -> bool:
        try:
            return bool(await self._access(kind, name, principal))
        except errors.ErrorResponse:
            raise
        except Exception:
            logger.exception("access to a %s could not be decided; the request is refused", kind)
            raise errors.InternalError("access could not be decided") from None


_Question = tuple[Offered, str, Callable[[str], errors.ErrorResponse]]


def _question(method: str, params: dict[str, Any]) -> _Question | None:
    """What a request is for, and the error if there is none; None if that is nothing to ask for."""
    match method, params:
        case "tools/call", {"name": str(name)}:
            return ("tool", name, _unknown_tool) if _has_arguments(params) else None
        case "prompts/get", {"name": str(name)}:
            return ("prompt", name, _unknown_prompt) if _has_arguments(params) else None
        case "resources/read", {"uri": str(uri)}:
            return "resource", uri, _unknown_resource
        case "completion/complete", {"ref": {"type": "ref/prompt", "name": str(name)}}:
            return "prompt", name, _unknown_prompt
        case "completion/complete", {"ref": {"type": "ref/resource", "uri": str(uri)}}:
            return "resource_template", uri, _unknown_template
    # Nothing to ask for; or malformed, and whoever serves it says how, whatever it is about.
    return None


def _has_arguments(params: dict[str, Any]) -> bool:
    return type(params.get("arguments", {})) is dict


def _unknown_tool(name: str) -> errors.ErrorResponse:
    return errors.InvalidParams(f"Unknown tool: {name[:200]}")


def _unknown_prompt(name: str) -> errors.ErrorResponse:
    return errors.InvalidParams(f"Unknown prompt: {name[:200]}")


def _unknown_resource(uri: str) -> errors.ErrorResponse:
    return errors.InvalidParams("Resource not found", data={"uri": uri})


def _unknown_template(uri: str) -> errors.ErrorResponse:
    return errors.InvalidParams(f"Unknown resource template: {uri[:200]}")
