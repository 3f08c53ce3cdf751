"""What entries make of balances, within a transaction: read, moved, and written at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, select

from musivum.store.ledger_tables import BALANCES, EARNED
from musivum.store.rows import add, parts, put
from tessella.core.errors import BadLedger
from tessella.core.ledger import Entry, Line

HOUR_SECONDS = 3600
# Half of what a column holds, in micro-credits. We come nowhere near; another's entries might.
MAX_SUM = 2**62


@dataclass(slots=True)
class _Account:
    micro: int = 0
    earned: int = 0
    """By payments that were not taken back."""
    spent: int = 0
    checked: int = 0


class Balances:
    """All accounts, as far as they are asked for or moved."""

    def __init__(self, connection: Connection, now: float) -> None:
        self._connection = connection
        self._now = now
        self._accounts: dict[str, _Account] = {}
        self._moved: set[str] = set()
        self._hours: dict[tuple[str, int], int] = {}

    def load(self, accounts: Iterable[str]) -> None:
        """Read many at once."""
        wanted = {account for account in accounts if account not in self._accounts}
        self._accounts.update({account: _Account() for account in wanted})
        for part in parts(wanted):
            asked = select(BALANCES).where(BALANCES.c.account.in_(part))
            for row in self._connection.execute(asked):
                kept = _Account(row.micro, row.earned, row.spent, row.checked)
                self._accounts[row.account] = kept

    def balance(self, account: str) -> int:
        """Micro-credits, with what moved."""
        return self._known(account).micro

    def _known(self, account: str) -> _Account:
        if account not in self._accounts:
            self.load([account])
        return self._accounts[account]

    def move(self, entry: Entry) -> None:
        """Move what an entry says. Raises BadLedger where that is more than a column holds."""
        for line in entry.lines:
            account = self._known(line.account)
            account.micro += line.amount
            if entry.kind == "payment":
                self._pay(entry, line, account)
            elif entry.kind == "reversal":
                # Another musivum may take back what it never paid.
                account.earned = max(0, account.earned - max(0, -line.amount))
                account.spent = max(0, account.spent - max(0, line.amount))
            if max(abs(account.micro), account.earned, account.spent) > MAX_SUM:
                raise BadLedger(f"it moves {line.amount}, which is no sum to keep", entry.sequence)
            self._moved.add(line.account)

    def _pay(self, entry: Entry, line: Line, account: _Account) -> None:
        account.earned += max(0, line.amount)
        account.spent += max(0, -line.amount)
        if line.amount > 0:
            # Another's clock may be anywhere.
            key = line.account, int(min(entry.at, self._now) // HOUR_SECONDS)
            self._hours[key] = self._hours.get(key, 0) + line.amount

    def write(self) -> None:
        """Write what moved."""
        moved = [{"account": account, **asdict(self._accounts[account])} for account in self._moved]
        hours = [
            {"account": account, "hour": hour, "micro": micro}
            for (account, hour), micro in self._hours.items()
        ]
        put(self._connection, BALANCES, moved)
        add(self._connection, EARNED, hours)
