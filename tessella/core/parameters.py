"""Every parameter that a `ModelShape` implies: its name in a HuggingFace checkpoint, and its shape.

A linear layer's weight is `[out, in]`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessella.core.shapes import ModelShape

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"

Parameter = tuple[str, tuple[int, ...]]


def parameters_of(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """All parameters, from the embedding to the head. A tied head is no parameter of its own."""
    found: dict[str, tuple[int, ...]] = {EMBEDDING: (shape.vocab, shape.hidden)}
    for layer in shape.whole:
        found.update(layer_parameters(shape, layer))
    found[FINAL_NORM] = (shape.hidden,)
    if not shape.tied:
        found[HEAD] = (shape.vocab, shape.hidden)
    return found


def layer_parameters(shape: ModelShape, layer: int) -> Iterator[Parameter]:
    """The parameters of one layer, in the order they are used."""
    hidden, wide = shape.hidden, shape.intermediate
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    linears = (
        ("self_attn.q_proj", q, hidden, shape.qkv_bias),
        ("self_attn.k_proj", kv, hidden, shape.qkv_bias),
        ("self_attn.v_proj", kv, hidden, shape.qkv_bias),
        ("self_attn.o_proj", hidden, q, shape.out_bias),
        ("mlp.gate_proj", wide, hidden, shape.mlp_bias),
        ("mlp.up_proj", wide, hidden, shape.mlp_bias),
        ("mlp.down_proj", hidden, wide, shape.mlp_bias),
    )
    prefix = f"model.layers.{layer}"
    yield f"{prefix}.input_layernorm.weight", (hidden,)
    yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
    for name, rows, columns, biased in linears:
        yield f"{prefix}.{name}.weight", (rows, columns)
        if biased:
            yield f"{prefix}.{name}.bias", (rows,)
