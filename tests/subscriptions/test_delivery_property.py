"""The delivery promise, over any interleaving that hypothesis can think of.

It is one promise for both ways to a client: by the task of its subscription, and straight from
the publisher while there is room; which of them is open changes under way, for some listeners
from one event to the next.

After a listener has caught up, for each key of its accepted filter it has been sent at least one
event at or after the last publication of that key. And no more than that: nothing it did not ask
for, nothing twice for one publication, everything in first-queued order.
"""

import contextlib
import json
from typing import Any, get_args

import attrs
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_trio import errors
from mcp_trio.subscriptions.events import (
    Event,
    ExtensionEvent,
    PromptsListChanged,
    ResourceUpdated,
    Resync,
    ToolsListChanged,
)
from mcp_trio.subscriptions.filter import SubscriptionFilter
from mcp_trio.subscriptions.hub import Hub
from mcp_trio.subscriptions.mailbox import Overflow
from mcp_trio.subscriptions.source import SubscriptionContext
from mcp_trio.subscriptions.statistics import PublishReport
from mcp_trio.subscriptions.stream import OpenSubscription, run_subscription
from mcp_trio.subscriptions.uris import ancestors

MAX_SUBS, MAX_DATA = 2, 2
URIS = ("d://d", "d://d/a", "d://e")
EVENTS: list[Event] = [
    ToolsListChanged(),
    PromptsListChanged(),
    *map(ResourceUpdated, (*URIS, "d://d/b", "d://d/a/x", "d://d/a/y", "d://e/z", "d://f")),
]
FILTERS = st.builds(
    SubscriptionFilter,
    tools_list_changed=st.booleans(),
    prompts_list_changed=st.booleans(),
    resource_subscriptions=st.sets(st.sampled_from(URIS)).map(sorted),
    extensions=st.sampled_from([{}, {"x": 1}]),
)
LISTENER = st.integers(0, 5)
OFTEN = (
    st.tuples(st.just("publish"), st.sampled_from(EVENTS)),
    st.tuples(st.just("publish"), st.sampled_from(EVENTS)),
    st.tuples(st.just("data"), st.none()),
    st.tuples(st.just("write"), LISTENER),
    st.tuples(st.just("step"), st.integers(1, 3)),
    st.tuples(st.just("settle"), st.none()),
)
SELDOM = st.one_of(
    st.tuples(st.just("open"), st.tuples(FILTERS, st.booleans())),
    st.tuples(st.just("run"), LISTENER),
    st.tuples(st.just("resync"), st.none()),
    st.tuples(st.sampled_from(["cancel", "break", "end", "room", "full"]), LISTENER),
    st.tuples(st.just("luck"), st.tuples(LISTENER, st.lists(st.booleans(), max_size=12))),
    st.tuples(st.just("close"), st.none()),
)
OPS = st.one_of(*OFTEN, *OFTEN, SELDOM)


