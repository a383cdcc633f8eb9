"""A cache and one client's use of it, without any transport."""

import itertools
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_trio import errors
from mcp_trio.client.cache import Flight, ResponseCache, related
from mcp_trio.client.caching import ClientCache
from mcp_trio.client.observers import Observers
from mcp_trio.protocol import jsonrpc, methods
from mcp_trio.subscriptions.filter import SubscriptionFilter

VERSION = "2026-07-28"


def use(cache: ResponseCache, **options: Any) -> ClientCache:
    given = {"server": "s", "owner": "me", "variant": b"{}", **options}
    return ClientCache(cache, **given)


def tools(*names: str, ttl: Any = 60_000, **more: Any) -> dict[str, Any]:
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return {"resultType": "complete", "tools": listed, "ttlMs": ttl, **more}


def read(*uris: str, ttl: Any = 60_000, text: str = "", **more: Any) -> dict[str, Any]:
    contents = [{"uri": uri, "text": text} for uri in uris]
    return {"resultType": "complete", "contents": contents, "ttlMs": ttl, **more}


def put(mine: ClientCache, result: Any, method: str = "tools/list", **params: Any) -> None:
    with mine.asking(method, params, VERSION, fresh=True) as asked:
        assert asked is not None
        asked.answered(result)


def get(mine: ClientCache, method: str = "tools/list", **params: Any) -> dict[str, Any] | None:
    with mine.asking(method, params, VERSION, fresh=False) as asked:
        assert asked is not None
        return asked.found


def say(mine: ClientCache, method: str, granted: Any = None, **params: Any) -> None:
    note = jsonrpc.Notification(method, params)
    Observers(mine).observe(note, subscription_id="listen-1", granted=granted)


async def test_freshness(autojump_clock: trio.abc.Clock) -> None:
    """Fresh while now < received + ttl, by Trio's clock."""
    cache = ResponseCache()
    mine = use(cache)
    assert get(mine) is None
    put(mine, tools("a", ttl=1_500))
    await trio.sleep(1.499)
    assert get(mine) == tools("a", ttl=1_500)
    await trio.sleep(0.001)
    assert get(mine) is None
    assert attrs.asdict(cache.statistics()) == {
        "entries": 0,
        "bytes": 0,
        "hits": 1,
        "misses": 2,
        "stored": 1,
        "forgotten": 0,
        "displaced": 0,
        "overtaken": 0,
    }


@pytest.mark.parametrize("ttl", [0, -1, None, True, "60000", 1.5])
async def test_no_time_to_live(ttl: Any) -> None:
    """Zero, negative and senseless ones keep nothing, and end what was kept before."""
    mine = use(ResponseCache())
    put(mine, tools("old"))
    put(mine, tools("new", ttl=ttl))
    assert get(mine) is None


async def test_absent_time_to_live() -> None:
    mine = use(ResponseCache())
    result = tools("a")
    del result["ttlMs"]
    put(mine, result)
    assert get(mine) is None


async def test_endless_time_to_live(autojump_clock: trio.abc.Clock) -> None:
    mine = use(ResponseCache())
    put(mine, tools("a", ttl=10**400))
    await trio.sleep(10**9)
    assert get(mine) is not None


async def test_what_makes_the_key() -> None:
    """The method, the argument, what the client can do, and the revision."""
    cache = ResponseCache()
    mine = use(cache)
    put(mine, tools("a"))
    put(mine, tools("b"), cursor="2")
    assert get(mine) == tools("a")
    assert get(mine, cursor="2") == tools("b")
    assert get(mine, cursor="") is None
    assert get(mine, "prompts/list") is None
    assert get(use(cache, variant=b'{"roots":{}}')) is None
    assert get(use(cache, server="t")) is None
    with mine.asking("tools/list", {}, "2027-01-01", fresh=False) as asked:
        assert asked is not None
        assert asked.found is None


