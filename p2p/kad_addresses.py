"""Multiaddrs in binary, as kad-dht carries them: the shapes of `tessella.core.addresses`.

    /ip4 /ip6 /dns /dns4 /dns6, then /tcp, then perhaps /p2p

Foreign peers list others beside them (QUIC, WebSocket, relays): those are passed over.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from p2p.protobuf import read_varint, varint
from tessella.core.addresses import MAX_ADDRS, PeerAddress, check_addr
from tessella.core.errors import BadAddress, BadFrame
from tessella.core.ids import PeerId
from tessella.core.kademlia import peer_bytes

_IP4, _TCP, _IP6, _P2P = 4, 6, 41, 421
_NAMES = {53: "dns", 54: "dns4", 55: "dns6"}
_NAME_CODES = {name: code for code, name in _NAMES.items()}
# A host name has at most 253 letters; a longer component is none of ours.
_MAX_COMPONENT = 253


def encode_addr(addr: str) -> bytes:
    """A transport address in binary. Raises BadAddress for one of another shape."""
    _, family, host, _, port = check_addr(addr).split("/")
    tcp = varint(_TCP) + int(port).to_bytes(2, "big")
    if family in _NAME_CODES:
        return varint(_NAME_CODES[family]) + varint(len(host)) + host.encode("ascii") + tcp
    code = _IP4 if family == "ip4" else _IP6
    return varint(code) + ipaddress.ip_address(host).packed + tcp


def decode_addr(data: bytes, peer: PeerId) -> str | None:
    """The transport address of a peer, or None for one that this project does not dial."""
    try:
        host, at = _read_host(data)
        code, at = read_varint(data, at)
        port, rest = data[at : at + 2], data[at + 2 :]
        if code != _TCP or len(port) != 2 or rest not in (b"", _suffix(peer)):
            return None
        return check_addr(f"{host}/tcp/{int.from_bytes(port, 'big')}")
    except (IndexError, ValueError, BadFrame, BadAddress):
        return None


def _suffix(peer: PeerId) -> bytes:
    raw = peer_bytes(peer)
    return varint(_P2P) + varint(len(raw)) + raw


def _read_host(data: bytes) -> tuple[str, int]:
    code, at = read_varint(data, 0)
    if code in (_IP4, _IP6):
        size = 4 if code == _IP4 else 16
        # A scope id would be text behind the address; the binary form has none.
        return f"/{'ip4' if size == 4 else 'ip6'}/{_ip(data[at : at + size], size)}", at + size
    size, at = read_varint(data, at)
    if code not in _NAMES or size > _MAX_COMPONENT or at + size > len(data):
        raise ValueError
    return f"/{_NAMES[code]}/{data[at : at + size].decode('ascii')}", at + size


def _ip(raw: bytes, size: int) -> str:
    if len(raw) != size:
        raise ValueError
    return str(ipaddress.ip_address(raw))


def decode_addrs(found: Iterable[bytes], peer: PeerId) -> PeerAddress:
    """A peer with those of its addresses that can be dialled, at most MAX_ADDRS."""
    texts: dict[str, None] = {}
    for data in found:
        text = decode_addr(data, peer)
        if text is not None and len(texts) < MAX_ADDRS:
            texts[text] = None
    return PeerAddress(peer, tuple(texts))
