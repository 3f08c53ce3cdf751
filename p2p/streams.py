"""Streams of frames over any stream of bytes.

The byte stream below is libp2p's or the memory network's; what is here holds for both: caps
before bytes are kept, deadlines on every wait, one reader, ordered writers, and an end that is
either clean (`aclose`) or not (`reset`).

Strategy of writing. A frame is queued before its sender waits for the lock; whoever gets the
lock writes everything queued in one piece, so ten tokens that wait for a slow peer cost one
write. A sender leaves when its frame is written, by whichever task.
"""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Protocol

import trio

from p2p.limits import caps_of
from tessella.core.errors import (
    LocalError,
    PeerClosed,
    PeerGone,
    PeerReset,
    PeerSilent,
    RemoteError,
)
from tessella.core.frames import KIB, LENGTH_BYTES, MAX_HOP_FRAME, FrameReader, NeedData
from tessella.core.ids import PeerId
from tessella.core.messages import Message, decode, encode

# What one read takes at most: the receive window that a stream starts with.
READ_BYTES = 256 * KIB
# Frames written in one piece: enough for hundreds of tokens, little enough to copy.
COALESCE_BYTES = 64 * KIB
# A peer that takes no byte for this long is not slow, it is gone.
SEND_TIMEOUT = 30.0
# How long an orderly end may take; after it the stream is reset.
CLOSE_TIMEOUT = 5.0


class ByteStream(Protocol):
    """A bidirectional stream of bytes to an authenticated peer. Errors are ours already."""

    @property
    def peer_id(self) -> PeerId:
        """Who is at the other end, as its handshake proved."""

    @property
    def idle(self) -> bool:
        """Whether both directions are open and nothing has arrived that was not received."""

    async def send_all(self, data: bytes) -> None:
        """Write it all. Raises PeerGone. After a cancelled write only `reset` makes sense."""

    async def receive_some(self, max_bytes: int) -> bytes:
        """1 to `max_bytes` bytes, or b"" where the peer finished its side. Raises PeerGone.

        May be cancelled: no byte is lost. What arrived before a reset is handed out first.
        """

    async def aclose(self) -> None:
        """Finish our side once what was sent is on its way, and read no more.

        A peer that goes on sending is reset, and so is one that never finishes its own side.
        """

    async def reset(self) -> None:
        """Give both sides up at once. Never raises, never blocks for long; twice is no error."""


