"""Many entries as they travel: `u32` length, big endian, and payload, one after the other.

A page is one `bin` of a message or one HTTP body. Whoever asks says where it should begin.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tessella.core.errors import BadFrame, FrameTooLarge, LocalError
from tessella.core.frames import MIB
from tessella.core.ledger.entries import MAX_ENTRY

_LENGTH = struct.Struct("!I")

# Under a second of checking at the other end.
MAX_PAGE_ENTRIES = 1000
# Compared before anything is read. As many of the longest entries as may come stay below it, and
# leave room for the message around them; a usual page is a tenth of it.
MAX_PAGE_BYTES = 4 * MIB


def pack_page(payloads: Sequence[bytes]) -> bytes:
    """A page of these payloads. Raises LocalError where `unpack_page` would refuse it."""
    if len(payloads) > MAX_PAGE_ENTRIES:
        raise LocalError(f"{len(payloads)} entries are more than a page holds")
    for payload in payloads:
        if not 0 < len(payload) <= MAX_ENTRY:
            raise LocalError(f"a page with an entry of {len(payload)} bytes")
    return b"".join(part for payload in payloads for part in (_LENGTH.pack(len(payload)), payload))


def unpack_page(data: bytes) -> list[bytes]:
    """The payloads of a page, unopened; may be none.

    Raises FrameTooLarge over a cap, BadFrame for a page that is torn.
    """
    if len(data) > MAX_PAGE_BYTES:
        raise FrameTooLarge(len(data), MAX_PAGE_BYTES)
    payloads: list[bytes] = []
    place = 0
    while place < len(data):
        if len(payloads) == MAX_PAGE_ENTRIES:
            raise BadFrame(f"a page with more than {MAX_PAGE_ENTRIES} entries")
        start = place + _LENGTH.size
        place = start + _length_at(data, place)
        if place > len(data):
            raise BadFrame(f"a page that ends {place - len(data)} bytes before its last entry")
        payloads.append(data[start:place])
    return payloads


def _length_at(data: bytes, place: int) -> int:
    if place + _LENGTH.size > len(data):
        raise BadFrame("a page that ends inside a length")
    (length,) = _LENGTH.unpack_from(data, place)
    if length > MAX_ENTRY:
        raise FrameTooLarge(length, MAX_ENTRY)
    if length == 0:
        raise BadFrame("a page with an entry of no bytes")
    return int(length)
