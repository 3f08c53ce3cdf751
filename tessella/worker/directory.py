"""Who serves what, and where it is: the node's own copy of musivum's list, and its connections.

The copy outlives musivum: while it is away, sessions go on over the nodes that were known.
"""

from __future__ import annotations

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
from tessella.core.peers import PeerRow

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
    ) -> None:
        """`patience` is how many seconds a request waits for `ask` where something is known."""
        self._host = host
        self._pool = pool
        self._model = model
        self._ask = ask
        self._patience = patience
        self._rows: dict[PeerId, PeerRow] = {}
        self._ours: Counter[PeerId] = Counter()
        self._ask_at = float("-inf")
        self._asking = trio.Lock()

    async def rows(self) -> list[PeerRow]:
        """Who serves the model, as the mesh said within the last seconds, or said last.

        Our own sessions are load that we know of before the mesh does. Raises the error of the
        asking only if nothing was ever heard.
        """
        async with self._asking:
            if trio.current_time() >= self._ask_at:
                await self._refresh()
        return [self._with_ours(row) for row in self._rows.values()]

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
        """A pooled stream to a node of this model, connected to first if need be.

        Raises ModelUnavailable if musivum does not list it, or it serves no stage yet, and PeerGone
        if it cannot be reached.
        """
        if peer not in self._host.connected():
            await self._connect(peer)
        return await self._take(peer, protocol)

    async def stream_at(self, peer: PeerAddress, protocol: str) -> FrameStream:
        """The same to a peer whose address is given."""
        await self._host.connect(peer, timeout=CONNECT_TIMEOUT)
        return await self._take(peer.peer_id, protocol)

    async def _take(self, peer: PeerId, protocol: str) -> FrameStream:
        try:
            return await self._pool.take(peer, protocol, timeout=CONNECT_TIMEOUT)
        except Refused as exc:
            # It is there and does not speak of stages: a node that was started again, and loads.
            raise ModelUnavailable(str(exc)) from exc

    def give(self, stream: FrameStream) -> None:
        """Keep a stream that ended its conversation cleanly."""
        self._pool.give(stream)

    async def _connect(self, peer: PeerId) -> None:
        # Dials are rare and addresses change: a node that was started again has others.
        await self.rows()
        if peer not in self._rows:
            self.forget_age()
            await self.rows()
        if peer not in self._rows:
            raise ModelUnavailable(f"{peer} is not listed for {self._model}")
        try:
            address = PeerAddress(peer, self._rows[peer].addrs)
            await self._host.connect(address, timeout=CONNECT_TIMEOUT)
        except PeerUnreachable:
            self.forget_age()
            raise