async def test_metadata_is_not_in_the_key() -> None:
    """Save for what nobody but the caller knows the meaning of: that is not for the cache."""
    mine = use(ResponseCache())
    put(mine, tools("a"), _meta={"traceparent": "00-1", "progressToken": 7})
    assert get(mine, _meta={"traceparent": "00-2"}) == tools("a")
    assert get(mine, _meta=None) == tools("a")
    with mine.asking(
        "tools/list", {"_meta": {"org.example/tenant": 1}}, VERSION, fresh=False
    ) as asked:
        assert asked is None


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "t"}),
        ("prompts/get", {"name": "p"}),
        ("tools/list", {"org.example/filter": "x"}),
        ("tools/list", {"cursor": 5}),
        ("resources/read", {"uri": "note://a", "inputResponses": {}}),
        ("resources/read", {"uri": "note://a", "requestState": "s"}),
        ("server/discover", {"cursor": "a"}),
    ],
)
async def test_what_is_not_for_the_cache(method: str, params: dict[str, Any]) -> None:
    """Above all a request that carries the input which a server has asked for."""
    with use(ResponseCache()).asking(method, params, VERSION, fresh=False) as asked:
        assert asked is None


async def test_scopes() -> None:
    """Private answers are for one owner; public ones for all who ask the same server."""
    cache = ResponseCache()
    mine, other = use(cache), use(cache, owner="other")
    put(mine, tools("mine"))
    put(mine, tools("all", cacheScope="public"), cursor="2")
    assert get(other) is None
    assert get(other, cursor="2") is not None
    assert get(use(cache), cursor="2") is not None
    # What was public and is not any more is not anybody's any more.
    put(mine, tools("mine"), cursor="2")
    assert get(other, cursor="2") is None
    assert get(mine, cursor="2") == tools("mine")


async def test_nobody_in_particular() -> None:
    """Where each request may be for another person, only what is public is kept."""
    cache = ResponseCache()
    anybody = use(cache, owner=None)
    put(anybody, tools("mine"))
    assert get(anybody) is None
    put(anybody, tools("all", cacheScope="public"))
    assert get(anybody) == get(use(cache)) == tools("all", cacheScope="public")
    put(anybody, tools("mine"))
    assert get(anybody) is None
    assert cache.statistics().entries == 0


async def test_malformed_results_are_not_kept() -> None:
    """They fail the request, and would fail the next ones without asking the server again."""
    mine = use(ResponseCache())
    put(mine, {"resultType": "complete", "tools": 5, "ttlMs": 60_000})
    assert get(mine) is None


async def test_answers_are_copies() -> None:
    mine = use(ResponseCache())
    put(mine, tools("a"))
    found = get(mine)
    assert found is not None
    found["tools"].clear()
    assert get(mine) == tools("a")


@pytest.mark.parametrize(
    ("method", "params", "event"),
    [
        ("tools/list", {"cursor": "2"}, methods.TOOLS_LIST_CHANGED),
        ("prompts/list", {}, methods.PROMPTS_LIST_CHANGED),
        ("resources/list", {}, methods.RESOURCES_LIST_CHANGED),
        ("resources/templates/list", {}, methods.RESOURCES_LIST_CHANGED),
    ],
)
async def test_list_changes(method: str, params: dict[str, Any], event: str) -> None:
    """W80: all pages of a list that has changed are forgotten, and no other list."""
    member = {"resources/templates/list": "resourceTemplates"}.get(method, method.split("/")[0])
    result = {"resultType": "complete", member: [], "ttlMs": 60_000}
    mine = use(ResponseCache())
    events = {
        methods.TOOLS_LIST_CHANGED,
        methods.PROMPTS_LIST_CHANGED,
        methods.RESOURCES_LIST_CHANGED,
        "notifications/unknown",
    }
    put(mine, result, method, **params)
    for name in events - {event}:
        say(mine, name)
    assert get(mine, method, **params) == result
    say(mine, event)
    assert get(mine, method, **params) is None


