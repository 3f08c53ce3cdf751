"""A partner's ledger, undone: as if it had never been here, from its last entry to its first.

A ledger may be long, so it goes in pieces, each of which leaves a ledger that is only shorter. A
proof that it had paid may be paid here again, if it is brought again or is still kept: then it
waits. What we took back because it paid stays taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, delete, select, update

from musivum.federation.merge import key_of
from musivum.ledger.history import nodes
from musivum.ledger.kept import State
from musivum.ledger.mint import count_entries
from musivum.ledger.moving import HOUR_SECONDS
from musivum.store.ledger_tables import BALANCES, EARNED, ENTRIES, LEDGERS, PROOFS, TREE
from musivum.store.partner_tables import PARTNERS
from tessella.core.ids import PeerId
from tessella.core.ledger import ZERO_HASH, Entry, Frontier, open_entry

# Of one transaction, during which nobody else is served.
UNDONE_ENTRIES = 256
_LEVELS = 63


def knows(connection: Connection, origin: PeerId) -> bool:
    """Whether anything is kept of a musivum."""
    kept = select(PARTNERS.c.origin).where(PARTNERS.c.origin == origin)
    return _ledger(connection, origin) is not None or bool(connection.execute(kept).all())


def undo_some(connection: Connection, origin: PeerId, now: float) -> int:
    """Undo the last entries of a partner, and forget it with the first; returns how many.

    0 says that nothing is left. `now` is in seconds since 1970.
    """
    row = _ledger(connection, origin)
    size = row.size if row is not None else 0
    keep = max(0, size - UNDONE_ENTRIES)
    if row is not None:
        tail = _tail(connection, origin, keep)
        _undo_balances(connection, tail, row.checked_size, now)
        count_entries(connection, tail, now, sign=-1)
        _undo_marks(connection, tail)
        _shorten(connection, row, keep)
    if keep == 0:
        connection.execute(delete(LEDGERS).where(LEDGERS.c.origin == origin))
        connection.execute(delete(PARTNERS).where(PARTNERS.c.origin == origin))
    return size - keep


def _ledger(connection: Connection, origin: PeerId) -> Row[Any] | None:
    return connection.execute(select(LEDGERS).where(LEDGERS.c.origin == origin)).one_or_none()


def _tail(connection: Connection, origin: PeerId, keep: int) -> list[Entry]:
    asked = select(ENTRIES.c.payload).where(ENTRIES.c.origin == origin, ENTRIES.c.sequence >= keep)
    return [open_entry(payload) for payload in connection.execute(asked).scalars()]


@dataclass(slots=True)
class _Undone:
    micro: int = 0
    checked: int = 0
    earned: int = 0
    spent: int = 0


@dataclass(slots=True)
class _Sums:
    now: float
    accounts: dict[str, _Undone] = field(default_factory=dict)
    hours: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, entry: Entry, is_checked: bool) -> None:
        """Count what goes with an entry."""
        sign = {"payment": 1, "reversal": -1}.get(entry.kind, 0)
        for line in entry.lines:
            undone = self.accounts.setdefault(line.account, _Undone())
            undone.micro += line.amount
            undone.checked += line.amount if is_checked else 0
            amount = sign * line.amount
            undone.earned += sign * max(0, amount)
            undone.spent += sign * max(0, -amount)
            if entry.kind == "payment" and line.amount > 0:
                hour = (line.account, int(min(entry.at, self.now) // HOUR_SECONDS))
                self.hours[hour] = self.hours.get(hour, 0) + line.amount


_BALANCE = (
    update(BALANCES)
    .where(BALANCES.c.account == bindparam("of_account"))
    .values(
        micro=BALANCES.c.micro - bindparam("by_micro"),
        checked=BALANCES.c.checked - bindparam("by_checked"),
        earned=case(
            (
                BALANCES.c.earned > bindparam("by_earned"),
                BALANCES.c.earned - bindparam("by_earned"),
            ),
            else_=0,
        ),
        spent=case(
            (BALANCES.c.spent > bindparam("by_spent"), BALANCES.c.spent - bindparam("by_spent")),
            else_=0,
        ),
    )
)
_HOUR = (
    update(EARNED)
    .where(EARNED.c.account == bindparam("of_account"), EARNED.c.hour == bindparam("of_hour"))
    .values(
        micro=case(
            (EARNED.c.micro > bindparam("by_micro"), EARNED.c.micro - bindparam("by_micro")),
            else_=0,
        )
    )
)


def _undo_balances(
    connection: Connection, tail: Sequence[Entry], checked_size: int, now: float
) -> None:
    sums = _Sums(now)
    for entry in tail:
        sums.add(entry, entry.sequence < checked_size)
    rows = [
        {
            "of_account": account,
            "by_micro": undone.micro,
            "by_checked": undone.checked,
            "by_earned": undone.earned,
            "by_spent": undone.spent,
        }
        for account, undone in sums.accounts.items()
    ]
    if rows:
        connection.execute(_BALANCE, rows)
    hours = [
        {"of_account": account, "of_hour": hour, "by_micro": micro}
        for (account, hour), micro in sums.hours.items()
    ]
    if hours:
        connection.execute(_HOUR, hours)


_THE_PROOF = (
    PROOFS.c.request_id == bindparam("of_request"),
    PROOFS.c.worker == bindparam("of_worker"),
    PROOFS.c.issuer == bindparam("of_issuer"),
    PROOFS.c.origin == bindparam("of_origin"),
)
_DROP = delete(PROOFS).where(*_THE_PROOF, PROOFS.c.payload == b"")
_WAIT = (
    update(PROOFS)
    .where(*_THE_PROOF)
    .values(state=State.WAITING.value, micro=0, origin="", entry=None)
)


def _undo_marks(connection: Connection, tail: Sequence[Entry]) -> None:
    keys = {(*key_of(entry), entry.origin) for entry in tail if entry.kind == "payment"}
    names = ("of_request", "of_worker", "of_issuer", "of_origin")
    rows = [dict(zip(names, key, strict=True)) for key in sorted(keys)]
    if rows:
        connection.execute(_DROP, rows)
        connection.execute(_WAIT, rows)


def _shorten(connection: Connection, row: Row[Any], keep: int) -> None:
    frontier, last = _place(connection, row.origin, keep)
    for level in range(_LEVELS):
        beyond = TREE.c.level == level, TREE.c.place >= keep >> level
        connection.execute(delete(TREE).where(TREE.c.origin == row.origin, *beyond))
    connection.execute(
        delete(ENTRIES).where(ENTRIES.c.origin == row.origin, ENTRIES.c.sequence >= keep)
    )
    peaks = b"".join(frontier.peaks)
    place: dict[str, Any] = {"size": keep, "last": last, "peaks": peaks}
    if row.checked_size > keep:
        place |= {"checked_size": keep, "checked_last": last, "checked_peaks": peaks}
    connection.execute(update(LEDGERS).where(LEDGERS.c.origin == row.origin).values(**place))


def _place(connection: Connection, origin: PeerId, size: int) -> tuple[Frontier, bytes]:
    """Where a ledger stood when it had so many entries."""
    if size == 0:
        return Frontier(), ZERO_HASH
    node, start, peaks = nodes(connection, origin), 0, []
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            peaks.append(node(level, start >> level))
            start += 1 << level
    return Frontier(size, tuple(peaks)), node(0, size - 1)
