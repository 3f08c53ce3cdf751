"""What others kept, brought here by order: the first rows as they travelled, of all a digest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from p2p.peers import Host
from p2p.streams import FrameStream
from tessella.core.commitments import Rows
from tessella.core.errors import BadTensor, OutOfTurn, RemoteFailure
from tessella.core.messages import AUDIT, Fail, KeptIds, KeptRows, Message
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.worker.audits.papers import MAX_POSITIONS, Wanted
from tessella.worker.terms import ID_BYTES, unpack_ids

T = TypeVar("T")

CONNECT_TIMEOUT = 5.0
# A keeper sends a frame in a fraction of a second, as slow as its uplink may be.
FRAME_TIMEOUT = 15.0


@dataclass(slots=True)
class Shown:
    """What a keeper showed of one side of a request."""

    digests: Rows = field(default_factory=Rows)
    """Of all positions."""
    tensors: list[WireTensor] = field(default_factory=list)
    """The rows of the first MAX_POSITIONS, and no more than one frame beyond."""


async def fetch_ids(host: Host, wanted: Wanted, vocab: int) -> tuple[list[int], Rows]:
    """The token ids that an entry kept, the first MAX_POSITIONS, and the digests of all.

    Raises a TessellaError: RemoteFailure with the keeper's code, PeerGone, or a RemoteError for
    what is not as ordered.
    """
    async with await _ask(host, wanted) as stream:
        message = _told(await stream.receive(FRAME_TIMEOUT), KeptIds)
    stop, ids = wanted.order.stop, message.ids
    if len(ids) != stop * ID_BYTES:
        raise BadTensor(f"{len(ids)} bytes of token ids for {stop} positions")
    digests = Rows()
    digests.put(0, ids, stop)
    return unpack_ids(ids[: MAX_POSITIONS * ID_BYTES], vocab), digests


async def fetch_rows(host: Host, wanted: Wanted, dtype: DType, most_row_bytes: int) -> Shown:
    """The rows that a stage kept. Raises as `fetch_ids`.

    Whether they are rows of the model is not looked at: they may be what somebody committed to. No
    row is kept that is larger than `most_row_bytes`.
    """
    shown, stop = Shown(), wanted.order.stop
    async with await _ask(host, wanted) as stream:
        while (position := len(shown.digests)) < stop:
            message = _told(await stream.receive(FRAME_TIMEOUT), KeptRows)
            tensor = message.tensor
            count = tensor.shape[0] if tensor.shape else 0
            if message.position != position or not 1 <= count <= stop - position:
                raise OutOfTurn(f"{count} rows at {message.position}, wanted some at {position}")
            _check(tensor, count, dtype, most_row_bytes)
            shown.digests.put(position, tensor.data, count)
            if position < MAX_POSITIONS:
                shown.tensors.append(tensor)
    return shown


async def _ask(host: Host, wanted: Wanted) -> FrameStream:
    await host.connect(wanted.keeper, timeout=CONNECT_TIMEOUT)
    stream = await host.open_stream(wanted.keeper.peer_id, AUDIT, timeout=CONNECT_TIMEOUT)
    try:
        await stream.send(wanted.signed)
    except BaseException:
        await stream.reset()
        raise
    return stream


def _told(message: Message, kind: type[T]) -> T:
    if isinstance(message, Fail):
        raise RemoteFailure(message.code, message.text, retry=message.retry)
    if not isinstance(message, kind):
        raise OutOfTurn(f"{type(message).__name__} in place of what was kept")
    return message


def _check(tensor: WireTensor, count: int, dtype: DType, most_row_bytes: int) -> None:
    if tensor.dtype != dtype.value:
        raise BadTensor(f"rows in {tensor.dtype[:20]!r}, the ticket says {dtype.value}")
    if len(tensor.data) % count or not 0 < len(tensor.data) // count <= most_row_bytes:
        raise BadTensor(f"{len(tensor.data)} bytes for {count} rows")
