"""What a stage signs of the rows that it sends: whoever takes them can show whose they were.

A proof commits to the rows that came and brings the voucher for them, so that nobody can say that
others came. And it commits to the rows that left: where those are not the ones that its worker
vouched for, the proof behind it shows that.

    signed   BLAKE2b-256 of the ticket, then as i64, big endian, the epoch of the session, the layer
             that the rows enter and how many they are; digest(n) of them
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from tessella.core.identity import Identity, check_signature

PURPOSE_VOUCHER = b"voucher"

_SIGNED = struct.Struct("!32sqqq32s")


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


def vouch(identity: Identity, crossing: Crossing, count: int, digest: bytes) -> bytes:
    """The sender's signature on its first `count` rows, of that digest."""
    return identity.sign(PURPOSE_VOUCHER, _signed(crossing, count, digest))


def check_voucher(
    sender: str, crossing: Crossing, count: int, digest: bytes, voucher: bytes
) -> None:
    """Raises BadSignature unless `sender` vouched for just these rows."""
    check_signature(sender, PURPOSE_VOUCHER, _signed(crossing, count, digest), voucher)


def _signed(crossing: Crossing, count: int, digest: bytes) -> bytes:
    return _SIGNED.pack(crossing.ticket, crossing.epoch, crossing.layer, count, digest)
