"""What is known again after a restart, and what a store that fails does not cost."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from musivum.clocks import Clocks
from musivum.config import MusivumConfig
from musivum.nodes import reputation
from musivum.nodes.books import open_books
from musivum.nodes.node import Node, joined
from musivum.nodes.registration import read_registration
from musivum.nodes.saved import saved_node
from musivum.store import Change, PutManifest, PutNode, PutReputation, SavedManifest
from musivum.store.memory import MemoryStore
from musivum.store.records import SavedReputation
from musivum.testing import EPOCH, HOUSE, SMALL, Caller, a_registration, calling, clock, running
from p2p.testing import MemoryNetwork
from tessella.core.errors import BadManifest, StoreUnavailable
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.manifest import Manifest, encode_manifest
from tessella.core.messages import (
    Accepted,
    Announce,
    AskPeers,
    Assigned,
    Deregister,
    Fail,
    Message,
    Peers,
    Ready,
)
from tessella.core.peers import PeerRow, decode_rows

TRACKER_SEED = b"t" * 32
SEEDS = [bytes([number]) * 32 for number in (1, 2, 3)]
CONFIG = MusivumConfig(min_vram_mb=0)
BEAT = Announce("Healthy", 0, 20.0)
A, B, C = (PeerId(name) for name in "abc")
WISH = read_registration(a_registration(), HOUSE)


class Stopped(Clocks):
    """The clocks of a process whose own clock stands at 0."""

    def now(self) -> float:
        return 0.0


CLOCKS = Stopped(lambda: EPOCH)


def a_node(peer: PeerId, layers: str = "0:4") -> Node:
    part = LayerRange.parse(layers)
    return joined(peer, WISH, part, 0.0).ready(part, 0.0)


async def kept(*nodes: Node) -> MemoryStore:
    store = MemoryStore()
    await store.save(*(PutNode(saved_node(node, CLOCKS)) for node in nodes))
    return store


async def test_the_rows_of_a_store_are_known_again() -> None:
    moving = a_node(B, "4:10").moved(LayerRange(10, 12))
    loading = joined(C, WISH, LayerRange(10, 12), 0.0)
    store = await kept(a_node(A), moving, loading)
    books = await open_books(CONFIG, store, CLOCKS)
    assert [node.row for node in books.roster.nodes()] == [a_node(A).row, moving.row, loading.row]
    assert books.roster.node(B).target == LayerRange(10, 12)
    assert (await open_books(CONFIG, MemoryStore(), CLOCKS)).roster.nodes() == []


@pytest.mark.parametrize(
    "changes", [{"status": "Warming"}, {"shape": b"{}"}, {"kv": "q2"}, {"slots": 0}]
)
async def test_a_row_that_cannot_be_read_is_left_out_and_logged(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    store = await kept(a_node(A))
    await store.save(PutNode(replace(saved_node(a_node(B), CLOCKS), **changes)))
    with caplog.at_level(logging.WARNING, "musivum.nodes.books"):
        books = await open_books(CONFIG, store, CLOCKS)
    assert [node.peer_id for node in books.roster.nodes()] == [A]
    (line,) = caplog.messages
    assert line.startswith("left out: the row of node b: ")
    books.roster.expire(1.0, ())


async def test_where_fewer_nodes_may_be_kept_those_that_were_gone_are_left_out() -> None:
    gone = replace(a_node(A), row=replace(a_node(A).row, status="Offline"))
    store = await kept(gone, a_node(B), a_node(C))
    books = await open_books(replace(CONFIG, max_nodes=2), store, CLOCKS)
    assert [node.peer_id for node in books.roster.nodes()] == [B, C]


async def test_a_manifest_and_counters_survive_a_restart() -> None:
    store = MemoryStore()
    manifest = Manifest(model=ModelId("small"), shape=SMALL)
    document = encode_manifest(manifest)
    known = SavedReputation(peer_id=A, joins=3, offline=1, accused_confirmed=2)
    await store.save(
        PutManifest(SavedManifest(model=manifest.model, document=document, published_at=EPOCH)),
        PutReputation(known),
    )
    books = await open_books(CONFIG, store, CLOCKS)
    assert books.manifests.of(ModelId("small")).manifest == manifest
    assert books.manifests.of(ModelId("small")).is_published
    assert books.reputations.all() == [known]
    with pytest.raises(BadManifest, match="other weights under its name"):
        books.manifests.check(replace(WISH, contract="0" * 64))


async def test_a_manifest_that_cannot_be_read_ends_the_program() -> None:
    store = MemoryStore()
    saved = SavedManifest(model=ModelId("small"), document=b"{}", published_at=EPOCH)
    await store.save(PutManifest(saved))
    with pytest.raises(BadManifest):
        await open_books(CONFIG, store, CLOCKS)


async def test_counters_that_make_room_leave_the_store_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reputation, "MAX_KNOWN", 1)
    store = MemoryStore()
    books = await open_books(CONFIG, store, CLOCKS)
    for peer in (A, B):
        store.note(PutReputation(books.reputations.joined(peer)))
    assert [each.peer_id for each in (await store.load()).reputation] == [B]


class FullStore(MemoryStore):
    """A store in which too many notes wait."""

    def note(self, *changes: Change) -> None:
        raise StoreUnavailable("too many notes wait to be written")


async def test_counters_that_cannot_leave_the_store_cost_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reputation, "MAX_KNOWN", 1)
    books = await open_books(CONFIG, FullStore(), CLOCKS)
    books.reputations.joined(A)
    assert books.reputations.joined(B).joins == 1


async def join(node: Caller) -> LayerRange:
    answer = await node.register()
    assert isinstance(answer, Assigned), answer
    assert await node.call(Ready(answer.layers)) == Accepted()
    return answer.layers


async def rows(node: Caller) -> dict[PeerId, PeerRow]:
    answer = await node.ask(AskPeers(ModelId("")))
    assert isinstance(answer, Peers)
    return {row.peer_id: row for row in decode_rows(answer.rows)}


def failed_with(answer: Message) -> tuple[str, bool]:
    assert isinstance(answer, Fail), answer
    return answer.code, answer.retry


async def test_after_a_restart_who_announces_itself_stays_and_who_is_silent_is_offline(
    autojump_clock: MockClock,
) -> None:
    net, store = MemoryNetwork(), MemoryStore()
    async with (
        running(net, TRACKER_SEED, CONFIG, store) as first,
        calling(net, SEEDS[0], first) as silent,
        calling(net, SEEDS[1], first) as alive,
    ):
        ranges = {silent.peer_id: await join(silent), alive.peer_id: await join(alive)}
    await trio.sleep(300)
    async with (
        running(net, TRACKER_SEED, CONFIG, store) as second,
        calling(net, SEEDS[1], second) as alive,
    ):
        found = await rows(alive)
        assert {row.peer_id: row.layers for row in found.values()} == ranges
        assert {row.status for row in found.values()} == {"Healthy"}
        await trio.sleep(10)
        assert await alive.call(BEAT) == Accepted()
        await trio.sleep(12)
        statuses = {row.peer_id: row.status for row in (await rows(alive)).values()}
        assert statuses == {silent.peer_id: "Offline", alive.peer_id: "Healthy"}


async def test_after_a_restart_with_another_store_everybody_is_unknown(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with running(net, TRACKER_SEED, CONFIG) as first, calling(net, SEEDS[0], first) as node:
        await join(node)
    async with running(net, TRACKER_SEED, CONFIG) as again, calling(net, SEEDS[0], again) as node:
        for _ in range(3):
            assert failed_with(await node.call(BEAT)) == ("unknown_worker", False)
        assert isinstance(await node.register(), Assigned)


async def test_a_node_that_left_is_not_back_by_a_restart(autojump_clock: MockClock) -> None:
    net, store = MemoryNetwork(), MemoryStore()
    async with (
        running(net, TRACKER_SEED, CONFIG, store) as first,
        calling(net, SEEDS[0], first) as node,
    ):
        await join(node)
        assert await node.call(Deregister()) == Accepted()
    async with (
        running(net, TRACKER_SEED, CONFIG, store) as second,
        calling(net, SEEDS[0], second) as node,
    ):
        assert await rows(node) == {}


async def test_a_registration_that_cannot_be_kept_reserves_nothing(
    autojump_clock: MockClock,
) -> None:
    net, store = MemoryNetwork(), MemoryStore()
    async with (
        running(net, TRACKER_SEED, CONFIG, store) as tracker,
        calling(net, SEEDS[0], tracker) as refused,
        calling(net, SEEDS[1], tracker) as other,
    ):
        store.error = StoreUnavailable("the disk is full")
        assert failed_with(await refused.register()) == ("store_unavailable", True)
        assert failed_with(await refused.call(BEAT)) == ("unknown_worker", False)
        assert await rows(other) == {}
        store.error = None
        assert str(await join(other)) == "0:4"
        assert str(await join(refused)) == "4:10"


async def test_a_goodbye_that_cannot_be_kept_is_to_be_said_again(
    autojump_clock: MockClock,
) -> None:
    net, store = MemoryNetwork(), MemoryStore()
    async with (
        running(net, TRACKER_SEED, CONFIG, store) as tracker,
        calling(net, SEEDS[0], tracker) as node,
    ):
        await join(node)
        store.error = StoreUnavailable("the disk is full")
        assert failed_with(await node.call(Deregister())) == ("store_unavailable", True)
        store.error = None
        assert await node.call(Deregister()) == Accepted()
        assert (await store.load()).nodes == ()


async def test_who_made_room_for_another_leaves_the_store(autojump_clock: MockClock) -> None:
    net, store = MemoryNetwork(), MemoryStore()
    async with (
        running(net, TRACKER_SEED, replace(CONFIG, max_nodes=1), store) as tracker,
        calling(net, SEEDS[0], tracker) as first,
        calling(net, SEEDS[1], tracker) as second,
    ):
        await join(first)
        await trio.sleep(32)
        await join(second)
        await trio.sleep(2)
        assert [node.peer_id for node in (await store.load()).nodes] == [second.peer_id]
        assert failed_with(await first.call(BEAT)) == ("unknown_worker", False)


async def test_nobody_who_left_is_healthy_again_without_a_word_of_its_own(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    statuses: list[str | None] = []
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as a,
        calling(net, SEEDS[1], tracker) as b,
    ):
        await join(a)
        await join(b)
        async with calling(net, SEEDS[2], tracker) as dead:
            await join(dead)
        for _ in range(130):
            await trio.sleep(5)
            await a.call(BEAT)
            await b.call(BEAT)
            row = (await rows(a)).get(dead.peer_id)
            statuses.append(row.status if row else None)
    gone = statuses.index("Offline")
    assert gone <= 6, "three beats and a second"
    assert "Healthy" not in statuses[gone:]
    assert statuses[-1] is None, "forgotten after ten minutes"


async def test_the_counters_of_a_node_survive_with_its_store(autojump_clock: MockClock) -> None:
    net, store = MemoryNetwork(), MemoryStore()
    for _ in range(2):
        async with (
            running(net, TRACKER_SEED, CONFIG, store) as tracker,
            calling(net, SEEDS[0], tracker) as node,
        ):
            await join(node)
            await trio.sleep(35)
    (known,) = (await open_books(CONFIG, store, Clocks(clock))).reputations.all()
    assert (known.peer_id, known.joins, known.offline) == (node.peer_id, 2, 2)
