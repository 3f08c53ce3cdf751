"""What is remembered of a partner comes back as it was."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from musivum.federation.kept import Counted, Kept, read_kept, write_heads, write_refusal
from musivum.federation.reading import Held, Rewritten
from musivum.store.memory import MemoryStore
from musivum.store.partner_tables import PARTNERS
from tessella.core.errors import StoreLost
from tessella.core.ledger import ZERO_HASH, Frontier
from tests.musivum.federation.script import PARTNER, of_payments

ORIGIN = PARTNER.peer_id
OLD, NEW = of_payments(2).seen(), of_payments(5).seen()


async def read(store: MemoryStore) -> Kept:
    """What is known of the partner."""
    return await store.transact(lambda connection: read_kept(connection, ORIGIN))


async def test_of_who_was_never_heard_of_nothing_is_known() -> None:
    assert await read(MemoryStore()) == Kept(Held(ORIGIN, Frontier(), ZERO_HASH))


async def test_heads_and_counts_are_kept() -> None:
    store = MemoryStore()
    for goal, counted in ((OLD, Counted(1, 2)), (None, Counted(3, 0))):
        await store.transact(
            lambda connection, goal=goal, counted=counted: write_heads(  # type: ignore[misc]
                connection, ORIGIN, goal, NEW, counted
            )
        )
        found = await read(store)
        assert (found.held.goal, found.held.latest) == (goal, NEW)
    assert (found.slashes, found.reversals, found.reason) == (4, 2, "")


@pytest.mark.parametrize("heads", [(OLD, NEW), (NEW,)])
async def test_a_refusal_is_kept_with_what_was_signed(heads: tuple[object, ...]) -> None:
    store = MemoryStore()
    found = Rewritten(ORIGIN, "a fork", heads)  # type: ignore[arg-type]
    await store.transact(lambda connection: write_refusal(connection, found))
    kept = await read(store)
    assert (kept.reason, kept.evidence) == ("a fork", heads)


async def test_a_head_that_cannot_be_read_names_whose_it_is() -> None:
    store = MemoryStore()
    found = Rewritten(ORIGIN, "a fork", (OLD,))
    await store.transact(lambda connection: write_refusal(connection, found))
    for rubbish in (b"\xc1", b"\x91\x01", b"\x91\x92\xc4\x00\xc4\x00"):
        await store.transact(
            lambda connection, rubbish=rubbish: connection.execute(  # type: ignore[misc]
                update(PARTNERS).values(evidence=rubbish)
            )
        )
        with pytest.raises(StoreLost, match=ORIGIN):
            await read(store)
