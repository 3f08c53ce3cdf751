"""One audit: what others kept is checked by its digests, then recomputed and compared.

inputs that are not those committed to     unavailable: it is their keeper's fault
outputs that are not those committed to    fraud
outputs that nobody shows                  sketched: the sketch in the proof stands for them
                                           withheld: it has no row of what is recomputed
no memory or time for it here              unable
else                                       measured, or malformed
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import trio

from tessella.core.audits import Measured
from tessella.core.errors import BadTensor, LocalError, OutOfMemory, OutOfTurn, TessellaError
from tessella.core.messages import (
    Accepted,
    AskAudit,
    AuditReport,
    AuditTask,
    Message,
)
from tessella.core.tiers import Tier
from tessella.engine.audited_rows import digest_of, is_finite, rows_of
from tessella.engine.compute import Job
from tessella.engine.device import Device
from tessella.engine.memory import free_memory
from tessella.engine.recompute import Recomputation, measure, recompute_bytes
from tessella.engine.sketch import compare, row_bytes, sketched_positions
from tessella.worker.audits.fetching import Shown, fetch_ids, fetch_rows
from tessella.worker.audits.papers import Basis, Case, read_case

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

T = TypeVar("T")
AskLedger = Callable[[Message], Awaitable[Message]]
"""Signs a message and gives musivum's answer. Raises RemoteFailure with its refusal, PeerGone."""

# A whole audit, with what is fetched for it.
AUDIT_SECONDS = 60.0
# What does not come within this counts as kept back: rows of an audit are 32 MiB at most, and shown
# at 8 MiB a second.
FETCH_SECONDS = 40.0
# Sessions come first: an audit takes this part of the memory that is free at most.
MEMORY_PART = 0.5
# Bytes of a channel: what no dtype is wider than. Wider rows are not even worth a digest.
_WIDEST = 4

_MALFORMED = Measured(0, 0.0, 0.0, 0.0, finite=False)


@dataclass(slots=True)
class _Fetched:
    inputs: list[int] | Shown | None = None
    outputs: Shown | None = None


