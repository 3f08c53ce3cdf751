"""From what a checkpoint says about itself to a `ModelShape`: `config.json`, and a GGUF header.

A checkpoint is a stranger's file. What we do not have (an architecture, a rope type, an
activation) is UnsupportedModel; what cannot be true is BadWeights. Either names the key. Nothing
that changes the arithmetic is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tessella.core.config_keys import Keys, shown
from tessella.core.errors import BadWeights, UnsupportedModel
from tessella.core.shapes import ModelShape, Rope, RopeKind

# Far above any decoder there is, and low enough that no product of two overflows a file or a plan.
MAX_LAYERS = 1024
MAX_HEADS = 4096
MAX_HEAD_DIM = 4096
MAX_WIDTH = 1 << 20
MAX_VOCAB = 1 << 22
MAX_CONTEXT = 1 << 28

_ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"}
_FAMILIES = tuple(_ARCHITECTURES.values())
_SILU = ("silu", "swish")


def shape_of_config(config: Mapping[str, object]) -> ModelShape:
    """The shape that a HuggingFace `config.json` describes (llama and qwen2).

    Both spellings of rope are read: `rope_theta` with `rope_scaling`, and `rope_parameters`.
    Raises UnsupportedModel or BadWeights, naming the key.
    """
    keys = Keys(config)
    family = _family(keys)
    _refuse_unknown_arithmetic(keys)
    heads = keys.whole("num_attention_heads", MAX_HEADS)
    hidden = keys.whole("hidden_size", MAX_WIDTH)
    # Llama files older than grouped heads have no such key; Qwen2's own default is not `heads`.
    kv_heads = keys.whole("num_key_value_heads", MAX_HEADS, heads if family == "llama" else None)
    context = keys.whole("max_position_embeddings", MAX_CONTEXT)
    biased = family == "qwen2" or keys.flag("attention_bias")
    return ModelShape(
        family=family,
        layers=keys.whole("num_hidden_layers", MAX_LAYERS),
        hidden=hidden,
        intermediate=keys.whole("intermediate_size", MAX_WIDTH),
        heads=heads,
        kv_heads=_divides(kv_heads, heads, "num_key_value_heads"),
        head_dim=_head_dim(keys, "head_dim", hidden, heads),
        vocab=keys.whole("vocab_size", MAX_VOCAB),
        context=context,
        norm_eps=keys.number("rms_norm_eps", 1e-6),
        rope=_rope_of_config(config, context),
        tied=keys.flag("tie_word_embeddings"),
        qkv_bias=biased,
        out_bias=family == "llama" and biased,
        mlp_bias=family == "llama" and keys.flag("mlp_bias"),
    )


def _family(keys: Keys) -> str:
    names = keys.get("architectures")
    if not names:
        model_type = keys.word("model_type")
        if model_type not in _FAMILIES:
            raise UnsupportedModel(
                f"model_type {model_type!r} is not one of {', '.join(_FAMILIES)}"
            )
        return model_type
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise BadWeights(f"architectures must be a list of strings, not {shown(names)}")
    if names[0] not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise UnsupportedModel(f"architectures: {shown(names[0])} is not one of {known}")
    return _ARCHITECTURES[names[0]]


def _refuse_unknown_arithmetic(keys: Keys) -> None:
    activation = keys.word("hidden_act", "silu")
    if activation not in _SILU:
        raise UnsupportedModel(f"hidden_act {shown(activation)} is not silu")
    keys.refuse("use_sliding_window", False)
    keys.refuse("quantization_config")
    keys.refuse("partial_rotary_factor", 1)
    kinds = keys.get("layer_types")
    if isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds):
        raise UnsupportedModel("layer_types holds other kinds than full_attention")


def _divides(kv_heads: int, heads: int, key: str) -> int:
    if heads % kv_heads:
        raise BadWeights(f"{key} = {kv_heads} does not divide the {heads} attention heads")
    return kv_heads


def _head_dim(keys: Keys, key: str, hidden: int, heads: int) -> int:
    if keys.get(key) is None and hidden % heads:
        raise BadWeights(
            f"{keys.named(key)} is missing, and {heads} heads do not divide a width of {hidden}"
        )
    dim = keys.whole(key, MAX_HEAD_DIM, hidden // heads)
    if dim % 2:
        raise BadWeights(f"{keys.named(key)} = {dim} is odd: rotary attention turns pairs")
    return dim


def _rope_of_config(config: Mapping[str, object], context: int) -> Rope:
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    values = config.get(key) or {}
    if not isinstance(values, Mapping):
        raise BadWeights(f"{key} must be an object, not {shown(values)}")
    keys = Keys(values, f"{key}.")
    theta = Keys(config).number("rope_theta", 10_000.0)
    theta = keys.number("rope_theta", theta)
    word = keys.word("rope_type", keys.word("type", "default"))
    kinds = {"default": RopeKind.NONE} | {kind.value: kind for kind in RopeKind}
    if word not in kinds:
        raise UnsupportedModel(f"{keys.named('rope_type')} {shown(word)} is not supported")
    for name, harmless in (("partial_rotary_factor", 1), ("truncate", True)):
        keys.refuse(name, harmless)
    keys.refuse("mscale")
    keys.refuse("mscale_all_dim")
    # A config that has the trained length beside the rope's own keys means that one.
    outer = Keys(config).whole("original_max_position_embeddings", MAX_CONTEXT, context)
    inner = keys.whole("original_max_position_embeddings", MAX_CONTEXT, outer)
    original = outer if config.get("original_max_position_embeddings") else inner
    return _rope(kinds[word], theta, keys, original)


def _rope(kind: RopeKind, theta: float, keys: Keys, original: int) -> Rope:
    if kind is RopeKind.NONE:
        return Rope(theta=theta)
    factor = keys.number("factor")
    if kind is RopeKind.LINEAR:
        return Rope(theta=theta, kind=kind, factor=factor)
    if kind is RopeKind.LLAMA3:
        low, high = keys.number("low_freq_factor"), keys.number("high_freq_factor")
        if low >= high:
            raise BadWeights(f"{keys.named('low_freq_factor')} = {low} is not below {high}")
        return Rope(
            theta=theta,
            kind=kind,
            factor=factor,
            low_freq_factor=low,
            high_freq_factor=high,
            original_context=original,
        )
    given = keys.get("attention_factor")
    return Rope(
        theta=theta,
        kind=kind,
        factor=factor,
        original_context=original,
        beta_fast=keys.number("beta_fast", 32.0),
        beta_slow=keys.number("beta_slow", 1.0),
        attention_factor=None if given is None else keys.number("attention_factor"),
    )


def shape_of_gguf(metadata: Mapping[str, object], *, tied: bool) -> ModelShape:
    """The shape that a GGUF header describes (llama and qwen2).

    `tied` is known from the tensors: a GGUF file without `output.weight` is tied. Arrays may be
    given as lists, or as anything with a length. Raises UnsupportedModel or BadWeights, naming
    the key.
    """
    family = Keys(metadata).word("general.architecture")
    if family not in _FAMILIES:
        raise UnsupportedModel(
            f"general.architecture {shown(family)} is not one of {', '.join(_FAMILIES)}"
        )
    start = f"{family}."
    own = {key[len(start) :]: value for key, value in metadata.items() if key.startswith(start)}
    keys = Keys(own, start)
    keys.refuse("expert_count", 0)
    keys.refuse("attention.sliding_window", 0)
    heads = keys.whole("attention.head_count", MAX_HEADS)
    kv_heads = keys.whole("attention.head_count_kv", MAX_HEADS, heads)
    hidden = keys.whole("embedding_length", MAX_WIDTH)
    context = keys.whole("context_length", MAX_CONTEXT)
    dim = _head_dim(keys, "attention.key_length", hidden, heads)
    keys.refuse("attention.value_length", dim)
    keys.refuse("rope.dimension_count", dim)
    return ModelShape(
        family=family,
        layers=keys.whole("block_count", MAX_LAYERS),
        hidden=hidden,
        intermediate=keys.whole("feed_forward_length", MAX_WIDTH),
        heads=heads,
        kv_heads=_divides(kv_heads, heads, keys.named("attention.head_count_kv")),
        head_dim=dim,
        vocab=keys.whole("vocab_size", MAX_VOCAB, _tokens_in(metadata)),
        context=context,
        norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        rope=_rope_of_gguf(keys, context),
        tied=tied,
        qkv_bias=family == "qwen2",
    )


def _tokens_in(metadata: Mapping[str, object]) -> int | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if hasattr(tokens, "__len__") else None


# What tunes yarn in a GGUF header, with the values that change nothing.
_YARN_KEYS = {
    "attn_factor": 1.0,
    "yarn_attn_factor": 1.0,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_ext_factor": 1.0,
    "yarn_log_multiplier": 0.0,
}


def _rope_of_gguf(keys: Keys, context: int) -> Rope:
    theta = keys.number("rope.freq_base", 10_000.0)
    word = keys.word("rope.scaling.type", "linear")
    if word not in ("none", "linear", "yarn"):
        raise UnsupportedModel(f"{keys.named('rope.scaling.type')} {shown(word)} is not supported")
    for name, harmless in _YARN_KEYS.items():
        keys.refuse(f"rope.scaling.{name}", harmless)
    # A factor of 0 is llama.cpp's way to say there is none; the older key is `rope.scale_linear`.
    factor = keys.get("rope.scaling.factor") or keys.get("rope.scale_linear") or 1.0
    scaling = Keys({"factor": factor}, f"{keys.prefix}rope.scaling.")
    if word == "none" or scaling.number("factor") == 1.0:
        return Rope(theta=theta)
    original = keys.whole("rope.scaling.original_context_length", MAX_CONTEXT, context)
    return _rope(RopeKind(word), theta, scaling, original)


def eos_of(*holders: Mapping[str, object], more: Iterable[int] = (), vocab: int) -> frozenset[int]:
    """Every id that ends an answer: `more`, and each holder's `eos_token_id` (id, list or null).

    Ids that the vocabulary does not have are left out: no model says them. Raises BadWeights for
    a value that is neither.
    """
    found = set(more)
    for holder in holders:
        value = holder.get("eos_token_id")
        ids = value if isinstance(value, list) else [] if value is None else [value]
        for one in ids:
            if isinstance(one, bool) or not isinstance(one, int):
                raise BadWeights(f"eos_token_id must hold whole numbers, not {shown(one)}")
            found.add(one)
    return frozenset(one for one in found if 0 <= one < vocab)
