"""Streams of bytes in memory, with the latency, the window and the deaths of real ones.

Strategy. There are no tasks and no timers here. What is written lies in the pipe with the moment
at which it arrives; a reader takes what is due and otherwise sleeps until the next moment or the
next change. On a virtual clock such a network costs nothing, and it is the same on every run.
"""

from __future__ import annotations

import math
import random
from collections import deque

import trio

from tessella.core.errors import PeerGone, PeerReset
from tessella.core.frames import KIB
from tessella.core.ids import PeerId

# What may lie between a writer and a reader: the window a yamux stream starts with.
WINDOW_BYTES = 256 * KIB


class Wire:
    """What two peers' connection does to bytes; every stream between them shares it.

    `loss` is the probability that a write breaks the connection: a stream never loses bytes and
    lives on, so lost packets can be seen in no other way than late bytes or a dead connection.
    """

    def __init__(self, latency: float, loss: float, seed: str) -> None:
        self.latency = latency
        self._change = trio.Event()
        self.silent = False
        self.death: PeerGone | None = None
        self._loss = loss
        self._chance = random.Random(seed)

    def silence(self, silent: bool) -> None:
        """Hold back what is on its way, or let it arrive, as TCP does after an outage."""
        self.silent = silent
        self.changed()

    def cut(self, death: PeerGone) -> None:
        """End the connection with this error, once."""
        self.death = self.death or death
        self.changed()

    def arrived(self, moment: float) -> bool:
        """Whether what was to arrive at that moment is there."""
        return moment <= trio.current_time() and not self.silent

    def changed(self) -> None:
        """Wake everyone who waits for a change."""
        self._change.set()
        self._change = trio.Event()

    async def change(self, moment: float) -> None:
        """Until something changes, or that moment comes."""
        with trio.move_on_at(math.inf if self.silent else moment):
            await self._change.wait()

    def check(self) -> None:
        """Raise why the connection ended, if it did."""
        if self.death is not None:
            raise type(self.death)(str(self.death))

    def maybe_lose(self) -> None:
        """Break the connection by chance; called for every write."""
        if self._chance.random() < self._loss:
            self.cut(PeerReset("the connection broke"))


class Pipe:
    """One direction of a stream. Writing and reading end apart."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._arriving: deque[tuple[float, bytes]] = deque()
        self.size = 0
        # When the reader sees the writer's end, clean or not, and the writer the reader's.
        self.finished_at = math.inf
        self.reset_at = math.inf
        self.abandoned_at = math.inf

    @property
    def room(self) -> int:
        """How many bytes may be written now."""
        return WINDOW_BYTES - self.size

    def put(self, data: bytes) -> None:
        """Bytes on their way."""
        self._wire.maybe_lose()
        self._arriving.append((trio.current_time() + self._wire.latency, data))
        self.size += len(data)
        self._wire.changed()

    def take(self, max_bytes: int) -> bytes:
        """What has arrived, up to `max_bytes`; b"" if nothing has."""
        found = bytearray()
        while len(found) < max_bytes and self._arrived():
            moment, data = self._arriving.popleft()
            room = max_bytes - len(found)
            found += data[:room]
            if len(data) > room:
                self._arriving.appendleft((moment, data[room:]))
        self.size -= len(found)
        if found:
            self._wire.changed()
        return bytes(found)

    def _arrived(self) -> bool:
        return bool(self._arriving) and self._wire.arrived(self._arriving[0][0])

    @property
    def next_moment(self) -> float:
        """When the reader has something to see."""
        first = self._arriving[0][0] if self._arriving else math.inf
        return min(first, self.finished_at, self.reset_at)


class MemoryStream:
    """One end of a stream: a `p2p.streams.ByteStream`."""

    def __init__(self, peer_id: PeerId, wire: Wire, incoming: Pipe, outgoing: Pipe) -> None:
        self.peer_id = peer_id
        self._wire = wire
        self._in = incoming
        self._out = outgoing

    @property
    def idle(self) -> bool:
        """Open both ways, and nothing to read."""
        ours = self._out.finished_at == self._out.reset_at == math.inf
        return ours and self._wire.death is None and not self._wire.arrived(self._in.next_moment)

    async def send_all(self, data: bytes) -> None:
        """Write it all, as the window allows."""
        await trio.lowlevel.checkpoint()
        sent = 0
        while True:
            self._refuse_ended()
            if self._wire.arrived(self._out.abandoned_at):
                raise PeerReset(f"{self.peer_id} closed the stream and reads no more")
            if sent == len(data):
                return
            room = min(self._out.room, len(data) - sent)
            if room > 0:
                self._out.put(data[sent : sent + room])
                sent += room
            else:
                await self._wire.change(min(self._in.reset_at, self._out.abandoned_at))

    def _over(self) -> bool:
        return self._wire.death is not None or self._out.reset_at < math.inf

    def _refuse_ended(self) -> None:
        self._wire.check()
        if self._out.reset_at < math.inf:
            raise PeerReset(f"this side reset the stream to {self.peer_id}")
        if self._wire.arrived(self._in.reset_at):
            raise PeerReset(f"{self.peer_id} reset the stream")

    async def receive_some(self, max_bytes: int) -> bytes:
        """What has arrived, or b"" at the end."""
        await trio.lowlevel.checkpoint()
        while True:
            data = b"" if self._over() else self._in.take(max_bytes)
            if data:
                return data
            self._refuse_ended()
            if self._wire.arrived(self._in.finished_at):
                return b""
            await self._wire.change(self._in.next_moment)

    async def aclose(self) -> None:
        """Finish our side; what still arrives is answered with a reset."""
        await trio.lowlevel.checkpoint()
        self._wire.check()
        self._out.finished_at = trio.current_time() + self._wire.latency
        self._in.abandoned_at = trio.current_time() + self._wire.latency
        self._wire.changed()

    async def reset(self) -> None:
        """Give both directions up."""
        await trio.lowlevel.cancel_shielded_checkpoint()
        if self._out.reset_at == math.inf:
            self._out.reset_at = trio.current_time() + self._wire.latency
            self._wire.changed()


def stream_pair(wire: Wire, left: PeerId, right: PeerId) -> tuple[MemoryStream, MemoryStream]:
    """The ends of one stream that `left` and `right` hold."""
    there, back = Pipe(wire), Pipe(wire)
    return MemoryStream(right, wire, back, there), MemoryStream(left, wire, there, back)
