"""Sockets that notice a vanished peer, know whom they talk to, and write at once."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import trio
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.io.trio import TrioTCPStream

# Silence of 10 s is asked about, then every 5 s; three unanswered end the connection.
KEEPALIVE_IDLE = 10
KEEPALIVE_INTERVAL = 5
KEEPALIVE_PROBES = 3
# Milliseconds that sent bytes may stay unacknowledged.
USER_TIMEOUT_MS = 20_000

_OPTIONS = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", KEEPALIVE_IDLE),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", KEEPALIVE_INTERVAL),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", KEEPALIVE_PROBES),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
)


def notice_vanished_peers() -> None:
    """Have the kernel watch every connection, dialled or accepted.

    Without it a peer that lost its power stays "connected" for about a quarter of an hour.
    """
    stock = TrioTCPStream.__init__

    def init(self: TrioTCPStream, stream: trio.SocketStream) -> None:
        stock(self, stream)
        for level, name, value in _OPTIONS:
            # Not every system has every option, and a socket that just died takes none.
            with suppress(AttributeError, OSError):
                stream.socket.setsockopt(level, getattr(socket, name), value)

    TrioTCPStream.__init__ = init  # type: ignore[method-assign]


def _remote_address(self: TrioTCPStream) -> tuple[str, int] | None:
    if self._cached_remote_address is None:
        with suppress(OSError):
            host, port = self.stream.socket.getpeername()[:2]
            self._cached_remote_address = (str(host), int(port))
    return self._cached_remote_address


def read_ipv6_addresses() -> None:
    """Take host and port from an IPv6 address, which has four parts.

    libp2p expects two and answers None: no limit by address holds for such a peer.
    """
    TrioTCPStream.get_remote_address = _remote_address  # type: ignore[method-assign]


def write_at_once() -> None:
    """Hand the kernel what it takes now, without a turn of the loop for a lock before it.

    A hop is a small frame on an idle connection, and its reader waits for nothing else.
    """
    stock = TrioTCPStream.write

    async def write(self: TrioTCPStream, data: bytes) -> None:
        taken = 0
        if not self.write_lock.locked():
            try:
                taken = os.write(self.stream.socket.fileno(), data)
            except BlockingIOError:
                pass
            except OSError as exc:
                raise ConnectionClosedError(f"the connection ended: {exc}") from exc
        if taken < len(data):
            await stock(self, data[taken:])

    TrioTCPStream.write = write  # type: ignore[method-assign]
