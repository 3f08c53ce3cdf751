"""Nodes that are moved: one at a time, for a reason, and never for good if they do not begin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from musivum.clocks import Clocks
from musivum.config import MusivumConfig
from musivum.nodes.books import Books, open_books
from musivum.nodes.registration import Wish, read_registration
from musivum.nodes.roster import Roster
from musivum.placing.moves import PASSED_OVER_SECONDS, PATIENCE_SECONDS, Moves
from musivum.placing.orchestrator import Orchestrator
from musivum.store import Change
from musivum.store.memory import MemoryStore
from musivum.testing import HOUSE, a_registration, clock
from tessella.core.errors import PeerUnreachable, StoreUnavailable
from tessella.core.formats import KvFormat
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange, holes
from tessella.core.messages import Accepted, Announce, Assigned
from tessella.core.plan import fits, terms_of
from tessella.core.shapes import DType

CONFIG = MusivumConfig(min_vram_mb=0)
WISH = read_registration(a_registration(), HOUSE)
HEAL = 30.0
# A claim of this model holds 0:4, 4:10 or 10:12. Where d is, b is as well.
SPARE = {"a": "0:4", "b": "4:10", "c": "10:12", "d": "4:10"}
NO_SPARE = {"a": "0:4", "b": "4:10", "c": "10:12"}


class Mesh:
    """A roster whose nodes do as the test says, and what is moved in it."""

    def __init__(self, books: Books, store: MemoryStore, heal: float) -> None:
        self.store = store
        self.roster: Roster = books.roster
        self.room = Orchestrator(CONFIG, books, probes=None)  # type: ignore[arg-type]
        self.moves = Moves(self.roster, self.room, self.push, heal_seconds=heal)
        self.pushed: list[str] = []
        self.deaf = False

    async def push(self, peer_id: PeerId, layers: LayerRange) -> None:
        self.pushed.append(f"{peer_id} {layers}")
        await trio.lowlevel.checkpoint()
        if self.deaf:
            raise PeerUnreachable(f"{peer_id} does not answer")

    def serve(self, name: str, layers: str, wish: Wish = WISH, step_ms: float = 20.0) -> None:
        part = LayerRange.parse(layers)
        self.roster.join(PeerId(name), replace(wish, wanted=part), 0.0)
        self.roster.ready(PeerId(name), part, 0.0)
        self.beat(name, step_ms=step_ms)

    def beat(self, name: str, status: str = "Healthy", step_ms: float = 20.0) -> str:
        """The range that a heartbeat is answered with; none if it is the node's own."""
        answer = self.room.announce(PeerId(name), Announce(status, 0, step_ms))
        return str(answer.layers) if isinstance(answer, Assigned) else ""

    async def arrive(self, name: str) -> None:
        """The node begins to load what it is wanted for, and serves it."""
        self.beat(name, "PendingLoad")
        await self.room.ready(PeerId(name), self.roster.node(PeerId(name)).row.layers)
        self.beat(name)

    def lose(self, name: str) -> None:
        self.roster.lost(PeerId(name), trio.current_time())

    def moving(self) -> dict[str, str]:
        return {node.peer_id: str(node.target) for node in self.roster.nodes() if node.target}

    def ranges(self) -> dict[str, str]:
        return {node.peer_id: str(node.row.layers) for node in self.roster.nodes()}


async def a_mesh(
    nodes: dict[str, str] | None = None, *, heal: float = 0.0, store: MemoryStore | None = None
) -> Mesh:
    kept = store or MemoryStore()
    mesh = Mesh(await open_books(CONFIG, kept, Clocks(clock)), kept, heal)
    for name, layers in (nodes or {}).items():
        mesh.serve(name, layers)
    return mesh


@asynccontextmanager
async def going_on(mesh: Mesh) -> AsyncIterator[Mesh]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mesh.moves.run)
        yield mesh
        nursery.cancel_scope.cancel()


