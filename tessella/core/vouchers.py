"""What a stage signs of the rows that it sends: whoever takes them can show whose they were.

A proof commits to the rows that came and brings the voucher for them, so that nobody can say that
others came. And it commits to the rows that left: where those are not the ones that its worker
vouched for, the proof behind it shows that.

    signed   BLAKE2b-256 of the ticket, then as i64, big endian, the epoch of the session, the layer
             that the rows enter, the first of them that was computed for this ticket, and how many
             they are; BLAKE2b-256 of the commit to them: its digest, its marks and its last marks
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from tessella.core.identity import Identity, check_signature
from tessella.core.messages import Commit

PURPOSE_VOUCHER = b"voucher"

_SIGNED = struct.Struct("!32sqqqq32s")


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where the rows of one session cross from a stage to the next."""

    ticket: bytes
    """BLAKE2b-256 of the session's sealed ticket."""
    epoch: int
    layer: int
    """The first one behind it."""


def crossing_at(ticket: bytes, epoch: int, layer: int) -> Crossing:
    """Of a session with that sealed ticket."""
    return Crossing(hashlib.blake2b(ticket, digest_size=32).digest(), epoch, layer)


@dataclass(frozen=True, slots=True)
class Sent:
    """The rows of a session so far."""

    start: int
    """The first one that was computed for its ticket: those before it were held."""
    commit: Commit
    """To all of them."""


def vouch(identity: Identity, crossing: Crossing, sent: Sent) -> bytes:
    """The sender's signature on its rows."""
    return identity.sign(PURPOSE_VOUCHER, _signed(crossing, sent))


def check_voucher(sender: str, crossing: Crossing, sent: Sent, voucher: bytes) -> None:
    """Raises BadSignature unless `sender` vouched for just these rows."""
    check_signature(sender, PURPOSE_VOUCHER, _signed(crossing, sent), voucher)


def _signed(crossing: Crossing, sent: Sent) -> bytes:
    at, commit = (crossing.ticket, crossing.epoch, crossing.layer), sent.commit
    bound = hashlib.blake2b(commit.digest + commit.marks + commit.last, digest_size=32)
    return _SIGNED.pack(*at, sent.start, commit.stop, bound.digest())