class Auditor:
    """Audits at one node, one at a time."""

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._shape = basis.checkpoint.shape

    async def once(self, ask: AskLedger) -> AuditReport | None:
        """Ask for an audit, do it, and report it; None where there was nothing to do.

        Raises what `ask` and `audit` raise.
        """
        task = await ask(AskAudit())
        if isinstance(task, Accepted):
            return None
        if not isinstance(task, AuditTask):
            raise OutOfTurn(f"{type(task).__name__} in place of an audit")
        report = await self.audit(task)
        await ask(report)
        logger.info("audited %d tokens: %s, %.2g", report.tokens, report.found, report.median)
        return report

    async def audit(self, task: AuditTask) -> AuditReport:
        """What is found, within AUDIT_SECONDS.

        Raises a RemoteError or Refused for a task whose papers are not in order.
        """
        case = read_case(task, self._basis)
        with trio.move_on_after(AUDIT_SECONDS):
            try:
                return await self._audit(case)
            except TessellaError as exc:
                # It is ours, or our machine's, and never the worker's.
                logger.warning("an audit was given up: %s: %s", exc.code, exc)
        return _report(case, "unable")

    async def _audit(self, case: Case) -> AuditReport:
        fetched = _Fetched()
        with trio.move_on_after(FETCH_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._fetch_inputs, case, fetched)
                nursery.start_soon(self._fetch_outputs, case, fetched)
        if fetched.inputs is None:
            return _report(case, "unavailable")
        outputs = fetched.outputs
        if outputs is not None and outputs.digests.commit() != case.proof.outputs:
            return _report(case, "fraud")
        reference = await self._recompute(case, fetched.inputs)
        if not await self._compute(lambda _: is_finite(reference)):
            # Inputs that no layer gives: nothing follows from what is made of them.
            return _report(case, "unavailable")
        if outputs is None:
            found, measured = "sketched", await self._compute(lambda _: by_sketch(case, reference))
        else:
            shown = outputs
            measured = await self._compute(lambda _: self._by_rows(case, shown, reference))
            found = "measured"
        if measured is None:
            return _report(case, "withheld")
        return _report(case, found, measured, await self._compute(lambda _: digest_of(reference)))

    async def _fetch_inputs(self, case: Case, fetched: _Fetched) -> None:
        host, wanted, stated = self._basis.host, case.inputs, case.proof.inputs
        inputs: list[int] | Shown
        try:
            if case.is_of_ids:
                inputs, digests = await fetch_ids(host, wanted, self._shape.vocab)
            else:
                inputs = await fetch_rows(host, wanted, case.klass.wire, self._widest)
                digests = inputs.digests
            if digests.commit().digest != stated.digest:
                raise BadTensor("rows that the worker says it did not take")
        except TessellaError as exc:
            logger.info("no inputs from %s: %s: %s", wanted.order.keeper, exc.code, exc)
        else:
            fetched.inputs = inputs

    async def _fetch_outputs(self, case: Case, fetched: _Fetched) -> None:
        host, wanted = self._basis.host, case.outputs
        try:
            fetched.outputs = await fetch_rows(host, wanted, case.klass.wire, self._widest)
        except TessellaError as exc:
            logger.info("no outputs from %s: %s: %s", wanted.order.keeper, exc.code, exc)

    @property
    def _widest(self) -> int:
        return _WIDEST * self._shape.hidden

    async def _recompute(self, case: Case, inputs: list[int] | Shown) -> torch.Tensor:
        """Step by step, so that whoever waits for the compute thread waits for one of them."""
        device = self._device(case)
        if isinstance(inputs, Shown):
            shown, hidden, wire = inputs, self._shape.hidden, case.klass.wire
            rows = await self._compute(lambda _: rows_of(shown.tensors, hidden, wire))
            source: list[int] | torch.Tensor = rows[: case.positions]
        else:
            source = inputs
        layers = case.proof.layers
        work = Recomputation(self._basis.checkpoint, layers, source, device=device)
        while await self._compute(lambda job: work.step(job.advance)):
            pass
        if work.rows is None:
            raise LocalError("a recomputation that ended without its rows")
        return work.rows

    def _device(self, case: Case) -> Device:
        """Ours if there is room beside the sessions, else the CPU. Raises OutOfMemory."""
        needed = recompute_bytes(self._shape, case.positions, embedding=case.is_of_ids)
        for device in (self._basis.device, Device.CPU):
            if needed <= MEMORY_PART * free_memory(device.value):
                return device
        raise OutOfMemory(f"no {needed} bytes for an audit")

    def _by_rows(self, case: Case, shown: Shown, reference: torch.Tensor) -> Measured:
        try:
            rows = rows_of(shown.tensors, self._shape.hidden, case.klass.wire)
        except BadTensor:
            return _MALFORMED
        return measure(rows[case.start : case.positions], reference[case.start :])

    async def _compute(self, work: Callable[[Job], T]) -> T:
        return await self._basis.compute.run(work, tier=Tier.LEECH)


def by_sketch(case: Case, reference: torch.Tensor) -> Measured | None:
    """The sketch of a proof beside `[positions, hidden]`; None where it has none of their rows."""
    start, stop, hidden = case.proof.start, case.proof.outputs.stop, reference.shape[1]
    size = row_bytes(hidden)
    if len(case.proof.sketch) != len(sketched_positions(start, stop, hidden)) * size:
        return _MALFORMED
    if start >= case.positions:
        return None
    known = len(sketched_positions(start, case.positions, hidden)) * size
    return compare(case.proof.sketch[:known], reference[start:], start)


def _report(
    case: Case, found: str, measured: Measured = _MALFORMED, reference: bytes = b""
) -> AuditReport:
    figures = (measured.median, measured.worst, measured.gain)
    is_sound = measured.tokens > 0 and measured.finite and all(map(math.isfinite, figures))
    if not is_sound:
        # No figure travels that is no number.
        figures = (0.0, 0.0, 0.0)
        found = "malformed" if found in ("measured", "sketched") else found
    return AuditReport(
        audit_id=case.audit_id,
        found=found,
        tokens=measured.tokens if is_sound else 0,
        median=figures[0],
        worst=figures[1],
        gain=figures[2],
        reference=reference,
    )
