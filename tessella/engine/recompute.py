"""What a range of layers answers, worked out again in f32, and how far a worker was from it.

An audit takes its time but little memory: the weights of one layer at a time, keys and values of
that layer, and the rows. Every layer runs over all positions before the next is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from tessella.core.audits import Measured
from tessella.core.costs import kv_bytes
from tessella.core.errors import BadRequest, BadTensor, LocalError, NotFinite
from tessella.core.layers import LayerRange
from tessella.core.numeric import weights_word
from tessella.core.parameters import EMBEDDING
from tessella.core.shapes import DType, ModelShape
from tessella.engine.cache import Cache
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import Device
from tessella.engine.loading import DecoderReader
from tessella.engine.model import Decoder, Layer
from tessella.engine.rope import Rotary

# Positions that run, or are compared, at a time: as many as a prefill chunk has.
CHUNK_POSITIONS = 512
# A sink's norm is this many times the median; those of other tokens are within twice of it.
SINK_NORM = 8.0
# Below this norm a row is zero, as some tokens of some vocabularies are: what differs from it is
# counted relative to this, and it has no gain.
LEAST_NORM = 1e-9

_DONE = object()

# Tables stored in 16 bits lose nothing when they are read so, and take half the memory.
_TABLES = {"f16": torch.float16, "bf16": torch.bfloat16}


def _go_on() -> None:
    """What a step calls whose caller has nothing to say."""


class Recomputation:
    """The output rows of a session from position 0 on, worked out step by step.

    `source` is token ids for a range that begins at layer 0, else the input rows `[n, hidden]` in
    any float dtype; it is not written to. Nothing is read before the first step.
    Raises LocalError for a range that the model or the source does not have, BadTensor for rows of
    another shape.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        layers: LayerRange,
        source: Sequence[int] | Tensor,
        *,
        device: Device = Device.CPU,
    ) -> None:
        shape = checkpoint.shape
        if not shape.whole.holds(layers):
            raise LocalError(f"layers {layers} of a model of {shape.layers}")
        if isinstance(source, Tensor):
            _check_rows(source, shape)
        elif layers.start != 0:
            raise LocalError(f"token ids are no input of layers {layers}")
        self.rows: Tensor | None = None
        """`[n, hidden]`, in f32 on the device, once no step is left."""
        self._checkpoint, self._layers, self._device = checkpoint, layers, device
        self._advance: Callable[[], None] = _go_on
        self._steps = self._run(source)

    def step(self, job_advance: Callable[[], None]) -> bool:
        """Read one matrix, or run one chunk through one layer; whether there is more to do.

        `job_advance` is called after a chunk, and what it raises ends the work for good. Raises
        BadRequest for an id outside the vocabulary, and BadWeights.
        """
        self._advance = job_advance
        return next(self._steps, _DONE) is not _DONE

    @torch.inference_mode()
    def _run(self, source: Sequence[int] | Tensor) -> Iterator[None]:
        checkpoint, device = self._checkpoint, self._device
        if isinstance(source, Tensor):
            rows = source.to(device.torch_device, torch.float32, copy=True)
        else:
            rows = _embedded(checkpoint, source, device)
        yield
        reader = DecoderReader(checkpoint, torch.float32, device.torch_device, lambda *_: None)
        rotary = Rotary(checkpoint.shape, torch.float32, device.torch_device)
        rotary.reach(len(rows))
        for index in self._layers:
            parts = {}
            for name, part in reader.layer_parts(index):
                parts[name] = part
                yield
            decoder = _decoder(checkpoint.shape, index, Layer(**parts), rotary)
            # No other name holds the layer: it is gone before the next is read.
            del parts, part
            yield from self._through(decoder, index, rows)
            del decoder
        self.rows = rows

    def _through(self, decoder: Decoder, index: int, rows: Tensor) -> Iterator[None]:
        """All rows through one layer, in place."""
        alone = LayerRange(index, index + 1)
        cache = Cache(decoder.shape, alone, len(rows), DType.F32, self._device)
        for chunk in _chunks(len(rows)):
            rows[chunk] = decoder.run(rows[chunk], cache, alone, self._advance)
            yield


def recompute(
    checkpoint: Checkpoint,
    layers: LayerRange,
    source: Sequence[int] | Tensor,
    job_advance: Callable[[], None],
    *,
    device: Device = Device.CPU,
) -> Tensor:
    """The rows of a `Recomputation`, at once.

    `job_advance` is called after each chunk of a layer, and what it raises stops the work. Raises
    what a `Recomputation` and its steps raise.
    """
    work = Recomputation(checkpoint, layers, source, device=device)
    while work.step(job_advance):
        pass
    if work.rows is None:
        raise LocalError("a recomputation that ended without its rows")
    return work.rows


