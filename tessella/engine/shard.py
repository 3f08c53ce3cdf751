"""A shard: the layers of one range in memory, with what its holder may ask of them.

Hidden states are `[n, hidden]` in the serving dtype, on the shard's device. A shard is used from
the compute thread; nothing here waits, locks or keeps gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tessella.core.costs import kv_bytes, shard_bytes
from tessella.core.errors import BadRequest, BadTensor, LocalError, NotFinite
from tessella.core.layers import LayerRange
from tessella.core.shapes import DType, ModelShape
from tessella.core.tensors import WireTensor, check_hidden
from tessella.engine.cache import Cache
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import Device, torch_dtype
from tessella.engine.loading import DecoderReader
from tessella.engine.model import Decoder


@dataclass(frozen=True, slots=True)
class LoadedTensor:
    """One tensor of the checkpoint as it is held: its HF name, and what it takes here."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    nbytes: int


# The largest activations known of trained models are some 1e5; what is far above them steers every
# layer after it, whatever was asked.
MAX_HIDDEN = 1e9


class Shard:
    """The loaded layers of one range. `load_shard` makes one; dropping it frees its memory."""

    def __init__(
        self,
        decoder: Decoder,
        layers: LayerRange,
        tensors: tuple[LoadedTensor, ...],
        *,
        device: Device,
        dtype: DType,
    ) -> None:
        self.shape: ModelShape = decoder.shape
        self.layers = layers
        self.device = device
        self.dtype = dtype
        self.tensors = tensors
        self.weight_bytes = sum(tensor.nbytes for tensor in tensors)
        self._decoder = decoder

    @property
    def holds_embedding(self) -> bool:
        """Whether `embed` can be asked: layer 0 is here."""
        return self._decoder.embedding is not None

    @property
    def holds_head(self) -> bool:
        """Whether `logits` can be asked: the last layer is here."""
        return self._decoder.head is not None

    def kv_bytes(self, positions: int, layers: LayerRange) -> int:
        """What a cache of `open_cache` takes of a budget."""
        return kv_bytes(self.shape, len(layers), positions, self.dtype)

    def open_cache(self, positions: int, layers: LayerRange) -> Cache:
        """An empty cache for a session over a subrange. Raises LocalError for layers not here."""
        self._check_layers(layers)
        self._decoder.rotary.reach(positions)
        return Cache(self.shape, layers, positions, self.dtype, self.device)

    def grow_cache(self, cache: Cache, positions: int) -> Cache:
        """The cache itself if it has room for so many positions, else a larger one in its place."""
        if cache.capacity >= positions:
            return cache
        self._decoder.rotary.reach(positions)
        return cache.grown(positions)

    def embed(self, ids: Sequence[int]) -> Tensor:
        """`[n, hidden]` of token ids. Raises BadRequest for an id outside the vocabulary."""
        if not self.holds_embedding:
            raise LocalError(f"shard {self.layers} holds no embedding")
        vocab = self.shape.vocab
        if strange := [token for token in ids if not 0 <= token < vocab]:
            raise BadRequest(f"token id {strange[0]} is not in the vocabulary of {vocab}")
        return self._decoder.embed(torch.tensor(ids, device=self.device.torch_device))

    def forward(
        self,
        x: Tensor,
        cache: Cache,
        position: int,
        layers: LayerRange,
        job_advance: Callable[[], None],
    ) -> Tensor:
        """Hidden states `[n, hidden]` at `position` and after it, through a subrange.

        The cache (opened here for the same subrange) is rolled back to `position` first and holds
        `position + n` after. `job_advance` is called after each layer, and may raise to stop the
        work: the cache then holds `position`. `x` is not written to.
        Raises PositionGap beyond the cache's length, ContextTooLong beyond its capacity.
        """
        self._check_layers(layers)
        if cache.layers != layers:
            raise LocalError(f"a cache for layers {cache.layers}, asked for {layers}")
        if x.shape[1:] != (self.shape.hidden,) or not len(x) or x.dtype != torch_dtype(self.dtype):
            raise LocalError(f"hidden states {list(x.shape)} in {x.dtype} do not fit this shard")
        cache.rollback(position)
        return self._decoder.run(x, cache, layers, job_advance)

    def logits(self, x_last: Tensor) -> Tensor:
        """`[vocab]` in f32 of the last position, `[hidden]`. Raises LocalError without the head."""
        if not self.holds_head:
            raise LocalError(f"shard {self.layers} holds no head")
        return self._decoder.logits(x_last)

    @torch.inference_mode()
    def from_wire(self, tensor: WireTensor) -> Tensor:
        """A peer's hidden state, checked, in our own dtype: stages of one chain may differ in it.

        Raises BadTensor for a lie in form, for NaN or Inf, and for values that no layer produces or
        that our dtype does not hold.
        """
        try:
            sent = DType(tensor.dtype)
        except ValueError:
            raise BadTensor(f"a hidden state in {tensor.dtype[:20]!r}") from None
        rows = check_hidden(tensor, hidden=self.shape.hidden, dtype=sent)
        # torch wants memory it could write to, so the bytes are copied once.
        values = torch.frombuffer(bytearray(tensor.data), dtype=torch_dtype(sent))
        ours = torch_dtype(self.dtype)
        most = min(MAX_HIDDEN, torch.finfo(ours).max)
        # Of NaN no comparison is true.
        if not float(values.abs().max()) <= most:
            raise BadTensor(f"a hidden state with values that are not finite, or above {most:g}")
        return values.view(rows, self.shape.hidden).to(self.device.torch_device, ours)

    @staticmethod
    @torch.inference_mode()
    def to_wire(tensor: Tensor, dtype: DType) -> WireTensor:
        """A tensor as it travels, cast to `dtype`.

        Raises NotFinite for NaN, Inf, or what the next stage would not believe, after that.
        """
        values = tensor.detach().to("cpu", torch_dtype(dtype)).contiguous()
        if not float(values.abs().max()) <= MAX_HIDDEN:
            told = f"these layers produced values that are not finite, or above {MAX_HIDDEN:g}"
            raise NotFinite(told)
        # numpy has no bf16: the elements leave as plain bytes.
        data = values.flatten().view(torch.uint8).numpy().tobytes()
        return WireTensor(dtype.value, tuple(values.shape), data)

    def _check_layers(self, layers: LayerRange) -> None:
        if not self.layers.holds(layers):
            raise LocalError(f"layers {layers} are not in shard {self.layers}")


