"""What an operator moves, what anybody may look at, and what a store that fails means."""

from __future__ import annotations

import pytest

from musivum.ledger import Draft, Movement
from tessella.core.errors import BadRequest, LocalError, StoreUnavailable
from tessella.core.ledger import MINT, SLASHED, Line
from tessella.core.proofs import MAX_BATCH
from tests.core.work import MUSIVUM, identity
from tests.musivum.ledger.keeping import PAY, WORKER, Kept, a_request, became, one_stage

WHO = WORKER.peer_id


async def test_a_slash_takes_from_an_account_and_an_appeal_gives_it_back(kept: Kept) -> None:
    await kept.ledger.settle([one_stage(1)])
    taken = await kept.ledger.post("slash", [Line(WHO, -PAY), Line(SLASHED, PAY)], "it lied")
    assert (taken.sequence, taken.kind, taken.reason) == (1, "slash", "it lied")
    assert await kept.ledger.balance(WHO) == 0
    await kept.ledger.post("appeal", [Line(WHO, PAY), Line(SLASHED, -PAY)], "it did not")
    assert await kept.ledger.balance(WHO) == PAY
    assert (await kept.ledger.credits(WHO)).earned == PAY
    assert (await kept.walk()).size == 3


async def test_a_reversal_names_its_proof(kept: Kept) -> None:
    await kept.ledger.settle([one_stage(1)])
    issuer = MUSIVUM.peer_id
    lines = [Line(WHO, -PAY), Line(MINT, PAY)]
    entry = await kept.ledger.post("reversal", lines, "paid twice", WHO, a_request(1), issuer)
    assert (entry.worker, entry.request_id, entry.issuer) == (WHO, a_request(1), issuer)
    assert await kept.ledger.balance(MINT) == 0
    assert (await kept.ledger.credits(WHO)).earned == 0
    assert (await kept.ledger.credits(MINT)).spent == 0


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([Line(WHO, -PAY - 1), Line(SLASHED, PAY + 1)], f"{WHO} has {PAY}, not {PAY + 1}"),
        ([Line(WHO, -5), Line(SLASHED, 4)], "lines that sum to -1"),
        ([Line(SLASHED, -1), Line(WHO, 1)], "slashed has 0, not 1"),
    ],
)
async def test_nobody_but_the_mint_is_brought_below_nothing(
    kept: Kept, lines: list[Line], why: str
) -> None:
    await kept.ledger.settle([one_stage(1)])
    with pytest.raises(BadRequest, match=f"^{why}$"):
        await kept.ledger.post("slash", lines, "")
    assert (await kept.walk()).size == 1


async def test_an_entry_that_breaks_a_rule_is_not_written(kept: Kept) -> None:
    with pytest.raises(LocalError, match="of the kind 'gift'"):
        await kept.ledger.post("gift", [], "")
    with pytest.raises(LocalError):
        await kept.ledger.post("slash", [], "x" * 10_000)
    assert await kept.entries() == []


async def test_several_entries_are_written_together_or_not_at_all(kept: Kept) -> None:
    await kept.ledger.settle([one_stage(1)])

    def take_all(draft: Draft) -> int:
        owned = draft.balances.balance(WHO)
        draft.append(Movement("slash", [Line(WHO, -owned), Line(SLASHED, owned)]))
        return owned

    def take_too_much(draft: Draft) -> int:
        return take_all(draft) // draft.balances.balance(WHO)

    with pytest.raises(ZeroDivisionError):
        await kept.ledger.write(take_too_much)
    assert await kept.ledger.balance(WHO) == PAY
    assert await kept.ledger.write(take_all) == PAY
    assert await kept.ledger.balance(WHO) == 0
    assert (await kept.walk()).size == 2


async def test_a_batch_has_an_end(kept: Kept) -> None:
    with pytest.raises(BadRequest, match="257 proofs at once, over 256"):
        await kept.ledger.settle([one_stage(1)] * (MAX_BATCH + 1))
    assert await kept.ledger.settle([]) == []


async def test_where_nothing_can_be_written_nothing_is_paid(kept: Kept) -> None:
    kept.store.error = StoreUnavailable("no room")
    with pytest.raises(StoreUnavailable, match="no room"):
        await kept.ledger.settle([one_stage(1)])
    assert kept.paid == []
    kept.store.error = None
    assert became(await kept.ledger.settle([one_stage(1)])) == ["paid"]


async def test_a_proof_can_be_looked_up_while_it_is_kept(kept: Kept) -> None:
    proof = one_stage(1)
    await kept.ledger.settle([proof])
    key = (a_request(1), WHO, MUSIVUM.peer_id)
    assert await kept.ledger.proof(*key) == proof
    assert await kept.ledger.proof(a_request(2), *key[1:]) is None
    assert await kept.ledger.proof(a_request(1), identity(8).peer_id, key[2]) is None
