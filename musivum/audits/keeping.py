"""Standings and epochs as rows of their tables, and back.

What of a standing no query asks for is one JSON object in the column `rest`. A row that cannot be
read ends the program: what it said may have been that its peer is barred.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from musivum.audits.standing import Standing
from musivum.nodes.reputation import AuditCounts
from musivum.store.audit_tables import EPOCHS, STANDINGS
from tessella.core.audits import Finding, Record, Verdict
from tessella.core.errors import StoreLost
from tessella.core.ids import PeerId

# Parameters of one statement: SQLite takes 32,766 of them.
_MANY = 1000
_SHOWN, _HIDDEN = "1", "0"


@dataclass(frozen=True, slots=True)
class Epoch:
    """A secret that audits are drawn with, and from when on, in seconds since 1970."""

    number: int
    secret: bytes
    began_at: float


def read_standings(connection: Connection) -> list[Standing]:
    """All of them. Raises StoreLost for a row that is none of ours."""
    return [_standing(row) for row in connection.execute(select(STANDINGS))]


def write_standings(connection: Connection, changed: Mapping[PeerId, Standing | None]) -> None:
    """Have these rows be so; None drops one."""
    peers = sorted(changed)
    for start in range(0, len(peers), _MANY):
        some = peers[start : start + _MANY]
        connection.execute(delete(STANDINGS).where(STANDINGS.c.peer_id.in_(some)))
        rows = [_row(standing) for each in some if (standing := changed[each]) is not None]
        if rows:
            connection.execute(insert(STANDINGS), rows)


def _row(standing: Standing) -> dict[str, Any]:
    counts = standing.counts
    rest = {
        "barred_for": standing.barred_for,
        "findings": [
            [each.verdict.value, each.auditor, each.request_id.hex()]
            for each in standing.record.findings
        ],
        "shown": _flags(standing.shown),
        "ids": _flags(standing.ids),
        "benched_until": standing.benched_until,
        "last_auditor": standing.last_auditor,
        "outvoted": [standing.outvoted, standing.unheard_until],
        "counts": [counts.passed, counts.rejected, counts.slashes, counts.at],
    }
    return {
        "peer_id": standing.peer_id,
        "hops": standing.hops,
        "suspect_left": standing.suspect_left,
        "barred_until": standing.barred_until,
        "owed": standing.owed,
        "fined": standing.fined,
        "rest": json.dumps(rest, separators=(",", ":"), allow_nan=False),
    }


def _flags(shown: Iterable[bool]) -> str:
    return "".join(_SHOWN if each else _HIDDEN for each in shown)


def _standing(row: Row[Any]) -> Standing:
    try:
        rest: Any = json.loads(row.rest)
        outvoted, unheard_until = rest["outvoted"]
        findings = [
            Finding(Verdict(verdict), str(auditor), bytes.fromhex(request_id))
            for verdict, auditor, request_id in rest["findings"]
        ]
        return Standing(
            peer_id=PeerId(row.peer_id),
            hops=row.hops,
            suspect_left=row.suspect_left,
            barred_until=row.barred_until,
            barred_for=str(rest["barred_for"]),
            owed=row.owed,
            fined=row.fined,
            record=Record(tuple(findings)),
            shown=tuple(each == _SHOWN for each in rest["shown"]),
            # Older rows do not say it.
            ids=tuple(each == _SHOWN for each in rest.get("ids", "")),
            benched_until=float(rest.get("benched_until", 0.0)),
            last_auditor=str(rest["last_auditor"]),
            outvoted=int(outvoted),
            unheard_until=float(unheard_until),
            counts=AuditCounts(*map(float, rest["counts"])),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise StoreLost(f"cannot read row {row.peer_id!r} of standings: {exc}") from exc


def read_epochs(connection: Connection) -> list[Epoch]:
    """Those whose secret is not told yet, oldest first; the last of them is the one that runs."""
    rows = connection.execute(select(EPOCHS).order_by(EPOCHS.c.number))
    return [Epoch(row.number, row.secret, row.began_at) for row in rows]


def add_epoch(connection: Connection, epoch: Epoch) -> None:
    """Keep the secret of an epoch that begins."""
    row = {"number": epoch.number, "secret": epoch.secret, "began_at": epoch.began_at}
    connection.execute(insert(EPOCHS), row)


def drop_epochs(connection: Connection, epochs: Iterable[Epoch]) -> None:
    """Forget those whose secret was told."""
    numbers = [epoch.number for epoch in epochs]
    connection.execute(delete(EPOCHS).where(EPOCHS.c.number.in_(numbers)))
