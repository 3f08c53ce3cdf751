"""Two stages that contradict each other: the one before is audited, and what is found pays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import trio
from trio.testing import MockClock

from musivum.audits.queue import OPEN_SECONDS
from musivum.ledger import Disputed
from musivum.placing.grants import Grants
from musivum.testing import SMALL, clock
from tessella.core.contracts import contract_of
from tessella.core.errors import NotAuthorized, StoreUnavailable
from tessella.core.ids import PeerId
from tessella.core.messages import AskGrant, AuditReport, AuditTask, Ticket, decode_sealed
from tessella.core.proofs import SignedProof
from tessella.core.settlement import MICRO_PER_LAYER_TOKEN
from tests.core.work import Work, identity
from tests.musivum.audits.room import (
    BAD,
    CONFIG,
    FIRST,
    IS_UNABLE,
    LAST,
    MODEL,
    SAYS_FRAUD,
    SEES_A_SKETCH,
    SEES_NOTHING,
    SEES_TOO_LITTLE,
    US,
    Room,
    a_room,
    peer,
    said,
)

PAY = 6 * 50 * MICRO_PER_LAYER_TOKEN
# In f32 nearly nothing is lost.
GOOD = replace(said(median=1e-7), worst=1e-6)
A_SKETCH, NO_SKETCH = replace(GOOD, found="sketched"), said("sketched", median=0.5)
OF_INPUTS, OF_OUTPUTS = (b"x", b""), (b"", b"x")


@dataclass
class Chain:
    """A chain of two real workers, and auditors that hold the layers of the first."""

    room: Room
    workers: list[PeerId]
    auditors: list[PeerId]
    requests: int = 0
    proofs: list[SignedProof] = field(default_factory=list)

    async def serves(
        self,
        first: tuple[bytes, bytes] = (b"", b""),
        second: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        """Another request, whose stages prove it; salts make rows other than those that went."""
        self.requests += 1
        names = [1 if each == peer(1) else int(each == peer(2)) + 1 for each in self.workers]
        work = Work(
            [identity(name) for name in names],
            layers_each=6,
            request_id=self.requests.to_bytes(16, "big"),
            issued_at=clock(),
            changes={"model": MODEL, "contract": contract_of(SMALL)},
        )
        self.proofs = [work.proof(0, salt=first), work.proof(1, salt=second)]
        await self.room.ledger.settle(self.proofs)

    async def says(self, *reports: AuditReport) -> list[AuditTask]:
        """What auditors say of what they are given, one after another, whoever is given it."""
        return [await self._says(report) for report in reports]

    async def _says(self, report: AuditReport) -> AuditTask:
        for _ in range(100):
            for auditor in self.auditors:
                if (task := await self.room.asks(auditor)) is not None:
                    await self.room.tells(auditor, task, report)
                    return task
            await trio.sleep(10)
        raise AssertionError("nobody is given anything")

    async def became(self) -> list[str]:
        """What is said of the proofs of the last request, brought once more."""
        return [each.became.value for each in await self.room.ledger.settle(self.proofs)]

    async def paid(self) -> list[int]:
        """Micro-credits of both."""
        return [await self.room.ledger.balance(each) for each in self.workers]


@pytest.fixture
async def chain(room: Room) -> Chain:
    """Nobody worked yet; the auditors were heard of."""
    workers = [room.joins(1, FIRST, "f32"), room.joins(2, LAST, "f32")]
    auditors = [room.joins(number, FIRST, "f32") for number in (11, 12, 13)]
    for auditor in auditors:
        assert await room.asks(auditor) is None
    return Chain(room, workers, auditors)


async def test_two_that_bear_the_first_out_pay_it_and_refuse_who_contradicts(
    chain: Chain, autojump_clock: MockClock
) -> None:
    await chain.serves(second=OF_INPUTS)
    assert await chain.paid() == [0, 0]
    tasks = await chain.says(GOOD, GOOD)
    assert {task.proof for task in tasks} == {chain.proofs[0].payload}
    assert await chain.paid() == [PAY, 0]
    assert chain.room.audits.counters()["open"] == 0, "what was found is not looked for again"


@pytest.mark.parametrize(
    "reports",
    [(BAD, BAD), (SAYS_FRAUD, SAYS_FRAUD), (NO_SKETCH, NO_SKETCH), (BAD, GOOD, BAD)],
    ids=["other rows", "rows that were not committed to", "another sketch", "a friend among them"],
)
async def test_a_stage_whose_rows_are_not_right_is_refused_and_nothing_held_against_the_other(
    chain: Chain, reports: tuple[AuditReport, ...], autojump_clock: MockClock
) -> None:
    await chain.serves(first=OF_OUTPUTS)
    await chain.says(*reports)
    assert await chain.became() == ["refused", "waiting"], "nobody else tells how much it did"
    assert not chain.room.audits.suspects(chain.workers[1])
    assert not chain.room.audits.are_at_odds(*chain.workers), "the other one did nothing"


@pytest.mark.parametrize(
    ("reports", "counted"),
    [
        ((A_SKETCH, A_SKETCH), "unruled"),
        ((SEES_TOO_LITTLE, SEES_TOO_LITTLE), "withheld"),
        ((SEES_NOTHING, SEES_NOTHING), "unavailable"),
        ((SEES_NOTHING, SEES_TOO_LITTLE), "unavailable"),
        ((IS_UNABLE, IS_UNABLE, IS_UNABLE), "expired"),
        ((GOOD,), "unruled"),
        ((BAD,), "unruled"),
        ((GOOD, BAD), "undecided"),
        ((), "expired"),
    ],
    ids=[
        "the work alone",
        "nothing that left",
        "nothing that came",
        "not the same",
        "nobody could",
        "one says so",
        "one says not",
        "two sides",
        "nobody looked",
    ],
)
async def test_what_was_not_seen_by_two_leaves_both_waiting_for_half_and_apart(
    chain: Chain, reports: tuple[AuditReport, ...], counted: str, autojump_clock: MockClock
) -> None:
    room = chain.room
    await chain.serves(first=OF_OUTPUTS)
    await chain.says(*reports)
    again = await room.ledger.disputes()
    room.audits.disputed(again)
    assert len(again) == 1
    assert await chain.paid() == [0, 0]
    room.time.jump(OPEN_SECONDS + 1000)
    await room.audits.tick()
    assert await chain.paid() == [0, 0]
    counters = room.audits.counters()
    assert (counters["open"], counters[counted], counters["unruled"]) == (0, 1, 1)
    await chain.room.ledger.settle(chain.proofs)
    assert room.audits.counters()["open"] == 0
    assert room.audits.are_at_odds(*chain.workers)
    assert room.audits.are_at_odds(*reversed(chain.workers))
    assert not room.audits.suspects(chain.workers[1])


async def test_a_dispute_that_comes_up_when_the_rows_are_gone_is_no_audit(
    chain: Chain, autojump_clock: MockClock
) -> None:
    room = chain.room
    found = Disputed(room.hop(chain.workers).claim, SignedProof(b"p", bytes(64)), clock() - 3001.0)
    room.audits.disputed([found])
    assert room.audits.counters()["open"] == 0
    assert room.audits.counters()["stale"] == 1
    room.audits.disputed([replace(found, received_at=clock() - 2999.0)])
    assert room.audits.counters()["open"] == 1


async def test_neither_of_the_two_is_asked_about_the_other(
    room: Room, autojump_clock: MockClock
) -> None:
    workers = [room.joins(1, FIRST, "f32"), room.joins(2, weights="f32")]
    chain = Chain(room, workers, [])
    await chain.serves(second=OF_INPUTS)
    for _ in range(100):
        assert [await room.asks(worker) for worker in workers] == [None, None]
        room.time.jump(30)


async def test_a_dispute_is_looked_at_though_its_worker_is_seldom_drawn(
    chain: Chain, autojump_clock: MockClock
) -> None:
    chain.room.works(chain.workers[0], 400)
    for audit in chain.room.audits._open:
        chain.room.audits._open.close(audit)
    await chain.serves(second=OF_INPUTS)
    assert chain.room.audits.counters()["disputed"] == 1
    assert chain.room.audits.counters()["open"] == 1


async def test_a_musivum_that_starts_again_audits_what_is_disputed(
    chain: Chain, autojump_clock: MockClock
) -> None:
    await chain.serves(second=OF_INPUTS)
    chain.room = await chain.room.reopened()
    await chain.says(GOOD, GOOD)
    assert await chain.paid() == [PAY, 0]


async def test_what_the_store_did_not_take_is_told_again(
    chain: Chain, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chain.serves(second=OF_INPUTS)
    rule, tries = chain.room.ledger.rule, 0

    async def fails_once(*said: object) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StoreUnavailable("no room")
        await rule(*said)  # type: ignore[arg-type]

    monkeypatch.setattr(chain.room.ledger, "rule", fails_once)
    await chain.says(GOOD, GOOD)
    assert await chain.paid() == [0, 0]
    await chain.room.audits.tick()
    assert await chain.paid() == [PAY, 0]
    await chain.room.audits.tick()
    assert tries == 2


async def test_of_who_is_barred_nothing_is_believed(
    chain: Chain, autojump_clock: MockClock
) -> None:
    await chain.serves(second=OF_INPUTS)
    await chain.serves(second=OF_INPUTS)
    await chain.room.audits.slash(chain.workers[0], "by hand", micro=0)
    assert await chain.became() == ["refused", "waiting"]


async def test_who_is_contradicted_earns_no_trust_by_showing_its_rows(
    chain: Chain, autojump_clock: MockClock
) -> None:
    await chain.serves(second=OF_INPUTS)
    await chain.says(GOOD, GOOD)
    assert chain.room.audits.standings.of(chain.workers[0]).shown == ()


async def test_a_stage_that_lies_of_what_came_is_never_paid_and_not_put_behind_the_same_again(
    chain: Chain, autojump_clock: MockClock
) -> None:
    room, (before, liar) = chain.room, chain.workers
    honest = room.joins(3, LAST, "f32")
    grants = Grants(US, CONFIG, room.books, room.ledger, room.audits)
    asked = AskGrant(MODEL, 10, False, b"")

    async def behind() -> set[PeerId]:
        granted = [await grants.grant(peer(99), asked) for _ in range(100)]
        chains = [decode_sealed(each.ticket, Ticket).chain for each in granted]
        return {chain[1].peer_id for chain in chains if chain[0].peer_id == before}

    assert await behind() == {liar, honest}
    await chain.serves(second=OF_INPUTS)
    await chain.says(GOOD, GOOD)
    assert await behind() == {honest}
    assert await chain.paid() == [PAY, 0]


async def test_an_entry_that_hides_what_it_was_asked_gets_no_tickets_for_a_day(
    room: Room, worker: PeerId, auditors: list[PeerId], autojump_clock: MockClock
) -> None:
    grants = Grants(US, CONFIG, room.books, room.ledger, room.audits)
    anonymous, named = AskGrant(MODEL, 10, True, b""), AskGrant(MODEL, 10, False, b"")
    first = await grants.grant(worker, anonymous)
    assert first.ticket
    room.works(worker, 11)
    await room.audited(auditors, lambda *_: SEES_NOTHING)
    with pytest.raises(NotAuthorized, match="no tickets for a day"):
        await grants.grant(worker, anonymous)
    for _ in range(20):
        granted = await grants.grant(peer(99), named)
        assert worker.encode() not in granted.ticket
    reopened = await room.reopened()
    assert reopened.audits.is_benched(worker)
    assert (await a_room(autojump_clock)).audits.is_benched(worker) is False


@pytest.mark.parametrize("said_of", [SEES_A_SKETCH, SEES_TOO_LITTLE, IS_UNABLE])
async def test_rows_that_are_gone_cost_nobody_its_tickets(
    room: Room,
    worker: PeerId,
    auditors: list[PeerId],
    said_of: AuditReport,
    autojump_clock: MockClock,
) -> None:
    room.works(worker, 20)
    await room.audited(auditors, lambda *_: said_of)
    assert not room.audits.is_benched(worker)


async def test_one_auditor_alone_costs_nobody_its_tickets(
    room: Room, worker: PeerId, autojump_clock: MockClock
) -> None:
    rival = room.joins(11)
    for _ in range(20):
        room.works(worker)
        await room.judged(rival, SEES_NOTHING)
        room.time.jump(700)
        await room.audits.tick()
    assert room.audits.counters()["unavailable"] == 20
    assert room.audits.standings.of(worker).shown == ()
    assert not room.audits.is_benched(worker)