@pytest.mark.parametrize(
    ("kept", "updated", "forgotten"),
    [
        ("note://a", "note://a", True),
        ("note://a", "note://a/b/c", True),
        ("note://a/b/c", "note://a", True),
        ("note://a/b", "note://a/", True),
        ("note://a/b?q=/x", "note://a", True),
        ("note://a", "note://ab", False),
        ("note://ab", "note://a", False),
        ("note://a/b", "note://a/c", False),
        ("note://a", "NOTE://a", False),
    ],
)
async def test_updates_above_and_below(kept: str, updated: str, forgotten: bool) -> None:
    """C-21: an update may name a sub-resource of what was subscribed to, or what it is in."""
    assert related(kept, updated) is related(updated, kept) is forgotten
    mine = use(ResponseCache())
    put(mine, read(kept), "resources/read", uri=kept)
    put(mine, read("x:y"), "resources/read", uri="x:y")
    say(mine, methods.RESOURCE_UPDATED, uri=updated)
    assert (get(mine, "resources/read", uri=kept) is None) is forgotten
    assert get(mine, "resources/read", uri="x:y") is not None


async def test_updates_of_what_is_in_an_answer() -> None:
    """Reading a resource may give the contents of others."""
    mine = use(ResponseCache())
    put(mine, read("row://1", "row://2"), "resources/read", uri="db://table")
    put(mine, read("row://3"), "resources/read", uri="db://other")
    say(mine, methods.RESOURCE_UPDATED, uri="row://2")
    assert get(mine, "resources/read", uri="db://table") is None
    assert get(mine, "resources/read", uri="db://other") is not None


async def test_update_of_a_part_that_only_the_server_knows() -> None:
    """C-21: it arrived for a reason, so it is about something that was subscribed to."""
    mine = use(ResponseCache())
    for uri in ("db://table", "db://other"):
        put(mine, read(uri), "resources/read", uri=uri)
    granted = SubscriptionFilter(resource_subscriptions=("db://table", "x:y"))
    say(mine, methods.RESOURCE_UPDATED, granted, uri="x:y")
    say(mine, methods.RESOURCE_UPDATED, granted, uri="x:y/z")
    assert get(mine, "resources/read", uri="db://table") is not None
    say(mine, methods.RESOURCE_UPDATED, granted, uri="row://1")
    assert get(mine, "resources/read", uri="db://table") is None
    assert get(mine, "resources/read", uri="db://other") is not None


async def test_update_without_a_uri() -> None:
    mine = use(ResponseCache())
    put(mine, read("a:b"), "resources/read", uri="a:b")
    say(mine, methods.RESOURCE_UPDATED, uri=5)
    assert get(mine, "resources/read", uri="a:b") is not None


async def test_what_was_missed() -> None:
    """All that a lost subscription covered is forgotten, and no more."""
    mine = use(ResponseCache())
    put(mine, tools("a"))
    prompts = {"resultType": "complete", "prompts": [], "ttlMs": 60_000}
    put(mine, prompts, "prompts/list")
    for uri in ("a:1", "a:2"):
        put(mine, read(uri), "resources/read", uri=uri)
    observers = Observers(mine)
    observers.missed(SubscriptionFilter())
    assert get(mine) is not None
    observers.missed(
        SubscriptionFilter(tools_list_changed=True, resource_subscriptions=("a:1", "a:9"))
    )
    assert get(mine) is None
    assert get(mine, "resources/read", uri="a:1") is None
    assert get(mine, "resources/read", uri="a:2") is not None
    assert get(mine, "prompts/list") is not None


async def test_overtaken() -> None:
    """An answer that was under way when the change came is not kept; the next one is."""
    cache = ResponseCache()
    mine = use(cache)
    with mine.asking("tools/list", {}, VERSION, fresh=False) as first:
        say(mine, methods.TOOLS_LIST_CHANGED)
        with mine.asking("tools/list", {}, VERSION, fresh=False) as second:
            assert first is not None
            assert second is not None
            second.answered(tools("new"))
        first.answered(tools("old"))
    assert get(mine) == tools("new")
    assert cache.statistics().overtaken == 1


async def test_overtaken_readings() -> None:
    """Also by what turns out to be about it only when the answer is there."""
    for updated, kept in [("db://x", True), ("db://table/row", False), ("row://1", False)]:
        mine = use(ResponseCache())
        with mine.asking("resources/read", {"uri": "db://table"}, VERSION, fresh=True) as asked:
            assert asked is not None
            say(mine, methods.RESOURCE_UPDATED, uri=updated)
            asked.answered(read("row://1"))
        assert (get(mine, "resources/read", uri="db://table") is not None) is kept


