"""The keeper: it shows rows by order, once, to the auditor of the order, and to nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from p2p.streams import FrameStream
from tessella.core.errors import Busy, CallReplayed, PeerClosed
from tessella.core.frames import MAX_HOP_FRAME, MIB
from tessella.core.identity import Identity
from tessella.core.messages import (
    AUDIT,
    AskAudit,
    Fail,
    KeptIds,
    KeptRows,
    Message,
    SignedOrder,
    encode,
)
from tessella.core.shapes import DType
from tessella.worker.audits import keeper as keeping
from tessella.worker.audits.keeper import (
    AUDIT_STREAMS_PER_PEER,
    BYTES_PER_SECOND,
    SHOWN_AT_ONCE,
)
from tessella.worker.audits.ring import SHOWN_BYTES
from tessella.worker.proofs.witness import Ticketing
from tessella.worker.terms import pack_ids
from tests.worker.audits.audited import (
    AUDITOR,
    BACK,
    ENTRY,
    IDS,
    MUSIVUM,
    STRANGER,
    AuditMesh,
    Party,
    a_mesh,
    now,
)


@asynccontextmanager
async def asking(mesh: AuditMesh, party: Party, frame: Message) -> AsyncIterator[FrameStream]:
    await mesh.auditor_host.connect(party.host.address, timeout=5)
    stream = await mesh.auditor_host.open_stream(party.identity.peer_id, AUDIT, timeout=5)
    async with stream:
        await stream.send(frame)
        yield stream


async def shown(mesh: AuditMesh, party: Party, frame: Message) -> list[Message]:
    """All that is answered to one frame."""
    answers: list[Message] = []
    async with asking(mesh, party, frame) as stream:
        while True:
            try:
                answers.append(await stream.receive(60))
            except PeerClosed:
                return answers


async def test_rows_are_shown_in_order_and_the_stream_is_finished(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        for stop in (44, 30, 1):
            order = mesh.order(request_id=work.request_id, stop=stop)
            answers = await shown(mesh, mesh.stage, order)
            assert all(isinstance(each, KeptRows) for each in answers)
            assert [each.position for each in answers] == [0]
            assert answers[0].tensor.shape == (stop, 64)
            assert answers[0].tensor.data == b"".join(work.given)[: stop * 256]


async def test_the_ids_that_an_entry_took_are_one_frame(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        for stop in (44, 7):
            order = mesh.order(
                request_id=work.request_id, keeper=ENTRY.peer_id, side="inputs", stop=stop
            )
            assert await shown(mesh, mesh.entry, order) == [KeptIds(pack_ids(IDS[:stop]))]


REFUSED: list[tuple[str, Identity, dict[str, Any], str]] = [
    ("unsigned", STRANGER, {}, "bad_signature"),
    ("for another auditor", MUSIVUM, {"auditor": STRANGER.peer_id}, "not_authorized"),
    ("for another keeper", MUSIVUM, {"keeper": ENTRY.peer_id}, "not_authorized"),
    ("expired", MUSIVUM, {"expires_at": 1e9}, "stale_record"),
    ("of another request", MUSIVUM, {"request_id": b"r" * 16}, "unknown_entry"),
    ("of more than is kept", MUSIVUM, {"stop": 45}, "unknown_entry"),
    ("of ids that no middle has", MUSIVUM, {"side": "inputs"}, "unknown_entry"),
    ("of a side that there is not", MUSIVUM, {"side": "weights"}, "bad_frame"),
    ("without an audit", MUSIVUM, {"audit_id": b""}, "bad_frame"),
    ("without a request", MUSIVUM, {"request_id": b"r"}, "bad_frame"),
    ("of nothing", MUSIVUM, {"stop": 0}, "bad_frame"),
]


@pytest.mark.parametrize(
    ("by", "changes", "code"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED]
)
async def test_nothing_is_shown_without_an_order_that_fits(
    by: Identity, changes: dict[str, Any], code: str, toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        order = mesh.order(by, **{"request_id": work.request_id, **changes})
        (failed,) = await _until_the_end(mesh, mesh.stage, order)
        assert isinstance(failed, Fail)
        assert failed.code == code


async def _until_the_end(mesh: AuditMesh, party: Party, frame: Message) -> list[Message]:
    async with asking(mesh, party, frame) as stream:
        return [await stream.receive(60)]


@pytest.mark.parametrize("frame", [AskAudit(), SignedOrder(b"", bytes(64)), SignedOrder(b"x", b"")])
async def test_what_is_no_order_at_all_is_refused(
    frame: Message, toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        (failed,) = await _until_the_end(mesh, mesh.stage, frame)
        assert isinstance(failed, Fail)


async def test_an_order_is_good_for_one_use(toy_weights: Path, autojump_clock: MockClock) -> None:
    async with a_mesh(toy_weights) as mesh:
        work = mesh.work()
        order = mesh.order(request_id=work.request_id)
        (rows,) = await shown(mesh, mesh.stage, order)
        assert isinstance(rows, KeptRows)
        (failed,) = await shown(mesh, mesh.stage, order)
        assert isinstance(failed, Fail)
        assert failed.code == "call_replayed"


async def test_orders_that_expired_make_room_in_the_table_of_those_that_were_used(
    toy_weights: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "MAX_USED_ORDERS", 2)
    async with a_mesh(toy_weights) as mesh:
        keeper = keeping.Keeper(
            mesh.stage.identity.peer_id, [MUSIVUM.peer_id], mesh.stage.ring, now
        )
        for _ in range(2):
            keeper.admit(mesh.order(expires_at=now() + 10), AUDITOR.peer_id)
        third = mesh.order(expires_at=now() + 600)
        with pytest.raises(Busy, match="2 audit orders"):
            keeper.admit(third, AUDITOR.peer_id)
        await trio.sleep(80)
        keeper.admit(third, AUDITOR.peer_id)
        with pytest.raises(CallReplayed):
            keeper.admit(third, AUDITOR.peer_id)


async def test_an_auditor_has_few_streams(toy_weights: Path, autojump_clock: MockClock) -> None:
    async with a_mesh(toy_weights) as mesh:
        host, stage = mesh.auditor_host, mesh.stage
        await host.connect(stage.host.address, timeout=5)
        streams = [
            await host.open_stream(stage.identity.peer_id, AUDIT, timeout=5)
            for _ in range(AUDIT_STREAMS_PER_PEER + 1)
        ]
        refused = await streams[-1].receive(5)
        assert isinstance(refused, Fail)
        assert refused.code == "too_many_sessions"
        # Whoever says nothing is let go.
        silent = await streams[0].receive(60)
        assert isinstance(silent, Fail)
        for stream in streams:
            await stream.reset()


async def test_strangers_that_say_nothing_keep_no_order_from_being_shown(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights) as mesh:
        work, stage = mesh.work(), mesh.stage
        for number in range(2 * SHOWN_AT_ONCE):
            stranger = await mesh.stack.enter_async_context(
                mesh.net.host(Identity(bytes([100 + number]) * 32))
            )
            await stranger.connect(stage.host.address, timeout=5)
            for _ in range(AUDIT_STREAMS_PER_PEER):
                await stranger.open_stream(stage.identity.peer_id, AUDIT, timeout=5)
        (answer,) = await shown(mesh, stage, mesh.order(request_id=work.request_id, stop=44))
        assert isinstance(answer, KeptRows), "four of them would have been all there is"
        assert answer.tensor.data == b"".join(work.given)[: 44 * 256]


async def test_a_long_request_comes_in_frames_that_fit_and_leaves_the_uplink_to_others(
    toy_weights: Path, autojump_clock: MockClock
) -> None:
    async with a_mesh(toy_weights, ring_bytes=64 * MIB) as mesh:
        ticketing = Ticketing(b"", b"", b"q" * 16, BACK, DType.F32)
        held = mesh.stage.ring.outputs(ticketing)
        assert held is not None
        size, count = 12 * MIB, 3072
        held.put(0, bytes(size), count)
        began = trio.current_time()
        order = mesh.order(request_id=b"q" * 16, stop=count)
        answers = await shown(mesh, mesh.stage, order)
        assert trio.current_time() - began >= 0.99 * size / BYTES_PER_SECOND
        assert sum(each.tensor.shape[0] for each in answers) == count
        assert max(len(each.tensor.data) for each in answers) <= SHOWN_BYTES
        assert max(len(encode(each)) for each in answers) < MAX_HOP_FRAME
