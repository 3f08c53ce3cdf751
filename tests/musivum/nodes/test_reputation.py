"""What is counted of an identity, and that a false report costs nobody but its reporter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from musivum.config import MusivumConfig
from musivum.nodes import reputation
from musivum.nodes.reputation import HALF_LIFE, AuditCounts, Reputations, score, weight_of
from musivum.placing.probes import MAX_REPORTS, PROBE_TIMEOUT, REPORT_WINDOW
from musivum.store import SavedReputation
from musivum.store.memory import MemoryStore
from musivum.testing import Caller, calling, running
from p2p.streams import FrameStream
from p2p.testing import MemoryNetwork
from tessella.core.ids import ModelId, PeerId
from tessella.core.messages import (
    STATUS,
    Accepted,
    Announce,
    AskPeers,
    Assigned,
    Fail,
    Peers,
    Ready,
    ReportFailure,
    Status,
)
from tessella.core.peers import decode_rows

TRACKER_SEED = b"t" * 32
SEEDS = [bytes([number]) * 32 for number in (1, 2)]
CONFIG = MusivumConfig(min_vram_mb=0)
BEAT = Announce("Healthy", 0, 20.0)
A, B, C = (PeerId(name) for name in "abc")


def test_everything_that_becomes_of_a_node_is_counted_once() -> None:
    known = Reputations()
    assert known.joined(A) == SavedReputation(peer_id=A, joins=1)
    assert known.went_offline(A) == SavedReputation(peer_id=A, joins=1, offline=1)
    assert known.reported(A, B) == (
        SavedReputation(peer_id=A, joins=1, offline=1, reports_made=1),
        SavedReputation(peer_id=B, accused=1),
    )
    assert known.confirmed(A, B) == (
        SavedReputation(peer_id=A, joins=1, offline=1, reports_made=1, reports_confirmed=1),
        SavedReputation(peer_id=B, accused=1, accused_confirmed=1),
    )
    assert [each.peer_id for each in known.all()] == [A, B]
    assert known.of(B).accused == 1
    assert known.of(C) == SavedReputation(peer_id=C)
    assert len(known) == 2, "to ask for a stranger does not make it known"


def test_counting_goes_on_where_the_store_left_off() -> None:
    known = Reputations([SavedReputation(peer_id=A, joins=7, accused=2)])
    assert known.joined(A) == SavedReputation(peer_id=A, joins=8, accused=2)


def test_the_table_has_an_end_and_whoever_did_least_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reputation, "MAX_KNOWN", 2)
    forgotten: list[PeerId] = []
    known = Reputations(
        [SavedReputation(peer_id=A, joins=1), SavedReputation(peer_id=B, accused=9)],
        forgotten.append,
    )
    known.joined(A)
    assert forgotten == [], "who is known already needs no room"
    known.joined(C)
    assert forgotten == [B], "to be accused is nothing that it did"
    assert [each.peer_id for each in known.all()] == [A, C]


BLANK = SavedReputation(peer_id=A)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (replace(BLANK, joins=1), BLANK),
        (BLANK, replace(BLANK, offline=1)),
        (replace(BLANK, offline=1), replace(BLANK, accused_confirmed=1)),
        (replace(BLANK, joins=9, offline=1), replace(BLANK, joins=1, offline=1)),
    ],
)
def test_a_score_rises_with_joins_and_falls_with_failures(
    better: SavedReputation, worse: SavedReputation
) -> None:
    assert 0 < score(worse) < score(better) < 1


NOW = 1_800_000_000.0
NONE = AuditCounts(at=NOW)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (NONE.counted(NOW, passed=1), NONE),
        (NONE, NONE.counted(NOW, rejected=1)),
        (NONE.counted(NOW, rejected=1), NONE.counted(NOW, rejected=2)),
        (NONE, NONE.counted(NOW, slashes=1)),
        (NONE.counted(NOW, rejected=3), NONE.counted(NOW, rejected=3, slashes=1)),
        (NONE.counted(NOW, passed=10), NONE.counted(NOW, passed=10, rejected=2)),
    ],
)
def test_what_audits_find_moves_a_score(better: AuditCounts, worse: AuditCounts) -> None:
    assert 0 < score(BLANK, worse) < score(BLANK, better) < 1


def test_a_month_halves_what_audits_found() -> None:
    counts = NONE.counted(NOW, passed=4, rejected=2, slashes=1)
    assert counts.aged(NOW + HALF_LIFE) == AuditCounts(2.0, 1.0, 0.5, NOW + HALF_LIFE)
    later = counts.counted(NOW + HALF_LIFE, passed=1)
    assert later == AuditCounts(3.0, 1.0, 0.5, NOW + HALF_LIFE)
    assert counts.aged(NOW - 100) == counts, "a clock that was set back changes nothing"


def test_only_a_score_below_that_of_a_stranger_makes_a_node_dearer() -> None:
    assert weight_of(1.0) == weight_of(score(BLANK)) == 1.0
    assert weight_of(0.25) == 1.5
    assert weight_of(0.0) == 2.0


def test_a_score_does_not_depend_on_what_others_say() -> None:
    said = replace(BLANK, accused=1000, reports_made=1000, reports_confirmed=1000)
    assert score(said) == score(BLANK) == 0.5


async def join(node: Caller) -> None:
    answer = await node.register()
    assert isinstance(answer, Assigned)
    assert await node.call(Ready(answer.layers)) == Accepted()


async def status_of(asking: Caller, peer: PeerId) -> str:
    answer = await asking.ask(AskPeers(ModelId("")))
    assert isinstance(answer, Peers)
    return {row.peer_id: row.status for row in decode_rows(answer.rows)}[peer]


async def counters(store: MemoryStore, peer: PeerId) -> tuple[int, int, int, int]:
    known = {each.peer_id: each for each in (await store.load()).reputation}[peer]
    return known.reports_made, known.reports_confirmed, known.accused, known.accused_confirmed


async def answers_status(stream: FrameStream) -> None:
    await stream.receive(timeout=5)
    await stream.send(Status(b"{}"))


async def says_nothing(stream: FrameStream) -> None:
    await trio.sleep_forever()


async def test_fifty_false_reports_cost_a_rival_neither_its_row_nor_its_name(
    autojump_clock: MockClock,
) -> None:
    net, store = MemoryNetwork(), MemoryStore()
    async with (
        running(net, TRACKER_SEED, CONFIG, store) as tracker,
        calling(net, SEEDS[0], tracker) as griefer,
        calling(net, SEEDS[1], tracker) as rival,
    ):
        rival.host.serve(STATUS, answers_status, streams=8, per_peer=8)
        await join(griefer)
        await join(rival)
        taken = 0
        for _ in range(50):
            answer = await griefer.call(ReportFailure(rival.peer_id, "peer_silent"))
            taken += answer == Accepted()
            await trio.sleep(2)
            await rival.call(BEAT)
            await griefer.call(BEAT)
            assert await status_of(griefer, rival.peer_id) == "Healthy"
        windows = 1 + 50 * 2 / REPORT_WINDOW
        assert MAX_REPORTS <= taken <= MAX_REPORTS * windows
        assert await counters(store, griefer.peer_id) == (taken, 0, 0, 0)
        assert await counters(store, rival.peer_id) == (0, 0, taken, 0)


async def test_beyond_a_few_reports_a_minute_a_node_is_told_to_wait(
    autojump_clock: MockClock,
) -> None:
    net = MemoryNetwork()
    async with (
        running(net, TRACKER_SEED, CONFIG) as tracker,
        calling(net, SEEDS[0], tracker) as griefer,
        calling(net, SEEDS[1], tracker) as rival,
    ):
        await join(griefer)
        await join(rival)
        report = ReportFailure(rival.peer_id, "x")
        answers = [await griefer.call(report) for _ in range(MAX_REPORTS + 1)]
        assert answers[:-1] == [Accepted()] * MAX_REPORTS
        assert isinstance(answers[-1], Fail)
        assert (answers[-1].code, answers[-1].retry) == ("too_many_requests", True)
        other = await rival.call(ReportFailure(griefer.peer_id, "x"))
        assert other == Accepted(), "one that reports much keeps nobody else from it"


async def test_a_node_that_takes_connections_and_never_answers_is_found_lost(
    autojump_clock: MockClock,
) -> None:
    net, store = MemoryNetwork(), MemoryStore()
    async with (
        running(net, TRACKER_SEED, CONFIG, store) as tracker,
        calling(net, SEEDS[0], tracker) as reporter,
        calling(net, SEEDS[1], tracker) as hangs,
    ):
        hangs.host.serve(STATUS, says_nothing, streams=8, per_peer=8)
        await join(reporter)
        await join(hangs)
        assert await reporter.call(ReportFailure(hangs.peer_id, "peer_silent")) == Accepted()
        await trio.sleep(PROBE_TIMEOUT - 1)
        assert await status_of(reporter, hangs.peer_id) == "Healthy"
        await trio.sleep(2)
        assert await status_of(reporter, hangs.peer_id) == "Offline"
        assert await counters(store, reporter.peer_id) == (1, 1, 0, 0)
        assert await counters(store, hangs.peer_id) == (0, 0, 1, 1)
        assert await hangs.call(BEAT) == Accepted()
        assert await status_of(reporter, hangs.peer_id) == "Healthy"


async def test_a_node_that_nothing_reaches_is_found_lost_within_the_three_steps(
    autojump_clock: MockClock,
) -> None:
    net, store = MemoryNetwork(), MemoryStore()
    async with (
        running(net, TRACKER_SEED, CONFIG, store) as tracker,
        calling(net, SEEDS[0], tracker) as reporter,
        calling(net, SEEDS[1], tracker) as cut_off,
    ):
        await join(reporter)
        await join(cut_off)
        net.silence(tracker.peer_id, cut_off.peer_id)
        assert await reporter.call(ReportFailure(cut_off.peer_id, "peer_silent")) == Accepted()
        await trio.sleep(3 * PROBE_TIMEOUT + 0.1)
        assert await status_of(reporter, cut_off.peer_id) == "Offline"
        assert (await counters(store, cut_off.peer_id))[3] == 1


async def test_an_accusation_of_who_is_gone_already_counts_for_nobody(
    autojump_clock: MockClock,
) -> None:
    net, store = MemoryNetwork(), MemoryStore()
    async with (
        running(net, TRACKER_SEED, CONFIG, store) as tracker,
        calling(net, SEEDS[0], tracker) as reporter,
    ):
        await join(reporter)
        async with calling(net, SEEDS[1], tracker) as dead:
            await join(dead)
        for _ in range(4):
            await trio.sleep(9)
            await reporter.call(BEAT)
        assert await status_of(reporter, dead.peer_id) == "Offline"
        assert await reporter.call(ReportFailure(dead.peer_id, "peer_gone")) == Accepted()
        await trio.sleep(20)
        assert await counters(store, reporter.peer_id) == (0, 0, 0, 0)
        assert await counters(store, dead.peer_id) == (0, 0, 0, 0)
