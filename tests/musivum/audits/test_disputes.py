"""Two stages that contradict each other: the one before is audited, and what is found pays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import trio
from trio.testing import MockClock

from musivum.audits.queue import OPEN_SECONDS
from musivum.audits.standing import KEPT_SHOWN
from musivum.placing.grants import Grants
from musivum.testing import SMALL, clock
from tessella.core.contracts import contract_of
from tessella.core.errors import ModelUnavailable, NotAuthorized, StoreUnavailable
from tessella.core.ids import PeerId
from tessella.core.messages import AskGrant, AuditReport, AuditTask
from tessella.core.proofs import SignedProof
from tessella.core.settlement import MICRO_PER_LAYER_TOKEN
from tests.core.work import Work, identity
from tests.musivum.audits.room import (
    BAD,
    CONFIG,
    FIRST,
    LAST,
    MODEL,
    SAYS_FRAUD,
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
    standings = chain.room.audits.standings
    assert standings.of(chain.workers[1]).shown == (False,)
    assert standings.is_suspect(chain.workers[1])
    assert standings.of(chain.workers[0]).shown == (True, True)
    assert chain.room.audits.counters()["open"] == 0, "what was found is not looked for again"


@pytest.mark.parametrize(
    "reports",
    [
        (BAD, BAD),
        (SAYS_FRAUD, SAYS_FRAUD),
        (NO_SKETCH, NO_SKETCH),
        (A_SKETCH, A_SKETCH),
        (SEES_TOO_LITTLE, SEES_TOO_LITTLE),
        (SEES_NOTHING, SEES_NOTHING),
        (BAD, GOOD, BAD),
        (GOOD, BAD, BAD),
    ],
    ids=[
        "rows that are not right",
        "rows that were not committed to",
        "a sketch that is not right",
        "a sketch alone",
        "neither",
        "no ids",
        "a friend among the auditors",
        "a friend that comes first",
    ],
)
async def test_an_entry_that_lies_or_hides_is_refused_and_who_contradicts_is_paid(
    chain: Chain, reports: tuple[AuditReport, ...], autojump_clock: MockClock
) -> None:
    await chain.serves(first=OF_OUTPUTS)
    await chain.says(*reports)
    assert await chain.paid() == [0, PAY]
    assert not chain.room.audits.suspects(chain.workers[1])


async def test_one_that_passes_is_not_enough_where_another_can_look(
    chain: Chain, autojump_clock: MockClock
) -> None:
    await chain.serves(second=OF_INPUTS)
    await chain.says(GOOD)
    assert await chain.paid() == [0, 0]
    chain.room.time.jump(OPEN_SECONDS + 1)
    await chain.room.audits.tick()
    assert await chain.paid() == [PAY, 0], "nobody else looked"


async def test_a_split_that_nobody_decides_leaves_both_waiting(
    chain: Chain, autojump_clock: MockClock
) -> None:
    await chain.serves(second=OF_INPUTS)
    await chain.says(GOOD, BAD)
    chain.room.time.jump(OPEN_SECONDS + 1)
    await chain.room.audits.tick()
    assert await chain.paid() == [0, 0]
    assert chain.room.audits.counters()["undecided"] == 1


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
    assert await chain.paid() == [0, 2 * PAY]


async def test_who_is_at_odds_with_most_others_is_the_one_that_is_looked_at(
    chain: Chain, autojump_clock: MockClock
) -> None:
    """An entry that sends other rows than it tells of is borne out each time."""
    standings, framed = chain.room.audits.standings, chain.workers[1]
    wall = chain.room.books.clocks.wall()
    culprit = chain.workers[0]
    for number in (21, 22):
        standings.put(standings.of(culprit).after_dispute(peer(number), wall))
    await chain.serves(second=OF_INPUTS)
    await chain.says(GOOD, GOOD)
    assert standings.is_suspect(culprit)
    assert not standings.is_suspect(framed)
    assert standings.of(framed).shown == ()
    assert standings.of(framed).at_odds(wall) == [culprit]


async def test_who_met_others_that_are_out_by_now_is_not_blamed_for_the_next_one(
    chain: Chain, autojump_clock: MockClock
) -> None:
    standings, (entry, liar) = chain.room.audits.standings, chain.workers
    wall = chain.room.books.clocks.wall()
    for number in (21, 22):
        standings.put(standings.of(entry).after_dispute(peer(number), wall))
        for _ in range(KEPT_SHOWN):
            standings.put(standings.of(peer(number)).after_audit(wall, shown=False))
    await chain.serves(second=OF_INPUTS)
    await chain.says(GOOD, GOOD)
    assert standings.is_suspect(liar)
    assert not standings.is_suspect(entry)
    assert standings.of(entry).shown == (True, True)


async def test_who_lies_of_its_inputs_each_time_soon_gets_no_tickets(
    chain: Chain, autojump_clock: MockClock
) -> None:
    room, (entry, liar) = chain.room, chain.workers
    grants = Grants(US, CONFIG, room.books, room.ledger, room.audits)
    asked = AskGrant(MODEL, 10, False, b"")
    sessions = 0
    while not room.audits.is_benched(liar):
        await grants.grant(peer(99), asked)
        await chain.serves(second=OF_INPUTS)
        await chain.says(GOOD, GOOD)
        sessions += 1
    assert sessions == 11, "more than half of twenty"
    assert await chain.paid() == [11 * PAY, 0]
    with pytest.raises(ModelUnavailable):
        await grants.grant(peer(99), asked)
    assert not room.audits.is_benched(entry)


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
