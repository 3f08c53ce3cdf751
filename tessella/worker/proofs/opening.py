"""The proofs of one node: its book, who writes into it, and who empties it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from tessella.core.errors import TessellaError
from tessella.worker.audits.ring import Ring
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.proofs.billing import Billing
from tessella.worker.proofs.book import ProofBook, open_book
from tessella.worker.proofs.totals import Totals
from tessella.worker.proofs.upload import Uploader
from tessella.worker.tracker import Tracker

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a node that is paid has."""

    book: ProofBook
    uploader: Uploader
    checkpoint_seconds: float


@dataclass(frozen=True, slots=True)
class Proofs:
    """What a node has to do with proofs; nothing where nobody pays."""

    billing: Billing
    _kept: _Kept | None = None

    async def run(self) -> None:
        """Write and bring proofs until cancelled. Raises StoreLost."""
        if self._kept is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._kept.book.run, self._kept.checkpoint_seconds)
            nursery.start_soon(self.billing.run)
            nursery.start_soon(self._kept.uploader.run)

    async def flush(self) -> None:
        """Bring what is due at once, before the node leaves. Bounded, and never fails."""
        if self._kept is not None:
            await self._kept.uploader.flush()

    def totals(self) -> Totals | None:
        """What the book adds up to; None where there is none."""
        return self._kept.book.totals if self._kept is not None else None


@asynccontextmanager
async def open_proofs(
    config: WorkerConfig, ground: Ground, tracker: Tracker | None, ring: Ring
) -> AsyncIterator[Proofs]:
    """The proofs of a node, until the context is left: then its sessions have ended.

    `ring` keeps the rows that they are of.

    Raises as `open_book`.
    """
    if config.proofs is None or tracker is None:
        yield Proofs(Billing(identity=ground.identity))
        return
    async with open_book(config.proofs, ground.identity, ground.clock) as book:
        billing = Billing(
            book, identity=ground.identity, keep_outputs=ring.outputs, keep_ids=ring.ids
        )
        kept = _Kept(book, Uploader(book, tracker.settle), config.wal_checkpoint_seconds)
        try:
            yield Proofs(billing, kept)
        finally:
            # Of the sessions that ended with the node.
            try:
                await billing.bill_abandoned()
            except TessellaError as exc:
                logger.error("work was done for nothing: %s: %s", exc.code, exc)
