"""What a peer on a network can do. The real host and the memory network both do it.

A node, musivum and the commands are written against `Host`; which network is below is known only
where a program starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from p2p.streams import ByteStream, FrameStream
from tessella.core.addresses import Ip, PeerAddress
from tessella.core.ids import PeerId

Handler = Callable[[FrameStream], Awaitable[None]]
"""Serves one inbound stream. The router ends the stream when it returns or raises."""

BytesHandler = Callable[[ByteStream], Awaitable[None]]
"""The same for a protocol that is not of our frames."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What came of dialling a peer's addresses anew."""

    proven: tuple[str, ...]
    """Where somebody with its key answered: of the addresses given, each once, in their order."""
    failures: tuple[str, ...]
    """A line for each other address, which begins with it and says what happened there."""
    ips: tuple[Ip, ...] = ()
    """Where that was, each once: of a name, the address behind it that answered."""


class Host(Protocol):
    """One peer's presence on a network, open for as long as its context manager."""

    @property
    def address(self) -> PeerAddress:
        """Who we are, and where others can dial us (wildcards expanded, port 0 resolved)."""

    @property
    def protocols(self) -> tuple[str, ...]:
        """What it serves, in the order in which that began."""

    def serve(self, protocol: str, handler: Handler, *, streams: int, per_peer: int) -> None:
        """Answer a protocol. Beyond `streams` in all, or `per_peer` of one peer, a stream is
        answered with `Fail("too_many_sessions")` and closed: refused, never queued.
        """

    def serve_bytes(
        self, protocol: str, handler: BytesHandler, *, streams: int, per_peer: int
    ) -> None:
        """Answer a protocol that is not of our frames. Beyond the quotas a stream is reset."""

    async def connect(self, peer: PeerAddress, *, timeout: float) -> None:
        """Be connected to the peer: at once if we are, else by racing its addresses.

        Raises PeerUnreachable that names the peer and what its addresses answered.
        """

    async def prove(self, peer: PeerAddress, *, timeout: float) -> Proof:
        """At which of its addresses a peer answers with its key, all dialled anew, side by side.

        Connections that are open already are neither used nor touched, and none is left behind.
        Takes `timeout` at most, and raises nothing for a peer that does not answer. Beyond
        MAX_ADDRS addresses are not tried, which one more line of the failures says.
        """

    async def open_stream(self, peer: PeerId, protocol: str, *, timeout: float) -> FrameStream:
        """A stream of a protocol to a connected peer. The caller closes or resets it.

        Raises PeerUnreachable if there is no connection, PeerGone if it ends meanwhile, Refused
        if the peer does not speak the protocol, PeerSilent if it does not answer in time.
        """

    async def open_bytes(self, peer: PeerId, protocol: str, *, timeout: float) -> ByteStream:
        """As `open_stream`, for a protocol that is not of our frames."""

    def connected(self) -> tuple[PeerId, ...]:
        """The peers a connection is open to."""

    async def disconnect(self, peer: PeerId) -> None:
        """Close the connections to a peer. None is no error."""
