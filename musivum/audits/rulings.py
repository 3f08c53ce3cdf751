"""What audits found of disputed proofs, on its way to the ledger, which pays by it.

It is told as soon as it is found; what the store could not take is told again.
"""

from __future__ import annotations

import logging
from typing import Protocol

from tessella.core.attesting import Ruling
from tessella.core.errors import StoreUnavailable
from tessella.core.proofs import Claim

logger = logging.getLogger(__name__)


# Kilobytes each. Of one that is forgotten the proofs are paid half, after a day.
MAX_WAITING = 4096


class Rules(Protocol):
    """Of the ledger, what takes a ruling."""

    async def rule(self, claim: Claim, ruling: Ruling) -> None:
        """Pay and refuse who waited for it. Raises StoreUnavailable."""


class Rulings:
    """Rulings that the ledger did not take yet. At a restart its disputes are audited anew."""

    def __init__(self, ledger: Rules) -> None:
        self._ledger = ledger
        self._waiting: dict[bytes, tuple[Claim, Ruling]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def put(self, claim: Claim, ruling: Ruling) -> None:
        """An audit found that. Never raises: who reported it did its part."""
        if len(self._waiting) >= MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[claim.digest] = (claim, ruling)
        try:
            await self.deliver()
        except StoreUnavailable as exc:
            logger.warning("a dispute over the work of %s waits: %s", claim.worker, exc)

    async def deliver(self) -> None:
        """Tell the ledger all that it does not know. Raises StoreUnavailable."""
        for digest, (claim, ruling) in list(self._waiting.items()):
            await self._ledger.rule(claim, ruling)
            self._waiting.pop(digest, None)