def load_shard(
    checkpoint: Checkpoint,
    layers: LayerRange,
    *,
    device: Device,
    dtype: DType,
    on_progress: Callable[[int, int], None] | None = None,
) -> Shard:
    """Read the tensors of a range, and only those: what `core.costs.shard_bytes` counts.

    Holds at most the shard and one tensor (as read, and as decoded) at any time. `on_progress` is
    told bytes held and bytes to hold after each tensor; what it raises stops the loading.
    Raises BadWeights, UnsupportedModel as the checkpoint does, LocalError beyond the model.
    """
    if not checkpoint.shape.whole.holds(layers):
        raise LocalError(f"layers {layers} of a model of {checkpoint.shape.layers}")
    loaded: list[LoadedTensor] = []
    total = shard_bytes(checkpoint.shape, layers, dtype)
    held = 0

    def note(name: str, tensor: Tensor) -> None:
        nonlocal held
        loaded.append(LoadedTensor(name, tuple(tensor.shape), dtype, tensor.nbytes))
        held += tensor.nbytes
        if on_progress is not None:
            on_progress(held, total)

    reader = DecoderReader(checkpoint, torch_dtype(dtype), device.torch_device, note)
    decoder = reader.read(layers)
    return Shard(decoder, layers, tuple(loaded), device=device, dtype=dtype)