@attrs.define(eq=False)
class Listener:
    """A client that reads when it is told to, and what it is owed: a list, from the front."""

    wanted: SubscriptionFilter
    sub_resources: bool
    room: bool
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    reading: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    luck: list[bool] = attrs.field(factory=list)
    free: bool = False
    broken: bool = False
    owed: list[tuple[str, str | None]] = attrs.field(factory=list)
    collapsed: set[str] = attrs.field(factory=set)
    merged: int = 0
    registered: bool = False
    acknowledged: bool = False
    ending: bool = False
    overflowed: bool = False
    gone: bool = False
    result: dict[str, Any] | None = None
    published_data: int = 0
    seen_data: list[int] = attrs.field(factory=list)
    told_dropped: int = 0
    frames: int = 0
    frames_at_once: int = 0
    writing: bool = False
    control: list[OpenSubscription] = attrs.field(factory=list)

    def send_nowait(self, frame: bytes, now: float | None = None) -> bool:
        """The publisher's own way; there is room, or there is not."""
        assert self.acknowledged
        assert not self.gone
        assert not self.writing
        room = self.luck.pop() if self.luck else self.room
        if self.broken or not room:
            return False
        self.frames += 1
        self.frames_at_once += 1
        self.told(json.loads(frame))
        return True

    async def send(self, frame: bytes) -> None:
        """The exchange: what is pulled is what it was when it was pulled, however slow this is."""
        message = json.loads(frame)
        assert not self.gone
        self.frames += 1
        if self.frames == 1:
            assert message["method"] == "notifications/subscriptions/acknowledged"
        else:
            assert self.acknowledged
            self.told(message)
        self.writing = True
        try:
            if not self.free:
                await self.reading.park()
            await trio.lowlevel.checkpoint()
        finally:
            self.writing = False
        if self.broken:
            self.gone = True
            raise trio.BrokenResourceError
        self.acknowledged = True

    def told(self, message: dict[str, Any]) -> None:
        self.told_dropped += message["params"]["_meta"].get("org.mcp-trio/dropped", 0)
        if message["method"] == "notifications/data":
            self.seen_data.append(message["params"]["n"])
            return
        key = message["params"].get("uri", message["method"])
        assert self.owed, f"{key} has not been published since"
        assert self.owed.pop(0)[0] == key
        self.collapsed.discard(key)

    def owes(self, event: Event) -> None:
        """The model of a publication."""
        if not self.registered or self.ending or self.gone:
            return
        if isinstance(event, Resync):
            for cue in self.wanted.cues():
                self.owes(cue)
        elif self.wanted.matches(event):
            key = event.uri if isinstance(event, ResourceUpdated) else event.method  # type: ignore[union-attr]
            if key not in [owed for owed, _ in self.owed]:
                self.owed.append((key, None))
        elif isinstance(event, ResourceUpdated) and self.sub_resources:
            for base in ancestors(event.uri):
                if base in self.wanted.resource_subscriptions:
                    self.owes_below(event.uri, base)
                    break

    def owes_below(self, uri: str, base: str) -> None:
        """Sub-resources have a bound; beyond it they are owed as what was subscribed to."""
        if base in self.collapsed or (uri, base) in self.owed:
            return
        if sum(below is not None for _, below in self.owed) < MAX_SUBS:
            self.owed.append((uri, base))
            return
        self.collapsed.add(base)
        places = [at for at, (key, below) in enumerate(self.owed) if base in (key, below)]
        if places:
            self.merged += len(places) - 1
            self.owed[places[0]] = (base, None)
            self.owed = [it for at, it in enumerate(self.owed) if at not in places[1:]]
        else:
            self.owed.append((base, None))


