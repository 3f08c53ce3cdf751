"""Musivums without doors: ledgers that pull pages of each other, for tests that need many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx

from musivum.bodies.fields import NoArguments
from musivum.bodies.ledger import SnapshotArguments, SnapshotBody
from musivum.federation.asking import SNAPSHOT, Caller
from musivum.federation.partners import Partner
from musivum.federation.pull import Books, Follower
from musivum.federation.room import Federation, issuers
from musivum.ledger import HEAD_SECONDS, Draft, Ledger, Movement
from musivum.pages.ledger import LedgerPages
from musivum.store.errands import Transacts
from musivum.store.memory import MemoryStore
from tessella.core.errors import UnknownEntry
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.ledger import MINT, SLASHED, Entry, Line, Walk, open_entry, open_head
from tessella.core.proofs import SignedProof
from tessella.core.settlement import Caps
from tessella.core.signed_request import NONCE, PEER
from tessella.core.tickets import ANONYMOUS
from tests.core.work import NOW, Work, identity

A, B = Identity(b"A" * 32), Identity(b"B" * 32)
WORKER, OTHER = identity(1), identity(2)
# Whoever wants a page asks for it.
SELDOM = 3600.0

Change = Callable[[SnapshotBody], Awaitable[SnapshotBody]]


def url_of(peer: Identity) -> str:
    """Where a musivum of these would answer."""
    return f"http://{peer.peer_id.lower()}.test"


@dataclass
class Wire(httpx.AsyncBaseTransport):
    """Between musivums: finds the one that is meant."""

    sides: dict[str, Light] = field(default_factory=dict)
    asked: int = 0
    change: Change | None = None
    """What a partner says in place of what it would."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of whoever is meant, if it is there."""
        self.asked += 1
        side = self.sides.get(request.url.host)
        if side is None:
            raise httpx.ConnectError("nobody is there", request=request)
        assert request.url.path == SNAPSHOT
        page = await side.page(SnapshotArguments(**dict(request.url.params)))  # type: ignore[arg-type]
        if self.change is not None:
            page = await self.change(page)
        body = page.model_dump_json().encode()
        caller, nonce = PeerId(request.headers[PEER]), bytes.fromhex(request.headers[NONCE])
        headers = side.federation.signed(caller, nonce, body)
        return httpx.Response(200, headers=headers, content=body)


@dataclass
class Light:
    """One musivum. A second one over its store is a restart."""

    identity: Identity
    partners: Sequence[Identity]
    wire: Wire
    store: Transacts = field(default_factory=MemoryStore)
    now: float = NOW
    seconds: float = SELDOM
    caps: Caps = field(default_factory=Caps)

    def __post_init__(self) -> None:
        listed = [Partner(each.peer_id, url_of(each)) for each in self.partners]
        paid_here = issuers(self.identity, listed)
        self.ledger = Ledger(self.identity, self.store, self.clock, self.caps, lambda: paid_here)
        self.federation = Federation(
            Caller(self.identity, httpx.AsyncClient(transport=self.wire)),
            Books(self.ledger, self.store),
            self.clock,
            listed,
            self.seconds,
        )
        self.wire.sides[httpx.URL(url_of(self.identity)).host] = self

    def clock(self) -> float:
        """Seconds since 1970."""
        return self.now

    def leave(self) -> None:
        """Answer nobody any more."""
        del self.wire.sides[httpx.URL(url_of(self.identity)).host]

    async def page(self, asked: SnapshotArguments) -> SnapshotBody:
        """What the route of a page answers."""
        pages = LedgerPages(self.ledger)
        try:
            return await pages.snapshot(asked)
        except UnknownEntry:
            head = await pages.head(NoArguments())
            return SnapshotBody(since=asked.since, entries=[], next=asked.since, head=head)

    def follower(self, other: Light | Identity) -> Follower:
        """How it follows another."""
        peer = other if isinstance(other, Identity) else other.identity
        return self.federation.followers[peer.peer_id]

    async def sync(self, other: Light | Identity) -> int:
        """Pull all that there is; returns how many pages."""
        if isinstance(other, Light):
            other.now += HEAD_SECONDS
        pages = 1
        while await self.follower(other).pull():
            pages += 1
        return pages

    async def balances(self) -> dict[str, int]:
        """All accounts that have anything."""
        found = {each.account: each.balance for each in await self.ledger.accounts()}
        return {account: micro for account, micro in found.items() if micro}

    async def entries(self, origin: Identity | None = None) -> list[Entry]:
        """A ledger as it is here; its own by default."""
        peer_id = (origin or self.identity).peer_id
        found: list[bytes] = []
        while page := await self.ledger.page(peer_id, len(found)):
            found += page
        return [open_entry(each) for each in found]

    async def verify(self) -> None:
        """That its chain holds under its head, and its balances are what all entries say."""
        walk = Walk(self.identity.peer_id)
        while page := await self.ledger.page(since=walk.size):
            for payload in page:
                walk.feed(payload)
        head = await self.ledger.head(walk.size)
        walk.check_head(open_head(head.payload, head.signature, self.identity.peer_id))
        await self.ledger.check(whole=True)
        assert sum((await self.balances()).values()) == 0


def pair() -> tuple[Light, Light]:
    """Two that list each other."""
    wire = Wire()
    return Light(A, [B], wire), Light(B, [A], wire)


def a_proof(
    number: int,
    issuer: Identity = A,
    worker: Identity = WORKER,
    requester: str = ANONYMOUS,
    at: float = NOW,
) -> SignedProof:
    """A proof that needs nobody to bear it out: each number is another request."""
    request_id = number.to_bytes(16, "big")
    work = Work([worker], requester, issuer=issuer, request_id=request_id, issued_at=at)
    return work.proof(0)


def standing(entries: Sequence[Entry]) -> dict[tuple[bytes, str], int]:
    """How many payments of each proof stand in these ledgers together."""
    found: dict[tuple[bytes, str], int] = {}
    for entry in entries:
        if entry.kind in ("payment", "reversal"):
            key = entry.request_id, entry.worker
            found[key] = found.get(key, 0) + (1 if entry.kind == "payment" else -1)
    return found


async def fill(a: Light, count: int) -> None:
    """Payments, fines and payments taken back, in turn."""
    worker = WORKER.peer_id

    def work(draft: Draft) -> None:
        for number in range(count):
            kind = ("payment", "slash", "payment", "reversal")[number % 4]
            sign = 1 if kind == "payment" else -1
            other = SLASHED if kind == "slash" else MINT
            amount = sign * (3 if kind == "payment" else 1)
            of_proof = kind != "slash"
            draft.append(
                Movement(
                    kind,
                    [Line(worker, amount), Line(other, -amount)],
                    issuer=A.peer_id if of_proof else "",
                    request_id=(number - number % 2).to_bytes(16, "big") if of_proof else b"",
                    worker=worker if of_proof else "",
                )
            )

    await a.ledger.write(work)
