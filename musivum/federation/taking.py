"""A page of a partner's ledger into the store: its entries and all that follows from them.

One transaction: whatever ends the process, a page is taken with its effects or not at all. So what
is held says where to go on, and nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from musivum.federation.kept import Counted, write_heads
from musivum.federation.merge import earned, key_of, reversal_of, stands
from musivum.federation.reading import Page
from musivum.ledger import Draft
from musivum.ledger.kept import Key
from musivum.ledger.merging import Double, merge
from musivum.ledger.mint import count_entries
from musivum.store.ledger_tables import EARNED, ENTRIES, PROOFS
from tessella.core.errors import BadFrame, StoreLost
from tessella.core.ids import PeerId
from tessella.core.ledger import Entry, open_entry, seal_entry


@dataclass(frozen=True, slots=True)
class Taken:
    """What a page brought about."""

    reversals: Sequence[Entry] = ()
    """Of ours: payments that were taken back."""
    slashes: Sequence[Entry] = ()
    """Of the partner: penalties that it spoke."""


def take(draft: Draft, page: Page) -> Taken:
    """Take a page, within the transaction of a draft of our own ledger.

    Raises BadLedger for entries that do not go on where the store ends by now, or that move more
    than it can keep.
    """
    connection, origin = draft.connection, page.held.origin
    # Before anything is put into the draft, which reads balances as they are then.
    merged = merge(connection, origin, [payload for _, payload in page.entries], draft.now)
    lost = list(_resolved(draft, merged.doubles))
    reversals = [_reverse(draft, payment, kept) for payment, kept in lost]
    # Of the day that it was minted: what was of another day leaves no more room today.
    count_entries(connection, [payment for payment, _ in lost], draft.now, sign=-1)
    for entry in (*_of_kind(merged.entries, "reversal"), *reversals):
        _uncount(connection, entry)
    slashes = _of_kind(merged.entries, "slash")
    counted = Counted(len(slashes), len(reversals))
    write_heads(connection, origin, page.goal, page.latest, counted)
    return Taken(reversals, slashes)


def _of_kind(entries: Sequence[Entry], kind: str) -> list[Entry]:
    return [entry for entry in entries if entry.kind == kind]


def _resolved(draft: Draft, doubles: Sequence[Double]) -> Iterator[tuple[Entry, Entry]]:
    """Our payments that do not stand, each with the one in its place, which is what a proof is
    known by from here on."""
    better: dict[Key, Entry] = {}
    for double in doubles:
        key = key_of(double.entry)
        known = better.get(key)
        before = known or _read(draft.connection, double.origin, double.entry_before)
        if before.origin == double.entry.origin or stands(before, double.entry) is before:
            continue
        better[key] = double.entry
        _mark(draft.connection, double.entry)
        if before.origin == draft.origin:
            yield before, double.entry


def _read(connection: Connection, origin: PeerId, sequence: int) -> Entry:
    asked = select(ENTRIES.c.payload).where(
        ENTRIES.c.origin == origin, ENTRIES.c.sequence == sequence
    )
    try:
        return open_entry(connection.execute(asked).scalar() or b"")
    except BadFrame as exc:
        raise StoreLost(f"cannot read entry {sequence} of {origin}: {exc}") from exc


def _mark(connection: Connection, payment: Entry) -> None:
    connection.execute(
        update(PROOFS)
        .where(
            PROOFS.c.request_id == payment.request_id,
            PROOFS.c.worker == payment.worker,
            PROOFS.c.issuer == payment.issuer,
        )
        .values(micro=earned(payment), origin=payment.origin, entry=payment.sequence)
    )


def _reverse(draft: Draft, lost: Entry, kept: Entry) -> Entry:
    movement = reversal_of(lost, kept)
    # Not appended: what was paid is taken back from whoever spent it as well.
    entry = Entry(
        origin=draft.origin,
        sequence=draft.size,
        previous=draft.last,
        kind=movement.kind,
        at=draft.now,
        issuer=movement.issuer,
        request_id=movement.request_id,
        worker=movement.worker,
        reason=movement.reason,
        lines=tuple(movement.lines),
    )
    draft.put(entry, seal_entry(entry))
    return entry


def _uncount(connection: Connection, reversal: Entry) -> None:
    """What was taken back was not earned of late; the balances know that by themselves."""
    for line in reversal.lines:
        if line.amount < 0:
            _uncount_lately(connection, line.account, -line.amount)


def _uncount_lately(connection: Connection, account: str, amount: int) -> None:
    """From the last hour in which as much was earned: an entry does not tell when that was."""
    asked = (
        select(EARNED.c.hour)
        .where(EARNED.c.account == account, EARNED.c.micro >= amount)
        .order_by(EARNED.c.hour.desc())
        .limit(1)
    )
    hour = connection.execute(asked).scalar()
    if hour is not None:
        connection.execute(
            update(EARNED)
            .where(EARNED.c.account == account, EARNED.c.hour == hour)
            .values(micro=EARNED.c.micro - amount)
        )
