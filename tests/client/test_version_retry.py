"""A server that does not speak the revision it was asked in."""

from typing import Any

import pytest
import script_kit as say
from script_kit import Play
from wire_kit import Frame

from mcp_trio import errors, types
from mcp_trio.client.client import Client
from mcp_trio.protocol import meta, versions
from mcp_trio.subscriptions.filter import SubscriptionFilter

TOOLS = SubscriptionFilter(tools_list_changed=True)
LATER = "2099-01-01"


def refusal(request: Frame, data: object) -> Frame:
    frame = say.error(request, -32022, "no such version")
    frame["error"]["data"] = data
    return frame


def version_of(request: Frame) -> Any:
    return request["params"]["_meta"][meta.META_VERSION]


@pytest.fixture
def two_revisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were a revision after this one, which the client would rather speak."""
    monkeypatch.setattr(versions, "MODERN", (LATER, versions.LATEST))
    monkeypatch.setattr(versions, "LATEST", LATER)


@pytest.mark.usefixtures("two_revisions")
async def test_retried_in_a_common_revision(play: Play) -> None:
    """Once, under a new id, and from then on in that revision."""

    async def script(peer: Any) -> None:
        first = await peer.expect("tools/call")
        await peer.send(first, refusal(first, {"supported": ["2026-07-28", 5, "2025-11-25"]}))
        again = await peer.expect("tools/call")
        await peer.send(again, say.answer(again, {"content": []}))
        third = await peer.expect("tools/list")
        await peer.send(third, say.answer(third, {"tools": []}))
        requests.extend([first, again, third])

    requests: list[Frame] = []
    async with play(script) as client:
        await client.call_tool("t", {"x": 1})
        await client.list_tools()
    assert [version_of(request) for request in requests] == [LATER, "2026-07-28", "2026-07-28"]
    assert [request["id"] for request in requests] == [1, 2, 3]
    assert requests[1]["params"]["arguments"] == {"x": 1}


@pytest.mark.usefixtures("two_revisions")
async def test_subscription_is_retried(play: Play) -> None:
    """A subscription as well, under a new id."""

    async def script(peer: Any) -> None:
        first = await peer.expect("subscriptions/listen")
        await peer.send(first, refusal(first, {"supported": ["2026-07-28"]}))
        again = await peer.expect("subscriptions/listen")
        assert version_of(again) == "2026-07-28"
        assert again["id"] != first["id"]
        await peer.send(again, say.ack(again))
        await peer.until_cancelled(again)

    async with play(script) as client, client.listen(TOOLS) as changes:
        assert changes.acknowledged == TOOLS


@pytest.mark.parametrize("call", [Client.list_tools, lambda client: enter(client)])
@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"supported": ["2025-11-25", "2025-06-18"]}, "speaks 2025-11-25, 2025-06-18, this clie"),
        ({"supported": []}, "the server speaks none, this client 2026-07-28"),
        ({"supported": "2026-07-28"}, "no such version"),
        ({}, "no such version"),
        (None, "no such version"),
    ],
)
async def test_no_common_revision(play: Play, data: object, text: str, call: Any) -> None:
    """The error says what both speak, as far as that is known; nothing is tried again."""

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/list" if call is Client.list_tools else LISTEN)
        await peer.send(request, refusal(request, data))
        request = await peer.expect("prompts/list")
        await peer.send(request, say.answer(request, {"prompts": []}))

    async with play(script) as client:
        with pytest.raises(errors.UnsupportedProtocolVersion, match=text) as caught:
            await call(client)
        assert (caught.value.code, caught.value.data) == (-32022, data)
        await client.list_prompts()


async def test_refused_again(play: Play) -> None:
    """A server that claims to speak the revision it refuses is asked once more, not for ever."""

    async def script(peer: Any) -> None:
        for _ in range(2):
            request = await peer.expect("server/discover")
            await peer.send(request, refusal(request, {"supported": ["2026-07-28"]}))
        request = await peer.expect("prompts/list")
        await peer.send(request, say.answer(request, {"prompts": []}))

    async with play(script) as client:
        with pytest.raises(errors.UnsupportedProtocolVersion, match="no such version"):
            await client.discover()
        await client.list_prompts()


@pytest.mark.usefixtures("two_revisions")
async def test_refused_in_a_later_round(play: Play) -> None:
    """Each round is a request of its own, and its answers and its state are sent again."""

    async def script(peer: Any) -> None:
        request = await peer.expect("tools/call")
        await peer.send(
            request,
            say.answer(
                request,
                {
                    "resultType": "input_required",
                    "requestState": "s",
                    "inputRequests": {"r": {"method": "roots/list"}},
                },
            ),
        )
        request = await peer.expect("tools/call")
        await peer.send(request, refusal(request, {"supported": ["2026-07-28"]}))
        request = await peer.expect("tools/call")
        assert version_of(request) == "2026-07-28"
        assert request["params"]["requestState"] == "s"
        assert request["params"]["inputResponses"] == {"r": {"roots": []}}
        await peer.send(request, say.answer(request, {"content": []}))

    async def roots(_: types.ListRootsRequestParams) -> types.ListRootsResult:
        asked.append(1)
        return types.ListRootsResult(roots=[])

    asked: list[int] = []
    async with play(script, on_roots=roots) as client:
        await client.call_tool("t")
    assert len(asked) == 1


LISTEN = "subscriptions/listen"


async def enter(client: Client) -> None:
    async with client.listen(TOOLS):
        raise AssertionError("it was refused")
