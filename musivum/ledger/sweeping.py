"""What time makes due: proofs that waited for long are looked at, what is old is let go of."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, select, update

from musivum.ledger.accounts import DAY_HOURS, IS_WAITING
from musivum.ledger.kept import Kept, State, kept_of
from musivum.ledger.moving import HOUR_SECONDS
from musivum.store.ledger_tables import EARNED, MINTED, PROOFS
from tessella.core.settlement import day_of

# Of one transaction, so that others need not wait for long.
SWEEP_PROOFS = 256


def read_due(connection: Connection, now: float) -> list[Kept]:
    """Some of the proofs that waited so long that the time itself tells something."""
    asked = (
        select(PROOFS)
        .where(IS_WAITING, PROOFS.c.due_at <= now)
        .order_by(PROOFS.c.due_at)
        .limit(SWEEP_PROOFS)
    )
    return [kept_of(row) for row in connection.execute(asked)]


def drop_bytes(connection: Connection, now: float) -> int:
    """Empty some proofs for which no neighbour can come any more; returns how many.

    What a proof is known by stays, so that it is never paid again.
    """
    asked = (
        select(PROOFS.c.request_id, PROOFS.c.worker, PROOFS.c.issuer)
        .where(PROOFS.c.keep_until < now, PROOFS.c.state != State.WAITING.value)
        .limit(SWEEP_PROOFS)
    )
    gone = [
        {"of_request": row.request_id, "of_worker": row.worker, "of_issuer": row.issuer}
        for row in connection.execute(asked)
    ]
    if gone:
        connection.execute(_EMPTY, gone)
    return len(gone)


_EMPTY = (
    update(PROOFS)
    .where(
        PROOFS.c.request_id == bindparam("of_request"),
        PROOFS.c.worker == bindparam("of_worker"),
        PROOFS.c.issuer == bindparam("of_issuer"),
    )
    .values(payload=b"", signature=b"", keep_until=None)
)


def drop_counts(connection: Connection, now: float) -> None:
    """Forget what was earned and minted on days that are over."""
    connection.execute(delete(EARNED).where(EARNED.c.hour <= int(now // HOUR_SECONDS) - DAY_HOURS))
    connection.execute(delete(MINTED).where(MINTED.c.day < day_of(now)))
