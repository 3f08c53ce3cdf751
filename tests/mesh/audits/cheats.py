"""What a node that cheats does in place of its layers: one thing of the real worker is replaced.

    echo     it returns its input                skip     it leaves out its last layer
    scale    it multiplies its output            stale    it returns what it said to another prompt
    lower    it computes in bf16, says f32       copy     it asks somebody else: see `copying`

The rows that it commits to and shows to auditors are those that it returned: it hides nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from p2p.peers import Host
from tessella.core.layers import LayerRange
from tessella.core.messages import Register
from tessella.core.shapes import DType
from tessella.engine.cache import Cache
from tessella.engine.shard import Shard
from tessella.worker.model import Model

Advance = Callable[[], None]
Forward = Callable[[Shard, Tensor, Cache, int, LayerRange, Advance], Tensor]

SCALE = 1.05

_true: Forward = Shard.forward


def echo() -> None:
    """Return the input."""
    _replace(_echoed)


def scale() -> None:
    """Return the output, times a constant."""
    _replace(_scaled)


def skip() -> None:
    """Leave out the last layer."""
    _replace(_skipped)


def stale() -> None:
    """Return the rows of the session before, as far as they go. Sessions have to come in turn."""
    _replace(Stale().forward)


def lower() -> None:
    """Say that it computes in f32; what it computes in is an option of the worker."""
    honest, f32 = Model.registration, DType.F32.value

    def registration(self: Model, host: Host, api_url: str) -> Register:
        return replace(honest(self, host, api_url), dtype=f32, kv=f32)

    Model.registration = registration  # type: ignore[method-assign]


def _replace(forward: Forward) -> None:
    def replaced(
        self: Shard,
        x: Tensor,
        cache: Cache,
        position: int,
        layers: LayerRange,
        job_advance: Advance,
    ) -> Tensor:
        return forward(self, x, cache, position, layers, job_advance)

    Shard.forward = replaced  # type: ignore[method-assign]


def _echoed(
    shard: Shard, x: Tensor, cache: Cache, position: int, layers: LayerRange, advance: Advance
) -> Tensor:
    cache.rollback(position)
    cache.extend(len(x))
    return x


def _scaled(
    shard: Shard, x: Tensor, cache: Cache, position: int, layers: LayerRange, advance: Advance
) -> Tensor:
    return _true(shard, x, cache, position, layers, advance) * SCALE


def _skipped(
    shard: Shard, x: Tensor, cache: Cache, position: int, layers: LayerRange, advance: Advance
) -> Tensor:
    cache.rollback(position)
    return shard._decoder.run(x, cache, list(layers)[:-1], advance)


class Stale:
    """Remembers the rows of two sessions: of this one, and of the one before."""

    def __init__(self) -> None:
        self._before: list[Tensor] = []
        self._ours: list[Tensor] = []

    def forward(
        self,
        shard: Shard,
        x: Tensor,
        cache: Cache,
        position: int,
        layers: LayerRange,
        advance: Advance,
    ) -> Tensor:
        """The old rows of these positions, and the true ones where there are none."""
        true = _true(shard, x, cache, position, layers, advance)
        if position == 0:
            self._before, self._ours = self._ours, []
        del self._ours[position:]
        self._ours += true.unbind(0)
        old = self._before[position : position + len(x)]
        return torch.stack([*old, *true.unbind(0)[len(old) :]])
