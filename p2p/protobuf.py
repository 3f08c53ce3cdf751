"""The part of protobuf that kad-dht needs: varints, and fields that are numbers or bytes.

A reader hands out the fields in the order they came; which ones it knows is for its caller to say,
and what it does not know is passed over, as protobuf wants it. Anything torn is BadFrame.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessella.core.errors import BadFrame

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Ten groups of seven bits hold 64.
_MAX_VARINT = 10
# Messages of the protocol have eleven fields; lists repeat one of them.
MAX_FIELDS = 4096


def varint(number: int) -> bytes:
    """A number from 0 in groups of seven bits, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """A number and where it ends. Raises IndexError where the data ends first, else BadFrame."""
    number = 0
    for place in range(_MAX_VARINT):
        byte = data[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number & (2**64 - 1), at + place + 1
    raise BadFrame("a varint that does not end")


def number_field(field: int, number: int) -> bytes:
    """A field that is a number."""
    return varint(field << 3 | VARINT) + varint(number)


def bytes_field(field: int, data: bytes) -> bytes:
    """A field that is bytes, text, or a message."""
    return varint(field << 3 | BYTES) + varint(len(data)) + data


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field's number and value. Raises BadFrame."""
    at = 0
    for _ in range(MAX_FIELDS):
        if at == len(data):
            return
        try:
            tag, at = read_varint(data, at)
            value, at = _value(data, at, tag & 7)
        except IndexError:
            raise BadFrame("a protobuf message that ends in a field") from None
        yield tag >> 3, value
    raise BadFrame(f"a protobuf message of more than {MAX_FIELDS} fields")


def _value(data: bytes, at: int, kind: int) -> tuple[int | bytes, int]:
    if kind == VARINT:
        return read_varint(data, at)
    if kind == BYTES:
        size, at = read_varint(data, at)
    elif kind in (FIXED64, FIXED32):
        size = 8 if kind == FIXED64 else 4
    else:
        raise BadFrame(f"a protobuf field of wire type {kind}")
    if size > len(data) - at:
        raise IndexError
    return data[at : at + size], at + size
