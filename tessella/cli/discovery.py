"""Finding a node to ask: through a musivum, the swarm, or the one that the user named."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from p2p.peers import Host
from tessella.client import ask_peers, ask_status, ask_swarm
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.errors import BadConfig, ModelUnavailable, UnknownModel
from tessella.core.identity import SEED_BYTES, Identity
from tessella.core.ids import ModelId
from tessella.core.peers import NodeStatus, PeerRow, choose_entry


@dataclass(frozen=True, slots=True)
class Door:
    """A node that answers requests for a model."""

    model: ModelId
    address: PeerAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to find a door. One of the first three; `model` may be empty."""

    peer: PeerAddress | None = None
    bootstrap: tuple[PeerAddress, ...] = ()
    musivum: PeerAddress | None = None
    model: str = ""

    def __post_init__(self) -> None:
        if not (self.peer or self.bootstrap or self.musivum):
            raise BadConfig(
                "where is the mesh? --musivum MULTIADDR (or TESSELLA_MUSIVUM), "
                "--bootstrap, or --peer"
            )


def way_of(musivum: str | None, peer: str | None, bootstrap: Sequence[str], model: str) -> Way:
    """A way from what was typed; an empty text is nothing.

    A peer that is named goes first, then the swarm, then a musivum, which may be the
    environment's. Raises BadAddress, BadConfig.
    """
    return Way(
        peer=parse_peer(peer) if peer else None,
        bootstrap=tuple(map(parse_peer, bootstrap)),
        musivum=parse_peer(musivum) if musivum else None,
        model=model,
    )


@asynccontextmanager
async def client_host() -> AsyncIterator[Host]:
    """A host that asks and listens nowhere, under an identity of its own for the occasion."""
    # libp2p takes a second to import, and neither --help nor a wrong flag needs it.
    from p2p.configuration import CLIENT_LIMITS
    from p2p.host import open_host

    identity = Identity(os.urandom(SEED_BYTES))
    async with open_host(identity, listen=[], limits=CLIENT_LIMITS) as host:
        yield host


async def find_door(host: Host, way: Way) -> Door:
    """The node to ask. Raises UnknownModel, ModelUnavailable, PeerGone."""
    if way.peer is not None:
        return Door(ModelId(way.model or await _model_of(host, way.peer)), way.peer)
    rows = await list_rows(host, way)
    model = choose_model(rows, way.model)
    return Door(model, choose_entry(row for row in rows if row.model == model))


async def list_rows(host: Host, way: Way) -> list[PeerRow]:
    """The nodes of the way's model, or of all, in the order of a chain. Raises PeerGone."""
    if way.bootstrap:
        rows = await ask_swarm(host, way.bootstrap, way.model)
    elif way.musivum is not None:
        rows = await ask_peers(host, way.musivum, way.model)
    else:
        raise BadConfig("a node lists nobody: --musivum, or --bootstrap")
    return sorted(rows, key=lambda row: (row.model, row.layers, row.peer_id))


async def _model_of(host: Host, peer: PeerAddress) -> str:
    model = (await ask_status(host, peer)).get("model")
    if not isinstance(model, str) or not model:
        raise BadConfig(f"{peer.peer_id} serves no model; is it a musivum? then use --musivum")
    return model


def choose_model(rows: Sequence[PeerRow], wanted: str) -> ModelId:
    """The model that is wanted, or the only one that the mesh serves."""
    gone = NodeStatus.OFFLINE.value
    served = sorted({row.model for row in rows if row.status != gone})
    if not served:
        raise ModelUnavailable(f"no node serves {wanted!r}" if wanted else "no node is known there")
    if wanted:
        if wanted not in served:
            raise UnknownModel(f"no node serves {wanted!r}; the mesh has {', '.join(served)}")
        return ModelId(wanted)
    if len(served) > 1:
        raise BadConfig(f"the mesh serves {', '.join(served)}: choose one with --model")
    return served[0]
