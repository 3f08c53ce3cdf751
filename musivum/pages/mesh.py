"""What anyone may read: each question is a method here, and both doors call it."""

from __future__ import annotations

from heapq import nsmallest

import trio

from musivum.bodies.fields import NoArguments, Span
from musivum.bodies.mesh import (
    AssignmentArguments,
    AssignmentBody,
    ChainBody,
    FileBody,
    Hole,
    Loading,
    ManifestBody,
    ModelHealth,
    NetworkModel,
    OfAnyModel,
    OfModel,
    P2pId,
    PeerBody,
    Preview,
    PriceArguments,
    StageBody,
    Unavailable,
    WorkerBody,
)
from musivum.config import MusivumConfig
from musivum.nodes.availability import pending, unavailable
from musivum.nodes.books import Books
from musivum.nodes.manifests import Known
from musivum.nodes.node import Node
from musivum.pages.prices import Price, price
from p2p.peers import Host
from tessella.core.addresses import PeerAddress
from tessella.core.errors import ClaimTooSmall, UnknownManifest
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.manifest import manifest_document
from tessella.core.peers import MeshHealth, NodeStatus
from tessella.core.plan import Refuse, claim_for, least_claim, place_among, replica_claim
from tessella.core.route import choose_chain, coverage
from tessella.web.targets import parse_url

# A chain needs one; the rest are for when that fails. All of them are at /peers.
MAX_NEXT_HOPS = 64


