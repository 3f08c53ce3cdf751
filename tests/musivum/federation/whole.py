"""Musivums in memory that list each other: whole ones, behind their HTTP apps."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from musivum.config import MusivumConfig
from musivum.federation.partners import Partner
from musivum.federation.pull import Follower
from musivum.ledger import Ledger
from musivum.testing import clock
from musivum.testing_http import Door, answering
from p2p.testing import MemoryNetwork
from tessella.core.call_rules import NONCE_BYTES
from tessella.core.identity import Identity
from tessella.core.ids import PeerId
from tessella.core.proofs import SignedProof
from tessella.core.settlement import Outcome
from tessella.core.signed_request import Request, query_of, sign_request
from tests.musivum.federation.light import SELDOM, A, B, url_of

TOKEN = "t" * 64
AS_ADMIN = {"Authorization": f"Bearer {TOKEN}"}
SNAPSHOT = "/ledger/snapshot"


@dataclass
class Apps(httpx.AsyncBaseTransport):
    """Between musivums: finds the one that is meant."""

    by_host: dict[str, httpx.AsyncBaseTransport] = field(default_factory=dict)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of whoever is meant, if it is there."""
        app = self.by_host.get(request.url.host)
        if app is None:
            raise httpx.ConnectError("nobody is there", request=request)
        return await app.handle_async_request(request)


@dataclass(frozen=True)
class Whole:
    """One musivum."""

    identity: Identity
    door: Door

    @property
    def ledger(self) -> Ledger:
        """Its ledger."""
        return self.door.opened.rooms.ledger

    async def settle(self, *proofs: SignedProof) -> list[Outcome]:
        """What becomes of these, under a head that has them already."""
        outcomes = await self.ledger.settle(proofs)
        await self.ledger.head(await self.ledger.size())
        return outcomes

    def follower(self, other: Identity) -> Follower:
        """How it follows another."""
        return self.door.opened.rooms.federation.followers[other.peer_id]

    async def ask(self, path: str, **headers: str) -> httpx.Response:
        """An answer of its own."""
        return await self.door.client.get(path, headers=headers)

    async def partners(self) -> list[dict[str, Any]]:
        """What it says to anybody of those that it lists."""
        answer = await self.ask("/federation/status")
        found: list[dict[str, Any]] = answer.raise_for_status().json()["partners"]
        return found


@asynccontextmanager
async def musivum(
    identity: Identity, partners: tuple[Identity, ...], apps: Apps, **changes: Any
) -> AsyncIterator[Whole]:
    """A musivum that lists these."""
    listed = tuple(Partner(each.peer_id, url_of(each)) for each in partners)
    config = MusivumConfig(federation=listed, federation_pull_seconds=SELDOM, **changes)
    async with answering(
        MemoryNetwork(), identity.seed, config, token=TOKEN, to_nodes=apps
    ) as door:
        host = httpx.URL(url_of(identity)).host
        apps.by_host[host] = door.client._transport
        yield Whole(identity, door)
        del apps.by_host[host]


@asynccontextmanager
async def two(**changes: Any) -> AsyncIterator[tuple[Whole, Whole]]:
    """A and B, which list each other."""
    apps = Apps()
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(musivum(A, (B,), apps, **changes))
        b = await stack.enter_async_context(musivum(B, (A,), apps, **changes))
        yield a, b


def signed(by: Identity, audience: PeerId, **query: int) -> dict[str, str]:
    """The headers of a call for a page."""
    pairs = query_of((name, str(value)) for name, value in query.items())
    asked = Request("GET", SNAPSHOT, pairs, b"", audience)
    return sign_request(asked, by, clock(), secrets.token_bytes(NONCE_BYTES))
