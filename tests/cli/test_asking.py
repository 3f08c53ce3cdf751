"""Whom a request goes to: where the conversation lies, else the next that answers."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from p2p.testing import MemoryNetwork
from tessella.cli.answer import Answer
from tessella.cli.asking import Asking, Place
from tessella.cli.discovery import Way
from tessella.core.addresses import PeerAddress
from tessella.core.completions import CompletionRequest
from tessella.core.errors import PeerUnreachable, RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.messages import Fail, Message
from tests.cli.scripted import TOY, Api, Node, open_node, row_of

GONE = PeerAddress(Identity(bytes([9]) * 32).peer_id, ("/ip4/10.9.9.9/tcp/4001",))


def hello(model: ModelId) -> CompletionRequest:
    return CompletionRequest(model=model, prompt="hello")


async def said_by(asking: Asking) -> str:
    answer = Answer()
    await asking.ask(hello, answer, lambda _: None)
    return answer.text


async def test_the_node_that_answered_is_asked_again_and_no_musivum(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("yes")
        asking = node.asking()
        await said_by(asking)
        asking.way = Way(musivum=GONE)
        assert await said_by(asking) == "yes"
        assert asking.place == Place(model=TOY, address=node.host.address)


async def test_a_place_that_is_gone_is_no_error(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("found")
        asking = node.asking()
        asking.return_to(Place(model=TOY, address=GONE))
        assert asking.place == Place(model=TOY, address=GONE)
        assert await said_by(asking) == "found"
        assert asking.place == Place(model=TOY, address=node.host.address)


async def test_a_place_that_serves_another_model_by_now_is_left(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        replies = [[Fail("unknown_model", "this node serves other", False)]]
        node.reply = lambda _: replies.pop() if replies else node.says("found")
        asking = node.asking()
        asking.return_to(Place(model=TOY, address=node.host.address))
        assert await said_by(asking) == "found"


@pytest.mark.parametrize(
    ("way", "returns"),
    [
        (Way(), True),
        (Way(musivum=GONE), True),
        (Way(musivum=GONE, model="toy"), True),
        (Way(musivum=GONE, model="other"), False),
        (Way(peer=GONE), False),
        (Way(api_url="http://x"), False),
    ],
)
async def test_who_names_a_node_or_another_model_does_not_return(way: Way, returns: bool) -> None:
    async with open_node() as node:
        asking = node.asking(way)
        asking.return_to(Place(model=TOY, api_url="http://node"))
        assert (asking.door is not None) is returns


async def test_an_entry_that_is_gone_is_passed_over_before_the_first_word(
    autojump_clock: MockClock,
) -> None:
    async with open_node() as node:
        node.reply = lambda _: node.says("yes")
        node.rows = lambda: [row_of(node.host, peer_id=GONE.peer_id, addrs=GONE.addrs)]
        assert await said_by(node.asking()) == "yes"


async def test_an_entry_that_breaks_off_after_a_word_is_told(autojump_clock: MockClock) -> None:
    def breaks_off(node: Node) -> list[Message]:
        begun, delta, *_ = node.says("half")
        return [begun, delta, Fail("busy", "reassigned", True)]

    async with open_node() as node:
        node.reply = lambda _: breaks_off(node)
        asking = node.asking()
        for _ in range(2):
            answer = Answer()
            with pytest.raises(RemoteFailure, match="reassigned"):
                await asking.ask(hello, answer, lambda _: None)
            assert answer.text == "half"
        assert len(node.requests) == 2
        assert asking.place is None


async def test_where_nobody_is_left_the_last_failure_is_told(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        asking = node.asking(Way(peer=GONE, model="toy"))
        with pytest.raises(PeerUnreachable, match=GONE.peer_id):
            await said_by(asking)


async def test_a_network_that_is_cut_once_is_tried_again(autojump_clock: MockClock) -> None:
    net = MemoryNetwork(latency=0.01)
    async with open_node(net=net) as node:
        node.reply = lambda _: node.says("yes")
        asking = node.asking(Way(peer=node.host.address, model="toy"))
        await said_by(asking)
        net.cut(node.host.address.peer_id, node.client.address.peer_id)
        assert await said_by(asking) == "yes"


async def test_an_api_is_asked_as_a_peer_is(autojump_clock: MockClock) -> None:
    api = Api()
    async with open_node(api) as node:
        asking = node.asking(Way(api_url="http://node:8080"))
        assert await said_by(asking) == "over HTTP"
        assert asking.place == Place(model=TOY, api_url="http://node:8080")
    assert api.asked[0][1]["model"] == "toy"


async def test_another_model_is_looked_for_anew(autojump_clock: MockClock) -> None:
    async with open_node() as node:
        asking = node.asking()
        asking.return_to(Place(model=TOY, address=node.host.address))
        asking.choose("other")
        assert (asking.door, asking.way.model) == (None, "other")