class FrameStream:
    """Messages to and from one peer over one stream.

    Resource handling: whoever opened the stream ends it with `aclose` or `reset`; as an async
    context manager it does the first on a clean exit and the second otherwise.

    Concurrency: any number of tasks may send, one may receive.
    """

    def __init__(
        self, stream: ByteStream, *, protocol: str, cap: int, send_cap: int = MAX_HOP_FRAME
    ) -> None:
        """Own a stream whose frames have at most `cap` bytes of body in, `send_cap` out."""
        self.protocol = protocol
        self.peer_id = stream.peer_id
        self._stream = stream
        self._reader = FrameReader(cap)
        self._send_cap = send_cap
        self._reading = False
        # Why we use it no more, and why the peer takes no more: what it sent may still be read.
        self._over: LocalError | PeerReset | None = None
        self._unsendable: PeerGone | None = None
        self._lock = trio.Lock()
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._written = 0

    def __repr__(self) -> str:
        return f"FrameStream({self.protocol}, {self.peer_id})"

    async def __aenter__(self) -> FrameStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.aclose()
        else:
            await self.reset()

    @property
    def idle(self) -> bool:
        """Whether the stream can carry another conversation: open, unbroken, nothing unread."""
        clean = not (self._over or self._unsendable or self._queue or self._reading)
        return clean and self._reader.missing == LENGTH_BYTES and self._stream.idle

    async def send(self, message: Message, timeout: float = SEND_TIMEOUT) -> None:
        """Write one frame. Returns when the transport below has taken it.

        Raises PeerGone: PeerSilent after `timeout` seconds without room for it. The stream is
        reset then, and after a cancellation, because half a frame may be out; what the peer
        sent before can still be received after any other PeerGone.
        """
        frame = encode(message)
        if len(frame) - LENGTH_BYTES > self._send_cap:
            raise LocalError(f"a frame of {len(frame)} bytes on {self!r}, over {self._send_cap}")
        try:
            with trio.fail_after(timeout):
                await self._write(frame)
        except trio.TooSlowError:
            await self.reset()
            raise PeerSilent(f"{self.peer_id} took no bytes for {timeout:g} s") from None
        except trio.Cancelled:
            await self.reset()
            raise
        except PeerGone as exc:
            self._unsendable = exc
            raise

    async def _write(self, frame: bytes) -> None:
        self._queue.append(frame)
        self._queued += 1
        place = self._queued
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()
        try:
            while self._written < place:
                self._refuse_unsendable()
                count, data = self._next_write()
                await self._stream.send_all(data)
                self._written += count
        finally:
            self._lock.release()

    def _next_write(self) -> tuple[int, bytes]:
        """Take queued frames: one, or as many as fit into one write."""
        frames = [self._queue.popleft()]
        size = len(frames[0])
        while self._queue and size + len(self._queue[0]) <= COALESCE_BYTES:
            frames.append(self._queue.popleft())
            size += len(frames[-1])
        return len(frames), b"".join(frames) if len(frames) > 1 else frames[0]

    def _refuse_unsendable(self) -> None:
        self._refuse_over()
        if self._unsendable is not None:
            raise type(self._unsendable)(str(self._unsendable)) from self._unsendable

    def _refuse_over(self) -> None:
        if self._over is not None:
            raise type(self._over)(str(self._over))

    async def receive(self, timeout: float | None = None) -> Message:
        """The next message. None waits without limit, for callers that keep their own watch.

        Raises PeerClosed where the peer finished between frames, another PeerGone where it went
        away, PeerSilent after `timeout` seconds (the stream stays whole, wait again if you
        like), and RemoteError for bytes that are no frame of ours, after which it is reset.
        A cancelled receive loses nothing.
        """
        self._refuse_over()
        if self._reading:
            raise LocalError(f"two tasks receive from {self!r}")
        self._reading = True
        try:
            if timeout is None:
                return decode(await self._next_body())
            with trio.fail_after(timeout):
                return decode(await self._next_body())
        except trio.TooSlowError:
            raise PeerSilent(f"{self.peer_id} sent nothing for {timeout:g} s") from None
        except RemoteError:
            await self.reset()
            raise
        finally:
            self._reading = False

    async def _next_body(self) -> bytes:
        while True:
            body = self._reader.next_body()
            if not isinstance(body, NeedData):
                return body
            data = await self._stream.receive_some(READ_BYTES)
            if not data:
                self._reader.close()
                raise PeerClosed(f"{self.peer_id} finished the stream")
            self._reader.feed(data)

    async def aclose(self) -> None:
        """Finish in order: what was sent arrives, what still comes is dropped.

        Bounded by CLOSE_TIMEOUT, and never raises for a peer that is gone. Twice is no error.
        """
        if self._over is not None:
            return
        self._over = LocalError(f"{self!r} was closed by this side and used again")
        finished = False
        try:
            with trio.move_on_after(CLOSE_TIMEOUT):
                await self._stream.aclose()
                finished = True
        except PeerGone:
            pass
        finally:
            if not finished:
                await self._give_up()

    async def reset(self) -> None:
        """Give the stream up now, in both directions. Safe in a cancelled scope, and twice."""
        self._over = self._over or PeerReset(f"this side gave up {self!r}")
        await self._give_up()

    async def _give_up(self) -> None:
        with trio.CancelScope(shield=True):
            await self._stream.reset()


def frame_stream(stream: ByteStream, protocol: str, *, opened: bool) -> FrameStream:
    """The stream of frames of a protocol, with its caps; `opened` on the side that asked."""
    caps = caps_of(protocol)
    return FrameStream(
        stream,
        protocol=protocol,
        cap=caps.received(opened=opened),
        send_cap=caps.sent(opened=opened),
    )
