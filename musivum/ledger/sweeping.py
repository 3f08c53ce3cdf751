"""What time makes due: proofs that waited for long are looked at, what is old is let go of."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, select, update

from musivum.ledger.accounts import DAY_HOURS, IS_WAITING
from musivum.ledger.batch import read_disputes
from musivum.ledger.kept import Disputed, Kept, State, kept_of
from musivum.ledger.moving import HOUR_SECONDS
from musivum.store.ledger_tables import EARNED, MINTED, PROOFS
from tessella.core.ids import PeerId
from tessella.core.settlement import day_of

# Of one transaction, so that others need not wait for long.
SWEEP_PROOFS = 256
# Of those that wait when a musivum starts, the last ones: of kilobytes each.
MAX_DISPUTED = 4096


def read_due(connection: Connection, now: float) -> list[Kept]:
    """Some of the proofs that waited so long that the time itself tells something."""
    asked = (
        select(PROOFS)
        .where(IS_WAITING, PROOFS.c.due_at <= now)
        .order_by(PROOFS.c.due_at)
        .limit(SWEEP_PROOFS)
    )
    return [kept_of(row) for row in connection.execute(asked)]


def read_disputed(connection: Connection, origin: PeerId, since: float) -> list[Disputed]:
    """Whose rows audits have to look at, for proofs to be paid that came since then and wait."""
    asked = select(PROOFS).where(IS_WAITING, PROOFS.c.received_at >= since)
    asked = asked.order_by(PROOFS.c.received_at.desc()).limit(MAX_DISPUTED)
    waiting = [kept_of(row) for row in connection.execute(asked)]
    return read_disputes(connection, origin, waiting)


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
