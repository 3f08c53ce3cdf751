"""An entry, a stage after it, an auditor, and a musivum that orders whatever a test wants.

async with a_mesh(weights) as mesh:
    work = mesh.work(cheat=echo)
    report = await mesh.auditor().audit(mesh.task(work.stage))

The entry holds layers [0, 3) and the stage [3, 6) of the toy model.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from p2p.testing import MemoryHost, MemoryNetwork
from tessella.core.audit_orders import INPUTS, OUTPUTS, seal_order
from tessella.core.audits import Judgement, Measured, judge, sketch_tolerance
from tessella.core.contracts import contract_of
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import (
    AUDIT,
    AuditOrder,
    AuditReport,
    AuditTask,
    Proof,
    SignedOrder,
    Ticket,
    TicketStage,
    decode_sealed,
)
from tessella.core.numeric import NumericClass, tolerances
from tessella.core.proofs import SignedProof, seal_proof
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.core.tickets import ANONYMOUS, place_of, seal_ticket
from tessella.core.tiers import Tier
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.compute import Job
from tessella.engine.device import Device
from tessella.engine.shard import Shard, load_shard
from tessella.engine.weights import open_checkpoint
from tessella.worker.audits.auditor import Auditor
from tessella.worker.audits.keeper import AUDIT_STREAMS, AUDIT_STREAMS_PER_PEER, Keeper
from tessella.worker.audits.papers import Basis
from tessella.worker.audits.ring import Ring
from tessella.worker.proofs.witness import Ticketing, Witness
from tessella.worker.terms import pack_ids

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
MODEL = ModelId("toy")
MUSIVUM = Identity(b"m" * 32)
ENTRY, STAGE, AUDITOR, STRANGER = (Identity(bytes([number]) * 32) for number in range(1, 5))
FRONT, BACK = LayerRange(0, 3), LayerRange(3, 6)
IDS = [(5 * at * at + 7 * at + 11) % 250 for at in range(44)]
OTHER_IDS = [(3 * at * at + 13 * at + 1) % 250 for at in range(44)]
PROMPT = 24

Cheat = Callable[["Tensor", "Tensor"], "Tensor"]


def now() -> float:
    """Seconds since 1970 that pass with the virtual clock too."""
    return time.time() + trio.current_time()


class CountingCompute:
    """Arithmetic in the loop; how far each job went without giving others a turn."""

    def __init__(self) -> None:
        self.counter = 0
        self.jobs: list[tuple[Tier, bool, int]] = []

    async def run(
        self, work: Callable[[Job], T], *, urgent: bool = False, tier: Tier = Tier.LEECH
    ) -> T:
        await trio.lowlevel.checkpoint()
        before = self.counter
        try:
            return work(_Job(self))
        finally:
            self.jobs.append((tier, urgent, self.counter - before))


class _Job(Job):
    def __init__(self, compute: CountingCompute) -> None:
        self._counting = compute

    def advance(self) -> None:
        self._counting.counter += 1


@dataclass
class Party:
    identity: Identity
    host: MemoryHost
    ring: Ring


@dataclass
class Work:
    """What two stages did for one ticket, and the proof of each."""

    request_id: bytes
    entry: SignedProof
    stage: SignedProof
    klass: NumericClass
    given: list[bytes] = field(default_factory=list)
    """The rows of the stage, as they left in each step."""


@dataclass
class AuditMesh:
    net: MemoryNetwork
    checkpoint: Checkpoint
    entry: Party
    stage: Party
    auditor_host: MemoryHost
    compute: CountingCompute
    stack: AsyncExitStack
    """Closed with the mesh: for what a test adds."""

    def auditor(self, **changes: Any) -> Auditor:
        return Auditor(self.basis(**changes))

    def basis(self, **changes: Any) -> Basis:
        shape = self.checkpoint.shape
        basis = Basis(
            host=self.auditor_host,
            issuers=(MUSIVUM.peer_id,),
            model=MODEL,
            contract=contract_of(shape),
            checkpoint=self.checkpoint,
            device=Device.CPU,
            compute=self.compute,
            clock=now,
            layers=lambda: shape.whole,
        )
        return replace(basis, **changes)

    def ticket(self, klass: NumericClass) -> Ticket:
        at = now()
        return Ticket(
            issuer=MUSIVUM.peer_id,
            request_id=secrets.token_bytes(16),
            model=MODEL,
            contract=contract_of(self.checkpoint.shape),
            requester=ANONYMOUS,
            tier=Tier.LEECH.value,
            chain=(
                TicketStage(ENTRY.peer_id, FRONT, str(klass)),
                TicketStage(STAGE.peer_id, BACK, str(klass)),
            ),
            spares=(),
            max_tokens=200,
            issued_at=at,
            start_by=at + 300,
            expires_at=at + 3600,
        )

    def work(
        self,
        klass: str = "f32/f32/f32",
        cheat: Cheat | None = None,
        *,
        computes: DType | None = None,
        layers: LayerRange = BACK,
        before: Work | None = None,
        upto: int = len(IDS),
    ) -> Work:
        """A prompt in one step, then position by position; `before` is what it goes on with.

        The stage computes in `computes` and through `layers`, whatever it declares.
        """
        declared = NumericClass.parse(klass)
        front = self._shard(FRONT, declared.compute)
        back = self._shard(layers, computes or declared.compute)
        ticket = self.ticket(declared)
        payload, signature = seal_ticket(ticket, MUSIVUM)
        first = Ticketing(payload, signature, ticket.request_id, FRONT, declared.wire)
        second = replace(first, layers=BACK, sender=ENTRY.peer_id)
        saw = Witness(
            first,
            identity=ENTRY,
            kept_outputs=self.entry.ring.outputs(first),
            kept_ids=self.entry.ring.ids(first),
        )
        looked = Witness(second, kept_outputs=self.stage.ring.outputs(second))
        if before is not None:
            saw.go_on_from(_witnesses[before.request_id][0])
            looked.go_on_from(_witnesses[before.request_id][1])
        _witnesses[ticket.request_id] = saw, looked
        start = _reached(before)
        given = self._steps((front, back), (saw, looked), declared.wire, cheat, start, upto)
        return Work(
            ticket.request_id,
            a_proof(saw, ENTRY, start),
            a_proof(looked, STAGE, start),
            declared,
            given,
        )

    def _steps(
        self,
        shards: tuple[Shard, Shard],
        witnesses: tuple[Witness, Witness],
        wire: DType,
        cheat: Cheat | None,
        start: int,
        upto: int,
    ) -> list[bytes]:
        (front, back), (saw, looked), given = shards, witnesses, []
        caches = [shard.open_cache(128, shard.layers) for shard in shards]
        for first, stop in steps(upto):
            ids = IDS[first:stop]
            rows = front.forward(front.embed(ids), caches[0], first, front.layers, nothing)
            sent = Shard.to_wire(rows, wire)
            taken = back.from_wire(sent)
            output = back.forward(taken, caches[1], first, back.layers, nothing)
            if cheat is not None:
                output = cheat(taken, output)
            answer = Shard.to_wire(output, wire)
            given.append(answer.data)
            if first >= start:
                saw.saw(first, stop - first, pack_ids(ids), sent.data, rows)
                looked.saw(first, stop - first, sent.data, answer.data, output, voucher=saw.voucher)
        return given

    def rows_of_other_prompt(self, taken: Tensor, output: Tensor) -> Tensor:
        """The true output for another prompt: what a worker that replays would give."""
        front, back = self._shard(FRONT, DType.F32), self._shard(BACK, DType.F32)
        ids = OTHER_IDS[: len(taken)]
        rows = front.forward(front.embed(ids), front.open_cache(128, FRONT), 0, FRONT, nothing)
        return back.forward(rows, back.open_cache(128, BACK), 0, BACK, nothing)

    def _shard(self, layers: LayerRange, dtype: DType) -> Shard:
        return load_shard(self.checkpoint, layers, device=Device.CPU, dtype=dtype)

    def task(self, proof: SignedProof, **changes: Any) -> AuditTask:
        """What musivum gives the auditor; `changes` go into both orders."""
        audit_id, (request_id, place, stop) = secrets.token_bytes(16), read(proof)
        keepers = (self.entry, self.entry) if place == 0 else (self.entry, self.stage)
        sides = (INPUTS if place == 0 else OUTPUTS, OUTPUTS)
        orders = [
            self.order(
                **{
                    "audit_id": audit_id,
                    "request_id": request_id,
                    "keeper": keeper.identity.peer_id,
                    "side": side,
                    "stop": stop,
                    **changes,
                }
            )
            for keeper, side in zip(keepers, sides, strict=True)
        ]
        return AuditTask(
            audit_id=audit_id,
            proof=proof.payload,
            proof_signature=proof.signature,
            inputs=orders[0],
            inputs_addrs=keepers[0].host.address.addrs,
            outputs=orders[1],
            outputs_addrs=keepers[1].host.address.addrs,
        )

    def order(self, by: Identity = MUSIVUM, **changes: Any) -> SignedOrder:
        """An order for the auditor to see the outputs of the stage."""
        plain: dict[str, Any] = {
            "audit_id": secrets.token_bytes(16),
            "request_id": bytes(16),
            "keeper": STAGE.peer_id,
            "auditor": AUDITOR.peer_id,
            "side": OUTPUTS,
            "stop": len(IDS),
            "expires_at": now() + 600,
            **changes,
        }
        return seal_order(AuditOrder(**plain), by)


# What saw the work for a ticket, for work that goes on.
_witnesses: dict[bytes, tuple[Witness, Witness]] = {}


def _reached(before: Work | None) -> int:
    return read(before.stage)[2] if before is not None else 0


def read(signed: SignedProof) -> tuple[bytes, int, int]:
    """Request, place and stop of a proof."""
    proof = decode_sealed(signed.payload, Proof)
    ticket = decode_sealed(proof.ticket, Ticket)
    return ticket.request_id, place_of(ticket, proof.worker)[0], proof.outputs.stop


def a_proof(witness: Witness, worker: Identity, start: int) -> SignedProof:
    """The worker's proof of what was seen so far."""
    bill = witness.bill()
    return seal_proof(
        Proof(
            ticket=bill.ticketing.ticket,
            ticket_signature=bill.ticketing.signature,
            worker=worker.peer_id,
            sequence=1,
            previous=b"",
            layers=bill.ticketing.layers,
            start=start,
            epoch=bill.came.epoch,
            inputs=bill.inputs,
            sender=bill.came.sender,
            voucher=bill.came.voucher,
            outputs=bill.outputs,
            sketch=bill.sketch,
            finished_at=now(),
        ),
        worker,
    )


