"""The papers of an audit: what does not fit together is refused before anything is fetched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from tessella.core.errors import (
    BadFrame,
    BadProof,
    BadSignature,
    BadTicket,
    ForeignTicket,
    OutOfTurn,
    TessellaError,
)
from tessella.core.layers import LayerRange
from tessella.core.messages import AuditTask
from tessella.worker.audits.papers import LEAST_MEASURED, read_case
from tests.worker.audits.audited import ENTRY, STAGE, STRANGER, AuditMesh, a_mesh

Spoil = Callable[[AuditMesh, AuditTask], AuditTask]


def _other_orders(**changes: Any) -> Spoil:
    def spoil(mesh: AuditMesh, task: AuditTask) -> AuditTask:
        fits = {"audit_id": task.audit_id, **changes}
        return replace(task, outputs=mesh.order(**fits))

    return spoil


BAD: list[tuple[str, Spoil, type[TessellaError]]] = [
    (
        "a proof by nobody",
        lambda _, task: replace(task, proof_signature=bytes(64)),
        BadSignature,
    ),
    ("no proof", lambda _, task: replace(task, proof=b"x"), BadFrame),
    ("another request", _other_orders(request_id=b"r" * 16), OutOfTurn),
    ("another auditor", _other_orders(auditor=STRANGER.peer_id), OutOfTurn),
    ("another side", _other_orders(side="inputs"), OutOfTurn),
    ("fewer positions", _other_orders(stop=3), OutOfTurn),
    ("a side that there is not", _other_orders(side="both"), BadFrame),
    (
        "an order by a stranger",
        lambda mesh, task: replace(task, inputs=mesh.order(STRANGER)),
        BadSignature,
    ),
    (
        "an order for another audit",
        lambda _, task: replace(task, audit_id=b"another"),
        OutOfTurn,
    ),
]


@pytest.mark.parametrize(("spoil", "error"), [each[1:] for each in BAD], ids=[b[0] for b in BAD])
async def test_papers_that_do_not_fit_are_refused(
    spoil: Spoil, error: type[TessellaError], toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        task = mesh.task(mesh.work().stage)
        assert read_case(task, mesh.basis()).positions == 44
        with pytest.raises(error):
            read_case(spoil(mesh, task), mesh.basis())


async def test_outputs_are_the_workers_own(toy_weights: Path, autojump_clock: MockClock) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        task = mesh.task(work.stage)
        order = mesh.order(audit_id=task.audit_id, request_id=work.request_id, keeper=ENTRY.peer_id)
        with pytest.raises(OutOfTurn, match="another's than the worker's"):
            read_case(replace(task, outputs=order), mesh.basis())


NOT_OURS: list[tuple[dict[str, Any], type[TessellaError], str]] = [
    ({"model": "other"}, BadProof, "other weights"),
    ({"contract": "other"}, BadProof, "other weights"),
    ({"layers": lambda: None}, BadProof, "this node holds None"),
    ({"layers": lambda: LayerRange(0, 5)}, BadProof, "this node holds 0:5"),
    ({"issuers": (STRANGER.peer_id,)}, ForeignTicket, "not of this mesh"),
    ({"clock": lambda: 0.0}, BadTicket, "from now"),
]


@pytest.mark.parametrize(("changes", "error", "told"), NOT_OURS)
async def test_an_audit_that_this_node_cannot_do_is_refused(
    changes: dict[str, Any],
    error: type[TessellaError],
    told: str,
    toy_weights: Path,
    autojump_clock: MockClock,
) -> None:
    async with a_mesh(toy_weights) as mesh:
        task = mesh.task(mesh.work().stage)
        with pytest.raises(error, match=told):
            read_case(task, mesh.basis(**changes))


async def test_the_inputs_of_an_entry_are_the_ids_that_it_took(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        case = read_case(mesh.task(work.entry), mesh.basis())
        assert case.is_of_ids
        assert (case.inputs.order.side, case.inputs.keeper.peer_id) == ("inputs", ENTRY.peer_id)
        case = read_case(mesh.task(work.stage), mesh.basis())
        assert not case.is_of_ids
        assert (case.inputs.order.side, case.inputs.keeper.peer_id) == ("outputs", ENTRY.peer_id)
        assert case.outputs.keeper.peer_id == STAGE.peer_id


@pytest.mark.parametrize(("held", "start"), [(0, 0), (5, 5), (12, 12), (13, 12), (43, 12)])
async def test_what_is_measured_has_rows_enough_for_a_median(
    held: int, start: int, toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        case = read_case(mesh.task(mesh.work().stage), mesh.basis())
        proof = replace(case.claim.proof, start=held)
        case = replace(case, claim=replace(case.claim, proof=proof))
        assert case.start == start
        assert case.positions - case.start >= LEAST_MEASURED
