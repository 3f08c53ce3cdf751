"""libp2p's streams as `ByteStream`s, and how one is opened in a single round trip."""

from __future__ import annotations

from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.network.stream.net_stream import NetStream
from libp2p.stream_muxer.exceptions import MuxedStreamEOF
from libp2p.utils.varint import encode_delim

from p2p.fixes.negotiation import read_message
from p2p.translate import translated
from p2p.yamux.stream import YamuxStream
from tessella.core.errors import LocalError, PeerReset, Refused, RemoteError
from tessella.core.ids import PeerId

MULTISTREAM = "/multistream/1.0.0"
NOT_SPOKEN = "na"


class Libp2pStream:
    """A `p2p.streams.ByteStream` over our yamux, below libp2p's bookkeeping.

    Bytes pass the bookkeeping by, with its four locks a message; ends go through it.
    """

    def __init__(self, stream: INetStream) -> None:
        muxed = getattr(stream, "muxed_stream", None)
        if not isinstance(muxed, YamuxStream):
            raise LocalError(f"a stream of {type(muxed).__name__}, not of our yamux")
        self.peer_id = PeerId(str(muxed.muxed_conn.peer_id))
        self._stream = stream
        self._muxed = muxed

    def serve(self) -> None:
        """A protocol has a quota for this stream: it stops being one of the unserved."""
        self._muxed.serve()

    @property
    def idle(self) -> bool:
        """Open both ways, and nothing to read."""
        return self._muxed.idle

    async def send_all(self, data: bytes) -> None:
        """Write it all."""
        with translated(self.peer_id):
            await self._muxed.write(data)

    async def receive_some(self, max_bytes: int) -> bytes:
        """What has arrived, or b"" at the end."""
        with translated(self.peer_id):
            try:
                return await self._muxed.read(max_bytes)
            except MuxedStreamEOF:
                return b""

    async def aclose(self) -> None:
        """Finish our side and read no more."""
        with translated(self.peer_id):
            await self._stream.close()

    async def reset(self) -> None:
        """Give both directions up."""
        await self._stream.reset()


async def negotiate(stream: NetStream, protocol: str) -> Libp2pStream:
    """Agree on a protocol: both messages in one write. Resets the stream if that fails.

    Raises Refused if the peer does not speak it, RemoteError if it answers anything else.
    """
    found = Libp2pStream(stream)
    agreed = False
    try:
        await found.send_all(encode_delim(MULTISTREAM.encode()) + encode_delim(protocol.encode()))
        with translated(found.peer_id):
            answers = (await read_message(stream.muxed_stream), await _read_last(stream))
        if answers == (MULTISTREAM, NOT_SPOKEN):
            raise Refused(f"{found.peer_id} does not speak {protocol}")
        if answers != (MULTISTREAM, protocol):
            raise RemoteError(f"{found.peer_id} answered {answers[1][:80]!r} to {protocol}")
        stream.set_protocol(TProtocol(protocol))
        agreed = True
    except MuxedStreamEOF:
        raise PeerReset(f"{found.peer_id} ended the stream unanswered") from None
    finally:
        if not agreed:
            await found.reset()
    return found


async def _read_last(stream: NetStream) -> str:
    return await read_message(stream.muxed_stream)
