"""One node, as one nursery read from top to bottom."""

from __future__ import annotations

from contextlib import closing

import trio

from p2p.pool import StreamPool
from p2p.streams import FrameStream
from tessella.core.errors import LocalError, TessellaError
from tessella.core.ids import PeerId
from tessella.core.messages import ASSIGN, COMPLETE, HOP, STATUS, TOKENS, Announce
from tessella.core.peers import NodeStatus
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.weights import open_checkpoint
from tessella.worker.assignment import Assignment
from tessella.worker.complete import Clients
from tessella.worker.config import WorkerConfig
from tessella.worker.counters import Counters
from tessella.worker.directory import PATIENCE_SECONDS, SWARM_PATIENCE_SECONDS, Directory
from tessella.worker.ground import Ground
from tessella.worker.hop_streams import HopStreams
from tessella.worker.joining import open_mesh
from tessella.worker.loading import Loader
from tessella.worker.mesh import Member, News
from tessella.worker.model import Model
from tessella.worker.nurseries import open_conversation
from tessella.worker.orders import ORDER_STREAMS, ORDER_STREAMS_PER_PEER, Orders
from tessella.worker.serving import Serving
from tessella.worker.shards import Shards, Tell
from tessella.worker.state import NodeState
from tessella.worker.status import answer_status, node_status
from tessella.worker.tokens import TokenDesk
from tessella.worker.trust import Neighbourhood

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
    host, counters = ground.host, Counters()
    state = NodeState(trio.current_time(), layers=config.layers)
    model, serving, desk = Model.of(config, checkpoint), Serving(state), TokenDesk(ground.identity)
    assignment = Assignment(checkpoint.shape.layers, config.layers)
    member = Member(
        register=model.registration(host),
        total_layers=checkpoint.shape.layers,
        news=lambda: _news(state, counters),
        assigned=assignment.want,
        failed=counters.mesh_failed,
    )

    def blame(peer: PeerId, error: TessellaError) -> None:
        counters.failed(peer)
        mesh.report(peer, error)

    async with open_mesh(config, ground, member) as mesh, open_conversation() as nursery:
        pool = StreamPool(host)
        patience = SWARM_PATIENCE_SECONDS if config.kademlia else PATIENCE_SECONDS
        directory = Directory(host, pool, config.model, mesh.rows, patience)
        around = Neighbourhood(directory, counters, config.hop_timeout, blame)
        loader = Loader(model, ground, around, desk)
        shards = Shards(
            loader, assignment, serving, mesh, drain_seconds=config.drain_seconds, tell=tell
        )
        nursery.start_soon(pool.run)
        nursery.start_soon(shards.expire)
        _serve_status(config, ground, state, counters)
        _serve_sessions(config, ground, serving, around, desk)
        try:
            state.layers = assignment.begin(await mesh.join())
            _serve_orders(config, ground, assignment)
            nursery.start_soon(mesh.run)
            nursery.start_soon(shards.run)
            await stop.wait()
        finally:
            # A node that ends by an error is not listed as one that serves either. And nothing
            # that it does may be said after the goodbye: it would be listed again.
            nursery.cancel_scope.cancel()
            state.status, state.moving_to = NodeStatus.DRAINING, None
            await mesh.leave()


def _news(state: NodeState, counters: Counters) -> News:
    if state.layers is None:
        raise LocalError("a node that was assigned nothing has nothing to say")
    depth = len(state.loaded.entry.sessions.leases()) if state.loaded else 0
    load = state.load
    said = Announce(
        state.status.value, depth, counters.step_ms, load.loaded_bytes, load.total_bytes
    )
    return News(state.layers, said)


def _serve_status(
    config: WorkerConfig, ground: Ground, state: NodeState, counters: Counters
) -> None:
    host = ground.host

    async def status(stream: FrameStream) -> None:
        document = node_status(host.address.peer_id, config, state, counters)
        await answer_status(stream, document)

    host.serve(STATUS, status, streams=STATUS_STREAMS, per_peer=STATUS_STREAMS_PER_PEER)


def _serve_sessions(
    config: WorkerConfig,
    ground: Ground,
    serving: Serving,
    around: Neighbourhood,
    desk: TokenDesk,
) -> None:
    """Answered from the first moment: whoever asks too early is told why it has to wait."""
    host, sessions = ground.host, config.max_sessions

    async def tokens(stream: FrameStream) -> None:
        serving.check_loaded()
        await desk.serve(stream)

    clients = Clients(around, serving)
    host.serve(COMPLETE, clients.serve, streams=sessions, per_peer=sessions)
    for protocol, handler in ((HOP, HopStreams(serving).serve), (TOKENS, tokens)):
        # An idle pooled stream counts as one, so there is room for as many again.
        host.serve(protocol, handler, streams=2 * sessions, per_peer=2 * sessions)


def _serve_orders(config: WorkerConfig, ground: Ground, assignment: Assignment) -> None:
    musivums = [musivum.peer_id for musivum in config.musivum]
    if musivums:
        orders = Orders(musivums, assignment.want, ground.clock)
        ground.host.serve(
            ASSIGN, orders.serve, streams=ORDER_STREAMS, per_peer=ORDER_STREAMS_PER_PEER
        )
