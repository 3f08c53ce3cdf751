"""Negotiation messages from strangers: bounded, and never anything but one kind of error."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from libp2p.io.abc import ReadWriteCloser
from libp2p.protocol_muxer.exceptions import MultiselectCommunicatorError
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator
from libp2p.utils.varint import encode_delim

from p2p.fixes import apply_fixes
from p2p.fixes.negotiation import MAX_MESSAGE


class Bytes(ReadWriteCloser):
    """A stream of given bytes, a few at a time, that counts what was asked of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.taken = 0

    async def read(self, n: int | None = None) -> bytes:
        piece = self.data[self.taken : self.taken + min(n or 1, 7)]
        self.taken += len(piece)
        return piece

    async def write(self, data: bytes) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def get_remote_address(self) -> tuple[str, int] | None:
        return None


def communicator(data: bytes) -> tuple[MultiselectCommunicator, Bytes]:
    """libp2p's own reader of messages, as it is after the fixes."""
    apply_fixes()
    stream = Bytes(data)
    return MultiselectCommunicator(stream), stream


@given(st.text(max_size=200))
def test_what_libp2p_writes_is_read(text: str) -> None:

    reader, _ = communicator(encode_delim(text.encode()))
    assert trio.run(reader.read) == text


@pytest.mark.parametrize(
    "data",
    [b"\x03\xff\xfe\n", b"\x00", b"\x03abc", b"\x05abc\n", b"", b"\x80", b"\xff\xff\xff\x7f"],
    ids=["not UTF-8", "empty", "no newline", "cut", "nothing", "cut length", "256 MiB"],
)
async def test_anything_else_is_one_kind_of_error(data: bytes) -> None:
    reader, _ = communicator(data)
    with pytest.raises(MultiselectCommunicatorError):
        await reader.read()


@pytest.mark.parametrize("prefix", [b"\xff" * 20, b"\x81\x08"], ids=["endless", "over the cap"])
async def test_a_long_message_is_refused_before_its_body_is_read(prefix: bytes) -> None:
    reader, stream = communicator(prefix + bytes(100_000))
    with pytest.raises(MultiselectCommunicatorError):
        await reader.read()
    assert stream.taken <= len(prefix)


async def test_the_cap_itself_is_allowed() -> None:
    reader, _ = communicator(encode_delim(b"x" * (MAX_MESSAGE - 1)))
    assert await reader.read() == "x" * (MAX_MESSAGE - 1)
