"""One session's arithmetic at one node: its lease, its cache, and what becomes of its output."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from tessella.core.layers import LayerRange
from tessella.core.messages import Hidden
from tessella.core.session import Lease
from tessella.core.shapes import DType
from tessella.core.tensors import WireTensor
from tessella.core.tiers import Tier
from tessella.engine.cache import Cache
from tessella.engine.compute import Job
from tessella.engine.sampler import Choice
from tessella.engine.shard import Shard
from tessella.worker.audits.canary import Bend
from tessella.worker.counters import Counters
from tessella.worker.proofs.witness import Witness
from tessella.worker.terms import pack_ids

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class Compute(Protocol):
    """Where arithmetic runs, away from the loop: `engine.compute.ComputeThread`."""

    counter: int
    """Grows with every layer that is done."""

    async def run(
        self, work: Callable[[Job], T], *, urgent: bool = False, tier: Tier = Tier.LEECH
    ) -> T:
        """What `work` returns or raises. Once cancelled, it has stopped when this returns."""


Outcome = WireTensor | Choice | None
"""What a step hands on: a hidden state, a chosen token, or nothing (prefill at the tail)."""


class Onward(Protocol):
    """Where a stage's output goes: down the chain, or into the answer."""

    def finish(self, shard: Shard, output: torch.Tensor, upto: int, sample: bool) -> Outcome:
        """Make the outcome of a step. Runs on the compute thread, right after the layers.

        `output` is `[n, hidden]`, the last row at position `upto - 1`.
        """

    async def send(self, outcome: Outcome, position: int, upto: int, sample: bool) -> None:
        """Hand the outcome on. Raises PeerGone if who it is for went away."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a step is made from; the arithmetic of it is for the compute thread."""

    rows: Callable[[], torch.Tensor]
    """`[count, hidden]`."""
    wire: Callable[[], bytes]
    """The same as it came."""
    count: int
    voucher: bytes = b""


class Stage:
    """Runs steps of one session, one at a time. Its memory is freed by `Sessions`."""

    def __init__(
        self,
        lease: Lease,
        layers: LayerRange,
        shard: Shard,
        compute: Compute,
        counters: Counters,
        cache: Cache | None = None,
        *,
        tier: Tier = Tier.LEECH,
    ) -> None:
        """`cache` is what a parked session held; it grows to the capacity with the first step.

        `tier` decides when a step's turn is, where others wait for the compute thread too.
        """
        self.lease = lease
        self.layers = layers
        self.tier = tier
        self.witness: Witness | None = None
        """Sees every step of a session that is paid, and has seen what is in the cache. Set before
        the first step."""
        self.bend: Bend | None = None
        """What a canary gives in place of the truth. Set before the first step."""
        self.first_wait = 0.0
        """Seconds that the first step waited for the compute thread."""
        self._shard = shard
        self._compute = compute
        self._counters = counters
        self._cache: Cache | None = cache or shard.open_cache(lease.capacity, layers)
        self._stepped = False

    @property
    def counter(self) -> int:
        """The compute thread's counter: it moves while anyone's layers are being computed."""
        return self._compute.counter

    @property
    def vocab(self) -> int:
        """Token ids are below this."""
        return self._shard.shape.vocab

    @property
    def cache_bytes(self) -> int:
        """Bytes of KV reserved; 0 once freed."""
        if self._cache is None:
            return 0
        return max(self._cache.nbytes, self._shard.kv_bytes(self.lease.capacity, self.layers))

    def free(self) -> None:
        """Let the KV go. No step may be running. Work that nobody billed is abandoned."""
        self._cache = None
        if self.witness is not None:
            self.witness.end()

    def give_up_cache(self) -> Cache:
        """The KV, for another session to go on with. No step may be running."""
        cache, self._cache = self._cache, None
        return _held(cache)

    async def run_ids(
        self, ids: Sequence[int], position: int, sample: bool, onward: Onward
    ) -> None:
        """A step from token ids, at the entry."""
        shard = self._shard
        taken = _Taken(lambda: shard.embed(ids), lambda: pack_ids(ids), len(ids))
        await self._run(taken, position, sample, onward)

    async def run_hidden(self, hidden: Hidden, onward: Onward) -> None:
        """A step from a neighbour's hidden state, whose dtype and shape are checked.

        Raises BadTensor if a value is not finite, or where it has to be vouched for and is not;
        and what `Lease.fill` and `Witness.check_turn` raise.
        """
        shard, tensor = self._shard, hidden.tensor
        taken = _Taken(
            lambda: shard.from_wire(tensor), lambda: tensor.data, tensor.shape[0], hidden.voucher
        )
        await self._run(taken, hidden.position, hidden.sample, onward)

    async def _run(self, taken: _Taken, position: int, sample: bool, onward: Onward) -> None:
        count = taken.count
        lease = self.lease.fill(position, count)
        if self.witness is not None:
            self.witness.check_turn(position)
        upto, shard, asked = lease.held, self._shard, time.perf_counter()
        held = _held(self._cache)

        def work(job: Job) -> tuple[Outcome, float]:
            started = time.perf_counter()
            if not self._stepped:
                self._stepped, self.first_wait = True, started - asked
            cache = self._cache = shard.grow_cache(held, lease.capacity)
            rows = taken.rows()
            output = shard.forward(rows, cache, position, self.layers, job.advance)
            if self.bend is not None:
                output = self.bend(rows, output)
            outcome = onward.finish(shard, output, upto, sample)
            if self.witness is not None:
                given = _on_the_wire(outcome, shard, output, self.witness.dtype)
                came = taken.wire()
                self.witness.saw(position, count, came, given, output, voucher=taken.voucher)
            return outcome, time.perf_counter() - started

        outcome, seconds = await self._compute.run(work, urgent=count == 1, tier=self.tier)
        self._counters.computed(count, seconds)
        # The session may have ended while we computed: then its lease is not ours to move.
        await trio.lowlevel.checkpoint_if_cancelled()
        self.lease = lease
        await onward.send(outcome, position, upto, sample)


def _on_the_wire(outcome: Outcome, shard: Shard, output: torch.Tensor, dtype: DType) -> bytes:
    """The rows that a step gave; the tail's too, which go nowhere. Raises NotFinite."""
    wire = outcome if isinstance(outcome, WireTensor) else shard.to_wire(output, dtype)
    return wire.data


def _held(cache: Cache | None) -> Cache:
    if cache is None:
        raise trio.ClosedResourceError("the session's memory was freed")
    return cache