async def test_a_hole_is_healed_when_it_is_old_enough_and_not_before(
    autojump_clock: MockClock,
) -> None:
    async with going_on(await a_mesh(SPARE, heal=HEAL)) as mesh:
        await trio.sleep(2 * HEAL)
        mesh.lose("a")
        await trio.sleep(HEAL - 1)
        assert mesh.moving() == {}
        await trio.sleep(3)
        (moved,) = mesh.moving().items()
        assert moved in (("b", "0:4"), ("d", "0:4"))
        assert mesh.pushed == [" ".join(moved)]


async def test_a_hole_that_closes_by_itself_moves_nobody(autojump_clock: MockClock) -> None:
    async with going_on(await a_mesh(SPARE, heal=HEAL)) as mesh:
        for _ in range(5):
            mesh.lose("a")
            await trio.sleep(HEAL - 5)
            mesh.beat("a")
            await trio.sleep(5)
        assert mesh.pushed == []


async def test_layers_that_somebody_loads_are_no_hole(autojump_clock: MockClock) -> None:
    async with going_on(await a_mesh(SPARE, heal=HEAL)) as mesh:
        mesh.roster.join(PeerId("e"), replace(WISH, wanted=LayerRange(0, 4)), 0.0)
        mesh.lose("a")
        await trio.sleep(10 * HEAL)
        assert mesh.pushed == []


async def test_a_node_that_only_loads_other_layers_keeps_no_hole_open(
    autojump_clock: MockClock,
) -> None:
    async with going_on(await a_mesh(SPARE, heal=HEAL)) as mesh:
        mesh.roster.join(PeerId("e"), replace(WISH, wanted=LayerRange(4, 10)), 0.0)
        mesh.lose("a")
        await trio.sleep(HEAL + 3)
        (moved,) = mesh.moving()
        await mesh.arrive(moved)
        await trio.sleep(HEAL)
        assert len(mesh.pushed) == 1


async def test_whom_we_moved_is_waited_for_while_it_loads(autojump_clock: MockClock) -> None:
    nodes = {**SPARE, "e": "4:10", "f": "10:12"}
    async with going_on(await a_mesh(nodes, heal=HEAL)) as mesh:
        mesh.lose("a")
        mesh.lose("c")
        mesh.lose("f")
        await trio.sleep(HEAL + 3)
        (moved,) = mesh.moving()
        mesh.beat(moved, "PendingLoad")
        await trio.sleep(HEAL)
        assert len(mesh.pushed) == 1
        await mesh.arrive(moved)
        await trio.sleep(3)
        assert len(mesh.pushed) == 2


async def test_one_node_with_absurd_wishes_stops_nobody(autojump_clock: MockClock) -> None:
    vast = terms_of(WISH.shape, DType.F32, context=256, slots=4096, kv=KvFormat.F32, min_vram_mb=0)
    async with going_on(await a_mesh(SPARE, heal=HEAL)) as mesh:
        mesh.serve("!", "4:5", replace(WISH, claim_mb=1 << 20, terms=vast))
        mesh.lose("a")
        await trio.sleep(HEAL + 3)
        assert mesh.moving().keys() <= {"b", "d"}
        assert len(mesh.moving()) == 1


async def test_models_whose_nodes_do_not_answer_delay_no_other(autojump_clock: MockClock) -> None:
    mesh = await a_mesh(SPARE)
    for number in range(20):
        for name, layers in SPARE.items():
            mesh.serve(f"{number} {name}", layers, replace(WISH, model=ModelId(f"a {number}")))
        mesh.lose(f"{number} a")
    mesh.lose("a")

    async def push(peer_id: PeerId, layers: LayerRange) -> None:
        if peer_id not in "bd":
            await trio.sleep(15)
            raise PeerUnreachable(peer_id)
        told.append(trio.current_time())

    told: list[float] = []
    mesh.moves = Moves(mesh.roster, mesh.room, push, heal_seconds=0)
    began = trio.current_time()
    assert len(await mesh.moves.rebalance()) == 21
    assert told == [began]
    assert trio.current_time() == began + 15


