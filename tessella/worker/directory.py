"""Who serves what, and where it is: the node's own copy of musivum's list, and its connections.

The copy outlives musivum: while it is away, sessions go on over the nodes that were known.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import trio

from p2p.peers import Host
from p2p.pool import StreamPool
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress
from tessella.core.errors import (
    ModelUnavailable,
    PeerSilent,
    PeerUnreachable,
    Refused,
    TessellaError,
)
from tessella.core.ids import ModelId, PeerId
from tessella.core.messages import HOP
from tessella.core.peers import PeerRow
from tessella.worker.http_hops.asks import FORWARD_PATH
from tessella.worker.http_hops.dialling import HttpHops, Route

logger = logging.getLogger(__name__)

# A chain is built from rows at most this old; a node that left shows as a failed connect anyway.
FRESH_SECONDS = 2.0
# Where something is known, a request waits this long for the mesh, and the next ones for a while
# not at all. Where nothing is, there is nothing to do but wait; less than a client does.
PATIENCE_SECONDS = 1.0
# A search of the swarm meets silent peers, and has to find out that they are.
SWARM_PATIENCE_SECONDS = 6.0
AWAY_SECONDS = 10.0
FIRST_SECONDS = 10.0
CONNECT_TIMEOUT = 5.0
# Where HTTP leads there as well: three round trips of a slow link, and no more.
CONNECT_BESIDE_HTTP = 1.5
# A peer that only HTTP led to is not dialled for so long, which would take seconds each time.
HTTP_SECONDS = 60.0
MAX_HTTP_PEERS = 1024

AskRows = Callable[[ModelId], Awaitable[list[PeerRow]]]


class Directory:
    """Rows of one model, fetched when they are needed and too old."""

    def __init__(
        self,
        host: Host,
        pool: StreamPool,
        model: ModelId,
        ask: AskRows,
        patience: float = PATIENCE_SECONDS,
        http: HttpHops | None = None,
    ) -> None:
        """`patience` is how many seconds a request waits for `ask` where something is known.

        With `http`, peers that cannot be dialled are reached at their URLs.
        """
        self._host = host
        self._pool = pool
        self._model = model
        self._ask = ask
        self._patience = patience
        self._http = http
        # Peers that only HTTP led to, and until when that is believed.
        self._http_until: dict[PeerId, float] = {}
        self._rows: dict[PeerId, PeerRow] = {}
        self._ours: Counter[PeerId] = Counter()
        self._ask_at = float("-inf")
        self._asking = trio.Lock()

    async def rows(self) -> list[PeerRow]:
        """Who serves the model, as the mesh said within the last seconds, or said last.

        Raises the error of the asking only if nothing was ever heard.
        """
        async with self._asking:
            if trio.current_time() >= self._ask_at:
                await self._refresh()
        return list(self._rows.values())

    def loaded(self, rows: Sequence[PeerRow]) -> list[PeerRow]:
        """Rows as busy as their nodes are: our own sessions are load that we know of before the
        mesh does.

        It holds until somebody waits: others choose meanwhile, and their sessions count as well.
        """
        return [self._with_ours(row) for row in rows]

    def _with_ours(self, row: PeerRow) -> PeerRow:
        ours = self._ours[row.peer_id]
        return row if ours <= row.queue_depth else replace(row, queue_depth=ours)

    @contextmanager
    def using(self, peers: Sequence[PeerId]) -> Iterator[None]:
        """Count a session of ours through these nodes, until it is over."""
        self._ours.update(peers)
        try:
            yield
        finally:
            self._ours -= Counter(peers)

    async def _refresh(self) -> None:
        try:
            rows = await self._answer(self._patience if self._rows else FIRST_SECONDS)
        except TessellaError:
            if not self._rows:
                raise
            self._ask_at = trio.current_time() + AWAY_SECONDS
        else:
            self._rows = {row.peer_id: row for row in rows}
            self._ask_at = trio.current_time() + FRESH_SECONDS

    async def _answer(self, patience: float) -> list[PeerRow]:
        try:
            with trio.fail_after(patience):
                return await self._ask(self._model)
        except trio.TooSlowError:
            raise PeerSilent(f"the mesh did not answer within {patience:g} s") from None

    def forget_age(self) -> None:
        """Ask again at the next need: what is known was seen to be wrong."""
        self._ask_at = float("-inf")

    async def stream_to(self, peer: PeerId, protocol: str) -> FrameStream:
        """A stream to a node of this model, connected to first if need be.

        Hop streams go over HTTP where the node has a URL and cannot be dialled. Raises
        ModelUnavailable if musivum does not list it, or it serves no stage yet, PeerGone if it
        cannot be reached, and RemoteFailure where it is full.
        """
        if peer in self._host.connected():
            return await self._take(peer, protocol)
        # Dials are rare and addresses change: a node that was started again has others.
        row = await self._row(peer)
        over_http = protocol == HOP and row.api_url
        route = Route(row.api_url, FORWARD_PATH) if over_http else None
        try:
            return await self.stream_at(PeerAddress(peer, row.addrs), protocol, route)
        except PeerUnreachable:
            self.forget_age()
            raise

    async def stream_at(
        self, peer: PeerAddress, protocol: str, route: Route | None = None
    ) -> FrameStream:
        """The same to a peer whose address is given, and perhaps its route over HTTP."""
        if self._http is None or route is None:
            await self._host.connect(peer, timeout=CONNECT_TIMEOUT)
            return await self._take(peer.peer_id, protocol)
        if not self._only_http(peer.peer_id):
            try:
                await self._host.connect(peer, timeout=CONNECT_BESIDE_HTTP)
                return await self._take(peer.peer_id, protocol)
            except PeerUnreachable as exc:
                logger.info("over HTTP, since %s cannot be dialled: %s", peer.peer_id, exc)
        self._http_until.pop(peer.peer_id, None)
        stream = await self._http.open(peer.peer_id, route, protocol)
        self._http_until[peer.peer_id] = trio.current_time() + HTTP_SECONDS
        if len(self._http_until) > MAX_HTTP_PEERS:
            del self._http_until[next(iter(self._http_until))]
        return stream

    def _only_http(self, peer: PeerId) -> bool:
        if peer in self._host.connected():
            return False
        return trio.current_time() < self._http_until.get(peer, float("-inf"))

    async def _take(self, peer: PeerId, protocol: str) -> FrameStream:
        try:
            return await self._pool.take(peer, protocol, timeout=CONNECT_TIMEOUT)
        except Refused as exc:
            # It is there and does not speak of stages: a node that was started again, and loads.
            raise ModelUnavailable(str(exc)) from exc

    def give(self, stream: FrameStream) -> None:
        """Keep a stream that ended its conversation cleanly; one over HTTP is finished."""
        if self._http is None or not self._http.end(stream):
            self._pool.give(stream)

    async def _row(self, peer: PeerId) -> PeerRow:
        await self.rows()
        if peer not in self._rows:
            self.forget_age()
            await self.rows()
        if peer not in self._rows:
            raise ModelUnavailable(f"{peer} is not listed for {self._model}")
        return self._rows[peer]
