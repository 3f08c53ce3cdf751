"""What a node may ask for: a `Register` read once, field by field, into values with a meaning."""

from __future__ import annotations

from dataclasses import dataclass

from musivum.nodes.shared import shape_of, shared_terms
from tessella.core.addresses import MAX_ADDRS, Cidr, Ip, judge_addr
from tessella.core.configs import MAX_CONTEXT
from tessella.core.contracts import contract_of
from tessella.core.errors import BadAddress, BadFrame, BadManifest
from tessella.core.formats import KvFormat
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.messages import Register
from tessella.core.numeric import WEIGHT_WORDS
from tessella.core.plan import MemoryTerms
from tessella.core.shapes import DType, ModelShape
from tessella.web.targets import MAX_URL_CHARS, judge_url

MAX_NAME_CHARS = 200
MAX_DEVICE_CHARS = 64
# All of a node's addresses: 16 of the usual length. A list of thousands has to fit 4 MiB.
MAX_ADDRS_CHARS = 1024
MAX_SLOTS = 4096
# 1 PB, so that no sum of claims leaves 64 bits.
MAX_CLAIM_MB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What this mesh asks of every registration."""

    usable_vram_pct: int
    min_vram_mb: int
    allow_private: bool | tuple[Cidr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A registration whose fields all keep their rules."""

    model: ModelId
    contract: str
    shape: ModelShape
    addrs: tuple[str, ...]
    api_url: str
    device: str
    dtype: DType
    kv: KvFormat
    context: int
    slots: int
    claim_mb: int
    terms: MemoryTerms
    wanted: LayerRange | None
    weights: str = ""
    """The format of the weights that it loads, one of WEIGHT_WORDS; empty if it did not say."""
    is_canary: bool = False
    """Whether it answers wrongly on purpose."""
    ips: tuple[Ip, ...] = ()
    """Where the node's key answered; none before that was tried."""


def read_registration(asked: Register, house: House) -> Wish:
    """The wish in a Register.

    Raises BadFrame for a field out of its rule, BadManifest for a contract that is not the one of
    the shape, and BadAddress for a place where nobody may be sent.
    """
    shape = shape_of(asked.shape)
    dtype, kv = _dtype(asked.dtype), _kv(asked.kv)
    context = _whole("context", asked.context, 1, MAX_CONTEXT)
    slots = _whole("slots", asked.slots, 1, MAX_SLOTS)
    rules = (house.usable_vram_pct, house.min_vram_mb)
    terms = shared_terms(shape, dtype, kv, (context, slots), rules)
    if asked.wanted is not None and not terms.whole.holds(asked.wanted):
        raise BadFrame(f"Register.wanted: layers {asked.wanted} of a model of {shape.layers}")
    return Wish(
        model=ModelId(_word("model", asked.model, MAX_NAME_CHARS)),
        contract=_contract(asked.contract, shape),
        shape=shape,
        addrs=_addrs(asked.addrs, house.allow_private, has_url=bool(asked.api_url)),
        api_url=_api_url(asked.api_url, house.allow_private),
        device=_word("device", asked.device, MAX_DEVICE_CHARS),
        dtype=dtype,
        kv=kv,
        context=context,
        slots=slots,
        claim_mb=_whole("claim_mb", asked.claim_mb, 0, MAX_CLAIM_MB),
        terms=terms,
        wanted=asked.wanted,
        weights=_weights(asked.weights),
        is_canary=asked.canary,
    )


def _contract(contract: str, shape: ModelShape) -> str:
    if contract != contract_of(shape):
        raise BadManifest(f"Register.contract: the shape has the contract {contract_of(shape)}")
    return contract


def _kv(word: str) -> KvFormat:
    try:
        return KvFormat(word)
    except ValueError:
        raise BadFrame(f"Register.kv: {word[:MAX_DEVICE_CHARS]!r} is not known") from None


def _dtype(word: str) -> DType:
    try:
        return DType(word)
    except ValueError:
        raise BadFrame(f"Register.dtype: {word[:MAX_DEVICE_CHARS]!r} is not served") from None


def _weights(word: str) -> str:
    if word and word not in WEIGHT_WORDS:
        raise BadFrame(f"Register.weights: {word[:MAX_DEVICE_CHARS]!r} is not known")
    return word


def _addrs(
    addrs: tuple[str, ...], allow_private: bool | tuple[Cidr, ...], *, has_url: bool
) -> tuple[str, ...]:
    """Those that may be dialled. Beside a URL there may be none: behind a tunnel, a machine knows
    itself by private addresses alone, which lead somewhere else from here."""
    if len(addrs) > MAX_ADDRS or not (addrs or has_url):
        raise BadAddress(
            f"a node of {len(addrs)} addresses: 1 to {MAX_ADDRS} may be listed, or none beside a "
            "URL of its HTTP API"
        )
    if sum(map(len, addrs)) > MAX_ADDRS_CHARS:
        raise BadAddress(f"addresses of a node longer than {MAX_ADDRS_CHARS} characters in all")
    found = []
    for addr in addrs:
        # A zone of IPv6 may hold anything, and everybody who lists nodes would print it.
        if not addr.isprintable():
            raise BadAddress(f"{addr!r} cannot be listed: it cannot be printed")
        reason = judge_addr(addr, allow_private)
        if reason is None:
            found.append(addr)
        elif not has_url:
            raise BadAddress(f"{addr} cannot be listed: {reason} (see allow_private_addrs)")
    return tuple(found)


def _api_url(url: str, allow_private: bool | tuple[Cidr, ...]) -> str:
    if url:
        reason = judge_url(url, allow_private)
        if reason is not None:
            raise BadAddress(f"{url[:MAX_URL_CHARS]!r} cannot be listed: {reason}")
    return url


def _word(name: str, value: str, limit: int) -> str:
    if not 1 <= len(value) <= limit or not value.isprintable():
        raise BadFrame(f"Register.{name} has to be 1 to {limit} printable characters")
    return value


def _whole(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise BadFrame(f"Register.{name} = {value}: has to be {least} to {most}")
    return value