@pytest.mark.parametrize(
    ("nodes", "heal"), [(SPARE, 0.0), (NO_SPARE, HEAL)], ids=["never heals", "nobody to spare"]
)
async def test_nobody_is_moved(
    nodes: dict[str, str], heal: float, autojump_clock: MockClock
) -> None:
    async with going_on(await a_mesh(nodes, heal=heal)) as mesh:
        mesh.lose("a")
        await trio.sleep(3600)
        assert mesh.moving() == {}
        assert mesh.pushed == []


async def test_an_operator_may_move_where_nothing_is_healed(autojump_clock: MockClock) -> None:
    mesh = await a_mesh(SPARE)
    mesh.lose("a")
    (move,) = await mesh.moves.rebalance()
    assert mesh.moving() == {move.peer_id: "0:4"}
    assert (str(move.old), str(move.new), move.reason) == (
        "4:10",
        "0:4",
        "nobody holds layers 0:4",
    )
    assert await mesh.moves.rebalance() == [], "one at a time"


async def test_a_heartbeat_is_answered_with_the_range_until_the_node_begins(
    autojump_clock: MockClock,
) -> None:
    mesh = await a_mesh(SPARE)
    mesh.deaf = True
    mesh.lose("a")
    (move,) = await mesh.moves.rebalance()
    name = move.peer_id
    for word in ("Healthy", "Draining", "Draining"):
        assert mesh.beat(name, word) == "0:4"
    assert mesh.ranges()[name] == "4:10"
    assert mesh.beat(name, "PendingLoad") == ""
    assert mesh.ranges()[name] == "0:4"
    assert await mesh.room.ready(name, LayerRange(0, 4)) == Accepted()
    assert mesh.beat(name) == ""


async def test_a_rebalance_goes_on_until_nothing_is_worth_it(autojump_clock: MockClock) -> None:
    crowd = {**NO_SPARE, **dict.fromkeys("defgh", "0:4")}
    async with going_on(await a_mesh(crowd)) as mesh:
        (first,) = await mesh.moves.rebalance()
        moved = [first.peer_id]
        for _ in range(20):
            await trio.sleep(3)
            assert len(mesh.moving()) <= 1
            for name in mesh.moving():
                moved.append(PeerId(name))
                await mesh.arrive(name)
                serving = {node.row.layers for node in mesh.roster.nodes() if node.row.serves}
                assert holes(serving, 12) == []
        assert 2 <= len(moved) - 1 == len(mesh.pushed)
        assert sorted(set(mesh.ranges().values())) == ["0:4", "10:12", "4:10"]
        await trio.sleep(3600)
        assert len(mesh.pushed) == len(moved) - 1, "at rest"
        assert await mesh.moves.rebalance() == []


async def test_what_came_to_rest_is_not_moved_again_unasked(autojump_clock: MockClock) -> None:
    async with going_on(await a_mesh(NO_SPARE)) as mesh:
        assert await mesh.moves.rebalance() == []
        await trio.sleep(5)
        for name in "defgh":
            mesh.serve(name, "0:4")
        await trio.sleep(60)
        assert mesh.pushed == []


async def test_a_node_that_does_not_begin_keeps_its_range_and_another_goes(
    autojump_clock: MockClock,
) -> None:
    async with going_on(await a_mesh({**SPARE, "e": "4:10"}, heal=HEAL)) as mesh:
        mesh.lose("a")
        await trio.sleep(HEAL + 2)
        ((stuck, _),) = mesh.moving().items()
        await trio.sleep(PATIENCE_SECONDS - 5)
        assert mesh.beat(stuck) == "0:4"
        await trio.sleep(10)
        assert mesh.beat(stuck) == ""
        assert (mesh.moving(), mesh.ranges()[stuck]) == ({}, "4:10")
        await trio.sleep(HEAL)
        ((other, layers),) = mesh.moving().items()
        assert (other != stuck, layers) == (True, "0:4")
        await mesh.arrive(other)
        await trio.sleep(PASSED_OVER_SECONDS)
        assert [line.split()[0] for line in mesh.pushed] == [stuck, other]


