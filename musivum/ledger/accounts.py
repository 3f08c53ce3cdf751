"""What accounts own, earned and spent, for whoever asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, func, literal_column, select

from musivum.ledger.moving import HOUR_SECONDS
from musivum.store.ledger_tables import BALANCES, EARNED, PROOFS
from tessella.core.tiers import Tier, tier_of

# The hour that has begun, and those before it.
DAY_HOURS = 24
MAX_ACCOUNTS = 1000

# As SQL and not as a parameter: only so SQLite sees that the index of those that wait will do.
IS_WAITING = PROOFS.c.state == literal_column("'waiting'")


@dataclass(frozen=True, slots=True)
class Credits:
    """One account. Micro-credits, all."""

    account: str
    balance: int = 0
    earned: int = 0
    """By work, in all."""
    earned_day: int = 0
    """By work, in this hour and the 23 before it."""
    spent: int = 0
    """On others' work, in all."""
    waiting: int = 0
    """Proofs that wait for others of their chain."""

    @property
    def tier(self) -> Tier:
        """What the balance earns."""
        return tier_of(self.balance)


def read_balance(connection: Connection, account: str) -> int:
    """Micro-credits; 0 for an account that nobody ever paid."""
    asked = select(BALANCES.c.micro).where(BALANCES.c.account == account)
    return connection.execute(asked).scalar() or 0


def read_earned(connection: Connection, account: str, since: float) -> int:
    """Micro-credits by work since a moment, as far as its hours are kept: a day or so."""
    hour = int(since // HOUR_SECONDS)
    of_account = (EARNED.c.account == account, EARNED.c.hour >= hour)
    asked = select(func.sum(EARNED.c.micro)).where(*of_account)
    return int(connection.execute(asked).scalar() or 0)


def read_credits(connection: Connection, account: str, now: float) -> Credits:
    """All that is known of an account."""
    rows = connection.execute(select(BALANCES).where(BALANCES.c.account == account)).all()
    found = _credits(connection, rows, now)
    if found:
        return found[0]
    return Credits(account, waiting=_waiting(connection, [account]).get(account, 0))


def read_accounts(connection: Connection, limit: int, now: float) -> list[Credits]:
    """The accounts that own most, at most `limit` of them and MAX_ACCOUNTS."""
    asked = (
        select(BALANCES)
        .order_by(BALANCES.c.micro.desc(), BALANCES.c.account)
        .limit(max(0, min(limit, MAX_ACCOUNTS)))
    )
    return _credits(connection, connection.execute(asked).all(), now)


def _credits(connection: Connection, rows: Sequence[Row[Any]], now: float) -> list[Credits]:
    accounts = [row.account for row in rows]
    lately, waiting = _lately(connection, accounts, now), _waiting(connection, accounts)
    return [
        Credits(
            account=row.account,
            balance=row.micro,
            earned=row.earned,
            earned_day=lately.get(row.account, 0),
            spent=row.spent,
            waiting=waiting.get(row.account, 0),
        )
        for row in rows
    ]


def _lately(connection: Connection, accounts: Sequence[str], now: float) -> dict[str, int]:
    since = int(now // HOUR_SECONDS) - DAY_HOURS
    asked = (
        select(EARNED.c.account, func.sum(EARNED.c.micro))
        .where(EARNED.c.account.in_(accounts), EARNED.c.hour > since)
        .group_by(EARNED.c.account)
    )
    # PostgreSQL sums integers to a Decimal.
    return {account: int(micro) for account, micro in connection.execute(asked)}


def _waiting(connection: Connection, accounts: Sequence[str]) -> dict[str, int]:
    asked = (
        select(PROOFS.c.worker, func.count())
        .where(IS_WAITING, PROOFS.c.worker.in_(accounts))
        .group_by(PROOFS.c.worker)
    )
    return {row[0]: row[1] for row in connection.execute(asked)}
