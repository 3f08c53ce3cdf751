"""Rows that nobody vouches for, as a mesh sees them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tessella.core.errors import RemoteFailure
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import Proof, decode_sealed
from tessella.core.proofs import SignedProof, read_claim, seal_proof
from tessella.worker.proofs import book
from tessella.worker.proofs.witness import Witness
from tests.worker.conftest import wall_clock
from tests.worker.ticketed import RANGES

OpenMesh = Callable[..., Any]
MUSIVUM = Identity(b"m" * 32)


async def start(mesh: Any, path: Path) -> None:
    """Three stages, each with a book."""
    for number, layers in enumerate(RANGES, 1):
        await mesh.start(LayerRange(*layers), bytes([number]) * 32, proofs=path / f"{number}.db")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[SignedProof]:
    """All proofs of all stages, as they are made: of one that is settled the bytes go."""
    found: list[SignedProof] = []

    def seal(proof: Proof, identity: Identity) -> SignedProof:
        found.append(seal_proof(proof, identity))
        return found[-1]

    monkeypatch.setattr(book, "seal_proof", seal)
    return found


async def test_each_proof_brings_the_voucher_of_the_stage_before(
    open_mesh: OpenMesh, autojump_clock: MockClock, tmp_path: Path, made: list[SignedProof]
) -> None:
    async with open_mesh([]) as mesh:
        await start(mesh, tmp_path)
        await mesh.ask("a question of some length", max_tokens=20)
        await trio.sleep(1)
        now = wall_clock()
    peers = [node.identity.peer_id for node in mesh.nodes]
    found = [read_claim(each, {MUSIVUM.peer_id}, now) for each in made]
    claims = sorted(found, key=lambda claim: claim.place)
    assert [each.proof.sender for each in claims] == ["", *peers[:2]]
    for before, behind in pairwise(claims):
        assert before.proof.outputs == behind.proof.inputs


async def test_a_stage_that_is_paid_takes_no_rows_that_nobody_vouches_for(
    open_mesh: OpenMesh,
    autojump_clock: MockClock,
    tmp_path: Path,
    made: list[SignedProof],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vouched = Witness._vouched

    def silent(self: Witness, start: int) -> bytes:
        of = self.ticketing
        return b"" if of.layers == LayerRange(2, 4) else vouched(self, start)

    monkeypatch.setattr(Witness, "_vouched", silent)
    async with open_mesh([]) as mesh:
        await start(mesh, tmp_path)
        with pytest.raises(RemoteFailure, match="does not vouch") as caught:
            await mesh.ask("a question", max_tokens=2)
        assert caught.value.code == "bad_tensor"
        entry, middle, tail = mesh.nodes
        assert (await mesh.status(tail))["peer_failures"] == {middle.identity.peer_id: 1}
        assert (await mesh.status(middle))["peer_failures"] == {}
        await trio.sleep(30)
        # Who took rows of the entry is paid for them; the tail computed for nobody.
        workers = {decode_sealed(each.payload, Proof).worker for each in made}
        assert workers == {PeerId(entry.identity.peer_id), middle.identity.peer_id}