async def test_what_was_not_worth_it_during_a_move_may_be_when_it_is_taken_back(
    autojump_clock: MockClock,
) -> None:
    async with going_on(await a_mesh({**SPARE, "e": "4:10"}, heal=HEAL)) as mesh:
        mesh.lose("a")
        (stuck,) = await mesh.moves.rebalance()
        await trio.sleep(PATIENCE_SECONDS + HEAL + 5)
        ((other, layers),) = mesh.moving().items()
        assert (other != stuck.peer_id, layers) == (True, "0:4")


async def test_a_node_that_did_not_begin_is_asked_again_in_the_end(
    autojump_clock: MockClock,
) -> None:
    async with going_on(await a_mesh({"a": "0:4"}, heal=HEAL)) as mesh:
        large = replace(WISH, claim_mb=13)
        for name in "bd":
            mesh.serve(name, "4:12", large)
        mesh.lose("a")
        await trio.sleep(HEAL + PATIENCE_SECONDS + 5)
        ((first),) = {line.split()[0] for line in mesh.pushed}
        await trio.sleep(HEAL + PATIENCE_SECONDS + 5)
        assert {line.split()[0] for line in mesh.pushed} == {"b", "d"}
        assert len(mesh.pushed) == 2
        await trio.sleep(PASSED_OVER_SECONDS)
        assert [line.split()[0] for line in mesh.pushed].count(first) == 2


async def test_a_node_that_leaves_in_mid_move_lets_another_go(autojump_clock: MockClock) -> None:
    async with going_on(await a_mesh({**SPARE, "e": "4:10"}, heal=HEAL)) as mesh:
        mesh.lose("a")
        await trio.sleep(HEAL + 2)
        ((left, _),) = mesh.moving().items()
        await mesh.room.deregister(PeerId(left))
        await trio.sleep(HEAL + 2)
        ((other, layers),) = mesh.moving().items()
        assert (other != left, layers) == (True, "0:4")
        await trio.sleep(PATIENCE_SECONDS)


async def test_what_moves_in_one_model_does_not_touch_another(autojump_clock: MockClock) -> None:
    mesh = await a_mesh(SPARE, heal=HEAL)
    other = replace(WISH, model=ModelId("other"))
    for name, layers in SPARE.items():
        mesh.serve(f"other {name}", layers, other)
    untouched = {name: layers for name, layers in mesh.ranges().items() if "other" in name}
    async with going_on(mesh):
        mesh.lose("a")
        await trio.sleep(HEAL + 2)
        assert [name for name in mesh.moving() if "other" in name] == []
        mesh.lose("other c")
        await trio.sleep(HEAL + 2)
        assert sorted(mesh.moving().values()) == ["0:4", "10:12"], "one in each model"
        for name in list(mesh.moving()):
            if "other" not in name:
                await mesh.arrive(name)
        assert {name: mesh.ranges()[name] for name in untouched} == untouched


async def test_after_a_restart_the_range_is_still_wanted_and_not_for_ever(
    autojump_clock: MockClock,
) -> None:
    store = MemoryStore()
    before = await a_mesh(SPARE, store=store)
    before.lose("a")
    (move,) = await before.moves.rebalance()
    for name in "bcd":
        before.beat(name)
    await trio.sleep(500)
    async with going_on(await a_mesh(store=store)) as mesh:
        assert mesh.moving() == {move.peer_id: "0:4"}
        assert mesh.beat(move.peer_id) == "0:4"
        await trio.sleep(PATIENCE_SECONDS - 5)
        assert mesh.beat(move.peer_id) == "0:4"
        await trio.sleep(10)
        assert mesh.beat(move.peer_id) == ""


async def test_a_move_that_cannot_be_kept_is_not_wanted(autojump_clock: MockClock) -> None:
    mesh = await a_mesh(SPARE)
    mesh.lose("a")
    mesh.store.error = StoreUnavailable("the disk is full")
    with pytest.raises(StoreUnavailable):
        await mesh.moves.rebalance()
    assert (mesh.moving(), mesh.pushed) == ({}, [])
    mesh.store.error = None
    assert len(await mesh.moves.rebalance()) == 1


