"""Idle streams, kept for the next conversation with the same peer: it saves a round trip.

Strategy. Nothing watches an idle stream. It is looked at when it is taken: a stream whose other
end finished, reset it, lost the connection, or sent something nobody asked for is not idle, and
is dropped. `run` closes those that were left too long, so that they do not fill the peer's quota.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import trio

from p2p.streams import FrameStream
from tessella.core.ids import PeerId

# Two conversations with one peer at a time are common, eight are a busy day.
MAX_IDLE_PER_PEER = 8
MAX_IDLE = 256
# Longer than a pause between two requests of a person, shorter than a NAT forgets.
IDLE_SECONDS = 60.0
SWEEP_SECONDS = 10.0
OPEN_TIMEOUT = 10.0


class Opener(Protocol):
    """The part of a host that a pool needs."""

    async def open_stream(self, peer: PeerId, protocol: str, *, timeout: float) -> FrameStream:
        """A stream to a connected peer; see `p2p.peers.Host`."""


class StreamPool:
    """Streams between conversations, by peer and protocol.

    Resource handling: a stream taken is the caller's, to give back when its conversation ended
    cleanly, or to close or reset. `aclose` ends those that are idle. Start `run` in a nursery
    for idle streams to end by their age; without it they end when the pool is next used.
    """

    def __init__(self, host: Opener) -> None:
        self._host = host
        # Oldest first, in all and so within each peer; how long they wait is one comparison.
        self._idle: deque[tuple[float, FrameStream]] = deque()
        self._dropped: list[FrameStream] = []
        self._closed = False

    async def take(
        self, peer: PeerId, protocol: str, *, timeout: float = OPEN_TIMEOUT
    ) -> FrameStream:
        """An idle stream, the latest used first, or one opened for this call.

        Raises what `Host.open_stream` raises.
        """
        self._expire()
        found = self._pop(peer, protocol)
        await self._end_dropped()
        if found is not None:
            return found
        return await self._host.open_stream(peer, protocol, timeout=timeout)

    def give(self, stream: FrameStream) -> None:
        """Take back a stream at rest. One that is not, or is one too many, is dropped."""
        same = sum(1 for _, other in self._idle if other.peer_id == stream.peer_id)
        if self._closed or not stream.idle or same >= MAX_IDLE_PER_PEER:
            self._dropped.append(stream)
            return
        if len(self._idle) >= MAX_IDLE:
            self._dropped.append(self._idle.popleft()[1])
        self._idle.append((trio.current_time(), stream))

    async def run(self) -> None:
        """Close what was idle too long or was dropped, until cancelled; then close all."""
        try:
            while True:
                await trio.sleep(SWEEP_SECONDS)
                self._expire()
                await self._end_dropped()
        finally:
            with trio.CancelScope(shield=True):
                await self.aclose()

    async def aclose(self) -> None:
        """End every idle stream. What is given back later is ended by the next `aclose`."""
        self._closed = True
        self._dropped += [stream for _, stream in self._idle]
        self._idle.clear()
        await self._end_dropped()

    def _pop(self, peer: PeerId, protocol: str) -> FrameStream | None:
        for entry in reversed(tuple(self._idle)):
            stream = entry[1]
            if (stream.peer_id, stream.protocol) != (peer, protocol):
                continue
            self._idle.remove(entry)
            if stream.idle:
                return stream
            self._dropped.append(stream)
        return None

    def _expire(self) -> None:
        oldest = trio.current_time() - IDLE_SECONDS
        while self._idle and self._idle[0][0] < oldest:
            self._dropped.append(self._idle.popleft()[1])

    async def _end_dropped(self) -> None:
        """Reset, which waits for nobody: there is nothing on an idle stream to lose."""
        while self._dropped:
            await self._dropped.pop().reset()
