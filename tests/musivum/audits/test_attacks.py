"""What cheats and liars get, in figures: `-s` prints them."""

from __future__ import annotations

import random
import secrets
import statistics
from dataclasses import dataclass

import pytest
import trio
from trio.testing import MockClock

from musivum.ledger import Settlement
from musivum.placing.grants import Grants
from musivum.testing_http import answering, http_node
from p2p.testing import MemoryNetwork
from tessella.core.draw import draw_chain
from tessella.core.errors import ModelUnavailable
from tessella.core.ids import PeerId
from tessella.core.messages import AskGrant, AuditReport, Ticket, decode_sealed
from tests.musivum.audits.room import (
    BAD,
    CONFIG,
    GOOD,
    MODEL,
    SAYS_FRAUD,
    US,
    Room,
    a_room,
    honest_noise,
    peer,
)

HOPS = 1000
TOKEN = "a token of 256 bits"


def figures(line: str) -> None:
    """Show what a run came to."""
    print(f"\n{line}")  # noqa: T201 - what a run is for


@dataclass
class Lies:
    """Auditors of whom some say of everybody what they like."""

    liars: frozenset[PeerId]
    lie: AuditReport = BAD
    told: int = 0

    def says(self, auditor: PeerId, _: Settlement) -> AuditReport:
        if auditor in self.liars:
            self.told += 1
            return self.lie
        return GOOD


