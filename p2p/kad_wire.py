"""kad-dht's messages, as js-libp2p and go-libp2p speak them, under a protocol id of our own.

    varint length | protobuf Message

    Message  1 type   2 key   3 Record   8 closer Peer…   9 provider Peer…   10 (not used)
    Record   1 key    2 value            5 time received, as RFC 3339
    Peer     1 id     2 multiaddr…       3 connection     (not used)

What others add is passed over: other fields, peers of other key types, addresses we do not dial.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from p2p.kad_addresses import decode_addrs, encode_addr
from p2p.protobuf import bytes_field, number_field, read_fields, read_varint, varint
from tessella.core.addresses import PeerAddress
from tessella.core.errors import BadFrame, FrameTooLarge
from tessella.core.frames import KIB, MIB, NEED, NeedData
from tessella.core.kademlia import peer_bytes, peer_from_bytes

KAD = "/tessella/kad/1.0.0"

# A question: a record of 2 KiB, or one provider with sixteen addresses.
MAX_QUESTION = 64 * KIB
# go and js stop at 4 MiB too; our own longest answer, a thousand providers, is a tenth of it.
MAX_ANSWER = 4 * MIB
# go-libp2p refuses longer keys; ours have 34 and 62 bytes, a peer id 38.
MAX_KEY = 80
# Peers that are kept of one list of one answer. Ours has at most 1,024 providers.
MAX_LISTED = 1024
# The same peers are named in answer after answer: as many of them, up to this size in bytes, are
# read and written once. Four thousand of 512 bytes are 2 MiB.
CACHED = 4096
SMALL = 512
# A length of five groups of bits is 32 GiB.
_MAX_LENGTH_BYTES = 5


class Kind(IntEnum):
    """What is asked, and what an answer answers."""

    PUT_VALUE = 0
    GET_VALUE = 1
    ADD_PROVIDER = 2
    GET_PROVIDERS = 3
    FIND_NODE = 4
    PING = 5


@dataclass(frozen=True, slots=True)
class KadMessage:
    """One question or answer. `value` is the record's, stored under `key`."""

    kind: Kind
    key: bytes = b""
    value: bytes | None = None
    closer: tuple[PeerAddress, ...] = ()
    providers: tuple[PeerAddress, ...] = ()
    received: str = ""
    """When the value was stored, for implementations that want to know; read by nobody here."""


def encode(message: KadMessage) -> bytes:
    """A message with its length before it."""
    parts = [number_field(1, message.kind)]
    if message.key:
        parts.append(bytes_field(2, message.key))
    if message.value is not None:
        record = bytes_field(1, message.key) + bytes_field(2, message.value)
        if message.received:
            record += bytes_field(5, message.received.encode())
        parts.append(bytes_field(3, record))
    parts += [bytes_field(8, _peer(peer)) for peer in message.closer]
    parts += [bytes_field(9, _peer(peer)) for peer in message.providers]
    body = b"".join(parts)
    return varint(len(body)) + body


@lru_cache(maxsize=CACHED)
def _peer(peer: PeerAddress) -> bytes:
    addrs = (bytes_field(2, encode_addr(addr)) for addr in peer.addrs)
    return bytes_field(1, peer_bytes(peer.peer_id)) + b"".join(addrs)


def decode(body: bytes) -> KadMessage:
    """The message in one body, without its length. Raises BadFrame."""
    kind, key, value = 0, b"", None
    lists: dict[int, list[bytes]] = {8: [], 9: []}
    for field, content in read_fields(body):
        if field == 1:
            kind = _number(content)
        elif field == 2:
            key = _bytes(content)
        elif field == 3:
            value = _value(_bytes(content))
        elif field in lists and len(lists[field]) < MAX_LISTED:
            lists[field].append(_bytes(content))
    if len(key) > MAX_KEY:
        raise BadFrame(f"a key of {len(key)} bytes, over {MAX_KEY}")
    return KadMessage(_kind(kind), key, value, _peers(lists[8]), _peers(lists[9]))


def _kind(number: int) -> Kind:
    try:
        return Kind(number)
    except ValueError:
        raise BadFrame(f"unknown kind {number}") from None


def _value(record: bytes) -> bytes | None:
    values = [_bytes(content) for field, content in read_fields(record) if field == 2]
    return values[-1] if values else None


def _peers(found: Iterable[bytes]) -> tuple[PeerAddress, ...]:
    """Peers with an Ed25519 key; what is torn is refused, what is foreign passed over."""
    peers = (_small_peer(data) if len(data) <= SMALL else _read_peer(data) for data in found)
    return tuple(peer for peer in peers if peer is not None)


def _read_peer(data: bytes) -> PeerAddress | None:
    fields = list(read_fields(data))
    ids = [_bytes(content) for field, content in fields if field == 1]
    addrs = [_bytes(content) for field, content in fields if field == 2]
    try:
        peer = peer_from_bytes(ids[-1] if ids else b"")
    except BadFrame:
        return None
    return decode_addrs(addrs, peer)


_small_peer = lru_cache(maxsize=CACHED)(_read_peer)


def _number(content: int | bytes) -> int:
    if not isinstance(content, int):
        raise BadFrame("bytes where a number belongs")
    return content


def _bytes(content: int | bytes) -> bytes:
    if not isinstance(content, bytes):
        raise BadFrame("a number where bytes belong")
    return content


class MessageReader:
    """Bytes in, messages out: `feed` what arrived, take `next` until it answers NEED."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Keep bytes that arrived."""
        self._buffer += data

    def next(self) -> KadMessage | NeedData:
        """The next message, or NEED. Raises BadFrame; FrameTooLarge as the length is there."""
        try:
            length, at = read_varint(self._buffer[:_MAX_LENGTH_BYTES], 0)
        except IndexError:
            if len(self._buffer) >= _MAX_LENGTH_BYTES:
                raise BadFrame("a length that does not end") from None
            return NEED
        if length > self._cap:
            raise FrameTooLarge(length, self._cap)
        if len(self._buffer) < at + length:
            return NEED
        body = bytes(self._buffer[at : at + length])
        del self._buffer[: at + length]
        return decode(body)

    def close(self) -> None:
        """The peer finished. Raises BadFrame if it stopped in the middle of a message."""
        if self._buffer:
            raise BadFrame(f"the stream ended within a message, after {len(self._buffer)} bytes")
