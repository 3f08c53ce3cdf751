"""A musivum whose ledger is attacked at its door, in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from musivum.config import MusivumConfig
from musivum.testing import Caller, calling, clock
from musivum.testing_http import Door, answering
from p2p.testing import MemoryNetwork
from tessella.core.attesting import NEIGHBOUR_SECONDS
from tessella.core.identity import Identity
from tessella.core.ledger import Walk
from tessella.core.messages import LEDGER, Settle, Settled
from tessella.core.proofs import SignedProof, pack_batch
from tessella.core.settlement import Outcome, decode_outcomes
from tests.core.work import MUSIVUM, Work, identity

CLIENT = identity(9)
CONFIG = MusivumConfig(min_vram_mb=0)


@dataclass
class Attacked:
    """A musivum, and whoever knocks at its ledger."""

    net: MemoryNetwork
    door: Door
    client: Caller
    stack: AsyncExitStack
    told: list[Outcome] = field(default_factory=list)
    """All that was ever said of a proof."""

    async def caller(self, number: int) -> Caller:
        """Another one with a key of its own."""
        calls = calling(self.net, identity(number).seed, self.door.peer, LEDGER)
        return await self.stack.enter_async_context(calls)

    async def bring(self, *proofs: SignedProof, by: Caller | None = None) -> list[Outcome]:
        """What is said of these."""
        answer = await (by or self.client).ask(Settle(pack_batch(proofs)))
        assert isinstance(answer, Settled)
        outcomes = decode_outcomes(answer.outcomes)
        self.told += outcomes
        return outcomes

    async def pays(self, work: Work, *proofs: SignedProof) -> list[int]:
        """What each worker of a request is paid for these of its proofs, a while later."""
        before = [await self.owns(worker) for worker in work.workers]
        await self.bring(*proofs)
        await self.door.opened.rooms.ledger.sweep(clock() + NEIGHBOUR_SECONDS)
        after = [await self.owns(worker) for worker in work.workers]
        return [b - a for a, b in zip(before, after, strict=True)]

    async def owns(self, worker: Identity) -> int:
        """Micro-credits of a worker."""
        return await self.door.opened.rooms.ledger.balance(worker.peer_id)

    async def paid(self) -> int:
        """How many payments the ledger has, which is read from its first entry on.

        Its sums are 0 and the balances.
        """
        ledger, payments = self.door.opened.rooms.ledger, 0
        walk = Walk(MUSIVUM.peer_id)
        while page := await ledger.page(since=walk.size):
            for payload in page:
                payments += walk.feed(payload).kind == "payment"
        assert sum(walk.balances.values()) == 0
        for account, micro in walk.balances.items():
            assert await ledger.balance(account) == micro
        return payments


@asynccontextmanager
async def attacked(config: MusivumConfig = CONFIG) -> AsyncIterator[Attacked]:
    """A musivum in memory that CLIENT knocks at."""
    net = MemoryNetwork()
    async with (
        answering(net, MUSIVUM.seed, config) as door,
        calling(net, CLIENT.seed, door.peer, LEDGER) as client,
        AsyncExitStack() as stack,
    ):
        yield Attacked(net, door, client, stack)
