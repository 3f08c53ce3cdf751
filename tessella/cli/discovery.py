"""Finding a node to ask: through a musivum, or the one that the user named."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from p2p.peers import Host
from tessella.client import ask_peers, ask_status
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.errors import BadConfig, ModelUnavailable, UnknownModel
from tessella.core.identity import SEED_BYTES, Identity
from tessella.core.ids import ModelId
from tessella.core.peers import PeerRow, choose_entry


@dataclass(frozen=True, slots=True)
class Door:
    """A node that answers requests for a model."""

    model: ModelId
    address: PeerAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to find a door. One of `musivum` and `peer`; `model` may be empty."""

    musivum: PeerAddress | None = None
    peer: PeerAddress | None = None
    model: str = ""

    def __post_init__(self) -> None:
        if self.musivum is None and self.peer is None:
            raise BadConfig(
                "where is the mesh? --musivum MULTIADDR (or TESSELLA_MUSIVUM), or --peer"
            )


def way_of(musivum: str | None, peer: str | None, model: str) -> Way:
    """A way from what was typed; an empty text is nothing.

    A peer that is named goes before a musivum, which may be the environment's. Raises BadAddress,
    BadConfig.
    """
    return Way(
        musivum=parse_peer(musivum) if musivum and not peer else None,
        peer=parse_peer(peer) if peer else None,
        model=model,
    )


@asynccontextmanager
async def client_host() -> AsyncIterator[Host]:
    """A host that asks and listens nowhere, under an identity of its own for the occasion."""
    # libp2p takes a second to import, and neither --help nor a wrong flag needs it.
    from p2p.host import open_host

    async with open_host(Identity(os.urandom(SEED_BYTES)), listen=[]) as host:
        yield host


async def find_door(host: Host, way: Way) -> Door:
    """The node to ask. Raises UnknownModel, ModelUnavailable, PeerGone."""
    if way.peer is not None:
        return Door(ModelId(way.model or await _model_of(host, way.peer)), way.peer)
    if way.musivum is None:
        raise BadConfig("a way that leads nowhere")
    rows = await ask_peers(host, way.musivum)
    model = choose_model(rows, way.model)
    return Door(model, choose_entry(row for row in rows if row.model == model))


async def _model_of(host: Host, peer: PeerAddress) -> str:
    model = (await ask_status(host, peer)).get("model")
    if not isinstance(model, str) or not model:
        raise BadConfig(f"{peer.peer_id} serves no model; is it a musivum? then use --musivum")
    return model


def choose_model(rows: Sequence[PeerRow], wanted: str) -> ModelId:
    """The model that is wanted, or the only one that the mesh serves."""
    served = sorted({row.model for row in rows})
    if not served:
        raise ModelUnavailable("no node is registered at this musivum")
    if wanted:
        if wanted not in served:
            raise UnknownModel(f"no node serves {wanted!r}; the mesh has {', '.join(served)}")
        return ModelId(wanted)
    if len(served) > 1:
        raise BadConfig(f"the mesh serves {', '.join(served)}: choose one with --model")
    return served[0]