async def test_flights_are_bounded() -> None:
    """A flood of updates during one long request takes no room."""
    flight = Flight("resources/read", "a:b")
    for number in range(64):
        flight.update(f"x:{number}")
    before = flight.overtaken
    flight.update("x:more")
    assert (before, flight.overtaken) == (False, True)
    listing = Flight("tools/list", None)
    listing.update("x:y")
    assert not listing.overtaken


async def test_refused_page() -> None:
    """A cursor that is not valid any more: all pages of that list go, and nothing else."""
    mine = use(ResponseCache())

    def refuse(method: str, **params: Any) -> None:
        with mine.asking(method, params, VERSION, fresh=True):
            raise errors.InvalidParams("no")

    put(mine, tools("a", nextCursor="2"))
    put(mine, read("a:b"), "resources/read", uri="a:b")
    for method, params in [("tools/list", {}), ("resources/read", {"uri": "a:c"})]:
        with pytest.raises(errors.InvalidParams):
            refuse(method, **params)
    assert get(mine) is not None
    with pytest.raises(errors.InvalidParams):
        refuse("tools/list", cursor="2")
    assert get(mine) is None
    assert get(mine, "resources/read", uri="a:b") is not None


async def test_clear() -> None:
    """What is on its way is not kept either."""
    cache = ResponseCache()
    mine = use(cache)
    put(mine, tools("a"))
    with mine.asking("tools/list", {"cursor": "2"}, VERSION, fresh=False) as asked:
        assert asked is not None
        cache.clear()
        asked.answered(tools("b"))
    assert get(mine) is None
    assert get(mine, cursor="2") is None
    assert cache.statistics().entries == cache.statistics().bytes == 0
    assert repr(cache) == "<ResponseCache of 0 entries, 0 bytes>"


async def test_bound_of_entries() -> None:
    """The least recently used one goes first."""
    cache = ResponseCache(max_entries=2)
    mine = use(cache)
    for cursor in "ab":
        put(mine, tools(cursor), cursor=cursor)
    assert get(mine, cursor="a") is not None
    put(mine, tools("c"), cursor="c")
    assert get(mine, cursor="b") is None
    assert get(mine, cursor="a") is not None
    assert cache.statistics().displaced == 1


async def test_bound_of_bytes() -> None:
    cache = ResponseCache(max_bytes=10_000)
    mine = use(cache)
    put(mine, read("a:1", text="x" * 5_000), "resources/read", uri="a:1")
    put(mine, read("a:2", text="x" * 5_000), "resources/read", uri="a:2")
    assert get(mine, "resources/read", uri="a:1") is None
    put(mine, read("a:3", text="x" * 10_000), "resources/read", uri="a:3")
    assert get(mine, "resources/read", uri="a:3") is None
    assert get(mine, "resources/read", uri="a:2") is not None
    many = [f"b:{number}" for number in range(65)]
    put(mine, read(*many), "resources/read", uri="a:4")
    assert get(mine, "resources/read", uri="a:4") is None
    with pytest.raises(ValueError, match="positive"):
        ResponseCache(max_bytes=0)


def test_another_run() -> None:
    """Each run of Trio has a clock of its own, so nothing is taken over from one to the next."""
    cache = ResponseCache()
    mine = use(cache)

    async def fill() -> None:
        put(mine, tools("a"))
        assert get(mine) is not None

    async def look() -> None:
        assert get(mine) is None

    trio.run(fill)
    trio.run(look)


# A model: whatever happens in whatever order


URIS = ("f:a", "f:a/b", "f:a/c", "g:x")
QUESTIONS = [
    ("tools/list", None),
    ("tools/list", "2"),
    ("resources/list", None),
    *(("resources/read", uri) for uri in URIS),
]
STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 1), st.sampled_from(QUESTIONS), st.booleans()),
    st.tuples(
        st.just("answer"), st.integers(0, 9), st.integers(0, 3), st.sampled_from(["public", "x"])
    ),
    st.tuples(st.just("change"), st.integers(0, 1), st.sampled_from(["tools", *URIS])),
    st.tuples(st.just("lose"), st.integers(0, 1), st.sampled_from(["tools", *URIS])),
    st.tuples(st.just("sleep"), st.integers(0, 3)),
)


