"""Where the wizard asks what a mesh serves: a musivum by its URL or its multiaddr, or the swarm.

    door = musivum_door("https://musivum.example")
    offers = door.offers("cuda")
    preview = door.preview("some-model", 2048, "cuda")

The calls block, for as long as `tessella.web.client` and `tessella.client` let one call take.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Protocol, TypeVar

import httpx

from tessella.cli.discovery import client_host
from tessella.cli.signals import Interrupts, run_command
from tessella.cli.wizard.bodies import PreviewBody
from tessella.cli.wizard.offers import Offer, offer_of_health, offers_of_rows
from tessella.cli.wizard.questions import (
    Question,
    ask_health,
    ask_offers,
    ask_preview,
    http_question,
    libp2p_question,
)
from tessella.client import ask_swarm
from tessella.core.addresses import PeerAddress
from tessella.core.errors import UnknownManifest
from tessella.ending import root_cause
from tessella.web.client import open_client

T = TypeVar("T")
Way = Callable[[], AbstractAsyncContextManager[Question]]


class Door(Protocol):
    """Somebody who knows a mesh. What does not come raises TessellaError."""

    def offers(self, device: str) -> list[Offer]:
        """The models that are served or loaded, with the memory that a device would need."""

    def offer(self, model: str, device: str) -> Offer:
        """One model, which may be one that nobody serves."""

    def preview(self, model: str, claim_mb: int, device: str) -> PreviewBody | None:
        """What a claim would get; None where nobody can say. Raises ClaimTooSmall for a refusal."""


class MusivumDoor:
    """A musivum, asked over either of its doors."""

    def __init__(self, way: Way) -> None:
        self._way = way

    def offers(self, device: str) -> list[Offer]:
        """As `Door.offers`."""
        return self._run(partial(ask_offers, device=device))

    def offer(self, model: str, device: str) -> Offer:
        """As `Door.offer`."""
        return offer_of_health(model, self._run(partial(ask_health, model=model, device=device)))

    def preview(self, model: str, claim_mb: int, device: str) -> PreviewBody | None:
        """As `Door.preview`; None for a model of which musivum knows no manifest."""
        asked = partial(ask_preview, model=model, claim_mb=claim_mb, device=device)
        try:
            return self._run(asked)
        except UnknownManifest:
            return None

    def _run(self, asked: Callable[[Question], Awaitable[T]]) -> T:
        async def main() -> T:
            async with self._way() as question:
                return await asked(question)

        return run_async(main)


class SwarmDoor:
    """The swarm, where nobody assigns layers: its records say what nodes hold."""

    def __init__(self, bootstrap: Sequence[PeerAddress]) -> None:
        self._bootstrap = bootstrap

    def offers(self, device: str) -> list[Offer]:
        """As `Door.offers`; nobody says what the layers cost."""

        async def main() -> list[Offer]:
            async with client_host() as host:
                return offers_of_rows(await ask_swarm(host, self._bootstrap))

        return run_async(main) if self._bootstrap else []

    def offer(self, model: str, device: str) -> Offer:
        """As `Door.offer`."""
        return next((one for one in self.offers(device) if one.model == model), Offer(model=model))

    def preview(self, model: str, claim_mb: int, device: str) -> PreviewBody | None:
        """None."""
        return None


def musivum_door(at: str | PeerAddress) -> MusivumDoor:
    """The musivum at a URL, or at a multiaddr."""
    return MusivumDoor(partial(http_way, at) if isinstance(at, str) else partial(libp2p_way, at))


@asynccontextmanager
async def http_way(
    url: str, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[Question]:
    """Questions over HTTP. `transport` is for tests."""
    async with open_client(transport) as client:
        yield http_question(client, url)


@asynccontextmanager
async def libp2p_way(musivum: PeerAddress) -> AsyncIterator[Question]:
    """Questions over libp2p, by a host that is made for them."""
    async with client_host() as host, libp2p_question(host, musivum) as question:
        yield question


def run_async(main: Callable[[], Awaitable[T]]) -> T:
    """Run to the end, out of all groups that nurseries put around an error.

    A signal ends it as it ends any command (EndedBySignal).
    """
    found: list[T] = []

    async def run(_: Interrupts) -> None:
        found.append(await main())

    try:
        run_command(run)
    except BaseExceptionGroup as group:
        raise root_cause(group) from None
    return found[0]
