"""Entries of another musivum: what it paid is paid here as well, and what it made up is refused."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from musivum.ledger.merging import Merged, merge
from musivum.ledger.moving import MAX_SUM
from tessella.core.errors import BadLedger
from tessella.core.ledger import MINT, ZERO_HASH, Entry, Line, entry_hash, seal_entry
from tessella.core.settlement import Became, Outcome
from tests.core.work import MUSIVUM, NOW, Work, identity
from tests.musivum.ledger.keeping import PAY, WORKER, Kept, a_request, became, one_stage

PARTNER = identity(50)
CLIENT = identity(9).peer_id
WHO = WORKER.peer_id


class Partner:
    """What another musivum wrote."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.last = ZERO_HASH

    def pays(self, number: int, *lines: Line, kind: str = "payment") -> bytes:
        """Its next entry."""
        paid = {"issuer": MUSIVUM.peer_id, "request_id": a_request(number), "worker": WHO}
        entry = Entry(
            origin=PARTNER.peer_id,
            sequence=len(self.payloads),
            previous=self.last,
            kind=kind,
            at=NOW + 1e9,
            lines=lines,
            **(paid if kind == "payment" else {}),  # type: ignore[arg-type]
        )
        payload = seal_entry(entry)
        self.payloads.append(payload)
        self.last = entry_hash(payload)
        return payload


def paying(account: str, micro: int) -> tuple[Line, Line]:
    return Line(WHO, micro), Line(account, -micro)


async def take(kept: Kept, *payloads: bytes) -> Merged:
    def work(connection: Connection) -> Merged:
        return merge(connection, PARTNER.peer_id, payloads, kept.now)

    return await kept.store.transact(work)


async def test_what_a_partner_paid_is_not_paid_here(kept: Kept) -> None:
    partner = Partner()
    merged = await take(kept, partner.pays(1, *paying(MINT, 5)), partner.pays(2))
    assert [entry.sequence for entry in merged.entries] == [0, 1]
    assert merged.doubles == ()
    assert await kept.ledger.settle([one_stage(1), one_stage(2), one_stage(3)]) == [
        Outcome(Became.ALREADY_PAID, 5),
        Outcome(Became.ALREADY_PAID, 0),
        Outcome(Became.PAID, PAY),
    ]
    found = await kept.ledger.credits(WHO)
    assert (found.balance, found.earned, found.earned_day) == (PAY + 5, PAY + 5, PAY + 5)
    assert await kept.ledger.page(PARTNER.peer_id) == partner.payloads
    assert await kept.ledger.check() == 3
    assert (await kept.ledger.size(), await kept.ledger.size(PARTNER.peer_id)) == (1, 2)


async def test_what_both_paid_is_told(kept: Kept) -> None:
    await kept.ledger.settle([one_stage(1)])
    partner = Partner()
    merged = await take(kept, partner.pays(1, *paying(MINT, PAY)), partner.pays(2), partner.pays(2))
    told = [
        (double.entry.sequence, double.origin, double.entry_before) for double in merged.doubles
    ]
    assert told == [(0, MUSIVUM.peer_id, 0), (2, PARTNER.peer_id, 1)]


async def test_a_proof_that_waits_here_and_was_paid_there_waits_no_more(kept: Kept) -> None:
    waiting = Work([WORKER, identity(2)], request_id=a_request(1)).proof(0)
    assert became(await kept.ledger.settle([waiting])) == ["waiting"]
    await take(kept, Partner().pays(1, *paying(MINT, 7)))
    assert await kept.ledger.settle([waiting]) == [Outcome(Became.ALREADY_PAID, 7)]
    await kept.ledger.sweep(NOW + 1e6)
    assert await kept.entries() == []


async def test_an_account_may_be_below_nothing_by_anothers_entries(kept: Kept) -> None:
    await take(kept, Partner().pays(1, *paying(CLIENT, PAY)))
    assert await kept.ledger.balance(CLIENT) == -PAY
    await kept.ledger.settle([one_stage(2, CLIENT)])
    assert await kept.ledger.balance(CLIENT) == -PAY
    await kept.ledger.check(whole=True)


async def test_entries_that_do_not_follow_are_refused_as_a_whole(kept: Kept) -> None:
    partner = Partner()
    first, second, third = (partner.pays(n, *paying(MINT, 5)) for n in range(3))
    with pytest.raises(BadLedger) as caught:
        await take(kept, first, third)
    assert caught.value.index == 1
    assert await kept.ledger.balance(WHO) == 0
    await take(kept, first)
    with pytest.raises(BadLedger):
        await take(kept, first)
    await take(kept, second, third)
    assert await kept.ledger.balance(WHO) == 15


async def test_amounts_beyond_what_is_kept_are_refused(kept: Kept) -> None:
    partner = Partner()
    await take(kept, partner.pays(1, *paying(MINT, MAX_SUM)))
    with pytest.raises(BadLedger, match="no sum to keep") as caught:
        await take(kept, partner.pays(2, *paying(MINT, 1)))
    assert caught.value.index == 1
    assert await kept.ledger.balance(WHO) == MAX_SUM
