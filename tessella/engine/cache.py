"""Keys and values of one session, and the bytes that all sessions may spend on them.

Layout: `[layer, keys | values, kv head, position, head_dim]`. Each head is one run of memory in
order of positions, which is how attention on a CPU reads it. The whole capacity is asked for at
once and never moved; the system commits a page only when a position in it is first written, so a
short session in a long cache costs little real memory. Budgets count the capacity all the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tessella.core.costs import kv_bytes
from tessella.core.errors import ContextTooLong, PositionGap
from tessella.core.layers import LayerRange
from tessella.core.shapes import DType, ModelShape
from tessella.engine.device import Device, torch_dtype


class Cache:
    """Room for `capacity` positions over a layer range; `length` of them are held.

    A chunk is written layer by layer with `append` and counts only after `extend`: work that
    stops half way leaves the length, and so the session, as it was.
    """

    @torch.inference_mode()
    def __init__(
        self, shape: ModelShape, layers: LayerRange, capacity: int, dtype: DType, device: Device
    ) -> None:
        self._shape, self._device = shape, device
        self.layers = layers
        self.capacity = capacity
        self.dtype = dtype
        self.length = 0
        self.nbytes = kv_bytes(shape, len(layers), capacity, dtype)
        held = torch.empty(
            (len(layers), 2, shape.kv_heads, capacity, shape.head_dim),
            dtype=torch_dtype(dtype),
            device=device.torch_device,
        )
        # Views are made here once: a decode step looks at each layer for microseconds only.
        self._layers = [pair.unbind(0) for pair in held.unbind(0)]

    @torch.inference_mode()
    def grown(self, capacity: int) -> Cache:
        """Another cache with this room, that holds the same. Raises ContextTooLong for less."""
        other = Cache(self._shape, self.layers, capacity, self.dtype, self._device)
        other.check_room(self.length)
        for ours, theirs in zip(self._layers, other._layers, strict=True):
            for old, new in zip(ours, theirs, strict=True):
                new.narrow(1, 0, self.length).copy_(old.narrow(1, 0, self.length))
        other.length = self.length
        return other

    def rollback(self, position: int) -> None:
        """Forget every position from this one on. Raises PositionGap if it is beyond the length."""
        if not 0 <= position <= self.length:
            raise PositionGap(position, self.length)
        self.length = position

    def check_room(self, positions: int) -> None:
        """Raises ContextTooLong unless so many more positions fit."""
        if self.length + positions > self.capacity:
            raise ContextTooLong(
                f"{self.length} + {positions} positions, the context of this session "
                f"is {self.capacity}"
            )

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write a chunk of one layer behind `length`; all its keys and values up to there.

        `keys` and `values` are `[n, kv_heads, head_dim]`; the answer is two views
        `[kv_heads, length + n, head_dim]`. Call `check_room` before the first layer,
        and this inside `torch.inference_mode`.
        """
        all_keys, all_values = self._layers[layer - self.layers.start]
        start, positions = self.length, keys.shape[0]
        all_keys.narrow(1, start, positions).copy_(keys.transpose(0, 1))
        all_values.narrow(1, start, positions).copy_(values.transpose(0, 1))
        stop = start + positions
        return all_keys.narrow(1, 0, stop), all_values.narrow(1, 0, stop)

    def extend(self, positions: int) -> None:
        """Count a chunk that every layer has appended."""
        self.check_room(positions)
        self.length += positions
