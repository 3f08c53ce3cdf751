"""What a node may ask for: a `Register` read once, field by field, into values with a meaning."""

from __future__ import annotations

from dataclasses import dataclass

from tessella.core.addresses import MAX_ADDRS, check_addr
from tessella.core.configs import MAX_CONTEXT
from tessella.core.errors import BadAddress, BadFrame
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import Register
from tessella.core.plan import MemoryTerms, terms_of
from tessella.core.shape_json import decode_shape
from tessella.core.shapes import DType

MAX_NAME_CHARS = 200
MAX_CONTRACT_CHARS = 128
MAX_DEVICE_CHARS = 64
# All of a node's addresses: 16 of the usual length. A list of 8,192 nodes has to fit 4 MiB.
MAX_ADDRS_CHARS = 1024
MAX_SLOTS = 4096
# 1 PB, so that no sum of claims leaves 64 bits.
MAX_CLAIM_MB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A registration whose fields all keep their rules."""

    model: ModelId
    contract: str
    addrs: tuple[str, ...]
    device: str
    dtype: DType
    claim_mb: int
    terms: MemoryTerms
    wanted: LayerRange | None


def read_registration(asked: Register, *, usable_vram_pct: int, min_vram_mb: int) -> Wish:
    """The wish in a Register. Raises BadFrame or BadAddress that names the field."""
    shape = decode_shape(asked.shape)
    terms = terms_of(
        shape,
        _dtype(asked.dtype),
        context=_whole("context", asked.context, 1, MAX_CONTEXT),
        slots=_whole("slots", asked.slots, 1, MAX_SLOTS),
        usable_vram_pct=usable_vram_pct,
        min_vram_mb=min_vram_mb,
    )
    if asked.wanted is not None and not terms.whole.holds(asked.wanted):
        raise BadFrame(f"Register.wanted: layers {asked.wanted} of a model of {shape.layers}")
    return Wish(
        model=ModelId(_word("model", asked.model, MAX_NAME_CHARS)),
        contract=_word("contract", asked.contract, MAX_CONTRACT_CHARS),
        addrs=_addrs(asked.addrs),
        device=_word("device", asked.device, MAX_DEVICE_CHARS),
        dtype=_dtype(asked.dtype),
        claim_mb=_whole("claim_mb", asked.claim_mb, 0, MAX_CLAIM_MB),
        terms=terms,
        wanted=asked.wanted,
    )


def _dtype(word: str) -> DType:
    try:
        return DType(word)
    except ValueError:
        raise BadFrame(f"Register.dtype: {word[:MAX_DEVICE_CHARS]!r} is not served") from None


def _addrs(addrs: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= len(addrs) <= MAX_ADDRS:
        raise BadAddress(f"a node of {len(addrs)} addresses: 1 to {MAX_ADDRS} may be listed")
    if sum(map(len, addrs)) > MAX_ADDRS_CHARS:
        raise BadAddress(f"addresses of a node longer than {MAX_ADDRS_CHARS} characters in all")
    return tuple(check_addr(addr) for addr in addrs)


def _word(name: str, value: str, limit: int) -> str:
    if not 1 <= len(value) <= limit or not value.isprintable():
        raise BadFrame(f"Register.{name} has to be 1 to {limit} printable characters")
    return value


def _whole(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise BadFrame(f"Register.{name} = {value}: has to be {least} to {most}")
    return value
