"""All streams of one secured connection: what each frame does, and how it all ends.

Strategy. The reader never writes and never waits for a stream, so two peers whose buffers are
both full cannot wait for each other: what it owes goes to the outbox, what it reads to inboxes
that their windows bound. A connection ends once, in `_end`, and from then on everyone who waits
here is told.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio
from libp2p.abc import IMuxedConn, ISecureConn
from libp2p.connection_types import ConnectionType
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import MuxedConnUnavailable
from multiaddr import Multiaddr

from p2p.yamux.outbox import Outbox
from p2p.yamux.stream import YamuxStream
from p2p.yamux.wire import (
    ACK,
    DATA,
    END_NORMAL,
    END_PROTOCOL_ERROR,
    FIN,
    GO_AWAY,
    PING,
    RST,
    SYN,
    WINDOW_UPDATE,
    BadYamux,
    Body,
    Header,
    Parser,
    pack,
)
from tessella.core.frames import MIB

logger = logging.getLogger(__name__)

# Open streams a side may start on one connection, as in libp2p.
MAX_STREAMS = 256
# Inbound ones among them that nobody serves yet: a flood of SYN costs this many tasks.
MAX_UNSERVED = 64
# What all streams of a connection together may hold above their first 256 KiB.
WINDOW_BUDGET = 64 * MIB
PING_SECONDS = 30.0
# A process that is stopped still answers on TCP; one that owes a pong this long is dead to us.
PONG_LIMIT = 30.0
# Seconds a peer has to finish its side of a stream that we closed.
LINGER = 10.0
# Until it is measured: what a local network takes.
ASSUMED_RTT = 0.001
GOODBYE_LIMIT = 0.25


class YamuxConnection(IMuxedConn):
    """A multiplexed connection. `start` runs it to its end and raises nothing."""

    def __init__(
        self,
        conn: ISecureConn,
        peer_id: ID,
        is_initiator: bool | None = None,
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.secured_conn = conn
        self.peer_id = peer_id
        self.event_started = trio.Event()
        self.event_closed = trio.Event()
        self.on_close = on_close
        self.rtt = ASSUMED_RTT
        self.streams: dict[int, YamuxStream] = {}
        self._initiator = conn.is_initiator if is_initiator is None else is_initiator
        self._next_id = 1 if self._initiator else 2
        self._budget = WINDOW_BUDGET
        self._opened = {True: 0, False: 0}  # by whether it was the peer who opened them
        self._unserved = 0
        self._newcomers, self._accepting = trio.open_memory_channel[YamuxStream](MAX_STREAMS)
        self._outbox = Outbox()
        self._pong = trio.Event()
        self._running = trio.CancelScope()

    @property
    def is_initiator(self) -> bool:
        """Whether we dialled."""
        return self._initiator

    @property
    def is_established(self) -> bool:
        """Whether frames flow."""
        return self.event_started.is_set() and not self.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether the connection ended."""
        return self.event_closed.is_set()

    def get_transport_addresses(self) -> list[Multiaddr]:
        """Of the connection below."""
        return self.secured_conn.get_transport_addresses()

    def get_connection_type(self) -> ConnectionType:
        """Of the connection below."""
        return self.secured_conn.get_connection_type()

    def get_remote_address(self) -> tuple[str, int] | None:
        """Of the connection below."""
        return self.secured_conn.get_remote_address()

    # Writing.

    async def send(self, frame: bytes) -> None:
        """Queue one whole frame, once there is room. Raises MuxedConnUnavailable."""
        await self._outbox.send(frame)

    def post(self, frame: bytes) -> None:
        """Queue a whole frame that nobody waits for: credit, FIN, RST, a pong."""
        if not self._outbox.post(frame):
            self._end("the peer takes none of what we owe it")

    async def _write(self) -> None:
        try:
            await self._outbox.write_to(self.secured_conn.write)
        except Exception as exc:  # noqa: BLE001 - transports fail in any way
            self._end(f"writing ended: {exc!r}")

    def _check_open(self) -> None:
        if self.is_closed:
            raise MuxedConnUnavailable("the connection ended")

    # Running.

    async def start(self) -> None:
        """Run until the connection ends, by whichever side."""
        try:
            with self._running:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._watch)
                    self.event_started.set()
                    await self._read()
                    nursery.cancel_scope.cancel()
        finally:
            self._end("it was stopped")
            await self._close_below()
        await self.close()

    async def _read(self) -> None:
        parser = Parser()
        try:
            while not self.is_closed:
                for part in parser.feed(await self.secured_conn.read()):
                    self._handle(part)
        except BadYamux as exc:
            self.post(pack(GO_AWAY, 0, 0, END_PROTOCOL_ERROR))
            await self._say_goodbye()
            self._end(f"the peer broke yamux: {exc}")
        except Exception as exc:  # noqa: BLE001 - the end of a connection has many names
            self._end(f"reading ended: {exc!r}")

    async def _watch(self) -> None:
        """Ping now and then, and reset streams whose other side never finishes."""
        number = 0
        while not self.is_closed:
            self._pong = trio.Event()
            number = number + 1 & 0xFFFFFFFF
            sent = trio.current_time()
            self.post(pack(PING, SYN, 0, number))
            with trio.move_on_after(PONG_LIMIT) as scope:
                await self._pong.wait()
            if scope.cancelled_caught:
                self._end(f"no answer for {PONG_LIMIT:g} s")
                return
            self.rtt = trio.current_time() - sent
            for _ in range(int(PING_SECONDS / LINGER)):
                await trio.sleep(LINGER)
                self._end_lingering()

    def _end_lingering(self) -> None:
        oldest = trio.current_time() - LINGER
        for stream in tuple(self.streams.values()):
            if stream.closed_at < oldest:
                stream.reset_now()

    # What a frame does.

    def _handle(self, part: Header | Body) -> None:
        if isinstance(part, Body):
            stream = self.streams.get(part.header.stream_id)
            if stream is not None:
                stream.arrived(part.data)
                if not part.left:
                    stream.flagged(part.header.flags)
        elif part.kind == PING:
            self._handle_ping(part)
        elif part.kind == GO_AWAY:
            self._end("the peer said goodbye")
        else:
            self._handle_stream(part)

    def _handle_ping(self, header: Header) -> None:
        if header.flags & SYN:
            self.post(pack(PING, ACK, 0, header.length))
        else:
            self._pong.set()

    def _handle_stream(self, header: Header) -> None:
        if header.flags & SYN:
            self._admit(header.stream_id)
        stream = self.streams.get(header.stream_id)
        if stream is None:  # given up here, with frames still on their way
            return
        if header.kind == WINDOW_UPDATE:
            stream.credited(header.length)
        else:
            stream.expect(header.length)
        if (header.kind != DATA or not header.length) and header.flags & (FIN | RST):
            stream.flagged(header.flags)

    def _admit(self, stream_id: int) -> None:
        theirs = stream_id != 0 and (stream_id % 2 == 0) == self._initiator
        if not theirs or stream_id in self.streams:
            raise BadYamux(f"stream {stream_id} was opened")
        if self._opened[True] >= MAX_STREAMS or self._unserved >= MAX_UNSERVED:
            self.post(pack(WINDOW_UPDATE, RST, stream_id, 0))
            return
        stream = YamuxStream(self, stream_id, inbound=True)
        try:
            self._newcomers.send_nowait(stream)
        except (trio.WouldBlock, trio.BrokenResourceError):
            self.post(pack(WINDOW_UPDATE, RST, stream_id, 0))
            return
        self._keep(stream)
        self._unserved += 1
        self.post(pack(WINDOW_UPDATE, ACK, stream_id, 0))

    def _keep(self, stream: YamuxStream) -> None:
        self.streams[stream.stream_id] = stream
        self._opened[stream.inbound] += 1

    # Streams.

    async def open_stream(self) -> YamuxStream:
        """A stream of ours. Raises MuxedConnUnavailable if the connection ended or is full."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        if self._opened[False] >= MAX_STREAMS:
            raise MuxedConnUnavailable(f"{MAX_STREAMS} streams are open")
        stream = YamuxStream(self, self._next_id, inbound=False)
        self._keep(stream)
        self._next_id += 2
        self.post(pack(WINDOW_UPDATE, SYN, stream.stream_id, 0))
        return stream

    async def accept_stream(self) -> YamuxStream:
        """The next stream of the peer's. Raises MuxedConnUnavailable at the end."""
        try:
            return await self._accepting.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise MuxedConnUnavailable("the connection ended") from None

    def forget(self, stream: YamuxStream) -> None:
        """A stream ended in both directions; what it was lent comes back."""
        if self.streams.pop(stream.stream_id, None) is not None:
            self._budget += stream.lent()
            self._opened[stream.inbound] -= 1
            self.serve(stream)

    def serve(self, stream: YamuxStream) -> None:
        """An inbound stream has a protocol, whose quota counts it from here on, or it ended."""
        if stream.unserved:
            stream.unserved = False
            self._unserved -= 1

    def lend_window(self, size: int) -> int:
        """As much of `size` as the connection's budget has left."""
        lent = min(size, self._budget)
        self._budget -= lent
        return lent

    # Ending.

    def _end(self, why: str) -> None:
        """From here on nothing is sent, and everyone who waits is told."""
        if self.is_closed:
            return
        logger.debug("connection to %s ended: %s", self.peer_id, why)
        self.event_closed.set()
        self._newcomers.close()
        self._running.cancel()
        for stream in self.streams.values():
            stream.wake()

    async def _say_goodbye(self) -> None:
        with _briefly():
            await self._outbox.drained()

    async def _close_below(self) -> None:
        with _briefly():
            try:
                await self.secured_conn.close()
            except Exception as exc:  # noqa: BLE001 - it is closed whatever it says
                logger.debug("closing the connection to %s: %r", self.peer_id, exc)

    async def close(self) -> None:
        """Say goodbye, briefly, and end. Twice is no error."""
        if not self.is_closed:
            self.post(pack(GO_AWAY, 0, 0, END_NORMAL))
            await self._say_goodbye()
        self._end("closed here")
        await self._close_below()
        callback, self.on_close = self.on_close, None
        if callback is not None:
            await callback()


def _briefly() -> trio.CancelScope:
    """For a last word, even while everything around is cancelled."""
    return trio.CancelScope(shield=True, deadline=trio.current_time() + GOODBYE_LIMIT)
