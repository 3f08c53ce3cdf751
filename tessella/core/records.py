"""What a node says of itself in the swarm, signed, and where the swarm keeps it.

    record  = msgpack [payload, signature], both `bin`, at most 2 KiB
    payload = msgpack array of the fields of NodeRecord, in order
    /tessella/<peer id>   the key under which a node's record is stored
    multihash             of a model, or of the whole mesh: the key for which nodes say "I am one"

Anyone may store and hand on a record, nobody can change one or make it live longer: who signed is
named by the key, and the time it holds for is under the signature. It is verified before it is
parsed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgpack

from tessella.core.addresses import MAX_ADDRS, check_addr
from tessella.core.errors import BadAddress, BadConfig, BadFrame, FrameTooLarge, StaleRecord
from tessella.core.fields import from_plain, to_plain
from tessella.core.frames import KIB, unpack
from tessella.core.identity import Identity, check_signature, public_key_of
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.peers import NodeStatus, PeerRow

NAMESPACE = "/tessella/"
PURPOSE_NODE_RECORD = b"node record"

# About 400 bytes of fields and sixteen addresses of two families; every holder stores thousands.
MAX_RECORD = 2 * KIB
# A clock that is ahead by more than this makes records that outlive their node.
MAX_AHEAD = 30.0
# A record that says it lives longer is refused: its node could be gone for that long.
MAX_LIFE = 600.0
_STATUSES = frozenset(status.value for status in NodeStatus)
# Multihash `sha2-256` (0x12) of 32 bytes, as a CIDv1 of codec `raw` holds it.
_SHA256_PREFIX = bytes.fromhex("1220")
MULTIHASH_BYTES = len(_SHA256_PREFIX) + 32


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node of one model, at one time. The fields of PeerRow, and how long they hold."""

    peer_id: PeerId
    model: ModelId
    contract: str
    layers: LayerRange
    total_layers: int
    status: str
    """A NodeStatus value."""
    addrs: tuple[str, ...]
    device: str
    dtype: str
    queue_depth: int
    step_ms: float
    """Median milliseconds of one decode step through its layers; 0 while unmeasured."""
    api_url: str = ""
    """Where it answers over HTTP; empty if it does not."""
    canary: bool = False
    """Whether it answers wrongly on purpose; never a stage."""
    sequence: int
    """Rises with every record of a node, also when it is started again."""
    made_at: float
    """Seconds since 1970, by the node's clock."""
    life: float
    """Seconds from `made_at` for which the record may be offered: two beats."""

    @property
    def ends_at(self) -> float:
        """Seconds since 1970 from which the record may not be offered."""
        return self.made_at + self.life

    @classmethod
    def of(
        cls, row: PeerRow, *, sequence: int = 0, made_at: float = 0.0, life: float = 0.0
    ) -> NodeRecord:
        """The record of a row; who publishes it stamps the rest."""
        facts = {name: getattr(row, name) for name in _SHARED}
        return cls(**facts, sequence=sequence, made_at=made_at, life=life)


_SHARED = tuple(PeerRow.__dataclass_fields__)


def to_row(record: NodeRecord) -> PeerRow:
    """The record as routing reads it."""
    return PeerRow(**{name: getattr(record, name) for name in _SHARED})


def better(a: NodeRecord, b: NodeRecord) -> NodeRecord:
    """Which of two records of one node holds: the higher sequence, of equals the later."""
    return max(b, a, key=lambda record: (record.sequence, record.made_at))


def node_key(peer: PeerId) -> bytes:
    """Where the record of a node is stored."""
    return f"{NAMESPACE}{peer}".encode("ascii")


def peer_of_key(key: bytes) -> PeerId:
    """Whose record a key names. Raises BadFrame or BadSignature for any other key."""
    if not key.startswith(NAMESPACE.encode()) or not key.isascii():
        raise BadFrame(f"not a key {NAMESPACE}<peer id>: {key[:80]!r}")
    peer = key[len(NAMESPACE) :].decode("ascii")
    public_key_of(peer)
    return PeerId(peer)


def model_key(model: str, contract: str = "") -> bytes:
    """The key for which the nodes of a model are providers; a contract narrows it."""
    return _multihash("tessella/model/1\0" + model + ("\0" + contract if contract else ""))


def mesh_key() -> bytes:
    """The key for which every node of every model is a provider."""
    return _multihash("tessella/mesh/1\0")


def _multihash(text: str) -> bytes:
    return _SHA256_PREFIX + hashlib.sha256(text.encode()).digest()


def is_multihash(key: bytes) -> bool:
    """Whether a key may have providers."""
    return len(key) == MULTIHASH_BYTES and key.startswith(_SHA256_PREFIX)


def seal_record(record: NodeRecord, identity: Identity) -> bytes:
    """A record as its node signs it. Raises BadConfig if it is too long to be stored."""
    payload = msgpack.packb(to_plain(record), use_bin_type=True)
    signature = identity.sign(PURPOSE_NODE_RECORD, payload)
    data: bytes = msgpack.packb([payload, signature], use_bin_type=True)
    if len(data) > MAX_RECORD:
        raise BadConfig(
            f"the record of this node has {len(data)} bytes, over {MAX_RECORD}: shorten the name "
            f"of {record.model[:80]!r} or its {len(record.addrs)} addresses"
        )
    return data


def open_record(data: bytes, key: bytes, now: float) -> NodeRecord:
    """The record stored under a key, if its node signed it and it holds at `now`.

    Raises BadSignature for a record that is unsigned or of another node, StaleRecord for one out
    of its time, FrameTooLarge and BadFrame for what is no record or breaks its rules.
    """
    peer = peer_of_key(key)
    if len(data) > MAX_RECORD:
        raise FrameTooLarge(len(data), MAX_RECORD)
    payload, signature = _opened(data)
    fields = unpack(check_signature(peer, PURPOSE_NODE_RECORD, payload, signature))
    record = from_plain(NodeRecord, fields)
    _check_rules(record, peer)
    _check_time(record, now)
    return record


def _opened(data: bytes) -> tuple[bytes, bytes]:
    parts: list[Any] = unpack(data)
    if len(parts) != 2 or not all(type(part) is bytes for part in parts):
        raise BadFrame("a record that is not [payload, signature]")
    return parts[0], parts[1]


def _check_rules(record: NodeRecord, peer: PeerId) -> None:
    if record.peer_id != peer:
        raise BadFrame(f"a record of {record.peer_id[:64]!r} signed by {peer}")
    if record.status not in _STATUSES:
        raise BadFrame(f"a record with the status {record.status[:20]!r}")
    if record.layers.stop > record.total_layers:
        raise BadFrame(f"a record of layers {record.layers} of {record.total_layers}")
    if min(record.queue_depth, record.step_ms, record.sequence) < 0:
        raise BadFrame("a record with a negative number")
    if len(record.addrs) > MAX_ADDRS:
        raise BadFrame(f"a record with {len(record.addrs)} addresses, over {MAX_ADDRS}")
    try:
        for addr in record.addrs:
            check_addr(addr)
    except BadAddress as exc:
        raise BadFrame(f"a record with {exc}") from None


def _check_time(record: NodeRecord, now: float) -> None:
    if not 0 < record.life <= MAX_LIFE:
        raise StaleRecord(f"a record that lives {record.life:g} s, not up to {MAX_LIFE:g}")
    if record.made_at > now + MAX_AHEAD:
        raise StaleRecord(f"a record made {record.made_at - now:.0f} s in the future")
    if record.ends_at <= now:
        raise StaleRecord(f"a record that ended {now - record.ends_at:.0f} s ago")
