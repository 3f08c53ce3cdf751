"""What is remembered of a partner, in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
from sqlalchemy import Connection, Row, insert, select, update

from musivum.federation.reading import Held, Rewritten, Seen, see
from musivum.ledger import SignedHead
from musivum.ledger.draft import read_place
from musivum.store.partner_tables import PARTNERS
from tessella.core.errors import StoreLost, TessellaError
from tessella.core.ids import PeerId


@dataclass(frozen=True, slots=True)
class Kept:
    """One partner, as it was left."""

    held: Held
    evidence: tuple[Seen, ...] = ()
    """What it signed of two histories."""
    reason: str = ""
    """Why nothing is taken from it any more; empty while it is followed."""
    slashes: int = 0
    """Entries of its ledger that are penalties."""
    reversals: int = 0
    """Payments of ours that were taken back because it paid the same proofs."""

    @property
    def size(self) -> int:
        """How many of its entries are here."""
        return self.held.frontier.size


@dataclass(frozen=True, slots=True)
class Counted:
    """What a page added."""

    slashes: int = 0
    reversals: int = 0


def read_kept(connection: Connection, origin: PeerId) -> Kept:
    """What is known of a partner, be it nothing. Raises StoreLost for what cannot be read."""
    frontier, last = read_place(connection, origin)
    row = _row(connection, origin)
    if row is None:
        return Kept(Held(origin, frontier, last))
    goal, latest = _heads(row.goal, origin), _heads(row.latest, origin)
    held = Held(origin, frontier, last, goal[0] if goal else None, latest[0] if latest else None)
    return Kept(held, _heads(row.evidence, origin), row.reason, row.slashes, row.reversals)


def write_heads(
    connection: Connection, origin: PeerId, goal: Seen | None, latest: Seen, counted: Counted
) -> None:
    """Remember heads, and count what came with them."""
    _make(connection, origin)
    connection.execute(
        update(PARTNERS)
        .where(PARTNERS.c.origin == origin)
        .values(
            goal=_packed([goal] if goal else []),
            latest=_packed([latest]),
            slashes=PARTNERS.c.slashes + counted.slashes,
            reversals=PARTNERS.c.reversals + counted.reversals,
        )
    )


def write_refusal(connection: Connection, found: Rewritten) -> None:
    """Remember that a partner told two histories, and what it signed of them."""
    _make(connection, found.origin)
    connection.execute(
        update(PARTNERS)
        .where(PARTNERS.c.origin == found.origin)
        .values(evidence=_packed(found.heads), reason=found.reason)
    )


def _make(connection: Connection, origin: PeerId) -> None:
    if _row(connection, origin) is None:
        blank: dict[str, Any] = {"goal": b"", "latest": b"", "evidence": b"", "reason": ""}
        connection.execute(
            insert(PARTNERS), {"origin": origin, **blank, "slashes": 0, "reversals": 0}
        )


def _row(connection: Connection, origin: PeerId) -> Row[Any] | None:
    return connection.execute(select(PARTNERS).where(PARTNERS.c.origin == origin)).one_or_none()


def _packed(heads: Sequence[Seen]) -> bytes:
    packed: bytes = msgpack.packb([[*seen.signed] for seen in heads], use_bin_type=True)
    return packed if heads else b""


def _heads(packed: bytes, origin: PeerId) -> tuple[Seen, ...]:
    if not packed:
        return ()
    try:
        return tuple(see(SignedHead(*pair), origin) for pair in msgpack.unpackb(packed))
    except (TessellaError, ValueError, TypeError, msgpack.UnpackException) as exc:
        raise StoreLost(f"cannot read the heads of {origin}: {exc}") from exc
