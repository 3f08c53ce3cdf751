"""A ledger in memory, its clock, and what it told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from musivum.ledger import Ledger, Refuted, Settled, Settlement
from musivum.store.memory import MemoryStore
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.ledger import Entry, Head, Walk, open_entry, open_head
from tessella.core.proofs import Claim, SignedProof
from tessella.core.settlement import MICRO_PER_LAYER_TOKEN, Caps, Outcome
from tessella.core.tickets import ANONYMOUS
from tests.core.work import MUSIVUM, NOW, Work, identity

WORKER = identity(1)
# Numbers of requests that no test names.
EARNING = 1 << 32
# 10 layers, 50 positions.
PAY = 500 * MICRO_PER_LAYER_TOKEN


@dataclass
class Kept:
    """One ledger, of MUSIVUM. A second one over its store is a restart."""

    store: MemoryStore = field(default_factory=MemoryStore)
    caps: Caps = field(default_factory=Caps)
    issuers: tuple[PeerId, ...] = (MUSIVUM.peer_id,)
    now: float = NOW

    def __post_init__(self) -> None:
        self.paid: list[Settlement] = []
        self.waiting: list[Settlement] = []
        self.conflicts: list[Claim] = []
        self.refuted: list[Refuted] = []
        self.ledger = Ledger(MUSIVUM, self.store, lambda: self.now, self.caps, lambda: self.issuers)
        self.ledger.on_settled = self.hear

    def hear(self, settled: Settled) -> None:
        """Keep what was told."""
        self.paid += settled.paid
        self.waiting += settled.waiting
        self.conflicts += settled.conflicts
        self.refuted += settled.refuted

    async def entries(self) -> list[Entry]:
        """Our ledger, from the first entry on."""
        return [open_entry(payload) for payload in await self.ledger.page()]

    async def earns(self, worker: Identity, times: int = 5) -> None:
        """A worker serves others who have no name, alone, for PAY each."""
        numbers = range(EARNING, EARNING + times)
        await self.ledger.settle([one_stage(number, worker=worker) for number in numbers])
        self.paid.clear()

    async def head(self, least: int = 0) -> Head:
        """The head, verified."""
        payload, signature = await self.ledger.head(least)
        return open_head(payload, signature, MUSIVUM.peer_id)

    async def walk(self) -> Walk:
        """A reading of all of our ledger that ends under its head, and agrees with the balances."""
        walk = Walk(MUSIVUM.peer_id)
        for payload in await self.ledger.page():
            walk.feed(payload)
        walk.check_head(await self.head(walk.size))
        assert sum(walk.balances.values()) == 0
        for account, micro in walk.balances.items():
            assert await self.ledger.balance(account) == micro
        return walk


def became(outcomes: Sequence[Outcome]) -> list[str]:
    """The words of these."""
    return [outcome.became.value for outcome in outcomes]


def a_request(number: int) -> bytes:
    """A request id."""
    return number.to_bytes(16, "big")


def one_stage(
    number: int, requester: str = ANONYMOUS, worker: Identity = WORKER, at: float = NOW
) -> SignedProof:
    """A proof that needs nobody to bear it out: each number is another request, worth PAY."""
    work = Work([worker], requester=requester, request_id=a_request(number), issued_at=at)
    return work.proof(0)
