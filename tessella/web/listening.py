"""HOST:PORT as an operator writes it, and the sockets that listen there."""

from __future__ import annotations

import errno
import socket
import sys

import trio

from tessella.core.errors import BadAddress, PortInUse
from tessella.web.hosts import bracketed, read_host

BACKLOG = 100
"""Connections the kernel keeps for us until they are accepted, an address."""
RESOLVE_SECONDS = 10.0
"""To look up the name of an address of this machine."""
_DUAL = "::"
_SHOWN = 80


def parse_http_listen(text: str) -> tuple[str, int]:
    """The host and the port of `127.0.0.1:80`, `[::1]:80`, `localhost:80` or `:80`.

    An empty host is all interfaces, port 0 one that is free. Raises BadAddress that names the text.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        raise BadAddress(f"not HOST:PORT: {text[:_SHOWN]!r}")
    if not (port.isdecimal() and port.isascii() and len(port) <= 5 and int(port) <= 65535):
        raise BadAddress(f"no TCP port {port[:_SHOWN]!r} in {text[:_SHOWN]!r}")
    if not host:
        return "", int(port)
    inner = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        found = read_host(inner)
    except ValueError as exc:
        raise BadAddress(f"{exc}, in {text[:_SHOWN]!r}") from None
    if (":" in inner) == (inner == host):
        raise BadAddress(f"brackets are for IPv6, and IPv6 has them: {text[:_SHOWN]!r}")
    return str(found), int(port)


async def open_listeners(text: str) -> list[trio.SocketListener]:
    """Listen on HOST:PORT, on all addresses of a name; whoever calls closes what is returned.

    With port 0 only the first address of a name is used: two would get two ports.
    Raises PortInUse or BadAddress that names the text.
    """
    host, port = parse_http_listen(text)
    opened: list[trio.SocketListener] = []
    try:
        for family, address in await _addresses(host, port, text):
            listener = await _listen(family, address, port)
            if listener is not None:
                opened.append(listener)
            if opened and port == 0:
                break
    except OSError as exc:
        await close_listeners(opened)
        raise _refused(text, exc) from None
    except BaseException:
        await close_listeners(opened)
        raise
    if not opened:
        raise BadAddress(f"cannot listen on {text}: no such address on this machine")
    return opened


async def close_listeners(listeners: list[trio.SocketListener]) -> None:
    """Close them, also when cancelled."""
    for listener in listeners:
        await trio.aclose_forcefully(listener)


def bound_url(listener: trio.SocketListener) -> str:
    """Where the listener can be reached, as `http://host:port`."""
    host, port = listener.socket.getsockname()[:2]
    return f"http://{bracketed(host)}:{port}"


async def _addresses(host: str, port: int, text: str) -> list[tuple[int, str]]:
    if not host:
        # One socket for both families has one port. Without IPv6 it is the IPv4 wildcard.
        return [(socket.AF_INET6, _DUAL)] if _has_ipv6() else [(socket.AF_INET, "0.0.0.0")]
    try:
        with trio.fail_after(RESOLVE_SECONDS):
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, trio.TooSlowError):
        raise BadAddress(f"cannot listen on {text}: {host} has no address here") from None
    return list(dict.fromkeys((int(family), str(where[0])) for family, _, _, _, where in found))


async def _listen(family: int, address: str, port: int) -> trio.SocketListener | None:
    """A listener; None where the machine lacks that family. Raises OSError."""
    try:
        sock = trio.socket.socket(family, socket.SOCK_STREAM)
    except OSError as exc:
        if exc.errno == errno.EAFNOSUPPORT:
            return None
        raise
    try:
        if sys.platform != "win32":  # where it would let two programs have one port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address != _DUAL))
        await sock.bind((address, port))
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        if exc.errno == errno.EADDRNOTAVAIL:
            return None
        raise
    except BaseException:
        sock.close()
        raise
    return trio.SocketListener(sock)


def _has_ipv6() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((_DUAL, 0))
    except OSError:
        return False
    return True


def _refused(text: str, exc: OSError) -> BadAddress | PortInUse:
    if exc.errno == errno.EADDRINUSE:
        return PortInUse(f"another program listens on {text}")
    return BadAddress(f"cannot listen on {text}: {exc.strerror}")