@pytest.mark.parametrize("lie", [BAD, SAYS_FRAUD], ids=["rejects", "cries fraud"])
async def test_one_auditor_that_always_lies_slashes_nobody(
    room: Room, lie: AuditReport, autojump_clock: MockClock
) -> None:
    worker, liar = room.joins(1), room.joins(11)
    others = [room.joins(number) for number in range(12, 15)]
    auditors, lies = [liar, *others], Lies(frozenset([liar]), lie)
    for _ in range(HOPS // 10):
        room.works(worker, 10)
        # The liar works too, as a suspect has to before it may judge again.
        room.works(liar, 10)
        await room.audited(auditors, lies.says)
    found = room.audits.standings.of(worker)
    slashed = room.audits.counters()["slashed"]
    figures(f"liar auditors=4 liars=1 hops={HOPS} lies={lies.told} slashed={slashed}")
    assert lies.told >= 1, "it has to have had its chance"
    assert room.audits.barred(worker) is None
    assert all(each.auditor != liar for each in found.record.findings)
    assert slashed == 0


async def test_where_nobody_else_can_look_one_auditor_that_always_lies_slashes_nobody(
    room: Room, autojump_clock: MockClock
) -> None:
    worker, liar = room.joins(1), room.joins(11)
    for _ in range(20):
        room.works(worker, 5)
        await room.audited([liar], lambda *_: BAD)
        room.time.jump(700)
        await room.audits.tick()
    assert room.audits.counters()["rejected"] >= 20
    assert room.audits.suspects(worker), "it is watched, and that is all"
    assert room.audits.barred(worker) is None


@pytest.mark.slow
async def test_two_liars_of_twenty_slash_nobody(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    slashed, told = 0, 0
    for seed in range(8):
        monkeypatch.setattr(secrets, "token_bytes", random.Random(seed).randbytes)
        room = await a_room(autojump_clock)
        worker, auditors = room.joins(1), [room.joins(number) for number in range(11, 31)]
        lies = Lies(frozenset(auditors[:2]))
        for _ in range(HOPS // 50):
            room.works(worker, 50)
            # Auditors are workers, and the liars do as much as anybody to be believed.
            for auditor in auditors:
                room.works(auditor, 5)
            await room.audited(auditors, lies.says)
        slashed += sum(map(room.audits.is_barred, [worker, *auditors[2:]]))
        told += lies.told
        counters = room.audits.counters()
        assert counters["open"] == 0, "they keep nobody from being looked at"
        assert counters["passed"] > 0.99 * counters["drawn"]
    figures(f"liars auditors=20 liars=2 seeds=8 hops={8 * 3 * HOPS} lies={told} slashed={slashed}")
    assert slashed == 0


@dataclass
class Caught:
    """After how many hops a cheat was seen first, and when it was barred."""

    seen: int
    barred: int


async def cheating(clock: MockClock, seed: int, share: float, most: int = 5000) -> Caught:
    """A veteran that cheats in a share of its hops, until it is barred."""
    rng = random.Random(seed)
    room = await a_room(clock)
    worker, auditors = room.joins(1), [room.joins(number) for number in range(11, 15)]
    room.works(worker, 400)
    await room.audited(auditors, lambda *_: GOOD)
    bad, seen = set[bytes](), 0

    def says(_: PeerId, hop: Settlement) -> AuditReport:
        return BAD if hop.claim.request_id in bad else honest_noise(rng)

    for hops in range(1, most):
        (hop,) = room.works(worker)
        if rng.random() < share:
            bad.add(hop.claim.request_id)
        if room.audits.counters()["open"]:
            await room.audited(auditors, says)
        if room.audits.suspects(worker) and not seen:
            seen = hops
        if room.audits.is_barred(worker):
            return Caught(seen, hops)
    raise AssertionError(f"not caught in {most} hops")


async def test_a_cheat_of_every_hop_is_barred_soon(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(secrets, "token_bytes", random.Random(1).randbytes)
    caught = await cheating(autojump_clock, 1, 1.0)
    assert caught.barred <= caught.seen + 1, "the very next hop is looked at"


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_cheat_of_every_tenth_hop_is_barred(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    caught = []
    for seed in range(200):
        monkeypatch.setattr(secrets, "token_bytes", random.Random(seed).randbytes)
        caught.append(await cheating(autojump_clock, seed, 0.1))
    seen = sorted(each.seen for each in caught)
    barred = sorted(each.barred for each in caught)
    figures(
        f"cheat share=0.10 p=0.05 seeds=200 seen median={statistics.median(seen):.0f} "
        f"p90={seen[179]} barred median={statistics.median(barred):.0f} p90={barred[179]}"
    )
    # One hop in 200 is a drawn lie: half are seen within ln 2 times as many.
    assert 80 < statistics.median(seen) < 200
    assert statistics.median(barred) < 400


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_fifty_honest_workers_are_never_slashed(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(secrets, "token_bytes", random.Random(3).randbytes)
    room, rng = await a_room(autojump_clock), random.Random(3)
    workers = [room.joins(number) for number in range(1, 51)]
    for _ in range(HOPS // 10):
        for worker in workers:
            room.works(worker, 10)
        await room.audited(workers, lambda *_: honest_noise(rng))
    counters = room.audits.counters()
    suspects = sum(map(room.audits.suspects, workers))
    figures(
        f"honest workers=50 hops={50 * HOPS} audits={counters['drawn']} "
        f"rejected={counters['rejected']} suspects={suspects} slashed={counters['slashed']}"
    )
    assert counters["drawn"] > 2500
    assert counters["passed"] == counters["drawn"]
    assert (counters["rejected"], suspects, counters["slashed"]) == (0, 0, 0)


async def test_who_is_slashed_is_in_no_grant_and_no_list_from_that_moment_on(
    room: Room, autojump_clock: MockClock
) -> None:
    culprit, honest = room.joins(1), room.joins(2)
    rng = random.Random(1).random
    grants = Grants(US, CONFIG, room.books, room.ledger, room.audits, rng)
    asked = AskGrant(MODEL, 10, False, b"")

    async def entries() -> set[PeerId]:
        granted = [await grants.grant(peer(99), asked) for _ in range(30)]
        tickets = [decode_sealed(each.ticket, Ticket) for each in granted]
        stages = [stage for ticket in tickets for stage in (*ticket.chain, *ticket.spares)]
        return {stage.peer_id for stage in stages}

    assert await entries() == {culprit, honest}
    auditors = [room.joins(number) for number in (11, 12)]
    for auditor in auditors:
        await room.asks(auditor)
    room.works(culprit, 2)
    await room.audited(auditors, lambda *_: BAD)
    assert room.audits.is_barred(culprit)
    assert culprit not in await entries()
    assert culprit not in [node.peer_id for node in room.books.roster.nodes()]
    for auditor in (*auditors, honest):
        room.books.roster.leave(auditor)
    rows = [node.row for node in room.books.roster.nodes()]
    with pytest.raises(ModelUnavailable):
        draw_chain(rows, 12, None, random.Random(1).random)


async def test_from_one_beat_to_the_next_a_slashed_node_is_gone_and_stays_out(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with (
        answering(net, b"t" * 32, CONFIG, token=TOKEN) as door,
        http_node(net, b"a" * 32, door) as culprit,
        http_node(net, b"b" * 32, door) as honest,
        http_node(net, b"c" * 32, door) as client,
    ):
        # Each alone would serve all of it.
        for node in (culprit, honest):
            await node.join(vram_mb=64)
        before = (await door.client.get("/peers")).json()
        assert len(before) == 2
        at = trio.current_time()
        order = {"peer_id": culprit.peer_id, "reason": "caught"}
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        slashed = await door.client.post("/slash", json=order, headers=bearer)
        assert slashed.status_code == 200, slashed.text
        listed = (await door.client.get("/peers")).json()
        assert [each["peer_id"] for each in listed] == [honest.peer_id]
        for _ in range(10):
            granted = (
                await client.read("/api/v1/session_grant", model_id="small", max_tokens=10)
            ).json()
            stages = [*granted["chain"], *granted["spares"]]
            assert {stage["peer_id"] for stage in stages} == {honest.peer_id}
        figures(f"slashed sessions_after=0 gone_after_s={trio.current_time() - at:.1f} beat_s=10")
        beat = await culprit.call("/announce", {"status": "Healthy"})
        assert (beat.status_code, beat.json()["error"]["code"]) == (403, "worker_not_authorized")
        assert "caught" in beat.json()["error"]["message"]
        back = await door.client.post("/appeal", json=order, headers=bearer)
        assert back.status_code == 200
        await culprit.join(vram_mb=64)
