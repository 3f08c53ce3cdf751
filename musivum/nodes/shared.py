"""Values that thousands of nodes have in common, kept once: a shape, and what its layers cost."""

from __future__ import annotations

from functools import lru_cache

from tessella.core.formats import KvFormat
from tessella.core.plan import MemoryTerms, terms_of
from tessella.core.shape_json import decode_shape
from tessella.core.shapes import DType, ModelShape

# Of the models that are registered for now; a mesh of more loses nothing but time.
MAX_SHAPES = 256
MAX_TERMS = 1024


@lru_cache(maxsize=MAX_SHAPES)
def shape_of(data: bytes) -> ModelShape:
    """`decode_shape`, the same value for the same bytes. Raises BadFrame."""
    return decode_shape(data)


@lru_cache(maxsize=MAX_TERMS)
def shared_terms(
    shape: ModelShape,
    dtype: DType,
    kv: KvFormat,
    sessions: tuple[int, int],
    rules: tuple[int, int],
) -> MemoryTerms:
    """`terms_of` for `sessions` (context, slots) under `rules` (usable percent, least MB)."""
    (context, slots), (usable_vram_pct, min_vram_mb) = sessions, rules
    return terms_of(
        shape,
        dtype,
        context=context,
        slots=slots,
        kv=kv,
        usable_vram_pct=usable_vram_pct,
        min_vram_mb=min_vram_mb,
    )
