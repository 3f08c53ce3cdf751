"""Multistream-select that a stranger can not use against the process."""

from __future__ import annotations

from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import IOException
from libp2p.protocol_muxer.exceptions import MultiselectCommunicatorError
from libp2p.protocol_muxer.multiselect_communicator import MultiselectCommunicator

# A protocol id; libp2p's own are under 50 bytes.
MAX_MESSAGE = 1024
# MAX_MESSAGE needs two bytes of varint.
MAX_VARINT_BYTES = 2


async def read_message(stream: ReadWriteCloser) -> str:
    """One negotiation message, without its newline. Raises MultiselectCommunicatorError."""
    try:
        length = await _read_length(stream)
        body = b""
        while len(body) < length:
            piece = await stream.read(length - len(body))
            if not piece:
                raise MultiselectCommunicatorError("the stream ended in a message")
            body += piece
        if not body.endswith(b"\n"):
            raise MultiselectCommunicatorError("a message without its newline")
        return body[:-1].decode("utf-8")
    except (IOException, UnicodeDecodeError) as exc:
        raise MultiselectCommunicatorError(f"no message: {type(exc).__name__}") from exc


async def _read_length(stream: ReadWriteCloser) -> int:
    length = 0
    for place in range(MAX_VARINT_BYTES):
        byte = await stream.read(1)
        if not byte:
            raise MultiselectCommunicatorError("the stream ended before a message")
        length |= (byte[0] & 0x7F) << (7 * place)
        if not byte[0] & 0x80:
            break
    else:
        raise MultiselectCommunicatorError("a message of unbounded length")
    if not 0 < length <= MAX_MESSAGE:
        raise MultiselectCommunicatorError(f"a message of {length} bytes")
    return length


async def _read(self: MultiselectCommunicator) -> str:
    return await read_message(self.read_writer)


def bound_negotiation() -> None:
    """Refuse long messages before they are kept, and take bad UTF-8 for what it is.

    In libp2p a length is unbounded, before the peer is even authenticated, and a byte that is not
    UTF-8 raises something that no caller expects: it ends the host of whoever received it.
    """
    MultiselectCommunicator.read = _read  # type: ignore[method-assign]
