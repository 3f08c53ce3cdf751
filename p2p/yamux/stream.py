"""One yamux stream: an inbox, two windows, and ends that are told apart.

Reading may be cancelled at any moment: bytes leave the inbox without a wait between. Writing
waits for the window for as long as its caller does. What arrived is read before any end is seen;
then a FIN is an end, a RST is a reset, and a lost connection is neither.
"""

from __future__ import annotations

import math
from types import TracebackType
from typing import TYPE_CHECKING

import trio
from libp2p.abc import IMuxedStream
from libp2p.stream_muxer.exceptions import (
    MuxedConnUnavailable,
    MuxedStreamClosed,
    MuxedStreamEOF,
    MuxedStreamReset,
)

from p2p.yamux.wire import DATA, FIN, INITIAL_WINDOW, MAX_BODY, RST, WINDOW_UPDATE, BadYamux, pack
from tessella.core.frames import MIB

if TYPE_CHECKING:
    from p2p.yamux.connection import YamuxConnection

# 4 MiB in flight are 40 MB/s over 100 ms; the connection bounds how many streams may grow so far.
MAX_WINDOW = 4 * MIB
# A peer may hand out credit as it likes, but the sum is a u32.
MAX_CREDIT = 2**32 - 1


class YamuxStream(IMuxedStream):
    """A stream of a YamuxConnection. One task reads; writes of several tasks are kept whole."""

    def __init__(self, conn: YamuxConnection, stream_id: int, *, inbound: bool) -> None:
        self.muxed_conn = conn
        self.stream_id = stream_id
        self.inbound = inbound
        # Whether it is an inbound one that no protocol counts yet.
        self.unserved = inbound
        # When `close` was called: the peer has LINGER seconds from then to finish its side.
        self.closed_at = math.inf
        self._conn = conn
        self._inbox = bytearray()
        self._readers = trio.lowlevel.ParkingLot()
        self._writers = trio.lowlevel.ParkingLot()
        self._order = trio.Lock()
        self._send_window = INITIAL_WINDOW
        self._window = INITIAL_WINDOW
        self._may_receive = INITIAL_WINDOW
        self._uncredited = 0
        self._credited_at = -math.inf
        self._fin_sent = False
        self._fin_received = False
        self._reset = False

    @property
    def idle(self) -> bool:
        """Open both ways, with nothing to read."""
        ended = self._fin_sent or self._fin_received or self._reset or self._conn.is_closed
        return not ended and not self._inbox

    async def write(self, data: bytes) -> None:
        """Write it all, as the peer's window allows. A cancelled write may be half out."""
        if not self._order.locked():
            self._order.acquire_nowait()
        else:
            await self._order.acquire()
        try:
            with memoryview(data) as view:
                await self._write(view)
        finally:
            self._order.release()

    async def _write(self, view: memoryview) -> None:
        at = 0
        while True:
            self._check_writable()
            if at == len(view):
                return
            size = min(self._send_window, MAX_BODY, len(view) - at)
            if size == 0:
                await self._writers.park()
                continue
            self._send_window -= size
            header = pack(DATA, 0, self.stream_id, size)
            await self._conn.send(b"".join((header, view[at : at + size])))
            at += size

    def _check_writable(self) -> None:
        if self._reset:
            raise MuxedStreamReset("the stream was reset")
        if self._conn.is_closed:
            raise MuxedConnUnavailable("the connection ended")
        if self._fin_sent:
            raise MuxedStreamClosed("this side of the stream is finished")

    async def read(self, n: int | None = None) -> bytes:
        """1 to `n` bytes, or all there are. Raises MuxedStreamEOF, MuxedStreamReset, and
        MuxedConnUnavailable where the connection ended.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._inbox:
            if self._fin_received:
                raise MuxedStreamEOF("the peer finished the stream")
            if self._reset:
                raise MuxedStreamReset("the stream was reset")
            if self._conn.is_closed:
                raise MuxedConnUnavailable("the connection ended")
            await self._readers.park()
        return self._take(len(self._inbox) if n is None or n < 0 else n)

    def _take(self, n: int) -> bytes:
        if n >= len(self._inbox):
            data = bytes(self._inbox)
            self._inbox.clear()
        else:
            with memoryview(self._inbox) as view:
                data = bytes(view[:n])
            del self._inbox[:n]
        if not self._fin_received:
            self._credit(len(data))
        return data

    def _credit(self, size: int) -> None:
        """Let the peer send on, half a window at a time; a fast reader's window doubles."""
        self._uncredited += size
        if self._uncredited * 2 < self._window or self._conn.is_closed:
            return
        now = trio.current_time()
        grown = 0
        if now - self._credited_at < 4 * self._conn.rtt and self._window < MAX_WINDOW:
            grown = self._conn.lend_window(self._window)
        self._credited_at = now
        self._window += grown
        credit, self._uncredited = self._uncredited + grown, 0
        self._may_receive += credit
        self._conn.post(pack(WINDOW_UPDATE, 0, self.stream_id, credit))

    async def close_write(self) -> None:
        """Finish our side; reading goes on."""
        await trio.lowlevel.cancel_shielded_checkpoint()
        if not (self._fin_sent or self._reset or self._conn.is_closed):
            self._fin_sent = True
            self._conn.post(pack(WINDOW_UPDATE, FIN, self.stream_id, 0))
            self._writers.unpark_all()
            self._forget_if_finished()

    async def close(self) -> None:
        """Finish our side and read no more: data that still comes is answered with a reset."""
        self.closed_at = min(self.closed_at, trio.current_time())
        await self.close_write()
        if self._inbox:
            await self.reset()

    async def reset(self) -> None:
        """Give both sides up, and wake whoever waits here."""
        await trio.lowlevel.cancel_shielded_checkpoint()
        self.reset_now()

    def reset_now(self) -> None:
        """`reset`, for callers that may not wait."""
        finished = self._fin_sent and self._fin_received
        if not (self._reset or finished or self._conn.is_closed):
            self._conn.post(pack(WINDOW_UPDATE, RST, self.stream_id, 0))
        self._inbox.clear()
        self._fin_received = False
        self._end_by_reset()

    def _end_by_reset(self) -> None:
        self._reset = True
        self.wake()
        self._conn.forget(self)

    def wake(self) -> None:
        """Make whoever waits here look again."""
        self._readers.unpark_all()
        self._writers.unpark_all()

    def serve(self) -> None:
        """A protocol counts this stream from here on."""
        self._conn.serve(self)

    def lent(self) -> int:
        """How much of the connection's window budget this stream holds."""
        return self._window - INITIAL_WINDOW

    def expect(self, size: int) -> None:
        """A body of that size begins. Raises BadYamux if it is more than we allowed."""
        if size > self._may_receive:
            raise BadYamux(f"{size} bytes into a window of {self._may_receive}")
        self._may_receive -= size

    def arrived(self, data: bytes) -> None:
        """Bytes of a body."""
        if self.closed_at < math.inf:
            self.reset_now()
            return
        self._inbox += data
        self._readers.unpark()

    def credited(self, size: int) -> None:
        """The peer allows more. Raises BadYamux if the sum makes no sense."""
        self._send_window += size
        if self._send_window > MAX_CREDIT:
            raise BadYamux(f"a window of {self._send_window}")
        self._writers.unpark_all()

    def flagged(self, flags: int) -> None:
        """FIN or RST came."""
        if flags & FIN:
            self._fin_received = True
            self._readers.unpark_all()
            self._forget_if_finished()
        if flags & RST:
            self._end_by_reset()

    def _forget_if_finished(self) -> None:
        if self._fin_sent and self._fin_received:
            self._conn.forget(self)

    def set_deadline(self, ttl: int) -> None:
        """Not supported: deadlines are cancel scopes here."""
        raise NotImplementedError("use a cancel scope")

    def get_remote_address(self) -> tuple[str, int] | None:
        """Host and port of the other end."""
        return self._conn.get_remote_address()

    async def __aenter__(self) -> YamuxStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
