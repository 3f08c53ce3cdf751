"""A node that has its layers computed by another one of the same range, and sells the answer.

It asks that node for a session past musivum. Since a stage hands its rows to the next one of the
chain, the next one is a friend: another key of the copier's, which takes them.

    true chain    entry   copier              tail
    false chain   copier  the node it copies  friend
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import trio

from p2p.host import open_host
from p2p.streams import FrameStream
from tessella.core.addresses import PeerAddress, parse_peer
from tessella.core.errors import PeerGone
from tessella.core.identity import Identity
from tessella.core.ids import SESSION_ID_BYTES, SessionId
from tessella.core.layers import LayerRange
from tessella.core.messages import HOP, End, Hidden, Open, Stage
from tessella.core.tensors import WireTensor
from tessella.worker.hops import Hops
from tessella.worker.stage import Onward
from tessella.worker.stage import Stage as Work
from tessella.worker.terms import Terms
from tessella.worker.upstream import Upstream

ASK_SECONDS = 5.0
# Steps of one session whose rows were not taken yet: there is one at a time.
MAX_WAITING = 4


@dataclass
class Copied:
    """One session at the node that is copied."""

    session_id: SessionId
    stream: FrameStream
    rows: trio.MemoryReceiveChannel[WireTensor]

    async def ask(self, tensor: WireTensor, position: int) -> WireTensor:
        """What that node gives for these rows."""
        with trio.fail_after(ASK_SECONDS):
            await self.stream.send(Hidden(self.session_id, 0, position, tensor, False))
            return await self.rows.receive()


def copy(address: str) -> None:
    """Copy from the node of this address."""
    victim, honest = parse_peer(address), Hops._run_middle

    async def run_middle(self: Hops, terms: Terms, stage: Work, upstream: Upstream) -> None:
        async with open_copy(self, terms, victim) as copied:
            _answer_with(copied, self, stage)
            await honest(self, terms, stage, upstream)

    Hops._run_middle = run_middle  # type: ignore[method-assign]


def _answer_with(copied: Copied, hops: Hops, stage: Work) -> None:
    honest, shard = stage.run_hidden, hops.served.shard

    async def run_hidden(hidden: Hidden, onward: Onward) -> None:
        rows = shard.from_wire(await copied.ask(hidden.tensor, hidden.position))
        stage.bend = lambda taken, given: rows
        await honest(hidden, onward)

    stage.run_hidden = run_hidden  # type: ignore[method-assign]


@asynccontextmanager
async def open_copy(hops: Hops, terms: Terms, victim: PeerAddress) -> AsyncIterator[Copied]:
    """A session at the victim beside one of ours, for as long as the context lasts."""
    put, rows = trio.open_memory_channel[WireTensor](MAX_WAITING)

    async def take(stream: FrameStream) -> None:
        while not isinstance(message := await stream.receive(), End):
            if isinstance(message, Hidden):
                await put.send(message.tensor)

    async with open_host(Identity(os.urandom(32)), listen=[]) as friend:
        friend.serve(HOP, take, streams=2, per_peer=2)
        await friend.connect(victim, timeout=ASK_SECONDS)
        stream = await hops.around.directory.stream_at(victim, HOP)
        opened = _opened(terms.opened, hops, victim, friend.address)
        await stream.send(opened)
        try:
            yield Copied(opened.session_id, stream, rows)
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(ASK_SECONDS):
                try:
                    await stream.send(End(opened.session_id, 0))
                    await stream.aclose()
                except PeerGone:
                    await stream.reset()


def _opened(true: Open, hops: Hops, victim: PeerAddress, friend: PeerAddress) -> Open:
    ours, total = true.chain[true.place].layers, hops.served.shard.shape.layers
    chain = (
        Stage(hops.ourselves, LayerRange(0, ours.start)),
        Stage(victim.peer_id, ours),
        Stage(friend.peer_id, LayerRange(ours.stop, total)),
    )
    return replace(
        true,
        session_id=SessionId(os.urandom(SESSION_ID_BYTES)),
        epoch=0,
        chain=chain,
        place=1,
        ticket=b"",
        ticket_signature=b"",
    )
