"""What a shard costs in bytes, from the shape alone: planners ask before a weight is read.

The engine holds exactly these bytes of weights (a test compares them with a loaded shard). The
final norm counts with the head, because the stage that holds the head is the one that applies it.
"""

from __future__ import annotations

from tessella.core.layers import LayerRange
from tessella.core.shapes import DType, ModelShape


def layer_bytes(shape: ModelShape, dtype: DType) -> int:
    """Weights of one layer: attention, MLP, biases and its two norms."""
    return shape.layer_params * dtype.itemsize


def embedding_bytes(shape: ModelShape, dtype: DType) -> int:
    """The token embedding, held by the stage of layer 0."""
    return shape.embedding_params * dtype.itemsize


def head_bytes(shape: ModelShape, dtype: DType) -> int:
    """The final norm and the head, held by the stage of the last layer.

    A tied head is a table of its own here; `shard_bytes` counts it once where the embedding is too.
    """
    return (shape.embedding_params + shape.hidden) * dtype.itemsize


def shard_bytes(shape: ModelShape, layers: LayerRange, dtype: DType) -> int:
    """Weights of a range: its layers, the embedding at layer 0, norm and head at the last layer.

    Raises ValueError for a range beyond the model.
    """
    if not shape.whole.holds(layers):
        raise ValueError(f"layers {layers} of a model of {shape.layers}")
    total = len(layers) * layer_bytes(shape, dtype)
    first, last = layers.start == 0, layers.stop == shape.layers
    if first:
        total += embedding_bytes(shape, dtype)
    if last:
        total += head_bytes(shape, dtype)
    if first and last and shape.tied:
        total -= embedding_bytes(shape, dtype)
    return total


def position_bytes(shape: ModelShape, layers: int, dtype: DType) -> int:
    """Keys and values of one position over this many layers."""
    return shape.kv_values(layers) * dtype.itemsize


def kv_bytes(shape: ModelShape, layers: int, positions: int, dtype: DType) -> int:
    """Keys and values of a whole cache."""
    return positions * position_bytes(shape, layers, dtype)
