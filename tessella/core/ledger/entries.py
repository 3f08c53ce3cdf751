"""One entry of a ledger: amounts that sum to zero, and the hash of the entry before.

    payload = msgpack array of the fields of Entry, in order, at most 4 KiB
    hash    = SHA256(0x00 || payload), which is its leaf in the tree as well

Who holds the hash of an entry holds all before it: none can be changed, dropped or put between.
An entry has one payload only, so an entry that was read and sealed again has the same hash.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import msgpack

from tessella.core.errors import BadFrame, BadLedger, BadSignature, FrameTooLarge, LocalError
from tessella.core.fields import from_plain, to_plain
from tessella.core.frames import KIB, unpack
from tessella.core.identity import public_key_of
from tessella.core.ids import PeerId
from tessella.core.ledger.tree import HASH_BYTES, leaf_hash

MINT = "mint"
SLASHED = "slashed"
KINDS = ("payment", "slash", "appeal", "reversal", "epoch")
_OF_A_PROOF = frozenset({"payment", "reversal"})
ZERO_HASH = bytes(HASH_BYTES)

# Sixteen lines of peer ids, three more ids and the longest reason are below 2 KiB.
MAX_ENTRY = 4 * KIB
# A payment has three: who worked, who asked, the mint.
MAX_LINES = 16
# A sentence, or the secret of an epoch in hex; in bytes of UTF-8.
MAX_REASON = 512
REQUEST_ID_BYTES = 16
_AMOUNT_LIMIT = 2**63
# Ids checked lately, so that a walk does the arithmetic once for each of its accounts.
_KNOWN_PEERS = 4096
# Of a word that we do not know, as much is repeated.
_SHOWN_CHARS = 64


@dataclass(frozen=True, slots=True)
class Line:
    """What one account gains, or loses if it is negative."""

    account: str
    """A peer id, MINT or SLASHED."""
    amount: int
    """Micro-credits, not 0, of 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One movement between accounts."""

    origin: PeerId
    """The musivum whose ledger it is in."""
    sequence: int
    """Its place there, from 0."""
    previous: bytes
    """The hash of the entry before; ZERO_HASH for the first."""
    kind: str
    """One of KINDS."""
    at: float
    """Seconds since 1970, by the clock of its origin."""
    issuer: str = ""
    """Of a payment or reversal: who issued the ticket. Empty for other kinds, as the next two."""
    request_id: bytes = b""
    """16 bytes: which request."""
    worker: str = ""
    """Whose proof."""
    reason: str = ""
    lines: tuple[Line, ...]
    """No account twice; the amounts sum to 0. None where nothing moves."""


def seal_entry(entry: Entry) -> bytes:
    """The payload of an entry. Raises LocalError for one that breaks the rules of entries."""
    try:
        _check_rules(entry)
    except BadFrame as exc:
        raise LocalError(f"{exc} is not sealed") from exc
    return _packed(entry)


def _packed(entry: Entry) -> bytes:
    plain = to_plain(replace(entry, at=float(entry.at)))
    payload: bytes = msgpack.packb(plain, use_bin_type=True)
    return payload


def open_entry(payload: bytes) -> Entry:
    """The entry of a payload. Raises BadFrame for what is none or breaks the rules of entries."""
    if len(payload) > MAX_ENTRY:
        raise FrameTooLarge(len(payload), MAX_ENTRY)
    entry = from_plain(Entry, unpack(payload))
    _check_rules(entry)
    if _packed(entry) != payload:
        raise BadFrame("an entry in other bytes than it is sealed to")
    return entry


def _check_rules(entry: Entry) -> None:
    if not _is_peer(entry.origin):
        raise BadFrame(f"an entry of {entry.origin[:_SHOWN_CHARS]!r}, which is no peer")
    if not 0 <= entry.sequence < _AMOUNT_LIMIT:
        raise BadFrame(f"an entry with the sequence {entry.sequence}")
    if len(entry.previous) != HASH_BYTES:
        raise BadFrame(f"an entry after a hash of {len(entry.previous)} bytes")
    if entry.kind not in KINDS:
        raise BadFrame(f"an entry of the kind {entry.kind[:_SHOWN_CHARS]!r}")
    if not math.isfinite(entry.at) or entry.at < 0:
        raise BadFrame(f"an entry made at {entry.at:g}")
    _check_reason(entry.reason)
    _check_proof(entry)
    _check_lines(entry.lines)


def _check_reason(reason: str) -> None:
    try:
        size = len(reason.encode())
    except UnicodeEncodeError:
        raise BadFrame("an entry with half a character in its reason") from None
    if size > MAX_REASON:
        raise BadFrame(f"an entry with a reason of {size} bytes, over {MAX_REASON}")


def _check_proof(entry: Entry) -> None:
    if entry.kind not in _OF_A_PROOF:
        if entry.issuer or entry.request_id or entry.worker:
            raise BadFrame(f"an entry of the kind {entry.kind} that names a proof")
        return
    if len(entry.request_id) != REQUEST_ID_BYTES:
        raise BadFrame(f"a {entry.kind} of a request id of {len(entry.request_id)} bytes")
    for peer in (entry.issuer, entry.worker):
        if not _is_peer(peer):
            raise BadFrame(f"a {entry.kind} of {peer[:_SHOWN_CHARS]!r}, which is no peer")


def _check_lines(lines: tuple[Line, ...]) -> None:
    if len(lines) > MAX_LINES:
        raise BadFrame(f"an entry with {len(lines)} lines, over {MAX_LINES}")
    for line in lines:
        if line.account not in (MINT, SLASHED) and not _is_peer(line.account):
            raise BadFrame(f"an entry with the account {line.account[:_SHOWN_CHARS]!r}")
        if not 0 < abs(line.amount) < _AMOUNT_LIMIT:
            raise BadFrame(f"an entry with the amount {line.amount}")
    if len({line.account for line in lines}) != len(lines):
        raise BadFrame("an entry with two lines of one account")
    total = sum(line.amount for line in lines)
    if total:
        raise BadFrame(f"an entry with lines that sum to {total}")


@lru_cache(maxsize=_KNOWN_PEERS)
def _is_peer(text: str) -> bool:
    try:
        public_key_of(text)
    except BadSignature:
        return False
    return True


def entry_hash(payload: bytes) -> bytes:
    """What the next entry calls `previous`, and the leaf of this one in the tree."""
    return leaf_hash(payload)


def follows(entry: Entry, previous_hash: bytes, sequence: int) -> None:
    """Return if an entry may stand at a place, after the entry of that hash.

    Raises BadLedger: of another sequence, with this place as its index; written after another
    entry, with the place before, the first for which no entry after it vouches.
    """
    if entry.sequence > sequence:
        raise BadLedger(f"it is missing, entry {entry.sequence} stands here", sequence)
    if entry.sequence < sequence:
        raise BadLedger(f"entry {entry.sequence} stands here again", sequence)
    if entry.previous != previous_hash:
        if sequence == 0:
            raise BadLedger("it is the first and names one before it", 0)
        raise BadLedger(f"entry {sequence} was written after another than this", sequence - 1)


def balances(entries: Iterable[Entry]) -> dict[str, int]:
    """Micro-credits by account, after these entries; they sum to 0."""
    found: dict[str, int] = {}
    for entry in entries:
        add_to(found, entry)
    return found


def add_to(found: dict[str, int], entry: Entry) -> None:
    """Move the amounts of one more entry."""
    for line in entry.lines:
        found[line.account] = found.get(line.account, 0) + line.amount
