"""One node, as one nursery read from top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import trio

from p2p.peers import Host
from p2p.pool import StreamPool
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress
from tessella.core.contracts import contract_of
from tessella.core.errors import TessellaError
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import COMPLETE, HOP, STATUS, TOKENS, Announce, Register
from tessella.core.peers import NodeStatus
from tessella.core.shape_json import encode_shape
from tessella.core.shapes import DType
from tessella.core.tensors import chunk_positions
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.compute import Job
from tessella.engine.device import Device, pick_device, serving_dtype
from tessella.engine.shard import Shard, load_shard
from tessella.engine.weights import open_checkpoint
from tessella.worker.complete import Clients
from tessella.worker.config import WorkerConfig
from tessella.worker.counters import Counters
from tessella.worker.directory import PATIENCE_SECONDS, SWARM_PATIENCE_SECONDS, Directory
from tessella.worker.entry import Entry
from tessella.worker.ground import Ground
from tessella.worker.hops import Hops
from tessella.worker.joining import open_mesh
from tessella.worker.nurseries import open_conversation
from tessella.worker.sessions import SessionLimits, Sessions
from tessella.worker.stage import Compute
from tessella.worker.state import NodeState
from tessella.worker.status import answer_status, node_status
from tessella.worker.terms import Served
from tessella.worker.tokens import TokenDesk
from tessella.worker.trust import Neighbourhood

Tell = Callable[[dict[str, Any]], None]
"""Takes an event of the node's life: `{"event": "assigned" | "loading" | "ready", …}`."""

EXPIRE_SECONDS = 1.0
STATUS_STREAMS = 64
STATUS_STREAMS_PER_PEER = 8


async def run_node(config: WorkerConfig, ground: Ground, stop: trio.Event, tell: Tell) -> None:
    """Join, load, serve, until `stop` is set; then, and however else it ends, say goodbye.

    Errors of joining and loading leave, bare; a session's errors end that session.
    """
    with closing(open_checkpoint(config.weights)) as checkpoint:
        await _run(config, ground, checkpoint, stop, tell)


async def _run(
    config: WorkerConfig, ground: Ground, checkpoint: Checkpoint, stop: trio.Event, tell: Tell
) -> None:
    identity, host, compute = ground.identity, ground.host, ground.compute
    device = pick_device(config.device)
    stored = (info.stored for info in checkpoint.tensors.values())
    dtype = config.dtype or serving_dtype(device, stored)
    state = NodeState(trio.current_time())
    counters = Counters()
    register = _registration(config, host, checkpoint, device, dtype)
    facts = (register, checkpoint.shape.layers)

    def blame(peer: PeerId, error: TessellaError) -> None:
        counters.failed(peer)
        mesh.report(peer, error)

    async with (
        open_mesh(config, ground, facts, lambda: _news(state, counters)) as mesh,
        open_conversation() as nursery,
    ):
        pool = StreamPool(host)
        patience = SWARM_PATIENCE_SECONDS if config.kademlia else PATIENCE_SECONDS
        directory = Directory(host, pool, config.model, mesh.rows, patience)
        around = Neighbourhood(directory, counters, config.hop_timeout, blame)
        nursery.start_soon(pool.run)
        _serve_clients(host, config, state, counters, directory)
        try:
            layers = state.assigned = await mesh.join()
            tell({"event": "assigned", "layer_range": [layers.start, layers.stop]})
            shard = await _load(checkpoint, layers, device, dtype, compute, state, tell)
            sessions = _sessions(shard, compute, counters, config)
            nursery.start_soon(_expire, sessions)
            entry = _entry(config, host, checkpoint, sessions, around, TokenDesk(identity))
            _serve_stages(host, config, entry)
            state.entry, state.status = entry, NodeStatus.HEALTHY
            await mesh.ready(layers)
            tell(_ready(host.address))
            nursery.start_soon(mesh.run, layers)
            await stop.wait()
        finally:
            # A node that ends by an error is not listed as one that serves either.
            state.status = NodeStatus.DRAINING
            await mesh.leave()
        nursery.cancel_scope.cancel()


def _ready(ourselves: PeerAddress) -> dict[str, Any]:
    return {"event": "ready", "peer_id": ourselves.peer_id, "addrs": list(ourselves.full())}


def _registration(
    config: WorkerConfig, host: Host, checkpoint: Checkpoint, device: Device, dtype: DType
) -> Register:
    return Register(
        model=config.model,
        contract=contract_of(checkpoint.shape),
        shape=encode_shape(checkpoint.shape),
        addrs=host.address.addrs,
        claim_mb=config.claim_mb,
        device=device.value,
        dtype=dtype.value,
        context=min(config.context, checkpoint.shape.context),
        slots=config.slots,
        kv=dtype.value,
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
    shape, shard = checkpoint.shape, sessions.shard
    served = Served(
        model=config.model,
        contract=contract_of(checkpoint.shape),
        context=min(config.context, shape.context),
        shard=shard,
    )
    return Entry(
        host=host,
        served=served,
        sessions=sessions,
        around=around,
        desk=desk,
        tokenizer=checkpoint.tokenizer(),
        eos_ids=checkpoint.eos_ids,
        # More than a stage takes in one piece would be refused by the next one.
        prefill_chunk=min(config.prefill_chunk, chunk_positions(shape.hidden, shard.dtype)),
    )


async def _expire(sessions: Sessions) -> None:
    while True:
        await trio.sleep(EXPIRE_SECONDS)
        sessions.expire()
