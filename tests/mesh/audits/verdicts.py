"""What became of a suspect: what musivum told of its audits, its own book, and the ledger."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessella.core.audits import Verdict
from tessella.core.ids import PeerId
from tessella.core.ledger import SLASHED, open_entry
from tessella.core.settlement import MICRO_PER_LAYER_TOKEN
from tests.mesh.audits.watched import Node, Watched
from tests.mesh.settlement.accounts import Row, read_book, read_payments


@dataclass(frozen=True, slots=True)
class Audited:
    """The audits of some nodes, in the order in which they were reported."""

    opinions: list[dict[str, Any]]

    @property
    def rejected(self) -> list[dict[str, Any]]:
        """Those that were against the audited."""
        return [each for each in self.opinions if each["verdict"] != Verdict.PASSED.value]

    @property
    def until_caught(self) -> int:
        """Audits up to the first that was against the audited."""
        return self.opinions.index(self.rejected[0]) + 1

    def different(self, key: str) -> int:
        """How many auditors or requests the rejections are of."""
        return len({each[key] for each in self.rejected})

    @property
    def words(self) -> str:
        """For a line that is printed."""
        return f"audits={len(self.opinions)} rejected={len(self.rejected)}"


def audited(watched: Watched, *nodes: Node) -> Audited:
    """What auditors said of these nodes so far."""
    return Audited(watched.told("opinion", *(node.peer_id for node in nodes)))


def proofs_of(node: Node) -> int:
    """How many sessions a node has proofs of."""
    return len(read_book(node.book))


@dataclass(frozen=True, slots=True)
class Paid:
    """What the ledger says of the requests that passed a node."""

    micro: int
    """That it was paid itself."""
    beside: int
    """Proofs that honest nodes have of these requests."""
    short: list[Row]
    """Those of them that were not paid in full."""


def paid_beside(watched: Watched, node: Node) -> Paid:
    """What a node and the honest ones were paid for the same requests."""
    payments = read_payments(watched.ledger)
    requests = {row.request_id for row in read_book(node.book)}
    rows = [
        row
        for honest in watched.honest
        for row in read_book(honest.book)
        if row.request_id in requests
    ]
    short = [
        row
        for row in rows
        if payments[row.request_id, row.worker] != row.layer_positions * MICRO_PER_LAYER_TOKEN
    ]
    micro = sum(payments[request_id, node.peer_id] for request_id in requests)
    return Paid(micro, len(rows), short)


def fines_of(ledger: Path, peer_id: PeerId) -> list[int]:
    """The micro-credits that each slash in a musivum's ledger took from a peer."""
    found = []
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        for (payload,) in db.execute("SELECT payload FROM entries ORDER BY sequence"):
            entry = open_entry(payload)
            lines = {line.account: line.amount for line in entry.lines}
            if entry.kind == "slash" and peer_id in lines:
                assert lines == {peer_id: lines[peer_id], SLASHED: -lines[peer_id]}
                found.append(-lines[peer_id])
    return found
