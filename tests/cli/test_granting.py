"""Whoever has a key asks musivum for a ticket before each request, and for none without one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock

from p2p.testing import MemoryNetwork
from tessella.cli.answer import Answer
from tessella.cli.asking import Asking, Place, open_asking
from tessella.cli.chat_options import Asked, configured
from tessella.cli.client_config import KEY_NAME
from tessella.cli.discovery import Way, settled, way_of
from tessella.cli.granting import (
    AWAY_SECONDS,
    GRANT_SECONDS,
    MAX_POSITIONS,
    Granting,
    positions_of,
)
from tessella.cli.session_file import load_session, save_session
from tessella.core.addresses import parse_peer
from tessella.core.completions import ChatMessage, CompletionRequest, Fill
from tessella.core.errors import (
    BadKey,
    BadRequest,
    ContextTooLong,
    PeerUnreachable,
    RemoteFailure,
    TicketUsed,
)
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.messages import AskGrant, Fail, Message, Stage
from tessella.core.sampling import Sampling
from tessella.keys import create_key
from tessella.web import client as web_client
from tessella.worker.tickets import SignedTicket
from tests.cli.scripted import LAYERS, TOY, Node, nobody, open_node
from tests.worker.mint import Mint

HUB, KEY = Identity(bytes([1]) * 32), Identity(bytes([2]) * 32)
SESSION = "0123456789abcdef" * 2


def hello(model: ModelId) -> CompletionRequest:
    return CompletionRequest(model=model, prompt="hello", sampling=Sampling(max_tokens=9))


@dataclass
class Scene:
    """A musivum that gives tickets, which is the node as well, and a client with a key."""

    node: Node
    mint: Mint
    asking: Asking
    requester: PeerId | None = None
    """Whom tickets are for, if not who asks."""
    refusals: list[Fail] = field(default_factory=list)
    """What the next requests with a ticket are answered with."""

    async def ask(self) -> Answer:
        answer = Answer()
        await self.asking.ask(hello, answer, lambda _: None)
        return answer

    def draw(self, caller: PeerId, asked: AskGrant) -> SignedTicket:
        chain = [Stage(self.node.host.address.peer_id, LAYERS)]
        requester = self.requester or caller
        return self.mint.ticket(chain, requester=requester, max_tokens=asked.max_tokens)

    def reply(self, _: CompletionRequest) -> list[Message]:
        has_ticket = bool(self.node.brought[-1])
        if has_ticket and self.refusals:
            return [self.refusals.pop()]
        begun, *rest = self.node.says("yes")
        return [replace(begun, tier="vip" if has_ticket else ""), *rest]


@asynccontextmanager
async def scene(way: Way | None = None) -> AsyncIterator[Scene]:
    net = MemoryNetwork(latency=0.01)
    async with open_node(net=net) as node:
        found = way or Way(musivum=node.host.address, key=KEY)
        mint = Mint(HUB, lambda: 1_800_000_000.0)
        granting = Granting(node.client, KEY, node.host.address, clock=mint.clock)
        s = Scene(node, mint, Asking(found, node.client, node.http, granting=granting))
        mint.addrs = node.host.address.addrs
        mint.serve_on(node.host, s.draw)
        node.reply = s.reply
        yield s


async def test_each_request_brings_a_ticket_of_its_own_to_its_entry(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        first, second = await s.ask(), await s.ask()
        assert (first.text, first.standing, second.standing) == ("yes", "tier VIP", "tier VIP")
        assert s.node.brought == [one.payload for one in s.mint.given]
        one, two = s.mint.asked
        assert (one.model, one.anonymous, one.max_tokens >= len("hello") + 9) == (TOY, False, True)
        assert [one.after, two.after] == [b"", s.mint.given[0].ticket.request_id]


async def test_where_musivum_refuses_it_is_asked_in_nobodys_name(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        s.mint.refusal = BadRequest("max_tokens = 5: has to be 1 to 4")
        assert (await s.ask()).standing == "unpaid (no musivum answered)"
        assert s.node.brought == [b""]


async def test_a_musivum_that_does_not_answer_is_not_waited_for_again_at_once(
    autojump_clock: MockClock,
) -> None:
    async with scene() as s:
        s.mint.delay = 3600.0
        for most in (GRANT_SECONDS + 1.0, 1.0):
            started = trio.current_time()
            assert (await s.ask()).text == "yes"
            # The node takes two seconds to say it.
            assert trio.current_time() - started < most + 2.0
        assert len(s.mint.asked) == 1
        s.mint.delay = 0.0
        await trio.sleep(AWAY_SECONDS)
        assert (await s.ask()).tier == "vip"


@pytest.mark.parametrize(
    "refusal", [Fail.of(TicketUsed("for another")), Fail("busy", "reassigned", True)]
)
async def test_a_ticket_that_its_entry_does_not_take_costs_no_answer(
    autojump_clock: MockClock, refusal: Fail
) -> None:
    async with scene() as s:
        await s.ask()
        s.refusals.append(refusal)
        assert (await s.ask()).text == "yes"
        assert [bool(ticket) for ticket in s.node.brought] == [True, True, False]
        await s.ask()
        assert s.mint.asked[-1].after == b""


async def test_a_request_that_is_refused_is_not_asked_again(autojump_clock: MockClock) -> None:
    async with scene() as s:
        s.refusals.append(Fail.of(ContextTooLong("too long")))
        with pytest.raises(RemoteFailure, match="too long"):
            await s.ask()
        assert len(s.node.brought) == 1


async def test_a_ticket_for_somebody_else_is_not_brought(autojump_clock: MockClock) -> None:
    async with scene() as s:
        s.requester = HUB.peer_id
        assert (await s.ask()).tier is None
        assert s.node.brought == [b""]


async def test_a_file_keeps_the_chain_from_run_to_run(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with scene() as s:
        await s.ask()
        place = s.asking.place
        request_id = s.mint.given[0].ticket.request_id
        assert place == Place(model=TOY, address=s.node.host.address, after=request_id)
        dialogue = s.node.dialogue(session=SESSION)
        save_session(tmp_path / "s.json", dialogue.conversation, place)
        saved = load_session(tmp_path / "s.json")
        assert saved is not None
        assert saved.place == place
    async with scene() as s:
        s.asking.return_to(place)
        await s.ask()
        assert s.mint.asked[0].after == request_id


@pytest.mark.parametrize("key", [None, KEY])
async def test_a_node_that_is_named_is_asked_without_a_ticket(key: Identity | None) -> None:
    async with open_asking(Way(api_url="http://x", key=key)) as asking:
        assert asking.granting is None


URL = "http://127.0.0.1:8000"


async def test_a_musivum_by_its_url_is_asked_who_and_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/p2p_id"
        return httpx.Response(200, json={"peer_id": HUB.peer_id, "multiaddrs": [MULTIADDR]})

    opened = web_client.open_client
    monkeypatch.setattr(web_client, "open_client", lambda: opened(httpx.MockTransport(answer)))
    found = await settled(way_of(URL, None, (), "toy"))
    assert found == Way(musivum=parse_peer(MULTIADDR), model="toy")


async def test_a_musivum_whose_url_is_dead_leaves_the_swarm_and_the_last_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = web_client.open_client
    monkeypatch.setattr(web_client, "open_client", lambda: opened(httpx.MockTransport(nobody)))
    way = way_of(URL, None, (), "toy")
    with pytest.raises(PeerUnreachable):
        await settled(way)
    assert await settled(way_of(URL, None, (MULTIADDR,), "")) == way_of("", None, (MULTIADDR,), "")
    async with open_asking(way, Place(model=TOY, api_url="http://node")) as asking:
        assert asking.place == Place(model=TOY, api_url="http://node")


MULTIADDR = f"/ip4/127.0.0.1/tcp/4001/p2p/{HUB.peer_id}"


class Context:
    """As much of typer's as is asked."""

    def find_object(self, _: object) -> None:
        return None