async def test_a_store_that_fails_for_a_while_only_delays_the_healing(
    autojump_clock: MockClock,
) -> None:
    async with going_on(await a_mesh(SPARE, heal=HEAL)) as mesh:
        mesh.lose("a")
        mesh.store.error = StoreUnavailable("the disk is full")
        await trio.sleep(HEAL + 60)
        assert (mesh.moving(), mesh.pushed) == ({}, [])
        mesh.store.error = None
        await trio.sleep(2)
        ((name, _),) = mesh.moving().items()
        mesh.store.error = StoreUnavailable("again")
        await trio.sleep(PATIENCE_SECONDS + 2)
        assert mesh.beat(name) == ""


async def test_a_model_whose_nodes_all_leave_meanwhile_is_passed_over(
    autojump_clock: MockClock,
) -> None:
    mesh = await a_mesh(SPARE)
    other = replace(WISH, model=ModelId("zzz"))
    for name, layers in SPARE.items():
        mesh.serve(f"other {name}", layers, other)
    mesh.lose("a")
    mesh.lose("other a")

    async def others_leave(peer_id: PeerId, layers: LayerRange) -> None:
        for name in SPARE:
            mesh.roster.leave(PeerId(f"other {name}"))

    mesh.moves = Moves(mesh.roster, mesh.room, others_leave, heal_seconds=0)
    begun = await mesh.moves.rebalance()
    assert any("other" not in move.peer_id for move in begun)
    await mesh.moves.tick(trio.current_time())
    assert mesh.roster.models() == ["small"]


async def test_a_node_that_leaves_while_another_is_given_up_ends_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = await a_mesh(SPARE)
    for name, layers in SPARE.items():
        mesh.serve(f"other {name}", layers, replace(WISH, model=ModelId("other")))
    mesh.lose("a")
    mesh.lose("other a")
    first, second = sorted(move.peer_id for move in await mesh.moves.rebalance())
    save = mesh.store.save

    async def second_leaves(*changes: Change) -> None:
        mesh.roster.leave(second)
        await save(*changes)

    monkeypatch.setattr(mesh.store, "save", second_leaves)
    await trio.sleep(PATIENCE_SECONDS + 1)
    await mesh.moves.tick(trio.current_time())
    assert mesh.beat(first) == ""
    assert mesh.roster.find(second) is None


async def test_no_claim_is_overdrawn_where_nodes_keep_their_layers_differently(
    autojump_clock: MockClock,
) -> None:
    # Its layers cost less than those of the others, its embedding twice as much.
    shape = WISH.shape
    dear = {"context": 256, "slots": 2, "kv": KvFormat.F32, "min_vram_mb": 0}
    cheap = {"context": 256, "slots": 1, "kv": KvFormat.Q4_0, "min_vram_mb": 0}
    heavy_ends = replace(WISH, claim_mb=3, terms=terms_of(shape, DType.F32, **cheap))  # type: ignore[arg-type]
    heavy_layers = replace(WISH, claim_mb=40, terms=terms_of(shape, DType.F16, **dear))  # type: ignore[arg-type]
    mesh = await a_mesh()
    mesh.serve("a", "0:1", heavy_layers)
    mesh.serve("b", "1:12", heavy_layers)
    for name in "cd":
        mesh.serve(name, "1:3", heavy_ends)
    mesh.lose("a")
    light = mesh.roster.node(PeerId("c"))
    assert fits(heavy_layers.terms, LayerRange(0, 1), light.wish.claim_mb)
    assert not fits(light.terms, LayerRange(0, 1), light.wish.claim_mb)
    assert await mesh.moves.rebalance() == []
    mesh.serve("e", "1:3", replace(heavy_ends, claim_mb=4))
    (move,) = await mesh.moves.rebalance()
    assert (move.peer_id, str(move.new)) == ("e", "0:1")
