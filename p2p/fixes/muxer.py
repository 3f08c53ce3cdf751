"""Streams that survive cancellation, backpressure and each other."""

from __future__ import annotations

from libp2p.stream_muxer import muxer_multistream

from p2p.yamux.connection import YamuxConnection


def use_our_yamux() -> None:
    """Put our muxer behind /yamux/1.0.0. libp2p's own has these defects:

    - a cancelled write leaves half a Noise message on the wire, and a cancelled read does too,
      because it writes credit: the connection is wedged for every stream and still listed;
    - a window that stays empty for 5 s is an error at the writer and silence at the reader;
    - a local reset does not wake local readers, and a remote reset looks like a clean end;
    - every small read writes a frame of credit; a full frame needs two Noise messages;
    - the read loop writes, so two full connections can wait for each other for ever;
    - more than the receive window is accepted, with a line in the log;
    - a missing pong is ignored, and a stream the peer never finishes is kept for ever;
    - leaving takes a tenth of a second a connection.

    `muxer_opt` of a host does not choose the class: the negotiation names it directly.
    """
    muxer_multistream.Yamux = YamuxConnection  # type: ignore[attr-defined, assignment]
