"""The end of a stream at the node that is called: a `p2p.streams.ByteStream` made of requests.

Strategy. Two lanes, each in lock-step: a WRITE is answered when its body was taken by whoever
reads here, so that what a caller can make us hold is a body; a READ is answered as soon as there
is something to say, and what it was answered with is kept until the next one shows that it
arrived. There are no tasks here: requests and the handler meet in these buffers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from tessella.core.errors import OutOfTurn, PeerGone, PeerReset, PeerSilent
from tessella.core.ids import PeerId
from tessella.worker.http_hops.asks import MAX_SAID, MAX_WAIT_SECONDS, End, Said

# A stage reads on whatever it computes; one that does not has ended, or has a bug.
TAKE_SECONDS = 10.0

Body = Callable[[], Awaitable[bytes]]
"""Reads and checks the body of a request."""


class ServedStream:
    """One stream that a peer opened here. See `p2p.streams.ByteStream` for what a handler does."""

    def __init__(self, peer_id: PeerId) -> None:
        self.peer_id = peer_id
        self._changed = trio.Event()
        # What came, and why nothing more will.
        self._came = memoryview(b"")
        self._finished = False
        self._gone: PeerGone | None = None
        # What is to be said, and whether that is all.
        self._saying = bytearray()
        self._end: End | None = None
        self._told_end = False
        # The lanes: the last number of each, and what it was about.
        self._writing = trio.Lock()
        self._written, self._digest = 0, ""
        self._asked = 0
        self._said: Said | None = None
        self._reader = object()
        # For silence: requests under way, and when the last one ended.
        self._requests = 0
        self._left_at = trio.current_time()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    @property
    def idle(self) -> bool:
        """Never: who is called keeps no streams."""
        return False

    async def send_all(self, data: bytes) -> None:
        """Say it, when what was said before leaves room."""
        await trio.lowlevel.checkpoint()
        while True:
            self._refuse_over()
            if self._finished:
                raise PeerReset(f"{self.peer_id} closed the stream and reads no more")
            if not self._saying or len(self._saying) + len(data) <= MAX_SAID:
                self._saying += data
                self._change()
                return
            await self._changed.wait()

    async def receive_some(self, max_bytes: int) -> bytes:
        """What came, or b"" at the end."""
        await trio.lowlevel.checkpoint()
        while not self._came:
            if self._finished and self._end is None:
                return b""
            self._refuse_over()
            await self._changed.wait()
        data, self._came = self._came[:max_bytes], self._came[max_bytes:]
        if not self._came:
            self._change()
        return bytes(data)

    def _refuse_over(self) -> None:
        if self._end is not None:
            raise PeerReset(f"this side ended the stream to {self.peer_id}")
        if self._gone is not None:
            raise type(self._gone)(str(self._gone))

    async def aclose(self) -> None:
        """Finish our side; what still comes is dropped."""
        await trio.lowlevel.checkpoint()
        self._end = self._end or End.FINISH
        self._drop()

    async def reset(self) -> None:
        """Give both sides up; what was said before may still be read."""
        await trio.lowlevel.cancel_shielded_checkpoint()
        self._end = self._end or End.RESET
        self._drop()

    def _drop(self) -> None:
        self._came = memoryview(b"")
        self._change()

    async def until_told(self) -> None:
        """Wait until the caller was told all, and that it is all; or until it is gone."""
        while not (self._told_end or self._finished or self._gone):
            await self._changed.wait()

    @contextmanager
    def requested(self) -> Iterator[None]:
        """A request of the caller is under way."""
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            self._left_at = trio.current_time()

    def silent(self, limit: float) -> bool:
        """Whether the caller has asked nothing for so many seconds."""
        if self._requests or self._finished:
            return False
        return trio.current_time() - self._left_at >= limit

    def lose(self, why: PeerGone) -> None:
        """The caller is gone, or says so: what came before may still be read."""
        self._gone = self._gone or why
        self._change()

    @property
    def untouched(self) -> bool:
        """Whether nothing was written or read yet."""
        return not (self._written or self._asked)

    async def write(self, number: int, digest: str, body: Body, *, finish: bool) -> None:
        """Take a body, once; return when it was taken by whoever reads here.

        Raises OutOfTurn for a number that is not the next, and what `body` raises; the number is
        then still the next.
        """
        with trio.move_on_after(MAX_WAIT_SECONDS) as waiting:
            await self._writing.acquire()
        if waiting.cancelled_caught:
            raise OutOfTurn("the body before this one is still on its way")
        try:
            if (number, digest) != (self._written, self._digest):
                await self._write(number, digest, body, finish)
        finally:
            self._writing.release()

    async def _write(self, number: int, digest: str, body: Body, finish: bool) -> None:
        if number != self._written + 1 or self._finished:
            raise OutOfTurn(f"write {number} after {self._written}")
        data = await body()
        self._written, self._digest = number, digest
        if self._end is not None:
            return
        self._came, self._finished = memoryview(data), finish
        self._change()
        with trio.move_on_after(TAKE_SECONDS):
            while self._came and self._gone is None:
                await self._changed.wait()
            return
        self.lose(PeerSilent(f"what {self.peer_id} sent was not taken for {TAKE_SECONDS:g} s"))

    async def read(self, number: int, wait: float) -> Said:
        """What is said since the last read; waits for something to say, `wait` seconds at most.

        The last number again is answered as it was. Raises OutOfTurn for any other but the next,
        and for one that was asked again meanwhile.
        """
        if number == self._asked + 1:
            self._asked, self._said = number, None
        elif number != self._asked:
            raise OutOfTurn(f"read {number} after {self._asked}")
        elif self._said is not None:
            return self._said
        self._reader = reader = object()
        self._change()
        with trio.move_on_after(wait):
            while not (self._saying or self._end or self._reader is not reader):
                await self._changed.wait()
        if self._reader is not reader:
            raise OutOfTurn(f"read {number} was asked again")
        return self._say()

    def _say(self) -> Said:
        self._said = Said(bytes(self._saying), self._end)
        self._saying.clear()
        self._told_end = self._end is not None
        self._change()
        return self._said
