"""Ways to a node: the one that the user named, a musivum or a swarm that lists them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from p2p.peers import Host
from tessella.client import ask_peers, ask_swarm
from tessella.core.addresses import MAX_ADDR_CHARS, PeerAddress, parse_peer
from tessella.core.errors import (
    BadAddress,
    BadConfig,
    ModelUnavailable,
    PeerGone,
    UnknownModel,
)
from tessella.core.identity import SEED_BYTES, Identity
from tessella.core.ids import ModelId
from tessella.core.peers import NodeStatus, PeerRow

LOCAL_API = "http://127.0.0.1:8080"
"""Where a node on this machine answers, unless it was told to do so elsewhere."""
NO_WAY = (
    "where is the mesh? --api-url URL, --peer MULTIADDR, --musivum MULTIADDR (or TESSELLA_MUSIVUM) "
    f"or --bootstrap MULTIADDR, or a node at {LOCAL_API}"
)
NO_LIST = "where is the mesh? --musivum MULTIADDR (or TESSELLA_MUSIVUM), or --bootstrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to find a node to ask: the first of these that is given, and `model` may be empty."""

    api_url: str = ""
    """Of an HTTP API, without `/v1`."""
    peer: PeerAddress | None = None
    bootstrap: tuple[PeerAddress, ...] = ()
    musivum: PeerAddress | None = None
    musivum_url: str = ""
    """Where one says who and where it is, if it is not known yet; see `settled`."""
    model: str = ""
    key: Identity | None = None
    """In whose name is asked; None for nobody's. It leads nowhere."""

    @property
    def is_empty(self) -> bool:
        """Whether it leads nowhere."""
        return not (self.api_url or self.meets_peers)

    @property
    def meets_peers(self) -> bool:
        """Whether it goes over libp2p."""
        met = self.peer or self.bootstrap or self.musivum or self.musivum_url
        return not self.api_url and bool(met)

    @property
    def names_one(self) -> bool:
        """Whether it leads to one node that somebody named, and to no other."""
        return bool(self.api_url or self.peer)


def way_of(
    musivum: str | None,
    peer: str | None,
    bootstrap: Sequence[str],
    model: str,
    api_url: str | None = None,
) -> Way:
    """A way from what was typed; an empty text is nothing, and so may the way be.

    Raises BadAddress.
    """
    way = Way(
        api_url=api_base(api_url) if api_url else "",
        peer=parse_peer(peer) if peer else None,
        bootstrap=tuple(map(parse_peer, bootstrap)),
        model=model,
    )
    return by_musivum(way, parse_musivum(musivum)) if musivum else way


def parse_musivum(text: str) -> PeerAddress | str:
    """A musivum's multiaddr, or its URL. Raises BadAddress."""
    is_url = text.strip().startswith(("http://", "https://"))
    return api_base(text) if is_url else parse_peer(text)


def by_musivum(way: Way, musivum: PeerAddress | str | None) -> Way:
    """The way by a musivum of which the address is known, or the URL; None is no musivum."""
    if isinstance(musivum, str):
        return replace(way, musivum_url=musivum)
    return replace(way, musivum=musivum)


async def settled(way: Way) -> Way:
    """The way with the address of its musivum, asked at its URL where only that is known.

    Raises PeerGone where nobody answers there and there is no swarm, BadFrame for whoever is no
    musivum, BadAddress.
    """
    if not way.musivum_url or way.names_one:
        return way
    # Not every way leads over HTTP, which takes long to import.
    from tessella.web.client import open_client
    from tessella.worker.musivum_http import find_musivum

    found = None
    try:
        async with open_client() as client:
            found = await find_musivum(client, way.musivum_url)
    except PeerGone:
        if not way.bootstrap:
            raise
    return replace(way, musivum=found, musivum_url="")


def api_base(text: str) -> str:
    """The URL of an API as its routes are appended to it. Raises BadAddress that names the text.

    Who types a URL means it: it may lead anywhere, also into a private network.
    """
    try:
        parts = urlsplit(text.strip())
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or parts.query or parts.fragment:
        raise BadAddress(f"not the URL of an API, as http://HOST:8080: {text[:MAX_ADDR_CHARS]!r}")
    return text.strip().rstrip("/").removesuffix("/v1").rstrip("/")


@asynccontextmanager
async def client_host(identity: Identity | None = None) -> AsyncIterator[Host]:
    """A host that asks and listens nowhere, under an identity of its own for the occasion unless
    one is given."""
    # libp2p takes a second to import, and neither --help nor a wrong flag needs it.
    from p2p.configuration import CLIENT_LIMITS
    from p2p.host import open_host

    identity = identity or Identity(os.urandom(SEED_BYTES))
    async with open_host(identity, listen=[], limits=CLIENT_LIMITS) as host:
        yield host


async def list_rows(host: Host, way: Way) -> list[PeerRow]:
    """The nodes of the way's model, or of all, in the order of a chain.

    Where there is no swarm, or nobody of it answers, a musivum is asked. Raises PeerGone, and
    BadConfig for a way that leads to neither.
    """
    rows: list[PeerRow] = []
    way = await settled(way)
    if way.bootstrap:
        try:
            rows = await ask_swarm(host, way.bootstrap, way.model)
        except PeerGone:
            if way.musivum is None:
                raise
    if not rows and way.musivum is not None:
        rows = await ask_peers(host, way.musivum, way.model)
    elif not way.bootstrap:
        raise BadConfig(NO_LIST)
    return sorted(rows, key=lambda row: (row.model, row.layers, row.peer_id))


def choose_model(rows: Sequence[PeerRow], wanted: str) -> ModelId:
    """The model that is wanted, or the only one that the mesh serves."""
    gone = NodeStatus.OFFLINE.value
    served = sorted({row.model for row in rows if row.status != gone})
    if not served:
        raise ModelUnavailable(f"no node serves {wanted!r}" if wanted else "no node is known there")
    if wanted:
        if wanted not in served:
            raise UnknownModel(f"no node serves {wanted!r}; the mesh has {', '.join(served)}")
        return ModelId(wanted)
    if len(served) > 1:
        raise BadConfig(f"the mesh serves {', '.join(served)}: choose one with --model")
    return served[0]
