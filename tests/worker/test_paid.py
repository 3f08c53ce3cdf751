"""Answers that a musivum gave the ticket for, and that it pays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from secrets import token_bytes
from typing import Any

import pytest
import trio

from tessella.client import Grant, ask_grant
from tessella.core.calls import sign_call
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.messages import LEDGER, AskCredits, AskGrant, Document
from tessella.worker.tickets import SignedTicket
from tests.worker.conftest import wall_clock
from tests.worker.ticketed import NAME, PROMPT, ask

# Books are on a disk, which a virtual clock would not wait for.
pytestmark = pytest.mark.slow

OpenMesh = Callable[..., Any]
CLIENT = Identity(b"c" * 32)


async def granted(mesh: Any, after: bytes = b"") -> Grant:
    """A ticket for the client of the mesh."""
    return await ask_grant(
        mesh.client,
        CLIENT,
        mesh.musivum.address,
        AskGrant(ModelId("toy"), 200, anonymous=False, after=after),
        clock=wall_clock,
    )


async def credits_of(mesh: Any, node: Any) -> int:
    """What musivum says that a node owns, in micro-credits."""
    stream = await node.host.open_stream(mesh.musivum.address.peer_id, LEDGER, timeout=5)
    async with stream:
        await stream.send(sign_call(AskCredits(), node.identity, wall_clock(), token_bytes(16)))
        answer = await stream.receive(5)
    assert isinstance(answer, Document)
    found: int = json.loads(answer.document)["micro"]
    return found


async def until_paid(mesh: Any, wanted: list[int]) -> None:
    """Wait until every node of the mesh owns what it should. Fails if one does not."""
    with trio.move_on_after(10.0):
        while [  # noqa: ASYNC110 - musivum tells nobody that it has paid
            await credits_of(mesh, node) for node in mesh.nodes
        ] != wanted:
            await trio.sleep(0.1)
    assert [await credits_of(mesh, node) for node in mesh.nodes] == wanted


@pytest.mark.parametrize("has_key", [False, True])
async def test_every_stage_of_an_answer_is_paid_for_its_layers(
    open_mesh: OpenMesh, tmp_path: Path, has_key: bool
) -> None:
    async with open_mesh([]) as mesh:
        for layers in (1, 2, 3):
            await mesh.add(layers, proofs=tmp_path / f"{layers}.db")
        if has_key:
            grant = await granted(mesh)
            entry = grant.entry
            assert entry.addrs == mesh.nodes[0].address.addrs
            signed = SignedTicket(grant.ticket, grant.payload, grant.signature)
            answer = await ask(mesh, signed, max_tokens=6)
        else:
            answer = await ask(mesh, max_tokens=6)
        assert answer.begun.tier == "leech"
        # The last token of an answer goes through no layer.
        positions = answer.begun.prompt_tokens + 5
        await until_paid(mesh, [layers * positions * 1000 for layers in (1, 2, 3)])


async def test_a_conversation_over_a_kept_chain_is_paid_for_what_is_new(
    open_mesh: OpenMesh, tmp_path: Path
) -> None:
    async with open_mesh([]) as mesh:
        for number in (1, 2):
            await mesh.add(3, proofs=tmp_path / f"{number}.db")
        first = await ask(mesh, session=NAME, max_tokens=6)
        more = PROMPT + first.text + " and more"
        second = await ask(mesh, session=NAME, prompt=more, max_tokens=6)
        assert second.begun.cached_tokens > 0
        new = second.begun.prompt_tokens - second.begun.cached_tokens
        positions = first.begun.prompt_tokens + 5 + new + 5
        await until_paid(mesh, [3 * positions * 1000] * 2)
