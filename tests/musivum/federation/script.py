"""A partner whose ledger a test writes, entry by entry, and may write differently."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field

from musivum.bodies.ledger import SnapshotBody
from musivum.federation.reading import Seen, see
from musivum.ledger import SignedHead
from musivum.pages.ledger_words import head_body
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.ledger import (
    MINT,
    ZERO_HASH,
    Entry,
    Frontier,
    Head,
    Line,
    entry_hash,
    open_head,
    seal_entry,
    seal_head,
)
from tests.core.work import NOW, identity

PARTNER = Identity(b"P" * 32)
WORKER = identity(1).peer_id


@dataclass
class History:
    """One ledger of a musivum's, perhaps not its only one."""

    identity: Identity = PARTNER
    payloads: list[bytes] = field(default_factory=list)
    last: bytes = ZERO_HASH
    at: float = NOW

    def copy(self, size: int | None = None) -> History:
        """The same up to an entry: what comes after may be told differently."""
        made = History(self.identity, at=self.at)
        for payload in self.payloads[:size]:
            made._put(payload)
        return made

    def _put(self, payload: bytes) -> None:
        self.payloads.append(payload)
        self.last = entry_hash(payload)

    def add(self, kind: str, *lines: Line, issuer: PeerId | str = "", number: int = 0) -> Entry:
        """One more entry; `number` makes its request id."""
        of_proof = kind in ("payment", "reversal")
        entry = Entry(
            origin=self.identity.peer_id,
            sequence=len(self.payloads),
            previous=self.last,
            kind=kind,
            at=self.at,
            issuer=(issuer or self.identity.peer_id) if of_proof else "",
            request_id=number.to_bytes(16, "big") if of_proof else b"",
            worker=WORKER if of_proof else "",
            reason="" if of_proof else "because",
            lines=lines,
        )
        self._put(seal_entry(entry))
        return entry

    def pay(self, number: int, micro: int = 5, issuer: PeerId | str = "") -> Entry:
        """One more payment of WORKER, by the mint."""
        lines = (Line(WORKER, micro), Line(MINT, -micro)) if micro else ()
        return self.add("payment", *lines, issuer=issuer, number=number)

    def frontier(self) -> Frontier:
        """The tree of it."""
        tree = Frontier()
        for payload in self.payloads:
            tree = tree.appended(entry_hash(payload))
        return tree

    def signed(self, by: Identity | None = None) -> SignedHead:
        """The head of it as it stands; `by` signs for somebody else's ledger, as its own."""
        who = by or self.identity
        tree = self.frontier()
        head = Head(
            origin=who.peer_id,
            size=tree.size,
            root=tree.root,
            last=self.last if tree.size else ZERO_HASH,
            at=self.at,
        )
        return SignedHead(*seal_head(head, who))

    def seen(self) -> Seen:
        """The same, verified."""
        return see(self.signed(), self.identity.peer_id)


def of_payments(count: int, identity: Identity = PARTNER) -> History:
    """A ledger of so many payments."""
    history = History(identity)
    for number in range(count):
        history.pay(number)
    return history


def numbers(entries: Sequence[tuple[Entry, bytes]]) -> list[int]:
    """The places of entries."""
    return [entry.sequence for entry, _ in entries]


def page_of(history: History, start: int, stop: int | None = None) -> SnapshotBody:
    """A page as a partner would send it that has this ledger."""
    return under(history.signed(), history, start, stop)


def under(
    signed: SignedHead, history: History, start: int, stop: int | None = None
) -> SnapshotBody:
    """The same with another head."""
    payloads = history.payloads[start:stop]
    head = open_head(signed.payload, signed.signature, history.identity.peer_id)
    return SnapshotBody(
        since=start,
        entries=[b64encode(each).decode() for each in payloads],
        next=start + len(payloads),
        head=head_body(head, *signed),
    )
