"""Noise packets: many for one read, one write for many, and the bytes stay libp2p's."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from libp2p.io.exceptions import IncompleteReadError
from libp2p.security.noise import io as noise_io

from p2p.fixes import apply_fixes
from p2p.fixes.noise import BufferedPackets


class Connection:
    """A raw connection that hands out given pieces and keeps what is written."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)
        self.reads = 0
        self.writes: list[bytes] = []

    async def read(self, n: int | None = None) -> bytes:
        self.reads += 1
        return self.pieces.pop(0) if self.pieces else b""

    async def write(self, data: bytes) -> None:
        self.writes.append(data)


class Cipher:
    """Encryption that can be seen."""

    def encrypt(self, data: bytes) -> bytes:
        return b"<" + data + bytes(15)

    def decrypt(self, data: bytes) -> bytes:
        return data[1:-15]


def transport(connection: Connection) -> noise_io.NoiseTransportReadWriter:
    apply_fixes()
    untyped: Any = (connection, Cipher())
    return noise_io.NoiseTransportReadWriter(*untyped)


def packet(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


async def test_a_hundred_messages_cost_one_read() -> None:
    connection = Connection(b"".join(packet(bytes([n])) for n in range(100)))
    packets = BufferedPackets(connection)
    assert [await packets.read_msg() for _ in range(100)] == [bytes([n]) for n in range(100)]
    assert connection.reads == 1


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 9))
def test_messages_are_the_same_however_they_are_cut(messages: list[bytes], size: int) -> None:

    data = b"".join(packet(message) for message in messages)
    packets = BufferedPackets(
        Connection(*(data[at : at + size] for at in range(0, len(data), size)))
    )

    async def read() -> list[bytes]:
        return [await packets.read_msg() for _ in messages]

    assert trio.run(read) == messages


@pytest.mark.parametrize("data", [b"", b"\0", packet(b"abc")[:-1]])
async def test_an_end_in_a_message_is_an_end(data: bytes) -> None:
    with pytest.raises(IncompleteReadError):
        await BufferedPackets(Connection(data)).read_msg()


async def test_a_long_write_is_one_write_of_full_messages() -> None:
    connection = Connection()
    await transport(connection).write_msg(bytes(100_000))
    (written,) = connection.writes
    reader = transport(Connection(written))
    first, second = await reader.read_msg(), await reader.read_msg()
    assert len(first) == noise_io.MAX_PLAINTEXT_LENGTH
    assert first + second == bytes(100_000)
