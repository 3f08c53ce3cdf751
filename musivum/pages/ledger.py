"""The ledger as it is shown: to anyone who wants to check it, and to its operator."""

from __future__ import annotations

import trio

from musivum.bodies.fields import NoArguments
from musivum.bodies.ledger import (
    CreditsBody,
    EntryBody,
    HeadBody,
    LatestArguments,
    LedgerProofBody,
    ProofArguments,
    SnapshotArguments,
    SnapshotBody,
)
from musivum.ledger import Credits, Ledger, SignedHead
from musivum.pages.ledger_words import base64, entry_body, head_body, in_credits
from tessella.core.errors import StoreUnavailable, UnknownEntry
from tessella.core.ids import PeerId
from tessella.core.ledger import Head, open_head

# A proof takes the database's one thread for some tens of milliseconds, and anybody may ask for it:
# of so many at a time, what is to be settled waits for one, and not for all who are curious.
PROOFS_AT_ONCE = 2
MAX_WAITING = 64


class LedgerPages:
    """The public questions about one ledger. Each raises StoreUnavailable."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._turns = trio.CapacityLimiter(PROOFS_AT_ONCE)

    async def head(self, _: NoArguments) -> HeadBody:
        """How long the ledger is and what it holds, signed. Whoever keeps a head can not be told
        another history later."""
        return _told(*await self._head())

    async def _head(self, least: int = 0) -> tuple[SignedHead, Head]:
        signed = await self._ledger.head(least)
        return signed, open_head(signed.payload, signed.signature, self._ledger.origin)

    async def proof(self, asked: ProofArguments) -> LedgerProofBody:
        """Entries from `index` on, and what joins the last of them to the head; and what shows that
        the tree of `to` entries begins with that of `from`.

        Raises UnknownEntry for what is not there, StoreUnavailable where too many ask.
        """
        if self._turns.statistics().tasks_waiting >= MAX_WAITING:
            raise StoreUnavailable(f"{MAX_WAITING} proofs of entries are waited for")
        async with self._turns:
            return await self._proof(asked)

    async def _proof(self, asked: ProofArguments) -> LedgerProofBody:
        least = max(asked.since, asked.to or 0, 0 if asked.index is None else asked.index + 1)
        signed, head = await self._head(least)
        to = head.size if asked.to is None else asked.to
        if to < asked.since:
            raise UnknownEntry(f"no entry {asked.since - 1} among {to}")
        entries, path = await self._included(asked, head)
        grown = await self._ledger.consistency(asked.since, to) if asked.since else ()
        return LedgerProofBody(
            head=_told(signed, head),
            index=asked.index,
            entries=list(map(base64, entries)),
            inclusion=[each.hex() for each in path],
            consistency=[each.hex() for each in grown],
        )

    async def _included(
        self, asked: ProofArguments, head: Head
    ) -> tuple[list[bytes], tuple[bytes, ...]]:
        if asked.index is None:
            return [], ()
        entries = await self._entries(asked.index, min(asked.count, head.size - asked.index))
        last = await self._ledger.inclusion(asked.index + len(entries) - 1, head.size)
        return entries, last.path

    async def _entries(self, since: int, limit: int) -> list[bytes]:
        return await self._ledger.page(since=since, limit=limit) if limit else []

    async def snapshot(self, asked: SnapshotArguments) -> SnapshotBody:
        """A page of the ledger from `since` on, under a head that has all of it.

        Raises UnknownEntry for a place beyond its end.
        """
        signed, head = await self._head(asked.since)
        entries = await self._entries(asked.since, min(asked.limit, head.size - asked.since))
        return SnapshotBody(
            since=asked.since,
            entries=list(map(base64, entries)),
            next=asked.since + len(entries),
            head=_told(signed, head),
        )

    async def latest(self, asked: LatestArguments) -> list[EntryBody]:
        """The latest entries, the last one first."""
        size = await self._ledger.size()
        page = await self._ledger.page(since=max(0, size - asked.limit), limit=asked.limit)
        return [entry_body(payload) for payload in reversed(page)]


def _told(signed: SignedHead, head: Head) -> HeadBody:
    return head_body(head, signed.payload, signed.signature)


def credits_body(found: Credits, held_against: str) -> CreditsBody:
    """An account, and what is held against whose it is, in a sentence."""
    return CreditsBody(
        peer_id=found.account,
        credits=in_credits(found.balance),
        micro=found.balance,
        tier=found.tier.value,
        micro_earned=found.earned,
        micro_earned_day=found.earned_day,
        micro_spent=found.spent,
        waiting=found.waiting,
        held_against=held_against,
    )


async def credits_json(ledger: Ledger, peer_id: PeerId, held_against: str) -> bytes:
    """A peer's own account as JSON. Raises StoreUnavailable."""
    return credits_body(await ledger.credits(peer_id), held_against).model_dump_json().encode()
