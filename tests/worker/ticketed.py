"""A mesh of three nodes whose sessions have tickets, or not."""

from __future__ import annotations

from typing import Any

from tessella.client import Grant, complete
from tessella.core.completions import CompletionRequest
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import Stage
from tessella.core.sampling import Sampling
from tessella.worker.tickets import SignedTicket
from tests.worker.mint import Mint

MUSIVUM, STRANGER = Identity(b"m" * 32), Identity(b"s" * 32)
RANGES = [(0, 2), (2, 4), (4, 6)]
PROMPT = "a prompt that is longer than one chunk of eight positions"
NAME = "the name of a conversation"


def chain_of(mesh: Any) -> tuple[Stage, ...]:
    return tuple(
        Stage(node.identity.peer_id, LayerRange(*layers))
        for node, layers in zip(mesh.nodes, RANGES, strict=False)
    )


def for_client(mint: Mint, mesh: Any, **changes: Any) -> SignedTicket:
    """The ticket of the client of the mesh, for all of its nodes."""
    wanted = {"contract": mesh.contract, "requester": mesh.client.address.peer_id}
    return mint.ticket(changes.pop("chain", chain_of(mesh)), **{**wanted, **changes})


async def ask(
    mesh: Any, signed: SignedTicket | None = None, *, at: int = 0, session: str = "", **more: Any
) -> Any:
    """An answer by a node, with a ticket."""
    request = CompletionRequest(
        model=ModelId("toy"),
        prompt=more.pop("prompt", PROMPT),
        session=session,
        sampling=Sampling(ignore_eos=True, **{"max_tokens": 6, **more}),
    )
    peer, answer = mesh.nodes[at].address, mesh.an_answer()
    grant = None
    if signed is not None:
        grant = Grant(signed.ticket, signed.payload, signed.signature, peer, "")
    async for event in complete(mesh.client, peer, request, grant):
        answer.take(event)
    return answer
