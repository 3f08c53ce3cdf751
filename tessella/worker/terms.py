"""The terms of a session, read out of its `Open` and checked against what this node is."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from sys import byteorder

from tessella.core.errors import BadFrame, ModelUnavailable, OutOfTurn, Refused
from tessella.core.ids import ModelId, PeerId
from tessella.core.messages import Open, Stage
from tessella.core.sampling import Sampling
from tessella.core.session import Lease
from tessella.core.shapes import DType
from tessella.engine.shard import Shard

ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class Served:
    """What a node serves: sessions that ask for anything else are refused by name."""

    model: ModelId
    contract: str
    context: int
    slots: int
    """Sessions of a full context that the KV budget is sized for."""
    shard: Shard


@dataclass(frozen=True, slots=True)
class Terms:
    """One session as one stage sees it."""

    opened: Open
    lease: Lease
    dtype: DType
    prompt: Sequence[int]
    sampling: Sampling

    @property
    def stage(self) -> Stage:
        """Our own place in the chain."""
        return self.opened.chain[self.opened.place]

    @property
    def entry(self) -> PeerId:
        """The first stage."""
        return self.opened.chain[0].peer_id

    @property
    def after(self) -> Stage | None:
        """The next stage; None at the tail."""
        place = self.opened.place + 1
        return self.opened.chain[place] if place < len(self.opened.chain) else None


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids as u32, little endian."""
    packed = array("I", ids)
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(data: bytes, vocab: int) -> list[int]:
    """The inverse. Raises BadFrame for a torn id or one outside the vocabulary."""
    if len(data) % ID_BYTES:
        raise BadFrame(f"token ids in {len(data)} bytes")
    packed = array("I", data)
    if byteorder == "big":
        packed.byteswap()
    ids = packed.tolist()
    if ids and max(ids) >= vocab:
        raise BadFrame(f"token id {max(ids)} in a vocabulary of {vocab}")
    return ids


def read_terms(opened: Open, served: Served, ourselves: PeerId, upstream: PeerId) -> Terms:
    """The terms of a session that a neighbour opens.

    Raises BadFrame or OutOfTurn for one that makes no sense or comes from the wrong peer,
    Refused, naming the difference, for one that this node does not serve, ModelUnavailable for
    layers that it does not hold.
    """
    _check_chain(opened, served, ourselves, upstream)
    if opened.model != served.model:
        raise Refused(f"this node serves {served.model}, not {opened.model[:80]}")
    if opened.contract != served.contract:
        raise Refused(f"other tensors than ours under the name {served.model}")
    layers = opened.chain[opened.place].layers
    if not served.shard.layers.holds(layers):
        # Whoever asks knows it from before it moved, and may look again.
        raise ModelUnavailable(f"this node holds layers {served.shard.layers}, not {layers}")
    if not 1 <= opened.capacity <= served.context:
        raise Refused(f"{opened.capacity} positions, this node holds {served.context} a session")
    if len(opened.prompt) > opened.capacity * ID_BYTES:
        raise BadFrame(f"a prompt of {len(opened.prompt)} bytes for {opened.capacity} positions")
    return Terms(
        opened=opened,
        lease=Lease(opened.session_id, opened.epoch, opened.capacity),
        dtype=_dtype(opened.dtype),
        prompt=unpack_ids(opened.prompt, served.shard.shape.vocab),
        sampling=Sampling.decode(opened.sampling),
    )


def _check_chain(opened: Open, served: Served, ourselves: PeerId, upstream: PeerId) -> None:
    chain = opened.chain
    if not 1 <= opened.place < len(chain):
        raise BadFrame(f"place {opened.place} in a chain of {len(chain)} stages")
    if len({stage.peer_id for stage in chain}) != len(chain):
        raise BadFrame("a chain that passes one node twice")
    check_ranges(chain, served.shard.shape.layers)
    if chain[opened.place].peer_id != ourselves:
        raise OutOfTurn(f"place {opened.place} of the chain is another node's")
    if chain[opened.place - 1].peer_id != upstream:
        raise OutOfTurn("a session opened by a peer that is not the stage before")


def check_ranges(chain: Sequence[Stage], layers: int) -> None:
    """Raises BadFrame for a chain that does not pass each of so many layers once, in order."""
    reached = 0
    for stage in chain:
        if stage.layers.start != reached:
            raise BadFrame(f"a chain with {stage.layers} after layer {reached}")
        reached = stage.layers.stop
    if reached != layers:
        raise BadFrame(f"a chain of {reached} layers, the model has {layers}")


def _dtype(word: str) -> DType:
    try:
        return DType(word)
    except ValueError:
        raise Refused(f"no element type {word[:20]!r} here") from None
