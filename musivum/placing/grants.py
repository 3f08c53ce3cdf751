"""Tickets: who is to serve a request, that musivum pays for it, and how soon it is served.

musivum draws the chain, so that nobody can ask for the nodes of their own and be paid for serving
themselves. Only an entry that asks for a client without a key is the first stage by its own word:
it has the client already.

A conversation may keep its chain, whose nodes hold what was said so far, for an hour from when
that was drawn.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from musivum.config import MusivumConfig
from musivum.nodes.availability import unavailable
from musivum.nodes.books import Books
from musivum.nodes.node import Node
from musivum.placing.given import Given
from tessella.core.draw import Lot, as_measured, draw_chain, spares_of
from tessella.core.errors import (
    BadRequest,
    ModelUnavailable,
    NotAuthorized,
    UnknownManifest,
    UnknownModel,
)
from tessella.core.identity import Identity
from tessella.core.ids import ModelId, PeerId
from tessella.core.messages import AskGrant, Granted, Stage, Ticket, TicketStage
from tessella.core.numeric import NumericClass
from tessella.core.peers import PeerRow
from tessella.core.shapes import DType
from tessella.core.tickets import (
    ANONYMOUS,
    MAX_STAGES,
    REQUEST_ID_BYTES,
    START_SECONDS,
    TICKET_SECONDS,
    seal_ticket,
)
from tessella.core.tiers import Tier, tier_of

# For how long a chain may be asked for again, from when it was drawn. After that another draw
# costs a conversation one prompt, and nobody keeps the chain of a lucky draw for ever.
KEPT_SECONDS = 3600.0
# Chains kept for that, about a kilobyte each: nine grants a second for an hour.
MAX_REMEMBERED = 32_768
# Of those that are too old, or too many, that one more grant forgets at once.
MAX_FORGOTTEN = 16


# What nobody can foresee.
_RANDOM = secrets.SystemRandom()


class Balances(Protocol):
    """Of the ledger, what a tier takes."""

    async def balance(self, account: str) -> int:
        """Micro-credits."""


class Trust(Protocol):
    """Of the audits, what a grant takes."""

    def suspects(self, peer_id: PeerId) -> bool:
        """Whether an audit of late was against a peer, which then is no VIP."""

    def barred(self, peer_id: PeerId) -> str | None:
        """Why a peer is let in nowhere, and serves nobody; None if it may come."""

    def is_benched(self, peer_id: PeerId) -> bool:
        """Whether no ticket may name a peer, since it hides what it was asked."""

    def weight(self, peer_id: PeerId) -> float:
        """How many times as dear as it measures a node is to routing: 1 or more."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A chain that somebody was granted."""

    caller: PeerId
    anonymous: bool
    model: ModelId
    contract: str
    chain: tuple[Stage, ...]
    at: float
    """When it was drawn, by the clock that never goes back."""


