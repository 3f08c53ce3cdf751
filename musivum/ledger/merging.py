"""Entries of another musivum, taken over into the store: what it paid is paid here as well.

Whoever merges vouches that the entries are under a head that their origin signed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from musivum.ledger.draft import Draft
from musivum.ledger.kept import Key, State
from musivum.ledger.mint import count_entries
from musivum.store.ledger_tables import PROOFS
from tessella.core.ids import PeerId
from tessella.core.ledger import Entry, Walk


@dataclass(frozen=True, slots=True)
class Double:
    """A payment that was merged, of a proof that somebody had paid before."""

    entry: Entry
    origin: PeerId
    """Who had; we, or another musivum."""
    entry_before: int
    """In which entry of its ledger."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What was taken over."""

    entries: tuple[Entry, ...]
    doubles: tuple[Double, ...]


def merge(connection: Connection, origin: PeerId, payloads: Sequence[bytes], now: float) -> Merged:
    """Take over the next entries of a musivum, in the caller's transaction.

    They follow the last one that is here. From then on their proofs are `already_paid` here, and
    what they minted counts against the caps of their workers. Raises BadLedger for the first that
    breaks a rule, and then the transaction has to be undone.
    """
    draft = Draft(connection, origin, now)
    walk = Walk(origin, frontier=draft.frontier, last=draft.last)
    entries = tuple(walk.feed(payload) for payload in payloads)
    draft.balances.load({line.account for entry in entries for line in entry.lines})
    for entry, payload in zip(entries, payloads, strict=True):
        draft.put(entry, payload)
    draft.write()
    count_entries(connection, entries, now)
    return Merged(entries, tuple(_take_proofs(connection, entries, now)))


def _take_proofs(connection: Connection, entries: Sequence[Entry], now: float) -> list[Double]:
    payments = [entry for entry in entries if entry.kind == "payment"]
    known = _known(connection, payments)
    doubles, fresh, paid = [], [], []
    for entry in payments:
        key = (entry.request_id, PeerId(entry.worker), PeerId(entry.issuer))
        before = known.get(key)
        if before is None:
            fresh.append(_row(entry, now))
        elif before.entry is None:
            paid.append(_change(entry))
        else:
            doubles.append(Double(entry, before.origin, before.entry))
            continue
        known[key] = _Paid(entry.origin, entry.sequence)
    if fresh:
        connection.execute(insert(PROOFS), fresh)
    if paid:
        connection.execute(_PAID, paid)
    return doubles


@dataclass(frozen=True, slots=True)
class _Paid:
    origin: PeerId
    entry: int | None


def _known(connection: Connection, payments: Sequence[Entry]) -> dict[Key, _Paid]:
    requests = {entry.request_id for entry in payments}
    asked = select(PROOFS).where(PROOFS.c.request_id.in_(requests))
    return {
        (row.request_id, row.worker, row.issuer): _Paid(row.origin, row.entry)
        for row in connection.execute(asked)
    }


def _pay_of(entry: Entry) -> int:
    return max(0, sum(line.amount for line in entry.lines if line.account == entry.worker))


def _row(entry: Entry, now: float) -> dict[str, Any]:
    return {
        "request_id": entry.request_id,
        "worker": entry.worker,
        "issuer": entry.issuer,
        "digest": b"",
        "previous": None,
        "sequence": 0,
        "place": 0,
        "state": State.PAID.value,
        "micro": _pay_of(entry),
        "received_at": now,
        "keep_until": None,
        "payload": b"",
        "signature": b"",
        "origin": entry.origin,
        "entry": entry.sequence,
    }


def _change(entry: Entry) -> dict[str, Any]:
    return {
        "of_request": entry.request_id,
        "of_worker": entry.worker,
        "of_issuer": entry.issuer,
        "to_micro": _pay_of(entry),
        "to_origin": entry.origin,
        "to_entry": entry.sequence,
    }


_PAID = (
    update(PROOFS)
    .where(
        PROOFS.c.request_id == bindparam("of_request"),
        PROOFS.c.worker == bindparam("of_worker"),
        PROOFS.c.issuer == bindparam("of_issuer"),
    )
    .values(
        state=State.PAID.value,
        micro=bindparam("to_micro"),
        origin=bindparam("to_origin"),
        entry=bindparam("to_entry"),
    )
)
