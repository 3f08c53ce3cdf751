"""The end of a stream at the node that calls: a `p2p.streams.ByteStream` that posts and polls.

Strategy. Two tasks, a lane each. One posts what was written: while a POST is under way more is
queued, and goes with the next, so that a link is filled without a second POST that could overtake
the first. The other has a read waiting at the called node all the time. A POST that found no way
is sent again under its number, until `patience` is over: the called node takes it once.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Awaitable, Callable

import trio

from tessella.core.errors import (
    OutOfTurn,
    PeerClosed,
    PeerGone,
    PeerReset,
    PeerUnreachable,
    RemoteFailure,
    TessellaError,
)
from tessella.core.frames import KIB, MAX_HOP_FRAME, MIB
from tessella.core.ids import PeerId
from tessella.worker.http_hops.asks import STREAM_BYTES, Act, Ask, End, Said

# What one POST carries, or one frame: enough to fill a link, and a stage begins with it soon.
BODY_BYTES = 4 * MIB
# What may be queued beside that, or one frame.
QUEUE_BYTES = MAX_HOP_FRAME
# What may wait here for who reads: a stage says little, and is read on all the time.
MAX_UNREAD = 256 * KIB
# Between two reads that nothing came of. A stage at work says so each second.
READ_SECONDS = 5.0
# Between two tries; a connection that was closed while idle is replaced at once.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
# A goodbye that nobody waits for.
LAST_SECONDS = 2.0

Call = Callable[[Ask, bytes], Awaitable[Said]]
"""Posts to the called node. Raises a TessellaError for what is no answer of it."""


class DialledStream:
    """One stream that we opened. `run` has to run, from `open` on, for anything to move."""

    def __init__(self, peer_id: PeerId, call: Call, patience: float) -> None:
        """`patience` is how many seconds a POST is tried again."""
        self.peer_id = peer_id
        self._call = call
        self._patience = patience
        self._name = secrets.token_bytes(STREAM_BYTES)
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        self._out: deque[bytes] = deque()
        self._queued = 0
        self._finishing = False
        self._finished = False
        self._in = bytearray()
        self._end: End | None = None
        self._lost: TessellaError | None = None
        self._was_reset = False

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    @property
    def idle(self) -> bool:
        """Never: to keep one would cost a request every few seconds, and to open one costs one."""
        return False

    async def open(self) -> None:
        """Begin it there. Raises the error of the call."""
        await self._call(Ask(self._name, Act.OPEN), b"")

    async def run(self) -> None:
        """Post and poll until the stream is over; then, if we gave it up, say so."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._guarded, self._write)
                    nursery.start_soon(self._guarded, self._read)
            if self._was_reset and not self._finished and self._end is None:
                with trio.move_on_after(LAST_SECONDS):
                    await self._guarded(self._tell_reset)
        finally:
            self._lose(PeerReset(f"the stream to {self.peer_id} is over"))

    async def _guarded(self, lane: Callable[[], Awaitable[None]]) -> None:
        try:
            await lane()
        except TessellaError as exc:
            self._lose(exc)

    def _lose(self, why: TessellaError) -> None:
        self._lost = self._lost or why
        self._scope.cancel()
        self._change()

    async def _tell_reset(self) -> None:
        await self._call(Ask(self._name, Act.RESET), b"")

    async def _write(self) -> None:
        number = 0
        while not self._finished:
            while not (self._out or self._finishing):
                await self._changed.wait()
            body = self._next_body()
            number += 1
            last = self._finishing and not self._out
            act = Act.FINISH if last else Act.WRITE
            await self._persist(Ask(self._name, act, number), body)
            self._finished = last
            self._change()
        self._scope.cancel()

    def _next_body(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while self._out and (not pieces or size + len(self._out[0]) <= BODY_BYTES):
            pieces.append(self._out.popleft())
            size += len(pieces[-1])
        self._queued -= size
        self._change()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _read(self) -> None:
        number = 0
        while self._end is None:
            number += 1
            said = await self._persist(Ask(self._name, Act.READ, number, READ_SECONDS), b"")
            self._in += said.data
            self._end = said.end
            self._change()
            while len(self._in) > MAX_UNREAD:
                await self._changed.wait()
        self._scope.cancel()

    async def _persist(self, ask: Ask, body: bytes) -> Said:
        pause, gives_up_at = FIRST_PAUSE, trio.current_time() + self._patience
        while True:
            try:
                return await self._call(ask, body)
            except (PeerUnreachable, PeerClosed) as exc:
                failed: TessellaError = exc
            except RemoteFailure as exc:
                failed = self._meant(exc)
                if not exc.retry:
                    raise failed from exc
            if trio.current_time() + pause > gives_up_at:
                raise failed
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _meant(self, told: RemoteFailure) -> TessellaError:
        """What an error answer to a stream's POST says of the stream."""
        if told.code == OutOfTurn.code:
            return PeerReset(f"{self.peer_id} holds the stream no more: {told}")
        return told

    async def send_all(self, data: bytes) -> None:
        """Queue it, when there is room. What becomes of it is seen by who reads."""
        await trio.lowlevel.checkpoint()
        while True:
            self._refuse_unsendable()
            if not self._queued or self._queued + len(data) <= QUEUE_BYTES:
                self._out.append(data)
                self._queued += len(data)
                self._change()
                return
            await self._changed.wait()

    def _refuse_unsendable(self) -> None:
        if self._was_reset or self._finishing:
            raise PeerReset(f"this side ended the stream to {self.peer_id}")
        if self._end is not None:
            raise PeerReset(f"{self.peer_id} ended the stream and reads no more")
        if self._lost is not None:
            raise PeerReset(f"the stream to {self.peer_id} is lost: {self._lost}")

    async def receive_some(self, max_bytes: int) -> bytes:
        """What was said, or b"" at the end. Raises RemoteFailure too: it refused a POST."""
        await trio.lowlevel.checkpoint()
        while self._was_reset or not self._in:
            if self._was_reset:
                raise PeerReset(f"this side reset the stream to {self.peer_id}")
            if self._end is End.FINISH:
                return b""
            if self._end is End.RESET:
                raise PeerReset(f"{self.peer_id} reset the stream")
            if self._lost is not None:
                raise _again(self._lost)
            await self._changed.wait()
        data = bytes(self._in[:max_bytes])
        del self._in[:max_bytes]
        self._change()
        return data

    async def aclose(self) -> None:
        """Return when all that was written, and that it was all, has arrived."""
        await trio.lowlevel.checkpoint()
        self._finishing = True
        self._change()
        while not (self._finished or self._lost or self._end):
            await self._changed.wait()
        if not self._finished and self._lost is not None:
            raise PeerReset(f"the stream to {self.peer_id} is lost: {self._lost}")
        self._scope.cancel()

    async def reset(self) -> None:
        """Give it up; the called node is told by `run`."""
        await trio.lowlevel.cancel_shielded_checkpoint()
        self._was_reset = True
        self._scope.cancel()
        self._change()


def _again(lost: TessellaError) -> TessellaError:
    """The same error once more: an exception is raised once."""
    if isinstance(lost, RemoteFailure):
        return RemoteFailure(lost.code, str(lost), retry=lost.retry)
    if isinstance(lost, PeerGone):
        return type(lost)(str(lost))
    return lost
