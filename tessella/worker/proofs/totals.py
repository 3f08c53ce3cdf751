"""What the book adds up to, for its owner: read by the node, and beside it by a command."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tessella.core.tiers import MICRO
from tessella.worker.proofs.schema import naming, open_to_read


@dataclass(frozen=True, slots=True)
class Totals:
    """Since the book was begun."""

    sessions: int
    """That were served for a ticket."""
    layer_positions: int
    """Layers times positions that were computed in them."""
    unsettled: int
    """Proofs that musivum has not paid or refused."""
    paid: int
    """Proofs, among them those that were paid nothing."""
    refused: int
    micro: int
    """Micro-credits that were paid."""

    @property
    def credits(self) -> float:
        """What was paid."""
        return self.micro / MICRO


@dataclass(frozen=True, slots=True)
class Settled:
    """One proof that is settled."""

    settled_at: float
    """Seconds since 1970."""
    request_id: bytes
    layer_positions: int
    state: str
    """`paid` or `refused`."""
    micro: int
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The book at one moment."""

    totals: Totals
    unsent: int
    """Of the unsettled ones, those that musivum never answered."""
    waiting: int
    """And those that it keeps until others of the chain were heard."""
    reasons: dict[str, int]
    """Refused ones by code, of those that are still in the book."""
    last: tuple[Settled, ...]
    """The latest first."""


_TOTALS = "SELECT sessions, layer_positions, unsettled, paid, refused, micro FROM book"
_STATES = "SELECT state, COUNT(*) FROM proofs WHERE settled_at IS NULL GROUP BY state"
_REASONS = "SELECT code, COUNT(*) FROM proofs WHERE state = 'refused' GROUP BY code ORDER BY 2 DESC"
_LAST = (
    "SELECT settled_at, request_id, layer_positions, state, micro, code, text FROM proofs "
    "WHERE settled_at IS NOT NULL ORDER BY settled_at DESC, sequence DESC LIMIT ?"
)


def read_totals(db: sqlite3.Connection) -> Totals:
    """The totals of an open book."""
    return Totals(*db.execute(_TOTALS).fetchone())


def read_summary(path: Path, last: int) -> Summary:
    """The book of a node that may be running, with its `last` settled proofs.

    Raises FileNotFoundError where there is none, BadConfig, StoreLost, StoreUnavailable.
    """
    with closing(open_to_read(path)) as db, naming(path):
        # One moment for all of it.
        db.execute("BEGIN")
        states = dict(db.execute(_STATES).fetchall())
        return Summary(
            totals=read_totals(db),
            unsent=states.get("new", 0),
            waiting=states.get("waiting", 0),
            reasons=dict(db.execute(_REASONS).fetchall()),
            last=tuple(Settled(*row) for row in db.execute(_LAST, (last,))),
        )
