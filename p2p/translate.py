"""libp2p's exceptions as ours: the one table between the two trees.

A class of libp2p is looked up by itself and then by its bases, so a new leaf still has a meaning;
a test compares the table with what libp2p defines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio
from libp2p.exceptions import BaseLibp2pError
from libp2p.host.exceptions import ConnectionFailure, HostException, StreamFailure
from libp2p.io import exceptions as io
from libp2p.network import exceptions as network
from libp2p.network.connection.exceptions import RawConnError
from libp2p.network.stream import exceptions as stream
from libp2p.protocol_muxer import exceptions as negotiation
from libp2p.security.exceptions import HandshakeFailure, SecurityError
from libp2p.stream_muxer import exceptions as muxer
from libp2p.transport import exceptions as transport

from tessella.core.errors import (
    LocalError,
    PeerClosed,
    PeerGone,
    PeerReset,
    PeerUnreachable,
    Refused,
    RemoteError,
    TessellaError,
)

TABLE: dict[type[Exception], type[TessellaError]] = {
    # A stream of bytes.
    muxer.MuxedStreamEOF: PeerClosed,
    muxer.MuxedStreamReset: PeerReset,
    muxer.MuxedStreamClosed: LocalError,
    muxer.MuxedStreamError: PeerReset,
    muxer.MuxedConnUnavailable: PeerClosed,
    muxer.MuxedConnError: PeerClosed,
    stream.StreamEOF: PeerClosed,
    stream.StreamReset: PeerReset,
    stream.StreamClosed: LocalError,
    stream.StreamError: PeerReset,
    # A connection.
    io.ConnectionClosedError: PeerClosed,
    io.IncompleteReadError: PeerClosed,
    io.MissingLengthException: RemoteError,
    io.MissingMessageException: RemoteError,
    io.DecryptionFailedException: RemoteError,
    io.MessageTooLarge: RemoteError,
    io.MsgioException: RemoteError,
    io.IOException: PeerClosed,
    RawConnError: PeerClosed,
    # Negotiation.
    negotiation.ProtocolNotSupportedError: Refused,
    negotiation.MultiselectClientError: RemoteError,
    negotiation.MultiselectCommunicatorError: RemoteError,
    negotiation.MultiselectError: RemoteError,
    # Dialling.
    transport.OpenConnectionError: PeerUnreachable,
    transport.SecurityUpgradeFailure: PeerUnreachable,
    transport.MuxerUpgradeFailure: PeerUnreachable,
    transport.UpgradeFailure: PeerUnreachable,
    HandshakeFailure: PeerUnreachable,
    SecurityError: PeerUnreachable,
    network.SwarmDialAllFailedError: PeerUnreachable,
    network.SwarmException: PeerUnreachable,
    ConnectionFailure: PeerUnreachable,
    StreamFailure: PeerUnreachable,
    HostException: PeerUnreachable,
    # What is left of a connection whose socket is gone.
    trio.BrokenResourceError: PeerClosed,
    trio.ClosedResourceError: PeerClosed,
    OSError: PeerClosed,
    BaseLibp2pError: PeerGone,
}


def ours(error: Exception, about: str) -> TessellaError:
    """The error of our tree for one of libp2p's. What is not in the table is a bug."""
    for kind in type(error).__mro__:
        found = TABLE.get(kind)
        if found is not None:
            return found(f"{about}: {_reason(error)}")
    return LocalError(f"{about}: libp2p raised {type(error).__name__}: {error}")


def _reason(error: BaseException) -> str:
    """What went wrong at the bottom: libp2p's outer words only repeat the peer's id."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif error.__cause__ is not None:
            error = error.__cause__
        else:
            break
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__


@contextmanager
def translated(about: str) -> Iterator[None]:
    """Raise libp2p's errors as ours. `about` names the peer."""
    try:
        yield
    except (TessellaError, trio.TooSlowError):
        raise
    except Exception as exc:  # the edge: whatever is not ours becomes ours here
        raise ours(exc, about) from exc
