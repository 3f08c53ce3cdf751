"""Noise messages with one system call for many, and without the copies between."""

from __future__ import annotations

from typing import Any

from libp2p.abc import IRawConnection
from libp2p.io.exceptions import IncompleteReadError
from libp2p.security.noise import io as noise_io

# Two full messages: what a fast peer has in flight while we decrypt.
READ_BYTES = 128 * 1024
LENGTH_BYTES = 2


class BufferedPackets(noise_io.NoisePacketReadWriter):
    """Length-prefixed Noise messages, read in pieces as large as they arrive."""

    def __init__(self, conn: Any) -> None:  # noqa: ANN401 - libp2p's read_write_closer
        super().__init__(conn)
        self._buffer = bytearray()

    async def read_msg(self) -> bytes:
        """The next message. Raises IncompleteReadError where the connection ends."""
        await self._fill(LENGTH_BYTES)
        end = LENGTH_BYTES + int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
        await self._fill(end)
        with memoryview(self._buffer) as view:
            message = bytes(view[LENGTH_BYTES:end])
        del self._buffer[:end]
        return message

    async def _fill(self, size: int) -> None:
        while len(self._buffer) < size:
            data = await self.read_write_closer.read(READ_BYTES)
            if not data:
                raise IncompleteReadError("the connection ended", size, len(self._buffer))
            self._buffer += data


async def _write_msg(
    self: noise_io.NoiseTransportReadWriter, msg: bytes, prefix_encoded: bool = False
) -> None:
    """Encrypt and write as many messages as it takes, in one write."""
    parts = []
    for at in range(0, len(msg), noise_io.MAX_PLAINTEXT_LENGTH):
        sealed = self.encrypt(msg[at : at + noise_io.MAX_PLAINTEXT_LENGTH])
        parts += [len(sealed).to_bytes(LENGTH_BYTES, "big"), sealed]
    await self.read_writer.read_write_closer.write(b"".join(parts))


def buffer_noise() -> None:
    """Read and write established Noise connections in large pieces.

    libp2p reads each message with two receives, one of them for two bytes, and copies it once
    more to put a length in front.
    """
    stock = noise_io.NoiseTransportReadWriter.__init__

    def init(self: Any, conn: IRawConnection, noise_state: Any) -> None:  # noqa: ANN401
        stock(self, conn, noise_state)
        self.read_writer = BufferedPackets(conn)

    noise_io.NoiseTransportReadWriter.__init__ = init  # type: ignore[method-assign]
    noise_io.NoiseTransportReadWriter.write_msg = _write_msg  # type: ignore[method-assign, assignment]
