"""What is shown, whoever looks; and how it looks to programs.

`Display` has one method for each thing there is to show, and returns the bytes. `JsonDisplay` is
for programs, `human.HumanDisplay` for people.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from mcp_trio import codec, errors, types
from mcp_trio.subscriptions.events import (
    Event,
    EventsDropped,
    ExtensionEvent,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter

__all__ = ["Display", "End", "JsonDisplay", "Listing", "kind_of", "resync_reason"]

Listing = Mapping[str, Sequence[Any]]
"""Lists of a server under their wire names: `tools`, `prompts`, `resources`, `resourceTemplates`.
"""


@attrs.frozen
class End:
    """How a command ended that did not simply succeed.

    Attributes:
        how: ``graceful``: the server said so; ``local``: we did; ``lost``: the connection went
            away; ``error``: anything else that went wrong.
        reason: why, as far as it is known.
        error: what was raised, of ``lost`` and ``error``.
    """

    how: Literal["graceful", "lost", "error", "local"]
    reason: str | None = None
    error: BaseException | None = None

    @property
    def failed(self) -> bool:
        """Whether the exit status says so."""
        return self.how in {"lost", "error"}


class Display(abc.ABC):
    """Makes of everything what is written to standard output.

    Attributes:
        rereads: whether `listen` and `watch` read again what has changed, unless told.
        end_on_stderr: whether an end is written to standard error that is not what the command
            is meant to show.
    """

    rereads: bool
    end_on_stderr: bool

    @abc.abstractmethod
    def discovered(self, result: types.DiscoverResult) -> bytes:
        """What the server is."""

    @abc.abstractmethod
    def listed(self, lists: Listing) -> bytes:
        """What it has."""

    @abc.abstractmethod
    def called(self, result: types.CallToolResult) -> bytes:
        """What a tool returned."""

    @abc.abstractmethod
    def read(self, result: types.ReadResourceResult) -> bytes:
        """What a resource contains."""

    @abc.abstractmethod
    def prompted(self, result: types.GetPromptResult) -> bytes:
        """What a prompt reads."""

    @abc.abstractmethod
    def acknowledged(self, granted: SubscriptionFilter, declined: SubscriptionFilter) -> bytes:
        """What a subscription covers."""

    @abc.abstractmethod
    def changed(self, event: Event) -> bytes:
        """An event of a subscription."""

    @abc.abstractmethod
    def reread(self, result: types.ReadResourceResult) -> bytes:
        """What a resource contains that has changed."""

    @abc.abstractmethod
    def relisted(self, before: Listing | None, after: Listing) -> bytes:
        """What a list contains that has changed; before may not be known."""

    @abc.abstractmethod
    def rereading(self, event: Event) -> bytes:
        """What is read again after a gap, though nobody has said that it has changed."""

    @abc.abstractmethod
    def not_reread(self, problem: Exception) -> bytes:
        """What has changed cannot be read."""

    @abc.abstractmethod
    def ended(self, end: End) -> bytes:
        """How it ended."""


_KINDS: Final = {
    ToolsListChanged: "tools",
    PromptsListChanged: "prompts",
    ResourcesListChanged: "resources",
    ResourceUpdated: "updated",
}


def kind_of(event: Event) -> str | None:
    """The kind of change an event is; None if it is about the stream itself."""
    if isinstance(event, ExtensionEvent):
        return "tasks" if event.method.startswith("notifications/tasks") else "extension"
    return _KINDS.get(type(event))


def resync_reason(event: Event) -> str:
    """Why changes may have been missed."""
    if isinstance(event, Resync):
        return event.reason
    if isinstance(event, EventsDropped):
        return f"{event.count} event{'s'[: event.count != 1]} dropped"
    raise AssertionError("unreachable: it is a change")


class JsonDisplay(Display):
    """One JSON object a line."""

    rereads = False
    end_on_stderr = False

    def discovered(self, result: types.DiscoverResult) -> bytes:
        """A result."""
        return _result(codec.unstructure(result))

    def listed(self, lists: Listing) -> bytes:
        """One result with all lists."""
        return _result({name: codec.unstructure(list(items)) for name, items in lists.items()})

    def called(self, result: types.CallToolResult) -> bytes:
        """A result."""
        return _result(codec.unstructure(result))

    def read(self, result: types.ReadResourceResult) -> bytes:
        """A result."""
        return _result(codec.unstructure(result))

    def prompted(self, result: types.GetPromptResult) -> bytes:
        """A result."""
        return _result(codec.unstructure(result))

    def acknowledged(self, granted: SubscriptionFilter, declined: SubscriptionFilter) -> bytes:
        """The two filters as they are on the wire."""
        return _line("ack", acknowledged=granted.to_wire(), declined=declined.to_wire())

    def changed(self, event: Event) -> bytes:
        """A change with its kind, and what an extension says of it; or a resync."""
        kind = kind_of(event)
        if kind is None:
            narrowed = {}
            if isinstance(event, Resync) and event.narrowed:
                narrowed = {"narrowed": list(event.narrowed)}
            return _line("resync", reason=resync_reason(event), **narrowed)
        if isinstance(event, ExtensionEvent):
            more = {"method": event.method, "params": dict(event.params)}
            return _line("change", kind=kind, uri=None, **more)
        return _line(
            "change", kind=kind, uri=event.uri if isinstance(event, ResourceUpdated) else None
        )

    def reread(self, result: types.ReadResourceResult) -> bytes:
        """A result."""
        return self.read(result)

    def relisted(self, before: Listing | None, after: Listing) -> bytes:
        """A result: the list as it is now."""
        return self.listed(after)

    def rereading(self, event: Event) -> bytes:
        """Nothing: the result that follows says what it is."""
        return b""

    def not_reread(self, problem: Exception) -> bytes:
        """A result that says what went wrong in its place."""
        return _line("result", value=None, error=_error(problem))

    def ended(self, end: End) -> bytes:
        """How, why, and the error with what is known of it."""
        error = None if end.error is None else _error(end.error)
        return _line("end", how=end.how, reason=end.reason, error=error)


def _result(value: Any) -> bytes:
    return _line("result", value=value)


def _line(event: str, **members: Any) -> bytes:
    return codec.encode_json({"event": event, **members}) + b"\n"


def _error(problem: BaseException) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": type(problem).__name__, "message": str(problem)}
    if isinstance(problem, errors.ErrorResponse):
        shown |= {"code": problem.code, "message": problem.message}
        if problem.data is not None:
            shown["data"] = problem.data
    elif isinstance(problem, errors.HttpStatusError):
        shown["status"] = problem.status
    return shown
