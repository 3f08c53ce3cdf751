"""What entries of a partner leave of the caps of a day."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from musivum.ledger.mint import ALL, count_entries
from musivum.ledger.moving import MAX_SUM
from musivum.store.ledger_tables import MINTED
from tessella.core.ledger import MINT, ZERO_HASH, Entry, Line
from tessella.core.settlement import SECONDS_A_DAY, Caps, day_of
from tests.core.work import MUSIVUM, NOW, identity
from tests.musivum.ledger.keeping import PAY, WORKER, Kept, one_stage

WHO, CLIENT, OTHER = WORKER.peer_id, identity(9).peer_id, identity(8).peer_id
TODAY = day_of(NOW)


def entry(lines: dict[str, int], kind: str = "payment", at: float = NOW) -> Entry:
    """One of a partner's."""
    of_proof = {"issuer": MUSIVUM.peer_id, "request_id": bytes(16), "worker": WHO}
    return Entry(
        origin=identity(50).peer_id,
        sequence=0,
        previous=ZERO_HASH,
        kind=kind,
        at=at,
        lines=tuple(Line(account, amount) for account, amount in lines.items()),
        **(of_proof if kind in ("payment", "reversal") else {}),  # type: ignore[arg-type]
    )


async def counted(kept: Kept, *entries: Entry, sign: int = 1) -> dict[tuple[int, str], int]:
    """The counts of the worker by day and requester, once these were counted."""

    def work(connection: Any) -> dict[tuple[int, str], int]:
        count_entries(connection, entries, kept.now, sign=sign)
        rows = connection.execute(select(MINTED).where(MINTED.c.worker == WHO))
        return {(row.day, row.requester): row.micro for row in rows}

    return await kept.store.transact(work)


MINTED_BY = [
    ("the mint pays all", entry({WHO: 5, MINT: -5}), {ALL: 5}),
    ("the mint pays a part", entry({WHO: 5, CLIENT: -3, MINT: -2}), {ALL: 2, CLIENT: 2}),
    ("the requester pays all", entry({WHO: 5, CLIENT: -5}), {}),
    ("nothing is paid", entry({}), {}),
    ("somebody else is paid", entry({OTHER: 5, MINT: -5}), {}),
    ("and the worker a little", entry({OTHER: 4, WHO: 1, MINT: -5}), {ALL: 1, OTHER: 1}),
    ("two paid it", entry({WHO: 5, CLIENT: -1, OTHER: -1, MINT: -3}), {ALL: 3}),
    ("a fine", entry({WHO: -5, MINT: 5}, "slash"), {}),
    ("an appeal", entry({WHO: 5, MINT: -5}, "appeal"), {}),
    ("it gives to the mint", entry({WHO: -5, MINT: 5}), {}),
    ("a reversal that mints", entry({WHO: 5, MINT: -5}, "reversal"), {}),
    ("of yesterday", entry({WHO: 5, MINT: -5}, at=NOW - SECONDS_A_DAY), {}),
    ("of a day that never comes", entry({WHO: 5, MINT: -5}, at=1e300), {}),
]


@pytest.mark.parametrize(("name", "one", "expected"), MINTED_BY)
async def test_what_an_entry_takes_from_the_mint_for_its_worker(
    kept: Kept, name: str, one: Entry, expected: dict[str, int]
) -> None:
    found = await counted(kept, one)
    assert found == {(TODAY, requester): micro for requester, micro in expected.items()}
    assert set((await counted(kept, one, sign=-1)).values()) <= {0}


async def test_what_is_given_back_the_same_day_is_room_again(kept: Kept) -> None:
    paid = entry({WHO: 5, CLIENT: -3, MINT: -2})
    back = entry({WHO: -5, CLIENT: 3, MINT: 2}, "reversal")
    assert await counted(kept, paid, paid, back) == {(TODAY, ALL): 2, (TODAY, CLIENT): 2}
    assert set((await counted(kept, back)).values()) == {0}
    assert set((await counted(kept, back)).values()) == {0}


async def test_each_day_has_its_count(kept: Kept) -> None:
    tomorrow = NOW + SECONDS_A_DAY
    paid = entry({WHO: 5, MINT: -5})
    found = await counted(kept, paid, entry({WHO: 7, MINT: -7}, at=tomorrow))
    assert found == {(TODAY, ALL): 5, (TODAY + 1, ALL): 7}
    kept.now = tomorrow
    assert (await counted(kept, paid))[TODAY, ALL] == 5


async def test_no_count_is_more_than_a_column_holds(kept: Kept) -> None:
    much = entry({WHO: MAX_SUM, MINT: -MAX_SUM})
    for _ in range(3):
        assert await counted(kept, much) == {(TODAY, ALL): MAX_SUM}


async def test_what_a_partner_minted_is_of_the_cap_here() -> None:
    kept = Kept(caps=Caps(5 * PAY))
    await counted(kept, *[entry({WHO: PAY, MINT: -PAY})] * 3)
    outcomes = await kept.ledger.settle([one_stage(number) for number in range(4)])
    assert [outcome.micro for outcome in outcomes] == [PAY, PAY, 0, 0]
    kept.now += SECONDS_A_DAY
    (tomorrow,) = await kept.ledger.settle([one_stage(9)])
    assert tomorrow.micro == PAY


async def test_what_a_partner_minted_for_a_pair_is_of_the_share_of_the_pair_here() -> None:
    kept = Kept(caps=Caps(10 * PAY))
    part = entry({WHO: PAY + 1, CLIENT: -1, MINT: -PAY})
    await counted(kept, part)
    mine = await kept.ledger.settle([one_stage(number, CLIENT) for number in range(2)])
    others = await kept.ledger.settle([one_stage(number + 9, OTHER) for number in range(3)])
    assert [outcome.micro for outcome in mine] == [PAY, 0]
    assert [outcome.micro for outcome in others] == [PAY, PAY, 0]
