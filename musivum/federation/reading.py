"""Whether a partner's page goes on with what is held of its ledger, and tells no other history.

    broken      a page that cannot be read, or does not go on where ours ends: asked for again
    rewritten   what the partner signed contradicts what it signed before: nothing is taken any more

A page is read under the head that came with it. Of a ledger that takes many pages, the head that
was seen first is the goal: what is held has to have its root when it is as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import trio

from musivum.ledger import SignedHead
from tessella.core.errors import BadFrame, BadLedger
from tessella.core.ids import PeerId
from tessella.core.ledger import Entry, Frontier, Head, Walk, open_entry, open_head

# Entries that are checked before others may go on: some milliseconds.
ENTRIES_A_TURN = 32


@dataclass(frozen=True, slots=True)
class Seen:
    """A head of a partner's, verified, and as it was signed."""

    head: Head
    signed: SignedHead


def see(signed: SignedHead, origin: PeerId) -> Seen:
    """A head that a partner signed. Raises BadSignature, FrameTooLarge, BadFrame for others."""
    return Seen(open_head(signed.payload, signed.signature, origin), signed)


@dataclass(frozen=True, slots=True)
class Held:
    """What is here of a partner's ledger, and of its heads."""

    origin: PeerId
    frontier: Frontier
    last: bytes
    """The hash of its last entry here."""
    goal: Seen | None = None
    """What the entries have to come to when they are as many; None where nothing is under way."""
    latest: Seen | None = None
    """The head that was seen last: no later one may be of fewer entries."""


@dataclass(frozen=True, slots=True)
class Page:
    """Entries that go on where those that are held end."""

    held: Held
    """Where that was."""
    entries: Sequence[tuple[Entry, bytes]]
    """Each with its payload."""
    goal: Seen | None
    latest: Seen

    @property
    def size(self) -> int:
        """How many entries are held with these."""
        return self.held.frontier.size + len(self.entries)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A partner that told another history, and what it signed of both."""

    origin: PeerId
    reason: str
    """One sentence."""
    heads: tuple[Seen, ...]
    """Two that do not go together; one, if it belies its own entries at the first meeting."""


async def read_page(held: Held, latest: Seen, payloads: Sequence[bytes]) -> Page | Rewritten:
    """What a page comes to that was sent with the head `latest`.

    Raises BadLedger for entries that do not go on here, of which none is to be taken; BadFrame for
    more or fewer than the head speaks of.
    """
    before = held.latest
    reason = _against(before, latest) or _breaks(held, payloads)
    if reason:
        return _rewritten(held, reason, before, latest)
    walk, goal = Walk(held.origin, frontier=held.frontier, last=held.last), held.goal or latest
    entries: list[tuple[Entry, bytes]] = []
    for payload in payloads:
        if walk.size == latest.head.size:
            raise BadFrame(f"more entries than the {walk.size} of its head")
        entries.append((walk.feed(payload), payload))
        if len(entries) % ENTRIES_A_TURN == 0:
            await trio.lowlevel.checkpoint()
        reason = _belies(walk, goal.head)
        if reason:
            return _rewritten(held, reason, held.goal or before, latest)
    if not entries and walk.size < latest.head.size:
        raise BadFrame(f"no entry of the {latest.head.size - walk.size} that its head has more")
    reason = _belies(walk, latest.head)
    if reason:
        return _rewritten(held, reason, before, latest)
    if walk.size >= goal.head.size:
        goal = latest
    return Page(held, entries, None if walk.size == latest.head.size else goal, latest)


def _against(before: Seen | None, latest: Seen) -> str:
    """What speaks against a head after another; empty if nothing does."""
    if before is None:
        return ""
    old, new = before.head, latest.head
    if new.size < old.size:
        return f"rolled back: a head of {new.size} entries after one of {old.size}"
    if new.size == old.size and (new.root, new.last) != (old.root, old.last):
        return f"a fork: two heads of {new.size} entries"
    return ""


def _breaks(held: Held, payloads: Sequence[bytes]) -> str:
    """Whether the next entry was written after another than the last one here."""
    if not payloads or held.frontier.size == 0:
        return ""
    try:
        first = open_entry(payloads[0])
    except BadFrame:
        return ""  # whoever reads it says what is wrong with it
    place = held.frontier.size
    if (first.origin, first.sequence) == (held.origin, place) and first.previous != held.last:
        return f"a fork: entry {place} was written after another entry {place - 1} than is here"
    return ""


def _belies(walk: Walk, head: Head) -> str:
    """What speaks against a head of as many entries as were walked."""
    if walk.size != head.size:
        return ""
    try:
        walk.check_head(head)
    except BadLedger as exc:
        return f"a fork: {exc}"
    return ""


def _rewritten(held: Held, reason: str, before: Seen | None, latest: Seen) -> Rewritten:
    heads = (latest,) if before is None else (before, latest)
    return Rewritten(held.origin, reason, heads)
