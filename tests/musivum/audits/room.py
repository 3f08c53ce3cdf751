"""A room of audits over a ledger in memory, its nodes, and auditors that say what a test wants.

Hops are made as the ledger tells of them: no arithmetic, and no rows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import trio
from trio.testing import MockClock

from musivum.audits.desk import Audits, Mesh, open_audits
from musivum.clocks import Clocks
from musivum.config import MusivumConfig
from musivum.ledger import Ledger, Settlement
from musivum.nodes.books import Books, open_books
from musivum.nodes.registration import read_registration
from musivum.store.memory import MemoryStore
from musivum.testing import HOUSE, SMALL, a_registration, clock
from tessella.core.audit_orders import open_order
from tessella.core.contracts import contract_of
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.ledger import MINT, Entry, Line, open_entry
from tessella.core.messages import (
    AuditReport,
    AuditTask,
    Commit,
    Proof,
    Ticket,
    TicketStage,
)
from tessella.core.proofs import Claim, SignedProof
from tessella.core.settlement import worth
from tessella.core.tickets import ANONYMOUS

US = Identity(b"m" * 32)
MODEL = ModelId("small")
WHOLE, FIRST, LAST = LayerRange(0, 12), LayerRange(0, 6), LayerRange(6, 12)
BF16 = "bf16/bf16/bf16"
POSITIONS = 50
COMMIT = Commit(stop=POSITIONS, digest=bytes(32), marks=bytes(16), last=bytes(64))
CONFIG = MusivumConfig(min_vram_mb=0)

# Three in a row of bf16 over six layers: what one layer showed, by the root of six.
HONEST_MEDIAN = (2.4e-3, 5.3e-3)
HONEST_WORST, HONEST_GAIN = 0.16, 2.0e-3


def peer(number: int) -> PeerId:
    """The name of node `number`."""
    return Identity(number.to_bytes(32, "big")).peer_id


def said(found: str = "measured", median: float = 1e-2, gain: float = 1.0) -> AuditReport:
    """A report without a name; the defaults pass."""
    return AuditReport(
        audit_id=b"",
        found=found,
        tokens=POSITIONS,
        median=median,
        worst=0.1,
        gain=gain,
        reference=bytes(32),
    )


GOOD, BAD = said(), said(median=0.5)
SAYS_FRAUD, SAYS_MALFORMED = said("fraud"), said("malformed")
SEES_NOTHING, SEES_A_SKETCH = said("unavailable"), said("sketched")
SEES_TOO_LITTLE, IS_UNABLE = said("withheld"), said("unable")
Says = Callable[[PeerId, Settlement], AuditReport]
"""What an auditor says of a hop."""


def honest_noise(rng: random.Random) -> AuditReport:
    """What an auditor measures of an honest node."""
    median = rng.uniform(*HONEST_MEDIAN) * math.sqrt(len(FIRST))
    gain = 1.0 + rng.uniform(-HONEST_GAIN, HONEST_GAIN)
    return replace(said(median=median, gain=gain), worst=rng.uniform(0.02, HONEST_WORST))


@dataclass
class Room:
    """One musivum's audits. `reopened` is a restart."""

    books: Books
    ledger: Ledger
    audits: Audits
    time: MockClock
    removed: list[PeerId]
    hops: int = 0
    by_digest: dict[bytes, Settlement] = field(default_factory=dict)

    async def reopened(self) -> Room:
        """The same over the same store, after what changed was written."""
        await self.audits.flush()
        return await a_room(self.time, self.ledger, self.books)

    def joins(
        self, number: int, layers: LayerRange = WHOLE, weights: str = "bf16", **changes: object
    ) -> PeerId:
        """Have a node of the small model serve these layers."""
        asked = replace(a_registration(), wanted=layers, claim_mb=64, weights=weights, dtype="bf16")
        wish = read_registration(replace(asked, **changes), HOUSE)  # type: ignore[arg-type]
        now = self.books.clocks.now()
        self.books.roster.join(peer(number), wish, now)
        self.books.roster.ready(peer(number), layers, now)
        return peer(number)

    async def earns(self, worker: PeerId, micro: int) -> None:
        """Give an account so many micro-credits, by work."""
        lines = [Line(worker, micro), Line(MINT, -micro)]
        await self.ledger.post("payment", lines, "", worker, bytes(16), US.peer_id)

    def hop(
        self,
        chain: Sequence[PeerId],
        place: int = 0,
        numeric: str = BF16,
        **changes: float,
    ) -> Settlement:
        """A hop of a chain of one or two stages, that was paid a moment ago."""
        self.hops += 1
        layers = (FIRST, LAST) if len(chain) > 1 else (WHOLE,)
        issued_at = changes.get("issued_at", self.books.clocks.wall() - 30)
        ticket = Ticket(
            issuer=US.peer_id,
            request_id=self.hops.to_bytes(16, "big"),
            model=MODEL,
            contract=contract_of(SMALL),
            requester=ANONYMOUS,
            tier="leech",
            chain=tuple(
                TicketStage(worker, span, numeric)
                for worker, span in zip(chain, layers, strict=True)
            ),
            spares=(),
            max_tokens=100,
            issued_at=issued_at,
            start_by=issued_at + 300,
            expires_at=issued_at + 3600,
        )
        proof = Proof(
            ticket=b"",
            ticket_signature=b"",
            worker=chain[place],
            sequence=self.hops,
            previous=b"",
            layers=layers[place],
            start=0,
            epoch=0,
            inputs=COMMIT,
            sender=chain[place - 1] if place else PeerId(""),
            voucher=bytes(64) if place else b"",
            outputs=COMMIT,
            sketch=b"",
            finished_at=issued_at,
        )
        signed = SignedProof(chain[place].encode() + ticket.request_id, bytes(64))
        claim = Claim(signed.digest, proof, ticket, place)
        settlement = Settlement(
            claim,
            signed,
            worth(claim, POSITIONS),
            changes.get("received_at", self.books.clocks.wall()),
        )
        self.by_digest[signed.payload] = settlement
        return settlement

    def works(self, worker: PeerId, count: int = 1) -> list[Settlement]:
        """A worker of the whole model is paid for so many hops."""
        hops = [self.hop([worker]) for _ in range(count)]
        self.audits.settled(hops)
        return hops

    async def asks(self, auditor: PeerId) -> AuditTask | None:
        """An auditor asks for something to do."""
        return await self.audits.next_task(auditor)

    async def gets(self, auditor: PeerId, patience: float = 3000.0) -> AuditTask:
        """The task that an auditor gets, sooner or later."""
        until = trio.current_time() + patience
        while (task := await self.asks(auditor)) is None:
            assert trio.current_time() < until, "nothing to audit"
            await trio.sleep(10)
        return task

    async def tells(self, auditor: PeerId, task: AuditTask, report: AuditReport) -> None:
        """An auditor reports."""
        await self.audits.report(auditor, replace(report, audit_id=task.audit_id))

    async def judged(self, auditor: PeerId, report: AuditReport) -> None:
        """An auditor gets a task and says that."""
        await self.tells(auditor, await self.gets(auditor), report)

    def audited_of(self, task: AuditTask) -> Settlement:
        """Which hop a task is about."""
        return self.by_digest[task.proof]

    async def audited(self, auditors: Iterable[PeerId], says: Says) -> int:
        """Auditors do all that there is to do for them; returns how many reports that took."""
        reports, idle, asking = 0, 0, list(auditors)
        while self.audits.counters()["open"] and idle < 10:
            before = reports
            for auditor in asking:
                if (task := await self.asks(auditor)) is not None:
                    report = says(auditor, self.audited_of(task))
                    await self.tells(auditor, task, report)
                    reports += 1
            idle = 0 if reports > before else idle + 1
            if reports == before:
                self.time.jump(20)
        return reports

    async def entries(self, kind: str) -> list[Entry]:
        """Those of a kind, in order."""
        found = []
        for since in range(0, await self.ledger.size(), 100):
            page = await self.ledger.page(since=since, limit=100)
            found += [open_entry(payload) for payload in page]
        return [entry for entry in found if entry.kind == kind]


def sides(task: AuditTask) -> list[tuple[str, str]]:
    """Whom a task sends its auditor to, and for what."""
    orders = [open_order(signed, [US.peer_id]) for signed in (task.inputs, task.outputs)]
    return [(order.keeper, order.side) for order in orders]


async def a_room(time: MockClock, ledger: Ledger | None = None, books: Books | None = None) -> Room:
    """A room, of a ledger in memory if none is given."""
    store = MemoryStore()
    ledger = ledger or Ledger(US, store, clock)
    books = books or await open_books(CONFIG, store, Clocks(clock))
    roster, removed = books.roster, list[PeerId]()

    async def remove(peer_id: PeerId) -> None:
        roster.leave(peer_id)
        removed.append(peer_id)

    mesh = Mesh(US, roster, books.reputations, books.clocks)
    audits = await open_audits(mesh, ledger, remove)
    ledger.on_settled = audits.hear
    return Room(books, ledger, audits, time, removed)