@pytest.mark.parametrize(
    ("asked", "has_key"),
    [
        (Asked(musivum=MULTIADDR), True),
        (Asked(musivum=MULTIADDR, peer=MULTIADDR), False),
        (Asked(musivum=MULTIADDR, api_url="http://x"), False),
        (Asked(bootstrap=(MULTIADDR,)), False),
        (Asked(musivum="https://musivum.example"), True),
    ],
)
def test_the_key_is_the_one_beside_the_configuration(
    tmp_path: Path, asked: Asked, has_key: bool
) -> None:
    config = tmp_path / "client.toml"
    config.write_text("")
    context = Context()
    way, _ = configured(context, replace(asked, config=config))  # type: ignore[arg-type]
    assert way.key is None
    made = create_key(tmp_path / KEY_NAME)
    way, _ = configured(context, replace(asked, config=config))  # type: ignore[arg-type]
    assert (way.key is not None) is has_key
    if way.key is not None:
        assert way.key.peer_id == made.peer_id


def test_a_key_that_others_may_use_is_named(tmp_path: Path) -> None:
    config, key = tmp_path / "client.toml", tmp_path / KEY_NAME
    config.write_text("")
    create_key(key)
    key.chmod(0o644)
    with pytest.raises(BadKey, match=KEY_NAME):
        configured(Context(), Asked(musivum=MULTIADDR, config=config))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "least"),
    [
        ({"prompt": "汉" * 10}, 30),
        ({"messages": (ChatMessage("user", "a" * 50), ChatMessage("assistant", "b" * 50))}, 100),
        ({"fill": Fill("a" * 20, "b" * 20)}, 40),
    ],
)
def test_a_ticket_is_asked_for_what_the_request_takes_at_most(
    fields: dict[str, object], least: int
) -> None:
    request = CompletionRequest(model=TOY, sampling=Sampling(max_tokens=7), **fields)  # type: ignore[arg-type]
    assert least + 7 <= positions_of(request) <= least + 7 + 512


def test_a_ticket_is_asked_for_no_more_than_is_granted() -> None:
    request = CompletionRequest(model=TOY, prompt="a" * 200_000)
    assert positions_of(request) == MAX_POSITIONS
