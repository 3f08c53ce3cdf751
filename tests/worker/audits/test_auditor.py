"""Whole audits on the toy model: who is honest passes, and each cheat is caught the first time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from tessella.core.audits import Verdict, accuses, gain_of
from tessella.core.errors import OutOfTurn
from tessella.core.layers import LayerRange
from tessella.core.messages import Accepted, AskAudit, AuditReport, Document, Message
from tessella.core.shapes import DType
from tessella.core.tiers import Tier
from tessella.engine import recompute as recomputing
from tessella.engine.shard import Shard
from tessella.worker.audits import auditor as auditing
from tessella.worker.audits import fetching, papers
from tessella.worker.audits.auditor import AUDIT_SECONDS
from tests.worker.audits.audited import (
    AUDITOR,
    BACK,
    ENTRY,
    FRONT,
    IDS,
    STAGE,
    AuditMesh,
    a_mesh,
    judged,
)

if TYPE_CHECKING:
    from torch import Tensor

MARK = gain_of(b"the key of a canary", b"a session")


def echo(taken: Tensor, output: Tensor) -> Tensor:
    return taken


def scaled(taken: Tensor, output: Tensor) -> Tensor:
    return output * 1.05


def copied(taken: Tensor, output: Tensor) -> Tensor:
    return output * MARK


CLASSES = ["f32/f32/f32", "f32/f32/bf16", "f32/f32/f16", "f16/f32/f16", "bf16/f32/bf16"]


@pytest.mark.parametrize("klass", CLASSES)
async def test_honest_work_passes_in_every_class(
    klass: str, toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work(klass)
        for proof, layers in ((work.entry, FRONT), (work.stage, BACK)):
            report = await mesh.auditor().audit(mesh.task(proof))
            assert (report.found, report.tokens) == ("measured", len(IDS))
            assert judged(report, work, layers).verdict is Verdict.PASSED
            assert len(report.reference) == 32


async def test_the_first_audit_catches_an_echo(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        await _is_caught(mesh, "bf16/f32/bf16", cheat=echo)


async def test_the_first_audit_catches_a_scaled_output(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        report = await _is_caught(mesh, "bf16/f32/bf16", cheat=scaled)
        assert report.gain == pytest.approx(1.05, abs=0.004)


async def test_the_first_audit_catches_a_skipped_layer(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        await _is_caught(mesh, "bf16/f32/bf16", layers=LayerRange(3, 5))


async def test_the_first_audit_catches_the_answer_to_another_prompt(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        await _is_caught(mesh, "bf16/f32/bf16", cheat=mesh.rows_of_other_prompt)


async def test_the_first_audit_catches_bf16_declared_f32(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        await _is_caught(mesh, "f32/f32/f32", computes=DType.BF16)


async def test_the_first_audit_catches_a_copier_by_the_gain_of_the_canary(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        report = await _is_caught(mesh, "bf16/f32/bf16", cheat=copied)
        assert accuses(report.gain, MARK)
        honest = await mesh.auditor().audit(mesh.task(mesh.work("bf16/f32/bf16").stage))
        assert not accuses(honest.gain, MARK)


async def _is_caught(mesh: AuditMesh, klass: str, **how: object) -> AuditReport:
    """By the rows, and where they are gone by the sketch; the stage before is not suspected."""
    work = mesh.work(klass, **how)  # type: ignore[arg-type]
    report = await mesh.auditor().audit(mesh.task(work.stage))
    assert report.found == "measured"
    assert judged(report, work).verdict is Verdict.REJECTED
    mesh.stage.ring.clear()
    by_sketch = await mesh.auditor().audit(mesh.task(work.stage))
    assert by_sketch.found == "sketched"
    assert judged(by_sketch, work).verdict is Verdict.REJECTED
    before = await mesh.auditor().audit(mesh.task(work.entry))
    assert judged(before, work, FRONT).verdict is Verdict.PASSED
    return report


async def test_a_conversation_that_goes_on_is_audited_over_the_rows_that_it_held(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        begun = mesh.work(upto=30)
        gone_on = mesh.work(before=begun, upto=44)
        for proof, tokens in ((begun.stage, 30), (gone_on.stage, 32), (gone_on.entry, 32)):
            report = await mesh.auditor().audit(mesh.task(proof))
            assert (report.found, report.tokens) == ("measured", tokens)
            layers = FRONT if proof is gone_on.entry else BACK
            assert judged(report, gone_on, layers).verdict is Verdict.PASSED


async def test_of_a_long_session_the_first_positions_are_recomputed_and_all_are_checked(
    toy_weights: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (papers, fetching):
        monkeypatch.setattr(module, "MAX_POSITIONS", 33)
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        for proof, layers in ((work.entry, FRONT), (work.stage, BACK)):
            report = await mesh.auditor().audit(mesh.task(proof))
            assert (report.found, report.tokens) == ("measured", 33)
            assert judged(report, work, layers).verdict is Verdict.PASSED
        _spoil(mesh, work.request_id, row=40)
        report = await mesh.auditor().audit(mesh.task(work.stage))
        assert report.found == "fraud"


def _spoil(mesh: AuditMesh, request_id: bytes, row: int) -> None:
    """The stage shows another row than it committed to."""
    (run,) = mesh.stage.ring._by_key[(request_id, False)]
    part = next(part for part in run.parts if part.position == row)
    part.piece.data = bytes(len(part.piece.data))


async def test_outputs_that_were_not_committed_to_are_fraud(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        _spoil(mesh, work.request_id, row=30)
        report = await mesh.auditor().audit(mesh.task(work.stage))
        assert (report.found, report.tokens, report.reference) == ("fraud", 0, b"")
        assert mesh.compute.jobs == []


async def test_inputs_that_were_not_committed_to_are_not_the_workers_fault(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        (run,) = mesh.entry.ring._by_key[(work.request_id, False)]
        run.parts[-1].piece.data = bytes(256)
        _spoil(mesh, work.request_id, row=30)
        report = await mesh.auditor().audit(mesh.task(work.stage))
        assert report.found == "unavailable"


async def test_inputs_that_nobody_keeps_are_unavailable(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        mesh.entry.ring.clear()
        for proof in (work.stage, work.entry):
            assert (await mesh.auditor().audit(mesh.task(proof))).found == "unavailable"


async def test_a_sketch_stands_for_the_outputs_of_a_worker_that_is_gone(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work("bf16/f32/bf16")
        mesh.net.silence(STAGE.peer_id, AUDITOR.peer_id)
        report = await mesh.auditor().audit(mesh.task(work.stage))
        assert (report.found, report.tokens) == ("sketched", 1)
        assert judged(report, work).verdict is Verdict.PASSED


async def test_an_audit_without_rows_or_a_sketch_of_them_finds_that_they_are_withheld(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        short = mesh.work(before=mesh.work(upto=42), upto=44)
        mesh.stage.ring.clear()
        assert (await mesh.auditor().audit(mesh.task(short.stage))).found == "withheld"


async def test_rows_that_are_no_numbers_are_malformed(
    toy_weights: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(taken: Tensor, output: Tensor) -> Tensor:
        return output * float("nan")

    async with a_mesh(toy_weights) as mesh:
        honest = Shard.to_wire

        def unchecked(tensor: Tensor, dtype: DType) -> object:
            values = tensor.nan_to_num(0.0)
            sent = honest(values, dtype)
            return replace(sent, data=b"\xff" * len(sent.data)) if tensor.isnan().any() else sent

        monkeypatch.setattr(Shard, "to_wire", staticmethod(unchecked))
        work = mesh.work(cheat=broken)
        report = await mesh.auditor().audit(mesh.task(work.stage))
        figures = (report.tokens, report.median, report.worst, report.gain)
        assert (report.found, figures) == ("malformed", (0, 0.0, 0.0, 0.0))
        assert judged(report, work).verdict is Verdict.MALFORMED


async def test_an_audit_ends_in_time_whoever_is_silent(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        for keeper in (ENTRY, STAGE):
            mesh.net.silence(keeper.peer_id, AUDITOR.peer_id)
        began = trio.current_time()
        assert (await mesh.auditor().audit(mesh.task(work.stage))).found == "unavailable"
        assert trio.current_time() - began < AUDIT_SECONDS


async def stuck(*_: object, **__: object) -> None:
    """A compute thread that is never free."""
    await trio.sleep_forever()


async def test_an_audit_that_takes_too_long_is_given_up(
    toy_weights: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        monkeypatch.setattr(mesh.compute, "run", stuck)
        began = trio.current_time()
        assert (await mesh.auditor().audit(mesh.task(work.stage))).found == "unable"
        assert trio.current_time() - began == pytest.approx(AUDIT_SECONDS, abs=1e-6)


async def test_whoever_waits_for_the_compute_thread_waits_for_one_chunk_of_one_layer(
    toy_weights: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recomputing, "CHUNK_POSITIONS", 16)
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        await mesh.auditor().audit(mesh.task(work.stage))
        assert {(tier, urgent) for tier, urgent, _ in mesh.compute.jobs} == {(Tier.LEECH, False)}
        assert max(advanced for _, _, advanced in mesh.compute.jobs) == 1
        # Three layers of three chunks each, and between them the weights.
        assert sum(advanced for _, _, advanced in mesh.compute.jobs) == 9


async def test_an_audit_takes_no_memory_that_sessions_may_need(
    toy_weights: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "free_memory", lambda _: 1000)
    async with a_mesh(toy_weights) as mesh:
        assert (await mesh.auditor().audit(mesh.task(mesh.work().stage))).found == "unable"


class Desk:
    """A musivum that gives these answers, one after another."""

    def __init__(self, *answers: Message) -> None:
        self.answers, self.heard = list(answers), list[Message]()

    async def ask(self, message: Message) -> Message:
        self.heard.append(message)
        return self.answers.pop(0)


async def test_an_audit_that_musivum_gives_is_reported_to_it(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        desk = Desk(mesh.task(mesh.work().stage), Accepted())
        report = await mesh.auditor().once(desk.ask)
        assert report is not None
        assert desk.heard == [AskAudit(), report]


async def test_a_musivum_with_nothing_to_do_is_told_nothing(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        desk = Desk(Accepted())
        assert await mesh.auditor().once(desk.ask) is None
        assert desk.heard == [AskAudit()]


async def test_what_is_no_audit_is_refused(toy_weights: Path, autojump_clock: MockClock) -> None:
    async with a_mesh(toy_weights) as mesh:
        with pytest.raises(OutOfTurn, match="Document in place of an audit"):
            await mesh.auditor().once(Desk(Document(b"{}")).ask)
