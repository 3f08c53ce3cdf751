"""Nodes on the same local network, found by multicast: libp2p's mDNS discovery.

    _p2p._udp.local   PTR   <any name>._p2p._udp.local
    <any name>…       TXT   dnsaddr=/ip4/192.168.1.7/tcp/4001/p2p/12D3KooW…   one for each address

zeroconf runs threads of its own; what they find crosses into trio through a bounded channel.
Whoever shares the network can claim anything here: a found peer is only an address to dial, and
proves who it is when it is dialled.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import trio
from zeroconf import (  # type: ignore[attr-defined] # DNSText is not in its list of exports
    DNSText,
    InterfaceChoice,
    RecordUpdate,
    RecordUpdateListener,
    ServiceBrowser,
    ServiceInfo,
    ServiceStateChange,
    Zeroconf,
)
from zeroconf import Error as ZeroconfError

from tessella.core.addresses import MAX_ADDRS, PeerAddress, merge, parse_peer
from tessella.core.errors import BadAddress

SERVICE = "_p2p._udp.local."
PREFIX = b"dnsaddr="
# A household has a dozen nodes; more than this at once wait until they are announced again.
MAX_WAITING = 64
# Peers of which it is known that they were handed on already.
MAX_SEEN = 1024
# A DNS character string has one byte of length.
MAX_STRING = 255


def txt_of(peer: PeerAddress) -> bytes:
    """A peer's addresses as the strings of a TXT record. What is too long for one is left out."""
    strings = (PREFIX + addr.encode() for addr in peer.full()[:MAX_ADDRS])
    return b"".join(bytes([len(text)]) + text for text in strings if len(text) <= MAX_STRING)


def peers_in(txt: bytes) -> tuple[PeerAddress, ...]:
    """The peers in a TXT record: what can be dialled of it, and no complaint about the rest."""
    found: list[PeerAddress] = []
    while txt and len(found) < MAX_ADDRS:
        size, txt = txt[0], txt[1:]
        text, txt = txt[:size], txt[size:]
        if text.startswith(PREFIX):
            try:
                found.append(parse_peer(text.removeprefix(PREFIX).decode("ascii")))
            except (BadAddress, UnicodeDecodeError):
                continue
    return merge(found)


class _Listener(RecordUpdateListener):
    """Called by zeroconf's thread for every record; hands peers over to trio, each once."""

    def __init__(self, own: str, send: trio.MemorySendChannel[PeerAddress]) -> None:
        self._own = own
        self._send = send
        self._trio = trio.lowlevel.current_trio_token()
        self._seen: OrderedDict[PeerAddress, None] = OrderedDict()

    def async_update_records(self, zc: Zeroconf, now: float, records: list[RecordUpdate]) -> None:
        """Records arrived. js-libp2p sends a TXT and no address beside it: that is all it takes."""
        for record in (update.new for update in records):
            if isinstance(record, DNSText) and record.name.lower().endswith(SERVICE):
                for peer in peers_in(record.text):
                    if peer.peer_id != self._own:
                        self._hand_over(peer)

    def _hand_over(self, peer: PeerAddress) -> None:
        if peer in self._seen:
            return
        try:
            self._trio.run_sync_soon(self._put, peer)
        except trio.RunFinishedError:
            return  # the program ended while this thread was resolving a name

    def _put(self, peer: PeerAddress) -> None:
        try:
            self._send.send_nowait(peer)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            return
        self._seen[peer] = None
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)


@asynccontextmanager
async def open_lan(
    own: PeerAddress, interfaces: Sequence[str] | None = None
) -> AsyncIterator[trio.MemoryReceiveChannel[PeerAddress]]:
    """Announce a node on the local network, and receive the others, each once.

    `interfaces` are the addresses of the interfaces to use; None means all. A node without
    addresses only listens. Raises OSError where the network has no multicast.
    """
    send, receive = trio.open_memory_channel[PeerAddress](MAX_WAITING)
    listener = _Listener(own.peer_id, send)
    chosen = list(interfaces) if interfaces is not None else InterfaceChoice.All
    with _as_os_error():
        zeroconf = await trio.to_thread.run_sync(Zeroconf, chosen)
    try:
        with _as_os_error():
            await trio.to_thread.run_sync(_start, zeroconf, own, listener)
        async with receive:
            yield receive
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(zeroconf.close)


@contextmanager
def _as_os_error() -> Iterator[None]:
    """zeroconf tells of a network that it cannot use in several ways; a caller needs one."""
    try:
        yield
    except (RuntimeError, ZeroconfError) as exc:
        raise OSError(f"multicast DNS does not start: {exc!r}") from exc


def _start(zeroconf: Zeroconf, own: PeerAddress, listener: _Listener) -> None:
    if own.addrs:
        name = f"{secrets.token_hex(16)}.{SERVICE}"
        port = int(own.addrs[0].rsplit("/", 1)[1])
        host = f"{secrets.token_hex(8)}.local."
        info = ServiceInfo(SERVICE, name, port=port, properties=txt_of(own), server=host)
        zeroconf.register_service(info)
    zeroconf.add_listener(listener, None)
    ServiceBrowser(zeroconf, SERVICE, handlers=[_asks_only])


def _asks_only(
    zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
) -> None:
    """The browser is there for the questions it sends; records are read by the listener."""
