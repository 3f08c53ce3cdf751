"""The bytes of yamux: a 12-byte header, and for DATA a body. Nothing awaits here.

    version 0 | kind u8 | flags u16 | stream id u32 | length u32          big endian

`length` is the size of a body, the credit of a WINDOW_UPDATE, the id of a PING, or the reason of
a GO_AWAY. SYN, ACK, FIN and RST ride on DATA and WINDOW_UPDATE.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tessella.core.frames import KIB

DATA, WINDOW_UPDATE, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8
END_NORMAL, END_PROTOCOL_ERROR = 0, 1

_HEADER = struct.Struct("!BBHII")
HEADER_BYTES = _HEADER.size
INITIAL_WINDOW = 256 * KIB
# A frame with its header fills one Noise message: 65535 bytes, of which 16 are its tag.
MAX_MESSAGE = 65535 - 16
MAX_BODY = MAX_MESSAGE - HEADER_BYTES


class BadYamux(Exception):
    """The peer broke the rules of yamux: its connection ends."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a frame says before its body."""

    kind: int
    flags: int
    stream_id: int
    length: int


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes of a DATA frame, as they arrived; `left` more are to come."""

    header: Header
    data: bytes
    left: int


def pack(kind: int, flags: int, stream_id: int, length: int) -> bytes:
    """A header."""
    return _HEADER.pack(0, kind, flags, stream_id, length)


class Parser:
    """Bytes in, headers and pieces of bodies out; holds at most one header's bytes."""

    def __init__(self) -> None:
        self._rest = b""
        self._header = Header(DATA, 0, 0, 0)
        self._left = 0

    def feed(self, chunk: bytes) -> Iterator[Header | Body]:
        """What the bytes complete. Raises BadYamux for a version or a kind that is not yamux."""
        data = self._rest + chunk if self._rest else chunk
        self._rest = b""
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                yield Body(self._header, piece, self._left)
            elif len(data) - at < HEADER_BYTES:
                self._rest = data[at:]
                return
            else:
                version, kind, flags, stream_id, length = _HEADER.unpack_from(data, at)
                if version != 0 or kind > GO_AWAY:
                    raise BadYamux(f"version {version}, kind {kind}")
                at += HEADER_BYTES
                self._header = Header(kind, flags, stream_id, length)
                self._left = length if kind == DATA else 0
                yield self._header
