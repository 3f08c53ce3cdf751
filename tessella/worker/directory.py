"""Who serves what, and where it is: the node's own copy of musivum's list, and its connections.

The copy outlives musivum: while it is away, sessions go on over the nodes that were known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from p2p.peers import Host
from p2p.pool import StreamPool
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress
from tessella.core.errors import PeerUnreachable, TessellaError
from tessella.core.ids import ModelId, PeerId
from tessella.core.peers import PeerRow

# A chain is built from rows at most this old; a node that left shows as a failed connect anyway.
FRESH_SECONDS = 2.0
CONNECT_TIMEOUT = 5.0

AskRows = Callable[[ModelId], Awaitable[list[PeerRow]]]


class Directory:
    """Rows of one model, fetched when they are needed and too old."""

    def __init__(self, host: Host, pool: StreamPool, model: ModelId, ask: AskRows) -> None:
        self._host = host
        self._pool = pool
        self._model = model
        self._ask = ask
        self._rows: dict[PeerId, PeerRow] = {}
        self._fetched_at = float("-inf")
        self._fetching = trio.Lock()

    async def rows(self) -> list[PeerRow]:
        """Who serves the model, as musivum said within the last seconds, or said last.

        Raises the error of the asking only if nothing was ever heard.
        """
        async with self._fetching:
            if trio.current_time() - self._fetched_at >= FRESH_SECONDS:
                try:
                    rows = await self._ask(self._model)
                except TessellaError:
                    if not self._rows:
                        raise
                else:
                    self._rows = {row.peer_id: row for row in rows}
                    self._fetched_at = trio.current_time()
        return list(self._rows.values())

    def forget_age(self) -> None:
        """Ask again at the next need: what is known was seen to be wrong."""
        self._fetched_at = float("-inf")

    async def stream_to(self, peer: PeerId, protocol: str) -> FrameStream:
        """A pooled stream to a node of this model, connected to first if need be.

        Raises PeerUnreachable that names the node if its address is not known or not answering.
        """
        if peer not in self._host.connected():
            await self._host.connect(await self._address(peer), timeout=CONNECT_TIMEOUT)
        return await self._pool.take(peer, protocol)

    async def stream_at(self, peer: PeerAddress, protocol: str) -> FrameStream:
        """The same to a peer whose address is given."""
        await self._host.connect(peer, timeout=CONNECT_TIMEOUT)
        return await self._pool.take(peer.peer_id, protocol)

    def give(self, stream: FrameStream) -> None:
        """Keep a stream that ended its conversation cleanly."""
        self._pool.give(stream)

    async def _address(self, peer: PeerId) -> PeerAddress:
        if peer not in self._rows:
            await self.rows()
        row = self._rows.get(peer)
        if row is None:
            raise PeerUnreachable(f"nobody listed {peer} for {self._model}")
        return PeerAddress(peer, row.addrs)
