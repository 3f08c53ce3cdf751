"""Where proofs come in to be paid, at both doors, and how fast one source may bring them.

Proofs speak for themselves, so anyone may bring them; each costs us two signatures to check and
some writing, so they are paced by their number, and not by that of the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import trio

from tessella.core.addresses import Cidr, address_of, within
from tessella.core.errors import TooManyRequests
from tessella.core.ids import PeerId
from tessella.core.proofs import MAX_BATCH, SignedProof
from tessella.core.rates import Buckets, Rate
from tessella.core.settlement import Outcome
from tessella.web.limits import read_client

# A node that serves hundreds of requests a minute makes a few a second; what waited while musivum
# was away comes two batches at once and then at this pace.
PROOFS_PER_SECOND = 100.0
PROOF_BURST = 2 * MAX_BATCH


class Settles(Protocol):
    """Of the ledger, what takes proofs."""

    async def settle(self, proofs: Sequence[SignedProof]) -> list[Outcome]:
        """What becomes of each, in order. Raises StoreUnavailable, and then nothing is kept."""


class Settling:
    """Paces who brings proofs, and has them settled."""

    def __init__(self, ledger: Settles, exempt: tuple[Cidr, ...]) -> None:
        """`exempt` are networks that the limit by address does not hold for."""
        self._ledger = ledger
        self._exempt = exempt
        rate = Rate(PROOFS_PER_SECOND, PROOF_BURST)
        self._peers = Buckets[PeerId](rate)
        self._addresses = Buckets[Cidr](rate)

    async def of_peer(self, peer_id: PeerId, proofs: Sequence[SignedProof]) -> list[Outcome]:
        """Settle what a peer brings; one that brings too much waits. Raises StoreUnavailable."""
        for _ in proofs:
            # By the clock, and not by an event: a bucket fills by itself.
            while not self._peers.take(peer_id, trio.current_time()):  # noqa: ASYNC110
                await trio.sleep(1 / PROOFS_PER_SECOND)
        return await self._ledger.settle(proofs)

    async def of_address(self, host: str, proofs: Sequence[SignedProof]) -> list[Outcome]:
        """Settle what came from an address. Raises TooManyRequests for too much, and
        StoreUnavailable."""
        ip = read_client(host)
        if not within(ip, self._exempt):
            self._take(address_of(ip), len(proofs))
        return await self._ledger.settle(proofs)

    def _take(self, source: Cidr, count: int) -> None:
        now = trio.current_time()
        if self._addresses.left(source, now) < count:
            raise TooManyRequests(f"more than {PROOFS_PER_SECOND:g} proofs a second")
        for _ in range(count):
            self._addresses.take(source, now)
