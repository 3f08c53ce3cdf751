"""One node, as one nursery read from top to bottom."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from functools import partial

import httpx
import trio

from p2p.pool import StreamPool
from p2p.streams import FrameStream
from tessella.core.errors import LocalError, TessellaError
from tessella.core.health import OomRule
from tessella.core.ids import PeerId
from tessella.core.layers import LayerRange
from tessella.core.messages import ASSIGN, COMPLETE, HOP, STATUS, TOKENS, Announce
from tessella.core.peers import NodeStatus
from tessella.core.plan import MB
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import Device
from tessella.engine.memory import free_ram
from tessella.engine.weights import open_checkpoint
from tessella.web.client import open_client
from tessella.web.listening import bound_url
from tessella.web.server import bound, serve_bound
from tessella.worker.api_url import api_url_of
from tessella.worker.assignment import Assignment
from tessella.worker.audits.room import Audits
from tessella.worker.complete import Clients
from tessella.worker.config import WorkerConfig
from tessella.worker.counters import Counters
from tessella.worker.directory import PATIENCE_SECONDS, SWARM_PATIENCE_SECONDS, Directory
from tessella.worker.door import Door, NodeRooms
from tessella.worker.grants import Grants
from tessella.worker.ground import Ground
from tessella.worker.hop_streams import HopStreams
from tessella.worker.http_hops.bodies import HopBodies, that_fit
from tessella.worker.http_hops.dialling import Rules, open_http_hops
from tessella.worker.joining import find_tracker, open_mesh, settled
from tessella.worker.loading import Loader
from tessella.worker.memory import Memory
from tessella.worker.mesh import Member, News
from tessella.worker.model import Model
from tessella.worker.nurseries import open_conversation
from tessella.worker.orders import ORDER_STREAMS, ORDER_STREAMS_PER_PEER, Orders
from tessella.worker.pausing import Pausing
from tessella.worker.proofs.opening import Proofs, open_proofs
from tessella.worker.serving import Serving
from tessella.worker.shards import Shards, Tell
from tessella.worker.state import NodeState
from tessella.worker.status import Facts, answer_status, node_status
from tessella.worker.tickets import Tickets
from tessella.worker.tokens import TokenDesk
from tessella.worker.trust import Neighbourhood
from tessella.worker.watches import watches_of

logger = logging.getLogger(__name__)

STATUS_STREAMS = 64
STATUS_STREAMS_PER_PEER = 8


async def run_node(config: WorkerConfig, ground: Ground, stop: trio.Event, tell: Tell) -> None:
    """Join, load, serve, until `stop` is set; then let sessions finish, and say goodbye.

    However else it ends, it says goodbye. Errors of joining and loading leave, bare; a session's
    errors end that session.
    """
    with closing(open_checkpoint(config.weights)) as checkpoint:
        async with open_client() as client, bound(config.http) as listeners:
            settled_config = await settled(config, client)
            node = _Node(settled_config, ground, checkpoint, client, listeners)
            await node.run(stop, tell)


class _Node:
    """What is there before the node joins."""

    def __init__(
        self,
        config: WorkerConfig,
        ground: Ground,
        checkpoint: Checkpoint,
        client: httpx.AsyncClient,
        listeners: list[trio.SocketListener],
    ) -> None:
        self.config, self.ground, self.client, self.listeners = config, ground, client, listeners
        self.counters = Counters()
        self.model = Model.of(config, checkpoint)
        memory = Memory.of(_oom_rule(config), ground.compute, self.model.device)
        self.state = NodeState(trio.current_time(), layers=config.layers, memory=memory)
        self.serving, self.desk = Serving(self.state), TokenDesk(ground.identity)
        self.tickets = Tickets((each.peer_id for each in config.musivum), ground.clock)
        self.assignment = Assignment(checkpoint.shape.layers, config.layers)
        self.audits = Audits(self.model, ground, self._served_layers)
        self.bodies = HopBodies(that_fit(config.max_hop_bodies, _ram_beside_layers(self.model)))
        urls = [bound_url(listener) for listener in listeners]
        self.api_url = api_url_of(config.public_api_url, urls, ground.host.address.addrs)
        self.member = Member(
            register=self.model.registration(ground.host, self.api_url),
            total_layers=checkpoint.shape.layers,
            news=lambda: _news(self.state, self.counters),
            assigned=self.assignment.want,
            failed=self.counters.mesh_failed,
        )

    def _served_layers(self) -> LayerRange | None:
        return self.state.layers if self.state.takes_sessions else None

    async def run(self, stop: trio.Event, tell: Tell) -> None:
        """Be a node until `stop` is set."""
        config, ground, state, counters = self.config, self.ground, self.state, self.counters

        def blame(peer: PeerId, error: TessellaError) -> None:
            logger.warning("%s failed a session: %s: %s", peer, error.code, error)
            counters.failed(peer)
            mesh.report(peer, error)

        tracker = find_tracker(config, ground, self.client)
        async with (
            open_proofs(config, ground, tracker, self.audits.ring) as proofs,
            open_http_hops(ground.identity, _rules(config, ground)) as http_hops,
            open_mesh(config, ground, self.member, tracker) as mesh,
            open_conversation() as nursery,
        ):
            pool = StreamPool(ground.host)
            patience = SWARM_PATIENCE_SECONDS if config.kademlia else PATIENCE_SECONDS
            directory = Directory(
                ground.host, pool, config.model, mesh.rows, patience, http=http_hops
            )
            around = Neighbourhood(
                directory,
                counters,
                config.hop_timeout,
                blame,
                tickets=self.tickets,
                grants=Grants(self.tickets, tracker.ledger_call if tracker else None),
                billing=proofs.billing,
                bend_of=self.audits.canary.bend,
            )
            loader = Loader(
                self.model,
                ground,
                around,
                self.desk,
                self.api_url,
                forget=self.audits.ring.clear,
            )
            shards = Shards(
                loader,
                self.assignment,
                self.serving,
                mesh,
                drain_seconds=config.drain_seconds,
                tell=tell,
            )
            pausing = Pausing(self.assignment, state, stop)
            rooms = self._rooms(around, pausing, lambda: mesh.way, proofs)
            nursery.start_soon(pool.run)
            nursery.start_soon(shards.expire)
            nursery.start_soon(
                pausing.run, watches_of(config, self.model.device, lambda: counters.compute_seconds)
            )
            self._serve(rooms)
            if self.listeners:
                door = Door(config, ground, rooms, nursery)
                nursery.start_soon(door.run)
                serve = partial(serve_bound, door.app, self.listeners, limits=door.limits)
                nursery.start_soon(serve)
            try:
                state.layers = self.assignment.begin(await mesh.join())
                self._serve_orders(rooms.orders)
                nursery.start_soon(proofs.run)
                nursery.start_soon(self.audits.run, tracker.ledger_call if tracker else None)
                nursery.start_soon(mesh.run)
                nursery.start_soon(shards.run)
                await stop.wait()
                await shards.finish()
                await proofs.flush()
            finally:
                # A node that ends by an error is not listed as one that serves either. And nothing
                # that it does may be said after the goodbye: it would be listed again.
                nursery.cancel_scope.cancel()
                state.status, state.moving_to = NodeStatus.DRAINING, None
                await mesh.leave()

    def _rooms(
        self, around: Neighbourhood, pausing: Pausing, way: Callable[[], str], proofs: Proofs
    ) -> NodeRooms:
        facts = Facts(
            ourselves=self.ground.host.address.peer_id,
            config=self.config,
            state=self.state,
            counters=self.counters,
            bodies=self.bodies,
            api_url=self.api_url,
            way=way,
            proofs=proofs.totals,
        )
        musivums = [musivum.peer_id for musivum in self.config.musivum]
        return NodeRooms(
            clients=Clients(around, self.serving),
            desk=self.desk,
            hops=HopStreams(self.serving).serve,
            status=partial(node_status, facts),
            orders=Orders(musivums, self.assignment.want, self.ground.clock),
            pausing=pausing,
            state=self.state,
            counters=self.counters,
            bodies=self.bodies,
        )

    def _serve(self, rooms: NodeRooms) -> None:
        """From the first moment: whoever asks too early is told why it has to wait."""
        host, sessions = self.ground.host, self.config.max_sessions

        async def status(stream: FrameStream) -> None:
            await answer_status(stream, rooms.status())

        async def tokens(stream: FrameStream) -> None:
            self.serving.check_loaded()
            await self.desk.serve(stream)

        host.serve(STATUS, status, streams=STATUS_STREAMS, per_peer=STATUS_STREAMS_PER_PEER)
        host.serve(COMPLETE, rooms.clients.serve, streams=sessions, per_peer=sessions)
        for protocol, handler in ((HOP, rooms.hops), (TOKENS, tokens)):
            # An idle pooled stream counts as one, so there is room for as many again.
            host.serve(protocol, handler, streams=2 * sessions, per_peer=2 * sessions)

    def _serve_orders(self, orders: Orders) -> None:
        if orders.musivums:
            self.audits.serve(self.ground.host)
            self.ground.host.serve(
                ASSIGN, orders.serve, streams=ORDER_STREAMS, per_peer=ORDER_STREAMS_PER_PEER
            )


def _rules(config: WorkerConfig, ground: Ground) -> Rules:
    return Rules(
        config.allow_private,
        ground.clock,
        # A hop is given up by who waits for it: a tunnel that comes back sooner is not noticed.
        patience=0.8 * config.hop_timeout,
        callback_hosts=config.callback_allowed_hosts,
    )


def _oom_rule(config: WorkerConfig) -> OomRule:
    return OomRule(streak=config.oom_streak, window=config.oom_window_seconds)


def _news(state: NodeState, counters: Counters) -> News:
    if state.layers is None:
        raise LocalError("a node that was assigned nothing has nothing to say")
    depth = state.loaded.entry.sessions.at_work if state.loaded else 0
    load = state.load
    said = Announce(
        state.status.value, depth, counters.step_ms, load.loaded_bytes, load.total_bytes
    )
    return News(state.layers, said)


def _ram_beside_layers(model: Model) -> int:
    """Bytes that are free, less what layers will take of them."""
    return free_ram() - (model.config.claim_mb * MB if model.device is Device.CPU else 0)
