"""What workers' books and musivum's ledger say, read from their files and compared."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from tessella.core.ids import PeerId
from tessella.core.ledger import Entry, Walk, open_entry
from tessella.core.settlement import MICRO_PER_LAYER_TOKEN

Pair = tuple[bytes, str]
"""A request and a worker: for these there is one proof, and one payment."""


@dataclass(frozen=True, slots=True)
class Row:
    """One proof in a book."""

    request_id: bytes
    worker: str
    layer_positions: int
    state: str
    micro: int


@dataclass
class Compared:
    """A mesh's books next to its ledger."""

    served: int = 0
    """Proofs in all books."""
    layer_positions: int = 0
    paid: int = 0
    """Payments in the ledger."""
    micro: int = 0
    lost: int = 0
    """Served, and not paid."""
    double: int = 0
    """Payments of what was paid before."""
    told: int = 0
    """Of what is lost, that of which the worker was told that it is paid."""
    unserved: int = 0
    """Payments of what is in no book."""
    wrong: list[str] = field(default_factory=list)
    """All else that does not agree, in words."""
    is_whole: bool = True
    """Whether SQLite finds nothing wrong with any of the files."""

    @property
    def full_micro(self) -> int:
        """What all that was served is worth."""
        return self.layer_positions * MICRO_PER_LAYER_TOKEN

    @property
    def words(self) -> str:
        """For a line that is printed."""
        whole = "ok" if self.is_whole else "broken"
        return (
            f"served={self.served} paid={self.paid} layer_positions={self.layer_positions} "
            f"micro={self.micro} lost={self.lost} double={self.double} integrity={whole}"
        )


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None)


def read_book(path: Path) -> list[Row]:
    """All proofs in the book of a node, which may be running."""
    with closing(_open(path)) as db:
        asked = "SELECT request_id, worker, p.layer_positions, state, p.micro FROM proofs p, book"
        return [Row(*row) for row in db.execute(asked)]


def read_paid(path: Path) -> int:
    """How many proofs of a node were paid, as far as it knows."""
    with closing(_open(path)) as db:
        (paid,) = db.execute("SELECT paid FROM book").fetchone()
        return int(paid)


def read_payments(ledger: Path) -> Counter[Pair]:
    """The micro-credits that were paid for each request to each worker, as entries say."""
    found = Counter[Pair]()
    with closing(_open(ledger)) as db:
        for (payload,) in db.execute("SELECT payload FROM entries ORDER BY sequence"):
            entry = open_entry(payload)
            if entry.kind == "payment":
                found[entry.request_id, entry.worker] += _earned(entry)
    return found


def _earned(entry: Entry) -> int:
    return sum(line.amount for line in entry.lines if line.account == entry.worker)


def unsettled(books: Sequence[Path]) -> list[Row]:
    """Proofs that are not settled, but for those whose neighbour will never speak.

    That is a neighbour that was killed before its own proof was written.
    """
    rows = [row for book in books for row in read_book(book)]
    known = Counter(row.request_id for row in rows)
    return [
        row
        for row in rows
        if row.state == "new" or (row.state == "waiting" and known[row.request_id] == len(books))
    ]


def compare(books: Sequence[Path], ledger: Path, origin: PeerId) -> Compared:
    """What the files say when all is settled. Raises BadLedger where the ledger is none."""
    found = Compared()
    rows = {(row.request_id, row.worker): row for book in books for row in read_book(book)}
    walk, entries = Walk(origin), Counter[Pair]()
    with closing(_open(ledger)) as db:
        asked = "SELECT payload, hash FROM entries WHERE origin = ? ORDER BY sequence"
        for payload, leaf in db.execute(asked, (origin,)):
            walk.feed(payload, leaf)
            entry = open_entry(payload)
            if entry.kind == "payment":
                pair = entry.request_id, entry.worker
                entries[pair] += 1
                earned = _earned(entry)
                found.micro += earned
                _check_pay(found, rows.get(pair), earned)
        balances = dict(db.execute("SELECT account, micro FROM balances"))
    _check_balances(found, balances, walk.balances)
    found.served, found.paid = len(rows), entries.total()
    found.layer_positions = sum(row.layer_positions for row in rows.values())
    found.lost = len(rows.keys() - entries.keys())
    found.told = sum(row.state == "paid" for pair, row in rows.items() if pair not in entries)
    found.double = found.paid - len(entries)
    found.unserved = len(entries.keys() - rows.keys())
    found.is_whole = all(_is_whole(path) for path in (*books, ledger))
    _check_totals(found, books)
    return found


def _check_pay(found: Compared, row: Row | None, earned: int) -> None:
    if row is None:
        return
    if (row.state, row.micro) != ("paid", earned):
        found.wrong.append(f"a book says {row.state} {row.micro}, the ledger {earned}: {row}")
    if not 0 < earned <= row.layer_positions * MICRO_PER_LAYER_TOKEN:
        found.wrong.append(f"{earned} was paid for {row}")


def _check_balances(found: Compared, balances: dict[str, int], summed: dict[str, int]) -> None:
    if {each: micro for each, micro in balances.items() if micro} != {
        each: micro for each, micro in summed.items() if micro
    }:
        found.wrong.append(f"balances {balances}, entries {summed}")
    if sum(balances.values()):
        found.wrong.append(f"all balances sum to {sum(balances.values())}")


def _check_totals(found: Compared, books: Sequence[Path]) -> None:
    asked = "SELECT sessions, layer_positions, unsettled, paid, refused, micro FROM book"
    for path in books:
        rows = read_book(path)
        counted = (
            len(rows),
            sum(row.layer_positions for row in rows),
            sum(row.state in ("new", "waiting") for row in rows),
            sum(row.state == "paid" for row in rows),
            sum(row.state == "refused" for row in rows),
            sum(row.micro for row in rows),
        )
        with closing(_open(path)) as db:
            totals = db.execute(asked).fetchone()
        if totals != counted:
            found.wrong.append(f"{path}: totals {totals}, rows {counted}")


def _is_whole(path: Path) -> bool:
    with closing(_open(path)) as db:
        said: list[tuple[str]] = db.execute("PRAGMA integrity_check").fetchall()
    return said == [("ok",)]