class Grants:
    """Draws chains and signs tickets. Holds no resource, and forgets its chains at a restart."""

    def __init__(
        self,
        identity: Identity,
        config: MusivumConfig,
        books: Books,
        balances: Balances,
        trust: Trust,
        rng: Lot = _RANDOM.random,
    ) -> None:
        """`rng` is what chains are drawn with."""
        self._identity = identity
        self._config = config
        self._books = books
        self._balances = balances
        self._trust = trust
        self._rng = rng
        # The one drawn first is the first that is forgotten.
        self._drawn: dict[bytes, _Drawn] = {}
        self._given = Given()

    def __len__(self) -> int:
        """How many chains are remembered."""
        return len(self._drawn)

    async def grant(self, caller: PeerId, asked: AskGrant) -> Granted:
        """A ticket for a request of the caller, whose key was proven.

        Raises UnknownModel for a model of which nothing is known, ModelUnavailable for one that
        cannot be rendered now, BadRequest for anything else that is wrong with what is asked,
        UnknownWorker for an anonymous request of who is no node here, NotAuthorized for one of a
        node that gets no tickets for now, and StoreUnavailable.
        """
        self._check(asked)
        # Nothing is drawn before it: while the ledger is read, nodes come and go.
        tier = await self._tier(caller, asked)
        drawn = self._again(caller, asked) or self._draw(caller, asked)
        request_id = secrets.token_bytes(REQUEST_ID_BYTES)
        payload, signature = seal_ticket(
            self._ticket(request_id, drawn, asked, tier), self._identity
        )
        self._remember(request_id, drawn)
        self._note(drawn.chain)
        entry = self._books.roster.node(drawn.chain[0].peer_id).row
        return Granted(payload, signature, entry.addrs, entry.api_url)

    def _check(self, asked: AskGrant) -> None:
        most = self._config.max_ticket_tokens
        if not 1 <= asked.max_tokens <= most:
            raise BadRequest(f"max_tokens = {asked.max_tokens}: has to be 1 to {most}")
        if len(asked.after) not in (0, REQUEST_ID_BYTES):
            raise BadRequest(f"after: a request id has {REQUEST_ID_BYTES} bytes")

    async def _tier(self, caller: PeerId, asked: AskGrant) -> Tier:
        if asked.anonymous:
            return tier_of(0)
        tier = tier_of(await self._balances.balance(caller))
        return Tier.STANDARD if tier is Tier.VIP and self._trust.suspects(caller) else tier

    def _draw(self, caller: PeerId, asked: AskGrant) -> _Drawn:
        model = asked.model
        try:
            manifest = self._books.manifests.of(model).manifest
        except UnknownManifest:
            raise UnknownModel(f"nobody serves a model {model[:200]!r}") from None
        nodes = self._fitting(model, manifest.contract)
        first = self._first(caller, model) if asked.anonymous else None
        rows = [self._priced(row) for row in as_measured(map(self._loaded, nodes))]
        try:
            chain = draw_chain(rows, manifest.shape.layers, first, self._rng)
        except ModelUnavailable as exc:
            raise self._told(model, nodes) or exc from None
        if len(chain) > MAX_STAGES:
            raise ModelUnavailable(f"{model}: {len(chain)} stages, over {MAX_STAGES}")
        at = self._books.clocks.now()
        return _Drawn(caller, asked.anonymous, model, manifest.contract, chain, at)

    def _fitting(self, model: ModelId, contract: str) -> list[Node]:
        """The nodes of a model that hold what its manifest says: others have its name alone."""
        nodes = self._books.roster.of_model(model)
        return [
            node
            for node in nodes
            if node.row.contract == contract
            # Whoever does not say what its weights are could be audited by nobody.
            and node.wish.weights
            and self._may_serve(node.peer_id)
        ]

    def _may_serve(self, peer_id: PeerId) -> bool:
        return self._trust.barred(peer_id) is None and not self._trust.is_benched(peer_id)

    def _priced(self, row: PeerRow) -> PeerRow:
        """A row as dear as it is trusted to be: who is suspected is taken where others are slow."""
        return replace(row, step_ms=self._trust.weight(row.peer_id) * row.step_ms)

    def _loaded(self, node: Node) -> PeerRow:
        """A row as busy as its node will say that it is."""
        return replace(node.row, queue_depth=node.row.queue_depth + self._given.to(node))

    def _note(self, chain: Sequence[Stage]) -> None:
        roster = self._books.roster
        if len(self._given) > 2 * len(roster) + len(chain):
            self._given.forget(node.peer_id for node in roster.nodes())
        self._given.note(roster.node(stage.peer_id) for stage in chain)

    def _first(self, caller: PeerId, model: ModelId) -> PeerId:
        node = self._books.roster.node(caller)
        row = node.row
        if self._trust.is_benched(caller):
            raise NotAuthorized(
                f"{caller} gets no tickets for a day: as an entry it did not show what it was "
                "asked to most of its last auditors"
            )
        if not node.wish.weights:
            raise BadRequest(
                f"{caller} does not say the format of its weights: nobody could audit what it is "
                "paid for"
            )
        if row.model != model or row.layers.start != 0 or not row.serves:
            raise BadRequest(
                f"an anonymous request begins at who asks: {caller} does not serve layer 0 of "
                f"{model[:200]}"
            )
        return caller

    def _told(self, model: ModelId, nodes: Sequence[Node]) -> ModelUnavailable | None:
        """The same with what would help."""
        if not nodes:
            return None
        return unavailable(model, nodes, nodes[0].terms, self._books.clocks.now())

    def _again(self, caller: PeerId, asked: AskGrant) -> _Drawn | None:
        """The chain of the grant before, if it was the same caller's for the same, not long ago,
        and all of it serves as it did."""
        known = self._drawn.get(asked.after)
        if known is None or self._books.clocks.now() - known.at >= KEPT_SECONDS:
            return None
        wanted = (caller, asked.anonymous, asked.model)
        if (known.caller, known.anonymous, known.model) != wanted:
            return None
        return known if all(self._serves(stage, known) for stage in known.chain) else None

    def _serves(self, stage: Stage, known: _Drawn) -> bool:
        node = self._books.roster.find(stage.peer_id)
        if node is None or not node.row.serves or not node.row.layers.holds(stage.layers):
            return False
        is_same = (node.row.model, node.row.contract) == (known.model, known.contract)
        return is_same and bool(node.wish.weights) and self._may_serve(node.peer_id)

    def _remember(self, request_id: bytes, drawn: _Drawn) -> None:
        self._drawn[request_id] = drawn
        now = self._books.clocks.now()
        for oldest, known in list(islice(self._drawn.items(), MAX_FORGOTTEN)):
            if len(self._drawn) <= MAX_REMEMBERED and now - known.at < KEPT_SECONDS:
                return
            del self._drawn[oldest]

    def _ticket(self, request_id: bytes, drawn: _Drawn, asked: AskGrant, tier: Tier) -> Ticket:
        nodes = {node.peer_id: node for node in self._fitting(drawn.model, drawn.contract)}
        spares = spares_of([node.row for node in nodes.values()], drawn.chain)
        wire = nodes[drawn.chain[0].peer_id].row.dtype
        now = self._books.clocks.wall()

        def priced(stages: Sequence[Stage]) -> tuple[TicketStage, ...]:
            return tuple(
                TicketStage(stage.peer_id, stage.layers, _numeric(nodes[stage.peer_id], wire))
                for stage in stages
            )

        return Ticket(
            issuer=self._identity.peer_id,
            request_id=request_id,
            model=drawn.model,
            contract=drawn.contract,
            requester=ANONYMOUS if asked.anonymous else drawn.caller,
            tier=tier.value,
            chain=priced(drawn.chain),
            spares=priced(spares),
            max_tokens=asked.max_tokens,
            issued_at=now,
            start_by=now + START_SECONDS,
            expires_at=now + TICKET_SECONDS,
        )


def _numeric(node: Node, wire: str) -> str:
    """How a node says that it computes; empty if it did not say."""
    if not node.wish.weights:
        return ""
    return str(NumericClass(DType(node.row.dtype), node.wish.weights, DType(wire)))
