"""What a connection writes: whole frames, in order, by one task.

Nobody else touches the wire, so a sender may be cancelled at any moment: half a Noise message
would end the connection for everyone. Frames that wait are joined into as few messages as they
fit. A sender waits only while the outbox is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio
from libp2p.stream_muxer.exceptions import MuxedConnUnavailable

from p2p.yamux.wire import MAX_MESSAGE
from tessella.core.frames import KIB

# Bytes that may be on their way to the socket: what is in front of a small frame at most.
OUTBOX_BYTES = 128 * KIB
# Frames that wait for nobody; a peer that makes us owe more reads none of them.
MAX_OWED = 4096
# Seconds a message may take to be written before the connection is given up.
STALL_LIMIT = 30.0


class Outbox:
    """The frames on their way to one peer."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._closed = False
        self._work = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()

    async def send(self, frame: bytes) -> None:
        """Queue one whole frame, once there is room. Raises MuxedConnUnavailable.

        May be cancelled: the frame is queued whole or not at all.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._bytes >= OUTBOX_BYTES and not self._closed:
            await self._room.park()
        if self._closed:
            raise MuxedConnUnavailable("the connection ended")
        self._queue(frame)

    def post(self, frame: bytes) -> bool:
        """Queue a whole frame that nobody waits for. False if too many of them wait."""
        if not self._closed:
            self._queue(frame)
        return len(self._frames) <= MAX_OWED

    def _queue(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._bytes += len(frame)
        self._work.unpark()

    async def write_to(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write what comes, a message at a time, until cancelled.

        Raises TooSlowError where a message takes longer than STALL_LIMIT, and what `write` does.
        """
        while True:
            while not self._frames:
                await self._work.park()
            message = self._next_message()
            with trio.fail_after(STALL_LIMIT):
                await write(message)
            self._bytes -= len(message)
            self._room.unpark_all()

    def _next_message(self) -> bytes:
        frames = [self._frames.popleft()]
        size = len(frames[0])
        while self._frames and size + len(self._frames[0]) <= MAX_MESSAGE:
            frames.append(self._frames.popleft())
            size += len(frames[-1])
        return b"".join(frames) if len(frames) > 1 else frames[0]

    async def drained(self) -> None:
        """Wait until everything queued is written, or nothing will be any more."""
        while self._bytes and not self._closed:
            await self._room.park()

    def close(self) -> None:
        """Write no more, and wake who waits for room."""
        self._closed = True
        self._room.unpark_all()
