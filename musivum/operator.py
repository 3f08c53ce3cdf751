"""What only the operator may have done, and the token that proves who that is."""

from __future__ import annotations

import hmac
from collections import deque
from dataclasses import asdict

from musivum.audit_room import AuditRoom, Penalty
from musivum.bodies.fields import NoArguments
from musivum.bodies.ledger import (
    AppealBody,
    CreditsArguments,
    CreditsBody,
    EntryBody,
    LatestArguments,
    PenaltyBody,
    SlashBody,
    SnapshotArguments,
    SnapshotBody,
)
from musivum.bodies.operator import (
    MoveBody,
    PublishBody,
    Published,
    Rebalanced,
    ReputationArguments,
    ReputationBody,
)
from musivum.ledger import Credits, Ledger
from musivum.nodes.books import Books
from musivum.nodes.reputation import score
from musivum.pages.ledger import LedgerPages, credits_body
from musivum.pages.mesh import span
from musivum.placing.moves import Moves
from musivum.store import PutManifest, SavedManifest, SavedReputation
from tessella.core.errors import (
    AdminOnly,
    BadManifest,
    BadRequest,
    BadSignature,
    TooManyRequests,
)
from tessella.core.identity import public_key_of
from tessella.core.ids import PeerId
from tessella.core.manifest import MAX_MANIFEST_BYTES, encode_manifest, read_manifest
from tessella.core.tiers import MICRO

# 256 bits cannot be guessed; the limit keeps logs short and an operator with an old token sane.
MAX_FAILURES = 5
FAILURE_WINDOW = 60.0
MAX_REMEMBERED = 4096


class AdminGate:
    """Compares tokens in constant time, and stops whoever tries many.

    The right token always passes: 256 bits are not found by trying, and behind a proxy strangers
    share the operator's address.
    """

    def __init__(self, token: str) -> None:
        """An empty token lets nobody in."""
        self._token = token.encode()
        self._failures: dict[str, deque[float]] = {}

    def check(self, token: str, source: str, now: float) -> None:
        """Raises AdminOnly for another token, TooManyRequests for a source that failed often.

        `source` is an address or a peer id; `now` is seconds of any clock.
        """
        if self._token and hmac.compare_digest(token.encode(), self._token):
            return
        failures = self._failures.get(source, deque(maxlen=MAX_FAILURES))
        if len(failures) == MAX_FAILURES and failures[0] > now - FAILURE_WINDOW:
            raise TooManyRequests(f"{MAX_FAILURES} wrong tokens in {FAILURE_WINDOW:g} s")
        self._failures.pop(source, None)
        while len(self._failures) >= MAX_REMEMBERED:
            del self._failures[next(iter(self._failures))]
        failures.append(now)
        self._failures[source] = failures
        raise AdminOnly("this is the operator's: it takes the admin token")


class Operator:
    """The orders of an operator."""

    def __init__(self, books: Books, moves: Moves, ledger: Ledger, audits: AuditRoom) -> None:
        self._books = books
        self._moves = moves
        self._ledger = ledger
        self._pages = LedgerPages(ledger)
        self._audits = audits

    async def rebalance(self, _: NoArguments) -> Rebalanced:
        """Begin to move nodes where that is worth it. Raises StoreUnavailable."""
        begun = await self._moves.rebalance()
        return Rebalanced(
            moves=[
                MoveBody(
                    peer_id=move.peer_id, old=span(move.old), new=span(move.new), reason=move.reason
                )
                for move in begun
            ]
        )

    async def publish(self, asked: PublishBody) -> Published:
        """Bind a model to a manifest. Raises BadManifest, TooManyRequests, StoreUnavailable."""
        manifest = read_manifest(asked.model_dump(exclude_none=True))
        self._books.manifests.check_room(manifest.model)
        document = encode_manifest(manifest)
        if len(document) > MAX_MANIFEST_BYTES:
            # It may have come in fewer bytes than it is kept in; what is kept has to be readable.
            raise BadManifest(f"a manifest of {len(document)} bytes, over {MAX_MANIFEST_BYTES}")
        now = self._books.clocks.wall()
        saved = SavedManifest(model=manifest.model, document=document, published_at=now)
        await self._books.store.save(PutManifest(saved))
        self._books.manifests.publish(manifest)
        return Published(model_id=manifest.model, contract=manifest.contract)

    async def reputation(self, asked: ReputationArguments) -> list[ReputationBody]:
        """The counters of one peer, or of all. Raises BadRequest for neither."""
        known = self._books.reputations
        if asked.all:
            return [self._reputation(each) for each in known.all()]
        if asked.peer_id is None:
            raise BadRequest("query: peer_id=PEER, or all=true")
        return [self._reputation(known.of(PeerId(asked.peer_id)))]

    def _reputation(self, known: SavedReputation) -> ReputationBody:
        audits = self._audits.standings.counts(known.peer_id)
        return ReputationBody(
            score=round(score(known, audits), 4),
            audits_passed=round(audits.passed, 2),
            audits_rejected=round(audits.rejected, 2),
            slashes=round(audits.slashes, 2),
            **asdict(known),
        )

    async def entries(self, asked: LatestArguments) -> list[EntryBody]:
        """The latest entries of the ledger, the last one first. Raises StoreUnavailable."""
        return await self._pages.latest(asked)

    async def snapshot(self, asked: SnapshotArguments) -> SnapshotBody:
        """A page of the ledger from `since` on, and a signed head that has all of it.

        Raises UnknownEntry for a place beyond its end, and StoreUnavailable.
        """
        return await self._pages.snapshot(asked)

    async def credits(self, asked: CreditsArguments) -> list[CreditsBody]:
        """The account of one peer, or those that own most, the richest first.

        Raises BadRequest for neither, and StoreUnavailable.
        """
        if asked.all:
            return [self._credits(each) for each in await self._ledger.accounts()]
        if asked.peer_id is None:
            raise BadRequest("query: peer_id=PEER, or all=true")
        return [self._credits(await self._ledger.credits(asked.peer_id))]

    def _credits(self, found: Credits) -> CreditsBody:
        return credits_body(found, self._audits.held_against(PeerId(found.account)))

    async def slash(self, asked: SlashBody) -> PenaltyBody:
        """Take credits from an identity that was caught, at most what it has, and let it in nowhere
        for some days. Raises BadRequest for no peer id, Refused, and StoreUnavailable."""
        peer_id = _peer(asked.peer_id)
        micro = None if asked.credits is None else round(asked.credits * MICRO)
        return _penalty(peer_id, await self._audits.slash(peer_id, asked.reason, micro, asked.days))

    async def appeal(self, asked: AppealBody) -> PenaltyBody:
        """Give back all that was taken from an identity, and let it in again.

        Raises BadRequest for no peer id, Refused where nothing was done to it, StoreUnavailable.
        """
        peer_id = _peer(asked.peer_id)
        return _penalty(peer_id, await self._audits.appeal(peer_id, asked.reason))


def _peer(text: str) -> PeerId:
    try:
        public_key_of(text)
    except BadSignature as exc:
        raise BadRequest(f"peer_id: {exc}") from None
    return PeerId(text)


def _penalty(peer_id: PeerId, done: Penalty) -> PenaltyBody:
    return PenaltyBody(
        peer_id=peer_id,
        micro=done.micro,
        balance=done.balance,
        until=done.until,
        sequence=done.sequence,
    )
