"""The streams that peers opened here over HTTP, each served by a handler as on libp2p."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

import trio

from p2p.peers import Handler
from p2p.router import handle
from p2p.streams import frame_stream
from tessella.core.errors import OutOfTurn, PeerReset, PeerSilent, TooManySessions
from tessella.core.ids import PeerId
from tessella.worker.http_hops.asks import Act, Ask, Said
from tessella.worker.http_hops.served import Body, ServedStream

# A caller that is there asks every few seconds; one that is not is noticed this much late.
SWEEP_SECONDS = 1.0

_Key = tuple[PeerId, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """What callers may hold here."""

    streams: int
    """In all."""
    per_peer: int
    silence: float
    """Seconds without a request after which a caller is gone."""


class HttpStreams:
    """The streams of one protocol.

    Resource handling: handlers run in the nursery that was given, and end with it. Start `run`
    there, for callers that go away to be noticed.
    """

    def __init__(self, protocol: str, nursery: trio.Nursery, limits: StreamLimits) -> None:
        self._protocol = protocol
        self._nursery = nursery
        self._limits = limits
        self._streams: dict[_Key, ServedStream] = {}
        self._of: Counter[PeerId] = Counter()

    def __len__(self) -> int:
        return len(self._streams)

    async def run(self) -> None:
        """Notice until cancelled who is gone."""
        while True:
            await trio.sleep(SWEEP_SECONDS)
            limit = self._limits.silence
            for stream in tuple(self._streams.values()):
                if stream.silent(limit):
                    stream.lose(PeerSilent(f"{stream.peer_id} asked nothing for {limit:g} s"))

    async def answer(
        self, caller: PeerId, ask: Ask, digest: str, body: Body, handler: Handler
    ) -> Said:
        """Do what a request asks; `handler` serves a stream that it opens.

        Only `caller` reaches a stream that it opened. Raises TooManySessions for a stream too many,
        OutOfTurn for a request that may not come now or is about no stream, and what `body` raises.
        """
        key = (caller, ask.stream)
        if ask.act is Act.OPEN:
            self._open(key, handler)
            return Said()
        stream = self._streams.get(key)
        if stream is None:
            raise OutOfTurn("no such stream is open here: it ended, or this node began anew")
        with stream.requested():
            match ask.act:
                case Act.READ:
                    return await stream.read(ask.number, ask.wait)
                case Act.RESET:
                    stream.lose(PeerReset(f"{caller} reset the stream"))
                case _:
                    finish = ask.act is Act.FINISH
                    await stream.write(ask.number, digest, body, finish=finish)
        return Said()

    def _open(self, key: _Key, handler: Handler) -> None:
        peer, limits = key[0], self._limits
        if key in self._streams:
            if not self._streams[key].untouched:
                raise OutOfTurn("a stream that is open already")
            return
        if self._of[peer] >= limits.per_peer:
            raise TooManySessions(f"{limits.per_peer} streams of one peer are open here")
        if len(self._streams) >= limits.streams:
            raise TooManySessions(f"all {limits.streams} streams are in use here")
        self._streams[key] = stream = ServedStream(peer)
        self._of[peer] += 1
        self._nursery.start_soon(partial(self._serve, key, stream, handler))

    async def _serve(self, key: _Key, stream: ServedStream, handler: Handler) -> None:
        try:
            await handle(handler, frame_stream(stream, self._protocol, opened=False))
            # What was said last is read by the next request, unless the caller is gone.
            await stream.until_told()
        finally:
            del self._streams[key]
            self._of[key[0]] -= 1
            if not self._of[key[0]]:
                del self._of[key[0]]