def recompute_bytes(shape: ModelShape, positions: int, *, embedding: bool) -> int:
    """What `recompute` holds at most, for a budget: weights, keys and values, rows.

    Counts the table of the embedding where ids are the source; attention's own scores are not in.
    """
    layer = 4 * shape.layer_params + kv_bytes(shape, 1, positions, DType.F32)
    table = 4 * shape.embedding_params if embedding else 0
    return max(layer, table) + 2 * 4 * positions * shape.hidden


def measure(output: Tensor, reference: Tensor) -> Measured:
    """A worker's rows beside the recomputed ones, both `[n, hidden]` in any float dtype.

    Sums are f64. Rows of another shape are no tokens at all. Raises NotFinite for a reference that
    holds NaN or Inf: it judges nobody.
    """
    if output.shape != reference.shape or output.dim() != 2 or not len(output):
        return Measured(0, torch.inf, torch.inf, torch.inf, finite=False)
    figures = [
        _figures(output[chunk].double(), finite(reference[chunk].to(output.device).double()))
        for chunk in _chunks(len(output))
    ]
    errors, gains, norms = (torch.cat(each) for each in zip(*figures, strict=True))
    return measured(errors, gains, norms)


def measured(errors: Tensor, gains: Tensor, norms: Tensor) -> Measured:
    """The figures of an audit from those of its tokens, all `[n]` in f64.

    Sinks, by the norms of the reference, leave both medians and stay in the maximum.
    """
    kept = norms <= SINK_NORM * norms.median()
    return Measured(
        tokens=len(errors),
        median=float(errors[kept].median()),
        worst=float(errors.max()),
        gain=float(gains[kept].median()),
        finite=bool(errors.isfinite().all()),
    )


def finite(reference: Tensor) -> Tensor:
    """The recomputed rows themselves. Raises NotFinite for NaN and Inf."""
    if not reference.isfinite().all():
        raise NotFinite("the recomputed rows hold values that are not finite")
    return reference


def gains_of(output: Tensor, reference: Tensor) -> Tensor:
    """`<y, r> / <r, r>` of each row of f64, `[n]`; 1 where the reference is zero."""
    norms = reference.norm(dim=-1)
    gains = (output * reference).sum(dim=-1) / norms.clamp(min=LEAST_NORM).square()
    return torch.where(norms > LEAST_NORM, gains, 1.0)


def weights_of(checkpoint: Checkpoint, layers: LayerRange) -> str:
    """The word of `core.numeric` for how the matrices of these layers are stored."""
    prefixes = tuple(f"model.layers.{index}." for index in layers)
    return weights_word(
        info.stored
        for name, info in checkpoint.tensors.items()
        if len(info.shape) > 1 and name.startswith(prefixes)
    )


def _check_rows(source: Tensor, shape: ModelShape) -> None:
    if source.dim() != 2 or source.shape[1] != shape.hidden or not len(source):
        raise BadTensor(f"input rows of shape {list(source.shape)}, wanted [n, {shape.hidden}]")


def _decoder(shape: ModelShape, index: int, layer: Layer, rotary: Rotary) -> Decoder:
    """One layer, without the ends of a model."""
    return Decoder(
        shape=shape, layers={index: layer}, rotary=rotary, embedding=None, norm=None, head=None
    )


@torch.inference_mode()
def _embedded(checkpoint: Checkpoint, ids: Sequence[int], device: Device) -> Tensor:
    """`[n, hidden]` of token ids; the table is read on the CPU and gone when this returns."""
    shape = checkpoint.shape
    if not ids:
        raise BadRequest("no token ids")
    if strange := [token for token in ids if not 0 <= token < shape.vocab]:
        raise BadRequest(f"token id {strange[0]} is not in the vocabulary of {shape.vocab}")
    stored = checkpoint.tensors[EMBEDDING].stored.lower()
    table = torch.empty(shape.vocab, shape.hidden, dtype=_TABLES.get(stored, torch.float32))
    checkpoint.read(EMBEDDING, table)
    rows = table.index_select(0, torch.tensor(ids))
    return rows.to(device.torch_device, torch.float32)


def _chunks(positions: int) -> list[slice]:
    starts = range(0, positions, CHUNK_POSITIONS)
    return [slice(start, min(start + CHUNK_POSITIONS, positions)) for start in starts]


@torch.inference_mode()
def _figures(output: Tensor, reference: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Error, gain and reference norm of each token, from `[n, hidden]` in f64 to `[n]`."""
    norms = reference.norm(dim=-1)
    errors = (output - reference).norm(dim=-1) / norms.clamp(min=LEAST_NORM)
    return errors, gains_of(output, reference), norms