def touches(subject: str, question: tuple[str, str | None]) -> bool:
    method, argument = question
    if subject == "tools":
        return method == "tools/list"
    return method == "resources/read" and argument is not None and related(subject, argument)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40), st.integers(1, 6), st.integers(3_000, 20_000))
def test_never_older_than_the_last_change(
    steps: list[tuple[Any, ...]], max_entries: int, max_bytes: int
) -> None:
    """W80, C-28: what is found was asked for after the last change, by whoever may have it.

    The bounds hold all the time.
    """

    async def main() -> None:
        cache = ResponseCache(max_entries=max_entries, max_bytes=max_bytes)
        clients = [use(cache, owner=f"o{n}", variant=b"{}") for n in range(2)]
        serials = itertools.count()
        asked_at: dict[str, tuple[int, int, float]] = {}
        changed: dict[tuple[str, str | None], int] = {}
        flights: list[tuple[Any, Any, tuple[str, str | None], int, int]] = []
        for step in steps:
            if step[0] == "ask":
                _, number, question, fresh = step
                params = _params(question)
                block = clients[number].asking(question[0], params, VERSION, fresh=fresh)
                asking = block.__enter__()
                assert asking is not None
                if asking.found is not None:
                    assert not fresh
                    mark = asking.found["_meta"]["mark"]
                    born, owner, until = asked_at[mark]
                    assert born > changed.get(question, -1)
                    assert owner == number or asking.found["cacheScope"] == "public"
                    assert trio.current_time() < until
                    block.__exit__(None, None, None)
                else:
                    flights.append((block, asking, question, number, next(serials)))
            elif step[0] == "answer" and flights:
                _, at, ttl, scope = step
                block, asking, question, number, born = flights.pop(at % len(flights))
                mark = str(born)
                asked_at[mark] = (born, number, trio.current_time() + ttl)
                asking.answered(_result(question, ttl * 1_000, scope, mark))
                block.__exit__(None, None, None)
            elif step[0] == "change":
                _, number, subject = step
                _change(clients[number], subject)
                _note(changed, subject, next(serials))
            elif step[0] == "lose":
                _, number, subject = step
                Observers(clients[number]).missed(_covering(subject))
                _note(changed, subject, next(serials))
            elif step[0] == "sleep":
                await trio.sleep(step[1])
            counted = cache.statistics()
            assert counted.entries <= max_entries
            assert counted.bytes <= max_bytes
        for block, *_ in flights:
            block.__exit__(None, None, None)
        cache.clear()
        assert cache.statistics().bytes == 0
        assert not cache._shelves  # nothing may be left behind

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def _params(question: tuple[str, str | None]) -> dict[str, Any]:
    method, argument = question
    if argument is None:
        return {}
    return {"uri" if method == "resources/read" else "cursor": argument}


def _result(question: tuple[str, str | None], ttl: int, scope: str, mark: str) -> dict[str, Any]:
    method, argument = question
    shared: dict[str, Any] = {"_meta": {"mark": mark}}
    shared["cacheScope"] = "public" if scope == "public" else "private"
    if method == "tools/list":
        return tools("t", ttl=ttl, **shared)
    if method == "resources/list":
        return {"resultType": "complete", "resources": [], "ttlMs": ttl, **shared}
    assert argument is not None
    return read(argument, ttl=ttl, text="x" * 1_000, **shared)


def _change(client: ClientCache, subject: str) -> None:
    if subject == "tools":
        say(client, methods.TOOLS_LIST_CHANGED)
    else:
        say(client, methods.RESOURCE_UPDATED, uri=subject)


def _covering(subject: str) -> SubscriptionFilter:
    if subject == "tools":
        return SubscriptionFilter(tools_list_changed=True)
    return SubscriptionFilter(resource_subscriptions=(subject,))


def _note(changed: dict[tuple[str, str | None], int], subject: str, serial: int) -> None:
    for question in _touched(subject):
        changed[question] = serial


def _touched(subject: str) -> Iterator[tuple[str, str | None]]:
    return (question for question in QUESTIONS if touches(subject, question))
