"""Which mesh a node joins, as its operator decided: musivum's, the swarm, or both."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import httpx

from p2p.background import background_tasks
from p2p.dht import DhtSettings, open_dht
from p2p.peers import Host
from tessella.core.addresses import is_loopback
from tessella.core.errors import TessellaError
from tessella.core.peers import PeerRow
from tessella.worker.config import WorkerConfig
from tessella.worker.ground import Ground
from tessella.worker.membership import Membership
from tessella.worker.mesh import BothMeshes, Member, Mesh
from tessella.worker.musivum_http import HttpMusivum, find_musivum
from tessella.worker.retries import try_again
from tessella.worker.swarm import Swarm, meet_neighbours
from tessella.worker.tracker import Tracker, is_away

logger = logging.getLogger(__name__)


async def settled(config: WorkerConfig, client: httpx.AsyncClient) -> WorkerConfig:
    """The configuration with the musivum that `orchestrator_url` names, its key pinned.

    One that does not answer is waited for, `registration_grace_seconds` long. A node that is in
    the swarm as well, and insists on a range, goes on without. Raises PeerGone, BadAddress,
    RemoteError.
    """
    if config.musivum or not config.orchestrator_url:
        return config
    ask = partial(find_musivum, client, config.orchestrator_url)
    try:
        found = await try_again(ask, config.registration_grace_seconds, is_away)
    except TessellaError as exc:
        if not is_away(exc) or not config.kademlia or config.layers is None:
            raise
        logger.warning("musivum is away, going on in the swarm alone: %s", exc)
        return replace(config, orchestrator_url="")
    return replace(config, musivum=(found,))


def find_tracker(config: WorkerConfig, ground: Ground, client: httpx.AsyncClient) -> Tracker | None:
    """Calls to the musivum of a settled configuration, where it has one.

    `client` is the caller's, to close afterwards.
    """
    if not config.musivum:
        return None
    http = _over_http(config, ground, client)
    return Tracker(ground.host, ground.identity, config.musivum, ground.clock, http)


@asynccontextmanager
async def open_mesh(
    config: WorkerConfig, ground: Ground, member: Member, tracker: Tracker | None
) -> AsyncIterator[Mesh]:
    """The node's membership, until the context is left; `leave` says goodbye before that.

    `config` is settled, and `tracker` is that of its musivum, which `leave` closes.
    """
    identity, host = ground.identity, ground.host
    musivum = None
    if tracker is not None:
        musivum = Membership(tracker, member, config.registration_grace_seconds)
    if not config.kademlia and musivum is not None:
        yield musivum
        return
    # musivum is a bootstrap peer too: whoever can register finds the swarm through it.
    peers = (*config.bootstrap, *config.musivum)
    settings = DhtSettings(
        bootstrap=peers, snapshot=config.snapshot, allow_private=config.allow_private
    )
    async with (
        open_dht(host, identity, settings, clock=ground.clock) as dht,
        background_tasks() as nursery,
    ):
        # Who listens on the loopback interface alone has no neighbours.
        if config.lan and not all(map(is_loopback, host.address.addrs)):
            nursery.start_soon(meet_neighbours, dht, host.address)
        row = partial(_row, member, host)
        swarm = Swarm(dht, settings.beat, config.layers, row, member.failed)
        yield BothMeshes(musivum, swarm, config.layers) if musivum is not None else swarm


def _over_http(
    config: WorkerConfig, ground: Ground, client: httpx.AsyncClient
) -> HttpMusivum | None:
    """The way to musivum by its URL, where the operator named one."""
    if not config.orchestrator_url:
        return None
    return HttpMusivum(
        client=client,
        url=config.orchestrator_url,
        peer_id=config.musivum[0].peer_id,
        identity=ground.identity,
        clock=ground.clock,
    )


def _row(member: Member, host: Host) -> PeerRow:
    """The node as the swarm lists it at this moment."""
    news, register, ourselves = member.news(), member.register, host.address
    return PeerRow(
        peer_id=ourselves.peer_id,
        model=register.model,
        contract=register.contract,
        layers=news.layers,
        total_layers=member.total_layers,
        status=news.said.status,
        addrs=ourselves.addrs,
        device=register.device,
        dtype=register.dtype,
        queue_depth=news.said.queue_depth,
        step_ms=news.said.step_ms,
        api_url=register.api_url,
        canary=register.canary,
    )
