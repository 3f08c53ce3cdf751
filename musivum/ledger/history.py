"""What a ledger shows of itself: pages, its signed head, and proofs that hold under it.

There is one head for one size, forever: a head is signed for where the ledger stands, it only
grows, and the last head is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, Row, insert, select, update

from musivum.ledger.draft import KEPT_LEVEL, frontier_of, new_ledger
from musivum.store.ledger_tables import ENTRIES, LEDGERS, TREE
from musivum.store.partner_tables import PARTNERS
from tessella.core.errors import BadRequest, StoreLost, UnknownEntry
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.ledger import (
    MAX_PAGE_ENTRIES,
    Head,
    Node,
    consistency_proof,
    inclusion_proof,
    root,
    seal_head,
)

# A head is as old as this, or so many entries behind, and the next who asks gets another.
HEAD_ENTRIES = 100
HEAD_SECONDS = 10.0


class SignedHead(NamedTuple):
    """A sealed Head, and its signature."""

    payload: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Inclusion:
    """One entry, and what joins it to the root of a head."""

    payload: bytes
    index: int
    size: int
    """Of the tree that the path is of."""
    path: tuple[bytes, ...]
    """For `verify_inclusion`."""


def size_of(connection: Connection, origin: PeerId) -> int:
    """How many entries of a musivum are here."""
    asked = select(LEDGERS.c.size).where(LEDGERS.c.origin == origin)
    return connection.execute(asked).scalar() or 0


def read_keepers(connection: Connection) -> frozenset[PeerId]:
    """The musivums that kept this database, and wrote their entries here; partners did not."""
    partners = select(PARTNERS.c.origin)
    asked = select(LEDGERS.c.origin).where(LEDGERS.c.origin.not_in(partners))
    return frozenset(map(PeerId, connection.scalars(asked)))


def read_page(connection: Connection, origin: PeerId, since: int, limit: int) -> list[bytes]:
    """Payloads from entry `since` on, at most `limit` of them and MAX_PAGE_ENTRIES.

    Raises BadRequest for numbers below 0.
    """
    if since < 0 or limit < 0:
        raise BadRequest(f"no page of {limit} entries from {since} on")
    asked = (
        select(ENTRIES.c.payload)
        .where(ENTRIES.c.origin == origin, ENTRIES.c.sequence >= since)
        .order_by(ENTRIES.c.sequence)
        .limit(min(limit, MAX_PAGE_ENTRIES))
    )
    return list(connection.execute(asked).scalars())


def read_head(connection: Connection, identity: Identity, now: float, least: int = 0) -> SignedHead:
    """A head of our own ledger that is of `least` entries or more, signed if it has to be.

    Raises UnknownEntry where there are not so many.
    """
    row = _ledger(connection, identity.peer_id)
    if least > row.size:
        raise UnknownEntry(f"no entry {least - 1} among {row.size}")
    if row.head and row.head_size >= least and not _is_old(row, now):
        return SignedHead(row.head, row.head_signature)
    tree = frontier_of(row.size, row.peaks)
    head = Head(origin=row.origin, size=row.size, root=tree.root, last=row.last, at=now)
    payload, signature = seal_head(head, identity)
    connection.execute(
        update(LEDGERS).where(LEDGERS.c.origin == row.origin),
        {"head": payload, "head_signature": signature, "head_size": row.size, "head_at": now},
    )
    return SignedHead(payload, signature)


def _ledger(connection: Connection, origin: PeerId) -> Row[tuple[object, ...]]:
    asked = select(LEDGERS).where(LEDGERS.c.origin == origin)
    found = connection.execute(asked).one_or_none()
    if found is None:
        connection.execute(insert(LEDGERS), new_ledger(origin))
        found = connection.execute(asked).one()
    return found


def _is_old(row: Row[tuple[object, ...]], now: float) -> bool:
    grown = row.size - row.head_size
    return grown >= HEAD_ENTRIES or (grown > 0 and not 0 <= now - row.head_at < HEAD_SECONDS)


def read_inclusion(
    connection: Connection, origin: PeerId, index: int, size: int | None
) -> Inclusion:
    """An entry, and what joins it to the root of the first `size` entries; of all if None.

    Raises UnknownEntry for an entry that is not among them, BadRequest for a size beyond ours.
    """
    size = _checked(connection, origin, size)
    path = inclusion_proof(index, size, nodes(connection, origin))
    (payload,) = read_page(connection, origin, index, 1)
    return Inclusion(payload, index, size, path)


def read_consistency(
    connection: Connection, origin: PeerId, old: int, new: int | None
) -> tuple[bytes, ...]:
    """What shows that the first `new` entries, all if None, begin with the first `old` ones.

    Raises BadRequest for sizes that do not follow each other, or beyond ours.
    """
    size = _checked(connection, origin, new)
    return consistency_proof(old, size, nodes(connection, origin))


def _checked(connection: Connection, origin: PeerId, size: int | None) -> int:
    held = size_of(connection, origin)
    if size is None:
        return held
    if size > held:
        raise BadRequest(f"a tree of {size} entries, there are {held}")
    return size


def nodes(connection: Connection, origin: PeerId) -> Node:
    """Roots of complete subtrees of a ledger. They raise StoreLost for one that is missing."""

    def node(level: int, place: int) -> bytes:
        if level < KEPT_LEVEL:
            found = _leaves(connection, origin, place << level, 1 << level)
            if len(found) == 1 << level:
                return root(found)
        else:
            asked = select(TREE.c.hash).where(
                TREE.c.origin == origin, TREE.c.level == level, TREE.c.place == place
            )
            kept = connection.execute(asked).scalar_one_or_none()
            if kept is not None:
                return bytes(kept)
        raise StoreLost(f"the ledger of {origin} has no node {place} of level {level}")

    return node


def _leaves(connection: Connection, origin: PeerId, start: int, count: int) -> list[bytes]:
    asked = (
        select(ENTRIES.c.hash)
        .where(
            ENTRIES.c.origin == origin,
            ENTRIES.c.sequence >= start,
            ENTRIES.c.sequence < start + count,
        )
        .order_by(ENTRIES.c.sequence)
    )
    return list(connection.execute(asked).scalars())
