"""Bytes in, frames out. Nothing awaits: the same object serves libp2p, a file and a test.

    frame = u32 length, big endian | msgpack array [kind, field, …]

Strategy. A reader is fed chunks and hands out whole bodies. The length is compared with the cap
of its stream before a byte of the body is kept, so what a peer can make us hold is the cap, not
what it claims. A body is then unpacked under msgpack limits that are independent of the cap:
without them an 8 MiB frame of empty arrays costs 588 MiB. What is long is one `bin`.
"""

from __future__ import annotations

import struct
from typing import Any, NoReturn

import msgpack

from tessella.core.errors import BadFrame, FrameTooLarge

KIB = 1024
MIB = 1024 * KIB

_LENGTH = struct.Struct("!I")
LENGTH_BYTES = _LENGTH.size

# One chunk of hidden states and what stands around it; yamux windows end at 16 MiB too.
MAX_HOP_FRAME = 16 * MIB + 64 * KIB
# Progress, tokens, asks: hypercorn and h11 stop a request head at 16 KiB, for scale.
MAX_CONTROL_FRAME = 64 * KIB
# A registration carries addresses, a shape and a signature.
MAX_TRACKER_FRAME = 256 * KIB
# A batch of proofs, and what stands around it.
MAX_PROOFS_FRAME = MIB + 64 * KIB
# Peer lists and status documents are one bin each.
MAX_LIST_FRAME = 4 * MIB

MAX_ARRAY = 64
MAX_MAP = 64
MAX_STR = 4 * KIB


class NeedData:
    """What `next_body` answers while a frame is incomplete."""


NEED = NeedData()


def pack(fields: list[Any]) -> bytes:
    """A whole frame. Raises FrameTooLarge only where `u32` ends: caps belong to the stream."""
    body: bytes = msgpack.packb(fields, use_bin_type=True)
    if len(body) >= 2**32:
        raise FrameTooLarge(len(body), 2**32 - 1)
    return _LENGTH.pack(len(body)) + body


def _refuse_duplicates(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse_ext(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"extension type {code}")


def unpack(body: bytes) -> list[Any]:
    """The fields of one body. Raises BadFrame for anything but one array of plain values."""
    try:
        fields = msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            max_array_len=MAX_ARRAY,
            max_map_len=MAX_MAP,
            max_str_len=MAX_STR,
            max_bin_len=len(body),
            max_ext_len=0,
            ext_hook=_refuse_ext,
            object_pairs_hook=_refuse_duplicates,
        )
    except (ValueError, msgpack.UnpackException, UnicodeDecodeError, RecursionError) as exc:
        raise BadFrame(f"not a frame of plain values: {type(exc).__name__}") from exc
    if not isinstance(fields, list) or not fields:
        raise BadFrame("a frame that is not an array with a kind")
    return fields


class FrameReader:
    """Bytes in, bodies out: `feed` what arrived, take `next_body` until it answers NEED."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Keep bytes that arrived."""
        self._buffer += data

    @property
    def missing(self) -> int:
        """How many bytes, at least, complete the frame under way; a hint for the next read.

        Raises FrameTooLarge, as `next_body` does.
        """
        if len(self._buffer) < LENGTH_BYTES:
            return LENGTH_BYTES - len(self._buffer)
        return max(0, LENGTH_BYTES + self._length() - len(self._buffer))

    def _length(self) -> int:
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > self._cap:
            raise FrameTooLarge(length, self._cap)
        return int(length)

    def next_body(self) -> bytes | NeedData:
        """The next whole body, or NEED. Raises FrameTooLarge as soon as the length is there."""
        if self.missing:
            return NEED
        end = LENGTH_BYTES + self._length()
        with memoryview(self._buffer) as view:
            body = bytes(view[LENGTH_BYTES:end])
        del self._buffer[:end]
        return body

    def close(self) -> None:
        """The peer finished. Raises BadFrame if it stopped in the middle of a frame."""
        if self._buffer:
            raise BadFrame(f"the stream ended {self.missing} bytes before its frame did")
