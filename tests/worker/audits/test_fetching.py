"""What a keeper may send: rows in order, as large as rows can be, and no more than was ordered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from trio.testing import MockClock

from p2p.streams import FrameStream
from tessella.core.errors import (
    BadFrame,
    BadTensor,
    OutOfTurn,
    PeerClosed,
    PeerSilent,
    RemoteFailure,
    TessellaError,
)
from tessella.core.messages import AUDIT, AskAudit, Fail, KeptIds, KeptRows, Message
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.worker.audits import fetching
from tessella.worker.audits.fetching import fetch_ids, fetch_rows
from tessella.worker.audits.papers import Wanted, read_case
from tessella.worker.terms import pack_ids
from tests.worker.audits.audited import AuditMesh, a_mesh, wire

WIDEST = 4 * 64
ROW = bytes(256)


async def asked(mesh: AuditMesh, answers: list[Message], stop: int) -> Wanted:
    """Four rows or ids, kept by a peer that answers an order with these frames."""
    wanted = read_case(mesh.task(mesh.work().stage), mesh.basis()).outputs
    host = await mesh.stack.enter_async_context(mesh.net.host(b"k" * 32))

    async def answer(stream: FrameStream) -> None:
        await stream.receive()
        for each in answers:
            await stream.send(each)

    host.serve(AUDIT, answer, streams=1, per_peer=1)
    return replace(wanted, order=replace(wanted.order, stop=stop), keeper=host.address)


async def test_rows_are_taken_as_they_come(toy_weights: Path, autojump_clock: MockClock) -> None:
    rows = [bytes([at]) * 256 for at in range(4)]
    answers: list[Message] = [KeptRows(0, wire(rows[:1])), KeptRows(1, wire(rows[1:]))]
    async with a_mesh(toy_weights) as mesh:
        shown = await fetch_rows(
            mesh.auditor_host, await asked(mesh, answers, 4), DType.F32, WIDEST
        )
        assert b"".join(tensor.data for tensor in shown.tensors) == b"".join(rows)
        assert len(shown.digests) == 4


async def test_of_more_rows_than_are_recomputed_only_digests_are_kept(
    toy_weights: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MAX_POSITIONS", 2)
    answers: list[Message] = [KeptRows(at, wire([ROW])) for at in range(4)]
    async with a_mesh(toy_weights) as mesh:
        shown = await fetch_rows(
            mesh.auditor_host, await asked(mesh, answers, 4), DType.F32, WIDEST
        )
        assert (len(shown.tensors), len(shown.digests)) == (2, 4)


BAD_ROWS: list[tuple[str, list[Message], type[TessellaError]]] = [
    ("nothing", [], PeerClosed),
    ("too few", [KeptRows(0, wire([ROW] * 3))], PeerClosed),
    ("too many", [KeptRows(0, wire([ROW] * 5))], OutOfTurn),
    ("a gap", [KeptRows(1, wire([ROW]))], OutOfTurn),
    ("the same again", [KeptRows(0, wire([ROW])), KeptRows(0, wire([ROW]))], OutOfTurn),
    ("no rows", [KeptRows(0, WireTensor("f32", (0, 64), b""))], OutOfTurn),
    ("no shape", [KeptRows(0, WireTensor("f32", (), ROW))], OutOfTurn),
    ("no bytes", [KeptRows(0, WireTensor("f32", (4, 64), b""))], BadTensor),
    ("another dtype", [KeptRows(0, WireTensor("bf16", (4, 64), bytes(512)))], BadTensor),
    ("torn rows", [KeptRows(0, WireTensor("f32", (4, 64), bytes(1023)))], BadTensor),
    ("wider rows than any", [KeptRows(0, WireTensor("f32", (1, 64), bytes(257)))], BadTensor),
    ("ids", [KeptIds(bytes(16))], OutOfTurn),
    ("a question", [AskAudit()], OutOfTurn),
    ("a refusal", [Fail("unknown_entry", "gone", False)], RemoteFailure),
]


@pytest.mark.parametrize(
    ("answers", "error"), [each[1:] for each in BAD_ROWS], ids=[each[0] for each in BAD_ROWS]
)
async def test_rows_that_are_not_as_ordered_are_refused(
    answers: list[Message],
    error: type[TessellaError],
    toy_weights: Path,
    autojump_clock: MockClock,
) -> None:
    async with a_mesh(toy_weights) as mesh:
        wanted = await asked(mesh, answers, 4)
        with pytest.raises(error):
            await fetch_rows(mesh.auditor_host, wanted, DType.F32, WIDEST)


IDS_CASES: list[tuple[str, list[Message], type[TessellaError]]] = [
    ("too few", [KeptIds(bytes(12))], BadTensor),
    ("too many", [KeptIds(bytes(20))], BadTensor),
    ("outside the vocabulary", [KeptIds(pack_ids([1, 2, 3, 10_000]))], BadFrame),
    ("rows", [KeptRows(0, wire([ROW] * 4))], OutOfTurn),
    ("a refusal", [Fail("unknown_entry", "gone", False)], RemoteFailure),
]


@pytest.mark.parametrize(
    ("answers", "error"), [each[1:] for each in IDS_CASES], ids=[each[0] for each in IDS_CASES]
)
async def test_ids_that_are_not_as_ordered_are_refused(
    answers: list[Message],
    error: type[TessellaError],
    toy_weights: Path,
    autojump_clock: MockClock,
) -> None:
    async with a_mesh(toy_weights) as mesh:
        wanted = await asked(mesh, answers, 4)
        with pytest.raises(error):
            await fetch_ids(mesh.auditor_host, wanted, 256)


async def test_ids_are_taken_whole(toy_weights: Path, autojump_clock: MockClock) -> None:
    async with a_mesh(toy_weights) as mesh:
        wanted = await asked(mesh, [KeptIds(pack_ids([1, 2, 3, 255]))], 4)
        ids, digests = await fetch_ids(mesh.auditor_host, wanted, 256)
        assert (ids, len(digests)) == ([1, 2, 3, 255], 4)


async def test_a_keeper_that_says_nothing_is_not_waited_for(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        wanted = await asked(mesh, [KeptRows(0, wire([ROW] * 4))], 4)
        await mesh.auditor_host.connect(wanted.keeper, timeout=5)
        mesh.net.silence(mesh.auditor_host.address.peer_id, wanted.keeper.peer_id)
        with pytest.raises(PeerSilent):
            await fetch_rows(mesh.auditor_host, wanted, DType.F32, WIDEST)