async def interleave(
    ops: list[tuple[str, Any]], sub_resources: bool, overflow: Overflow
) -> list[Listener]:
    hub = Hub(
        sub_resources=sub_resources,
        max_sub_resources=MAX_SUBS,
        max_data_events=MAX_DATA,
        overflow=overflow,
    )
    listeners: list[Listener] = []
    data = 0

    async def serve(listener: Listener) -> None:
        refused = contextlib.suppress(trio.BrokenResourceError, errors.ServerBusy)
        with listener.scope, refused:
            listener.result = await run_subscription(
                request_id=1,
                wanted=listener.wanted,
                source=hub,
                context=SubscriptionContext(1),
                exchange=listener,
                extension_fields={"x"},
                on_open=listener.control.append,
            )
        listener.gone = True

    def live(number: int) -> Listener | None:
        return listeners[number] if number < len(listeners) else None

    def end(listener: Listener) -> None:
        listener.ending = True

    def note(event: Event) -> None:
        merged = sum(listener.merged for listener in listeners)
        for listener in listeners:
            listener.owes(event)
        publish(event, sum(listener.merged for listener in listeners) - merged)

    def publish(event: Event, merged: int = 0) -> PublishReport:
        """Publish, and check the report: who is counted as reached was written to or woken.

        So many updates that waited have become one with another, and wait no more.
        """
        at_once = sum(listener.frames_at_once for listener in listeners)
        before = hub.statistics(per_listener=True)
        report = hub.publish(event)
        after = hub.statistics(per_listener=True)
        at_once = sum(listener.frames_at_once for listener in listeners) - at_once
        woken = sum(
            was.waiting and not now.waiting
            for was, now in zip(before.listeners, after.listeners, strict=True)
        )
        assert report.delivered == at_once + woken
        kept = report.delivered + report.buffered + report.coalesced + report.closed
        newest = report.dropped if overflow == "drop_newest" else 0
        assert report.matched == kept + newest
        dropped = report.dropped - newest
        assert after.queued == before.queued + woken + report.buffered - dropped - merged
        return report

    async with trio.open_nursery() as nursery:
        for op, value in ops:
            # Nobody is registered before its task had its first turns.
            for listener in listeners:
                handle = listener.control[0]._handle if listener.control else None
                if handle is not None:
                    listener.registered = True
            match op:
                case "publish":
                    note(value)
                case "resync":
                    note(Resync())
                case "data":
                    data += 1
                    for listener in listeners:
                        if (
                            listener.registered
                            and not (listener.ending or listener.gone or listener.overflowed)
                            and listener.wanted.extensions
                        ):
                            listener.published_data += 1
                    report = publish(ExtensionEvent("notifications/data", {"n": data}, {"x": 1}))
                    if report.closed:
                        for listener in listeners:
                            control = listener.control[0] if listener.control else None
                            source = control._handle if control else None
                            if source and source.end and not listener.ending:
                                listener.ending = listener.overflowed = True
                case "open":
                    if len(listeners) < 6:
                        listener = Listener(value[0], sub_resources, value[1])
                        listeners.append(listener)
                        nursery.start_soon(serve, listener)
                case "close":
                    hub.close("shutdown")
                    for listener in listeners:
                        if listener.registered:
                            end(listener)
                case "step":
                    for _ in range(value):
                        await trio.lowlevel.checkpoint()
                case "settle":
                    await trio.testing.wait_all_tasks_blocked()
                case "luck":
                    listener_ = live(value[0])
                    if listener_ is not None:
                        listener_.luck = list(value[1])
                case _:
                    listener_ = live(value)
                    if listener_ is None:
                        continue
                    match op:
                        case "write":
                            listener_.reading.unpark()
                        case "run":
                            listener_.free = True
                            listener_.reading.unpark_all()
                        case "cancel":
                            listener_.scope.cancel()
                            listener_.ending = True
                        case "room" | "full":
                            listener_.room = op == "room"
                        case "break":
                            listener_.broken = True
                        case "end":
                            for control in listener_.control:
                                control.end("revoked")
                                listener_.ending = True
        # Now everybody reads, and catches up.
        for listener in listeners:
            listener.free = True
        for _ in range(3):
            for listener in listeners:
                listener.reading.unpark_all()
            await trio.testing.wait_all_tasks_blocked()
        open_ = [listener for listener in listeners if not listener.gone]
        statistics = hub.statistics(per_listener=True)
        assert statistics.subscriptions == len(open_)
        assert statistics.queued == 0
        assert all(one.waiting for one in statistics.listeners)
        hub.close("complete")
        await trio.testing.wait_all_tasks_blocked()
        assert hub.statistics().subscriptions == 0
    return listeners


@settings(max_examples=300, deadline=None)
@given(
    ops=st.lists(OPS, max_size=60).map(
        lambda ops: (
            [
                ("open", (SubscriptionFilter(True, True, False, URIS, (), {"x": 1}), at_once))
                for at_once in (False, True)
            ]
            + ops
        )
    ),
    sub_resources=st.booleans(),
    overflow=st.sampled_from(get_args(Overflow)),
)
def test_the_delivery_promise(
    ops: list[tuple[str, Any]], sub_resources: bool, overflow: Overflow
) -> None:
    """S-06, S-61, S-65, S-66, W02, W20; catalogue 56."""
    for listener in trio.run(interleave, ops, sub_resources, overflow):
        if listener.result is None:
            # Cancelled, broken, or ended before it was acknowledged: nothing is promised.
            assert listener.ending or listener.broken
            continue
        assert listener.acknowledged
        reason = listener.result["_meta"]["org.mcp-trio/end"]["reason"]
        if not listener.wanted:
            assert reason == "nothing-granted"
            continue
        assert listener.owed == []
        assert sorted(listener.seen_data) == listener.seen_data
        if listener.overflowed:
            assert reason == "overflow"
        else:
            # What carries data is seen, or its loss is.
            assert len(listener.seen_data) + listener.told_dropped == listener.published_data