class Pages:
    """The public questions of one musivum."""

    def __init__(self, host: Host, config: MusivumConfig, books: Books) -> None:
        self._host = host
        self._config = config
        self._books = books

    @property
    def ourselves(self) -> PeerId:
        """The peer id of this musivum: whom signed calls are for."""
        return self._host.address.peer_id

    def peers(self, asked: OfAnyModel) -> list[PeerBody]:
        """Every node of a model, or of all, where it can be reached and how it does.

        A model that nobody serves has none.
        """
        nodes = self._books.roster.nodes(ModelId(asked.model_id) if asked.model_id else None)
        return [self._peer(node) for node in nodes]

    def _peer(self, node: Node) -> PeerBody:
        row, known = node.row, self._books.reputations.of(node.peer_id)
        loading = node.status is NodeStatus.PENDING_LOAD
        return PeerBody(
            peer_id=row.peer_id,
            model_id=row.model,
            status=row.status,
            layer_ranges=[span(row.layers)],
            total_layers=row.total_layers,
            http_api_url=row.api_url or None,
            http_addr=parse_url(row.api_url).host if row.api_url else None,
            p2p_addrs=list(PeerAddress(row.peer_id, row.addrs).full()),
            device=row.device,
            dtype=row.dtype,
            queue_depth=row.queue_depth,
            step_ms=row.step_ms,
            canary=row.canary,
            progress=round(node.load.progress, 4) if loading else None,
            reported=known.accused,
            confirmed=known.accused_confirmed,
            contract=row.contract,
        )

    def next_hops(self, model: ModelId, layers: LayerRange) -> list[PeerBody]:
        """The nodes that a holder of these layers may hand on to, the least busy first, and no more
        than MAX_NEXT_HOPS; none after the last layer."""
        able = (
            node
            for node in self._books.roster.of_model(model)
            if node.row.serves and node.row.layers.start <= layers.stop < node.row.layers.stop
        )
        return [self._peer(node) for node in nsmallest(MAX_NEXT_HOPS, able, key=_business)]

    def models(self, _: NoArguments) -> list[NetworkModel]:
        """What the mesh serves, or is about to: `active_workers` serve it now."""
        return [self._model(model) for model in self._books.roster.models()]

    def _model(self, model: ModelId) -> NetworkModel:
        nodes = [node for node in self._books.roster.nodes(model) if node.is_here]
        typical = typical_node(self._books, model)
        total = typical.row.total_layers if typical else 0
        found = coverage([node.row for node in nodes], total) if total else None
        return NetworkModel(
            model_id=model,
            active_workers=sum(node.row.serves for node in nodes),
            workers=len(nodes),
            health=(found.health if found else MeshHealth.INCOMPLETE).value,
            total_layers=total,
        )

    def workers(self, asked: OfAnyModel) -> list[WorkerBody]:
        """Who is here and does what; nobody's address."""
        nodes = self._books.roster.nodes(ModelId(asked.model_id) if asked.model_id else None)
        return [
            WorkerBody(
                peer_id=node.peer_id,
                model_id=node.row.model,
                status=node.row.status,
                vram_mb=node.wish.claim_mb,
                queue_depth=node.row.queue_depth,
                layer_ranges=[span(node.row.layers)],
                device=node.row.device,
            )
            for node in nodes
        ]

    def model_health(self, asked: PriceArguments) -> ModelHealth:
        """Coverage, holes, and what a repair is sized with. Nothing is known of an unknown model,
        and that is no error: nobody serves it."""
        nodes = self._books.roster.nodes(ModelId(asked.model_id))
        try:
            found = self._price(asked)
        except UnknownManifest:
            return self._nothing(asked)
        return self._health(asked, nodes, found)

    def _nothing(self, asked: PriceArguments) -> ModelHealth:
        blank = dict.fromkeys(ModelHealth.model_fields)
        facts = {
            "model_id": asked.model_id,
            "health": MeshHealth.INCOMPLETE.value,
            "covered_layers": 0,
            "prefix_layers": 0,
            "workers": 0,
            "holes": [],
            "loading": [],
            "available": False,
            "usable_vram_pct": self._config.usable_vram_pct,
            "min_vram_mb": self._config.least_claim_mb,
        }
        return ModelHealth.model_validate({**blank, **facts})

    def _health(self, asked: PriceArguments, nodes: list[Node], found: Price) -> ModelHealth:
        terms, now = found.terms, trio.current_time()
        cover = coverage([node.row for node in nodes], terms.layers)
        error = unavailable(ModelId(asked.model_id), nodes, terms, now)
        missing = sum(map(len, cover.holes))
        return ModelHealth(
            model_id=asked.model_id,
            health=cover.health.value,
            total_layers=terms.layers,
            covered_layers=terms.layers - missing,
            prefix_layers=cover.holes[0].start if cover.holes else terms.layers,
            workers=sum(node.is_here for node in nodes),
            holes=[
                Hole(start=hole.start, stop=hole.stop, claim_mb=claim_for(terms, hole))
                for hole in cover.holes
            ],
            loading=[
                Loading(
                    start=one.layers.start,
                    stop=one.layers.stop,
                    peer_id=one.node.peer_id,
                    progress=round(one.progress, 4),
                    eta_seconds=one.eta_seconds,
                )
                for one in pending(nodes, now)
            ],
            available=error is None,
            unavailable=Unavailable.model_validate(
                {"message": str(error), "retry_after": error.retry_after, **error.details}
            )
            if error
            else None,
            device=found.device,
            dtype=found.weights.value,
            kv_cache_type=found.kv.value,
            context_size=found.context,
            parallel_slots=found.slots,
            mem_per_layer_mb=round(terms.mem_per_layer_mb, 4),
            weights_per_layer_mb=round(terms.weights_per_layer_mb, 4),
            kv_per_layer_mb=round(terms.kv_per_layer_mb, 4),
            global_tensor_mb=round(terms.global_tensor_mb, 4),
            embedding_mb=round(terms.embedding_mb, 4),
            head_mb=round(terms.head_mb, 4),
            usable_vram_pct=terms.usable_vram_pct,
            min_vram_mb=terms.min_vram_mb,
            replica_claim_mb=replica_claim(terms),
        )

    def assignment(self, asked: AssignmentArguments) -> Preview:
        """The range that a claim would get if it registered now.

        Raises UnknownManifest, and ClaimTooSmall with the MB that would do.
        """
        found = self._price(asked)
        terms = found.terms
        held = self._books.roster.reservations((asked.model_id, found.contract, terms.layers))
        placed = place_among(terms, held, asked.vram_mb)
        if isinstance(placed, Refuse):
            raise ClaimTooSmall(str(placed))
        is_replica = placed == terms.whole
        return Preview(
            assignment=assigned(asked.model_id, placed),
            total_layers=terms.layers,
            is_replica=is_replica,
            vram_mb=asked.vram_mb,
            least_claim_mb=least_claim(terms, placed) if is_replica else claim_for(terms, placed),
        )

    def _price(self, asked: PriceArguments) -> Price:
        return price(asked, self._books.manifests, self._books.roster, self._config)

    def manifest(self, asked: OfModel) -> ManifestBody:
        """What a node has to own to serve a model. Raises UnknownManifest."""
        return _manifest(self._books.manifests.of(ModelId(asked.model_id)))

    def manifests(self, _: NoArguments) -> list[ManifestBody]:
        """Every manifest that this mesh knows."""
        return [_manifest(known) for known in self._books.manifests.all()]

    def p2p_id(self, _: NoArguments) -> P2pId:
        """The key to pin, and where it answers."""
        ours = self._host.address
        return P2pId(peer_id=ours.peer_id, multiaddrs=list(ours.full()))

    def chain(self, asked: OfModel) -> ChainBody:
        """The chain that a session would take by what the nodes measured.

        Raises ModelUnavailable that says what is missing.
        """
        model = ModelId(asked.model_id)
        nodes = self._books.roster.nodes(model)
        found = self._price(PriceArguments(model_id=model))
        error = unavailable(model, nodes, found.terms, trio.current_time())
        if error is not None:
            raise error
        chain = choose_chain([node.row for node in nodes], found.terms.layers)
        rows = {node.peer_id: node.row for node in nodes}
        return ChainBody(
            model_id=model,
            entry=chain[0].peer_id,
            chain=[
                StageBody(
                    peer_id=stage.peer_id,
                    layers=span(stage.layers),
                    http_api_url=rows[stage.peer_id].api_url or None,
                    p2p_addrs=list(PeerAddress(stage.peer_id, rows[stage.peer_id].addrs).full()),
                )
                for stage in chain
            ],
        )


def typical_node(books: Books, model: ModelId) -> Node | None:
    """The first node that holds what the manifest of a model says, if there is one: anybody may
    register something else under its name."""
    try:
        contract = books.manifests.of(model).manifest.contract
    except UnknownManifest:
        return None
    return next((node for node in books.roster.nodes(model) if node.row.contract == contract), None)


def span(layers: LayerRange) -> Span:
    """A range as JSON has it."""
    return layers.start, layers.stop


def assigned(model: str, layers: LayerRange) -> AssignmentBody:
    """A range as a node is told it."""
    return AssignmentBody(model_repo=model, layer_ranges=[span(layers)])


def _business(node: Node) -> tuple[int, float, str]:
    return node.row.queue_depth, node.row.step_ms, node.peer_id


def _manifest(known: Known) -> ManifestBody:
    plain = manifest_document(known.manifest)
    files = [FileBody(**file) for file in plain.pop("files")]
    return ManifestBody(**plain, files=files, published=known.is_published)
