"""What a shard costs in bytes, from the shape alone: planners ask before a weight is read.

The engine holds exactly these bytes of weights (a test compares them with a loaded shard). The
final norm counts with the head, because the stage that holds the head is the one that applies it.
A serving type means weights, or KV, that are kept in it.
"""

from __future__ import annotations

from tessella.core.formats import KvFormat, WeightFormat
from tessella.core.layers import LayerRange
from tessella.core.parameters import layer_parameters
from tessella.core.shapes import DType, ModelShape

Weights = DType | WeightFormat
Kv = DType | KvFormat


def layer_bytes(shape: ModelShape, weights: Weights) -> int:
    """Weights of one layer: attention, MLP, biases and its two norms."""
    kept = WeightFormat.of(weights)
    return sum(kept.tensor_bytes(size) for _, size in layer_parameters(shape, 0))


def embedding_bytes(shape: ModelShape, weights: Weights) -> int:
    """The token embedding, held by the stage of layer 0."""
    return WeightFormat.of(weights).table_bytes(shape.vocab, shape.hidden)


def head_bytes(shape: ModelShape, weights: Weights) -> int:
    """The final norm and the head, held by the stage of the last layer.

    A tied head is a table of its own here; `shard_bytes` counts it once where the embedding is too.
    """
    norm = WeightFormat.of(weights).tensor_bytes((shape.hidden,))
    return embedding_bytes(shape, weights) + norm


def shard_bytes(shape: ModelShape, layers: LayerRange, weights: Weights) -> int:
    """Weights of a range: its layers, the embedding at layer 0, norm and head at the last layer.

    Raises ValueError for a range beyond the model.
    """
    if not shape.whole.holds(layers):
        raise ValueError(f"layers {layers} of a model of {shape.layers}")
    total = len(layers) * layer_bytes(shape, weights)
    first, last = layers.start == 0, layers.stop == shape.layers
    if first:
        total += embedding_bytes(shape, weights)
    if last:
        total += head_bytes(shape, weights)
    if first and last and shape.tied:
        total -= embedding_bytes(shape, weights)
    return total


def position_bytes(shape: ModelShape, layers: int, kv: Kv) -> int:
    """Keys and values of one position over this many layers."""
    rows = shape.kv_values(layers) // shape.head_dim
    return rows * KvFormat.of(kv).row_bytes(shape.head_dim)


def kv_bytes(shape: ModelShape, layers: int, positions: int, kv: Kv) -> int:
    """Keys and values of a whole cache."""
    return positions * position_bytes(shape, layers, kv)
