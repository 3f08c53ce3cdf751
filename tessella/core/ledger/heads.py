"""What a musivum signs of its whole ledger: how long it is and what it holds, at one time.

    head    = payload and signature, kept and sent beside each other
    payload = msgpack array of the fields of Head, in order

Two heads of one size with different roots, both signed, prove that two histories were told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import msgpack

from tessella.core.errors import BadFrame, FrameTooLarge, LocalError
from tessella.core.fields import from_plain, to_plain
from tessella.core.frames import unpack
from tessella.core.identity import Identity, check_signature
from tessella.core.ids import PeerId
from tessella.core.ledger.entries import ZERO_HASH
from tessella.core.ledger.tree import EMPTY_ROOT, HASH_BYTES

PURPOSE_LEDGER_HEAD = b"ledger head"

# An id, two hashes and two numbers are about 140 bytes.
MAX_HEAD = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A ledger of `size` entries."""

    origin: PeerId
    """Whose ledger, and who signs."""
    size: int
    root: bytes
    """Of the tree over all entries; EMPTY_ROOT when there is none."""
    last: bytes
    """The hash of the last entry; ZERO_HASH when there is none."""
    at: float
    """Seconds since 1970, by the clock of its origin."""


def seal_head(head: Head, identity: Identity) -> tuple[bytes, bytes]:
    """The payload of a head and its signature.

    Raises LocalError for a head of another ledger or one that breaks the rules of heads.
    """
    try:
        _check_rules(head, identity.peer_id)
    except BadFrame as exc:
        raise LocalError(f"{exc} is not signed") from exc
    plain = to_plain(replace(head, at=float(head.at)))
    payload: bytes = msgpack.packb(plain, use_bin_type=True)
    return payload, identity.sign(PURPOSE_LEDGER_HEAD, payload)


def open_head(payload: bytes, signature: bytes, origin: str) -> Head:
    """The head of the ledger of a musivum, if it signed it.

    Raises BadSignature for one that it did not sign, before a byte of it is parsed, then
    FrameTooLarge and BadFrame for what is no head of its ledger or breaks the rules of heads.
    """
    if len(payload) > MAX_HEAD:
        raise FrameTooLarge(len(payload), MAX_HEAD)
    fields = unpack(check_signature(origin, PURPOSE_LEDGER_HEAD, payload, signature))
    head = from_plain(Head, fields)
    _check_rules(head, origin)
    return head


def _check_rules(head: Head, origin: str) -> None:
    if head.origin != origin:
        raise BadFrame(f"a head of the ledger of {head.origin[:64]!r} by {origin}")
    if not 0 <= head.size < 2**63:
        raise BadFrame(f"a head of {head.size} entries")
    if len(head.root) != HASH_BYTES or len(head.last) != HASH_BYTES:
        raise BadFrame("a head with a hash that is none")
    if head.size == 0 and (head.root, head.last) != (EMPTY_ROOT, ZERO_HASH):
        raise BadFrame("a head of no entries with the hashes of some")
    if not math.isfinite(head.at) or head.at < 0:
        raise BadFrame(f"a head made at {head.at:g}")
