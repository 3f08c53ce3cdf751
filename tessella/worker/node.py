"""One node, as one nursery read from top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

from p2p.peers import Host
from p2p.pool import StreamPool
from p2p.streams import FrameStream
from tessella.core.errors import TessellaError
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import COMPLETE, HOP, STATUS, TOKENS, Announce, Register
from tessella.core.peers import NodeStatus
from tessella.core.shape_json import encode_shape
from tessella.core.shapes import DType
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.compute import Job
from tessella.engine.device import Device, pick_device, serving_dtype
from tessella.engine.shard import Shard, load_shard
from tessella.engine.weights import contract_hash, open_checkpoint
from tessella.worker.complete import Clients
from tessella.worker.config import WorkerConfig
from tessella.worker.counters import Counters
from tessella.worker.directory import Directory
from tessella.worker.downstream import Neighbourhood
from tessella.worker.entry import Entry
from tessella.worker.hops import Hops
from tessella.worker.membership import Membership
from tessella.worker.sessions import SessionLimits, Sessions
from tessella.worker.stage import Compute
from tessella.worker.state import NodeState
from tessella.worker.status import answer_status, node_status
from tessella.worker.terms import Served
from tessella.worker.tokens import TokenDesk
from tessella.worker.tracker import Tracker

Tell = Callable[[dict[str, Any]], None]
"""Takes an event of the node's life: `{"event": "assigned" | "loading" | "ready", …}`."""

EXPIRE_SECONDS = 1.0
STATUS_STREAMS = 64
STATUS_STREAMS_PER_PEER = 8


@dataclass(frozen=True, slots=True)
class Ground:
    """What a node stands on. It is the caller's, to close afterwards."""

    identity: Identity
    host: Host
    compute: Compute


async def run_node(config: WorkerConfig, ground: Ground, stop: trio.Event, tell: Tell) -> None:
    """Join, load, serve, until `stop` is set; then say goodbye.

    Errors of joining and loading leave; a session's
    errors end that session.
    """
    identity, host, compute = ground.identity, ground.host, ground.compute
    checkpoint = open_checkpoint(config.weights)
    device = pick_device(config.device)
    stored = (info.stored for info in checkpoint.tensors.values())
    dtype = config.dtype or serving_dtype(device, stored)
    state = NodeState(trio.current_time())
    counters = Counters()
    tracker = Tracker(host, identity, config.musivum)
    pool = StreamPool(host)
    directory = Directory(host, pool, config.model, tracker.peers)
    desk = TokenDesk(identity)
    register = _registration(config, host, checkpoint, device, dtype)
    membership = Membership(tracker, register, lambda: _news(state, counters))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run)
        _serve_clients(host, config, state, counters, directory)
        layers = state.assigned = await membership.join()
        tell({"event": "assigned", "layer_range": [layers.start, layers.stop]})
        shard = await _load(checkpoint, layers, device, dtype, compute, state, tell)
        sessions = _sessions(shard, compute, counters, config)

        def blame(peer: PeerId, error: TessellaError) -> None:
            counters.failed(peer)
            membership.report(peer, error)

        around = Neighbourhood(directory, counters, config.hop_timeout, blame)
        entry = _entry(config, host, checkpoint, sessions, around, desk)
        _serve_stages(host, config, entry)
        state.entry, state.status = entry, NodeStatus.HEALTHY
        await membership.ready(layers)
        tell({"event": "ready", "peer_id": identity.peer_id, "addrs": list(host.address.full())})
        nursery.start_soon(membership.announce, layers)
        nursery.start_soon(membership.send_reports)
        nursery.start_soon(_expire, sessions)
        await stop.wait()
        state.status = NodeStatus.DRAINING
        await membership.leave()
        nursery.cancel_scope.cancel()


def _registration(
    config: WorkerConfig, host: Host, checkpoint: Checkpoint, device: Device, dtype: DType
) -> Register:
    return Register(
        model=config.model,
        contract=contract_hash(checkpoint),
        shape=encode_shape(checkpoint.shape),
        addrs=host.address.addrs,
        claim_mb=config.claim_mb,
        device=device.value,
        dtype=dtype.value,
        context=min(config.context, checkpoint.shape.context),
        slots=config.slots,
        wanted=config.layers,
    )


def _news(state: NodeState, counters: Counters) -> Announce:
    depth = len(state.entry.sessions.leases()) if state.entry else 0
    return Announce(state.status.value, depth, counters.step_ms)


def _serve_clients(
    host: Host,
    config: WorkerConfig,
    state: NodeState,
    counters: Counters,
    directory: Directory,
) -> None:
    """What a node answers from its first moment, loaded or not."""

    async def status(stream: FrameStream) -> None:
        document = node_status(host.address.peer_id, config, state, counters)
        await answer_status(stream, document)

    clients = Clients(directory, state.serving)
    host.serve(STATUS, status, streams=STATUS_STREAMS, per_peer=STATUS_STREAMS_PER_PEER)
    host.serve(COMPLETE, clients.serve, streams=config.max_sessions, per_peer=config.max_sessions)


def _serve_stages(host: Host, config: WorkerConfig, entry: Entry) -> None:
    """What a node answers once its shard is loaded."""
    hops = Hops(
        ourselves=host.address.peer_id,
        served=entry.served,
        sessions=entry.sessions,
        around=entry.around,
        tokenizer=entry.tokenizer,
        eos_ids=entry.eos_ids,
    )
    for protocol, handler in ((HOP, hops.serve), (TOKENS, entry.desk.serve)):
        # An idle pooled stream counts as one, so there is room for as many again.
        streams = 2 * config.max_sessions
        host.serve(protocol, handler, streams=streams, per_peer=streams)


async def _load(
    checkpoint: Checkpoint,
    layers: LayerRange,
    device: Device,
    dtype: DType,
    compute: Compute,
    state: NodeState,
    tell: Tell,
) -> Shard:
    token = trio.lowlevel.current_trio_token()

    def note(loaded: int, total: int) -> None:
        state.loaded_bytes, state.total_bytes = loaded, total
        tell({"event": "loading", "loaded_bytes": loaded, "total_bytes": total})

    def work(job: Job) -> Shard:
        def progress(loaded: int, total: int) -> None:
            job.advance()
            token.run_sync_soon(note, loaded, total)

        return load_shard(checkpoint, layers, device=device, dtype=dtype, on_progress=progress)

    return await compute.run(work)


def _sessions(shard: Shard, compute: Compute, counters: Counters, config: WorkerConfig) -> Sessions:
    context = min(config.context, shard.shape.context)
    limits = SessionLimits(
        sessions=config.max_sessions,
        kv_bytes=config.slots * shard.kv_bytes(context, shard.layers),
    )
    return Sessions(shard, compute, counters, limits)


def _entry(
    config: WorkerConfig,
    host: Host,
    checkpoint: Checkpoint,
    sessions: Sessions,
    around: Neighbourhood,
    desk: TokenDesk,
) -> Entry:
    served = Served(
        model=config.model,
        contract=contract_hash(checkpoint),
        context=min(config.context, checkpoint.shape.context),
        shard=sessions.shard,
    )
    return Entry(
        host=host,
        served=served,
        sessions=sessions,
        around=around,
        desk=desk,
        tokenizer=checkpoint.tokenizer(),
        eos_ids=checkpoint.eos_ids,
        prefill_chunk=config.prefill_chunk,
    )


async def _expire(sessions: Sessions) -> None:
    while True:
        await trio.sleep(EXPIRE_SECONDS)
        sessions.expire()