def steps(upto: int) -> Sequence[tuple[int, int]]:
    """A prompt in one piece, then every position alone."""
    return [(0, PROMPT), *((at, at + 1) for at in range(PROMPT, upto))]


def nothing() -> None: ...


def judged(report: AuditReport, work: Work, layers: LayerRange = BACK) -> Judgement:
    """What musivum makes of a report."""
    tolerance = tolerances(work.klass)
    if report.found == "sketched":
        tolerance = sketch_tolerance(tolerance, len(layers))
    finite = report.found != "malformed"
    measured = Measured(report.tokens, report.median, report.worst, report.gain, finite)
    return judge(measured, work.klass, len(layers), tolerance)


def wire(rows: Sequence[bytes]) -> WireTensor:
    """Rows of the toy model in f32."""
    return WireTensor("f32", (len(rows), 64), b"".join(rows))


@asynccontextmanager
async def a_mesh(weights: Path, ring_bytes: int = 1 << 20) -> AsyncIterator[AuditMesh]:
    """The mesh; the entry and the stage show what they kept."""
    net = MemoryNetwork(latency=0.001)
    with closing(open_checkpoint(weights)) as checkpoint:
        async with (
            net.host(ENTRY) as entry,
            net.host(STAGE) as stage,
            net.host(AUDITOR) as auditor,
            AsyncExitStack() as stack,
        ):
            first = Party(ENTRY, entry, Ring(ring_bytes))
            second = Party(STAGE, stage, Ring(ring_bytes))
            for party in (first, second):
                keeper = Keeper(party.identity.peer_id, [MUSIVUM.peer_id], party.ring, now)
                party.host.serve(
                    AUDIT, keeper.serve, streams=AUDIT_STREAMS, per_peer=AUDIT_STREAMS_PER_PEER
                )
            yield AuditMesh(net, checkpoint, first, second, auditor, CountingCompute(), stack)
    _witnesses.clear()
